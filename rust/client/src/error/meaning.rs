//! What an error means to its caller.

use std::borrow::Cow;

macro_rules! error_classes {
    ($($class:ident => $name:literal,)*) => {
        /// Kinds of errors that callers tell apart. Each has an exception class in `rocketpy.errors`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "`rocketpy.errors` describes the classes")]
        pub enum ErrorClass {
            $($class,)*
        }

        impl ErrorClass {
            /// The name of the exception class.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$class => $name,)*
                }
            }
        }
    };
}

error_classes! {
    AccessDenied => "AccessDeniedError",
    BrokerBusy => "BrokerBusyError",
    BrokerNotFound => "BrokerNotFoundError",
    Closed => "ClosedError",
    ConnectionFailed => "ConnectionFailedError",
    ConnectionLost => "ConnectionLostError",
    DamagedData => "DamagedDataError",
    Forked => "ForkedError",
    GroupConflict => "GroupConflictError",
    GroupNotFound => "GroupNotFoundError",
    InvalidArgument => "InvalidArgumentError",
    MessageTooLarge => "MessageTooLargeError",
    NotSupported => "NotSupportedError",
    Offset => "OffsetError",
    PartlySent => "PartlySentError",
    Protocol => "ProtocolError",
    Refused => "RefusedError",
    RequestTimeout => "RequestTimeoutError",
    Store => "StoreError",
    TopicNotFound => "TopicNotFoundError",
    TransactionOver => "TransactionOverError",
}

/// What an error means to its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorMeaning {
    /// The kind of error.
    pub class: ErrorClass,
    /// The response code of the server, or the local code that Apache's client gives this failure.
    pub code: Option<i32>,
    /// Whether the same call may succeed later without a change of its arguments.
    pub retryable: bool,
    /// Whether the server may have applied the request in spite of the error.
    pub may_have_been_applied: bool,
    /// What the caller can do about it, as one sentence.
    pub hint: Option<Cow<'static, str>>,
}

impl ErrorMeaning {
    /// An error without a code that a retry does not help, and that applied nothing.
    pub(super) const fn of(class: ErrorClass) -> Self {
        Self { class, code: None, retryable: false, may_have_been_applied: false, hint: None }
    }

    pub(super) fn code(self, code: i32) -> Self {
        Self { code: Some(code), ..self }
    }

    pub(super) fn retry(self) -> Self {
        Self { retryable: true, ..self }
    }

    pub(super) fn applied(self, may_have_been_applied: bool) -> Self {
        Self { may_have_been_applied, ..self }
    }

    pub(super) fn hint(self, hint: impl Into<Cow<'static, str>>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    pub(super) fn hint_if(self, applies: bool, hint: &'static str) -> Self {
        if applies { self.hint(hint) } else { self }
    }
}

//! Errors of the client crate.

use rocketpy_client::ClientError;
use rocketpy_protocol::code::response;

use super::{Facts, Raise};

impl Raise for ClientError {
    fn facts(&self) -> Facts {
        Facts {
            class: class(self),
            message: self.to_string(),
            code: self.code(),
            retryable: self.retryable(),
            may_have_been_applied: self.may_have_been_applied(),
            hint: self.hint(),
        }
    }
}

/// The class of an error. A send that failed after several attempts has that of its last attempt.
fn class(error: &ClientError) -> &'static str {
    match error {
        ClientError::BodyTooLarge { .. } | ClientError::PropertiesTooLarge { .. } => "MessageTooLargeError",
        ClientError::InvalidTopic { .. }
        | ClientError::InvalidGroup { .. }
        | ClientError::ReservedTopic { .. }
        | ClientError::SystemTopic { .. }
        | ClientError::EmptyBody { .. }
        | ClientError::InvalidProperty { .. }
        | ClientError::InvalidAddress { .. }
        | ClientError::NotFramed { .. }
        | ClientError::WrongQueue { .. }
        | ClientError::InvalidExpression { .. }
        | ClientError::InvalidConfig { .. }
        | ClientError::InvalidMessageId { .. }
        | ClientError::NoNameServer => "InvalidArgumentError",
        ClientError::Unsupported { .. } => "NotSupportedError",
        ClientError::NoRoute { .. } | ClientError::NoQueue { .. } => "TopicNotFoundError",
        ClientError::BrokerNotFound { .. }
        | ClientError::NoBrokers { .. }
        | ClientError::ClusterNotFound { .. } => "BrokerNotFoundError",
        ClientError::GroupInUse { .. }
        | ClientError::GroupActive { .. }
        | ClientError::OtherSubscription { .. } => "GroupConflictError",
        ClientError::NoMembers { .. } => "RefusedError",
        ClientError::Refused { code, .. } => refused(*code),
        ClientError::Connect { .. } | ClientError::Unreachable { .. } => "ConnectionFailedError",
        ClientError::ConnectionLost { .. } => "ConnectionLostError",
        ClientError::Timeout { .. }
        | ClientError::Congested { .. }
        | ClientError::FlushTimeout { .. }
        | ClientError::WindowFull { .. } => "RequestTimeoutError",
        ClientError::BadAnswer { .. } => "ProtocolError",
        ClientError::Codec { .. }
        | ClientError::DamagedMessage { .. }
        | ClientError::UnreadableBody { .. } => "DamagedDataError",
        ClientError::SendFailed { last, .. } => class(last),
        ClientError::NotSent { first } => class(first),
        ClientError::PartlySent { .. } => "PartlySentError",
        ClientError::NotAssigned { .. }
        | ClientError::OffsetOutOfRange { .. }
        | ClientError::NoStoredOffset { .. } => "OffsetError",
        ClientError::Closed { .. } => "ClosedError",
        ClientError::Forked { .. } => "ForkedError",
    }
}

/// The class of a response code that is not success.
fn refused(code: i32) -> &'static str {
    match code {
        response::SYSTEM_BUSY | response::FLOW_CONTROL => "BrokerBusyError",
        response::NO_PERMISSION => "AccessDeniedError",
        response::TOPIC_NOT_EXIST => "TopicNotFoundError",
        response::REQUEST_CODE_NOT_SUPPORTED => "NotSupportedError",
        _ => "RefusedError",
    }
}

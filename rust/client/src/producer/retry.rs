//! Decides whether a failed send is tried again, and where.

use crate::error::{ClientError, is_retryable_code};

/// What follows a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another queue, at another broker when there is one.
    Elsewhere,
    /// The same queue again: the message is bound to it, and the failed attempt has certainly stored nothing.
    SameQueue,
    /// No further attempt.
    GiveUp,
}

/// Decides after an attempt that failed with `error`.
///
/// A message that may go to any queue follows Apache's rule: after a transport error or a code of the retry set it is sent
/// elsewhere, and may be stored twice (with one unique key). A message bound to its queue is sent again only when the failed
/// attempt stored nothing, so that it keeps its order and is stored once.
///
/// # Source
/// docs/reference/protocol.md 3.2, docs/reference/client.md 5.5.
pub(crate) fn after_failure(error: &ClientError, bound_to_queue: bool) -> Next {
    let again = match error {
        error if error.is_denial() => false,
        ClientError::Refused { code, .. } => is_retryable_code(*code),
        ClientError::Connect { .. }
        | ClientError::ConnectionLost { .. }
        | ClientError::Congested { .. }
        | ClientError::Timeout { .. }
        | ClientError::BrokerNotFound { .. } => true,
        _ => false,
    };
    match (again, bound_to_queue) {
        (false, _) => Next::GiveUp,
        (true, false) => Next::Elsewhere,
        (true, true) if error.may_have_been_applied() => Next::GiveUp,
        (true, true) => Next::SameQueue,
    }
}

#[cfg(test)]
mod tests {
    use rocketpy_protocol::code::response;

    use super::*;

    fn refused(code: i32) -> ClientError {
        let (address, remark) = ("a:1".to_owned(), String::new());
        ClientError::Refused { operation: "send", address, code, name: "", remark }
    }

    fn timeout(may_have_been_applied: bool) -> ClientError {
        ClientError::Timeout {
            operation: "send",
            address: "a:1".into(),
            timeout_ms: 1,
            may_have_been_applied,
        }
    }

    #[test]
    fn codes_of_the_retry_set_go_elsewhere_and_others_end_the_send() {
        for code in [
            response::TOPIC_NOT_EXIST,
            response::SERVICE_NOT_AVAILABLE,
            response::SYSTEM_ERROR,
            response::SYSTEM_BUSY,
            response::NO_PERMISSION,
            204,
            205,
            response::GO_AWAY,
        ] {
            assert_eq!(after_failure(&refused(code), false), Next::Elsewhere, "{code}");
        }
        for code in [response::MESSAGE_ILLEGAL, response::INVALID_PARAMETER, 26, 215, 604] {
            assert_eq!(after_failure(&refused(code), false), Next::GiveUp, "{code}");
        }
    }

    #[test]
    fn denial_by_users_and_policies_ends_the_send() {
        let remark = "User:a has no permission to access Topic:t from 1.2.3.4, no matched policies.";
        for remark in [remark, "username cannot be null.", "check signature failed.", "User:a is disabled."] {
            let (address, remark) = ("a:1".to_owned(), remark.to_owned());
            let code = response::NO_PERMISSION;
            let denied = ClientError::Refused { operation: "send", address, code, name: "", remark };
            assert_eq!(after_failure(&denied, false), Next::GiveUp);
            assert_eq!(after_failure(&denied, true), Next::GiveUp);
            assert!(!denied.retryable());
        }
    }

    #[test]
    fn a_timeout_goes_elsewhere_unless_the_message_is_bound_to_its_queue() {
        assert_eq!(after_failure(&timeout(true), false), Next::Elsewhere);
        assert_eq!(
            after_failure(&timeout(true), true),
            Next::GiveUp,
            "it may be stored: a second copy breaks order"
        );
        assert_eq!(after_failure(&timeout(false), true), Next::SameQueue);
    }

    #[test]
    fn an_unreachable_broker_is_tried_again_for_a_bound_message() {
        let error = ClientError::Connect { address: "a:1".into(), reason: "refused".into() };
        assert_eq!(after_failure(&error, true), Next::SameQueue);
        assert_eq!(after_failure(&error, false), Next::Elsewhere);
    }

    #[test]
    fn an_illegal_message_is_not_tried_again() {
        assert_eq!(after_failure(&ClientError::EmptyBody { topic: "t".into() }, false), Next::GiveUp);
    }
}

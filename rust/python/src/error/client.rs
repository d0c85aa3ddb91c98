//! Errors of the client crate.

use rocketpy_client::{ClientError, SendError};
use rocketpy_protocol::code::response;

use super::{Facts, Raise};

impl Raise for ClientError {
    fn facts(&self) -> Facts {
        Facts {
            code: self.code(),
            retryable: self.retryable(),
            may_have_been_applied: self.may_have_been_applied(),
            hint: self.hint(),
            ..Facts::new(class(self), self.to_string())
        }
    }
}

impl Raise for SendError {
    fn facts(&self) -> Facts {
        Facts { msg_id: self.msg_id.clone(), broker: self.broker.clone(), ..self.error.facts() }
    }
}

/// The class of an error. A send that failed after several attempts has that of its last attempt, but is no failed connection, by
/// which nothing was applied, if an attempt before may have been applied.
fn class(error: &ClientError) -> &'static str {
    match error {
        ClientError::BodyTooLarge { .. }
        | ClientError::PropertiesTooLarge { .. }
        | ClientError::MessageNotFramed { .. }
        | ClientError::UnreadableBody { limit_bytes: Some(_), .. } => "MessageTooLargeError",
        ClientError::InvalidTopic { .. }
        | ClientError::InvalidGroup { .. }
        | ClientError::ReservedTopic { .. }
        | ClientError::SystemTopic { .. }
        | ClientError::EmptyBody { .. }
        | ClientError::InvalidProperty { .. }
        | ClientError::InvalidTag { .. }
        | ClientError::InvalidAddress { .. }
        | ClientError::NotFramed { .. }
        | ClientError::FrameTooLarge { .. }
        | ClientError::WrongQueue { .. }
        | ClientError::InvalidExpression { .. }
        | ClientError::InvalidSql { .. }
        | ClientError::InvalidConfig { .. }
        | ClientError::InvalidMessageId { .. }
        | ClientError::InvalidRecallHandle { .. }
        | ClientError::NoRequest { .. }
        | ClientError::NoNameServer => "InvalidArgumentError",
        ClientError::Unsupported { .. }
        | ClientError::NoDelayedTransactions { .. }
        | ClientError::NoSqlFilter { .. } => "NotSupportedError",
        ClientError::NoRoute { .. } | ClientError::NoSuchTopic { .. } | ClientError::NoQueue { .. } => {
            "TopicNotFoundError"
        }
        ClientError::BrokerNotFound { .. }
        | ClientError::NoBrokers { .. }
        | ClientError::ClusterNotFound { .. } => "BrokerNotFoundError",
        ClientError::GroupInUse { .. }
        | ClientError::GroupActive { .. }
        | ClientError::OffsetsFile { is_shared: true, .. }
        | ClientError::OtherSubscriptions { .. } => "GroupConflictError",
        ClientError::OffsetsFile { is_shared: false, .. } => "StoreError",
        ClientError::NoMembers { .. } | ClientError::NotBalanced { .. } => "RefusedError",
        ClientError::Refused { code, .. } => refused(*code),
        ClientError::TransactionOver { .. } => "TransactionOverError",
        ClientError::Connect { .. } | ClientError::Unreachable { .. } => "ConnectionFailedError",
        ClientError::ConnectionLost { .. } | ClientError::Abandoned => "ConnectionLostError",
        ClientError::Timeout { .. }
        | ClientError::Congested { .. }
        | ClientError::FlushTimeout { .. }
        | ClientError::WindowFull { .. }
        | ClientError::NoReply { .. }
        | ClientError::HalfInDoubt { .. }
        | ClientError::TooManyRequests { .. } => "RequestTimeoutError",
        ClientError::BadAnswer { .. } => "ProtocolError",
        ClientError::Codec { .. }
        | ClientError::DamagedMessage { .. }
        | ClientError::UnreadableBody { limit_bytes: None, .. } => "DamagedDataError",
        ClientError::SendFailed { last, may_have_been_applied, .. } => match class(last) {
            "ConnectionFailedError" if *may_have_been_applied => "ConnectionLostError",
            class => class,
        },
        ClientError::NotSent { first } => class(first),
        ClientError::PartlySent { .. } => "PartlySentError",
        ClientError::NotAssigned { .. }
        | ClientError::OffsetOutOfRange { .. }
        | ClientError::NoStoredOffset { .. } => "OffsetError",
        ClientError::Closed { .. } | ClientError::ClosedBeforeReply { .. } => "ClosedError",
        ClientError::Forked { .. } => "ForkedError",
    }
}

/// The class of a response code that is not success.
fn refused(code: i32) -> &'static str {
    match code {
        response::SYSTEM_BUSY | response::FLOW_CONTROL => "BrokerBusyError",
        response::NO_PERMISSION => "AccessDeniedError",
        response::TOPIC_NOT_EXIST => "TopicNotFoundError",
        response::SUBSCRIPTION_GROUP_NOT_EXIST => "GroupNotFoundError",
        response::REQUEST_CODE_NOT_SUPPORTED => "NotSupportedError",
        _ => "RefusedError",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_send_that_may_be_stored_is_no_failed_connection() {
        for (may_have_been_applied, expected) in
            [(true, "ConnectionLostError"), (false, "ConnectionFailedError")]
        {
            let last = ClientError::Connect { address: "a:1".into(), reason: "refused".into() };
            let error = ClientError::SendFailed {
                topic: "t".into(),
                attempts: 2,
                elapsed_ms: 1,
                brokers: "a,b".into(),
                may_have_been_applied,
                last: Arc::new(last),
            };
            assert_eq!(class(&error), expected);
        }
    }
}

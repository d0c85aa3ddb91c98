//! Custom headers: one struct for each request and response that carries fields, named as in the reference.
//!
//! Texts are borrowed: from the command when a header is read, from the caller when one is written. So a header is read in one
//! pass over the fields without an allocation.
//!
//! # Source
//! docs/reference/protocol.md 1.7 and 2.

#[macro_use]
mod macros;

mod admin;
mod auth;
mod broker;
mod consume;
mod field;
mod namesrv;
mod send;

pub use admin::*;
pub use auth::*;
pub use broker::*;
pub use consume::*;
pub use field::Field;
pub use namesrv::*;
pub use send::*;

use crate::ExtFields;

/// Fields that are set across requests and that no custom header lists.
pub mod key {
    /// The broker name that a request is meant for.
    pub const BROKER_NAME: &str = "bname";
    /// Region id in answers to sends and pulls.
    pub const MSG_REGION: &str = "MSG_REGION";
    /// Trace switch in answers to sends and pulls.
    pub const TRACE_ON: &str = "TRACE_ON";
    /// In answers to heartbeats.
    pub const IS_SUPPORT_HEART_BEAT_V2: &str = "IS_SUPPORT_HEART_BEAT_V2";
    /// In answers to heartbeats.
    pub const IS_SUB_CHANGE: &str = "IS_SUB_CHANGE";
    /// In the answer to a heartbeat: live members with other subscriptions ([`OtherSubscription`](crate::body::OtherSubscription)),
    /// a JSON list. RocketPy's own; others ignore it.
    pub const OTHER_SUBSCRIPTIONS: &str = "rocketpyOtherSubscriptions";
    /// In the answer to a heartbeat, `true`: a transaction may have a delay, which begins with the commit. RocketPy's own; Apache's brokers
    /// lose such a message.
    pub const DELAYED_TRANSACTIONS: &str = "rocketpyDelayedTransactions";
    /// In UPDATE_CONSUMER_OFFSET, `true`: a person chose the offset, for a group whose members have stopped. RocketPy's own;
    /// Apache's brokers ignore it.
    pub const IS_RESET: &str = "rocketpyReset";
    /// `true` in a commit that a slave gives to its master: it waits for no slave.
    pub const OF_SLAVE: &str = "rocketpyOfSlave";
    /// In CONSUMER_SEND_MSG_BACK: type and text of the error for which the message is sent back, as
    /// [`error_text`](rocketpy_model::dead_letter::error_text) prepares it. RocketPy's own; Apache's brokers ignore it.
    pub const SEND_BACK_ERROR: &str = "rocketpyError";
    /// In the refusal of END_TRANSACTION, `true`: the transaction ended otherwise, or its half message is gone. To ask again changes nothing.
    /// RocketPy's own; Apache's clients read no answer to this request.
    pub const TRANSACTION_OVER: &str = "rocketpyTransactionOver";
    /// In GET_BROKER_HA_STATUS: asks for a proof of the answer. RocketPy's own.
    pub const NONCE: &str = "nonce";
    /// In the answer to GET_BROKER_HA_STATUS: what the next role change has to prove the token with. RocketPy's own.
    pub const CHALLENGE: &str = "challenge";
    /// In requests and answers between brokers, and in a role change: the proof of the token. RocketPy's own.
    pub const PROOF: &str = "proof";
}

/// A custom header of a command.
pub trait Header<'a>: Sized {
    /// Reads the header out of a command's fields. Unknown fields are ignored.
    ///
    /// # Errors
    /// When a required field is missing or a number is not one.
    fn read(fields: &'a ExtFields) -> Result<Self, HeaderError>;

    /// Adds the header's fields; those without a value are left out.
    fn write(&self, fields: &mut ExtFields);
}

/// Why a custom header could not be read. A retry does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum HeaderError {
    #[error("request header has no field {field}")]
    Missing { field: &'static str },
    #[error("request header field {field} must be {expected}: {value:?}")]
    Invalid { field: &'static str, expected: &'static str, value: String },
}

/// A header without fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NoHeader;

impl<'a> Header<'a> for NoHeader {
    fn read(_fields: &'a ExtFields) -> Result<Self, HeaderError> {
        Ok(Self)
    }

    fn write(&self, _fields: &mut ExtFields) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_names_the_field_that_is_missing_or_ill_formed() {
        let mut fields = ExtFields::new();
        fields.push("topic", "t");
        let missing = GetMaxOffsetRequestHeader::read(&fields);
        assert_eq!(missing, Err(HeaderError::Missing { field: "queueId" }));
        fields.push("queueId", "three");
        let invalid = GetMaxOffsetRequestHeader::read(&fields).unwrap_err();
        assert_eq!(invalid.to_string(), "request header field queueId must be a 32-bit integer: \"three\"");
        fields.push("queueId", "3");
        fields.push("unknown", "field");
        let header = GetMaxOffsetRequestHeader::read(&fields).unwrap();
        assert_eq!(header, GetMaxOffsetRequestHeader { topic: "t", queue_id: 3, committed: None });
    }

    #[test]
    fn an_absent_value_is_not_written() {
        let mut fields = ExtFields::new();
        GetMaxOffsetRequestHeader { topic: "t", queue_id: -1, committed: None }.write(&mut fields);
        assert_eq!(fields.iter().collect::<Vec<_>>(), [("topic", "t"), ("queueId", "-1")]);
    }

    #[test]
    fn truth_values_follow_java() {
        for (text, value) in [("true", true), ("TRUE", true), ("false", false), ("yes", false), ("", false)] {
            let fields: ExtFields =
                [("topic", "t"), ("queueId", "0"), ("committed", text)].into_iter().collect();
            assert_eq!(GetMaxOffsetRequestHeader::read(&fields).unwrap().committed, Some(value), "{text:?}");
        }
    }
}

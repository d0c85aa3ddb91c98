//! From what remoting and servers answer to this crate's errors.

use rocketpy_protocol::Command;
use rocketpy_protocol::code::{request, response};
use rocketpy_remoting::CallError;

use crate::error::ClientError;

/// The error of a call that has no answer.
pub(crate) fn of_call_error(operation: &'static str, error: CallError) -> ClientError {
    let may_have_been_applied = error.may_have_been_applied() && changes_something(&error);
    let reason = error.to_string();
    match error {
        CallError::Connect { addr: address, reason, .. } => ClientError::Connect { address, reason },
        CallError::ConnectTimeout { addr: address, timeout_ms } => {
            ClientError::Connect { address, reason: format!("no connection within {timeout_ms} ms") }
        }
        CallError::Timeout { addr: address, timeout_ms, .. } => {
            ClientError::Timeout { operation, address, timeout_ms, may_have_been_applied }
        }
        CallError::WindowFull { addr: address, timeout_ms, .. } => {
            ClientError::Congested { operation, address, timeout_ms }
        }
        CallError::Closed { addr: address, .. } => {
            let reason = "closed by the other side".to_owned();
            ClientError::ConnectionLost { operation, address, reason, may_have_been_applied }
        }
        CallError::GoAway { addr: address, .. } => {
            let (code, remark) = (response::GO_AWAY, "the server shuts down".to_owned());
            ClientError::Refused { operation, address, code, name: "GO_AWAY", remark }
        }
        CallError::FrameTooLarge { .. } | CallError::Encode { .. } => {
            ClientError::NotFramed { operation, reason }
        }
        CallError::ClientClosed => ClientError::Closed { what: "client" },
    }
}

/// Whether the request is one that changes something at the server: of a mere question nothing is left in doubt.
fn changes_something(error: &CallError) -> bool {
    let (CallError::Timeout { code, .. } | CallError::Closed { code, .. }) = error else { return true };
    !matches!(
        *code,
        request::GET_ROUTEINFO_BY_TOPIC
            | request::GET_BROKER_CLUSTER_INFO
            | request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER
            | request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG
            | request::GET_TOPIC_CONFIG
            | request::GET_TOPIC_STATS_INFO
            | request::GET_CONSUME_STATS
            | request::GET_CONSUMER_LIST_BY_GROUP
            | request::GET_MAX_OFFSET
            | request::GET_MIN_OFFSET
            | request::GET_EARLIEST_MSG_STORETIME
            | request::SEARCH_OFFSET_BY_TIMESTAMP
            | request::QUERY_CONSUMER_OFFSET
            | request::QUERY_MESSAGE
            | request::VIEW_MESSAGE_BY_ID
            | request::PULL_MESSAGE
            | request::LITE_PULL_MESSAGE
    )
}

/// Lets an answer with SUCCESS through.
pub(crate) fn success(
    operation: &'static str,
    address: &str,
    answer: Command,
) -> Result<Command, ClientError> {
    if answer.code == response::SUCCESS { Ok(answer) } else { Err(refused(operation, address, &answer)) }
}

/// The error of an answer that is not what was asked for.
pub(crate) fn refused(operation: &'static str, address: &str, answer: &Command) -> ClientError {
    ClientError::Refused {
        operation,
        address: address.to_owned(),
        code: answer.code,
        name: response::name_of(answer.code).unwrap_or("UNKNOWN"),
        remark: answer.remark.clone().unwrap_or_default(),
    }
}

/// The error of an answer to a question that cannot be read.
pub(crate) fn bad_answer(operation: &'static str, address: &str, reason: impl ToString) -> ClientError {
    let (address, reason) = (address.to_owned(), reason.to_string());
    ClientError::BadAnswer { operation, address, reason, may_have_been_applied: false }
}

/// The error of an answer that cannot be read, where the request was to change something: it is probably done.
pub(crate) fn bad_answer_to_change(error: ClientError) -> ClientError {
    match error {
        ClientError::BadAnswer { operation, address, reason, .. } => {
            ClientError::BadAnswer { operation, address, reason, may_have_been_applied: true }
        }
        other => other,
    }
}

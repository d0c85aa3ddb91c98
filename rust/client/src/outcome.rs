//! Turns failed calls and refusals into this crate's errors.

use rocketpy_protocol::Command;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::key;
use rocketpy_remoting::CallError;

use crate::error::{ClientError, TLS_ONLY};

/// The error of a call that has no answer.
pub(crate) fn of_call_error(operation: &'static str, error: CallError) -> ClientError {
    let may_have_been_applied = error.may_have_been_applied() && may_change(&error);
    let reason = error.to_string();
    match error {
        CallError::Connect { addr: address, reason, .. } => ClientError::Connect { address, reason },
        CallError::Tls { addr: address, reason, is_closed } => {
            ClientError::Tls { address, reason, is_closed }
        }
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
        CallError::TlsOnly { addr: address, .. } => ClientError::ConnectionLost {
            operation,
            address,
            reason: TLS_ONLY.to_owned(),
            may_have_been_applied,
        },
        CallError::GoAway { addr: address, .. } => {
            let (code, remark) = (response::GO_AWAY, "the server shuts down".to_owned());
            ClientError::Refused { operation, address, code, name: "GO_AWAY", remark }
        }
        CallError::FrameTooLarge { size_bytes, max_bytes, .. } => {
            ClientError::FrameTooLarge { operation, size_bytes, limit_bytes: max_bytes }
        }
        CallError::Encode { .. } => ClientError::NotFramed { operation, reason },
        CallError::ClientClosed => ClientError::Closed { what: "client" },
    }
}

/// The error of a request with an SQL92 expression, named if it says that the broker does not filter so.
///
/// # Source
/// docs/reference/store-format.md 11.5: SYSTEM_ERROR with a text.
pub(crate) fn of_sql(error: ClientError) -> ClientError {
    match error {
        ClientError::Refused { address, code: response::SYSTEM_ERROR, remark, .. }
            if remark.contains("filter message by SQL92") =>
        {
            ClientError::NoSqlFilter { address, remark }
        }
        error => error,
    }
}

/// Whether a call that ended this way may have changed something at the server.
fn may_change(error: &CallError) -> bool {
    match error {
        CallError::Timeout { code, .. }
        | CallError::Closed { code, .. }
        | CallError::TlsOnly { code, .. } => request::may_change(*code),
        _ => true,
    }
}

/// Whether a refusal ends by itself: the server is busy, or shuts down.
pub(crate) fn is_passing(code: i32) -> bool {
    matches!(code, response::SYSTEM_BUSY | response::GO_AWAY)
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
    let refused = ClientError::Refused {
        operation,
        address: address.to_owned(),
        code: answer.code,
        name: response::name_of(answer.code).unwrap_or("UNKNOWN"),
        remark: answer.remark.clone().unwrap_or_default(),
    };
    match answer.ext.get(key::TRANSACTION_OVER) {
        Some("true") => ClientError::TransactionOver { refused: Box::new(refused) },
        _ => refused,
    }
}

/// The error of an answer to a question that cannot be read.
pub(crate) fn bad_answer(operation: &'static str, address: &str, reason: impl ToString) -> ClientError {
    let (address, reason) = (address.to_owned(), reason.to_string());
    ClientError::BadAnswer { operation, address, reason, may_have_been_applied: false }
}

/// The error of an answer that cannot be read, to a request that changes something: the change was probably applied.
pub(crate) fn bad_answer_to_change(error: ClientError) -> ClientError {
    match error {
        ClientError::BadAnswer { operation, address, reason, .. } => {
            ClientError::BadAnswer { operation, address, reason, may_have_been_applied: true }
        }
        other => other,
    }
}

//! The error of one message.

use std::ops::Deref;
use std::sync::Arc;

use crate::error::ClientError;

/// Why one message was not acknowledged, and what it takes to repeat or to find it.
///
/// Dereferences to the [`ClientError`], which tells whether a retry may help and whether the message may be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct SendError {
    /// What went wrong.
    pub error: Arc<ClientError>,
    /// Unique key of the message: sent again under it, the message has the same id. `None` if it never had one.
    pub msg_id: Option<String>,
    /// Name of the broker of the last attempt. `None` when no attempt was made.
    pub broker: Option<Arc<str>>,
}

impl SendError {
    /// The same error, of the message with this unique key.
    pub(crate) fn of(self, msg_id: impl Into<String>) -> Self {
        Self { msg_id: Some(msg_id.into()), ..self }
    }

    /// The error of a message that was not tried, for which the caller may have given a unique key.
    pub(crate) fn untried(error: ClientError, msg_id: Option<&str>) -> Self {
        Self { msg_id: msg_id.map(str::to_owned), ..error.into() }
    }
}

impl Deref for SendError {
    type Target = ClientError;

    fn deref(&self) -> &ClientError {
        &self.error
    }
}

impl From<ClientError> for SendError {
    fn from(error: ClientError) -> Self {
        Self { error: Arc::new(error), msg_id: None, broker: None }
    }
}

/// For callers that treat a send like any other call.
impl From<SendError> for ClientError {
    fn from(error: SendError) -> Self {
        Arc::unwrap_or_clone(error.error)
    }
}

impl PartialEq<ClientError> for SendError {
    fn eq(&self, other: &ClientError) -> bool {
        *self.error == *other
    }
}

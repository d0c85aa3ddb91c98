//! Why a name server does not start.
use rocketpy_remoting::ServerError;

/// Why a name server does not start.
#[derive(Debug, thiserror::Error)]
pub enum NameServerError {
    /// Its address cannot be listened on.
    #[error("name server: {0}")]
    Listen(#[from] ServerError),
}

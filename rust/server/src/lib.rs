//! Composition: configuration, lifecycle, name server and broker in one process.

mod address;
mod auth;
pub mod config;
mod error;
mod limits;
mod log_files;
mod logging;
mod monitor;
mod process;
mod ready_file;
mod role;
mod secure;
mod tls;

pub use auth::AuthError;
pub use config::{ConfigError, ServerConfig, Sources};
pub use error::ServerError;
pub use logging::{LogFileConfig, LogFormat, init_logging, reopen_log};
pub use process::{Addresses, Process};
pub use rocketpy_broker::{BrokerError, topic_retention};
pub use role::Role;
pub use secure::SecureError;

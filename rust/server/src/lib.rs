//! Composition: configuration, lifecycle, name server and broker in one process.

mod address;
pub mod config;
mod error;
mod limits;
mod log_files;
mod logging;
mod monitor;
mod process;
mod ready_file;
mod tls;

pub use config::{ConfigError, ServerConfig, Sources};
pub use error::ServerError;
pub use logging::{LogFileConfig, LogFormat, init_logging, reopen_log};
pub use process::{Addresses, Process, Role};
pub use rocketpy_broker::{BrokerError, topic_retention};

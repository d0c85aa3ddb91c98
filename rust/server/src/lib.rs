//! Composition: configuration, lifecycle, name server and broker in one process.

mod config;
mod process;

pub use config::{ConfigError, ServerConfig, Sources};
pub use process::{Addresses, BrokerOnly, NameServerOnly, ServerError, Standalone};

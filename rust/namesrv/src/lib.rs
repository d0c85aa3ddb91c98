//! The name server: routes, broker liveness, request processing.
//!
//! It keeps no state on disk: brokers tell it who they are, again and again, and what they told is forgotten with them.
mod answer;
mod config;
mod error;
mod kv;
mod processor;
mod registration;
mod route;
mod server;

pub use config::NameServerConfig;
pub use error::NameServerError;
pub use server::NameServer;

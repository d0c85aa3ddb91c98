//! The name server: routes, live brokers, requests.
//!
//! It keeps no state on disk: brokers register again and again, and a broker that stops doing so is forgotten.

mod answer;
mod check;
mod config;
mod error;
mod handler;
mod kv;
mod processor;
mod registration;
mod request;
mod route;
mod server;

pub use config::{DEFAULT_PORT, NameServerConfig};
pub use error::NameServerError;
pub use request::requests;
pub use server::NameServer;

//! The name server: routes, live brokers, requests.
//!
//! Routes are in memory alone: brokers register again and again, and a broker that stops doing so is forgotten. The key-value
//! configuration is in a file, if the settings name one.
#![allow(missing_docs, reason = "a name that says it all needs no comment")]

mod accounts;
mod answer;
mod check;
mod config;
mod error;
mod foreign;
mod handler;
mod kv;
mod kv_file;
mod limits;
mod live_settings;
mod processor;
mod registration;
mod request;
mod route;
mod server;

pub use config::{ConfigText, DEFAULT_PORT, NameServerConfig};
pub use error::NameServerError;
pub use request::requests;
pub use server::NameServer;

//! The remoting server and client on tokio: framing, limits, back-pressure, time-outs.
//!
//! Both sides of a connection are the same thing: a [`Connection`] with one task that reads, hands every complete frame
//! of a read to the [`Handler`] or to the waiting call, and writes whatever is ready with one vectored write. Replies may be given
//! at once or later from any thread; [`cork`] lets a thread that answers many of them wake each connection once.
//!
//! Nothing here is dropped for being too much: a peer that is not served fast enough, or does not read its answers, is no
//! longer read from (back-pressure), and closed with a log line when it does not go on.
mod calls;
mod client;
mod config;
mod connection;
mod driver;
mod error;
mod handler;
mod outbox;
mod reader;
mod server;

pub use calls::PendingCall;
pub use client::Client;
pub use config::{ClientConfig, ServerConfig};
pub use connection::Connection;
pub use error::{CallError, ServerError};
pub use handler::{Handler, NoHandler, Reply, Response};
pub use outbox::{Cork, cork};
pub use server::{Reserved, Server};

//! The remoting server and client on tokio: framing, limits, back-pressure, timeouts.
//!
//! A server and a client serve a [`Connection`] alike: one task reads, passes each whole frame to the [`Handler`] or to the call
//! that waits for it, and writes everything that is ready with one vectored write. A reply may be given at once or later, from
//! any thread; [`cork`] lets a thread that answers many requests wake each connection once.
//!
//! No frame is dropped because there are too many. A peer that cannot be served fast enough, or does not read its answers, is
//! no longer read from (back-pressure). If it then stays stuck, it is disconnected and the log says so. What all peers together
//! make the process hold is bounded by a [`MemoryBudget`]; beyond it the worst of them are disconnected.
//!
//! Framing runs over any stream of bytes, and two hooks see every request: [`RequestHook`] before a client encodes it,
//! [`RequestCheck`] before a server handles it.
#![allow(missing_docs, reason = "a name that says it all needs no comment")]

mod bell;
mod budget;
mod calls;
mod client;
mod config;
mod connection;
mod driver;
#[cfg(test)]
mod driver_tests;
mod end;
mod error;
mod handler;
mod helper;
mod hook;
mod observer;
mod outbox;
mod reader;
mod response;
mod server;
mod shared_driver;
mod signer;
mod stream;
mod tls;
mod turn;

pub use bell::Bell;
pub use budget::{MemoryBudget, MemoryKind, NoMemory, Reservation, TableMemory};
pub use calls::PendingCall;
pub use client::Client;
pub use config::{ClientConfig, ServerConfig};
pub use connection::Connection;
pub use end::BadEnd;
pub use error::{CallError, ServerError};
pub use handler::{ConnectionCheck, Handler, NoHandler, Reply, RequestCheck};
pub use helper::{ReadHere, read_here};
pub use hook::RequestHook;
pub use observer::{AnswerObserver, Answered, Outcome};
pub use outbox::{Cork, cork};
pub use response::Response;
pub use server::{Reserved, Server};
pub use signer::{Credentials, Signer};
pub use tls::{
    Accepted, ClientTls, ClientTlsFiles, ClientVerification, EncryptedStream, Refused, ServerTls,
    ServerTlsFiles, Socket, TlsError, TlsMode, Trust,
};

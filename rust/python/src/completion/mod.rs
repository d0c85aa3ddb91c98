//! Outcomes on their way from the client's network threads to Python's futures.
//!
//! A network thread never waits for the interpreter lock: it leaves the outcomes of a request with [`FutureThread`], which
//! brings them to a thread that takes the lock and completes the futures there. For asyncio see [`crate::aio`].

pub(crate) mod future;
mod slab;
mod thread;

pub(crate) use future::SendOutcome;
pub(crate) use slab::Slab;
pub(crate) use thread::{FutureThread, end};

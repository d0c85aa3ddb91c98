//! Outcomes on their way from the client's network threads to Python's futures.
//!
//! A network thread never waits for the interpreter lock: it leaves the outcomes of a request with [`FutureThread`], which
//! brings them to a thread that takes the lock and completes the futures there. A sink for asyncio would keep the same list
//! and ring an eventfd that the loop watches.

pub(crate) mod future;
mod slab;
mod thread;

pub(crate) use future::SendOutcome;
pub(crate) use thread::{FutureThread, end};

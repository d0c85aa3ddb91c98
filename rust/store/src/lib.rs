//! Commit log, consume queues, flush, dispatch and recovery, in the files of Apache RocketMQ. No async runtime.
//!
//! [`Store`] is the live store of a broker; [`reader::StoreReader`] reads a folder without one.

#![allow(clippy::unimplemented)]

mod config;
mod error;
mod fetch;
mod listener;
pub mod reader;
mod record;
mod store;

pub use config::{FlushMode, OnFailedFlush, StoreConfig};
pub use error::{AppendError, FlushError, StoreError};
pub use fetch::{Boundary, Fetch, FetchStatus, QueueBounds, QueueSummary, ReadLimits};
pub use listener::{Arrival, NoListener, StoreListener};
pub use record::{Appended, AppendedBatch, NewRecord};
pub use store::{Store, StoreStats};

//! Commit log, consume queues, flush, dispatch and recovery, in the files of Apache RocketMQ. No async runtime.
//!
//! [`Store`] is the live store of a broker; [`reader::StoreReader`] reads a folder without one.

#![warn(missing_docs)] // others build on every public item of this crate

mod admission;
mod allocate;
#[cfg(test)]
mod alone;
mod append;
mod append_bell;
mod checkpoint;
mod checkpoint_call;
mod config;
mod delay;
mod derived;
mod dispatch;
mod error;
mod fetch;
pub mod files;
mod flush;
mod folder;
mod host;
mod index;
mod keeper;
mod listener;
mod log;
mod mapped;
mod queue;
mod read;
pub mod reader;
mod record;
mod recovery;
mod replica;
mod retention;
mod store;
mod sync;
pub mod timer;
mod wake;

pub use append::Gather;
#[cfg(feature = "mark-page")]
pub use checkpoint::mark_page;
pub use config::{AT_OPEN, FlushMode, OnFailedFlush, StoreConfig};
pub use delay::DelayLevels;
pub use error::{AppendError, DispatchError, FlushError, FullDisk, ReplicateError, StoreError};
pub use fetch::{Boundary, Fetch, FetchStatus, QueueBounds, QueueEntry, QueueSummary, ReadLimits};
pub use index::{KeyKind, QueryResult};
pub use listener::{Arrival, StoreListener};
pub use record::{Appended, AppendedBatch, NewRecord};
pub use recovery::RecoveryReport;
pub use replica::whole_records;
pub use retention::{
    AgedQueue, BadHours, Cleaned, DeleteHours, FolderPlan, FolderSpace, Keep, LogFile, Occasion, Removal,
    RetentionConfig, RetentionPlan, Rule, Situation, plan, plan_folder, plan_topics,
};
#[doc(hidden)]
pub use rocketpy_env::planted;
pub use store::Store;

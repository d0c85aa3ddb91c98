//! Commit log, consume queues, flush, dispatch and recovery, in the files of Apache RocketMQ. No async runtime.
//!
//! [`Store`] is the live store of a broker; [`reader::StoreReader`] reads a folder without one.

mod allocate;
mod append;
mod checkpoint;
mod config;
mod core;
mod dispatch;
mod error;
mod fetch;
mod flush;
mod folder;
mod index;
mod keeper;
mod life;
mod listener;
mod mapped;
mod queue;
mod read;
pub mod reader;
mod record;
mod recovery;
mod retention;
#[cfg(feature = "sim")]
mod stepped;
mod store;
pub mod tools;
mod wake;

#[doc(hidden)]
pub use checkpoint::mark_page;
pub use config::{FlushMode, OnFailedFlush, StoreConfig};
pub use error::{AppendError, FlushError, StoreError};
pub use fetch::{Boundary, Fetch, FetchStatus, QueueBounds, QueueSummary, ReadLimits};
pub use index::{KeyKind, QueryResult};
pub use listener::{Arrival, NoListener, StoreListener};
pub use record::{Appended, AppendedBatch, NewRecord};
pub use recovery::RecoveryReport;
pub use retention::{
    AgedQueue, BadHours, Cleaned, DeleteHours, FolderPlan, FolderSpace, FullDisk, Keep, LogFile, Occasion,
    Removal, RetentionConfig, RetentionPlan, Rule, Situation, plan, plan_folder, plan_topics,
};
#[doc(hidden)]
pub use rocketpy_env::planted;
pub use store::Store;

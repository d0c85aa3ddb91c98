//! The folder of a store file by file, for tools that check, copy and repair it.
//!
//! A broker needs none of this: it uses [`Store`](crate::Store), and [`StoreReader`](crate::reader::StoreReader) where no store is open.

pub use crate::checkpoint::{CheckpointFile, Mark, NO_SUM, NOWHERE, Timestamps, impossible_ms};
pub use crate::delay::DelayTables;
pub use crate::dispatch::tags_code;
pub use crate::folder::{LOCK, NumberedFile, file_name, lock_logs, lock_root};
pub use crate::index::{
    Geometry, IndexMark, Keys, NamedFile, list_files as list_index_files, path_of as index_file_path,
    read_header as read_index_header,
};
pub use crate::mapped::nonzero_end;
pub use crate::queue::entry::{entry_at, position};
pub use crate::queue::files::FlushFailure;
pub use crate::reader::condition::Condition;
pub use crate::reader::files::StreamFiles;
pub use crate::reader::log::LogFiles;
pub use crate::reader::log_dirs;
pub use crate::reader::queue::QueueFiles;
pub use crate::reader::range::estimated_bytes;
pub use crate::record::counts_in_queue;
pub use crate::recovery::behind::next_magic;
pub use crate::recovery::scan::{Look, look};

//! The only door to files, memory maps, clock and randomness; all `unsafe` of memory maps is here.
//!
//! A store is written against [`Disk`], so that a simulated disk can take the place of [`RealDisk`] by static
//! dispatch. Everything else in the workspace uses [`RealDisk`] for its few files: clippy keeps `std::fs` out.

#![warn(missing_docs)] // others build on every public item of this crate
#![allow(unsafe_code, reason = "memory maps and system calls; each block says why it is sound")]

mod clock;
mod disk;
mod error;
pub mod failpoint;
mod file;
mod fork;
mod guard;
mod limits;
mod lock;
mod mapped;
mod page_cache;
pub mod planted;
#[cfg(feature = "power-cut")]
mod power_cut;
mod process;
mod real;
mod rotated;
#[cfg(feature = "sim")]
pub mod sim;
mod sys;

pub use clock::{
    LastReading, local_digits, local_hour, local_month_ms, move_clock, moved_ms, now_ms, random_u64,
};
pub use disk::{DirEntry, Disk, DiskFile, DiskUsage, EntryKind, FileSystem, LockHolder, OpenMode, Region};
pub use error::EnvError;
pub use file::RealFile;
pub use limits::{memory_limit, raise_open_file_limit};
pub use lock::RealLock;
pub use mapped::{MappedRegion, RegionSlice};
#[cfg(feature = "power-cut")]
pub use power_cut::{cut_power, freeze_process};
pub use process::{give_way, is_process_alive, process_id};
pub use real::{RealDisk, RealFileSystem};
pub use rotated::{RotatedFile, RotatedFileConfig};
pub use sys::open_file_limit;

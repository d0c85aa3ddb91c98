//! Scans of store folders: laid out by hand where they are damaged, and written by a live store.

mod batches;
mod damage;
mod folder;
mod json;
mod live;
mod ranges;
mod sums;

//! Scans of store folders: laid out by hand where they are damaged, and written by a live store.

mod batches;
mod damage;
mod folder;
mod live;
mod ranges;

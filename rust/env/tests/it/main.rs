//! Files, maps and locks of the real disk.

mod files;
mod lock;
mod region;

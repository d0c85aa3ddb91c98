//! The store on real files: what is appended is there, after every kind of end, in the bytes of the format.

mod append;
mod copy_on_write;
mod crash;
mod disk_full;
mod faulty;
mod flush;
mod folder;
mod format;
mod held_readers;
mod index;
mod index_files;
mod index_oracle;
mod listener;
mod log_folder;
mod offline;
mod put_off;
mod read;
mod rebuild;
mod recovery;
#[cfg(feature = "sim")]
mod recovery_sim;
mod replicate;
#[cfg(feature = "sim")]
mod replicate_sim;
mod retention;
#[cfg(feature = "sim")]
mod retention_sim;
mod support;
mod time;
mod topic;
mod torn;
mod unreadable;

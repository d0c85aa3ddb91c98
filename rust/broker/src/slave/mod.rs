//! What a slave does besides the copy of the log: it takes over its master's topics, groups, offsets and progress, and does nothing of what
//! is for a master to do.
//!
//! One service asks the master ([`MasterMetadata`]). Topics and groups count at once. Offsets and progress wait until this broker's log has
//! reached the end that the master's had ([`pending`]): otherwise a failover would skip messages.
//!
//! # Source
//! docs/reference/store-format.md 12.7.

mod address;
mod ask;
mod give_back;
mod pending;
mod service;
#[cfg(test)]
mod tests;

pub(crate) use address::MasterAddress;
pub(crate) use ask::{SecretOfMaster, VERSION, end_of_log, version_text};
pub(crate) use give_back::OwnCommits;
pub(crate) use service::{Finished, MasterMetadata};

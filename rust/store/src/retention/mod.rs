//! Removes old messages, and refuses new ones before the disk is full.
//!
//! A decision is a function of what is there ([`plan()`]); the running store carries it out, and [`plan_folder`] and
//! [`plan_topics`] show what it would do.

mod config;
mod life;
mod offline;
mod plan;
mod run;
#[cfg(test)]
mod tests;

pub use config::{BadHours, DeleteHours, RetentionConfig};
pub use offline::{AgedQueue, FolderPlan, plan_folder, plan_topics};
pub use plan::{FolderSpace, Keep, LogFile, Occasion, Removal, RetentionPlan, Rule, Situation, plan};
pub use run::Cleaned;
pub(crate) use run::Retention;

//! The broker: request processing, topics, groups, offsets and held pulls.
//!
//! A request is handled on the task of its connection: decoded once, checked, done, answered. Two kinds of answers wait:
//! sends under SYNC_FLUSH for the flush that covers them, and pulls for a message. Both wait outside of any thread.

mod broker;
mod config;
mod config_file;
mod error;
mod held_pull;
mod held_send;
mod message_properties;
mod minute;
mod process;
mod refusal;
mod registration;
mod shared;
mod stats;
mod table;
mod topic_attribute;

pub use broker::Broker;
pub use config::{BrokerConfig, Describe, Endpoint};
pub use error::BrokerError;
pub use rocketpy_store::{
    BadHours, DeleteHours, FlushMode, OnFailedFlush, RetentionConfig, StoreConfig, StoreError,
};
#[cfg(feature = "sim")]
pub use table::offset::OffsetTable;
pub use topic_attribute::topic_retention;

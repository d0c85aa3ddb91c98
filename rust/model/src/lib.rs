//! Messages, queues, offsets, flags, property keys and name rules: the words that every other crate uses. No I/O.

#![warn(missing_docs)] // others build on every public item of this crate

mod config;
mod instant;
mod message;
mod nearest;
mod offset;
mod properties;
mod queue;

pub mod dead_letter;
pub mod name;
pub mod network;
pub mod perm;
pub mod port;
pub mod printable;
pub mod property;
pub mod sys_flag;
pub mod system;

pub use config::{
    CustomizedRetry, DataVersion, ExponentialRetry, GroupConfig, GroupSubscription, RetryPolicy,
    RetryPolicyKind, TopicConfig, TopicFilterType,
};
pub use instant::{CALENDAR_MS, in_calendar};
pub use message::{Later, Message};
pub use name::NameError;
pub use nearest::nearest;
pub use network::Network;
pub use offset::{AtomicPhysicalOffset, AtomicQueueOffset, PhysicalOffset, QueueOffset};
pub use perm::Permission;
pub use properties::{Properties, PropertyError};
pub use queue::MessageQueue;
pub use sys_flag::CompressionType;

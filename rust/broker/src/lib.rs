//! The broker: request processing, topics, groups, offsets and held pulls.

mod broker;
mod config;
mod error;

pub use broker::Broker;
pub use config::{BrokerConfig, FlushDiskType};
pub use error::BrokerError;

//! JSON bodies and configuration files as typed values, named as Apache's classes.
//!
//! Members are in alphabetical order, as Apache writes them. A missing member takes the default of Apache's class.
//!
//! # Source
//! docs/reference/protocol.md 2, docs/reference/store-format.md 1.4.

mod auth;
mod cold_data;
mod consume;
mod group;
mod heartbeat;
mod quota;
mod registration;
mod replication;
mod route;
mod running;
mod statistics;
mod topic;

pub use auth::*;
pub use cold_data::*;
pub use consume::*;
pub use group::*;
pub use heartbeat::*;
pub use quota::*;
pub use registration::*;
pub use replication::*;
pub use route::*;
pub use running::*;
use serde::de::{Deserialize, Deserializer, IgnoredAny};
use serde::ser::{Serialize, SerializeMap, Serializer};
pub use statistics::*;
pub use topic::*;

/// A member that is always an empty object: a part of the protocol that this implementation does not have. What a peer puts in it
/// is not read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EmptyMap;

impl Serialize for EmptyMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_map(Some(0))?.end()
    }
}

impl<'de> Deserialize<'de> for EmptyMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

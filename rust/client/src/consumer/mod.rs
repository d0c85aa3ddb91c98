//! Receiving messages.

mod allocate;
#[cfg(test)]
mod allocate_tests;
mod allocation;
mod assigned;
mod batch;
mod bodies;
mod commit;
mod conflict;
mod contact;
mod decode;
mod handover;
mod member;
mod others;
mod pace;
mod pull;
mod pull_consumer;
mod push;
mod range;
mod rebalance;
mod ring;
mod room;
mod running;
mod state;
#[cfg(test)]
mod state_pushed_tests;
#[cfg(test)]
mod state_tests;
#[cfg(test)]
mod state_told_tests;
mod stats;
mod subscription;

pub use self::allocate::Balance;
pub use self::allocation::{Allocation, Allocations, Allocator};
pub use self::batch::{PulledBatch, PulledMessage, PulledPart, RecordSpan};
pub(crate) use self::conflict::Groups;
pub use self::contact::{BrokerContact, Trouble};
pub use self::pull_consumer::{ConsumerState, Position, PullConsumer};
pub use self::push::{Fate, PushConfig, PushConsumer, PushCounts, PushTopic, Verdict, Work};
pub use self::range::RangeReader;
pub use self::room::{NearestRoom, Rooms};
pub use self::state::{OffsetMove, QueueChange};
pub use self::stats::{ConsumerStats, QueueProgress};

//! Receiving messages.

mod allocate;
#[cfg(test)]
mod allocate_tests;
mod assigned;
mod batch;
mod bodies;
mod closing;
mod commit;
mod conflict;
mod contact;
mod decode;
mod delivery;
mod epoch;
mod handover;
mod member;
mod pace;
mod positions;
mod prefetched;
mod pull;
mod pull_consumer;
mod pulled;
mod push;
mod range;
mod rebalance;
mod ring;
mod room;
mod running;
mod signals;
mod state;
#[cfg(test)]
mod state_notices_tests;
#[cfg(test)]
mod state_pushed_tests;
#[cfg(test)]
mod state_tests;
mod stats;
mod subscription;
mod subscription_conflict;

pub use self::batch::{PulledBatch, PulledMessage, PulledPart, RecordSpan};
pub use self::contact::{BrokerContact, Trouble};
pub use self::pull_consumer::{ConsumerState, Position, PullConsumer};
pub use self::push::{Fate, PushConsumer, PushStats, Reason, Verdict, Work};
pub use self::range::RangeReader;
pub use self::state::{OffsetMove, QueueChange};
pub use self::stats::{ConsumerStats, QueueProgress};

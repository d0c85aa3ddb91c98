//! Replication between a master and its slaves: frames and state machines, without I/O.
//!
//! A master has a [`Feed`] for each slave, a slave a [`Follow`]. Both receive the bytes read from the socket and the
//! time, and return the next step. Times are those of a clock that only goes forward, since any moment.
//!
//! # Source
//! docs/reference/store-format.md 12.

mod epochs;
mod feed;
mod follow;
mod frame;
mod greeting;
mod restarts;
mod witnesses;

pub use epochs::{Epoch, Epochs, UnorderedEpochs};
pub use feed::{Feed, FeedConfig, FeedEnd, FeedStep, LogRange};
pub use follow::{Follow, FollowConfig, FollowEnd, FollowStep};
pub use frame::{
    FROM_THE_FIRST_FILE, FrameHead, HEAD_BYTES, MAX_APACHE_BODY_BYTES, REPORT_BYTES, encode_report,
};
pub use greeting::{
    Diverged, GREETING, GREETING_HEAD_BYTES, Greeting, MAX_GREETING_BYTES, Relation, TAIL_BYTES, Tail,
};
pub use restarts::{MasterRestarts, TwoHistories};
pub use witnesses::Witnesses;

//! What the broker remembers: topics, groups, offsets, live clients, queue locks.

pub(crate) mod client;
pub(crate) mod group;
pub(crate) mod offset;
pub(crate) mod queue_lock;
pub(crate) mod topic;

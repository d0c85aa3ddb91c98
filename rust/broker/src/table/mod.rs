//! What the broker remembers: topics, groups, offsets, live clients, queue locks.

pub(crate) mod client;
pub(crate) mod group;
#[cfg_attr(not(feature = "sim"), allow(unreachable_pub))] // the simulator runs it on a disk of its own
pub(crate) mod offset;
pub(crate) mod queue_lock;
pub(crate) mod topic;

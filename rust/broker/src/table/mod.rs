//! State of the broker: topics, groups, offsets, live clients, queue locks.

pub(crate) mod client;
pub(crate) mod creation;
pub(crate) mod group;
pub(crate) mod group_commit;
pub(crate) mod missing;
pub(crate) mod named;
pub(crate) mod offset;
pub(crate) mod offset_adopt;
mod offset_content;
mod offset_reader;
pub(crate) mod offset_shared;
mod offset_state;
#[cfg(feature = "sim")]
pub(crate) mod on_disk;
pub(crate) mod queue_lock;
pub(crate) mod topic;
pub(crate) mod wants;

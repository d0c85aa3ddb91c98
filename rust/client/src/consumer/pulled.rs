//! What an answer to a pull says.

use rocketpy_model::QueueOffset;

use super::batch::PulledPart;

/// The result of a pull.
#[derive(Debug)]
pub(crate) struct Pulled {
    /// Messages that passed the filter.
    pub(crate) part: Option<PulledPart>,
    /// Offset to pull next.
    pub(crate) next: QueueOffset,
    /// End of the queue (exclusive).
    pub(crate) end: QueueOffset,
    /// Set when the broker moved the reader.
    pub(crate) moved: Option<Moved>,
}

/// A broker answered that a pull must go elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moved {
    /// The requested offset.
    pub(crate) from: QueueOffset,
    /// Whether somebody set the group to where it must go.
    pub(crate) is_reset: bool,
}

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
    /// The requested offset, when the broker moved the reader away from it.
    pub(crate) moved: Option<QueueOffset>,
}

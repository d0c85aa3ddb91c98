//! Epochs of a queue.

/// A time in which a queue of a consumer is read in order: it begins with the assignment and with every seek.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Epoch(pub(crate) u64);

impl Epoch {
    /// Before every time of any queue.
    pub(crate) const NEVER: Self = Self(0);

    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

//! Damaged parts of the log.

use rocketpy_model::PhysicalOffset;

/// A part of the log that holds no sound record: `from..to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hole {
    pub from: PhysicalOffset,
    pub to: PhysicalOffset,
    pub kind: HoleKind,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoleKind {
    /// Sound ground follows in the same file.
    Inside,
    /// It reaches to the end of its file; another file follows.
    ToFileEnd,
    /// Whole files that are missing.
    MissingFiles,
    /// Nothing sound follows: the end of the log, or a torn tail.
    Tail,
}

impl Hole {
    pub(crate) fn size_bytes(&self) -> u64 {
        self.to - self.from
    }

    pub(crate) fn contains(&self, physical_offset: PhysicalOffset) -> bool {
        (self.from..self.to).contains(&physical_offset)
    }
}

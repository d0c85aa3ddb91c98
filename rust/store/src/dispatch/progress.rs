//! Progress of dispatch.

use rocketpy_model::PhysicalOffset;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Consume queues cover the log before this.
    pub dispatched: PhysicalOffset,
    /// Sum of the maximum offsets of all queues.
    pub entries: u64,
    /// Sum of the first entries of the first files of all queues.
    pub firsts: u64,
    /// When the last dispatched record was stored.
    pub stored_at_ms: i64,
    pub trail: Trail,
}

/// Two starts of records, at least [`Trail::BYTES`] apart: recovery checks the log from the earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trail([PhysicalOffset; 2]);

impl Trail {
    /// Recovery checks at least this much of the log before the mark.
    const BYTES: u64 = 32 << 20;

    pub(crate) fn new(at: PhysicalOffset) -> Self {
        Self([at; 2])
    }

    /// Moves on when the start of a record at `at` is far enough behind the later one.
    pub(crate) fn step(&mut self, at: PhysicalOffset) {
        if at.saturating_sub(self.0[1]) >= Self::BYTES {
            self.0 = [self.0[1], at];
        }
    }

    pub(crate) fn start(&self) -> PhysicalOffset {
        self.0[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trail_starts_at_least_its_length_behind() {
        let mut trail = Trail::new(PhysicalOffset(100));
        for at in (100..200 << 20).step_by(1 << 20) {
            trail.step(PhysicalOffset(at));
            let behind = PhysicalOffset(at) - trail.start();
            assert!(behind >= Trail::BYTES || trail.start() == PhysicalOffset(100), "{at}: {behind}");
            assert!(behind <= 2 * Trail::BYTES, "{at}: {behind}");
        }
    }
}

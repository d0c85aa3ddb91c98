//! Progress of the master that waits for this broker's log.

use std::sync::Arc;

use rocketpy_env::planted::{self, Bug};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::body::DelayOffsetSerializeWrapper;
use rocketpy_protocol::disk::TimerCheckpoint;

use crate::table::offset_adopt::MasterOffsets;

/// Progress of a master at one moment.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) master: Arc<str>,
    /// Where its log ended, asked after everything else: no offset here is of a message after it.
    pub(super) end: PhysicalOffset,
    pub(super) offsets: MasterOffsets,
    pub(super) delays: DelayOffsetSerializeWrapper,
    /// `None`: the master has no timers.
    pub(super) timers: Option<TimerCheckpoint>,
}

/// The progress that waits: one that the log comes to next, and the newest one.
///
/// The newest one alone would not do: a slave that is always further behind than the pause between two questions would never take any.
#[derive(Debug, Default)]
pub(super) struct Pending {
    next: Option<Progress>,
    newest: Option<Progress>,
}

impl Pending {
    /// Adds the newest progress. What another master said does not count any more.
    pub(super) fn add(&mut self, progress: Progress) {
        // A master whose log has become shorter lost messages, and writes others there.
        let counts = |known: &Progress| known.master == progress.master && known.end <= progress.end;
        match self.next.as_ref().is_some_and(counts) {
            true => self.newest = Some(progress),
            false => *self = Self { next: Some(progress), newest: None },
        }
    }

    /// Whether progress waits for the log.
    pub(super) fn waits(&self) -> bool {
        assert!(
            self.next.is_some() || self.newest.is_none(),
            "the newest progress is not before the next one"
        );
        self.next.is_some()
    }

    /// Where the log of the master ended when it was asked last, if that was further than here.
    pub(super) fn end(&self) -> Option<PhysicalOffset> {
        self.newest.as_ref().or(self.next.as_ref()).map(|progress| progress.end)
    }

    /// Takes the newest progress whose end the log has reached.
    pub(super) fn take_reached(&mut self, end: PhysicalOffset) -> Option<Progress> {
        let end = if planted::has(Bug::MetadataAheadOfLog) { PhysicalOffset(u64::MAX) } else { end };
        if let (Some(next), Some(newest)) = (&self.next, &self.newest) {
            assert_eq!(next.master, newest.master, "the progress that waits is of one master");
            assert!(next.end <= newest.end, "the newest progress ends after the next one: {}", newest.end);
        }
        if let Some(newest) = self.newest.take_if(|newest| newest.end <= end) {
            self.next = None;
            return Some(newest);
        }
        let reached = self.next.take_if(|next| next.end <= end)?;
        self.next = self.newest.take();
        Some(reached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(master: &str, end: u64) -> Progress {
        Progress {
            master: master.into(),
            end: PhysicalOffset(end),
            offsets: MasterOffsets::new(Default::default()),
            delays: DelayOffsetSerializeWrapper::default(),
            timers: None,
        }
    }

    fn reached(pending: &mut Pending, end: u64) -> Option<u64> {
        pending.take_reached(PhysicalOffset(end)).map(|progress| progress.end.get())
    }

    #[test]
    fn progress_waits_for_the_log_and_the_newest_one_that_is_reached_counts() {
        let mut pending = Pending::default();
        pending.add(progress("a", 100));
        assert_eq!(reached(&mut pending, 99), None);
        assert_eq!((reached(&mut pending, 100), reached(&mut pending, 100)), (Some(100), None));
        pending.add(progress("a", 200));
        pending.add(progress("a", 300));
        pending.add(progress("a", 400));
        assert_eq!((reached(&mut pending, 400), reached(&mut pending, 500)), (Some(400), None));
    }

    #[test]
    fn a_slave_that_is_always_behind_takes_progress_all_the_same() {
        let mut pending = Pending::default();
        for round in 1..10 {
            pending.add(progress("a", round * 100));
            assert_eq!(reached(&mut pending, round * 100 - 1), (round > 1).then_some(100 * (round - 1)));
        }
    }

    #[test]
    fn progress_of_another_master_or_of_a_log_that_became_shorter_does_not_count() {
        let mut pending = Pending::default();
        pending.add(progress("a", 100));
        pending.add(progress("b", 200));
        assert_eq!(reached(&mut pending, 199), None);
        pending.add(progress("b", 50));
        assert_eq!((reached(&mut pending, 60), reached(&mut pending, 500)), (Some(50), None));
    }
}

//! Which log files hold messages that wait, and what was done but is not durable yet.

use std::collections::{BTreeMap, VecDeque};

use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_store::timer::{TimerCheckpoint, TimerCut};

/// Maximum number of steps of which it is known by themselves whether they are durable; more of them count as one.
const MAX_STEPS: usize = 1024;

/// Progress of all parts at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) read_ms: i64,
    pub(super) cut: Option<TimerCut>,
    pub(super) earlier_cuts: [Option<TimerCut>; TimerCheckpoint::MAX_EARLIER_CUTS],
    pub(super) next: QueueOffset,
    /// End of the log of timers.
    pub(super) units_end: u64,
}

/// Progress that holds once the commit log is flushed.
#[derive(Debug)]
struct Step {
    progress: Progress,
    /// The log has to be flushed up to here.
    end: PhysicalOffset,
    done: BTreeMap<u64, u64>,
}

#[derive(Debug)]
pub(super) struct Retained {
    file_bytes: u64,
    /// Messages without a durable copy, by the number of the log file that holds them.
    waiting: BTreeMap<u64, u64>,
    /// Messages that were done since the last step, by file.
    done: BTreeMap<u64, u64>,
    steps: VecDeque<Step>,
}

/// Progress that may be written.
#[derive(Debug)]
pub(super) struct Durable {
    pub(super) progress: Progress,
    done: BTreeMap<u64, u64>,
}

impl Retained {
    pub(super) fn new(file_bytes: u64) -> Self {
        Self { file_bytes, waiting: BTreeMap::new(), done: BTreeMap::new(), steps: VecDeque::new() }
    }

    /// A message waits.
    pub(super) fn waits(&mut self, at: PhysicalOffset) {
        *self.waiting.entry(at.get() / self.file_bytes).or_default() += 1;
    }

    /// A message needs its record no more, once what was appended by the next [`Self::step`] is durable.
    pub(super) fn is_done(&mut self, at: PhysicalOffset) {
        *self.done.entry(at.get() / self.file_bytes).or_default() += 1;
    }

    /// Messages that wait, those included whose copies are not durable.
    pub(super) fn count(&self) -> u64 {
        self.waiting.values().sum()
    }

    /// Start of the first log file that is needed.
    pub(super) fn from(&self) -> Option<PhysicalOffset> {
        self.waiting.keys().next().map(|file| PhysicalOffset(file * self.file_bytes))
    }

    /// Notes progress that holds once the log is flushed up to `end`.
    pub(super) fn step(&mut self, progress: Progress, end: PhysicalOffset) {
        let last = self.steps.back().map_or(PhysicalOffset::ZERO, |last| last.end);
        assert!(last <= end, "progress of the timers follows the log: {end} after {last}");
        let mut done = std::mem::take(&mut self.done);
        if self.steps.len() >= MAX_STEPS
            && let Some(last) = self.steps.pop_back()
        {
            add(&mut done, last.done);
        }
        self.steps.push_back(Step { progress, end, done });
    }

    /// Whether there is progress that was not taken.
    pub(super) fn is_ahead(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Takes the progress that holds, now that the log is flushed up to an offset.
    pub(super) fn durable(&mut self, flushed: PhysicalOffset) -> Option<Durable> {
        let mut durable: Option<Durable> = None;
        while self.steps.front().is_some_and(|step| step.end <= flushed)
            && let Some(Step { progress, mut done, .. }) = self.steps.pop_front()
        {
            if let Some(before) = durable.take() {
                add(&mut done, before.done);
            }
            durable = Some(Durable { progress, done });
        }
        durable
    }

    /// The progress is written: the log files of what it has done are not needed.
    pub(super) fn written(&mut self, durable: Durable) {
        for (file, count) in durable.done {
            if let Some(waiting) = self.waiting.get_mut(&file) {
                *waiting = waiting.saturating_sub(count);
                if *waiting == 0 {
                    self.waiting.remove(&file);
                }
            }
        }
    }

    /// The progress could not be written: it holds with the next one.
    pub(super) fn not_written(&mut self, durable: Durable) {
        let end = PhysicalOffset::ZERO;
        self.steps.push_front(Step { progress: durable.progress, end, done: durable.done });
    }
}

fn add(counts: &mut BTreeMap<u64, u64>, others: BTreeMap<u64, u64>) {
    for (file, count) in others {
        *counts.entry(file).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(read_ms: i64) -> Progress {
        Progress {
            read_ms,
            cut: None,
            earlier_cuts: [None; TimerCheckpoint::MAX_EARLIER_CUTS],
            next: QueueOffset(0),
            units_end: 0,
        }
    }

    #[test]
    fn a_log_file_is_kept_until_the_copies_of_its_messages_are_durable_and_noted() {
        let mut retained = Retained::new(100);
        for at in [150, 199, 420] {
            retained.waits(PhysicalOffset(at));
        }
        assert_eq!((retained.from(), retained.count()), (Some(PhysicalOffset(100)), 3));
        retained.is_done(PhysicalOffset(199));
        retained.step(progress(1), PhysicalOffset(500));
        retained.is_done(PhysicalOffset(150));
        retained.step(progress(2), PhysicalOffset(600));
        assert!(retained.durable(PhysicalOffset(499)).is_none());
        let durable = retained.durable(PhysicalOffset(600)).unwrap();
        assert_eq!(durable.progress, progress(2));
        assert_eq!(retained.from(), Some(PhysicalOffset(100)), "the checkpoint may not be on disk");
        retained.not_written(durable);
        let durable = retained.durable(PhysicalOffset(600)).unwrap();
        retained.written(durable);
        assert_eq!(
            (retained.from(), retained.count(), retained.is_ahead()),
            (Some(PhysicalOffset(400)), 1, false)
        );
    }

    #[test]
    fn steps_have_a_bound() {
        let mut retained = Retained::new(100);
        for step in 0..2 * MAX_STEPS as u64 {
            retained.waits(PhysicalOffset(step));
            retained.is_done(PhysicalOffset(step));
            retained.step(progress(step as i64), PhysicalOffset(1000 + step));
        }
        assert_eq!(retained.steps.len(), MAX_STEPS);
        let durable = retained.durable(PhysicalOffset(u64::MAX)).unwrap();
        assert_eq!(durable.progress.read_ms, 2 * MAX_STEPS as i64 - 1);
        retained.written(durable);
        assert_eq!(retained.count(), 0);
    }
}

//! Steps of the wall clock, and delay levels, which are measured by the clock that nobody sets.

use std::collections::BTreeMap;
use std::mem;

use rocketpy_env::Disk as _;
use rocketpy_env::sim::SimDisk;
use rocketpy_store::Store;

use super::run::Run;
use super::waiting::{Broker, DAY_MS};
use crate::checker::Rule;
use crate::history::Send;

/// By so much somebody sets the clock. Smaller steps are not noticed.
const STEP_MS: std::ops::Range<i64> = 1000..100_000;
/// By so much it is ahead for a moment. Half messages are kept for longer, and the wheel has room for it.
const AHEAD_MS: std::ops::Range<i64> = DAY_MS..2 * DAY_MS;

/// When messages of a level were sent, and when their copies were stored, in milliseconds of the monotonic clock.
///
/// A level is a length of time: the broker corrects each step of the wall clock that it has seen. A start knows of no earlier step, so a
/// copy is measured only in the life in which its message was sent.
#[derive(Default)]
pub(super) struct LevelClock {
    life: u64,
    /// Where the log ended when this life began.
    begin: u64,
    /// Where the log ended at a time.
    ends: Vec<(u64, i64)>,
    /// The life in which a message was sent, by number and whether it is a retry.
    sent: BTreeMap<(u64, bool), u64>,
    /// By how much the wall clock is ahead for a moment.
    pub(super) ahead_ms: i64,
    /// The wall clock was set since the broker has read both.
    pub(super) has_unseen_step: bool,
}

impl LevelClock {
    pub(super) fn begin_life(&mut self, end: u64) {
        self.life += 1;
        (self.begin, self.has_unseen_step) = (end, false);
        self.ends.clear();
    }

    /// Everything before `end` was stored by now.
    pub(super) fn note(&mut self, end: u64, steady_ms: i64) {
        if self.ends.last().is_none_or(|(last, _)| *last < end) {
            self.ends.push((end, steady_ms));
        }
    }

    pub(super) fn sent(&mut self, message: u64, is_retry: bool) {
        self.sent.insert((message, is_retry), self.life);
    }

    /// Whether a send waits for a level, in whatever life.
    pub(super) fn waits(&self, send: &Send) -> bool {
        self.sent.contains_key(&(send.message, send.times > 0))
    }

    /// When the copy at a place was stored, delivered so many times; `None` for a message that is not of a level, or of another life.
    pub(super) fn stored_at_ms(&self, message: u64, times: u32, at: u64) -> Option<i64> {
        let life = self.sent.get(&(message, times > 0)).filter(|_| times <= 1); // dead letters wait for nothing
        let is_of_this_life = life == Some(&self.life) && at >= self.begin;
        let end = self.ends.partition_point(|(end, _)| *end <= at);
        self.ends.get(end).map(|(_, steady_ms)| *steady_ms).filter(|_| is_of_this_life)
    }
}

impl Run {
    /// Sets the clock. Each step is seen by itself: of two between which the broker reads no clock nothing shows but their sum.
    fn set_clock(&mut self, broker: &Broker, by_ms: i64) {
        if mem::replace(&mut self.clients.levels.has_unseen_step, true) {
            broker.observe_clock();
        }
        self.disk.step_clock(by_ms);
    }

    /// Sets the clock back that was ahead for a moment.
    pub(super) fn end_moment(&mut self, broker: &Broker) {
        let ahead_ms = mem::take(&mut self.clients.levels.ahead_ms);
        if ahead_ms > 0 {
            self.set_clock(broker, -ahead_ms);
        }
    }

    /// Sets the clock a little, or ahead by days for a moment.
    pub(super) fn step_clock(&mut self, broker: &Broker, is_by_days: bool) {
        let by_ms = self.rng.i64(if is_by_days { AHEAD_MS } else { STEP_MS });
        if !is_by_days {
            let is_back = self.rng.bool();
            self.set_clock(broker, if is_back { -by_ms } else { by_ms });
        } else if self.clients.levels.ahead_ms == 0 {
            self.clients.levels.ahead_ms = by_ms;
            self.set_clock(broker, by_ms);
        }
    }

    pub(super) fn steady_ms(&self) -> i64 {
        i64::try_from(self.disk.monotonic().as_millis()).unwrap_or(i64::MAX)
    }

    pub(super) fn note_levels(&mut self, store: &Store<SimDisk>) {
        let steady_ms = self.steady_ms();
        self.clients.levels.note(store.max_physical_offset().get(), steady_ms);
    }

    /// Checks that all messages of a level came, also those that were stored while the clock was ahead.
    pub(super) fn check_levels(&mut self) {
        let levels = &self.clients.levels;
        let missing = self.journal.lock().checker.missing_of(|send| levels.waits(send));
        if missing > 0 {
            self.wrong(Rule::C1, format!("{missing} messages wait for longer than their delay level"));
        }
    }
}

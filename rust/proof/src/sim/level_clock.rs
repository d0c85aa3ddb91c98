//! Steps of the wall clock. Delay levels must end despite them.

use std::collections::BTreeSet;
use std::mem;

use super::run::Run;
use super::waiting::{Broker, DAY_MS};
use crate::checker::Rule;
use crate::history::Send;

/// By so much somebody sets the clock. Smaller steps are not noticed.
const STEP_MS: std::ops::Range<i64> = 1000..100_000;
/// By so much it is ahead for a moment. Half messages are kept for longer, and the wheel has room for it.
const AHEAD_MS: std::ops::Range<i64> = DAY_MS..2 * DAY_MS;

/// The messages of a level, and what happened to the clock.
#[derive(Default)]
pub(super) struct LevelClock {
    /// By number and whether it is a retry.
    sent: BTreeSet<(u64, bool)>,
    /// By how much the wall clock is ahead for a moment.
    pub(super) ahead_ms: i64,
    /// The wall clock was set since the broker has read both.
    pub(super) has_unseen_step: bool,
}

impl LevelClock {
    pub(super) fn sent(&mut self, message: u64, is_retry: bool) {
        self.sent.insert((message, is_retry));
    }

    /// Whether a send waits for a level, in whatever life.
    pub(super) fn waits(&self, send: &Send) -> bool {
        self.sent.contains(&(send.message, send.times > 0))
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

    /// Checks that all messages of a level came, also those that were stored while the clock was ahead.
    pub(super) fn check_levels(&mut self) {
        let levels = &self.clients.levels;
        let missing = self.journal.lock().checker.missing_of(|send| levels.waits(send));
        if missing > 0 {
            self.wrong(Rule::C1, format!("{missing} messages wait for longer than their delay level"));
        }
    }
}

//! The background work of timer messages.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketpy_env::planted::{self, Bug};
use tokio::runtime::Handle;

use super::Timers;
use super::deliver::turn;
use super::settle::{settle, settled_end};
use crate::blocking::aside;
use crate::service::{MAX_CLOCK_WAIT, MESSAGES_PACE, Pace, Service, Work, due_now_ms, until_ms};

/// Maximum number of turns at once.
const TURNS: usize = 16;
/// Maximum number of pauses in one round. A round keeps its thread while more messages become due, because ending it and starting another wakes
/// three threads. A stop waits for the round to end.
const PAUSES: usize = 20;
/// Pause between two writes of the progress: after a kill, what was delivered since the last one is delivered again.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// Delivers timer messages when they are due. A slave delivers none.
pub(crate) struct TimerDelivery {
    timers: Arc<Timers>,
    pace: Pace,
}

impl TimerDelivery {
    pub(crate) fn new(timers: Arc<Timers>) -> Self {
        Self { timers, pace: Pace::new(Duration::ZERO, MESSAGES_PACE) }
    }
}

/// How long nothing is to be done, unless a message begins to wait; `None` for ever.
fn rest(timers: &Timers) -> Option<Duration> {
    let seen = *timers.seen.lock();
    if seen.has_more {
        return Some(Duration::ZERO);
    }
    let due = seen.due_at_ms.map(|due_at_ms| until_ms(due_at_ms, due_now_ms(timers.store())));
    let now = timers.store().monotonic();
    let pauses = seen.pauses;
    let paused = [pauses.deliver, pauses.enroll, pauses.read].into_iter().flatten();
    let rest = paused.map(|until| until.saturating_sub(now));
    let due = due.filter(|_| pauses.deliver.is_none());
    let rest = rest.chain(due).min();
    rest.or_else(|| seen.has_waiting.then_some(MAX_CLOCK_WAIT)) // the next slots are to be read
}

/// Takes turns until nothing is due within [`MESSAGES_PACE`]. Blocks.
fn round(timers: &Timers, runtime: &Handle) {
    for _ in 0..PAUSES {
        let began = Instant::now();
        let mut turns = 0;
        while turn(timers, due_now_ms(timers.store()), runtime) && turns < TURNS {
            turns += 1;
        }
        if rest(timers).is_none_or(|rest| rest > MESSAGES_PACE) {
            return;
        }
        std::thread::sleep(MESSAGES_PACE.saturating_sub(began.elapsed()));
    }
}

impl Service for TimerDelivery {
    fn name(&self) -> &str {
        "timer delivery"
    }

    fn due(&self) -> Work<'_> {
        Box::pin(async {
            self.timers.intake.ground().role().wait_for_master().await;
            self.pace.due_after(&self.timers.arrived, rest(&self.timers)).await;
        })
    }

    fn round(&self) -> Work<'_> {
        let (timers, runtime) = (self.timers.clone(), Handle::current());
        Box::pin(aside(move || {
            if !timers.intake.ground().role().is_master() {
                return;
            }
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| round(&timers, &runtime))) {
                timers.state.lock().is_stopped = true; // the stop delivers nothing more either
                resume_unwind(panic);
            }
        }))
    }

    /// What is read into memory may be incomplete: a message that is missing there would count as delivered in the end.
    fn goes_on_after_panic(&self) -> bool {
        false
    }
}

/// Writes how far the timers are. A service of its own: a delivery does not wait for a flush.
pub(crate) struct TimerProgress {
    timers: Arc<Timers>,
    write_at: Mutex<Instant>,
}

impl TimerProgress {
    pub(crate) fn new(timers: Arc<Timers>) -> Self {
        Self { timers, write_at: Mutex::new(Instant::now()) }
    }
}

impl Service for TimerProgress {
    fn name(&self) -> &str {
        "timer progress"
    }

    fn due(&self) -> Work<'_> {
        Box::pin(async {
            self.timers.intake.ground().role().wait_for_master().await;
            let moved = self.timers.moved.notified();
            if !self.timers.seen.lock().is_ahead {
                moved.await;
            }
            let write_at = *self.write_at.lock();
            tokio::time::sleep_until(write_at.into()).await;
        })
    }

    fn round(&self) -> Work<'_> {
        let every = if planted::has(Bug::TimerAheadOfLog) { Duration::ZERO } else { WRITE_EVERY };
        *self.write_at.lock() = Instant::now() + every;
        let timers = self.timers.clone();
        Box::pin(aside(move || {
            if timers.intake.ground().role().is_master() {
                settle(&timers, settled_end(&timers));
            }
        }))
    }
}

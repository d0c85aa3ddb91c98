//! The background work that delivers delayed messages.

use std::sync::Arc;
use std::time::Duration;

use rocketpy_env::Disk;
use rocketpy_env::planted::{self, Bug};
use tokio::runtime::Handle;

use super::deliver::deliver;
use super::{Delays, HOLDER};
use crate::blocking::aside;
use crate::put::READ_AGAIN_AFTER;
use crate::service::{MESSAGES_PACE, Pace, Service, Work, due_at, due_now_ms, until_ms};

/// Delivers delayed messages when they are due, and writes how far it is. A slave does neither.
pub(crate) struct DelayDelivery {
    delays: Arc<Delays>,
    pace: Pace,
}

impl DelayDelivery {
    pub(crate) fn new(delays: Arc<Delays>) -> Self {
        Self { delays, pace: Pace::new(Duration::ZERO, MESSAGES_PACE) }
    }

    /// How long nothing is to be done, unless a message begins to wait; `None` for ever.
    fn rest(&self) -> Option<Duration> {
        let seen = self.delays.seen.lock().clone();
        let due = seen.due_at_ms.map(|due_at_ms| until_ms(due_at_ms, due_now_ms(self.delays.store())));
        let until_write = |write_at: Duration| {
            write_at.saturating_sub(self.delays.store().monotonic()).max(Duration::from_millis(1))
        };
        let write = seen.write_at.map(until_write);
        let again = seen.has_unreadable.then_some(READ_AGAIN_AFTER);
        due.into_iter().chain(write).chain(again).min()
    }
}

/// Delivers what is due at a time, and writes how far that is when it is time to. Blocks; puts wait on the runtime.
pub(crate) fn round(delays: &Delays<impl Disk>, at_ms: i64, runtime: &Handle) {
    deliver(delays, at_ms, runtime);
    let write_at = delays.state.lock().write_at;
    if planted::has(Bug::DelayAheadOfLog) {
        delays.write(delays.store().max_physical_offset()); // each time, else the window is too short to be hit
    } else if delays.store().monotonic() >= write_at {
        delays.write(delays.store().flushed_offset());
    }
    // Before the flush a power cut may take the copies: the originals are kept until then.
    delays.store().set_waiting_from(HOLDER, delays.state.lock().waiting_from());
}

impl Service for DelayDelivery {
    fn name(&self) -> &str {
        "delay delivery"
    }

    fn due(&self) -> Work<'_> {
        Box::pin(async {
            self.delays.intake.ground().role().wait_for_master().await;
            self.pace.due_after(&self.delays.arrived, self.rest()).await;
        })
    }

    fn round(&self) -> Work<'_> {
        let (delays, runtime) = (self.delays.clone(), Handle::current());
        Box::pin(aside(move || {
            if delays.intake.ground().role().is_master() {
                let now = delays.intake.ground().observe_clock();
                round(&delays, due_at(now.wall_ms), &runtime);
            }
        }))
    }
}

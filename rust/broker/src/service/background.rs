//! The services of every broker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::warn;

use super::{MESSAGES_PACE, Pace, Service, Work};
use crate::blocking::on_disk;
use crate::desk::Desk;
use crate::ground::Ground;
use crate::held_send::{HeldSends, Mark};
use crate::members::Members;
use crate::metrics::SAMPLE_EVERY;
use crate::process;

/// Answers held requests whose time is up, and checks all of them at intervals: a filter may have skipped the message that
/// would have woken them.
#[doc(alias = "PullRequestHoldService")]
pub(crate) struct HeldRequestWatch {
    desk: Arc<Desk>,
    next_scan: Mutex<Instant>,
}

impl HeldRequestWatch {
    pub(crate) fn new(desk: Arc<Desk>) -> Self {
        let next_scan = Mutex::new(Instant::now() + desk.ground.config().intervals.scan_held_pulls);
        Self { desk, next_scan }
    }
}

impl Service for HeldRequestWatch {
    fn name(&self) -> &str {
        "held requests"
    }

    fn due(&self) -> Work<'_> {
        let next_scan = *self.next_scan.lock();
        Box::pin(self.desk.held.wait_for_deadline(next_scan))
    }

    fn round(&self) -> Work<'_> {
        Box::pin(async {
            let now = Instant::now();
            let scans = now >= *self.next_scan.lock();
            if scans {
                *self.next_scan.lock() = now + self.desk.ground.config().intervals.scan_held_pulls;
            }
            process::held::resume_due(&self.desk, now, scans).await;
        })
    }
}

/// Answers sends whose flush, or whose slaves, did not come in time.
pub(crate) struct HeldSendWatch(Arc<HeldSends>);

impl HeldSendWatch {
    pub(crate) fn new(sends: &Arc<HeldSends>) -> Self {
        Self(sends.clone())
    }
}

impl Service for HeldSendWatch {
    fn name(&self) -> &str {
        match self.0.mark() {
            Mark::Flushed => "held sends",
            Mark::Replicated => "sends held for slaves",
        }
    }

    fn due(&self) -> Work<'_> {
        Box::pin(self.0.wait_for_deadline())
    }

    fn round(&self) -> Work<'_> {
        Box::pin(async { self.0.give_up_expired(Instant::now()) })
    }
}

/// Serves requests that waited for their quotas, and rejects those that waited too long.
pub(crate) struct QuotaWatch(Arc<Desk>);

impl QuotaWatch {
    pub(crate) fn new(desk: Arc<Desk>) -> Self {
        Self(desk)
    }
}

impl Service for QuotaWatch {
    fn name(&self) -> &str {
        "quotas"
    }

    fn due(&self) -> Work<'_> {
        Box::pin(async {
            let ground = &self.0.ground;
            ground.quotas().due(|| ground.store().monotonic()).await;
        })
    }

    fn round(&self) -> Work<'_> {
        Box::pin(async {
            process::release_by_quotas(&self.0);
            // All that pass within this time share a round.
            tokio::time::sleep(MESSAGES_PACE).await;
        })
    }
}

/// Takes clients without a heartbeat out of their groups, and frees their queue locks.
#[doc(alias = "ClientHousekeepingService")]
pub(crate) struct ClientExpiry {
    desk: Arc<Desk>,
    pace: Pace,
}

impl ClientExpiry {
    pub(crate) fn new(desk: Arc<Desk>) -> Self {
        let pace = Pace::new(Duration::ZERO, desk.ground.config().intervals.expire_clients);
        Self { desk, pace }
    }
}

impl Service for ClientExpiry {
    fn name(&self) -> &str {
        "client expiry"
    }

    fn due(&self) -> Work<'_> {
        Box::pin(self.pace.due())
    }

    fn round(&self) -> Work<'_> {
        Box::pin(async {
            process::expire(&self.desk.ground, &self.desk.members, &self.desk.rooms);
            self.desk.members.queue_locks().sweep(Instant::now());
        })
    }
}

/// Takes the samples from which rates are computed.
pub(crate) struct Sampling {
    ground: Arc<Ground>,
    pace: Pace,
}

impl Sampling {
    pub(crate) fn new(ground: Arc<Ground>) -> Self {
        Self { ground, pace: Pace::new(SAMPLE_EVERY, SAMPLE_EVERY) }
    }
}

impl Service for Sampling {
    fn name(&self) -> &str {
        "sampling"
    }

    fn due(&self) -> Work<'_> {
        Box::pin(self.pace.due())
    }

    fn round(&self) -> Work<'_> {
        Box::pin(async { self.ground.sample(Instant::now()) })
    }
}

/// Writes consumer offsets that changed.
pub(crate) struct OffsetPersistence {
    members: Arc<Members>,
    pace: Pace,
}

impl OffsetPersistence {
    pub(crate) fn new(ground: &Ground, members: Arc<Members>) -> Self {
        let pace = Pace::new(Duration::ZERO, ground.config().persist_offsets_every);
        Self { members, pace }
    }
}

impl Service for OffsetPersistence {
    fn name(&self) -> &str {
        "offset persistence"
    }

    fn due(&self) -> Work<'_> {
        Box::pin(self.pace.due())
    }

    fn round(&self) -> Work<'_> {
        Box::pin(async {
            let written = match self.members.offsets().persist() {
                Ok(written) => on_disk(written).await,
                Err(error) => Err(error.into()),
            };
            if let Err(refusal) = written {
                warn!(%refusal, "consumer offsets not written, retrying");
            }
        })
    }
}

//! The services of every broker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::warn;

use super::{Pace, Service, Work};
use crate::call::on_disk;
use crate::held_send::{HeldSends, Mark};
use crate::process;
use crate::shared::Shared;
use crate::stats::SAMPLE_EVERY;

/// Answers held requests whose time is up, and checks all of them at intervals: a filter may have skipped the message that
/// would have woken them.
#[doc(alias = "PullRequestHoldService")]
pub(crate) struct HeldRequestWatch {
    shared: Arc<Shared>,
    next_scan: Mutex<Instant>,
}

impl HeldRequestWatch {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let next_scan = Mutex::new(Instant::now() + shared.config().scan_held_pulls_every);
        Self { shared, next_scan }
    }
}

impl Service for HeldRequestWatch {
    fn name(&self) -> &str {
        "held requests"
    }

    fn due(&self) -> Work<'_> {
        let next_scan = *self.next_scan.lock();
        Box::pin(self.shared.held.wait_for_deadline(next_scan))
    }

    fn round(&self) -> Work<'_> {
        Box::pin(async {
            let now = Instant::now();
            let scans = now >= *self.next_scan.lock();
            if scans {
                *self.next_scan.lock() = now + self.shared.config().scan_held_pulls_every;
            }
            process::held::resume_due(&self.shared, now, scans).await;
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

/// Takes clients without a heartbeat out of their groups, and frees their queue locks.
#[doc(alias = "ClientHousekeepingService")]
pub(crate) struct ClientExpiry {
    shared: Arc<Shared>,
    pace: Pace,
}

impl ClientExpiry {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let pace = Pace::new(Duration::ZERO, shared.config().expire_clients_every);
        Self { shared, pace }
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
            process::expire(&self.shared);
            self.shared.queue_locks.sweep(Instant::now());
        })
    }
}

/// Takes the samples from which rates are computed.
pub(crate) struct Sampling {
    shared: Arc<Shared>,
    pace: Pace,
}

impl Sampling {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, pace: Pace::new(SAMPLE_EVERY, SAMPLE_EVERY) }
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
        Box::pin(async { self.shared.sample(Instant::now()) })
    }
}

/// Writes consumer offsets that changed.
pub(crate) struct OffsetPersistence {
    shared: Arc<Shared>,
    pace: Pace,
}

impl OffsetPersistence {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let pace = Pace::new(Duration::ZERO, shared.config().persist_offsets_every);
        Self { shared, pace }
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
            let written = match self.shared.offsets.persist() {
                Ok(written) => on_disk(written).await,
                Err(error) => Err(error.into()),
            };
            if let Err(refusal) = written {
                warn!(%refusal, "consumer offsets not written, trying again");
            }
        })
    }
}

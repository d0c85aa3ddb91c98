//! How far readers of a SYNC_MASTER see its log: what its slaves have, too.
//!
//! # Source
//! docs/decisions/readers-see-what-slaves-have.md.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketpy_env::Disk;
use rocketpy_model::PhysicalOffset;
use rocketpy_store::Store;
use tracing::{info, warn};

use super::ReplicationConfig;
use crate::service::{Pace, Service, Work};

/// Maximum pause between two looks whether slaves still confirm.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Moves the confirm offset of a master's store with the reports of its slaves, and gives it up while they confirm nothing.
#[derive(Debug)]
#[doc(alias = "confirmOffset")]
pub(crate) struct ConfirmOffset<D: Disk> {
    store: Arc<Store<D>>,
    /// After this time without a confirmation, readers see what the master alone has.
    patience: Duration,
    max_behind_bytes: u64,
    state: Mutex<State>,
    pace: Pace,
}

/// Whether slaves confirm what readers see.
#[derive(Debug, Clone, Copy)]
enum State {
    /// They do. The confirm offset at the last look, and when one found first that something waits for it to move.
    InSync { confirmed: PhysicalOffset, waits_since: Option<Instant> },
    /// They do not: readers see all. Slaves have caught up when they reach the end that the log had at their last report.
    Alone { end: PhysicalOffset },
}

impl<D: Disk> ConfirmOffset<D> {
    /// Holds the readers of a store whose master is about to serve. `None` where they never wait for slaves.
    pub(super) fn begin(store: Arc<Store<D>>, config: &ReplicationConfig) -> Option<Arc<Self>> {
        let patience = config.max_not_caught_up;
        if patience.is_zero() {
            return None;
        }
        store.hold_readers();
        let state = State::InSync { confirmed: store.max_physical_offset(), waits_since: None };
        let pace = LOOK_EVERY.min(patience);
        let max_behind_bytes = config.max_behind_bytes;
        let pace = Pace::new(pace, pace);
        Some(Arc::new(Self { store, patience, max_behind_bytes, state: Mutex::new(state), pace }))
    }

    /// As many slaves as sends wait for have the log up to `reached`. [`Store::dispatch_confirmed`] is to follow.
    pub(super) fn reached(&self, reached: PhysicalOffset) {
        let mut state = self.state.lock();
        let end = self.store.max_physical_offset();
        assert!(reached <= end, "slaves have no more than the log of their master: {reached} of {end}");
        if let State::Alone { end: caught_up_at } = &mut *state {
            if reached < std::mem::replace(caught_up_at, end) {
                return;
            }
            self.store.hold_readers();
            info!(%end, "slaves in sync again, readers see confirmed messages only");
            *state = State::InSync { confirmed: end, waits_since: None };
        }
        drop(state);
        self.store.confirm(reached);
    }

    /// Lets readers see all when slaves have confirmed nothing for too long, or are too far behind to be waited for.
    fn look(&self, now: Instant) {
        let mut state = self.state.lock();
        let State::InSync { confirmed, waits_since } = &mut *state else { return };
        let (reached, end) = (self.store.confirmed_offset(), self.store.max_physical_offset());
        let reached = reached.unwrap_or(end); // else the store is closing
        assert!(*confirmed <= reached, "the confirm offset never goes back: from {confirmed} to {reached}");
        let behind_bytes = end.saturating_sub(reached);
        let has_moved = std::mem::replace(confirmed, reached) < reached;
        if behind_bytes == 0 || has_moved && behind_bytes < self.max_behind_bytes {
            *waits_since = (behind_bytes > 0).then_some(now);
            return;
        }
        let waited = now.saturating_duration_since(*waits_since.get_or_insert(now));
        if waited < self.patience {
            return;
        }
        warn!(
            confirmed = %reached,
            behind_bytes,
            "too few slaves in sync (haMaxTimeSlaveNotCatchup), readers see unconfirmed messages"
        );
        *state = State::Alone { end };
        self.store.release_readers();
    }
}

impl<D: Disk> Service for ConfirmOffset<D> {
    fn name(&self) -> &str {
        "confirm offset"
    }

    fn due(&self) -> Work<'_> {
        Box::pin(self.pace.due())
    }

    fn round(&self) -> Work<'_> {
        Box::pin(async { self.look(Instant::now()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::put::{Origin, put};
    use crate::testing::{TestBroker, message, until};

    const PATIENCE: Duration = Duration::from_secs(15);

    #[tokio::test]
    async fn readers_see_all_after_the_time_without_a_confirmation_and_wait_again_once_slaves_caught_up() {
        let broker = TestBroker::open(|_| ());
        let store = broker.ground.store();
        let append = || {
            put(&broker.intake, Origin::Broker, &message("SELF_TEST_TOPIC", "")).unwrap();
            store.max_physical_offset()
        };
        let config = ReplicationConfig { max_not_caught_up: PATIENCE, ..ReplicationConfig::default() };
        let confirm = ConfirmOffset::begin(store.clone(), &config).unwrap();
        let start = Instant::now();
        confirm.look(start);
        confirm.look(start + 2 * PATIENCE);
        assert!(store.confirmed_offset().is_some(), "nothing waits");

        let (first, second) = (append(), append());
        confirm.look(start);
        confirm.reached(first);
        confirm.look(start + PATIENCE);
        assert_eq!(store.confirmed_offset(), Some(first), "slaves confirmed some of it");
        confirm.look(start + 2 * PATIENCE - Duration::from_millis(1));
        assert_eq!(store.confirmed_offset(), Some(first), "the time is not up");
        confirm.look(start + 2 * PATIENCE);
        assert_eq!(store.confirmed_offset(), None);
        until("readers see all", || store.dispatched_offset() == second).await;

        let third = append();
        confirm.reached(first);
        assert_eq!(store.confirmed_offset(), None, "slaves lack what readers have seen");
        let fourth = append();
        confirm.reached(third);
        assert_eq!(store.confirmed_offset(), Some(fourth), "they had all of a moment ago");
        let fifth = append();
        assert_eq!(store.readable_end(), fourth);
        confirm.reached(fifth);
        store.dispatch_confirmed();
        until("readers see all that slaves have", || store.dispatched_offset() == fifth).await;
    }

    #[tokio::test]
    async fn readers_wait_for_nobody_when_the_time_is_zero_and_for_no_slave_that_is_far_behind() {
        let broker = TestBroker::open(|_| ());
        let store = broker.ground.store();
        let config = ReplicationConfig { max_not_caught_up: Duration::ZERO, ..ReplicationConfig::default() };
        assert!(ConfirmOffset::begin(store.clone(), &config).is_none());
        assert_eq!(store.confirmed_offset(), None);

        let config = ReplicationConfig { max_behind_bytes: 1, ..ReplicationConfig::default() };
        let confirm = ConfirmOffset::begin(store.clone(), &config).unwrap();
        let start = Instant::now();
        let mut ends = Vec::new();
        for number in 0..4 {
            put(&broker.intake, Origin::Broker, &message("SELF_TEST_TOPIC", "")).unwrap();
            ends.push(store.max_physical_offset());
            confirm.reached(ends[number / 2]);
            confirm.look(start + config.max_not_caught_up * number as u32);
        }
        assert_eq!(store.confirmed_offset(), None, "it confirms, and never comes near");
    }
}

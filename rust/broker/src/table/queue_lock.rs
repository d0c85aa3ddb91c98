//! Locks of queues for consumers that keep an order.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketpy_model::MessageQueue;

/// A lock that was not renewed for this long is free.
const EXPIRY: Duration = Duration::from_secs(60);

/// Most locks of all groups together; beyond it no queue is locked until some are free. Locks expire after a minute and are no
/// part of the memory budget: their number bounds their memory.
const MAX_LOCKS: usize = 1 << 18;

/// Which client holds which queue, for groups that consume in order. Time is that of a clock that nobody sets: a step would free queues that
/// are held, or keep those of a dead client.
///
/// # Source
/// docs/reference/protocol.md 2.3.11.
#[doc(alias = "RebalanceLockManager")]
#[derive(Debug)]
pub(crate) struct QueueLocks {
    groups: Mutex<HashMap<String, HashMap<MessageQueue, Lock>>>,
    max_locks: usize,
}

impl Default for QueueLocks {
    fn default() -> Self {
        Self { groups: Mutex::default(), max_locks: MAX_LOCKS }
    }
}

#[derive(Debug)]
struct Lock {
    client_id: Arc<str>,
    renewed_at: Instant,
}

impl Lock {
    fn is_held_by_other(&self, client_id: &str, now: Instant) -> bool {
        *self.client_id != *client_id && !self.is_expired(now)
    }

    fn is_expired(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.renewed_at) > EXPIRY
    }
}

impl QueueLocks {
    /// Locks the queues that are free and renews the client's own. Returns those of `queues` that the client holds now.
    pub(crate) fn lock(
        &self,
        group: &str,
        client_id: &str,
        queues: Vec<MessageQueue>,
        now: Instant,
    ) -> Vec<MessageQueue> {
        let mut groups = self.groups.lock();
        let others: usize =
            groups.iter().filter(|(name, _)| *name != group).map(|(_, locks)| locks.len()).sum();
        let client_id: Arc<str> = client_id.into();
        let locks = groups.entry(group.to_owned()).or_default();
        locks.retain(|_, lock| !lock.is_expired(now));
        let mut held = Vec::with_capacity(queues.len());
        for queue in queues {
            match locks.get(&queue) {
                Some(lock) if lock.is_held_by_other(&client_id, now) => continue,
                None if others + locks.len() >= self.max_locks => continue,
                _ => {}
            }
            locks.insert(queue.clone(), Lock { client_id: client_id.clone(), renewed_at: now });
            held.push(queue);
        }
        if locks.is_empty() {
            groups.remove(group);
        }
        held
    }

    pub(crate) fn unlock(&self, group: &str, client_id: &str, queues: &[MessageQueue]) {
        let mut groups = self.groups.lock();
        if let Some(locks) = groups.get_mut(group) {
            for queue in queues {
                if locks.get(queue).is_some_and(|lock| *lock.client_id == *client_id) {
                    locks.remove(queue);
                }
            }
            if locks.is_empty() {
                groups.remove(group);
            }
        }
    }

    /// Removes expired locks.
    pub(crate) fn sweep(&self, now: Instant) {
        self.groups.lock().retain(|_, locks| {
            locks.retain(|_, lock| !lock.is_expired(now));
            !locks.is_empty()
        });
    }

    /// Whether a queue of the group is locked, which means that the group consumes in order.
    pub(crate) fn is_any_held(&self, group: &str, now: Instant) -> bool {
        let groups = self.groups.lock();
        groups.get(group).is_some_and(|locks| locks.values().any(|lock| !lock.is_expired(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(id: u32) -> MessageQueue {
        MessageQueue { topic: "t".into(), broker_name: "b".into(), queue_id: id }
    }

    /// Gives instants by their milliseconds since this call.
    fn clock() -> impl Fn(u64) -> Instant {
        let start = Instant::now();
        move |ms| start + Duration::from_millis(ms)
    }

    #[test]
    fn locks_beyond_the_bound_are_not_given_until_some_are_free() {
        let at = clock();
        let locks = QueueLocks { max_locks: 3, ..QueueLocks::default() };
        assert_eq!(locks.lock("g", "one", vec![queue(0), queue(1)], at(0)).len(), 2);
        assert_eq!(locks.lock("h", "two", vec![queue(0), queue(1)], at(0)), [queue(0)]);
        assert_eq!(
            locks.lock("g", "one", vec![queue(0), queue(1)], at(0)).len(),
            2,
            "the own ones are renewed"
        );
        assert!(locks.lock("i", "three", vec![queue(0)], at(0)).is_empty());
        locks.unlock("g", "one", &[queue(0)]);
        assert_eq!(locks.lock("i", "three", vec![queue(0)], at(0)), [queue(0)]);
    }

    #[test]
    fn a_queue_belongs_to_one_client_until_it_is_released_or_expires() {
        let (at, locks) = (clock(), QueueLocks::default());
        assert_eq!(locks.lock("g", "one", vec![queue(0), queue(1)], at(0)).len(), 2);
        assert!(locks.lock("g", "two", vec![queue(0)], at(1_000)).is_empty());
        assert_eq!(locks.lock("other-group", "two", vec![queue(0)], at(1_000)).len(), 1);

        locks.unlock("g", "two", &[queue(0)]);
        assert!(locks.lock("g", "two", vec![queue(0)], at(2_000)).is_empty(), "only the holder releases");
        locks.unlock("g", "one", &[queue(0)]);
        assert_eq!(locks.lock("g", "two", vec![queue(0), queue(1)], at(3_000)), [queue(0)]);

        assert!(locks.is_any_held("g", at(60_000)));
        assert_eq!(locks.lock("g", "two", vec![queue(1)], at(60_001)), [queue(1)], "expired after a minute");
        assert!(!locks.is_any_held("g", at(180_000)));

        assert!(locks.lock("empty", "one", Vec::new(), at(0)).is_empty());
        locks.sweep(at(180_000));
        assert!(locks.groups.lock().is_empty(), "nothing is kept of what expired");
    }
}

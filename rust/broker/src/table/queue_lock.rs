//! Locks of queues for consumers that keep an order.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rocketpy_model::MessageQueue;

/// A lock that was not renewed for this long is free.
const EXPIRY_MS: i64 = 60_000;

/// Most locks of all groups; more queues are not locked until some are free. Locks end by themselves after a minute, and nobody
/// answers for them: their number is what bounds their memory.
const MAX_LOCKS: usize = 1 << 18;

/// Which client holds which queue, for groups that consume in order.
///
/// # Source
/// docs/reference/protocol.md 2.3.11.
#[doc(alias = "RebalanceLockManager")]
#[derive(Debug)]
pub(crate) struct QueueLocks {
    groups: Mutex<HashMap<String, HashMap<MessageQueue, Lock>>>,
    most: usize,
}

impl Default for QueueLocks {
    fn default() -> Self {
        Self { groups: Mutex::default(), most: MAX_LOCKS }
    }
}

#[derive(Debug)]
struct Lock {
    client_id: Arc<str>,
    renewed_at_ms: i64,
}

impl Lock {
    fn is_held_by_other(&self, client_id: &str, now_ms: i64) -> bool {
        *self.client_id != *client_id && !self.is_expired(now_ms)
    }

    fn is_expired(&self, now_ms: i64) -> bool {
        now_ms - self.renewed_at_ms > EXPIRY_MS
    }
}

impl QueueLocks {
    /// Locks the queues that are free and renews the client's own. Returns those of `queues` that the client holds now.
    pub(crate) fn lock(
        &self,
        group: &str,
        client_id: &str,
        queues: Vec<MessageQueue>,
        now_ms: i64,
    ) -> Vec<MessageQueue> {
        let mut groups = self.groups.lock();
        let others: usize =
            groups.iter().filter(|(name, _)| *name != group).map(|(_, locks)| locks.len()).sum();
        let client_id: Arc<str> = client_id.into();
        let locks = groups.entry(group.to_owned()).or_default();
        locks.retain(|_, lock| !lock.is_expired(now_ms));
        let mut held = Vec::with_capacity(queues.len());
        for queue in queues {
            match locks.get(&queue) {
                Some(lock) if lock.is_held_by_other(&client_id, now_ms) => continue,
                None if others + locks.len() >= self.most => continue,
                _ => {}
            }
            locks.insert(queue.clone(), Lock { client_id: client_id.clone(), renewed_at_ms: now_ms });
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
    pub(crate) fn sweep(&self, now_ms: i64) {
        self.groups.lock().retain(|_, locks| {
            locks.retain(|_, lock| !lock.is_expired(now_ms));
            !locks.is_empty()
        });
    }

    /// Whether a queue of the group is locked, which means that the group consumes in order.
    pub(crate) fn is_any_held(&self, group: &str, now_ms: i64) -> bool {
        let groups = self.groups.lock();
        groups.get(group).is_some_and(|locks| locks.values().any(|lock| !lock.is_expired(now_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(id: u32) -> MessageQueue {
        MessageQueue { topic: "t".into(), broker_name: "b".into(), queue_id: id }
    }

    #[test]
    fn locks_beyond_the_bound_are_not_given_until_some_are_free() {
        let locks = QueueLocks { most: 3, ..QueueLocks::default() };
        assert_eq!(locks.lock("g", "one", vec![queue(0), queue(1)], 0).len(), 2);
        assert_eq!(locks.lock("h", "two", vec![queue(0), queue(1)], 0), [queue(0)]);
        assert_eq!(locks.lock("g", "one", vec![queue(0), queue(1)], 0).len(), 2, "the own ones are renewed");
        assert!(locks.lock("i", "three", vec![queue(0)], 0).is_empty());
        locks.unlock("g", "one", &[queue(0)]);
        assert_eq!(locks.lock("i", "three", vec![queue(0)], 0), [queue(0)]);
    }

    #[test]
    fn a_queue_belongs_to_one_client_until_it_is_released_or_expires() {
        let locks = QueueLocks::default();
        assert_eq!(locks.lock("g", "one", vec![queue(0), queue(1)], 0).len(), 2);
        assert!(locks.lock("g", "two", vec![queue(0)], 1_000).is_empty());
        assert_eq!(locks.lock("other-group", "two", vec![queue(0)], 1_000).len(), 1);

        locks.unlock("g", "two", &[queue(0)]);
        assert!(locks.lock("g", "two", vec![queue(0)], 2_000).is_empty(), "only the holder releases");
        locks.unlock("g", "one", &[queue(0)]);
        assert_eq!(locks.lock("g", "two", vec![queue(0), queue(1)], 3_000), [queue(0)]);

        assert!(locks.is_any_held("g", 60_000));
        assert_eq!(
            locks.lock("g", "two", vec![queue(1)], EXPIRY_MS + 1),
            [queue(1)],
            "expired after a minute"
        );
        assert!(!locks.is_any_held("g", 3 * EXPIRY_MS));

        assert!(locks.lock("empty", "one", Vec::new(), 0).is_empty());
        locks.sweep(3 * EXPIRY_MS);
        assert!(locks.groups.lock().is_empty(), "nothing is kept of what expired");
    }
}

//! Which queue a message goes to.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rocketpy_filter::hash_code;
use rocketpy_model::MessageQueue;

/// The queue of an order key among `count` queues: Java's string hash, remainder, absolute value.
///
/// Every client that uses Java's hash selector sends a key to the same queue until the queue list changes.
///
/// # Panics
/// When `count` is 0.
///
/// # Source
/// docs/reference/client.md 5.10.
#[doc(alias = "SelectMessageQueueByHash")]
pub(crate) fn by_key(key: &str, count: usize) -> usize {
    (i64::from(hash_code(key)) % count as i64).unsigned_abs() as usize
}

/// Round robin over the queues of each topic.
#[derive(Debug)]
pub(crate) struct Rotation {
    start: u32,
    next: Mutex<HashMap<String, std::sync::Arc<AtomicU32>>>,
}

impl Rotation {
    /// Index at which every topic starts; it differs between producers.
    pub(crate) fn new(start: u32) -> Self {
        Self { start, next: Mutex::default() }
    }

    /// Index of the next queue; advances the rotation by `steps`.
    pub(crate) fn next(&self, topic: &str, count: usize, steps: u32) -> usize {
        let counter = self.counter(topic);
        counter.fetch_add(steps, Ordering::Relaxed) as usize % count
    }

    fn counter(&self, topic: &str) -> std::sync::Arc<AtomicU32> {
        let mut next = self.next.lock();
        match next.get(topic) {
            Some(counter) => counter.clone(),
            None => next.entry(topic.to_owned()).or_insert_with(|| AtomicU32::new(self.start).into()).clone(),
        }
    }

    /// The next queue, at another broker than `avoid` when there is one.
    ///
    /// # Source
    /// docs/reference/client.md 5.8.
    pub(crate) fn next_avoiding<'q>(
        &self,
        topic: &str,
        queues: &'q [MessageQueue],
        avoid: Option<&str>,
    ) -> Option<&'q MessageQueue> {
        let first = self.next(topic, queues.len().max(1), 1);
        let turn = || queues.iter().cycle().skip(first).take(queues.len());
        turn().find(|queue| avoid != Some(&*queue.broker_name)).or_else(|| turn().next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues() -> Vec<MessageQueue> {
        ["a", "b"].iter().flat_map(|broker| (0..2).map(|id| MessageQueue::new("t", *broker, id))).collect()
    }

    #[test]
    fn keys_hash_to_the_queues_of_the_specification() {
        for (key, of_3, of_4, of_8) in
            [("order-1", 2, 2, 6), ("order-2", 1, 1, 5), ("user-42", 1, 0, 0), ("TagA", 1, 3, 7)]
        {
            assert_eq!((by_key(key, 3), by_key(key, 4), by_key(key, 8)), (of_3, of_4, of_8), "{key}");
        }
        assert_eq!(by_key("订单", 8), 3);
        assert!(by_key("polygenelubricants", 3) < 3, "the hash is -2^31");
    }

    #[test]
    fn rotation_takes_every_queue_once_a_turn() {
        let (rotation, queues) = (Rotation::new(u32::MAX - 1), queues());
        let mut seen: Vec<_> =
            (0..4).filter_map(|_| rotation.next_avoiding("t", &queues, None)).cloned().collect();
        seen.sort();
        assert_eq!(seen, queues, "also across the wrap of the counter");
    }

    #[test]
    fn the_failed_broker_is_avoided_while_there_is_another() {
        let (rotation, queues) = (Rotation::new(0), queues());
        for _ in 0..8 {
            let chosen = rotation.next_avoiding("t", &queues, Some("a")).unwrap();
            assert_eq!(&*chosen.broker_name, "b");
        }
        let chosen = rotation.next_avoiding("t", &queues[..2], Some("a")).unwrap();
        assert_eq!(&*chosen.broker_name, "a", "the only broker is better than none");
        assert_eq!(rotation.next_avoiding("t", &[], None), None);
    }
}

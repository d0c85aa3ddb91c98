//! Which queue a message goes to.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketpy_env::random_u64;
use rocketpy_filter::hash_code;
use rocketpy_model::MessageQueue;

use super::faults::Faults;
use crate::config::Selector;

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
    let index = (i64::from(hash_code(key)) % count as i64).unsigned_abs() as usize;
    assert!(index < count, "an order key has one of the queues");
    index
}

/// What a producer's choices of queues have in common.
#[derive(Debug)]
#[doc(alias = "MQFaultStrategy")]
pub(crate) struct Selection {
    is_random: bool,
    /// Index at which the rotation of every topic starts; it differs between producers.
    start: u32,
    next: Mutex<HashMap<String, Arc<AtomicU32>>>,
    /// Brokers that are avoided: those that were silent, and with `avoids_slow` also those that were slow or refused.
    faults: Arc<Faults>,
    avoids_slow: bool,
}

impl Selection {
    pub(crate) fn new(selector: Selector) -> Self {
        Self::starting_at(selector, random_u64() as u32)
    }

    pub(super) fn starting_at(selector: Selector, start: u32) -> Self {
        Self {
            is_random: selector == Selector::Random,
            start,
            next: Mutex::default(),
            faults: Arc::default(),
            avoids_slow: selector == Selector::LeastLatency,
        }
    }

    /// Index of the next queue among those wanted; among all where none is wanted. `None` without queues.
    ///
    /// # Source
    /// docs/reference/client.md 5.8.
    pub(crate) fn pick(
        &self,
        topic: &str,
        queues: &[MessageQueue],
        is_wanted: impl Fn(&MessageQueue) -> bool,
    ) -> Option<usize> {
        let picked = self.pick_at(Instant::now(), topic, queues, is_wanted);
        assert!(picked.is_none_or(|index| index < queues.len()), "a picked queue is one of the route");
        picked
    }

    fn pick_at(
        &self,
        now: Instant,
        topic: &str,
        queues: &[MessageQueue],
        is_wanted: impl Fn(&MessageQueue) -> bool,
    ) -> Option<usize> {
        let faults = self.faults.at(now);
        if !faults.is_empty() {
            let is_available =
                |queue: &MessageQueue| is_wanted(queue) && faults.is_available(&queue.broker_name);
            let is_reachable =
                |queue: &MessageQueue| is_wanted(queue) && faults.is_reachable(&queue.broker_name);
            let picked = self.pick_among(topic, queues, is_available);
            let picked = picked.or_else(|| self.pick_among(topic, queues, is_reachable));
            if picked.is_some() {
                return picked;
            }
        }
        self.pick_among(topic, queues, is_wanted).or_else(|| self.pick_among(topic, queues, |_| true))
    }

    fn pick_among(
        &self,
        topic: &str,
        queues: &[MessageQueue],
        is_wanted: impl Fn(&MessageQueue) -> bool,
    ) -> Option<usize> {
        if self.is_random {
            let wanted = || (0..queues.len()).filter(|index| is_wanted(&queues[*index]));
            let count = wanted().count();
            return if count == 0 { None } else { wanted().nth(random_u64() as usize % count) };
        }
        let counter = self.counter(topic);
        let first = counter.fetch_add(1, Ordering::Relaxed) as usize;
        let mut indices =
            (0..queues.len()).map(|step| (first.wrapping_add(step) % queues.len(), step as u32));
        let (index, skipped) = indices.find(|(index, _)| is_wanted(&queues[*index]))?;
        if skipped > 0 {
            counter.fetch_add(skipped, Ordering::Relaxed); // else the queue after those gets messages twice
        }
        Some(index)
    }

    fn counter(&self, topic: &str) -> Arc<AtomicU32> {
        let mut next = self.next.lock();
        match next.get(topic) {
            Some(counter) => counter.clone(),
            None => next.entry(topic.to_owned()).or_insert_with(|| AtomicU32::new(self.start).into()).clone(),
        }
    }

    /// A broker took a message.
    pub(crate) fn answered(&self, queue: &MessageQueue, latency: Duration, now: Instant) {
        let latency = if self.avoids_slow { latency } else { Duration::ZERO };
        self.faults.answered(&queue.broker_name, latency, now);
    }

    /// A broker did not take a message that another may take. `is_silent`: it would cost the next message as much time. Returns the
    /// faults where somebody is to ask when it answers again.
    pub(crate) fn failed(&self, queue: &MessageQueue, is_silent: bool, now: Instant) -> Option<&Arc<Faults>> {
        let is_avoided = self.avoids_slow || is_silent;
        (is_avoided && self.faults.failed(queue, now)).then_some(&self.faults)
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
        let (selection, queues) = (Selection::starting_at(Selector::RoundRobin, u32::MAX - 1), queues());
        let mut seen: Vec<_> = (0..4).filter_map(|_| selection.pick("t", &queues, |_| true)).collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3], "also across the wrap of the counter");
    }

    #[test]
    fn a_broker_is_left_out_while_there_is_another() {
        for selector in [Selector::RoundRobin, Selector::Random, Selector::LeastLatency] {
            let (selection, queues) = (Selection::starting_at(selector, 0), queues());
            let is_wanted = |queue: &MessageQueue| &*queue.broker_name != "a";
            let mut seen: Vec<_> =
                (0..100).map(|_| selection.pick("t", &queues, is_wanted).unwrap()).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen, [2, 3], "{selector:?}");
            let only = selection.pick("t", &queues[..2], is_wanted);
            assert!(only.is_some_and(|index| index < 2), "the only broker is better than none");
            assert_eq!(selection.pick("t", &[], |_| true), None);
        }
    }

    #[test]
    fn random_takes_every_queue_and_in_no_order() {
        let (selection, queues) = (Selection::new(Selector::Random), queues());
        let picked: Vec<_> = (0..400).map(|_| selection.pick("t", &queues, |_| true).unwrap()).collect();
        assert!((0..4).all(|index| picked.contains(&index)));
        assert!(picked.windows(2).any(|pair| pair[1] != (pair[0] + 1) % 4), "that would be a rotation");
    }

    #[test]
    fn silent_broker_is_avoided_by_every_selector() {
        for selector in [Selector::RoundRobin, Selector::Random] {
            let (selection, queues) = (Selection::starting_at(selector, 0), queues());
            let start = Instant::now();
            let picks = |queue: usize| {
                let mut picked = (0..100).map(|_| selection.pick_at(start, "t", &queues, |_| true).unwrap());
                picked.any(|index| index == queue)
            };
            selection.answered(&queues[0], Duration::from_secs(20), start);
            assert!(selection.failed(&queues[0], false, start).is_none() && picks(0), "{selector:?}");
            assert!(selection.failed(&queues[0], true, start).is_some() && !picks(0), "{selector:?}");
            selection.answered(&queues[0], Duration::ZERO, start);
            let later = start + Duration::from_secs(60);
            assert!(selection.pick_at(later, "t", &queues[..1], |_| true).is_some());
            assert!(selection.faults.at(later).is_available("a"), "{selector:?}");
        }
    }

    #[test]
    fn slow_and_failed_brokers_are_avoided_for_a_while() {
        let (selection, queues) = (Selection::starting_at(Selector::LeastLatency, 0), queues());
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let brokers = |ms| {
            let picked = (0..8).map(|_| selection.pick_at(at(ms), "t", &queues, |_| true).unwrap());
            let mut brokers: Vec<_> = picked.map(|index| &*queues[index].broker_name).collect();
            brokers.sort_unstable();
            brokers.dedup();
            brokers
        };
        let answered = |index: usize, latency_ms, now_ms| {
            selection.answered(&queues[index], Duration::from_millis(latency_ms), at(now_ms));
        };
        answered(0, 549, 0);
        assert_eq!(brokers(0), ["a", "b"], "fast enough");
        answered(0, 550, 0);
        assert_eq!(brokers(1999), ["b"]);
        assert_eq!(brokers(2000), ["a", "b"]);
        answered(0, 3000, 0);
        answered(0, 1, 0);
        assert_eq!(brokers(5999), ["b"], "a quick answer does not shorten it");
        answered(2, 15_000, 0);
        assert_eq!(brokers(5999), ["a", "b"], "none is available: all reachable ones are used");
        let refused = |index: usize| selection.failed(&queues[index], false, at(0)).is_some();
        assert!(refused(2), "somebody is to ask for it");
        assert!(!refused(3), "somebody does already");
        assert_eq!(brokers(5999), ["a"]);
        assert_eq!(brokers(60_000), ["a"], "it did not answer since");
        answered(2, 1, 60_000);
        assert_eq!(brokers(60_000), ["a", "b"]);
    }
}

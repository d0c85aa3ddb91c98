//! Counters of single queues (`enableDetailStat`). Their number is bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;

use super::windows::{Item, Shown, Tick};

/// Counts of an item of messages, in the order of its cells: requests, messages and bytes; of requests whose time was taken, how many and their
/// microseconds.
pub(super) const TIMES: usize = 0;
pub(super) const MESSAGES: usize = 1;
pub(super) const BYTES: usize = 2;
const TIMED: usize = 3;
const MICROS: usize = 4;
/// The time of one request of so many is taken: a reading of the clock costs more than all counters.
pub(super) const TIMED_OF: u64 = 16;

pub(super) const NUMS: Shown = Shown::of(MESSAGES, TIMES);
pub(super) const SIZE: Shown = Shown::of(BYTES, TIMES);
pub(super) const LATENCY: Shown = Shown { value: MICROS, times: Some(TIMED), parts: 1000 };

/// Counters of one queue.
pub(super) type QueueItem = Item<5>;

impl<const N: usize> Item<N> {
    /// Counts a request. Returns whether its time is to be taken.
    #[inline]
    pub(super) fn count(&self, messages: u64, bytes: u64) -> bool {
        self.add(MESSAGES, messages);
        self.add(BYTES, bytes);
        self.add(TIMES, 1).is_multiple_of(TIMED_OF) || self.get(TIMED) == 0
    }

    pub(super) fn took(&self, took: Duration) {
        self.add(TIMED, 1);
        self.add(MICROS, u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }
}

/// Room for counters of queues.
#[derive(Debug)]
pub(super) struct Room {
    is_on: bool,
    limit: usize,
    /// Queues that are known, with those that were cut.
    known: AtomicUsize,
}

impl Room {
    pub(super) fn new(is_on: bool, limit: usize) -> Self {
        Self { is_on, limit, known: AtomicUsize::new(0) }
    }

    /// Says how many queues are known, after some have gone.
    pub(super) fn set_known(&self, known: usize) {
        self.known.store(known, Ordering::Relaxed);
    }
}

/// A queue; `None` where there was no room for its counters.
type Entry = (u32, Option<Arc<QueueItem>>);

/// Counters of the queues of a topic, or of those that a group reads; in the order of the queues.
#[derive(Debug, Default)]
pub(super) struct Queues(ArcSwap<Vec<Entry>>);

impl Queues {
    /// Calls `each` with the counters of a queue. They are made where they are new and there is room.
    #[inline]
    pub(super) fn with<T>(
        &self,
        queue_id: u32,
        room: &Room,
        each: impl Fn(&Arc<QueueItem>) -> T,
    ) -> Option<T> {
        if !room.is_on {
            return None;
        }
        let queues = self.0.load();
        match queues.binary_search_by_key(&queue_id, |(id, _)| *id) {
            Ok(at) => queues[at].1.as_ref().map(each),
            Err(_) => self.add(queue_id, room).as_ref().map(each),
        }
    }

    #[cold]
    fn add(&self, queue_id: u32, room: &Room) -> Option<Arc<QueueItem>> {
        // As many are remembered as cut. All others are forgotten.
        let known = room.known.fetch_add(1, Ordering::Relaxed);
        if known >= room.limit.saturating_mul(2) {
            return None;
        }
        let new = (known < room.limit).then(Arc::<QueueItem>::default);
        self.0.rcu(|queues| {
            let mut queues = Vec::clone(queues);
            if let Err(at) = queues.binary_search_by_key(&queue_id, |(id, _)| *id) {
                queues.insert(at, (queue_id, new.clone()));
            }
            queues
        });
        let is_sorted = self.0.load().is_sorted_by_key(|(id, _)| *id);
        assert!(is_sorted, "queues are in the order of their numbers");
        self.get(queue_id)
    }

    /// Counters of a queue, if it has some.
    pub(super) fn get(&self, queue_id: u32) -> Option<Arc<QueueItem>> {
        let queues = self.0.load();
        let at = queues.binary_search_by_key(&queue_id, |(id, _)| *id).ok()?;
        queues[at].1.clone()
    }

    pub(super) fn sample(&self, tick: &Tick) -> usize {
        let queues = self.0.load_full();
        queues.iter().filter_map(|(_, item)| item.as_ref()).for_each(|item| item.sample(tick));
        queues.len()
    }

    /// Queues without counters.
    pub(super) fn cut(&self) -> u64 {
        self.0.load().iter().filter(|(_, item)| item.is_none()).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_beyond_the_limit_are_cut_and_counted() {
        let (room, queues) = (Room::new(true, 2), Queues::default());
        for queue_id in [7, 1, 3, 7, 5, 9] {
            queues.with(queue_id, &room, |item| item.count(1, 10));
        }
        let messages = |queue_id| queues.get(queue_id).map(|item| item.get(MESSAGES));
        assert_eq!([7, 1, 3, 5, 9].map(messages), [Some(2), Some(1), None, None, None]);
        assert_eq!(queues.cut(), 2, "of three: only as many are remembered as may be counted");
        let off = Room::new(false, 2);
        assert_eq!(queues.with(7, &off, |item| item.count(1, 10)), None);
    }

    #[test]
    fn first_request_and_one_of_sixteen_are_timed() {
        let item = QueueItem::default();
        let is_timed: Vec<bool> = (0..33)
            .map(|_| {
                let is_timed = item.count(1, 1);
                if is_timed {
                    item.took(Duration::from_micros(1500));
                }
                is_timed
            })
            .collect();
        let timed: Vec<usize> = (0..33).filter(|at| is_timed[*at]).collect();
        assert_eq!(timed, [0, 16, 32]);
        let [minute, ..] = item.read(0, LATENCY).unwrap();
        assert_eq!((minute.sum, minute.mean), (4, 1.5));
    }
}

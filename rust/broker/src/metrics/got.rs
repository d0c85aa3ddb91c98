//! Counters of the messages that groups pulled, by group, topic and queue.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::RwLock;
use rocketpy_model::system;

#[cfg(doc)]
use super::Metric;
use super::queues::{BYTES, MESSAGES, Queues, Room};
use super::windows::{Item, Shown, Tick, Windows3};

/// Pairs of group and topic beyond which idle ones are forgotten.
const MAX_PAIRS: usize = 100_000;

/// Counts of a pair after those of every item: pulls whose messages came from the disk, their messages and bytes.
const DISK_TIMES: usize = 5;
const DISK_MESSAGES: usize = 6;
const DISK_BYTES: usize = 7;

pub(super) const DISK_NUMS: Shown = Shown::of(DISK_MESSAGES, DISK_TIMES);
pub(super) const DISK_SIZE: Shown = Shown::of(DISK_BYTES, DISK_TIMES);

/// Messages that groups pulled: counters such as [`Metric::GroupMessagesOut`].
///
/// They stay until the group or the topic is gone, unless there are too many: then those that were idle for a minute go, and count from 0
/// again.
#[doc(alias("StatsItemSet", "GROUP_GET_NUMS"))]
#[derive(Debug)]
pub(crate) struct GotMessages {
    /// By group and topic.
    groups: RwLock<HashMap<Arc<str>, ByTopic>>,
    room: Room,
    max_micros: AtomicU64,
    /// Messages of clients' topics whose pairs are gone.
    gone: AtomicU64,
}

type ByTopic = HashMap<Arc<str>, Arc<Pair>>;

/// Counters of a group in a topic.
#[derive(Debug, Default)]
struct Pair {
    item: Item<8>,
    queues: Queues,
}

/// A pull that returned messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Got<'a> {
    pub(crate) group: &'a str,
    pub(crate) topic: &'a str,
    pub(crate) queue_id: u32,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Whether they were read from the disk.
    pub(crate) from_disk: bool,
    /// When its request was read; `None` of one that was held.
    pub(crate) since: Option<Instant>,
}

impl GotMessages {
    pub(super) fn new(room: Room) -> Self {
        let (max_micros, gone) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { groups: RwLock::default(), room, max_micros, gone }
    }

    /// Counts a pull.
    pub(crate) fn count(&self, got: Got<'_>) {
        assert!(got.messages > 0, "a pull that is counted returned messages: {got:?}");
        let groups = self.groups.read();
        if let Some(pair) = groups.get(got.group).and_then(|topics| topics.get(got.topic)) {
            return self.add(pair, got);
        }
        drop(groups);
        let mut groups = self.groups.write();
        let topics = groups.entry(got.group.into()).or_default();
        self.add(topics.entry(got.topic.into()).or_default(), got);
    }

    fn add(&self, pair: &Pair, got: Got<'_>) {
        let Got { queue_id, messages, bytes, from_disk, since, .. } = got;
        let mut is_timed = pair.item.count(messages, bytes);
        if from_disk {
            pair.item.add(DISK_TIMES, 1);
            pair.item.add(DISK_MESSAGES, messages);
            pair.item.add(DISK_BYTES, bytes);
        }
        let queue = pair.queues.with(queue_id, &self.room, |queue| {
            (queue.count(messages, bytes) && since.is_some()).then(|| queue.clone())
        });
        let queue = queue.flatten();
        is_timed |= queue.is_some();
        if let Some(since) = since.filter(|_| is_timed) {
            let took = since.elapsed();
            pair.item.took(took);
            queue.iter().for_each(|queue| queue.took(took));
            let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            self.max_micros.fetch_max(micros, Ordering::Relaxed);
        }
    }

    /// The longest pull, in milliseconds.
    pub(crate) fn max_ms(&self) -> u64 {
        self.max_micros.load(Ordering::Relaxed) / 1000
    }

    fn pair(&self, group: &str, topic: &str) -> Option<Arc<Pair>> {
        self.groups.read().get(group)?.get(topic).cloned()
    }

    /// Group, topic and counters: the lock is held for no longer than their handles are copied.
    fn pairs(&self) -> Vec<(Arc<str>, Arc<str>, Arc<Pair>)> {
        let groups = self.groups.read();
        let pairs = groups.iter().flat_map(|(group, topics)| topics.iter().map(move |pair| (group, pair)));
        pairs.map(|(group, (topic, pair))| (group.clone(), topic.clone(), pair.clone())).collect()
    }

    pub(super) fn sample(&self, tick: &Tick) {
        let pairs = self.pairs();
        let mut queues = 0;
        for (_, _, pair) in &pairs {
            pair.item.sample(tick);
            queues += pair.queues.sample(tick);
        }
        self.room.set_known(queues);
        if pairs.len() > MAX_PAIRS {
            self.retain_pairs(|_, _, pair| !pair.item.is_idle());
        }
    }

    /// Forgets groups and topics that are gone.
    pub(super) fn retain(&self, is_topic: impl Fn(&str) -> bool, is_group: impl Fn(&str) -> bool) {
        // A slave serves groups that its master has not made yet.
        self.retain_pairs(|group, topic, pair| is_topic(topic) && is_group(group) || !pair.item.is_idle());
    }

    /// Forgets a topic or a group, whatever was counted.
    pub(super) fn forget(&self, is_gone: impl Fn(&str, &str) -> bool) {
        self.retain_pairs(|group, topic, _| !is_gone(group, topic));
    }

    fn retain_pairs(&self, keeps: impl Fn(&str, &str, &Pair) -> bool) {
        if self.pairs().iter().all(|(group, topic, pair)| keeps(group, topic, pair)) {
            return;
        }
        self.groups.write().retain(|group, topics| {
            topics.retain(|topic, pair| {
                let is_kept = keeps(group, topic, pair);
                if !is_kept && !system::is_system_topic(topic) {
                    self.gone.fetch_add(pair.item.get(MESSAGES), Ordering::Relaxed);
                }
                is_kept
            });
            !topics.is_empty()
        });
    }

    /// Windows of a group in a topic.
    pub(super) fn windows(&self, group: &str, topic: &str, now_ms: i64, shown: Shown) -> Option<Windows3> {
        self.pair(group, topic)?.item.read(now_ms, shown)
    }

    /// Windows of a group in a queue.
    pub(super) fn queue_windows(
        &self,
        (group, topic, queue_id): (&str, &str, u32),
        now_ms: i64,
        shown: Shown,
    ) -> Option<Windows3> {
        self.pair(group, topic)?.queues.get(queue_id)?.read(now_ms, shown)
    }

    /// Queues without counters.
    pub(crate) fn cut_queues(&self) -> u64 {
        self.pairs().iter().map(|(_, _, pair)| pair.queues.cut()).sum()
    }

    /// Messages of other topics than the system's.
    pub(super) fn of_clients_topics(&self) -> u64 {
        // Under the lock: a pair that goes meanwhile counts once.
        let groups = self.groups.read();
        let of_clients = groups.values().flatten().filter(|(topic, _)| !system::is_system_topic(topic));
        self.gone.load(Ordering::Relaxed) + of_clients.map(|(_, pair)| pair.item.get(MESSAGES)).sum::<u64>()
    }

    /// Calls `each` with group, topic, messages and bytes, for each group that took messages from a topic.
    pub(crate) fn groups(&self, mut each: impl FnMut(&str, &str, [u64; 2])) {
        for (group, topic, pair) in self.pairs() {
            each(&group, &topic, [MESSAGES, BYTES].map(|at| pair.item.get(at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::queues::{LATENCY, NUMS};
    use super::super::windows::Clock;
    use super::*;

    fn got(group: &'static str, messages: u64) -> Got<'static> {
        let (topic, queue_id, bytes) = ("orders", 3, messages * 100);
        let since = Instant::now().checked_sub(Duration::from_secs(1));
        Got { group, topic, queue_id, messages, bytes, from_disk: messages == 7, since }
    }

    #[test]
    fn items_of_group_and_queue_say_what_a_group_got() {
        let all = GotMessages::new(Room::new(true, 10));
        (1..=7).for_each(|messages| all.count(got("g", messages)));
        let of = |shown| all.windows("g", "orders", 0, shown).map(|windows| windows[0].sum);
        assert_eq!((of(NUMS), of(DISK_NUMS), of(DISK_SIZE)), (Some(28), Some(7), Some(700)));
        let waited_ms = of(LATENCY);
        assert!(waited_ms >= Some(1000), "one of the seven is timed, and took a second: {waited_ms:?}");
        assert_eq!(all.queue_windows(("g", "orders", 3), 0, NUMS).unwrap()[0].mean, 4.0);
        assert_eq!(all.queue_windows(("g", "orders", 2), 0, NUMS), None);
        all.count(Got { since: None, ..got("held", 1) });
        assert_eq!(all.windows("held", "orders", 0, LATENCY), None, "a held pull is not timed");
    }

    #[test]
    fn deleted_group_is_forgotten_and_one_that_a_slave_serves_is_not() {
        let (all, clock) = (GotMessages::new(Room::new(true, 10)), Clock::new(Instant::now()));
        ["g", "of the master"].iter().for_each(|group| all.count(got(group, 1)));
        all.forget(|group, _| group == "g");
        all.retain(|_| true, |_| false);
        let groups = || all.pairs().into_iter().map(|(group, ..)| group.to_string()).collect::<Vec<_>>();
        assert_eq!(groups(), ["of the master"]);
        for tens in 1..=8 {
            all.sample(&clock.tick(Instant::now() + Duration::from_secs(10 * tens), None));
        }
        all.retain(|_| true, |_| true);
        assert_eq!(groups(), ["of the master"], "an idle group keeps its counters");
        all.retain(|_| true, |_| false);
        assert!(groups().is_empty());
        assert_eq!(all.of_clients_topics(), 2, "what was counted stays counted");
    }
}

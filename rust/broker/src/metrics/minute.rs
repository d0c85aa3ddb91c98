//! Counters of each group, and rates of each topic and group over the last minute.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};

#[cfg(doc)]
use super::Metric;

/// Whole spans between two ticks that are kept: a minute, with a tick every ten seconds.
const SPANS: usize = 6;
/// Pairs of group and topic beyond which idle ones are forgotten.
const MAX_PAIRS: usize = 100_000;

/// Message rates of topics and groups in the last minute.
///
/// Puts are not counted one by one: a topic's queues tell by their ends. What a group took is the counter [`Metric::GroupMessagesOut`].
/// A topic that was idle for a minute is forgotten. The counters of a group stay until the group or the topic is gone, unless there are too
/// many: then those that were idle for a minute go, and count from 0 again.
#[doc(alias("StatsItemSet", "TOPIC_PUT_NUMS", "GROUP_GET_NUMS"))]
#[derive(Debug, Default)]
pub(crate) struct MinuteRates {
    /// Starts of the spans, the current one included.
    starts: Mutex<VecDeque<Instant>>,
    puts: Mutex<HashMap<String, Puts>>,
    /// By group and topic.
    gets: RwLock<HashMap<String, HashMap<String, Gets>>>,
}

#[derive(Debug, Default)]
struct Puts {
    /// Sum of the ends of the topic's queues at the last tick.
    total: u64,
    spans: VecDeque<u64>,
}

#[derive(Debug, Default)]
struct Gets {
    total: AtomicU64,
    bytes: AtomicU64,
    /// The total at the last tick.
    before: u64,
    spans: VecDeque<u64>,
}

impl Gets {
    fn add(&self, messages: u64, bytes: u64) {
        self.total.fetch_add(messages, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn push(spans: &mut VecDeque<u64>, count: u64) {
    if spans.len() == SPANS {
        spans.pop_front();
    }
    spans.push_back(count);
}

fn is_idle(spans: &VecDeque<u64>) -> bool {
    spans.iter().all(|count| *count == 0)
}

impl MinuteRates {
    /// Counts messages that a pull gave to a group.
    pub(crate) fn got(&self, group: &str, topic: &str, messages: u64, bytes: u64) {
        let gets = self.gets.read();
        if let Some(gets) = gets.get(group).and_then(|topics| topics.get(topic)) {
            return gets.add(messages, bytes);
        }
        drop(gets);
        let mut gets = self.gets.write();
        gets.entry(group.to_owned()).or_default().entry(topic.to_owned()).or_default().add(messages, bytes);
    }

    /// Begins a span. `totals` are the sums of the ends of each topic's queues.
    pub(crate) fn tick(&self, now: Instant, totals: impl Iterator<Item = (String, u64)>) {
        let ticks = {
            let mut starts = self.starts.lock();
            if starts.len() > SPANS {
                starts.pop_front();
            }
            starts.push_back(now);
            starts.len()
        };
        let mut puts = self.puts.lock();
        let mut former = std::mem::take(&mut *puts);
        for (topic, total) in totals {
            let mut put = former.remove(&topic).unwrap_or_default();
            // At the start, nothing has been put yet.
            push(&mut put.spans, if ticks == 1 { 0 } else { total.saturating_sub(put.total) });
            assert!(
                put.spans.len() <= ticks,
                "a rate counts no messages from before its time: {ticks} ticks"
            );
            put.total = total;
            puts.insert(topic, put);
        }
        drop(puts);
        let mut gets = self.gets.write();
        let are_too_many = gets.values().map(HashMap::len).sum::<usize>() > MAX_PAIRS;
        gets.retain(|_, topics| {
            topics.retain(|_, gets| {
                let total = *gets.total.get_mut();
                let before = std::mem::replace(&mut gets.before, total);
                assert!(before <= total, "counts of pulled messages only grow: {total} after {before}");
                push(&mut gets.spans, total - before);
                !are_too_many || !is_idle(&gets.spans)
            });
            !topics.is_empty()
        });
    }

    /// Forgets groups and topics that are gone.
    pub(super) fn retain(&self, is_topic: impl Fn(&str) -> bool, is_group: impl Fn(&str) -> bool) {
        self.gets.write().retain(|group, topics| {
            let is_group = is_group(group);
            // A slave serves groups that its master has not made yet.
            topics.retain(|topic, gets| is_topic(topic) && is_group || !is_idle(&gets.spans));
            !topics.is_empty()
        });
    }

    /// Messages a second that a topic got, when the ends of its queues sum up to `total` now.
    #[doc(alias = "topicPutTps")]
    pub(crate) fn put_rate(&self, now: Instant, topic: &str, total: u64) -> f64 {
        let puts = self.puts.lock();
        let (spans, before) = puts.get(topic).map_or((0, 0), |put| (put.spans.iter().sum(), put.total));
        self.rate(now, spans + total.saturating_sub(before))
    }

    /// Messages a second that a group took from a topic.
    #[doc(alias = "consumeTps")]
    pub(crate) fn get_rate(&self, now: Instant, group: &str, topic: &str) -> f64 {
        let gets = self.gets.read();
        let Some(gets) = gets.get(group).and_then(|topics| topics.get(topic)) else { return 0.0 };
        self.rate(now, gets.spans.iter().sum::<u64>() + gets.total.load(Ordering::Relaxed) - gets.before)
    }

    /// Calls `each` with group, topic, messages and bytes, for each group that took messages from a topic.
    pub(crate) fn groups(&self, mut each: impl FnMut(&str, &str, [u64; 2])) {
        for (group, topics) in &*self.gets.read() {
            for (topic, gets) in topics {
                each(group, topic, [&gets.total, &gets.bytes].map(|cell| cell.load(Ordering::Relaxed)));
            }
        }
    }

    fn rate(&self, now: Instant, count: u64) -> f64 {
        let start = self.starts.lock().front().copied();
        let seconds = start.map_or(0.0, |start| now.saturating_duration_since(start).as_secs_f64());
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn totals(total: u64) -> impl Iterator<Item = (String, u64)> {
        [("orders".to_owned(), total)].into_iter()
    }

    #[test]
    fn a_rate_is_that_of_the_last_minute() {
        let (rates, start) = (MinuteRates::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(rates.put_rate(at(0), "orders", 1000), 0.0, "nothing is known yet");
        rates.tick(at(0), totals(1000));
        rates.got("g", "orders", 30, 3000);
        assert_eq!(rates.put_rate(at(5), "orders", 1100), 20.0, "what was there at the start does not count");
        assert_eq!(rates.get_rate(at(5), "g", "orders"), 6.0);
        rates.tick(at(10), totals(1200));
        rates.got("g", "orders", 30, 3000);
        assert_eq!(rates.put_rate(at(20), "orders", 1200), 10.0);
        assert_eq!(rates.get_rate(at(20), "g", "orders"), 3.0);
        assert_eq!(rates.put_rate(at(20), "new", 20), 1.0, "a topic that came after the last tick");
        for seconds in (20..=60).step_by(10) {
            rates.tick(at(seconds), totals(1200));
        }
        assert_eq!(rates.get_rate(at(60), "g", "orders"), 1.0);
        rates.tick(at(70), totals(1200));
        assert_eq!(
            rates.put_rate(at(70), "orders", 1200),
            0.0,
            "the first ten seconds are over a minute ago"
        );
        assert_eq!(rates.get_rate(at(70), "g", "orders"), 0.5);
    }

    #[test]
    fn idle_topics_and_deleted_groups_are_forgotten() {
        let (rates, start) = (MinuteRates::default(), Instant::now());
        rates.tick(start, totals(5));
        rates.got("g", "orders", 1, 100);
        for ten_seconds in 1..=7 {
            rates.tick(start + Duration::from_secs(10 * ten_seconds), std::iter::empty());
        }
        assert!(rates.puts.lock().is_empty());
        let mut counters = Vec::new();
        rates.groups(|group, topic, counts| counters.push((group.to_owned(), topic.to_owned(), counts)));
        assert_eq!(counters, [("g".to_owned(), "orders".to_owned(), [1, 100])]);
        rates.retain(|_| true, |group| group != "g");
        assert!(rates.gets.read().is_empty());
    }

    #[test]
    fn a_topic_that_was_made_anew_counts_from_zero() {
        let (rates, start) = (MinuteRates::default(), Instant::now());
        rates.tick(start, totals(1000));
        rates.tick(start + Duration::from_secs(10), totals(20));
        assert_eq!(rates.put_rate(start + Duration::from_secs(10), "orders", 20), 0.0);
        assert_eq!(rates.put_rate(start + Duration::from_secs(20), "orders", 40), 1.0);
    }
}

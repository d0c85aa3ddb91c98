//! Lag of consumer groups: of each that has offsets, whether its members are there or not.
//!
//! Ends of queues and committed offsets are compared in memory. The age of a message is read from its record, once: it is remembered until the
//! group moves on. A reading looks up no more of them than there is time for; the others follow with the next one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketpy_model::{QueueOffset, system};
use rocketpy_store::QueueBounds;

use super::{Out, Sample, flag};
use crate::desk::Desk;
use crate::metrics::Metric;
use crate::table::offset_shared::QueueOffsets;

/// Time for look-ups of records in one reading. A scrape of many groups stays below 100 ms.
const LOOK_UPS: Duration = Duration::from_millis(30);

/// When messages were stored, by topic, queue and offset.
#[derive(Debug, Default)]
pub(super) struct StoredTimes {
    known: HashMap<(Arc<str>, u32, u64), i64>,
    /// Of this reading.
    used: HashMap<(Arc<str>, u32, u64), i64>,
}

impl StoredTimes {
    /// `None`: not read yet, or it cannot be read.
    fn of(&mut self, desk: &Desk, place: (&Arc<str>, u32, u64), until: Instant) -> Option<i64> {
        let key = (place.0.clone(), place.1, place.2);
        if let Some(at_ms) = self.used.get(&key).or_else(|| self.known.get(&key)) {
            let at_ms = *at_ms;
            self.used.insert(key, at_ms);
            return Some(at_ms);
        }
        if Instant::now() >= until {
            return None;
        }
        let stored_at = desk.ground.store().stored_at(&key.0, key.1, QueueOffset(key.2)).ok().flatten()?;
        self.used.insert(key, stored_at);
        Some(stored_at)
    }
}

/// Lag of a group in a topic.
#[derive(Debug)]
struct Lag {
    group: Arc<str>,
    topic: Arc<str>,
    behind: u64,
    inflight: u64,
    ready: u64,
    /// Ages of the first uncommitted message and of the first that was not pulled.
    behind_ms: u64,
    ready_ms: u64,
}

impl Lag {
    fn new(group: &Arc<str>, topic: &Arc<str>) -> Self {
        let (group, topic) = (group.clone(), topic.clone());
        Self { group, topic, behind: 0, inflight: 0, ready: 0, behind_ms: 0, ready_ms: 0 }
    }

    /// Adds a queue. `age` says how old the message at an offset is.
    fn add(&mut self, queue: &QueueOffsets, bounds: QueueBounds, mut age: impl FnMut(u64) -> Option<u64>) {
        let mut oldest = |offset: i64| match after(bounds, offset) {
            0 => 0,
            _ => age(first(bounds, offset)).unwrap_or(0),
        };
        self.behind_ms = self.behind_ms.max(oldest(queue.committed));
        self.ready_ms = self.ready_ms.max(oldest(queue.pulled));
        let (behind, ready) = (after(bounds, queue.committed), after(bounds, queue.pulled));
        assert!(ready <= behind, "a group has pulled what it has committed: {queue:?} of {bounds:?}");
        self.behind += behind;
        self.ready += ready;
        self.inflight += behind.saturating_sub(ready);
    }
}

type Value = fn(&Lag) -> u64;

const SHOWN: [(Metric, Value); 5] = [
    (Metric::LagMessages, |lag| lag.behind),
    (Metric::LagLatency, |lag| lag.behind_ms),
    (Metric::InflightMessages, |lag| lag.inflight),
    (Metric::QueueingLatency, |lag| lag.ready_ms),
    (Metric::ReadyMessages, |lag| lag.ready),
];

pub(super) fn show(desk: &Desk, times: &mut StoredTimes, out: &mut Out<'_>) {
    if !out.shows(Metric::LagMessages) {
        return;
    }
    let (lags, retries, members) = read(desk, times);
    for (metric, value) in SHOWN {
        out.show(metric, |add| {
            for lag in &lags {
                let is_system = system::is_system_topic(&lag.topic) || system::is_system_group(&lag.group);
                let labels = [&*lag.group, &*lag.topic, "false", flag(is_system)];
                add(&labels, Sample::Count(value(lag)));
            }
        });
    }
    out.show(Metric::RetryLag, |add| {
        retries.iter().for_each(|(group, behind)| add(&[group], Sample::Count(*behind)));
    });
    out.show(Metric::GroupMembers, |add| {
        members.iter().for_each(|(group, count)| add(&[group], Sample::Count(*count as u64)));
    });
}

/// Members by group.
type Members = Vec<(Arc<str>, usize)>;
/// Messages that wait for their retry, by group.
type Retries = Vec<(Arc<str>, u64)>;

fn read(desk: &Desk, times: &mut StoredTimes) -> (Vec<Lag>, Retries, Members) {
    let until = Instant::now() + LOOK_UPS;
    let now_ms = desk.ground.store().now_ms();
    let (offsets, clients) = (desk.members.offsets().shared(), desk.members.clients());
    let mut ends: HashMap<Arc<str>, Vec<QueueBounds>> = HashMap::new();
    let (mut lags, mut retries) = (Vec::new(), Vec::new());
    let mut members: Members = clients.member_counts();
    let online: HashSet<Arc<str>> = members.iter().map(|(group, _)| group.clone()).collect();
    for group in offsets.groups() {
        // Offsets of the broker's own groups are its progress. A name with @ is not a group.
        if system::is_broker_group(group) || group.contains('@') {
            continue;
        }
        let is_online = online.contains(group);
        if !is_online {
            members.push((group.clone(), 0));
        }
        let subscribed = if is_online { clients.subscribed_topics(group) } else { None };
        for (topic, queues) in offsets.of(group) {
            let Some(config) = desk.ground.topics().get(topic) else { continue };
            let bounds = ends.entry(topic.clone()).or_insert_with(|| {
                (0..config.queues()).map(|queue| desk.ground.store().queue_bounds(topic, queue)).collect()
            });
            let queues =
                queues.iter().filter_map(|queue| Some((queue, *bounds.get(queue.queue_id as usize)?)));
            if topic.starts_with(system::RETRY_PREFIX) {
                let behind = queues.map(|(queue, bounds)| after(bounds, queue.committed)).sum();
                retries.push((group.clone(), behind));
            } else if subscribed.as_ref().is_none_or(|topics| topics.iter().any(|name| **name == **topic)) {
                let mut lag = Lag::new(group, topic);
                for (queue, bounds) in queues {
                    lag.add(queue, bounds, |offset| {
                        let at_ms = times.of(desk, (topic, queue.queue_id, offset), until)?;
                        Some(now_ms.saturating_sub(at_ms).max(0).unsigned_abs())
                    });
                }
                lags.push(lag);
            }
        }
    }
    times.known = std::mem::take(&mut times.used);
    (lags, retries, members)
}

/// The first message of a queue from an offset on.
fn first(bounds: QueueBounds, offset: i64) -> u64 {
    u64::try_from(offset).unwrap_or(0).max(bounds.min.get())
}

/// Messages of a queue from an offset on.
fn after(bounds: QueueBounds, offset: i64) -> u64 {
    bounds.max.get().saturating_sub(first(bounds, offset))
}

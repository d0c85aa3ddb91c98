//! Items of statistics under Apache's names, as VIEW_BROKER_STATS_DATA asks for them.
//!
//! # Source
//! docs/reference/protocol.md 2.6.4.

use std::time::{Duration, Instant};

use rocketpy_model::system;

use super::got::{DISK_NUMS, DISK_SIZE};
use super::queues::{LATENCY, NUMS, SIZE};
use super::windows::{Shown, Windows, Windows3};
use super::{Metric, Metrics};

/// Metrics with labels of which samples are taken.
const SAMPLED: [Metric; 2] = [Metric::SentBack, Metric::DeadLetters];

/// Counters without labels of which samples are taken.
const COUNTERS: [Metric; 12] = [
    Metric::MessagesIn,
    Metric::MessagesOut,
    Metric::DiskMessagesOut,
    Metric::DiskBytesOut,
    Metric::ConsumersRegistered,
    Metric::ConsumersRegisteredFor,
    Metric::ProducersRegistered,
    Metric::ProducersRegisteredFor,
    Metric::Connected,
    Metric::Disconnected,
    Metric::IdleDisconnected,
    Metric::FailedConnections,
];
/// Counts of the broker: the counters, then messages in and out without system topics.
const COUNTS: usize = COUNTERS.len() + 2;
const OF_CLIENTS_IN: usize = COUNTERS.len();
const OF_CLIENTS_OUT: usize = COUNTERS.len() + 1;

/// Windows of the broker itself.
pub(super) type OfBroker = Windows<COUNTS>;

/// The last member of the key of dead letters.
const TO_DLQ: &str = "SEND_BACK_TO_DLQ";

impl Metrics {
    pub(super) fn sample_items(&self, now: Instant, idle: Option<Duration>) {
        let tick = self.clock.tick(now, idle);
        self.sent.sample(&tick);
        self.sent.times().sample(now);
        self.got.sample(&tick);
        self.labelled.sample(&tick, &SAMPLED);
        self.broker.lock().sample(&tick, self.broker_counts());
    }

    fn broker_counts(&self) -> [u64; COUNTS] {
        let mut counts = [0; COUNTS];
        counts.iter_mut().zip(COUNTERS).for_each(|(count, metric)| *count = self.total(metric));
        counts[OF_CLIENTS_IN] = self.sent.to_clients_topics();
        counts[OF_CLIENTS_OUT] = self.got.of_clients_topics();
        counts
    }

    /// Message rate of a topic in the last minute.
    #[doc(alias = "topicPutTps")]
    pub(crate) fn put_rate(&self, now: Instant, topic: &str) -> f64 {
        let windows = self.sent.windows(topic, self.clock.at(now), NUMS);
        windows.map_or(0.0, |[minute, ..]| minute.rate)
    }

    /// Rate in the last minute of the messages that a group got from a topic.
    #[doc(alias = "consumeTps")]
    pub(crate) fn get_rate(&self, now: Instant, group: &str, topic: &str) -> f64 {
        let windows = self.got.windows(group, topic, self.clock.at(now), NUMS);
        windows.map_or(0.0, |[minute, ..]| minute.rate)
    }

    /// An item by Apache's name and key; `None` without one.
    #[doc(alias("BrokerStatsManager", "getStatsItem"))]
    pub(crate) fn item(&self, now: Instant, cluster: &str, name: &str, key: &str) -> Option<Windows3> {
        let now_ms = self.clock.at(now);
        let of_broker = |shown: Shown| match key == cluster {
            true => self.broker.lock().read(now_ms, self.broker_counts(), shown),
            false => None,
        };
        let counter = |metric: Metric| COUNTERS.iter().position(|other| *other == metric);
        let alone = |metric| of_broker(Shown::alone(counter(metric)?));
        let per = |value, times| of_broker(Shown::of(counter(value)?, counter(times)?));
        match name {
            "TOPIC_PUT_NUMS" => self.sent.windows(key, now_ms, NUMS),
            "TOPIC_PUT_SIZE" => self.sent.windows(key, now_ms, SIZE),
            "TOPIC_PUT_LATENCY" => {
                let (queue_id, topic) = key.split_once('@')?;
                self.sent.queue_windows(topic, queue_id.parse().ok()?, now_ms, LATENCY)
            }
            "QUEUE_PUT_NUMS" => self.queue_put(key, now_ms, NUMS),
            "QUEUE_PUT_SIZE" => self.queue_put(key, now_ms, SIZE),
            "QUEUE_GET_NUMS" => self.queue_get(key, now_ms, NUMS),
            "QUEUE_GET_SIZE" => self.queue_get(key, now_ms, SIZE),
            "GROUP_GET_NUMS" => self.group_get(key, now_ms, NUMS),
            "GROUP_GET_SIZE" => self.group_get(key, now_ms, SIZE),
            "GROUP_GET_FROM_DISK_NUMS" => self.group_get(key, now_ms, DISK_NUMS),
            "GROUP_GET_FROM_DISK_SIZE" => self.group_get(key, now_ms, DISK_SIZE),
            "GROUP_GET_LATENCY" => match key.split('@').collect::<Vec<_>>()[..] {
                [queue_id, topic, group] => {
                    let queue = (group, topic, queue_id.parse().ok()?);
                    self.got.queue_windows(queue, now_ms, LATENCY)
                }
                _ => self.group_get(key, now_ms, LATENCY),
            },
            "SNDBCK_PUT_NUMS" => {
                let (topic, group) = key.split_once('@')?;
                self.labelled_item(Metric::SentBack, group, topic, now_ms)
            }
            "SNDBCK2DLQ_TIMES" => match key.split('@').collect::<Vec<_>>()[..] {
                [_owner, topic, group, TO_DLQ] => {
                    self.labelled_item(Metric::DeadLetters, group, topic, now_ms)
                }
                _ => None,
            },
            "BROKER_PUT_NUMS" => alone(Metric::MessagesIn),
            "BROKER_GET_NUMS" => alone(Metric::MessagesOut),
            "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC" => of_broker(Shown::alone(OF_CLIENTS_IN)),
            "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC" => of_broker(Shown::alone(OF_CLIENTS_OUT)),
            "BROKER_GET_FROM_DISK_NUMS" => alone(Metric::DiskMessagesOut),
            "BROKER_GET_FROM_DISK_SIZE" => alone(Metric::DiskBytesOut),
            "CONSUMER_REGISTER_TIME" => per(Metric::ConsumersRegisteredFor, Metric::ConsumersRegistered),
            "PRODUCER_REGISTER_TIME" => per(Metric::ProducersRegisteredFor, Metric::ProducersRegistered),
            "CHANNEL_ACTIVITY" => self.channel_activity(key, now_ms),
            _ => None,
        }
    }

    fn queue_put(&self, key: &str, now_ms: i64, shown: Shown) -> Option<Windows3> {
        let (topic, queue_id) = key.split_once('@')?;
        self.sent.queue_windows(topic, queue_id.parse().ok()?, now_ms, shown)
    }

    fn queue_get(&self, key: &str, now_ms: i64, shown: Shown) -> Option<Windows3> {
        let [topic, queue_id, group] = key.split('@').collect::<Vec<_>>()[..] else { return None };
        self.got.queue_windows((group, topic, queue_id.parse().ok()?), now_ms, shown)
    }

    fn group_get(&self, key: &str, now_ms: i64, shown: Shown) -> Option<Windows3> {
        let (topic, group) = key.split_once('@')?;
        self.got.windows(group, topic, now_ms, shown)
    }

    fn labelled_item(&self, metric: Metric, group: &str, topic: &str, now_ms: i64) -> Option<Windows3> {
        let is_system = system::is_system_topic(topic) || system::is_system_group(group);
        let labels = [group, topic, if is_system { "true" } else { "false" }];
        self.labelled.windows(metric, &labels, now_ms)
    }

    fn channel_activity(&self, key: &str, now_ms: i64) -> Option<Windows3> {
        let metric = match key {
            "CONNECT" => Metric::Connected,
            "CLOSE" => Metric::Disconnected,
            "IDLE" => Metric::IdleDisconnected,
            "EXCEPTION" => Metric::FailedConnections,
            _ => return None,
        };
        let at = COUNTERS.iter().position(|other| *other == metric)?;
        self.broker.lock().read(now_ms, self.broker_counts(), Shown::of(at, at))
    }

    /// Queues for whose items there was no room, by the name of an item.
    pub(crate) fn cut_queues(&self) -> [(&'static str, u64); 2] {
        [("QUEUE_PUT_NUMS", self.sent.cut_queues()), ("QUEUE_GET_NUMS", self.got.cut_queues())]
    }
}

#[cfg(test)]
mod tests {
    use rocketpy_model::TopicConfig;

    use super::*;
    use crate::put::{Origin, put};
    use crate::testing::{TestBroker, add_topic, message};

    #[tokio::test]
    async fn item_that_is_idle_for_too_long_is_dropped() {
        let idle = Duration::from_secs(60);
        let broker = TestBroker::open(|config| config.metrics.idle = Some(idle));
        let (ground, start) = (&broker.ground, Instant::now());
        let sum = |now| {
            let item = ground.metrics().item(now, "", "TOPIC_PUT_NUMS", "orders");
            item.map(|[minute, ..]| minute.sum)
        };
        add_topic(&broker, TopicConfig::new("orders", 1)).await;
        put(&broker.intake, Origin::Client, &message("orders", "")).unwrap();
        for (seconds, expected) in [(10, Some(1)), (60, Some(1)), (80, None)] {
            let now = start + Duration::from_secs(seconds);
            ground.sample(now);
            assert_eq!(sum(now), expected, "after {seconds} s");
        }
    }
}

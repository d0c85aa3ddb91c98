//! Rows of all topics, groups and producers, and of those who read a topic.

use rocketpy_client::{Answers, CountRate as Counted, TrafficRate as Rate};
use rocketpy_model::QueueOffset;
use serde::Serialize;

use crate::answers::MissingBroker;
use crate::rows::{ProducerConnection, Queue, TopicBroker};

#[derive(Serialize)]
pub(crate) struct TopicConfig {
    name: String,
    brokers: Vec<TopicBroker>,
    is_system: bool,
}

impl From<rocketpy_client::TopicConfigs> for TopicConfig {
    fn from(topic: rocketpy_client::TopicConfigs) -> Self {
        let brokers = topic.brokers.into_iter().map(TopicBroker::from).collect();
        Self { name: topic.name, brokers, is_system: topic.is_system }
    }
}

#[derive(Serialize)]
pub(crate) struct GroupConfig {
    name: String,
    brokers: Vec<GroupBroker>,
}

#[derive(Serialize)]
struct GroupBroker {
    broker_name: String,
    address: String,
    enabled: bool,
    broadcast: bool,
    retries: i32,
    retry_queues: i32,
    notify_members: bool,
    ordered: bool,
    timeout_minutes: i32,
}

impl From<rocketpy_client::GroupConfigs> for GroupConfig {
    fn from(group: rocketpy_client::GroupConfigs) -> Self {
        let brokers = group.brokers.into_iter().map(|one| GroupBroker {
            broker_name: one.broker_name,
            address: one.address,
            enabled: one.config.consume_enable,
            broadcast: one.config.consume_broadcast_enable,
            retries: one.config.retry_max_times,
            retry_queues: one.config.retry_queues,
            notify_members: one.config.notify_consumer_ids_changed_enable,
            ordered: one.config.consume_message_orderly,
            timeout_minutes: one.config.consume_timeout_minute,
        });
        Self { brokers: brokers.collect(), name: group.name }
    }
}

#[derive(Serialize)]
pub(crate) struct ProducerGroup {
    name: String,
    members: Vec<ProducerConnection>,
}

impl From<rocketpy_client::ProducerGroup> for ProducerGroup {
    fn from(group: rocketpy_client::ProducerGroup) -> Self {
        Self { members: group.members.into_iter().map(ProducerConnection::from).collect(), name: group.name }
    }
}

#[derive(Serialize)]
pub(crate) struct MessageConsumer {
    group: String,
    committed_offset: Option<u64>,
    is_past: bool,
}

impl MessageConsumer {
    /// `offset`: that of the message.
    pub(crate) fn new(position: rocketpy_client::GroupPosition, offset: u64) -> Self {
        let committed_offset = position.committed_offset.map(QueueOffset::get);
        let is_past = committed_offset.is_some_and(|committed| committed > offset);
        Self { group: position.group, committed_offset, is_past }
    }
}

#[derive(Serialize)]
pub(crate) struct QueueDelay {
    queue: Queue,
    behind_seconds: f64,
    last_consumed_at_ms: Option<i64>,
    newest_at_ms: Option<i64>,
}

impl From<rocketpy_client::QueueDelay> for QueueDelay {
    fn from(row: rocketpy_client::QueueDelay) -> Self {
        Self {
            queue: Queue(row.queue),
            behind_seconds: row.behind_ms as f64 / 1000.0,
            last_consumed_at_ms: row.last_consumed_at_ms,
            newest_at_ms: row.newest_at_ms,
        }
    }
}

#[derive(Serialize)]
pub(crate) struct TrafficRate {
    messages: CountRate,
    bytes: CountRate,
    missing: Vec<MissingBroker>,
}

#[derive(Serialize)]
struct CountRate {
    per_second: f64,
    last_minute: u64,
    last_hour: u64,
    last_day: u64,
}

impl From<Counted> for CountRate {
    fn from(counted: Counted) -> Self {
        let Counted { per_second, last_minute, last_hour, last_day } = counted;
        Self { per_second, last_minute, last_hour, last_day }
    }
}

impl From<Answers<Rate>> for TrafficRate {
    fn from(rates: Answers<Rate>) -> Self {
        let missing = rates.missing.iter().map(MissingBroker::from).collect();
        let Rate { messages, bytes } = rates.found.into_iter().fold(Rate::default(), Rate::plus);
        Self { messages: messages.into(), bytes: bytes.into(), missing }
    }
}

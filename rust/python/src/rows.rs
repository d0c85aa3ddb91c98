//! Rows of answers: each struct becomes the dataclass of its name ([`crate::named`]), so its fields are those of the class.

use std::collections::BTreeMap;

use pyo3::FromPyObject;
use rocketpy_client::{
    BrokerContact as Contact, BrokerDescription, Connection, LagRow, QueueStats, TopicDescription,
};
use rocketpy_model::{Permission, QueueOffset};
use rocketpy_protocol::body::{self, HaRuntimeInfo};
use rocketpy_protocol::settings::{ConfigData, ConfigEntry, TakesEffect};
use rocketpy_store::reader::TopicSummary;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::answers::MissingBroker;

/// A queue, as `rocketpy.MessageQueue`.
pub(crate) struct Queue(pub(crate) rocketpy_model::MessageQueue);

impl Serialize for Queue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_struct("MessageQueue", 3)?;
        row.serialize_field("topic", &*self.0.topic)?;
        row.serialize_field("broker_name", &*self.0.broker_name)?;
        row.serialize_field("queue_id", &self.0.queue_id)?;
        row.end()
    }
}

#[derive(Serialize)]
pub(crate) struct TopicInfo {
    name: String,
    brokers: Vec<TopicBroker>,
    queues: Vec<QueueInfo>,
    put_rate: f64,
    missing: Vec<MissingBroker>,
}

#[derive(Serialize)]
pub(crate) struct TopicBroker {
    broker_name: String,
    cluster: String,
    addresses: BTreeMap<u64, String>,
    read_queues: u32,
    write_queues: u32,
    readable: bool,
    writable: bool,
    attributes: BTreeMap<String, String>,
}

#[derive(Serialize)]
pub(crate) struct QueueInfo {
    queue: Queue,
    min_offset: u64,
    max_offset: u64,
    last_stored_at_ms: Option<i64>,
}

impl From<TopicDescription> for TopicInfo {
    fn from(topic: TopicDescription) -> Self {
        let brokers = topic.brokers.into_iter().map(TopicBroker::from);
        Self {
            name: topic.name,
            brokers: brokers.collect(),
            queues: topic.queues.into_iter().map(QueueInfo::from).collect(),
            put_rate: topic.put_rate,
            missing: topic.missing.iter().map(MissingBroker::from).collect(),
        }
    }
}

impl From<rocketpy_client::TopicBroker> for TopicBroker {
    fn from(broker: rocketpy_client::TopicBroker) -> Self {
        let permission = Permission(broker.perm as i32);
        Self {
            broker_name: broker.broker_name,
            cluster: broker.cluster,
            addresses: broker.addresses,
            read_queues: broker.read_queues,
            write_queues: broker.write_queues,
            readable: permission.is_readable(),
            writable: permission.is_writable(),
            attributes: broker.attributes,
        }
    }
}

impl From<QueueStats> for QueueInfo {
    fn from(queue: QueueStats) -> Self {
        Self {
            queue: Queue(queue.queue),
            min_offset: queue.min_offset.get(),
            max_offset: queue.max_offset.get(),
            last_stored_at_ms: queue.last_stored_at_ms,
        }
    }
}

#[derive(Serialize)]
pub(crate) struct StoredTopic {
    name: String,
    queues: Vec<StoredQueue>,
}

#[derive(Serialize)]
struct StoredQueue {
    queue_id: u32,
    min_offset: u64,
    max_offset: u64,
}

impl From<TopicSummary> for StoredTopic {
    fn from(topic: TopicSummary) -> Self {
        let queues = topic.queues.into_iter().map(|(queue_id, bounds)| StoredQueue {
            queue_id,
            min_offset: bounds.min.get(),
            max_offset: bounds.max.get(),
        });
        Self { name: topic.topic.to_string(), queues: queues.collect() }
    }
}

/// Also an argument: a scan takes the parts that its caller chose.
#[derive(FromPyObject, Serialize)]
pub(crate) struct QueueRange {
    topic: String,
    queue_id: u32,
    start: u64,
    end: u64,
    estimated_bytes: u64,
}

impl QueueRange {
    pub(crate) fn into_range(self) -> rocketpy_store::reader::QueueRange {
        let Self { topic, queue_id, start, end, estimated_bytes } = self;
        let (start, end) = (QueueOffset(start), QueueOffset(end));
        rocketpy_store::reader::QueueRange { topic, queue_id, start, end, estimated_bytes }
    }
}

#[derive(Serialize)]
pub(crate) struct StoreRange {
    parts: Vec<QueueRange>,
}

impl From<rocketpy_scan::Slice> for StoreRange {
    fn from(slice: rocketpy_scan::Slice) -> Self {
        let parts = slice.ranges.into_iter().map(|range| QueueRange {
            topic: range.topic,
            queue_id: range.queue_id,
            start: range.start.get(),
            end: range.end.get(),
            estimated_bytes: range.estimated_bytes,
        });
        Self { parts: parts.collect() }
    }
}

#[derive(Serialize)]
pub(crate) struct LostRange {
    topic: String,
    queue_id: u32,
    start: u64,
    end: u64,
    reason: String,
}

impl From<&rocketpy_scan::LostRange> for LostRange {
    fn from(lost: &rocketpy_scan::LostRange) -> Self {
        Self {
            topic: lost.topic.to_string(),
            queue_id: lost.queue_id,
            start: lost.start.get(),
            end: lost.end.get(),
            reason: lost.reason.clone(),
        }
    }
}

#[derive(Serialize)]
pub(crate) struct GroupInfo {
    pub(crate) name: String,
    pub(crate) members: Vec<String>,
}

#[derive(Serialize)]
pub(crate) struct GroupMember {
    client_id: String,
    address: String,
    language: String,
    subscriptions: Option<BTreeMap<String, String>>,
    differs: bool,
    version: i32,
}

impl GroupMember {
    /// `differs`: whether it subscribes to something else than most members.
    pub(crate) fn new(member: rocketpy_client::GroupMember, differs: bool) -> Self {
        let rocketpy_client::GroupMember { client_id, address, language, version, subscriptions } = member;
        Self { client_id, address, language, subscriptions, differs, version }
    }
}

#[derive(Serialize)]
pub(crate) struct ProducerConnection {
    client_id: String,
    address: String,
    language: String,
    version: i32,
}

impl From<Connection> for ProducerConnection {
    fn from(connection: Connection) -> Self {
        let Connection { client_id, address, language, version } = connection;
        Self { client_id, address, language, version }
    }
}

#[derive(Serialize)]
pub(crate) struct QueueLag {
    queue: Queue,
    committed_offset: Option<u64>,
    max_offset: u64,
    lag: u64,
    last_consumed_at_ms: Option<i64>,
    held: u64,
}

impl From<LagRow> for QueueLag {
    fn from(row: LagRow) -> Self {
        Self {
            committed_offset: row.committed_offset.map(QueueOffset::get),
            max_offset: row.max_offset.get(),
            lag: row.lag(),
            last_consumed_at_ms: row.last_consumed_at_ms,
            held: row.held(),
            queue: Queue(row.queue),
        }
    }
}

#[derive(Serialize)]
pub(crate) struct BrokerInfo {
    broker_name: String,
    cluster: String,
    addresses: BTreeMap<u64, String>,
}

impl From<BrokerDescription> for BrokerInfo {
    fn from(broker: BrokerDescription) -> Self {
        let BrokerDescription { broker_name, cluster, addresses } = broker;
        Self { broker_name, cluster, addresses }
    }
}

/// A key of a running server.
#[derive(Serialize)]
pub(crate) struct ConfigValue {
    key: String,
    value: Option<ConfigData>,
    default: Option<ConfigData>,
    origin: String,
    source: Option<String>,
    live_value: Option<String>,
    can_set: bool,
    needs_restart: bool,
    is_used: bool,
}

impl From<ConfigEntry> for ConfigValue {
    fn from(entry: ConfigEntry) -> Self {
        Self {
            key: entry.key,
            value: entry.value,
            default: entry.default_value,
            origin: entry.origin,
            source: entry.source,
            live_value: entry.live,
            can_set: entry.takes_effect != TakesEffect::Never,
            needs_restart: entry.takes_effect != TakesEffect::AtOnce,
            is_used: entry.is_used,
        }
    }
}

#[derive(Serialize)]
pub(crate) struct HaStatus {
    is_master: bool,
    end: i64,
    slaves: Vec<SlaveInfo>,
    epochs: Vec<Epoch>,
    not_followed: Option<String>,
    refused_slaves: Vec<RefusedSlave>,
}

#[derive(Serialize)]
struct SlaveInfo {
    address: String,
    broker_id: Option<u64>,
    end: i64,
    lag_bytes: i64,
    lag_records: Option<i64>,
    lag_seconds: Option<f64>,
    is_near: bool,
    bytes_per_second: i64,
}

#[derive(Serialize)]
struct Epoch {
    id: String,
    start: i64,
}

#[derive(Serialize)]
struct RefusedSlave {
    address: String,
    broker_id: u64,
    why: String,
}

impl From<HaRuntimeInfo> for HaStatus {
    fn from(status: HaRuntimeInfo) -> Self {
        let slaves = status.ha_connection_info.into_iter().map(|slave| SlaveInfo {
            address: slave.addr,
            broker_id: slave.broker_id,
            end: slave.slave_ack_offset,
            lag_bytes: slave.diff,
            lag_records: slave.lag_records,
            lag_seconds: slave.lag_ms.map(|lag_ms| lag_ms as f64 / 1000.0),
            is_near: slave.in_sync,
            bytes_per_second: slave.transferred_byte_in_second,
        });
        let epochs = status.epochs.into_iter().map(|epoch| Epoch { id: epoch.id, start: epoch.start });
        let refused = status.refused_slaves.into_iter().map(|slave| RefusedSlave {
            address: slave.addr,
            broker_id: slave.broker_id,
            why: slave.why,
        });
        Self {
            is_master: status.master,
            end: status.master_commit_log_max_offset,
            slaves: slaves.collect(),
            epochs: epochs.collect(),
            not_followed: status.not_followed,
            refused_slaves: refused.collect(),
        }
    }
}

#[derive(Serialize)]
struct Quota {
    scope: String,
    name: String,
    send_messages: Option<u64>,
    send_bytes: Option<u64>,
    pull_messages: Option<u64>,
    pull_bytes: Option<u64>,
    connections: Option<u64>,
}

#[derive(Serialize)]
pub(crate) struct QuotaUse {
    quota: Quota,
    sent_messages_per_second: u64,
    sent_bytes_per_second: u64,
    pulled_messages_per_second: u64,
    pulled_bytes_per_second: u64,
    open_connections: u64,
    waiting: u64,
    throttled: u64,
    rejected: u64,
}

impl From<body::QuotaUse> for QuotaUse {
    fn from(used: body::QuotaUse) -> Self {
        let body::Quota { scope, name, send_messages, send_bytes, pull_messages, pull_bytes, connections } =
            used.quota;
        Self {
            quota: Quota { scope, name, send_messages, send_bytes, pull_messages, pull_bytes, connections },
            sent_messages_per_second: used.send_messages,
            sent_bytes_per_second: used.send_bytes,
            pulled_messages_per_second: used.pull_messages,
            pulled_bytes_per_second: used.pull_bytes,
            open_connections: used.connections,
            waiting: used.waiting,
            throttled: used.throttled,
            rejected: used.rejected,
        }
    }
}

#[derive(Serialize)]
pub(crate) struct ConsumerState {
    assigned: Vec<Queue>,
    brokers: Vec<BrokerContact>,
    denied: Option<String>,
}

#[derive(Serialize)]
struct BrokerContact {
    broker_name: String,
    unreachable_since_ms: Option<i64>,
    last_error: Option<String>,
}

impl From<rocketpy_client::ConsumerState> for ConsumerState {
    fn from(state: rocketpy_client::ConsumerState) -> Self {
        let brokers = state.brokers.into_iter().map(|Contact { broker_name, trouble }| {
            let (unreachable_since_ms, last_error) =
                trouble.map(|trouble| (trouble.since_ms, trouble.last.to_string())).unzip();
            BrokerContact { broker_name: broker_name.to_string(), unreachable_since_ms, last_error }
        });
        let denied = state.denied.map(|error| error.to_string());
        Self { assigned: state.assigned.into_iter().map(Queue).collect(), brokers: brokers.collect(), denied }
    }
}

#[derive(Serialize)]
pub(crate) struct OffsetMove {
    queue: Queue,
    from_offset: u64,
    to_offset: u64,
}

impl From<rocketpy_client::OffsetMove> for OffsetMove {
    fn from(one: rocketpy_client::OffsetMove) -> Self {
        Self { queue: Queue(one.queue), from_offset: one.from.get(), to_offset: one.to.get() }
    }
}

//! Arguments and results of administration.

use std::collections::BTreeMap;

use rocketpy_model::{MessageQueue, Permission, QueueOffset};

use super::MissingBroker;
use crate::error::ClientError;

/// A topic to create or change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSpec {
    /// The topic's name.
    pub name: String,
    /// Number of queues to read from, at each broker.
    pub read_queues: u32,
    /// Number of queues to send to, at each broker.
    pub write_queues: u32,
    /// Bits 4 read, 2 write. Default 6.
    pub perm: u32,
    /// Only at the brokers of this cluster. Default: all.
    pub cluster: Option<String>,
    /// Only at this broker. Default: all.
    pub broker: Option<String>,
    /// The topic's queues are fixed by an order configuration.
    pub order: bool,
    /// Attributes to set; one without a value is removed. Attributes that are not named do not change.
    pub attributes: BTreeMap<String, Option<String>>,
}

impl TopicSpec {
    /// A readable and writable topic with `queues` queues at every broker.
    pub fn new(name: impl Into<String>, queues: u32) -> Self {
        Self {
            name: name.into(),
            read_queues: queues,
            write_queues: queues,
            perm: Permission::READ_WRITE.bits().unsigned_abs(),
            cluster: None,
            broker: None,
            order: false,
            attributes: BTreeMap::new(),
        }
    }
}

/// A topic at one broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicBroker {
    pub broker_name: String,
    pub cluster: String,
    /// Address by broker id (0 is the master).
    pub addresses: BTreeMap<u64, String>,
    /// Number of queues to read from.
    pub read_queues: u32,
    /// Number of queues to send to.
    pub write_queues: u32,
    /// Bits 4 read, 2 write.
    pub perm: u32,
    /// The topic's attributes. Empty when the broker cannot be asked for them (Apache's before 5.0).
    pub attributes: BTreeMap<String, String>,
}

/// The contents of one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueStats {
    pub queue: MessageQueue,
    /// First offset that is still stored.
    pub min_offset: QueueOffset,
    /// End of the queue (exclusive).
    pub max_offset: QueueOffset,
    /// When the newest message was stored (milliseconds since 1970); `None` without messages.
    pub last_stored_at_ms: Option<i64>,
}

/// A topic at all its brokers.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicDescription {
    /// The topic's name.
    pub name: String,
    /// The topic at each broker, sorted by broker name.
    pub brokers: Vec<TopicBroker>,
    /// All queues, sorted.
    pub queues: Vec<QueueStats>,
    /// Messages stored per second, over the last minute, as the brokers report it; 0 where they do not.
    pub put_rate: f64,
    /// Brokers that did not answer; their queues are not in the list.
    pub missing: Vec<MissingBroker>,
}

/// The queues of a topic at the brokers that answered.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TopicTotals {
    /// The topic's name.
    pub name: String,
    /// The queues, by broker.
    pub queues: Vec<QueueStats>,
    /// Messages stored per second, over the last minute, as the brokers report it; 0 where they do not.
    pub put_rate: f64,
    /// Error of a broker for this topic, although it answered for others.
    pub error: Option<ClientError>,
}

/// A consumer group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSummary {
    /// The group's name.
    pub name: String,
    /// Client ids of the live members, sorted.
    pub members: Vec<String>,
}

/// A live member of a consumer group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMember {
    pub client_id: String,
    /// `ip:port` of its end of the connection.
    pub address: String,
    /// The language of its client.
    pub language: String,
    /// The version that its client announces, by Apache's numbers.
    pub version: i32,
    /// Tags by topic, without the group's retry topic. `None` where the broker does not tell it: Apache's.
    pub subscriptions: Option<BTreeMap<String, String>>,
}

/// A live member of a producer group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Connection {
    pub client_id: String,
    /// `ip:port` of its end of the connection.
    pub address: String,
    /// The language of its client.
    pub language: String,
    /// The version that its client announces, by Apache's numbers.
    pub version: i32,
}

/// A consumer group with its live members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupDescription {
    /// The group's name.
    pub name: String,
    /// The live members, sorted by client id.
    pub members: Vec<GroupMember>,
}

/// A group's progress in one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LagRow {
    pub queue: MessageQueue,
    /// End of the queue (exclusive).
    pub max_offset: QueueOffset,
    /// Next offset to read, as the broker has it stored; `None` when the group committed nothing.
    pub committed_offset: Option<QueueOffset>,
    /// Where the live members have pulled to; not before what is committed, and the same without live members.
    pub pulled_offset: QueueOffset,
    /// Store time of the last consumed message (milliseconds since 1970); `None` when there is none.
    pub last_consumed_at_ms: Option<i64>,
}

impl LagRow {
    /// Messages after the stored commit.
    pub fn lag(&self) -> u64 {
        self.max_offset.get().saturating_sub(self.committed())
    }

    /// Messages after the stored commit that live members have pulled.
    pub fn held(&self) -> u64 {
        self.pulled_offset.get().saturating_sub(self.committed())
    }

    fn committed(&self) -> u64 {
        self.committed_offset.map_or(0, QueueOffset::get)
    }
}

/// A group's progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupLag {
    /// The group's name.
    pub group: String,
    /// One row per queue, sorted.
    pub rows: Vec<LagRow>,
}

impl GroupLag {
    /// Messages after the stored commits, all queues together.
    pub fn lag(&self) -> u64 {
        self.rows.iter().map(LagRow::lag).sum()
    }
}

/// Where `reset_offsets` puts a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetTarget {
    /// The oldest stored message.
    Earliest,
    /// After the newest message.
    Latest,
    /// The first message stored at or after this time (milliseconds since 1970).
    Timestamp(i64),
}

/// A broker and its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerDescription {
    pub broker_name: String,
    pub cluster: String,
    /// Address by broker id (0 is the master).
    pub addresses: BTreeMap<u64, String>,
}

/// The brokers that a name server knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterDescription {
    /// All brokers, sorted by broker name.
    pub brokers: Vec<BrokerDescription>,
}

//! Topics, groups, offsets and clusters.

use std::collections::BTreeMap;

use bytes::Bytes;
use rocketpy_model::{MessageQueue, QueueOffset};

use crate::{client::Client, error::ClientError};

/// A topic to create or change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSpec {
    pub name: String,
    pub read_queues: u32,
    pub write_queues: u32,
    /// Bits 4 read, 2 write. Default 6.
    pub perm: u32,
    /// Only at the brokers of this cluster. Default: all.
    pub cluster: Option<String>,
    /// Only at this broker. Default: all.
    pub broker: Option<String>,
    pub order: bool,
}

impl TopicSpec {
    pub fn new(name: impl Into<String>, queues: u32) -> Self {
        let name = name.into();
        Self { name, read_queues: queues, write_queues: queues, perm: 6, cluster: None, broker: None, order: false }
    }
}

/// A topic's part at one broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicBroker {
    pub broker_name: String,
    pub cluster: String,
    /// Address by broker id (0 is the master).
    pub addresses: BTreeMap<u64, String>,
    pub read_queues: u32,
    pub write_queues: u32,
    pub perm: u32,
}

/// What one queue holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueStats {
    pub queue: MessageQueue,
    pub min_offset: QueueOffset,
    pub max_offset: QueueOffset,
    /// When the newest message was stored (milliseconds since 1970); `None` without messages.
    pub last_stored_at_ms: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicDescription {
    pub name: String,
    pub brokers: Vec<TopicBroker>,
    pub queues: Vec<QueueStats>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSummary {
    pub name: String,
    /// Client ids of the live members, sorted.
    pub members: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LagRow {
    pub queue: MessageQueue,
    /// End of the queue (exclusive).
    pub max_offset: QueueOffset,
    /// Next offset to read; 0 when the group committed nothing.
    pub committed_offset: QueueOffset,
    /// Store time of the last consumed message, `None` when there is none.
    pub last_consumed_at_ms: Option<i64>,
}

impl LagRow {
    /// Messages not consumed yet.
    pub fn lag(&self) -> u64 {
        self.max_offset.get().saturating_sub(self.committed_offset.get())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupLag {
    pub group: String,
    pub rows: Vec<LagRow>,
}

/// Where `reset_offsets` puts a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetTarget {
    Earliest,
    Latest,
    Timestamp(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerDescription {
    pub broker_name: String,
    pub cluster: String,
    pub addresses: BTreeMap<u64, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterDescription {
    pub brokers: Vec<BrokerDescription>,
}

/// Administration of a cluster. Clones share one client.
#[derive(Clone)]
#[doc(alias = "DefaultMQAdminExt")]
pub struct Admin {
    client: Client,
}

impl Admin {
    pub fn new(client: &Client) -> Self {
        Self { client: client.clone() }
    }
    pub fn client(&self) -> &Client {
        &self.client
    }
    /// Creates a topic, or changes it, at every master that the spec names, and waits until its route is known.
    pub async fn create_topic(&self, _spec: &TopicSpec) -> Result<(), ClientError> {
        unimplemented!()
    }
    pub async fn delete_topic(&self, _topic: &str) -> Result<(), ClientError> {
        unimplemented!()
    }
    /// Names of all topics, sorted, system topics too.
    pub async fn topics(&self) -> Result<Vec<String>, ClientError> {
        unimplemented!()
    }
    pub async fn describe_topic(&self, _topic: &str) -> Result<TopicDescription, ClientError> {
        unimplemented!()
    }
    pub async fn groups(&self) -> Result<Vec<GroupSummary>, ClientError> {
        unimplemented!()
    }
    pub async fn delete_group(&self, _group: &str) -> Result<(), ClientError> {
        unimplemented!()
    }
    /// Lag per queue; of one topic, or of all that the group has offsets for.
    pub async fn group_lag(&self, _group: &str, _topic: Option<&str>) -> Result<GroupLag, ClientError> {
        unimplemented!()
    }
    /// Client ids of the live members, sorted.
    pub async fn group_members(&self, _group: &str) -> Result<Vec<String>, ClientError> {
        unimplemented!()
    }
    /// Stores new offsets for a group. Refuses ([`ClientError::GroupActive`]) while members live, unless `force`.
    pub async fn reset_offsets(
        &self,
        _group: &str,
        _topic: &str,
        _target: OffsetTarget,
        _force: bool,
    ) -> Result<Vec<(MessageQueue, QueueOffset)>, ClientError> {
        unimplemented!()
    }
    pub async fn min_offset(&self, _queue: &MessageQueue) -> Result<QueueOffset, ClientError> {
        unimplemented!()
    }
    pub async fn max_offset(&self, _queue: &MessageQueue) -> Result<QueueOffset, ClientError> {
        unimplemented!()
    }
    /// First offset stored at or after the time.
    pub async fn search_offset(&self, _queue: &MessageQueue, _at_ms: i64) -> Result<QueueOffset, ClientError> {
        unimplemented!()
    }
    pub async fn earliest_stored_at(&self, _queue: &MessageQueue) -> Result<Option<i64>, ClientError> {
        unimplemented!()
    }
    pub async fn committed_offset(
        &self,
        _group: &str,
        _queue: &MessageQueue,
    ) -> Result<Option<QueueOffset>, ClientError> {
        unimplemented!()
    }
    /// Readable queues of a topic, sorted.
    pub async fn queues(&self, _topic: &str) -> Result<Vec<MessageQueue>, ClientError> {
        unimplemented!()
    }
    /// The stored record that an offset message id names (parse it with `RecordView`).
    pub async fn view_message(&self, _offset_msg_id: &str) -> Result<Bytes, ClientError> {
        unimplemented!()
    }
    pub async fn cluster(&self) -> Result<ClusterDescription, ClientError> {
        unimplemented!()
    }
}

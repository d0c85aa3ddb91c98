//! Routes and clusters: what name servers tell about brokers.

use std::collections::BTreeMap;

use rocketpy_model::{Permission, system};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

/// The queues of a topic on one broker, as clients see them.
///
/// `topicSysFlag` is also written as `topicSynFlag`, which Go and older Java clients look for.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueData {
    /// The broker.
    pub broker_name: String,
    /// Queues that may be read.
    #[serde(rename = "readQueueNums")]
    pub read_queues: u32,
    /// Queues that may be written.
    #[serde(rename = "writeQueueNums")]
    pub write_queues: u32,
    /// Permission bits ([`rocketpy_model::perm`]).
    pub perm: i32,
    /// Bit 0: unit topic; bit 1: has a unit subscription.
    #[serde(rename = "topicSysFlag")]
    pub sys_flag: i32,
}

impl QueueData {
    /// The permission bits, typed.
    #[must_use]
    pub const fn permission(&self) -> Permission {
        Permission(self.perm)
    }
}

impl Serialize for QueueData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("QueueData", 6)?;
        object.serialize_field("brokerName", &self.broker_name)?;
        object.serialize_field("perm", &self.perm)?;
        object.serialize_field("readQueueNums", &self.read_queues)?;
        object.serialize_field("topicSynFlag", &self.sys_flag)?;
        object.serialize_field("topicSysFlag", &self.sys_flag)?;
        object.serialize_field("writeQueueNums", &self.write_queues)?;
        object.end()
    }
}

/// The addresses of one broker name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerData {
    /// Broker id to `host:port`. Clients cut this object's text apart, so it must be there and without spaces.
    pub broker_addrs: BTreeMap<u64, String>,
    /// Name that master and slaves share.
    pub broker_name: String,
    /// Cluster of the broker.
    pub cluster: String,
    /// Whether a slave may stand in for a master that is gone.
    pub enable_acting_master: bool,
    /// Zone of the broker, for name server proxies.
    pub zone_name: Option<String>,
}

impl BrokerData {
    /// The address of the master.
    #[must_use]
    pub fn master_address(&self) -> Option<&str> {
        self.broker_addrs.get(&system::MASTER_ID).map(String::as_str)
    }

    /// The master's address, else that of the lowest id.
    #[must_use]
    pub fn any_address(&self) -> Option<&str> {
        self.broker_addrs.values().next().map(String::as_str)
    }
}

/// Where the queues of a topic are (answer of code 105).
///
/// # Source
/// docs/reference/protocol.md 2.1.1.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicRouteData {
    /// One entry for each broker name.
    pub broker_datas: Vec<BrokerData>,
    /// Filter servers by broker address: 4.x only.
    pub filter_server_table: BTreeMap<String, Vec<String>>,
    /// Queue counts of an ordered topic, as `broker-a:4;broker-b:8`.
    pub order_topic_conf: Option<String>,
    /// One entry for each broker name.
    pub queue_datas: Vec<QueueData>,
}

/// All brokers and clusters that a name server knows (answer of code 106).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterInfo {
    /// Broker name to its addresses.
    pub broker_addr_table: BTreeMap<String, BrokerData>,
    /// Cluster name to its broker names.
    pub cluster_addr_table: BTreeMap<String, Vec<String>>,
}

/// The brokers of one name (inside the answer of code 901).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerMemberGroup {
    /// Broker id to `host:port`.
    pub broker_addrs: BTreeMap<u64, String>,
    /// Name that they share.
    pub broker_name: String,
    /// Their cluster.
    pub cluster: String,
}

/// The answer of code 901.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GetBrokerMemberGroupResponseBody {
    /// The brokers.
    pub broker_member_group: BrokerMemberGroup,
}

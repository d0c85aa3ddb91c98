//! Topics, groups, offsets and clusters.

mod access;
mod config;
mod figures;
mod gather;
mod group;
mod inventory;
mod lag;
mod member;
mod message;
mod place;
mod progress;
mod quota;
mod readers;
mod requests;
mod running;
mod topic;
mod types;
mod upkeep;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use rocketpy_filter::TagFilter;
use rocketpy_model::{MessageQueue, QueueOffset};
use rocketpy_protocol::body::{BrokerData, ClusterInfo, HaRuntimeInfo};
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_protocol::record::RecordView;

pub use self::figures::BrokerFigures;
pub use self::gather::{Answers, MissingBroker};
pub use self::inventory::{GroupConfigs, GroupSettings, ProducerGroup, TopicConfigs};
pub use self::message::FoundMessage;
pub use self::progress::GroupProgress;
pub use self::readers::{CountRate, GroupPosition, QueueDelay, TrafficRate};
pub use self::running::RunningMember;
pub use self::types::{
    BrokerDescription, ClusterDescription, Connection, GroupDescription, GroupLag, GroupMember, GroupSummary,
    LagRow, OffsetTarget, QueueStats, TopicBroker, TopicDescription, TopicSpec, TopicTotals,
};
pub use self::upkeep::{GroupAtBroker, UnusedOffsets};
use crate::client::Client;
use crate::consumer::{PulledPart, RangeReader};
use crate::error::ClientError;
use crate::wire::WantedRole;
use crate::{damage, outcome, wire};

/// Least time for a change of a role, before which a master waits for its slaves, and a slave asks other brokers.
const ROLE_CHANGE_TIMEOUT: Duration = Duration::from_secs(30);

/// Administration of a cluster. Clones share one client.
///
/// It joins no group and sends no heartbeats.
#[derive(Debug, Clone)]
#[doc(alias = "DefaultMQAdminExt")]
pub struct Admin {
    client: Client,
    answered: gather::LastAnswers,
}

impl Admin {
    /// Administration over a client's connections.
    pub fn new(client: &Client) -> Self {
        Self { client: client.clone(), answered: gather::LastAnswers::default() }
    }

    /// The client whose connections it uses.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The brokers that the name servers know.
    ///
    /// # Errors
    /// Those of reaching a name server.
    pub async fn cluster(&self) -> Result<ClusterDescription, ClientError> {
        self.client.check()?;
        Ok(description(self.client.api().cluster_info().await?))
    }

    /// The brokers that one name server knows. Others may know more.
    ///
    /// # Errors
    /// Those of reaching it.
    pub async fn cluster_at(&self, name_server: &str) -> Result<ClusterDescription, ClientError> {
        self.client.check()?;
        Ok(description(self.client.api().cluster_info_at(name_server).await?))
    }

    /// The figures of the broker at an address, by Apache's names, as text.
    ///
    /// # Source
    /// docs/reference/protocol.md 2.6.4.
    ///
    /// # Errors
    /// Those of reaching the broker.
    #[doc(alias = "fetchBrokerRuntimeStats")]
    pub async fn broker_figures(&self, address: &str) -> Result<BTreeMap<String, String>, ClientError> {
        let address = &self.address_of(address, false).await?;
        self.client.api().figures_at(address).await
    }

    /// The first messages of a part of a queue, and where the rest begins; `None` for an empty part.
    ///
    /// # Errors
    /// As [`RangeReader::next`].
    pub async fn read(
        &self,
        queue: MessageQueue,
        from: QueueOffset,
        to: QueueOffset,
    ) -> Result<Option<(PulledPart, QueueOffset)>, ClientError> {
        RangeReader::new(&self.client, queue, from, to, TagFilter::EVERYTHING).await?.first().await
    }

    /// The first messages of a part of a queue, and where the rest begins, waiting for them at most as long as given; `None`: none came.
    ///
    /// # Errors
    /// As [`RangeReader::next`].
    pub async fn read_within(
        &self,
        queue: MessageQueue,
        from: QueueOffset,
        to: QueueOffset,
        wait: Duration,
    ) -> Result<Option<(PulledPart, QueueOffset)>, ClientError> {
        RangeReader::new(&self.client, queue, from, to, TagFilter::EVERYTHING).await?.first_within(wait).await
    }

    /// The slaves of the broker at an address, and how far their logs reach.
    ///
    /// # Source
    /// docs/reference/protocol.md 2.6.4.
    ///
    /// # Errors
    /// Those of reaching the broker; that of one that does not know the request.
    #[doc(alias = "getBrokerHAStatus")]
    pub async fn ha_status(&self, address: &str) -> Result<HaRuntimeInfo, ClientError> {
        const OPERATION: &str = "replication query";
        let address = &self.address_of(address, false).await?;
        let answer = self.client.api().call_ok(address, OPERATION, wire::ha_status()).await?;
        wire::json(OPERATION, address, &answer.body)
    }

    /// Makes a slave the master (`ASYNC_MASTER`, `SYNC_MASTER`), or a master a `SLAVE`, with an id of its own or the smallest free one. It has
    /// begun when this returns; [`Self::ha_status`] says the role. With `force` it is not asked whether another master answers, or whether
    /// a slave has all.
    ///
    /// # Errors
    /// It may not: a master answers, no slave has the whole log, it has that role already, or the command comes from another machine
    /// without the `token` of the broker's `haTokenFile`. Those of reaching the broker.
    pub async fn change_role(
        &self,
        address: &str,
        wanted: WantedRole<'_>,
        token: Option<&str>,
    ) -> Result<(), ClientError> {
        const OPERATION: &str = "role change";
        let address = &self.address_of(address, wanted.role != "SLAVE").await?;
        let (mut asked, api) = (wire::change_role(wanted), self.client.api());
        if let Some(token) = token {
            let status = api.call_ok(address, OPERATION, wire::ha_status()).await?;
            wire::prove_role_change(&mut asked, wanted, token, &status);
        }
        let api = api.with_timeout(api.timeout().max(ROLE_CHANGE_TIMEOUT));
        api.call_ok(address, OPERATION, asked).await.map(drop)
    }

    /// The masters of a cluster, or of all: at least one.
    ///
    /// # Errors
    /// [`ClientError::NoBrokers`], [`ClientError::ClusterNotFound`], [`ClientError::BrokerNotFound`] when there are only slaves;
    /// those of reaching a name server.
    async fn masters(&self, cluster: Option<&str>) -> Result<Vec<(BrokerData, String)>, ClientError> {
        self.client.check()?;
        let info = self.client.api().known_brokers().await?;
        if let Some(cluster) = cluster
            && !info.cluster_addr_table.contains_key(cluster)
        {
            return Err(ClientError::ClusterNotFound { cluster: cluster.to_owned() });
        }
        let brokers = info.broker_addr_table.into_values();
        let wanted = brokers.filter(|broker| cluster.is_none_or(|cluster| broker.cluster == cluster));
        let masters: Vec<_> = wanted
            .filter_map(|broker| {
                let address = broker.master_address()?.to_owned();
                Some((broker, address))
            })
            .collect();
        if masters.is_empty() {
            return Err(ClientError::BrokerNotFound { broker_name: "(any master)".to_owned() });
        }
        Ok(masters)
    }

    /// First offset that is still stored.
    ///
    /// # Errors
    /// Those of reaching the queue's broker.
    pub async fn min_offset(&self, queue: &MessageQueue) -> Result<QueueOffset, ClientError> {
        self.client.check()?;
        self.client.api().min_offset(queue).await
    }

    /// Offset after the last message that can be read.
    ///
    /// # Errors
    /// Those of reaching the queue's broker.
    pub async fn max_offset(&self, queue: &MessageQueue) -> Result<QueueOffset, ClientError> {
        self.client.check()?;
        self.client.api().max_offset(queue).await
    }

    /// Offset that the next message will get, even while earlier ones cannot be read yet. An Apache broker answers the same as to
    /// [`Admin::max_offset`].
    ///
    /// # Errors
    /// Those of reaching the queue's broker.
    pub async fn next_offset(&self, queue: &MessageQueue) -> Result<QueueOffset, ClientError> {
        self.client.check()?;
        self.client.api().next_offset(queue).await
    }

    /// First offset stored at or after a time (milliseconds since 1970); the end of the queue when there is none.
    ///
    /// # Errors
    /// Those of reaching the queue's broker.
    pub async fn search_offset(&self, queue: &MessageQueue, at_ms: i64) -> Result<QueueOffset, ClientError> {
        self.client.check()?;
        self.client.api().search_offset(queue, at_ms).await
    }

    /// When the oldest message was stored (milliseconds since 1970); `None` for an empty queue.
    ///
    /// # Errors
    /// Those of reaching the queue's broker.
    pub async fn earliest_stored_at(&self, queue: &MessageQueue) -> Result<Option<i64>, ClientError> {
        self.client.check()?;
        self.client.api().earliest_stored_at(queue).await
    }

    /// The offset stored for a group.
    ///
    /// # Errors
    /// Those of reaching the queue's broker.
    pub async fn committed_offset(
        &self,
        group: &str,
        queue: &MessageQueue,
    ) -> Result<Option<QueueOffset>, ClientError> {
        self.client.check()?;
        self.client.api().stored_offset(group, queue).await
    }

    /// The stored record with an offset message id; parse it with [`RecordView`].
    ///
    /// Requests the record from the broker whose address is in the id, if it is one of the cluster's: an id must not make the client connect
    /// anywhere else.
    ///
    /// # Errors
    /// [`ClientError::InvalidMessageId`], [`ClientError::ForeignMessageId`]; [`ClientError::Refused`] when no record begins there; those of reaching
    /// name server and broker.
    pub async fn view_message(&self, offset_msg_id: &str) -> Result<Bytes, ClientError> {
        const OPERATION: &str = "message query";
        self.client.check()?;
        let api = self.client.api();
        let invalid = |_| ClientError::InvalidMessageId { id: offset_msg_id.to_owned() };
        let id: OffsetMessageId = offset_msg_id.parse().map_err(invalid)?;
        let address = id.host.to_string();
        let cluster = api.known_brokers().await?;
        if !cluster
            .broker_addr_table
            .values()
            .flat_map(|one| one.broker_addrs.values())
            .any(|one| *one == address)
        {
            return Err(ClientError::ForeignMessageId { id: offset_msg_id.to_owned(), address });
        }
        let request = wire::view_message(id.physical_offset.to_wire());
        let answer = api.call_ok(&address, OPERATION, request).await?;
        let view = RecordView::parse(&answer.body)
            .map_err(|error| outcome::bad_answer(OPERATION, &address, error))?;
        damage::check(&view, &address)?;
        Ok(answer.body)
    }
}

fn description(info: ClusterInfo) -> ClusterDescription {
    let brokers = info.broker_addr_table.into_values().map(|broker| BrokerDescription {
        broker_name: broker.broker_name,
        cluster: broker.cluster,
        addresses: broker.broker_addrs,
    });
    ClusterDescription { brokers: brokers.collect() }
}

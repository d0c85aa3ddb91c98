//! Administration: plain values, of which `rocketpy.admin` makes dataclasses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rocketpy_client::{
    Admin, Client, ClientError, FoundMessage, GroupMember, MessageQuery, OffsetTarget, QueryKind, QueueStats,
    Start, TopicSpec,
};
use rocketpy_model::{MessageQueue, Permission, QueueOffset};
use rocketpy_protocol::record::RecordView;
use tokio::runtime::Handle;

use crate::client::connect;
use crate::convert::ToPython;
use crate::error::{self, raise};
use crate::number::within;
use crate::options::Options;
use crate::process::Owned;
use crate::queue::{self, QueueArgument};
use crate::received::{Origin, ReceivedMessage, instant};
use crate::start::StartArgument;
use crate::wait::wait;

/// Topics, groups, offsets and clusters.
#[pyclass(name = "Admin", module = "rocketpy._rocketpy", frozen)]
pub(crate) struct PyAdmin {
    running: Owned<Running>,
}

struct Running {
    admin: Admin,
    client: Client,
    runtime: Handle,
}

impl Drop for Running {
    fn drop(&mut self) {
        let client = self.client.clone();
        self.runtime.spawn(async move { client.close().await });
    }
}

impl Running {
    /// Waits for a call.
    fn wait<T, F>(&self, py: Python<'_>, call: F) -> PyResult<T>
    where
        T: Send,
        F: Future<Output = Result<T, ClientError>> + Send,
    {
        wait(py, &self.runtime, call)?.map_err(raise)
    }
}

/// Broker name, cluster, addresses by broker id, read and write queues, readable, writable.
type TopicBroker = (String, String, BTreeMap<u64, String>, u32, u32, bool, bool, BTreeMap<String, String>);
/// Client id, address, language, tags by topic, whether these differ from those of most members.
type MemberRow = (String, String, String, Option<BTreeMap<String, String>>, bool);
/// Broker name, cluster, addresses by broker id.
/// How far a slave is behind: bytes, records, milliseconds.
type Lag = (i64, Option<i64>, Option<i64>);
/// Whether it is a master, where its log ends; of each slave its address, its broker id, where its log ends, its lag, whether that is near,
/// and bytes a second; id and start of the epochs; why a slave does not follow; of each slave that gets nothing its address, its broker id and why.
type HaStatus = (
    bool,
    i64,
    Vec<(String, Option<u64>, i64, Lag, bool, i64)>,
    Vec<(String, i64)>,
    Option<String>,
    Vec<(String, u64, String)>,
);

type BrokerRow = (String, String, BTreeMap<u64, String>);
/// Queue, smallest and largest offset, time of the newest message.
type QueueRow<'py> = (Bound<'py, PyAny>, u64, u64, Option<SystemTime>);
/// Queue, committed and largest offset, messages between, time of the last consumed message, messages that members hold.
type LagRow<'py> = (Bound<'py, PyAny>, Option<u64>, u64, u64, Option<SystemTime>, u64);

#[pymethods]
impl PyAdmin {
    #[new]
    #[pyo3(signature = (name_servers, **options))]
    fn new(py: Python<'_>, name_servers: Vec<String>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let options = Options::new("Admin", options);
        let (client, runtime) = connect(py, name_servers, options)?;
        let admin = Admin::new(&client);
        Ok(Self { running: Owned::new(Running { admin, client, runtime }) })
    }

    #[expect(clippy::too_many_arguments, reason = "called by one Python function, which names them")]
    fn create_topic(
        &self,
        py: Python<'_>,
        topic: &str,
        read_queues: &Bound<'_, PyAny>,
        write_queues: &Bound<'_, PyAny>,
        perm: u32,
        cluster: Option<String>,
        broker: Option<String>,
        attributes: BTreeMap<String, Option<String>>,
    ) -> PyResult<()> {
        let (read_queues, write_queues) = (queue_count(read_queues)?, queue_count(write_queues)?);
        let spec = TopicSpec {
            read_queues,
            write_queues,
            perm,
            cluster,
            broker,
            attributes,
            ..TopicSpec::new(topic, read_queues)
        };
        let running = self.running.get()?;
        running.wait(py, running.admin.create_topic(&spec))
    }

    fn delete_topic(&self, py: Python<'_>, topic: &str) -> PyResult<()> {
        let running = self.running.get()?;
        running.wait(py, running.admin.delete_topic(topic))
    }

    fn topics(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let running = self.running.get()?;
        running.wait(py, running.admin.topics())
    }

    fn describe_topic<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
    ) -> PyResult<(Vec<TopicBroker>, Vec<QueueRow<'py>>)> {
        let running = self.running.get()?;
        let topic = running.wait(py, running.admin.describe_topic(topic))?;
        let queues = topic.queues.iter().map(|row| queue_row(py, row)).collect::<PyResult<_>>()?;
        Ok((topic.brokers.into_iter().map(topic_broker).collect(), queues))
    }

    fn queues<'py>(&self, py: Python<'py>, topic: &str) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let running = self.running.get()?;
        let queues = running.wait(py, running.admin.queues(topic))?;
        queues.iter().map(|queue| queue.to_python(py)).collect()
    }

    fn groups(&self, py: Python<'_>) -> PyResult<Vec<(String, Vec<String>)>> {
        let running = self.running.get()?;
        let groups = running.wait(py, running.admin.groups())?;
        Ok(groups.into_iter().map(|group| (group.name, group.members)).collect())
    }

    #[pyo3(signature = (group, topic=None))]
    fn group_lag<'py>(
        &self,
        py: Python<'py>,
        group: &str,
        topic: Option<&str>,
    ) -> PyResult<Vec<LagRow<'py>>> {
        let running = self.running.get()?;
        let lag = running.wait(py, running.admin.group_lag(group, topic))?;
        lag.rows.iter().map(|row| lag_row(py, row)).collect()
    }

    fn group_members(&self, py: Python<'_>, group: &str) -> PyResult<Vec<String>> {
        let running = self.running.get()?;
        running.wait(py, running.admin.group_members(group))
    }

    fn describe_group(&self, py: Python<'_>, group: &str) -> PyResult<Vec<MemberRow>> {
        let running = self.running.get()?;
        let described = running.wait(py, running.admin.describe_group(group))?;
        let row = |member: &GroupMember| {
            let GroupMember { client_id, address, language, subscriptions } = member.clone();
            (client_id, address, language, subscriptions, described.differs(member))
        };
        Ok(described.members.iter().map(row).collect())
    }

    fn create_group(&self, py: Python<'_>, group: &str) -> PyResult<()> {
        let running = self.running.get()?;
        running.wait(py, running.admin.create_group(group))
    }

    fn delete_group(&self, py: Python<'_>, group: &str) -> PyResult<()> {
        let running = self.running.get()?;
        running.wait(py, running.admin.delete_group(group))
    }

    fn reset_offsets<'py>(
        &self,
        py: Python<'py>,
        group: &str,
        topic: &str,
        to: StartArgument,
        force: bool,
    ) -> PyResult<Vec<(Bound<'py, PyAny>, u64)>> {
        let target = match to.0 {
            Start::Earliest => OffsetTarget::Earliest,
            Start::Latest => OffsetTarget::Latest,
            Start::Timestamp(at_ms) => OffsetTarget::Timestamp(at_ms),
            Start::Stored => {
                return Err(error::invalid("offsets are reset to the earliest, the latest or a time"));
            }
        };
        let running = self.running.get()?;
        let offsets = running.wait(py, running.admin.reset_offsets(group, topic, target, force))?;
        queue::offsets(py, &offsets)
    }

    fn min_offset(&self, py: Python<'_>, queue: QueueArgument) -> PyResult<u64> {
        let running = self.running.get()?;
        running.wait(py, running.admin.min_offset(&queue.0)).map(QueueOffset::get)
    }

    fn max_offset(&self, py: Python<'_>, queue: QueueArgument) -> PyResult<u64> {
        let running = self.running.get()?;
        running.wait(py, running.admin.max_offset(&queue.0)).map(QueueOffset::get)
    }

    fn next_offset(&self, py: Python<'_>, queue: QueueArgument) -> PyResult<u64> {
        let running = self.running.get()?;
        running.wait(py, running.admin.next_offset(&queue.0)).map(QueueOffset::get)
    }

    fn search_offset(&self, py: Python<'_>, queue: QueueArgument, at_ms: i64) -> PyResult<u64> {
        let running = self.running.get()?;
        running.wait(py, running.admin.search_offset(&queue.0, at_ms)).map(QueueOffset::get)
    }

    fn committed_offset(&self, py: Python<'_>, group: &str, queue: QueueArgument) -> PyResult<Option<u64>> {
        let running = self.running.get()?;
        let stored = running.wait(py, running.admin.committed_offset(group, &queue.0))?;
        Ok(stored.map(QueueOffset::get))
    }

    fn view_message(&self, py: Python<'_>, offset_msg_id: &str) -> PyResult<ReceivedMessage> {
        let running = self.running.get()?;
        let record = running.wait(py, running.admin.view_message(offset_msg_id))?;
        let queue = {
            let view = RecordView::parse(&record).map_err(raise)?;
            // The answer does not name the broker; its address is in the id.
            MessageQueue::new(view.topic, view.store_host.to_string(), view.queue_id)
        };
        Ok(ReceivedMessage::new(record, Origin::new(Arc::new(queue))))
    }

    #[expect(clippy::too_many_arguments, reason = "called by one Python function, which names them")]
    fn query_messages(
        &self,
        py: Python<'_>,
        topic: &str,
        key: &str,
        kind: &str,
        begin_ms: i64,
        end_ms: i64,
        max_messages: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<ReceivedMessage>> {
        let kind = match kind {
            "key" => QueryKind::Key,
            "unique_key" => QueryKind::UniqueKey,
            "tag" => QueryKind::Tag,
            other => return Err(no_kind(other)),
        };
        let max_messages = within("max_messages", max_messages, 1..=i64::from(i32::MAX))? as u32;
        let query = MessageQuery { kind, max_messages, begin_ms, end_ms };
        let running = self.running.get()?;
        let found = running.wait(py, running.admin.query_messages(topic, key, &query))?;
        Ok(found.into_iter().map(received).collect())
    }

    fn message(&self, py: Python<'_>, topic: &str, msg_id: &str) -> PyResult<Option<ReceivedMessage>> {
        let running = self.running.get()?;
        Ok(running.wait(py, running.admin.message(topic, msg_id))?.map(received))
    }

    fn brokers(&self, py: Python<'_>) -> PyResult<Vec<BrokerRow>> {
        let running = self.running.get()?;
        let cluster = running.wait(py, running.admin.cluster())?;
        Ok(cluster
            .brokers
            .into_iter()
            .map(|broker| (broker.broker_name, broker.cluster, broker.addresses))
            .collect())
    }

    fn broker_figures(&self, py: Python<'_>, address: &str) -> PyResult<BTreeMap<String, String>> {
        let running = self.running.get()?;
        running.wait(py, running.admin.broker_figures(address))
    }

    fn ha_status(&self, py: Python<'_>, address: &str) -> PyResult<HaStatus> {
        let running = self.running.get()?;
        let status = running.wait(py, running.admin.ha_status(address))?;
        let slaves = status.ha_connection_info.into_iter().map(|slave| {
            let speed = slave.transferred_byte_in_second;
            let lag = (slave.diff, slave.lag_records, slave.lag_ms);
            (slave.addr, slave.broker_id, slave.slave_ack_offset, lag, slave.in_sync, speed)
        });
        let epochs = status.epochs.into_iter().map(|epoch| (epoch.id, epoch.start));
        let refused = status.refused_slaves.into_iter().map(|slave| (slave.addr, slave.broker_id, slave.why));
        let (end, refused) = (status.master_commit_log_max_offset, refused.collect());
        Ok((status.master, end, slaves.collect(), epochs.collect(), status.not_followed, refused))
    }

    fn change_role(
        &self,
        py: Python<'_>,
        address: &str,
        role: &str,
        broker_id: Option<i64>,
        force: bool,
    ) -> PyResult<()> {
        let running = self.running.get()?;
        running.wait(py, running.admin.change_role(address, role, broker_id, force))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let running = self.running.get()?;
        wait(py, &running.runtime, running.client.close())
    }
}

fn topic_broker(broker: rocketpy_client::TopicBroker) -> TopicBroker {
    let permission = Permission(broker.perm as i32);
    (
        broker.broker_name,
        broker.cluster,
        broker.addresses,
        broker.read_queues,
        broker.write_queues,
        permission.is_readable(),
        permission.is_writable(),
        broker.attributes,
    )
}

fn queue_row<'py>(py: Python<'py>, row: &QueueStats) -> PyResult<QueueRow<'py>> {
    let last_stored_at = row.last_stored_at_ms.map(instant);
    Ok((row.queue.to_python(py)?, row.min_offset.get(), row.max_offset.get(), last_stored_at))
}

fn lag_row<'py>(py: Python<'py>, row: &rocketpy_client::LagRow) -> PyResult<LagRow<'py>> {
    let (committed, max) = (row.committed_offset.map(QueueOffset::get), row.max_offset.get());
    let last_consumed_at = row.last_consumed_at_ms.map(instant);
    Ok((row.queue.to_python(py)?, committed, max, row.lag(), last_consumed_at, row.held()))
}

/// The error of an unknown kind of key.
pub(crate) fn no_kind(kind: &str) -> PyErr {
    error::invalid(format!("a kind is key, unique_key or tag, not {kind}"))
}

fn received(found: FoundMessage) -> ReceivedMessage {
    ReceivedMessage::new(found.record, Origin::new(Arc::new(found.queue)))
}

/// A number of queues given by Python. The broker decides how many are too many.
fn queue_count(value: &Bound<'_, PyAny>) -> PyResult<u32> {
    within("the number of queues", value, 1..=i64::from(i32::MAX)).map(|count| count as u32)
}

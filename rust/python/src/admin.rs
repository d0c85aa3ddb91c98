//! Administration, for threads and event loops alike: `rocketpy.admin.calls` makes one object of it for both.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rocketpy_client::{
    Admin, Client, ClientError, FoundMessage, GroupAtBroker, GroupDescription, GroupSummary, Leftover,
    MessageQuery, OffsetTarget, PulledPart, QueryKind, Start, TopicSpec, UnusedOffsets, WantedRole,
};
use rocketpy_model::{GroupConfig, MessageQueue, QueueOffset, TopicConfig};
use rocketpy_protocol::body::{
    AclInfo, ConsumeResult, Password, PolicyEntryInfo, PolicyInfo, Quota, UserInfo,
};
use rocketpy_protocol::compression::DecompressLimits;
use rocketpy_protocol::json;
use rocketpy_protocol::record::RecordView;
use rocketpy_protocol::settings::ConfigChange;
use serde::Serialize;
use tokio::runtime::Handle;

use crate::aio::{Arrivals, Caller};
use crate::answers::allowed;
use crate::client::connect;
use crate::consumer::Origins;
use crate::convert::ToPython;
use crate::duration::Seconds;
use crate::error::{self, raise};
use crate::number::{self, within};
use crate::options::Options;
use crate::process::Owned;
use crate::queue::{self, QueueArgument};
use crate::received::{Origin, ReceivedMessage};
use crate::start::StartArgument;
use crate::{answers, inventory, named, rows};

/// Topics, groups, offsets and clusters.
#[pyclass(name = "Admin", module = "rocketpy._rocketpy", frozen)]
pub(crate) struct PyAdmin {
    running: Owned<Running>,
}

struct Running {
    admin: Admin,
    client: Client,
    runtime: Handle,
    caller: Caller,
}

impl Drop for Running {
    fn drop(&mut self) {
        let client = self.client.clone();
        self.runtime.spawn(async move { client.close().await });
    }
}

/// What a call gives: its answer, or for an event loop a future of it.
type Answer<'py> = PyResult<Bound<'py, PyAny>>;
#[pymethods]
impl PyAdmin {
    #[new]
    #[pyo3(signature = (name_servers, arrivals=None, **options))]
    fn new(
        py: Python<'_>,
        name_servers: Vec<String>,
        arrivals: Option<Py<Arrivals>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = Options::new("Admin", options);
        let (client, runtime) = connect(py, name_servers, options)?;
        let admin = Admin::new(&client);
        let caller = Caller::new(py, arrivals.as_ref());
        Ok(Self { running: Owned::new(Running { admin, client, runtime, caller }) })
    }

    #[expect(clippy::too_many_arguments, reason = "called by one Python function, which names them")]
    fn create_topic<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        read_queues: &Bound<'py, PyAny>,
        write_queues: &Bound<'py, PyAny>,
        perm: u32,
        cluster: Option<String>,
        broker: Option<String>,
        attributes: BTreeMap<String, Option<String>>,
    ) -> Answer<'py> {
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
        self.answer(py, |admin| async move { admin.create_topic(&spec).await }, |py, ()| Ok(py.None()))
    }

    fn delete_topic<'py>(&self, py: Python<'py>, topic: String) -> Answer<'py> {
        self.answer(py, |admin| async move { admin.delete_topic(&topic).await }, |py, ()| Ok(py.None()))
    }

    fn topics<'py>(&self, py: Python<'py>) -> Answer<'py> {
        self.answer(py, |admin| async move { admin.topics().await }, |py, topics| topics.into_py_any(py))
    }

    fn describe_topic<'py>(&self, py: Python<'py>, topic: String, partial: bool) -> Answer<'py> {
        let described = move |admin: Admin| async move {
            if partial { admin.known_topic(&topic).await } else { admin.describe_topic(&topic).await }
        };
        self.answer(py, described, |py, topic| object(py, &rows::TopicInfo::from(topic)))
    }

    fn queues<'py>(&self, py: Python<'py>, topic: String) -> Answer<'py> {
        self.answer(
            py,
            |admin| async move { admin.queues(&topic).await },
            |py, queues| {
                let queues = queues.iter().map(|queue| queue.to_python(py));
                queues.collect::<PyResult<Vec<_>>>()?.into_py_any(py)
            },
        )
    }

    fn topic_totals<'py>(&self, py: Python<'py>, topics: Vec<String>, partial: bool) -> Answer<'py> {
        self.answer(
            py,
            move |admin| async move { allowed(admin.known_totals(topics).await?, partial) },
            |py, totals| answers::list_of(py, totals, answers::TopicTotals::from),
        )
    }

    fn topic_configs<'py>(&self, py: Python<'py>, partial: bool) -> Answer<'py> {
        self.answer(
            py,
            move |admin| async move { allowed(admin.known_topic_configs().await?, partial) },
            |py, topics| answers::list_of(py, topics, inventory::TopicConfig::from),
        )
    }

    fn all_group_configs<'py>(&self, py: Python<'py>, partial: bool) -> Answer<'py> {
        self.answer(
            py,
            move |admin| async move { allowed(admin.known_group_configs().await?, partial) },
            |py, groups| answers::list_of(py, groups, inventory::GroupConfig::from),
        )
    }

    fn producers<'py>(&self, py: Python<'py>, partial: bool) -> Answer<'py> {
        self.answer(
            py,
            move |admin| async move { allowed(admin.known_producer_groups().await?, partial) },
            |py, groups| answers::list_of(py, groups, inventory::ProducerGroup::from),
        )
    }

    fn topic_groups<'py>(&self, py: Python<'py>, topic: String, partial: bool) -> Answer<'py> {
        let groups =
            move |admin: Admin| async move { allowed(admin.known_topic_groups(&topic).await?, partial) };
        self.answer(py, groups, |py, groups| answers::list(py, groups, |group| group.into_py_any(py)))
    }

    fn message_consumers<'py>(
        &self,
        py: Python<'py>,
        queue: QueueArgument,
        offset: &Bound<'py, PyAny>,
    ) -> Answer<'py> {
        let offset = number::offset(offset)?.get();
        self.answer(
            py,
            |admin| async move { admin.positions(&queue.0).await },
            move |py, found| {
                list(py, found.into_iter().map(|one| inventory::MessageConsumer::new(one, offset)))
            },
        )
    }

    fn queue_delays<'py>(
        &self,
        py: Python<'py>,
        group: String,
        topic: Option<String>,
        partial: bool,
    ) -> Answer<'py> {
        let delays = move |admin: Admin| async move {
            allowed(admin.known_delays(&group, topic.as_deref()).await?, partial)
        };
        self.answer(py, delays, |py, delays| answers::list_of(py, delays, inventory::QueueDelay::from))
    }

    fn topic_rate<'py>(&self, py: Python<'py>, topic: String, partial: bool) -> Answer<'py> {
        let rates =
            move |admin: Admin| async move { allowed(admin.known_topic_rates(&topic).await?, partial) };
        self.answer(py, rates, |py, rates| object(py, &inventory::TrafficRate::from(rates)))
    }

    fn group_rate<'py>(
        &self,
        py: Python<'py>,
        group: String,
        topic: Option<String>,
        partial: bool,
    ) -> Answer<'py> {
        let rates = move |admin: Admin| async move {
            allowed(admin.known_group_rates(&group, topic.as_deref()).await?, partial)
        };
        self.answer(py, rates, |py, rates| object(py, &inventory::TrafficRate::from(rates)))
    }

    fn groups<'py>(&self, py: Python<'py>, partial: bool) -> Answer<'py> {
        self.answer(
            py,
            move |admin| async move { allowed(admin.known_groups().await?, partial) },
            |py, groups| {
                let row = |group: GroupSummary| rows::GroupInfo { name: group.name, members: group.members };
                answers::list_of(py, groups, row)
            },
        )
    }

    fn group_progress<'py>(&self, py: Python<'py>) -> Answer<'py> {
        self.answer(
            py,
            |admin| async move { admin.known_progress().await },
            |py, groups| answers::list_of(py, groups, answers::GroupProgress::from),
        )
    }

    fn group_lag<'py>(
        &self,
        py: Python<'py>,
        group: String,
        topic: Option<String>,
        partial: bool,
    ) -> Answer<'py> {
        let lag = move |admin: Admin| async move {
            allowed(admin.known_lag(&group, topic.as_deref()).await?, partial)
        };
        self.answer(py, lag, |py, lag| answers::list_of(py, lag, rows::QueueLag::from))
    }

    fn group_members<'py>(&self, py: Python<'py>, group: String, partial: bool) -> Answer<'py> {
        let members =
            move |admin: Admin| async move { allowed(admin.known_member_ids(&group).await?, partial) };
        self.answer(py, members, |py, members| answers::list(py, members, |member| member.into_py_any(py)))
    }

    fn describe_group<'py>(&self, py: Python<'py>, group: String, partial: bool) -> Answer<'py> {
        let name = group.clone();
        let described =
            move |admin: Admin| async move { allowed(admin.known_members(&group).await?, partial) };
        self.answer(py, described, |py, members| {
            let all = GroupDescription { name, members: members.found.clone() };
            answers::list_of(py, members, |member| {
                let differs = all.differs(&member);
                rows::GroupMember::new(member, differs)
            })
        })
    }

    fn consumer_running_info<'py>(
        &self,
        py: Python<'py>,
        group: String,
        client_id: String,
        jstack: bool,
    ) -> Answer<'py> {
        let told =
            move |admin: Admin| async move { admin.consumer_running_info(&group, &client_id, jstack).await };
        self.answer(py, told, |py, member| object(py, &answers::ConsumerRunningInfo::from(member)))
    }

    fn running_members<'py>(&self, py: Python<'py>, group: String, jstack: bool) -> Answer<'py> {
        let told = move |admin: Admin| async move { admin.known_running(&group, jstack).await };
        self.answer(py, told, |py, members| answers::list_of(py, members, answers::ConsumerRunningInfo::from))
    }

    fn create_group<'py>(&self, py: Python<'py>, group: String) -> Answer<'py> {
        self.answer(py, |admin| async move { admin.create_group(&group).await }, |py, ()| Ok(py.None()))
    }

    fn delete_group<'py>(&self, py: Python<'py>, group: String) -> Answer<'py> {
        self.answer(py, |admin| async move { admin.delete_group(&group).await }, |py, ()| Ok(py.None()))
    }

    fn reset_offsets<'py>(
        &self,
        py: Python<'py>,
        group: String,
        topic: String,
        to: StartArgument,
        force: bool,
    ) -> Answer<'py> {
        let target = match to.0 {
            Start::Earliest => OffsetTarget::Earliest,
            Start::Latest => OffsetTarget::Latest,
            Start::Timestamp(at_ms) => OffsetTarget::Timestamp(at_ms),
            Start::Stored => {
                return Err(error::invalid("offsets are reset to the earliest, the latest or a time"));
            }
        };
        let reset = |admin: Admin| async move { admin.reset_offsets(&group, &topic, target, force).await };
        self.answer(py, reset, |py, offsets| queue::offsets(py, &offsets)?.into_py_any(py))
    }

    fn min_offset<'py>(&self, py: Python<'py>, queue: QueueArgument) -> Answer<'py> {
        self.offset(py, |admin| async move { admin.min_offset(&queue.0).await })
    }

    fn max_offset<'py>(&self, py: Python<'py>, queue: QueueArgument) -> Answer<'py> {
        self.offset(py, |admin| async move { admin.max_offset(&queue.0).await })
    }

    fn next_offset<'py>(&self, py: Python<'py>, queue: QueueArgument) -> Answer<'py> {
        self.offset(py, |admin| async move { admin.next_offset(&queue.0).await })
    }

    fn search_offset<'py>(&self, py: Python<'py>, queue: QueueArgument, at_ms: i64) -> Answer<'py> {
        self.offset(py, move |admin| async move { admin.search_offset(&queue.0, at_ms).await })
    }

    fn committed_offset<'py>(&self, py: Python<'py>, group: String, queue: QueueArgument) -> Answer<'py> {
        let stored = |admin: Admin| async move { admin.committed_offset(&group, &queue.0).await };
        self.answer(py, stored, |py, stored| stored.map(QueueOffset::get).into_py_any(py))
    }

    fn view_message<'py>(&self, py: Python<'py>, offset_msg_id: String) -> Answer<'py> {
        let viewed = |admin: Admin| async move { admin.view_message(&offset_msg_id).await };
        self.answer(py, viewed, |py, record| {
            let queue = {
                let view = RecordView::parse(&record).map_err(raise)?;
                // The answer does not name the broker; its address is in the id.
                MessageQueue::new(view.topic, view.store_host.to_string(), view.queue_id)
            };
            ReceivedMessage::new(record, Origin::new(Arc::new(queue))).into_py_any(py)
        })
    }

    #[expect(clippy::too_many_arguments, reason = "called by one Python function, which names them")]
    fn query_messages<'py>(
        &self,
        py: Python<'py>,
        topic: String,
        key: String,
        kind: &str,
        begin_ms: i64,
        end_ms: i64,
        max_messages: &Bound<'py, PyAny>,
        partial: bool,
    ) -> Answer<'py> {
        let kind = match kind {
            "key" => QueryKind::Key,
            "unique_key" => QueryKind::UniqueKey,
            "tag" => QueryKind::Tag,
            other => return Err(no_kind(other)),
        };
        let max_messages = within("max_messages", max_messages, 1..=i64::from(i32::MAX))? as u32;
        let query = MessageQuery { kind, max_messages, begin_ms, end_ms };
        let found = move |admin: Admin| async move {
            allowed(admin.known_messages(&topic, &key, &query).await?, partial)
        };
        self.answer(py, found, |py, found| answers::list(py, found, |one| received(one).into_py_any(py)))
    }

    fn message<'py>(&self, py: Python<'py>, topic: String, msg_id: String) -> Answer<'py> {
        let found = |admin: Admin| async move { admin.message(&topic, &msg_id).await };
        self.answer(py, found, |py, found| found.map(received).into_py_any(py))
    }

    fn brokers<'py>(&self, py: Python<'py>) -> Answer<'py> {
        self.answer(
            py,
            |admin| async move { admin.cluster().await },
            |py, cluster| list(py, cluster.brokers.into_iter().map(rows::BrokerInfo::from)),
        )
    }

    fn brokers_at<'py>(&self, py: Python<'py>, name_server: String) -> Answer<'py> {
        self.answer(
            py,
            |admin| async move { admin.cluster_at(&name_server).await },
            |py, cluster| list(py, cluster.brokers.into_iter().map(rows::BrokerInfo::from)),
        )
    }

    fn producer_connections<'py>(&self, py: Python<'py>, group: String, partial: bool) -> Answer<'py> {
        let asked = move |admin: Admin| async move { allowed(admin.known_producers(&group).await?, partial) };
        self.answer(py, asked, |py, found| answers::list_of(py, found, rows::ProducerConnection::from))
    }

    #[expect(clippy::too_many_arguments, reason = "called by one Python function, which names them")]
    fn commit_offset<'py>(
        &self,
        py: Python<'py>,
        group: String,
        queue: QueueArgument,
        offset: &Bound<'py, PyAny>,
        force: bool,
        beyond: bool,
        dry_run: bool,
    ) -> Answer<'py> {
        let offset = number::offset(offset)?;
        let committed = move |admin: Admin| async move {
            admin.commit_offset(&group, &queue.0, offset, force, beyond, dry_run).await
        };
        self.answer(py, committed, |py, ()| Ok(py.None()))
    }

    #[pyo3(signature = (source, target, topic, force))]
    fn clone_offsets<'py>(
        &self,
        py: Python<'py>,
        source: String,
        target: String,
        topic: Option<String>,
        force: bool,
    ) -> Answer<'py> {
        let cloned = move |admin: Admin| async move {
            admin.clone_offsets(&source, &target, topic.as_deref(), force).await
        };
        self.answer(py, cloned, |py, topics| topics.into_py_any(py))
    }

    fn broker_config<'py>(&self, py: Python<'py>, address: String) -> Answer<'py> {
        let settings = |admin: Admin| async move { admin.broker_config(&address).await };
        self.answer(py, settings, |py, settings| settings.into_py_any(py))
    }

    fn update_broker_config<'py>(
        &self,
        py: Python<'py>,
        address: String,
        changes: BTreeMap<String, String>,
    ) -> Answer<'py> {
        let changed = |admin: Admin| async move { admin.update_broker_config(&address, &changes).await };
        self.answer(py, changed, |py, ()| Ok(py.None()))
    }

    /// Keys with their layers.
    fn config<'py>(&self, py: Python<'py>, server: String) -> Answer<'py> {
        let config = |admin: Admin| async move { admin.config(&server).await };
        self.answer(py, config, |py, entries| list(py, entries.keys.into_iter().map(rows::ConfigValue::from)))
    }

    /// Changes live values; a note, or None.
    fn change_config<'py>(
        &self,
        py: Python<'py>,
        server: String,
        changes: BTreeMap<String, String>,
        unset: Vec<String>,
        at_restart: bool,
        dry_run: bool,
    ) -> Answer<'py> {
        let change = ConfigChange { unset, at_restart, is_dry_run: dry_run, ..ConfigChange::default() };
        let changed = |admin: Admin| async move { admin.change_config(&server, &changes, change).await };
        self.answer(py, changed, |py, note| note.into_py_any(py))
    }

    /// The first messages of a part of a queue, and where the rest begins; at the end None and `end`.
    fn read<'py>(&self, py: Python<'py>, queue: QueueArgument, start: u64, end: u64) -> Answer<'py> {
        let read = move |admin: Admin| async move {
            admin.read(queue.0, QueueOffset::from(start), QueueOffset::from(end)).await
        };
        self.answer(py, read, move |py, read| pulled(py, read, end))
    }

    /// As `read`, of a part that may not be there yet: waits for its first message.
    fn read_within<'py>(
        &self,
        py: Python<'py>,
        queue: QueueArgument,
        start: u64,
        end: u64,
        wait: Seconds,
    ) -> Answer<'py> {
        let read = move |admin: Admin| async move {
            admin.read_within(queue.0, QueueOffset::from(start), QueueOffset::from(end), wait.0).await
        };
        self.answer(py, read, move |py, read| pulled(py, read, start))
    }

    fn all_figures<'py>(&self, py: Python<'py>) -> Answer<'py> {
        self.answer(
            py,
            |admin| async move { admin.all_figures().await },
            |py, brokers| list(py, brokers.into_iter().map(answers::BrokerFigures::from)),
        )
    }

    fn broker_figures<'py>(&self, py: Python<'py>, address: String) -> Answer<'py> {
        let figures = |admin: Admin| async move { admin.broker_figures(&address).await };
        self.answer(py, figures, |py, figures| figures.into_py_any(py))
    }

    fn ha_status<'py>(&self, py: Python<'py>, address: String) -> Answer<'py> {
        let status = |admin: Admin| async move { admin.ha_status(&address).await };
        self.answer(py, status, |py, status| object(py, &rows::HaStatus::from(status)))
    }

    fn quotas<'py>(&self, py: Python<'py>, address: String) -> Answer<'py> {
        let quotas = |admin: Admin| async move { admin.quotas(&address).await };
        self.answer(py, quotas, |py, found| list(py, found.quotas.into_iter().map(rows::QuotaUse::from)))
    }

    #[expect(clippy::too_many_arguments, reason = "called by one Python function, which names them")]
    fn set_quota<'py>(
        &self,
        py: Python<'py>,
        address: String,
        scope: String,
        name: String,
        send_messages: Option<u64>,
        send_bytes: Option<u64>,
        pull_messages: Option<u64>,
        pull_bytes: Option<u64>,
        connections: Option<u64>,
    ) -> Answer<'py> {
        let quota = Quota { scope, name, send_messages, send_bytes, pull_messages, pull_bytes, connections };
        let set = move |admin: Admin| async move { admin.set_quota(&address, &quota).await };
        self.answer(py, set, |py, ()| Ok(py.None()))
    }

    fn remove_quota<'py>(
        &self,
        py: Python<'py>,
        address: String,
        scope: String,
        name: String,
    ) -> Answer<'py> {
        let removed = move |admin: Admin| async move { admin.remove_quota(&address, &scope, &name).await };
        self.answer(py, removed, |py, ()| Ok(py.None()))
    }

    /// Name of each user of a server, whether it is super and enabled, and whether it has two secrets.
    fn users<'py>(&self, py: Python<'py>, server: String) -> Answer<'py> {
        let users = |admin: Admin| async move { admin.users(&server).await };
        self.answer(py, users, |py, users| {
            let row = |one: UserInfo| {
                let is = |text: Option<String>, word: &str| {
                    text.is_some_and(|text| text.eq_ignore_ascii_case(word))
                };
                let is_super = is(one.user_type, "Super");
                let is_enabled = !is(one.user_status, "disable");
                (one.username.unwrap_or_default(), is_super, is_enabled, one.rotating.unwrap_or(false))
            };
            users.into_iter().map(row).collect::<Vec<_>>().into_py_any(py)
        })
    }

    /// Creates a user, or changes what is not None. `new_password` is a second secret; `rotating=False` ends the first one.
    #[expect(clippy::too_many_arguments, reason = "called by one Python function, which names them")]
    fn put_user<'py>(
        &self,
        py: Python<'py>,
        server: String,
        name: String,
        is_new: bool,
        password: Option<String>,
        new_password: Option<String>,
        rotating: Option<bool>,
        is_super: Option<bool>,
        is_enabled: Option<bool>,
    ) -> Answer<'py> {
        let word = |is, one: &str, other: &str| if is { one.to_owned() } else { other.to_owned() };
        let user = UserInfo {
            new_password: new_password.map(Password),
            password: password.map(Password),
            rotating,
            user_status: is_enabled.map(|is| word(is, "enable", "disable")),
            user_type: is_super.map(|is| word(is, "Super", "Normal")),
            username: None,
        };
        let put = move |admin: Admin| async move {
            if is_new {
                admin.create_user(&server, &name, &user).await
            } else {
                admin.update_user(&server, &name, &user).await
            }
        };
        self.answer(py, put, |py, ()| Ok(py.None()))
    }

    fn delete_user<'py>(&self, py: Python<'py>, server: String, name: String) -> Answer<'py> {
        let deleted = move |admin: Admin| async move { admin.delete_user(&server, &name).await };
        self.answer(py, deleted, |py, ()| Ok(py.None()))
    }

    /// User, type, resource, actions, addresses and decision of each entry at a server.
    fn policies<'py>(&self, py: Python<'py>, server: String) -> Answer<'py> {
        let policies = |admin: Admin| async move { admin.policies(&server).await };
        self.answer(py, policies, |py, acls| {
            let mut rows = Vec::new();
            for acl in acls {
                let subject = acl.subject.unwrap_or_default();
                let user = subject.strip_prefix("User:").unwrap_or(&subject);
                for policy in acl.policies {
                    let kind = policy.policy_type.unwrap_or_else(|| "Custom".to_owned());
                    for entry in policy.entries {
                        let (resource, decision) = (entry.resource.unwrap_or_default(), entry.decision);
                        let is_allowed = decision.is_none_or(|text| text.eq_ignore_ascii_case("Allow"));
                        let what = (entry.actions, entry.source_ips, is_allowed);
                        rows.push((user.to_owned(), kind.clone(), resource, what));
                    }
                }
            }
            rows.into_py_any(py)
        })
    }

    #[expect(clippy::too_many_arguments, reason = "called by one Python function, which names them")]
    fn put_policy<'py>(
        &self,
        py: Python<'py>,
        server: String,
        user: String,
        kind: String,
        resource: String,
        actions: Vec<String>,
        sources: Vec<String>,
        is_allowed: bool,
    ) -> Answer<'py> {
        let decision = Some(if is_allowed { "Allow" } else { "Deny" }.to_owned());
        let entry = PolicyEntryInfo { actions, decision, resource: Some(resource), source_ips: sources };
        let policy = PolicyInfo { entries: vec![entry], policy_type: Some(kind) };
        let put = move |admin: Admin| async move {
            admin.put_policies(&server, &user, AclInfo { policies: vec![policy], subject: None }).await
        };
        self.answer(py, put, |py, ()| Ok(py.None()))
    }

    /// Without a kind and a resource, all entries of the user.
    #[pyo3(signature = (server, user, kind, resource))]
    fn delete_policy<'py>(
        &self,
        py: Python<'py>,
        server: String,
        user: String,
        kind: Option<String>,
        resource: Option<String>,
    ) -> Answer<'py> {
        let deleted = move |admin: Admin| async move {
            admin.delete_policies(&server, &user, kind.as_deref(), resource.as_deref()).await
        };
        self.answer(py, deleted, |py, ()| Ok(py.None()))
    }

    fn change_role<'py>(
        &self,
        py: Python<'py>,
        address: String,
        role: String,
        broker_id: Option<i64>,
        force: bool,
        token: Option<String>,
    ) -> Answer<'py> {
        let changed = move |admin: Admin| async move {
            let wanted = WantedRole { role: &role, broker_id, force };
            admin.change_role(&address, wanted, token.as_deref()).await
        };
        self.answer(py, changed, |py, ()| Ok(py.None()))
    }

    /// Name and address of each master, and the settings of the group there as JSON; None where it is missing.
    fn group_configs<'py>(&self, py: Python<'py>, group: String) -> Answer<'py> {
        let configs = |admin: Admin| async move { admin.group_configs(&group).await };
        self.answer(py, configs, |py, configs| {
            let row = |one: GroupAtBroker| {
                let (config, error) = match one.config {
                    Ok(config) => (config.map(|config| json_text(&config)), None),
                    Err(error) => (None, Some(error.to_string())),
                };
                (one.broker_name, one.address, config, error)
            };
            configs.into_iter().map(row).collect::<Vec<_>>().into_py_any(py)
        })
    }

    fn put_topic<'py>(
        &self,
        py: Python<'py>,
        broker: String,
        config: &str,
        attributes: BTreeMap<String, Option<String>>,
    ) -> Answer<'py> {
        let config: TopicConfig =
            json::from_str(config).map_err(|error| error::invalid(error.to_string()))?;
        let put = move |admin: Admin| async move {
            admin.put_topic(&config, &attributes, (None, Some(&broker))).await
        };
        self.answer(py, put, |py, ()| Ok(py.None()))
    }

    fn put_group<'py>(&self, py: Python<'py>, address: String, config: &str) -> Answer<'py> {
        let config: GroupConfig =
            json::from_str(config).map_err(|error| error::invalid(error.to_string()))?;
        let put = move |admin: Admin| async move { admin.put_group(&address, &config).await };
        self.answer(py, put, |py, ()| Ok(py.None()))
    }

    fn delete_topic_at<'py>(&self, py: Python<'py>, address: String, topic: String) -> Answer<'py> {
        let deleted = move |admin: Admin| async move { admin.delete_topic_at(&address, &topic).await };
        self.answer(py, deleted, |py, ()| Ok(py.None()))
    }

    fn delete_group_at<'py>(&self, py: Python<'py>, address: String, group: String) -> Answer<'py> {
        let deleted = move |admin: Admin| async move { admin.delete_group_at(&address, &group).await };
        self.answer(py, deleted, |py, ()| Ok(py.None()))
    }

    /// `leftover`: `log`, `queues` or `topics`.
    fn clean<'py>(&self, py: Python<'py>, address: String, leftover: &str) -> Answer<'py> {
        let leftover = match leftover {
            "log" => Leftover::ExpiredLog,
            "queues" => Leftover::ExpiredQueues,
            _ => Leftover::UnusedTopics,
        };
        let cleaned = move |admin: Admin| async move { admin.clean(&address, leftover).await };
        self.answer(py, cleaned, |py, ()| Ok(py.None()))
    }

    /// Topic and group of each, and whether the group is missing.
    fn unused_offsets<'py>(&self, py: Python<'py>, address: String) -> Answer<'py> {
        let unused = |admin: Admin| async move { admin.unused_offsets(&address).await };
        self.answer(py, unused, |py, unused| {
            let row = |one: UnusedOffsets| (one.topic, one.group, one.is_group_missing);
            unused.into_iter().map(row).collect::<Vec<_>>().into_py_any(py)
        })
    }

    /// Configuration of a topic at one broker as JSON; None where it is missing.
    fn topic_config<'py>(&self, py: Python<'py>, address: String, topic: String) -> Answer<'py> {
        let config = |admin: Admin| async move { admin.topic_config(&address, &topic).await };
        self.answer(py, config, |py, config| config.map(|config| json_text(&config)).into_py_any(py))
    }

    fn timers<'py>(&self, py: Python<'py>, address: String) -> Answer<'py> {
        let timers = |admin: Admin| async move { admin.timers(&address).await };
        self.answer(py, timers, |py, timers| timers.into_py_any(py))
    }

    /// Result, error text and milliseconds of the handler.
    fn consume_directly<'py>(
        &self,
        py: Python<'py>,
        address: String,
        group: String,
        client_id: String,
        topic: String,
        offset_msg_id: String,
    ) -> Answer<'py> {
        let consumed = move |admin: Admin| async move {
            admin.consume_directly(&address, &group, &client_id, &topic, &offset_msg_id).await
        };
        self.answer(py, consumed, |py, consumed| {
            let result = match consumed.consume_result {
                ConsumeResult::Success => "success",
                ConsumeResult::Later => "later",
                ConsumeResult::Threw => "failed",
            };
            (result, consumed.remark, consumed.spent_ms).into_py_any(py)
        })
    }

    fn note<'py>(&self, py: Python<'py>, namespace: String, key: String) -> Answer<'py> {
        let note = |admin: Admin| async move { admin.note(&namespace, &key).await };
        self.answer(py, note, |py, note| note.into_py_any(py))
    }

    fn set_note<'py>(
        &self,
        py: Python<'py>,
        namespace: String,
        key: String,
        value: Option<String>,
    ) -> Answer<'py> {
        let set = |admin: Admin| async move { admin.set_note(&namespace, &key, value.as_deref()).await };
        self.answer(py, set, |py, ()| Ok(py.None()))
    }

    /// Begins what [`close`](Self::close) then waits for.
    fn begin_close(&self) -> PyResult<()> {
        let running = self.running.get()?;
        let client = running.client.clone();
        running.runtime.spawn(async move { client.close().await });
        Ok(())
    }

    /// `now`: the calling thread waits, whoever waits for other calls.
    #[pyo3(signature = (now=true))]
    fn close<'py>(&self, py: Python<'py>, now: bool) -> Answer<'py> {
        let running = self.running.get()?;
        let client = running.client.clone();
        let closed = async move {
            client.close().await;
            Ok::<_, ClientError>(())
        };
        let caller = if now { &Caller::Thread } else { &running.caller };
        caller.answer(py, &running.runtime, closed, |py, ()| Ok(py.None()))
    }
}

impl PyAdmin {
    fn answer<'py, T, F, C>(&self, py: Python<'py>, call: impl FnOnce(Admin) -> F, convert: C) -> Answer<'py>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ClientError>> + Send + 'static,
        C: FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    {
        let running = self.running.get()?;
        running.caller.answer(py, &running.runtime, call(running.admin.clone()), convert)
    }

    fn offset<'py, F>(&self, py: Python<'py>, call: impl FnOnce(Admin) -> F) -> Answer<'py>
    where
        F: Future<Output = Result<QueueOffset, ClientError>> + Send + 'static,
    {
        self.answer(py, call, |py, offset| offset.get().into_py_any(py))
    }
}

/// A row as an object of its own class.
fn object<T: Serialize>(py: Python<'_>, row: &T) -> PyResult<Py<PyAny>> {
    named::to_python(py, row).map(Bound::unbind)
}

/// The list of rows.
fn list<T: Serialize>(py: Python<'_>, rows: impl IntoIterator<Item = T>) -> PyResult<Py<PyAny>> {
    named::list(py, rows).map(Bound::unbind)
}

fn json_text<T: Serialize>(value: &T) -> String {
    String::from_utf8_lossy(&json::to_vec(value)).into_owned()
}

/// The error of an unknown kind of key.
pub(crate) fn no_kind(kind: &str) -> PyErr {
    error::invalid(format!("a kind is key, unique_key or tag, not {kind}"))
}

/// The messages of a pull, and where the rest begins: without messages at `end`.
fn pulled(py: Python<'_>, read: Option<(PulledPart, QueueOffset)>, end: u64) -> PyResult<Py<PyAny>> {
    let Some((part, next)) = read else {
        return (Vec::<ReceivedMessage>::new(), end).into_py_any(py);
    };
    let origins = Origins::plain(DecompressLimits::MESSAGE);
    (origins.received(&part).collect::<Vec<_>>(), next.get()).into_py_any(py)
}

fn received(found: FoundMessage) -> ReceivedMessage {
    ReceivedMessage::new(found.record, Origin::new(Arc::new(found.queue)))
}

/// A number of queues given by Python. The broker decides how many are too many.
fn queue_count(value: &Bound<'_, PyAny>) -> PyResult<u32> {
    within("the number of queues", value, 1..=i64::from(i32::MAX)).map(|count| count as u32)
}

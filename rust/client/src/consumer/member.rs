//! A member of a group: what its handle and its tasks share, and how it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use rocketpy_env::now_ms;
use rocketpy_model::{MessageQueue, QueueOffset};
use rocketpy_protocol::body::{
    ConsumeFromWhere, ConsumeMessageDirectlyResult, ConsumeType, ConsumerData, ConsumerRunningInfo,
    MessageModel, OtherSubscription,
};
use rocketpy_protocol::code::response;
use rocketpy_protocol::header::ConsumeMessageDirectlyResultRequestHeader;
use rocketpy_protocol::{Command, Header, json};
use rocketpy_remoting::{Reply, Response};
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use super::contact::Reach;
use super::delivery::Delivery;
use super::pace::Pace;
use super::push::LocalOffsets;
use super::signals::Signals;
use super::state::{QueueChange, State};
use super::subscription::{self, TopicSubscription};
use super::subscription_conflict::{Change, SubscriptionConflict};
use crate::client::Client;
use crate::close_once::CloseOnce;
use crate::config::{ConsumerConfig, Start};
use crate::error::ClientError;
use crate::log_throttle::LogThrottle;
use crate::members::Consumer;
use crate::trace::{Uncommitted, dispatch};

/// What the log says of another client with the id of this one.
pub(super) const SAME_CLIENT_ID: &str = "another client of the group has the same client id: both receive the same messages; give each \
     its own instance_name, or none";

/// What the handle and the tasks of a member share.
pub(crate) struct Member {
    pub(super) client: Client,
    pub(super) group: Arc<str>,
    pub(super) subscriptions: Vec<TopicSubscription>,
    pub(super) config: ConsumerConfig,
    pub(super) delivery: Delivery,
    pub(super) state: Mutex<State>,
    pub(super) signals: Signals,
    pub(super) commits: Commits,
    pub(super) group_view: GroupView,
    pub(super) tasks: Tasks,
    pub(super) handovers: Handovers,
    pub(super) activity: Activity,
    /// What gives messages to handlers.
    pub(super) handlers: OnceLock<Weak<dyn DirectHandlers>>,
    /// Traces messages, where that was asked for.
    pub(super) trace: Option<Uncommitted>,
    /// For starting tasks, each of which holds the member.
    myself: Weak<Self>,
}

/// Where commits go, and whose turn it is.
#[derive(Default)]
pub(super) struct Commits {
    /// Where a member that gets all messages keeps its offsets; the others keep them at the brokers.
    pub(super) local: Option<LocalOffsets>,
    /// Held by each commit, so that an older one cannot overtake a newer one.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// A commit in the background is asked for, and has not begun.
    pub(super) asked: AtomicBool,
    /// What was reported of such commits.
    pub(super) failure: Mutex<LogThrottle>,
}

/// What the member knows of its group and brokers.
#[derive(Default)]
pub(super) struct GroupView {
    /// The group's retry topic had no route in the last round of rebalancing.
    pub(super) misses_retry_topic: AtomicBool,
    /// What brokers say of members with other subscriptions, or the same client id.
    others: Mutex<SubscriptionConflict>,
    /// The latest denial by users and policies, until a broker allows what it denied.
    denied: Mutex<Option<ClientError>>,
    /// What was reported of a list of members that has this one twice.
    pub(super) listed_twice: Mutex<LogThrottle>,
    /// A broker was connected to and may have forgotten commits. They are repeated after the next rebalance, which shows which
    /// queues went to other members while the broker was away.
    pub(super) reconnected: AtomicBool,
    /// Queues of each topic in its first route; none where the topic had no route yet.
    first_routes: Mutex<BTreeMap<String, BTreeSet<MessageQueue>>>,
}

impl GroupView {
    /// Notes the queues in the route of a topic, or that it has no route. The first route counts.
    pub(super) fn note_route(&self, topic: &str, queues: &[MessageQueue]) {
        let mut first = self.first_routes.lock();
        if !first.contains_key(topic) {
            first.insert(topic.to_owned(), queues.iter().cloned().collect());
        }
    }

    /// Whether a queue was not in the route when the member joined. Messages that it received since would be missed from its end.
    pub(super) fn is_new(&self, queue: &MessageQueue) -> bool {
        let first = self.first_routes.lock();
        first.get(&*queue.topic).is_some_and(|queues| !queues.contains(queue))
    }
}

/// Tasks that end with the consumer.
#[derive(Default)]
pub(super) struct Tasks {
    running: Mutex<JoinSet<()>>,
    closed: AtomicBool,
    pub(super) ending: CloseOnce<Result<(), ClientError>>,
}

/// Queues on their way to or from other members.
#[derive(Default)]
pub(super) struct Handovers {
    /// Tasks that hold locks of queues. They end themselves when the consumer is closed, so that no lock stays behind.
    pub(super) tasks: Mutex<JoinSet<()>>,
    /// By broker. Held by each request to lock or unlock queues, so that the end of one handover does not unlock a queue that the next one
    /// has locked, and no queue that has come back. Locks of queues that are read in order share it.
    pub(super) turns: Mutex<BTreeMap<Arc<str>, Arc<tokio::sync::RwLock<()>>>>,
}

/// What administrators ask for.
pub(super) struct Activity {
    /// How fast each subscription is pulled, and consumed by handlers.
    pub(super) paces: Vec<Pace>,
    pub(super) started_at_ms: i64,
}

/// Has a handler consume a stored record because an administrator asked for it.
pub(super) trait DirectHandlers: Send + Sync {
    fn consume_directly<'a>(
        &'a self,
        broker_name: &'a str,
        record: Bytes,
    ) -> Pin<Box<dyn Future<Output = Result<ConsumeMessageDirectlyResult, String>> + Send + 'a>>;
}

impl Member {
    pub(super) fn new(
        client: &Client,
        group: &str,
        subscriptions: Vec<TopicSubscription>,
        config: ConsumerConfig,
        delivery: Delivery,
        local_offsets: Option<LocalOffsets>,
    ) -> Result<Arc<Self>, ClientError> {
        let group: Arc<str> = group.into();
        let trace = |topic: &String| dispatch::start(client, &group, "CONSUME", topic).map(Uncommitted::new);
        let trace = config.trace_topic.as_ref().map(trace).transpose()?;
        let mut state = State::new(delivery);
        if config.tell_changes {
            state.tell_changes();
        }
        let paces = subscriptions.iter().map(|_| Pace::default()).collect();
        Ok(Arc::new_cyclic(|myself| Self {
            client: client.clone(),
            group,
            subscriptions,
            config,
            delivery,
            state: Mutex::new(state),
            signals: Signals::default(),
            commits: Commits { local: local_offsets, ..Commits::default() },
            group_view: GroupView::default(),
            tasks: Tasks::default(),
            handovers: Handovers::default(),
            activity: Activity { paces, started_at_ms: now_ms() },
            handlers: OnceLock::new(),
            trace,
            myself: myself.clone(),
        }))
    }

    pub(super) fn check(&self) -> Result<(), ClientError> {
        self.client.check()?;
        if self.is_closed() {
            return Err(ClientError::Closed { what: "consumer" });
        }
        Ok(())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.tasks.closed.load(Ordering::Acquire)
    }

    /// Says that there may be a change to tell the user of.
    pub(super) fn tell_of_change(&self) {
        if self.config.tell_changes {
            self.signals.arrived.notify_waiters();
            self.signals.changed.notify_one();
        }
    }

    /// Notes that the user was told of a change.
    pub(super) fn told(&self, change: &QueueChange) {
        self.state.lock().delivered(change);
        self.signals.messages_arrived();
        self.signals.handover.notify_waiters();
    }

    /// What the user has to know and was not told.
    pub(super) fn take_failure(&self) -> Option<ClientError> {
        self.take_disagreement().or_else(|| self.state.lock().take_failure())
    }

    /// The error of a group whose members disagree, unless the user allows it.
    fn take_disagreement(&self) -> Option<ClientError> {
        if self.config.allow_other_subscriptions {
            return None;
        }
        let OtherSubscription { group, client_id, subscriptions } =
            self.group_view.others.lock().take_due()?;
        if client_id == self.client.client_id() {
            return None; // the log has told it: each of them gets messages
        }
        Some(ClientError::OtherSubscriptions { group, client_id, subscriptions })
    }

    /// Gives an error to the user's next poll.
    pub(super) fn fail(&self, error: ClientError) {
        let error = self.explained(error);
        if error.is_denial() {
            *self.group_view.denied.lock() = Some(error.clone());
        }
        self.state.lock().fail(error);
        self.signals.arrived.notify_waiters();
        self.signals.progress.notify_waiters();
    }

    /// Names all that the member needs, if this is a denial.
    pub(super) fn explained(&self, error: ClientError) -> ClientError {
        error.needing(|| subscription::needs(&self.group, &self.subscriptions))
    }

    /// Why users and policies deny what the member reads, as last known.
    pub(super) fn denial(&self) -> Option<ClientError> {
        self.group_view.denied.lock().clone()
    }

    /// Notes that a broker answered a pull. What members of a group may read, their heartbeats tell.
    pub(super) fn note_allowed_pull(&self) {
        if !self.config.balance.is_of_members() {
            self.group_view.denied.lock().take();
        }
    }

    /// Notes the outcome of a call to a broker.
    pub(super) fn note_contact(&self, broker_name: &Arc<str>, error: Option<&ClientError>) {
        let change = self.state.lock().contacts.note(broker_name, error, now_ms());
        self.tell_of_contact(change, error);
    }

    /// Notes that no name server told a route. It counts where no broker is known yet.
    pub(super) fn note_name_server(&self, error: &ClientError) {
        if self.state.lock().contacts.knows_none() {
            self.note_contact(&"name server".into(), Some(error));
        }
    }

    /// Forgets brokers that no route names any more.
    pub(super) fn retain_contacts(&self, broker_names: &BTreeSet<Arc<str>>) {
        let change = self.state.lock().contacts.retain(broker_names);
        self.tell_of_contact(change, None);
    }

    fn tell_of_contact(&self, change: Reach, error: Option<&ClientError>) {
        match change {
            Reach::Unchanged => {}
            Reach::Lost => {
                let error = error.map(ToString::to_string);
                warn!(group = %self.group, error, "all brokers of the consumer unreachable");
                // A poll that waits learns until when it may wait.
                self.signals.arrived.notify_waiters();
            }
            Reach::Found => info!(group = %self.group, "broker of the consumer reachable again"),
        }
    }

    /// Starts a task that ends with the consumer.
    pub(super) fn spawn<F: Future<Output = ()> + Send + 'static>(&self, task: impl FnOnce(Arc<Self>) -> F) {
        self.spawn_in(&self.tasks.running, task);
    }

    /// Starts a task that ends itself, soon after the consumer was closed.
    pub(super) fn spawn_handover<F: Future<Output = ()> + Send + 'static>(
        &self,
        task: impl FnOnce(Arc<Self>) -> F,
    ) {
        self.spawn_in(&self.handovers.tasks, task);
    }

    fn spawn_in<F: Future<Output = ()> + Send + 'static>(
        &self,
        tasks: &Mutex<JoinSet<()>>,
        task: impl FnOnce(Arc<Self>) -> F,
    ) {
        let Some(member) = self.myself.upgrade() else { return };
        let mut tasks = tasks.lock();
        while let Some(ended) = tasks.try_join_next() {
            if let Err(ended) = ended
                && ended.is_panic()
            {
                error!(group = %self.group, "consumer task panicked");
            }
        }
        if !self.is_closed() {
            tasks.spawn_on(task(member), self.client.runtime());
        }
    }

    /// Waits, for a bounded time, until this member of a new group would miss nothing that is sent.
    pub(super) async fn joined(&self) {
        let wait = async {
            loop {
                let progress = self.signals.progress.notified();
                tokio::pin!(progress);
                progress.as_mut().enable();
                if self.state.lock().has_joined() {
                    return;
                }
                progress.await;
            }
        };
        if tokio::time::timeout(self.client.api().timeout(), wait).await.is_err() {
            warn!(group = %self.group, "start offsets of some queues not known yet; start=latest begins at their max offsets at a later time");
        }
    }

    /// Marks the consumer closed and ends its tasks. False when it was closed before.
    pub(super) fn begin_close(&self) -> bool {
        if self.tasks.closed.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.tasks.running.lock().abort_all();
        self.config.balance.end();
        self.signals.arrived.notify_waiters();
        self.signals.handover.notify_waiters();
        self.signals.changed.notify_one();
        true
    }
}

/// # Source
/// docs/reference/client.md 3.6: pull consumers always send "from last offset", which is only information.
impl Consumer for Member {
    fn heartbeat(&self) -> ConsumerData {
        let consume_from_where = match (self.delivery, self.config.start) {
            (Delivery::Pull, _) | (_, Start::Latest) => ConsumeFromWhere::ConsumeFromLastOffset,
            (_, Start::Earliest | Start::Stored) => ConsumeFromWhere::ConsumeFromFirstOffset,
            (_, Start::Timestamp(_)) => ConsumeFromWhere::ConsumeFromTimestamp,
        };
        ConsumerData {
            consume_from_where,
            consume_type: match self.delivery {
                Delivery::Pull => ConsumeType::ConsumeActively,
                Delivery::Push { .. } => ConsumeType::ConsumePassively,
            },
            group_name: self.group.to_string(),
            message_model: match self.delivery.is_broadcast() {
                true => MessageModel::Broadcasting,
                false => MessageModel::Clustering,
            },
            subscription_data_set: self.subscriptions.iter().map(TopicSubscription::to_wire).collect(),
            unit_mode: false,
        }
    }

    fn heard_of_other(&self, other: Option<OtherSubscription>, all_answered: bool) {
        let change = self.group_view.others.lock().heard(other.clone(), all_answered);
        let group = &self.group;
        match (change, other) {
            (Change::Differs, Some(other)) if other.client_id == self.client.client_id() => {
                warn!(%group, client_id = other.client_id, "{SAME_CLIENT_ID}");
            }
            (Change::Differs, Some(OtherSubscription { client_id, subscriptions, .. })) => {
                warn!(
                    %group,
                    other_client_id = client_id,
                    other_subscriptions = subscriptions,
                    "subscription conflict in the group: both members miss messages"
                );
            }
            (Change::Agrees, _) => {
                warn!(%group, "subscription conflict in the group resolved")
            }
            _ => {}
        }
        self.signals.arrived.notify_waiters();
    }

    fn heard_of_denial(&self, denial: Option<ClientError>, all_asked: bool) {
        match denial {
            Some(denial) => self.fail(denial),
            None if all_asked && self.group_view.denied.lock().take().is_some() => {
                info!(group = %self.group, "subscription of the consumer allowed again");
            }
            None => {}
        }
    }

    fn rebalance_soon(&self) {
        self.signals.wake.notify_one();
    }

    fn reset(&self, offsets: BTreeMap<MessageQueue, QueueOffset>) {
        self.spawn(async move |member| member.commit_reset(offsets).await);
    }

    fn settled(&self, topic: &str) -> BTreeMap<MessageQueue, QueueOffset> {
        self.state.lock().settled(topic).map(|(queue, offset)| (queue.clone(), offset)).collect()
    }

    fn running_info(&self) -> ConsumerRunningInfo {
        self.describe()
    }

    fn consume_directly(&self, asked: Command, reply: Reply) {
        self.spawn(async move |member| {
            let consumed = match (member.handlers.get().and_then(Weak::upgrade), read_asked(&asked)) {
                (Some(handlers), Ok(broker_name)) => {
                    handlers.consume_directly(broker_name, asked.body.clone()).await
                }
                (_, Err(reason)) => Err(reason),
                (None, _) => Err(format!("a member of group {} that polls has no handler", member.group)),
            };
            reply.send(match consumed {
                Ok(result) => Response::success().with_body(json::to_vec(&result).into()),
                Err(reason) => Response::status(response::SYSTEM_ERROR, reason),
            });
        });
    }

    fn broker_connected(&self) {
        self.group_view.reconnected.store(true, Ordering::Release);
        self.rebalance_soon();
    }

    fn stop(&self) {
        self.begin_close();
    }
}

/// The broker whose message is to be consumed.
fn read_asked(asked: &Command) -> Result<&str, String> {
    let header =
        ConsumeMessageDirectlyResultRequestHeader::read(&asked.ext).map_err(|error| error.to_string())?;
    Ok(header.broker_name.unwrap_or_default())
}

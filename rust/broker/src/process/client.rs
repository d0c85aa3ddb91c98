//! Requests about live clients: heartbeats, members of groups, locks of queues.
//!
//! # Source
//! docs/reference/protocol.md 2.3.7, 2.3.10, 2.3.11, 2.4.1 and 2.6.3.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use rocketpy_model::{GroupConfig, MessageQueue, TopicConfig, name, system};
use rocketpy_protocol::body::{
    CheckClientRequestBody, ClientConnection, ConsumerConnection, ConsumerData,
    GetConsumerListByGroupResponseBody, HeartbeatData, LockBatchRequestBody, LockBatchResponseBody,
    OtherSubscription, ProducerConnection,
};
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{
    GetConsumerConnectionListRequestHeader, GetConsumerListByGroupRequestHeader,
    GetProducerConnectionListRequestHeader, Header, NotifyConsumerIdsChangedRequestHeader,
    UnregisterClientRequestHeader, key,
};
use rocketpy_protocol::{Command, json};
use rocketpy_remoting::{Reply, Response};
use tracing::{debug, warn};

use crate::call::{Answer, Call, answer_later, body, on_disk, success_json};
use crate::refusal::{Refusal, check_group_of_clients, check_range};
use crate::shared::Shared;
use crate::table::client::{Consumer, Entered, MAX_GROUPS, Member};
use crate::table::group_commit::Written;
use crate::table::queue_lock::Locked;
use crate::table::topic::{MAX_QUEUES, TopicChange};

/// Longest id of a client.
const MAX_CLIENT_ID_BYTES: usize = 1024;
/// Most groups of which the answer to a heartbeat says that another member subscribes to something else.
const MAX_OTHERS: usize = 16;
/// Most letters of another member's subscriptions in that answer, and of any text of a client in the log.
const MAX_LETTERS: usize = 256;
/// Longest body of a heartbeat.
const MAX_HEARTBEAT_BYTES: usize = 4 << 20;

/// HEART_BEAT: adds the client to its groups, and creates missing groups and their retry topics.
///
/// A group that refuses the client is skipped: the client's other groups must not expire because of it. What had to be created
/// is on disk before the answer, also before a refusal.
pub(super) fn heartbeat(call: Call<'_>, reply: Reply) {
    let Heard { created, others, refused } = match enter(call) {
        Ok(heard) => heard,
        Err(refusal) => return reply.send(refusal.response()),
    };
    let answer = match refused {
        Some(refusal) => refusal.response(),
        None => heard(&others),
    };
    if created.is_empty() {
        return reply.send(answer);
    }
    let owner = call.shared.clone();
    answer_later(call.shared, reply, async move {
        let mut failures = Failures::default();
        for Created { group, written, retry_topic } in created {
            match on_disk(Some(written)).await {
                Ok(()) => {
                    if let (Some(change), Some(registrar)) = (&retry_topic, owner.registrar()) {
                        registrar.announce(change);
                    }
                }
                // Whoever needs it next creates it.
                Err(refusal) => failures.note(&group, &refusal),
            }
        }
        if let Failures { groups, first: Some(first) } = failures {
            warn!(groups, first, "consumer groups or their retry topics not created");
        }
        Ok(answer)
    });
}

fn heard(others: &[OtherSubscription]) -> Response {
    let mut response = Response::success();
    response.command.version = system::VERSION;
    response.command.ext.push(key::IS_SUPPORT_HEART_BEAT_V2, "false");
    response.command.ext.push(key::IS_SUB_CHANGE, "true");
    response.command.ext.push(key::DELAYED_TRANSACTIONS, "true");
    if !others.is_empty() {
        let others = String::from_utf8(json::to_vec(others)).expect("JSON is UTF-8");
        response.command.ext.push(key::OTHER_SUBSCRIPTIONS, &others);
    }
    response
}

/// What a heartbeat led to.
#[derive(Default)]
struct Heard {
    created: Vec<Created>,
    /// Members with other subscriptions, for the answer.
    others: Vec<OtherSubscription>,
    /// Answers the heartbeat instead.
    refused: Option<Refusal>,
}

/// What failed for groups of a heartbeat. It makes one line of the log, however many groups a client states.
#[derive(Default)]
struct Failures {
    groups: usize,
    /// The first group and its reason.
    first: Option<String>,
}

impl Failures {
    fn note(&mut self, group: &str, refusal: &Refusal) {
        self.groups += 1;
        self.first.get_or_insert_with(|| format!("{}: {refusal}", shortened(group)));
    }
}

/// The beginning of a text that a client chose.
fn shortened(text: &str) -> String {
    text.chars().take(MAX_LETTERS).collect()
}

/// A group, or the retry topic of one, that a heartbeat had to create.
struct Created {
    group: String,
    written: Written,
    retry_topic: Option<TopicChange>,
}

fn enter(Call { shared, connection, request }: Call<'_>) -> Result<Heard, Refusal> {
    check_range("the length of a heartbeat in bytes", 0..=MAX_HEARTBEAT_BYTES, request.body.len())?;
    let data: HeartbeatData = body(request)?;
    check_client_id(&data.client_id)?;
    let groups = data.consumer_data_set.len() + data.producer_data_set.len();
    check_range("the number of groups", 0..=MAX_GROUPS, groups)?;
    let client_id: Arc<str> = data.client_id.as_str().into();
    let member = || Member::new(connection, client_id.clone(), request.language, request.version);
    let mut heard = Heard::default();
    let mut skipped = Failures::default();
    for producer in &data.producer_data_set {
        let group = &producer.group_name;
        let entered = name::check_group(group).map_err(Refusal::from);
        if let Err(refusal) = entered.and_then(|()| shared.clients.enter_producer(group, member())) {
            skipped.note(group, &refusal);
            heard.refused = worse(heard.refused, refusal);
        }
    }
    let mut without_retry_topic = Failures::default();
    for consumer in &data.consumer_data_set {
        let entered = enter_consumer(shared, consumer, member(), &mut heard, &mut without_retry_topic);
        if let Err(refusal) = entered {
            skipped.note(&consumer.group_name, &refusal);
            heard.refused = worse(heard.refused, refusal);
        }
    }
    if let Failures { groups, first: Some(first) } = skipped {
        warn!(client_id = shortened(&client_id), groups, first, "groups of a heartbeat skipped");
    }
    if let Failures { groups, first: Some(first) } = without_retry_topic {
        warn!(client_id = shortened(&client_id), groups, first, "retry topics not created");
    }
    Ok(heard)
}

/// The refusal that answers the whole heartbeat, after its other groups have entered: one that the client can act upon and that no
/// other request would report.
fn worse(before: Option<Refusal>, refusal: Refusal) -> Option<Refusal> {
    match refusal {
        Refusal::FilterTooLong { .. } | Refusal::Memory(_) | Refusal::BrokerGroup { .. } => Some(refusal),
        _ => before,
    }
}

fn check_client_id(client_id: &str) -> Result<(), Refusal> {
    check_range("the length of clientID in bytes", 1..=MAX_CLIENT_ID_BYTES, client_id.len())
}

fn enter_consumer(
    shared: &Shared,
    consumer: &ConsumerData,
    member: Member,
    heard: &mut Heard,
    without_retry_topic: &mut Failures,
) -> Result<(), Refusal> {
    check_group_of_clients(&consumer.group_name)?;
    consumer.subscription_data_set.iter().try_for_each(|data| shared.check_filter(&data.sub_string))?;
    let found = match shared.group(&consumer.group_name) {
        Ok(found) => found,
        // The client learns it from the answers to its pulls.
        Err(Refusal::NoGroup { group }) => {
            debug!(group, "heartbeat of a consumer group that does not exist");
            return Ok(());
        }
        Err(refusal) => return Err(refusal),
    };
    let group = found.group;
    let of_group = |written| Created { group: group.name.clone(), written, retry_topic: None };
    heard.created.extend(found.written.map(of_group));
    match create_retry_topic(shared, consumer, &group) {
        Ok(retry_topic) => heard.created.extend(retry_topic),
        // Pulls do not need it, and the first send to it creates it.
        Err(refusal) => without_retry_topic.note(&group.name, &refusal),
    }
    let client_id = member.client_id.clone();
    let entered = shared.clients.enter_consumer(consumer, member)?;
    if entered.is_change {
        notify(shared, &group.name);
    }
    let other = other_subscription(&group.name, &client_id, entered);
    if heard.others.len() < MAX_OTHERS {
        heard.others.extend(other);
    }
    Ok(())
}

/// The live member that subscribes to something else, or has the same client id, if there is one. The former gets only a part of its
/// messages, as with Apache's broker; the log says it once. The latter gets the same messages.
fn other_subscription(group: &str, client_id: &str, entered: Entered) -> Option<OtherSubscription> {
    let Consumer { member: other, wants } = entered.other?;
    let subscriptions = shortened(&wants.to_string());
    if entered.is_news && *other.client_id != *client_id {
        warn!(
            group,
            client_id = shortened(client_id),
            subscriptions = shortened(&entered.wants.to_string()),
            other_client_id = shortened(&other.client_id),
            other_subscriptions = subscriptions,
            "members of a group subscribe to different topics or tags, each misses messages"
        );
    }
    Some(OtherSubscription { group: group.to_owned(), client_id: other.client_id.to_string(), subscriptions })
}

fn create_retry_topic(
    shared: &Shared,
    consumer: &ConsumerData,
    group: &GroupConfig,
) -> Result<Option<Created>, Refusal> {
    let name = system::retry_topic(&group.name);
    let queues = u32::try_from(group.retry_queues).unwrap_or(0);
    if queues == 0 || shared.topics.contains(&name) || !shared.role.is_master() {
        return Ok(None);
    }
    let subscribed = consumer.subscription_data_set.iter();
    let mut topic = TopicConfig::new(name, queues);
    topic.order = subscribed.filter_map(|data| shared.topics.get(&data.topic)).any(|topic| topic.order);
    let changed = shared.topics.create(vec![topic])?;
    let retry_topic = Some(TopicChange { topics: changed.values });
    Ok(changed.written.map(|written| Created { group: group.name.clone(), written, retry_topic }))
}

/// Notifies all members of a group of a change, the new member included: Java's lite pull consumer rebalances before its first
/// heartbeat, finds no member, and would wait 20 s for its next rebalance. Members rebalance by themselves as well, which repairs
/// a lost notice.
fn notify(shared: &Shared, group: &str) {
    let is_wanted = shared.config().notify_consumer_ids_changed
        && !shared.clients.is_broadcasting(group)
        && shared.groups.get(group).is_none_or(|group| group.notify_consumer_ids_changed_enable);
    if !is_wanted {
        return;
    }
    for connection in shared.clients.connections(group) {
        let header = NotifyConsumerIdsChangedRequestHeader { consumer_group: group };
        let notice = Command::request(request::NOTIFY_CONSUMER_IDS_CHANGED, &header);
        if let Err(error) = connection.send_oneway(notice) {
            debug!(group, %error, "member not told of a change of its group");
        }
    }
}

/// Removes an ended connection from its groups.
pub(super) fn disconnected(shared: &Shared, connection_id: u64) {
    shared.offsets.disconnected(connection_id);
    for group in shared.clients.disconnected(connection_id) {
        notify(shared, &group);
    }
}

/// Closes connections whose clients have not sent a heartbeat for too long.
pub(crate) fn expire(shared: &Shared) {
    for connection in shared.clients.silent(shared.config().client_expiry) {
        warn!(peer = %connection.peer(), "client without heartbeat taken out of its groups");
        disconnected(shared, connection.id());
        connection.close();
    }
}

/// UNREGISTER_CLIENT.
pub(super) fn unregister(Call { shared, connection, request }: Call<'_>) -> Answer {
    let header = UnregisterClientRequestHeader::read(&request.ext)?;
    let consumer_group = header.consumer_group.filter(|group| !group.is_empty());
    if shared.clients.leave(connection.id(), header.producer_group, consumer_group)
        && let Some(group) = consumer_group
    {
        notify(shared, group);
    }
    Ok(Response::success())
}

/// CHECK_CLIENT_CONFIG: whether a filter can be served.
pub(super) fn check(Call { shared, request, .. }: Call<'_>) -> Answer {
    let data: CheckClientRequestBody = body(request)?;
    let subscription = &data.subscription_data;
    shared.parsed_filter(subscription.expression_type.as_deref(), &subscription.sub_string)?;
    Ok(Response::success())
}

/// GET_CONSUMER_LIST_BY_GROUP.
pub(super) fn list(Call { shared, request, .. }: Call<'_>) -> Answer {
    let header = GetConsumerListByGroupRequestHeader::read(&request.ext)?;
    let ids = shared.clients.client_ids(header.consumer_group);
    if ids.is_empty() {
        return Err(Refusal::NobodyInGroup { group: header.consumer_group.to_owned() });
    }
    let consumer_id_list = ids.iter().map(ToString::to_string).collect();
    Ok(success_json(&GetConsumerListByGroupResponseBody { consumer_id_list }))
}

/// LOCK_BATCH_MQ: what the client did not hold before is its own once the file has it.
pub(super) fn lock_queues(Call { shared, request, .. }: Call<'_>, reply: Reply) {
    let locked = lock_request(request).and_then(|mut wanted| {
        // A queue that this broker does not have stays out of the answer.
        wanted.mq_set.retain(|queue| is_here(shared, queue));
        let queues = std::mem::take(&mut wanted.mq_set);
        let locked =
            shared.queue_locks.lock(&wanted.consumer_group, &wanted.client_id, queues, Instant::now())?;
        Ok((wanted, locked))
    });
    let (wanted, Locked { held, written }) = match locked {
        Ok(locked) => locked,
        Err(refusal) => return reply.send(refusal.response()),
    };
    let Some(written) = written else {
        return reply.send(success_json(&LockBatchResponseBody { lock_ok_mq_set: held }));
    };
    let owner = shared.clone();
    answer_later(shared, reply, async move {
        if let Err(refusal) = on_disk(Some(written)).await {
            owner.queue_locks.not_written(&wanted.consumer_group, &wanted.client_id, &held);
            return Err(refusal);
        }
        Ok(success_json(&LockBatchResponseBody { lock_ok_mq_set: held }))
    });
}

/// UNLOCK_BATCH_MQ.
pub(super) fn unlock_queues(Call { shared, request, .. }: Call<'_>) -> Answer {
    let wanted = lock_request(request)?;
    shared.queue_locks.unlock(&wanted.consumer_group, &wanted.client_id, &wanted.mq_set);
    Ok(Response::success())
}

fn lock_request(request: &Command) -> Result<LockBatchRequestBody, Refusal> {
    let wanted: LockBatchRequestBody = body(request)?;
    name::check_group(&wanted.consumer_group)?;
    check_client_id(&wanted.client_id)?;
    check_range("the number of queues in mqSet", 0..=MAX_QUEUES as usize, wanted.mq_set.len())?;
    Ok(wanted)
}

fn is_here(shared: &Shared, queue: &MessageQueue) -> bool {
    *queue.broker_name == *shared.config().broker_name
        && shared.topics.get(&queue.topic).is_some_and(|topic| queue.queue_id < topic.queues())
}

/// GET_CONSUMER_CONNECTION_LIST.
pub(super) fn consumer_connections(Call { shared, request, .. }: Call<'_>) -> Answer {
    let header = GetConsumerConnectionListRequestHeader::read(&request.ext)?;
    let Some(view) = shared.clients.consumer_group(header.consumer_group) else {
        return Err(Refusal::ConsumerOffline { group: header.consumer_group.to_owned() });
    };
    Ok(success_json(&ConsumerConnection {
        connection_set: consumers(&view.members),
        consume_from_where: view.consume_from_where,
        consume_type: view.consume_type,
        message_model: view.message_model,
        subscription_table: view
            .subscriptions
            .iter()
            .map(|(topic, subscription)| (topic.clone(), subscription.data.clone()))
            .collect(),
    }))
}

/// GET_PRODUCER_CONNECTION_LIST.
pub(super) fn producer_connections(Call { shared, request, .. }: Call<'_>) -> Answer {
    let header = GetProducerConnectionListRequestHeader::read(&request.ext)?;
    let members = shared.clients.producer_group(header.producer_group);
    if members.is_empty() {
        return Err(Refusal::ProducerOffline { group: header.producer_group.to_owned() });
    }
    Ok(success_json(&ProducerConnection { connection_set: connections(&members) }))
}

fn consumers(consumers: &[Consumer]) -> Vec<ClientConnection> {
    let with_subscriptions = |Consumer { member, wants }: &Consumer| ClientConnection {
        subscriptions: wants.by_topic().clone(),
        ..client_connection(member)
    };
    let mut connections: Vec<ClientConnection> = consumers.iter().map(with_subscriptions).collect();
    connections.sort_unstable();
    connections
}

fn connections(members: &[Member]) -> Vec<ClientConnection> {
    let mut connections: Vec<ClientConnection> = members.iter().map(client_connection).collect();
    connections.sort_unstable();
    connections
}

fn client_connection(member: &Member) -> ClientConnection {
    ClientConnection {
        client_addr: member.connection.peer().to_string(),
        client_id: member.client_id.to_string(),
        language: member.language.name().to_owned(),
        version: member.version,
        subscriptions: BTreeMap::new(),
    }
}

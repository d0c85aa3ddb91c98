//! Requests about live clients: heartbeats, members of groups, locks of queues.
//!
//! # Source
//! docs/reference/protocol.md 2.3.7, 2.3.10, 2.3.11, 2.4.1 and 2.6.3.

use std::collections::BTreeMap;
use std::sync::Arc;

use rocketpy_model::system;
use rocketpy_protocol::body::{
    CheckClientRequestBody, ClientConnection, ConsumerConnection, GetConsumerListByGroupResponseBody,
    HeartbeatData, LockBatchRequestBody, LockBatchResponseBody, OtherSubscription, ProducerConnection,
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

use super::quota::user_of;
use super::rooms::Rooms;
use crate::blocking::on_disk;
use crate::call::{Answer, Call, answer_later, body, success_json};
use crate::ground::Ground;
use crate::members::Members;
use crate::operation::member::{self, Heard};
use crate::refusal::{Refusal, check_range};
use crate::table::client::{Consumer, Member};
use crate::table::queue_lock::Locked;

/// Maximum length of a heartbeat.
const MAX_HEARTBEAT_BYTES: usize = 4 << 20;

/// HEART_BEAT: adds the client to its groups, and creates missing groups and their retry topics.
///
/// A group that refuses the client is skipped: the client's other groups must not expire because of it. What had to be created
/// is on disk before the answer, also before a refusal.
pub(super) fn heartbeat(Call { desk, connection, request }: Call<'_>, reply: Reply) {
    let length = request.body.len();
    let data = check_range("the length of a heartbeat in bytes", 0..=MAX_HEARTBEAT_BYTES, length)
        .and_then(|()| body::<HeartbeatData>(request));
    let last_creation = desk.ground.creations().last();
    let user: Option<Arc<str>> = user_of(desk, request).map(Arc::from);
    let member = |id| {
        let named = (id, user.clone());
        Member::new(connection, named, request.language, request.version, last_creation)
    };
    let heard = data.and_then(|data| member::heartbeat(&desk.ground, &desk.members, &data, member));
    let Heard { changed, created, others, refused } = match heard {
        Ok(heard) => heard,
        Err(refusal) => return reply.send(refusal.response()),
    };
    changed.iter().for_each(|group| send_rebalance_notices(&desk.ground, &desk.members, group));
    let answer = match refused {
        Some(refusal) => refusal.response(),
        None => heartbeat_answer(&others),
    };
    if created.is_empty() {
        return reply.send(answer);
    }
    let owner = desk.clone();
    answer_later(desk.ground.tasks(), reply, async move {
        member::created(&owner.intake, created).await;
        Ok(answer)
    });
}

fn heartbeat_answer(others: &[OtherSubscription]) -> Response {
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

/// Notifies all members of a group of a change, the new member included: Java's lite pull consumer rebalances before its first
/// heartbeat, finds no member, and would wait 20 s for its next rebalance. Members rebalance by themselves as well, which repairs
/// a lost notice.
fn send_rebalance_notices(ground: &Ground, members: &Members, group: &str) {
    let is_wanted = ground.config().notify_consumer_ids_changed
        && !members.clients().is_broadcasting(group)
        && ground.groups().get(group).is_none_or(|group| group.notify_consumer_ids_changed_enable);
    if !is_wanted {
        return;
    }
    for connection in members.clients().connections(group) {
        let header = NotifyConsumerIdsChangedRequestHeader { consumer_group: group };
        let notice = Command::request(request::NOTIFY_CONSUMER_IDS_CHANGED, &header);
        if let Err(error) = connection.send_oneway(notice) {
            debug!(group, %error, "member not notified of a change of its group");
        }
    }
}

/// Removes an ended connection from its groups.
pub(super) fn disconnected(ground: &Ground, members: &Members, rooms: &Rooms, connection_id: u64) {
    members.offsets().disconnected(connection_id);
    rooms.disconnected(connection_id);
    for group in members.clients().disconnected(connection_id) {
        send_rebalance_notices(ground, members, &group);
    }
}

/// Closes connections whose clients have not sent a heartbeat for too long.
pub(crate) fn expire(ground: &Ground, members: &Members, rooms: &Rooms) {
    for connection in members.clients().silent(ground.config().client_expiry) {
        warn!(peer = %connection.peer(), "client without heartbeat removed from its groups");
        disconnected(ground, members, rooms, connection.id());
        connection.close();
    }
}

/// UNREGISTER_CLIENT.
pub(super) fn unregister(Call { desk, connection, request }: Call<'_>) -> Answer {
    let header = UnregisterClientRequestHeader::read(&request.ext)?;
    let consumer_group = header.consumer_group.filter(|group| !group.is_empty());
    if desk.members.clients().leave(connection.id(), header.producer_group, consumer_group)
        && let Some(group) = consumer_group
    {
        send_rebalance_notices(&desk.ground, &desk.members, group);
    }
    Ok(Response::success())
}

/// CHECK_CLIENT_CONFIG: whether a filter can be served.
pub(super) fn check(Call { desk, request, .. }: Call<'_>) -> Answer {
    let data: CheckClientRequestBody = body(request)?;
    let subscription = &data.subscription_data;
    desk.pulls.filter(subscription.expression_type.as_deref(), &subscription.sub_string)?;
    Ok(Response::success())
}

/// GET_CONSUMER_LIST_BY_GROUP.
pub(super) fn list(Call { desk, request, .. }: Call<'_>) -> Answer {
    let header = GetConsumerListByGroupRequestHeader::read(&request.ext)?;
    let ids = desk.members.clients().client_ids(header.consumer_group);
    if ids.is_empty() {
        return Err(Refusal::NobodyInGroup { group: header.consumer_group.to_owned() });
    }
    let consumer_id_list = ids.iter().map(ToString::to_string).collect();
    Ok(success_json(&GetConsumerListByGroupResponseBody { consumer_id_list }))
}

/// LOCK_BATCH_MQ: what the client did not hold before is its own once the file has it.
pub(super) fn lock_queues(Call { desk, request, .. }: Call<'_>, reply: Reply) {
    let locked = body::<LockBatchRequestBody>(request).and_then(|wanted| {
        let LockBatchRequestBody { consumer_group, client_id, mq_set, .. } = wanted;
        let locked = member::lock(&desk.ground, &desk.members, &consumer_group, &client_id, mq_set)?;
        Ok((consumer_group, client_id, locked))
    });
    let (group, client_id, Locked { held, written }) = match locked {
        Ok(locked) => locked,
        Err(refusal) => return reply.send(refusal.response()),
    };
    let Some(written) = written else {
        return reply.send(success_json(&LockBatchResponseBody { lock_ok_mq_set: held }));
    };
    let owner = desk.clone();
    answer_later(desk.ground.tasks(), reply, async move {
        if let Err(refusal) = on_disk(Some(written)).await {
            owner.members.queue_locks().not_written(&group, &client_id, &held);
            return Err(refusal);
        }
        Ok(success_json(&LockBatchResponseBody { lock_ok_mq_set: held }))
    });
}

/// UNLOCK_BATCH_MQ.
pub(super) fn unlock_queues(Call { desk, request, .. }: Call<'_>) -> Answer {
    let wanted: LockBatchRequestBody = body(request)?;
    member::unlock(&desk.members, &wanted.consumer_group, &wanted.client_id, &wanted.mq_set)?;
    Ok(Response::success())
}

/// GET_CONSUMER_CONNECTION_LIST.
pub(super) fn consumer_connections(Call { desk, request, .. }: Call<'_>) -> Answer {
    let header = GetConsumerConnectionListRequestHeader::read(&request.ext)?;
    let Some(view) = desk.members.clients().consumer_group(header.consumer_group) else {
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
pub(super) fn producer_connections(Call { desk, request, .. }: Call<'_>) -> Answer {
    let header = GetProducerConnectionListRequestHeader::read(&request.ext)?;
    let members = desk.members.clients().producer_group(header.producer_group);
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

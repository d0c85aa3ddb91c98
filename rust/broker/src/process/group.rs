//! Requests about consumer groups.
//!
//! # Source
//! docs/reference/protocol.md 2.6.2 and 2.6.3.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use rocketpy_model::{GroupConfig, MessageQueue, QueueOffset};
use rocketpy_protocol::body::{
    ConsumeStats, GroupForbidden, GroupList, OffsetWrapper, SubscriptionGroupList,
};
use rocketpy_protocol::header::{
    DeleteSubscriptionGroupRequestHeader, GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader, GetConsumeStatsRequestHeader,
    GetSubscriptionGroupConfigRequestHeader, Header, QueryTopicConsumeByWhoRequestHeader,
    UpdateGroupForbiddenRequestHeader,
};
use rocketpy_remoting::{Reply, Response};
use rocketpy_store::Store;
use tracing::info;

use super::page::Page;
use super::topic::left_to_master;
use crate::blocking::on_disk;
use crate::call::{Answer, Call, answer_later, body, success_json, success_json_with};
use crate::desk::Desk;
use crate::ground::Ground;
use crate::members::Members;
use crate::metrics::Metric;
use crate::operation::group;
use crate::refusal::Refusal;
use crate::table::offset::OffsetTable;

/// UPDATE_AND_CREATE_SUBSCRIPTIONGROUP.
pub(super) fn put(Call { desk, request, .. }: Call<'_>, reply: Reply) {
    put_all(desk, body::<GroupConfig>(request).map(|group| vec![group]), reply);
}

/// UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: all or none.
pub(super) fn put_list(Call { desk, request, .. }: Call<'_>, reply: Reply) {
    put_all(desk, body::<SubscriptionGroupList>(request).map(|list| list.group_config_list), reply);
}

fn put_all(desk: &Arc<Desk>, wanted: Result<Vec<GroupConfig>, Refusal>, reply: Reply) {
    let begun = Instant::now();
    let changed = wanted
        .and_then(|groups| group::put_all(&desk.ground, groups.clone()).map(|written| (groups, written)));
    let (groups, written) = match changed {
        Ok(changed) => changed,
        Err(refusal) => {
            desk.ground.metrics().created(Metric::GroupCreation, begun.elapsed(), false);
            return reply.send(refusal.response());
        }
    };
    let owner = desk.clone();
    answer_later(desk.ground.tasks(), reply, async move {
        let stored = on_disk(written).await;
        owner.ground.metrics().created(Metric::GroupCreation, begun.elapsed(), stored.is_ok());
        stored?;
        for GroupConfig { name, .. } in &groups {
            info!(group = name, "consumer group created or changed");
        }
        group::make_retry_topics(&owner.ground, &owner.intake, &groups).await;
        owner.acks.tables_at_slaves().have_change().await?;
        Ok(Response::success())
    });
}

/// DELETE_SUBSCRIPTIONGROUP. At a slave see [`left_to_master`].
pub(super) fn delete(Call { desk, request, .. }: Call<'_>, reply: Reply) {
    let header = DeleteSubscriptionGroupRequestHeader::read(&request.ext).map_err(Refusal::from);
    let wanted = header.and_then(|header| {
        group::check_delete(header.group_name)?;
        Ok((header.group_name.to_owned(), header.clean_offset.unwrap_or(false)))
    });
    let (group, clean_offset) = match wanted {
        Ok((group, _)) if !desk.ground.role().is_master() => {
            return reply.send(left_to_master("consumer group", &group));
        }
        Ok(wanted) => wanted,
        Err(refusal) => return reply.send(refusal.response()),
    };
    let owner = desk.clone();
    answer_later(desk.ground.tasks(), reply, async move {
        group::delete(&owner.ground, &owner.members, &group, clean_offset).await?;
        owner.acks.tables_at_slaves().have_change().await?;
        Ok(Response::success())
    });
}

/// GET_SUBSCRIPTIONGROUP_CONFIG. A missing group is not created.
pub(super) fn get(Call { desk, request, .. }: Call<'_>) -> Answer {
    let header = GetSubscriptionGroupConfigRequestHeader::read(&request.ext)?;
    let group = desk.ground.groups().get(header.group);
    Ok(success_json(&*group.ok_or_else(|| Refusal::NoGroup { group: header.group.to_owned() })?))
}

/// UPDATE_AND_GET_GROUP_FORBIDDEN: whether a group may read a topic, after a change of it if the request says so.
pub(super) fn forbid(Call { desk, request, .. }: Call<'_>, reply: Reply) {
    let header = UpdateGroupForbiddenRequestHeader::read(&request.ext).map_err(Refusal::from);
    let wanted = header.and_then(|header| {
        let (group, topic) = (header.group.to_owned(), header.topic.to_owned());
        let written = group::set_readable(&desk.ground, &group, &topic, header.readable)?;
        Ok((group, topic, header.readable.map(|_| written)))
    });
    let (group, topic, changed) = match wanted {
        Ok(wanted) => wanted,
        Err(refusal) => return reply.send(refusal.response()),
    };
    let owner = desk.clone();
    answer_later(desk.ground.tasks(), reply, async move {
        let readable = !owner.ground.groups().is_read_forbidden(&group, &topic);
        if let Some(written) = changed {
            on_disk(written).await?;
            info!(group, topic, readable, "read permission of a group for a topic changed");
        }
        Ok(success_json(&GroupForbidden { group, topic, readable }))
    });
}

/// GET_ALL_SUBSCRIPTIONGROUP_CONFIG.
pub(super) fn all(Call { desk, request, .. }: Call<'_>) -> Answer {
    let header = GetAllSubscriptionGroupRequestHeader::read(&request.ext)?;
    let mut groups = desk.ground.groups().all();
    let page = Page::of(header.group_seq, header.max_group_num);
    let total_group_num = page.map(|page| page.cut(&mut groups.subscription_group_table));
    Ok(success_json_with(&GetAllSubscriptionGroupResponseHeader { total_group_num }, &groups))
}

/// QUERY_TOPIC_CONSUME_BY_WHO: groups that subscribe to a topic now, or have offsets for it.
pub(super) fn of_topic(Call { desk, request, .. }: Call<'_>) -> Answer {
    let header = QueryTopicConsumeByWhoRequestHeader::read(&request.ext)?;
    let mut groups: BTreeSet<String> = desk.members.offsets().groups_of(header.topic).into_iter().collect();
    groups.extend(desk.members.clients().groups_subscribed_to(header.topic));
    Ok(success_json(&GroupList { group_list: groups.into_iter().collect() }))
}

/// GET_CONSUME_STATS: end of every queue with the group's offset, and the message rate per second of the last minute.
pub(super) fn consume_stats(Call { desk, connection, request }: Call<'_>) -> Answer {
    let header = GetConsumeStatsRequestHeader::read(&request.ext)?;
    let group = header.consumer_group;
    let mut stats = ConsumeStats::default();
    for topic in topics(&desk.ground, &desk.members, &header) {
        if !connection.is_open() {
            break; // nobody waits for the rest
        }
        let Some(config) = desk.ground.topics().get(&topic) else { continue };
        add_progress(desk, &mut stats, group, &topic, config.read_queues)?;
    }
    Ok(success_json(&stats))
}

/// Adds the queues of a topic, and the rate at which the group reads it.
pub(super) fn add_progress(
    desk: &Desk,
    stats: &mut ConsumeStats,
    group: &str,
    topic: &str,
    queues: u32,
) -> Result<(), Refusal> {
    stats.consume_tps += desk.ground.metrics().get_rate(Instant::now(), group, topic);
    let (name, broker_name): (Arc<str>, Arc<str>) =
        (topic.into(), desk.ground.config().broker_name.as_str().into());
    for queue_id in 0..queues {
        let progress = progress(desk.ground.store(), desk.members.offsets(), group, topic, queue_id)?;
        let queue = MessageQueue { topic: name.clone(), broker_name: broker_name.clone(), queue_id };
        stats.offset_table.insert(queue, progress);
    }
    Ok(())
}

fn topics(ground: &Ground, members: &Members, header: &GetConsumeStatsRequestHeader<'_>) -> BTreeSet<String> {
    let listed = header.topic_list.into_iter().flat_map(|list| list.split(';')).map(str::trim);
    let mut listed = listed.filter(|topic| !topic.is_empty()).peekable();
    if listed.peek().is_some() {
        return listed.filter(|topic| ground.topics().get(topic).is_some()).map(str::to_owned).collect();
    }
    let group = header.consumer_group;
    let topics = match header.topic.filter(|topic| !topic.is_empty()) {
        Some(topic) => BTreeSet::from([topic.to_owned()]),
        None => members.offsets().topics_of(group).into_iter().collect(),
    };
    match members.clients().subscribed_topics(group) {
        Some(subscribed) => topics.into_iter().filter(|topic| subscribed.contains(topic)).collect(),
        None => topics,
    }
}

fn progress(
    store: &Store,
    offsets: &OffsetTable,
    group: &str,
    topic: &str,
    queue_id: u32,
) -> Result<OffsetWrapper, Refusal> {
    let broker_offset = store.queue_bounds(topic, queue_id).max.to_wire();
    let consumer_offset = offsets.get(group, topic, queue_id).unwrap_or(0).max(0);
    let last = u64::try_from(consumer_offset - 1).ok().map(QueueOffset);
    let last_at_ms = match last {
        Some(last) => store.stored_at(topic, queue_id, last)?.unwrap_or(0),
        None => 0,
    };
    let pulled = offsets.last_pulled(group, topic, queue_id).unwrap_or(0);
    Ok(OffsetWrapper { broker_offset, consumer_offset, last_at_ms, pull_offset: pulled.max(consumer_offset) })
}

//! Requests about consumer groups.
//!
//! # Source
//! docs/reference/protocol.md 2.6.2 and 2.6.3.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use rocketpy_model::{GroupConfig, MessageQueue, QueueOffset, name};
use rocketpy_protocol::body::{ConsumeStats, GroupForbidden, GroupList, OffsetWrapper};
use rocketpy_protocol::header::{
    DeleteSubscriptionGroupRequestHeader, GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader, GetConsumeStatsRequestHeader, Header,
    QueryTopicConsumeByWhoRequestHeader, UpdateGroupForbiddenRequestHeader,
};
use rocketpy_remoting::{Reply, Response};
use tracing::info;

use super::offset::signed;
use super::page::Page;
use crate::call::{Answer, Call, answer_later, body, on_disk, success_json, success_json_with};
use crate::refusal::{Refusal, check_group_of_clients, check_range};
use crate::role::OfMaster;
use crate::shared::Shared;
use crate::table::topic::MAX_QUEUES;

/// Most attributes of a group, topics that it is bound to, and delays that it has of its own.
const MAX_PARTS: usize = 64;
/// Most bytes of an attribute's name, of its value, and of an expression.
const MAX_TEXT_BYTES: usize = 1024;

/// UPDATE_AND_CREATE_SUBSCRIPTIONGROUP.
pub(super) fn put(Call { shared, request, .. }: Call<'_>, reply: Reply) {
    let changed = body::<GroupConfig>(request).and_then(|group| {
        shared.check_master(OfMaster::Change)?;
        check(&group)?;
        let name = group.name.clone();
        Ok((name, shared.groups.put(group)?))
    });
    let (name, changed) = match changed {
        Ok(changed) => changed,
        Err(refusal) => return reply.send(refusal.response()),
    };
    answer_later(shared, reply, async move {
        on_disk(changed.written).await?;
        info!(group = name, "consumer group created or changed");
        Ok(Response::success())
    });
}

/// Whether the configuration may be stored: everything in it is bounded.
fn check(group: &GroupConfig) -> Result<(), Refusal> {
    name::check_group(&group.name)?;
    // Of queues because each becomes a file; of tries because more make no sense.
    check_range("retryQueueNums", 0..=MAX_QUEUES as usize, group.retry_queues)?;
    check_range("retryMaxTimes", 0..=MAX_QUEUES as usize, group.retry_max_times)?;
    check_range("the number of attributes", 0..=MAX_PARTS, group.attributes.len())?;
    for text in group.attributes.iter().flat_map(|(name, value)| [name, value]) {
        check_range("the length of a text in attributes", 0..=MAX_TEXT_BYTES, text.len())?;
    }
    let subscriptions = group.subscriptions.as_deref().unwrap_or_default();
    check_range("the number of entries in subscriptionDataSet", 0..=MAX_PARTS, subscriptions.len())?;
    for subscription in subscriptions {
        name::check_topic(&subscription.topic)?;
        for text in [&subscription.expression, &subscription.expression_type] {
            check_range("the length of a text in subscriptionDataSet", 0..=MAX_TEXT_BYTES, text.len())?;
        }
    }
    let delays = group.retry_policy.customized_retry_policy.as_ref().map_or(0, |policy| policy.next.len());
    check_range("the number of delays in groupRetryPolicy", 0..=MAX_PARTS, delays)
}

/// DELETE_SUBSCRIPTIONGROUP.
pub(super) fn delete(Call { shared, request, .. }: Call<'_>, reply: Reply) {
    let header = DeleteSubscriptionGroupRequestHeader::read(&request.ext).map_err(Refusal::from);
    let wanted = header.and_then(|header| {
        shared.check_master(OfMaster::Change)?;
        name::check_group(header.group_name)?;
        check_group_of_clients(header.group_name)?;
        Ok((header.group_name.to_owned(), header.clean_offset.unwrap_or(false)))
    });
    let (group, clean_offset) = match wanted {
        Ok(wanted) => wanted,
        Err(refusal) => return reply.send(refusal.response()),
    };
    let owner = shared.clone();
    answer_later(shared, reply, async move {
        on_disk(owner.groups.remove(&group)?).await?;
        if clean_offset {
            on_disk(owner.offsets.remove_group(&group)?).await?;
        }
        info!(group, "consumer group deleted");
        Ok(Response::success())
    });
}

/// UPDATE_AND_GET_GROUP_FORBIDDEN: whether a group may read a topic, after a change of it if the request says so.
pub(super) fn forbid(Call { shared, request, .. }: Call<'_>, reply: Reply) {
    let wanted =
        UpdateGroupForbiddenRequestHeader::read(&request.ext).map_err(Refusal::from).and_then(|header| {
            let (group, topic) = (header.group.to_owned(), header.topic.to_owned());
            if shared.groups.get(&group).is_none() {
                return Err(Refusal::NoGroup { group });
            }
            if shared.topics.get(&topic).is_none() {
                return Err(Refusal::NoTopic { topic });
            }
            if header.readable.is_some() {
                shared.check_master(OfMaster::Change)?;
            }
            let changed =
                header.readable.map(|readable| shared.groups.set_readable(&group, &topic, readable));
            Ok((group, topic, changed.transpose()?))
        });
    let (group, topic, changed) = match wanted {
        Ok(wanted) => wanted,
        Err(refusal) => return reply.send(refusal.response()),
    };
    let owner = shared.clone();
    answer_later(shared, reply, async move {
        let readable = !owner.groups.is_read_forbidden(&group, &topic);
        if let Some(written) = changed {
            on_disk(written).await?;
            info!(group, topic, readable, "topic forbidden to a group, or allowed again");
        }
        Ok(success_json(&GroupForbidden { group, topic, readable }))
    });
}

/// GET_ALL_SUBSCRIPTIONGROUP_CONFIG.
pub(super) fn all(Call { shared, request, .. }: Call<'_>) -> Answer {
    let header = GetAllSubscriptionGroupRequestHeader::read(&request.ext)?;
    let mut groups = shared.groups.all();
    let page = Page::of(header.group_seq, header.max_group_num);
    let total_group_num = page.map(|page| page.cut(&mut groups.subscription_group_table));
    Ok(success_json_with(&GetAllSubscriptionGroupResponseHeader { total_group_num }, &groups))
}

/// QUERY_TOPIC_CONSUME_BY_WHO: groups that subscribe to a topic now, or have offsets for it.
pub(super) fn of_topic(Call { shared, request, .. }: Call<'_>) -> Answer {
    let header = QueryTopicConsumeByWhoRequestHeader::read(&request.ext)?;
    let mut groups: BTreeSet<String> = shared.offsets.groups_of(header.topic).into_iter().collect();
    groups.extend(shared.clients.groups_subscribed_to(header.topic));
    Ok(success_json(&GroupList { group_list: groups.into_iter().collect() }))
}

/// GET_CONSUME_STATS: every queue's end beside the group's offset, and how many messages a second it took in the last minute.
pub(super) fn consume_stats(Call { shared, connection, request }: Call<'_>) -> Answer {
    let header = GetConsumeStatsRequestHeader::read(&request.ext)?;
    let group = header.consumer_group;
    let mut stats = ConsumeStats::default();
    for topic in topics(shared, &header) {
        if !connection.is_open() {
            break; // nobody waits for the rest
        }
        let Some(config) = shared.topics.get(&topic) else { continue };
        stats.consume_tps += shared.rates.get_rate(Instant::now(), group, &topic);
        let name: Arc<str> = topic.as_str().into();
        for queue_id in 0..config.read_queues {
            let progress = progress(shared, group, &topic, queue_id)?;
            let broker_name = shared.config().broker_name.as_str().into();
            stats.offset_table.insert(MessageQueue { topic: name.clone(), broker_name, queue_id }, progress);
        }
    }
    Ok(success_json(&stats))
}

fn topics(shared: &Shared, header: &GetConsumeStatsRequestHeader<'_>) -> BTreeSet<String> {
    let listed = header.topic_list.into_iter().flat_map(|list| list.split(';')).map(str::trim);
    let mut listed = listed.filter(|topic| !topic.is_empty()).peekable();
    if listed.peek().is_some() {
        return listed.filter(|topic| shared.topics.get(topic).is_some()).map(str::to_owned).collect();
    }
    let group = header.consumer_group;
    let topics = match header.topic.filter(|topic| !topic.is_empty()) {
        Some(topic) => BTreeSet::from([topic.to_owned()]),
        None => shared.offsets.topics_of(group).into_iter().collect(),
    };
    match shared.clients.subscribed_topics(group) {
        Some(subscribed) => topics.into_iter().filter(|topic| subscribed.contains(topic)).collect(),
        None => topics,
    }
}

fn progress(shared: &Shared, group: &str, topic: &str, queue_id: u32) -> Result<OffsetWrapper, Refusal> {
    let broker_offset = signed(shared.store.queue_bounds(topic, queue_id).max.get());
    let consumer_offset = shared.offsets.get(group, topic, queue_id).unwrap_or(0);
    let last = u64::try_from(consumer_offset - 1).ok().map(QueueOffset);
    let last_at_ms = match last {
        Some(last) => shared.store.stored_at(topic, queue_id, last)?.unwrap_or(0),
        None => 0,
    };
    let pulled = shared.offsets.last_pulled(group, topic, queue_id).unwrap_or(0);
    Ok(OffsetWrapper { broker_offset, consumer_offset, last_at_ms, pull_offset: pulled.max(consumer_offset) })
}

//! Requests about consumer groups.
//!
//! # Source
//! docs/reference/protocol.md 2.6.2 and 2.6.3.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use rocketpy_model::{GroupConfig, MessageQueue, QueueOffset, name};
use rocketpy_protocol::body::{ConsumeStats, GroupList, OffsetWrapper};
use rocketpy_protocol::header::{
    DeleteSubscriptionGroupRequestHeader, GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader, GetConsumeStatsRequestHeader, Header,
    QueryTopicConsumeByWhoRequestHeader,
};
use rocketpy_remoting::Response;
use tracing::info;

use super::offset::signed;
use super::page::Page;
use crate::blocking::blocking;
use crate::call::{Answer, Call, body, success_json, success_json_with};
use crate::refusal::Refusal;
use crate::shared::Shared;
use crate::table::topic::MAX_QUEUES;

/// UPDATE_AND_CREATE_SUBSCRIPTIONGROUP.
pub(super) fn put(Call { shared, request, .. }: Call<'_>) -> Answer {
    let group: GroupConfig = body(request)?;
    name::check_group(&group.name)?;
    bounded("retryQueueNums", group.retry_queues)?;
    bounded("retryMaxTimes", group.retry_max_times)?;
    let group = blocking(|| shared.groups.put(group))?;
    info!(group = group.name, "consumer group created or changed");
    Ok(Response::success())
}

/// Bounds a number from outside: of queues, because each becomes a file, and of tries, where more make no sense.
fn bounded(field: &'static str, value: i32) -> Result<(), Refusal> {
    if (0..=MAX_QUEUES as i32).contains(&value) {
        return Ok(());
    }
    Err(Refusal::Value { field, wanted: "0 to 16384", value: value.to_string() })
}

/// DELETE_SUBSCRIPTIONGROUP.
pub(super) fn delete(Call { shared, request, .. }: Call<'_>) -> Answer {
    let header = DeleteSubscriptionGroupRequestHeader::read(&request.ext)?;
    name::check_group(header.group_name)?;
    blocking(|| shared.groups.remove(header.group_name))?;
    if header.clean_offset.unwrap_or(false) {
        blocking(|| shared.offsets.remove_group(header.group_name))?;
    }
    info!(group = header.group_name, "consumer group deleted");
    Ok(Response::success())
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
pub(super) fn consume_stats(Call { shared, request, .. }: Call<'_>) -> Answer {
    let header = GetConsumeStatsRequestHeader::read(&request.ext)?;
    let group = header.consumer_group;
    let mut stats = ConsumeStats::default();
    for topic in topics(shared, &header) {
        let Some(config) = shared.topics.get(&topic) else { continue };
        stats.consume_tps += shared.rates.get_rate(Instant::now(), group, &topic);
        let name: Arc<str> = topic.as_str().into();
        for queue_id in 0..config.read_queues {
            let progress = progress(shared, group, &topic, queue_id)?;
            let broker_name = shared.config.broker_name.as_str().into();
            stats.offset_table.insert(MessageQueue { topic: name.clone(), broker_name, queue_id }, progress);
        }
    }
    Ok(success_json(&stats))
}

fn topics(shared: &Shared, header: &GetConsumeStatsRequestHeader<'_>) -> Vec<String> {
    let listed = header.topic_list.into_iter().flat_map(|list| list.split(';'));
    let listed: Vec<String> =
        listed.map(str::trim).filter(|topic| !topic.is_empty()).map(str::to_owned).collect();
    if !listed.is_empty() {
        return listed;
    }
    let group = header.consumer_group;
    let topics = match header.topic.filter(|topic| !topic.is_empty()) {
        Some(topic) => vec![topic.to_owned()],
        None => shared.offsets.topics_of(group),
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

//! Requests about topics.
//!
//! # Source
//! docs/reference/protocol.md 2.6.1.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use rocketpy_model::{MessageQueue, Permission, QueueOffset, TopicConfig, TopicFilterType};
use rocketpy_protocol::body::{
    CreateTopicListRequestBody, TopicConfigSerializeWrapper, TopicOffset, TopicStatsTable,
};
use rocketpy_protocol::header::{
    CreateTopicRequestHeader, DeleteTopicRequestHeader, GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader, GetTopicConfigRequestHeader, GetTopicStatsInfoRequestHeader, Header,
};
use rocketpy_remoting::{Reply, Response};
use tracing::info;

use super::page::Page;
use crate::call::{Answer, Call, answer_later, body, success_json, success_json_with};
use crate::desk::Desk;
use crate::metrics::Metric;
use crate::operation::topic::{self, AttributeChange};
use crate::put::{AckCondition, acknowledge};
use crate::refusal::{Refusal, check_range};
use crate::table::named::Changed;
use crate::table::topic::{MAX_QUEUES, TopicTable};
use crate::{TopicRules, topic_attribute};

/// UPDATE_AND_CREATE_TOPIC.
pub(super) fn put(Call { desk, request, .. }: Call<'_>, reply: Reply) {
    let begun = Instant::now();
    let changed = CreateTopicRequestHeader::read(&request.ext).map_err(Refusal::from).and_then(|header| {
        topic::check_own(&desk.ground, header.topic)?;
        let rules = desk.ground.config().topics;
        let changes = attribute_changes(header.attributes.unwrap_or_default(), rules)?;
        topic::put_all(&desk.ground, vec![(wanted_topic(&header)?, changes)])
    });
    answer_change(desk, begun, changed, reply);
}

/// UPDATE_AND_CREATE_TOPIC_LIST: all or none.
pub(super) fn put_list(Call { desk, request, .. }: Call<'_>, reply: Reply) {
    let begun = Instant::now();
    let changed = body::<CreateTopicListRequestBody>(request).and_then(|list| {
        let rules = desk.ground.config().topics;
        let attributes: Vec<_> =
            list.topic_config_list.iter().map(|topic| topic.attributes.clone()).collect();
        let changes = attributes.iter().map(|attributes| listed_changes(attributes, rules));
        let changes: Vec<_> = changes.collect::<Result<_, _>>()?;
        let whole = |mut topic: TopicConfig| {
            topic.attributes.clear();
            topic
        };
        let wanted = list.topic_config_list.into_iter().map(whole).zip(changes);
        topic::put_all(&desk.ground, wanted.collect())
    });
    answer_change(desk, begun, changed, reply);
}

/// Answers once a change of topics is stored, and name servers know it.
fn answer_change(
    desk: &Arc<Desk>,
    begun: Instant,
    changed: Result<Changed<TopicConfig>, Refusal>,
    reply: Reply,
) {
    let changed = match changed {
        Ok(changed) => changed,
        Err(refusal) => {
            desk.ground.metrics().created(Metric::TopicCreation, begun.elapsed(), false);
            return reply.send(refusal.response());
        }
    };
    let owner = desk.clone();
    desk.ground.tasks().spawn(async move {
        let shrunk = topic::shrunk(&changed);
        let stored = topic::put_and_age(&owner.ground, changed).await;
        for topic in shrunk {
            super::held::resume_all(&owner, |held| held.of_topic(&topic.name)).await;
        }
        owner.ground.metrics().created(Metric::TopicCreation, begun.elapsed(), stored.is_ok());
        match stored {
            Err(refusal) => reply.send(refusal.response()),
            Ok(change) => {
                let mut condition = AckCondition::default();
                if !change.topics.is_empty() {
                    // A route query right after the answer finds the topic.
                    condition.announced = owner.intake.announce(&change);
                }
                if let Err(refusal) = owner.acks.tables_at_slaves().have_change().await {
                    return reply.send(refusal.response());
                }
                acknowledge(&owner.acks, condition, reply, Response::success());
            }
        }
    });
}

/// Topic of the request, without attributes.
fn wanted_topic(header: &CreateTopicRequestHeader<'_>) -> Result<TopicConfig, Refusal> {
    Ok(TopicConfig {
        attributes: BTreeMap::new(),
        order: header.order.unwrap_or(false),
        perm: Permission(header.perm),
        read_queues: queues("readQueueNums", header.read_queue_nums)?,
        filter_type: match header.topic_filter_type {
            "MULTI_TAG" => TopicFilterType::MultiTag,
            _ => TopicFilterType::SingleTag,
        },
        name: header.topic.to_owned(),
        sys_flag: header.topic_sys_flag.unwrap_or(0),
        write_queues: queues("writeQueueNums", header.write_queue_nums)?,
    })
}

fn queues(field: &'static str, value: i32) -> Result<u32, Refusal> {
    check_range(field, 1..=MAX_QUEUES as usize, value)?;
    Ok(value.unsigned_abs())
}

/// Maximum number of changes of attributes in one request. A topic has one attribute here.
const MAX_ATTRIBUTE_CHANGES: usize = 64;

/// Reads changes such as `+name=value,-name`.
fn attribute_changes(text: &str, rules: TopicRules) -> Result<Vec<AttributeChange<'_>>, Refusal> {
    if text.split(',').nth(MAX_ATTRIBUTE_CHANGES).is_some() {
        let (field, wanted) = ("attributes", "at most 64 changes");
        return Err(Refusal::Value { field, wanted, value: format!("{} bytes", text.len()) });
    }
    let change = |part| {
        let part: &str = part;
        if let Some(name) = part.strip_prefix('-') {
            return Ok((name, None));
        }
        let (name, value) = part.strip_prefix('+').and_then(|pair| pair.split_once('=')).unwrap_or_default();
        checked(name, value, part, rules)
    };
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(change).collect()
}

/// Reads the attributes of a topic of a list: `+name` or `name` sets one, `-name` removes it.
fn listed_changes(
    attributes: &BTreeMap<String, String>,
    rules: TopicRules,
) -> Result<Vec<AttributeChange<'_>>, Refusal> {
    check_range("the number of attributes", 0..=MAX_ATTRIBUTE_CHANGES, attributes.len())?;
    let change = attributes.iter().map(|(name, value)| match name.strip_prefix('-') {
        Some(name) => Ok((name, None)),
        None => checked(name.strip_prefix('+').unwrap_or(name), value, name, rules),
    });
    change.collect()
}

/// Checks an attribute, which the request wrote as `written`.
fn checked<'a>(
    name: &'a str,
    value: &'a str,
    written: &str,
    rules: TopicRules,
) -> Result<AttributeChange<'a>, Refusal> {
    match topic_attribute::check(name, value, rules) {
        Ok(()) => Ok((name, Some(value))),
        Err(why) => Err(Refusal::Attribute { attribute: written.to_owned(), why }),
    }
}

/// DELETE_TOPIC_IN_BROKER: the topic, its queues and the offsets stored for it. At a slave see [`left_to_master`].
pub(super) fn delete(Call { desk, request, .. }: Call<'_>, reply: Reply) {
    let topic = DeleteTopicRequestHeader::read(&request.ext).map_err(Refusal::from).and_then(|header| {
        topic::check_own(&desk.ground, header.topic)?;
        Ok(header.topic.to_owned())
    });
    match topic {
        Ok(topic) if !desk.ground.role().is_master() => reply.send(left_to_master("topic", &topic)),
        Ok(topic) => {
            let owner = desk.clone();
            answer_later(desk.ground.tasks(), reply, async move {
                topic::delete(&owner.ground, &owner.members, &topic).await?;
                super::held::resume_all(&owner, |held| held.of_topic(&topic)).await;
                owner.acks.tables_at_slaves().have_change().await?;
                Ok(Response::success())
            });
        }
        Err(refusal) => reply.send(refusal.response()),
    }
}

/// CLEAN_UNUSED_TOPIC.
pub(super) fn clean_unused(Call { desk, .. }: Call<'_>, reply: Reply) {
    let owner = desk.clone();
    answer_later(desk.ground.tasks(), reply, async move {
        topic::clean_unused(&owner.ground, &owner.members).await?;
        Ok(Response::success())
    });
}

/// Answer of a slave to a deletion. Tools ask all brokers of a cluster, the master first, and stop at an error. The slave changes nothing by
/// itself: its copy of the master's tables loses the entry with the next synchronisation.
pub(super) fn left_to_master(kind: &str, name: &str) -> Response {
    info!(kind, name, "deletion left to the master, whose tables this slave copies");
    let mut response = Response::success();
    response.command.remark =
        Some(format!("{kind} {name} ends on this slave when its master has deleted it"));
    response
}

/// GET_ALL_TOPIC_CONFIG.
pub(super) fn all(Call { desk, request, .. }: Call<'_>) -> Answer {
    let header = GetAllTopicConfigRequestHeader::read(&request.ext)?;
    let (data_version, mut topic_config_table) = desk.ground.topics().all();
    let page = Page::of(header.topic_seq, header.max_topic_num);
    let total_topic_num = page.map(|page| page.cut(&mut topic_config_table));
    let body = TopicConfigSerializeWrapper { data_version, topic_config_table, ..Default::default() };
    Ok(success_json_with(&GetAllTopicConfigResponseHeader { total_topic_num }, &body))
}

/// GET_TOPIC_CONFIG.
pub(super) fn get(Call { desk, request, .. }: Call<'_>) -> Answer {
    let header = GetTopicConfigRequestHeader::read(&request.ext)?;
    Ok(success_json(&*existing(desk.ground.topics(), header.topic)?))
}

/// GET_TOPIC_STATS_INFO: the bounds of every queue, and how many messages a second came in the last minute.
pub(super) fn stats(Call { desk, connection, request }: Call<'_>) -> Answer {
    let header = GetTopicStatsInfoRequestHeader::read(&request.ext)?;
    let topic = existing(desk.ground.topics(), header.topic)?;
    let broker_name: Arc<str> = desk.ground.config().broker_name.as_str().into();
    let name: Arc<str> = topic.name.as_str().into();
    let mut offset_table = BTreeMap::new();
    for queue_id in 0..topic.queues() {
        if !connection.is_open() {
            break; // nobody waits for the rest
        }
        let bounds = desk.ground.store().queue_bounds(&name, queue_id);
        let last = bounds.max.get().checked_sub(1).filter(|last| *last >= bounds.min.get());
        let last_update_at_ms = match last {
            Some(last) => desk.ground.store().stored_at(&name, queue_id, QueueOffset(last))?.unwrap_or(0),
            None => 0,
        };
        let queue = MessageQueue { topic: name.clone(), broker_name: broker_name.clone(), queue_id };
        let (min_offset, max_offset) = (bounds.min.to_wire(), bounds.max.to_wire());
        offset_table.insert(queue, TopicOffset { last_update_at_ms, max_offset, min_offset });
    }
    let topic_put_tps = desk.ground.metrics().put_rate(Instant::now(), &name);
    Ok(success_json(&TopicStatsTable { offset_table, topic_put_tps }))
}

fn existing(topics: &TopicTable, topic: &str) -> Result<Arc<TopicConfig>, Refusal> {
    topics.get(topic).ok_or_else(|| Refusal::NoTopic { topic: topic.to_owned() })
}

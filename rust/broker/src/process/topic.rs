//! Requests about topics.
//!
//! # Source
//! docs/reference/protocol.md 2.6.1.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use rocketpy_model::{MessageQueue, Permission, QueueOffset, TopicConfig, TopicFilterType, name};
use rocketpy_protocol::body::{TopicConfigSerializeWrapper, TopicOffset, TopicStatsTable};
use rocketpy_protocol::header::{
    CreateTopicRequestHeader, DeleteTopicRequestHeader, GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader, GetTopicConfigRequestHeader, GetTopicStatsInfoRequestHeader, Header,
};
use rocketpy_remoting::{Reply, Response};
use tracing::info;

use super::offset::signed;
use super::page::Page;
use crate::call::{Answer, Call, answer_later, aside, on_disk, success_json, success_json_with};
use crate::put::{AckCondition, acknowledge};
use crate::refusal::{Refusal, check_range};
use crate::role::OfMaster;
use crate::shared::Shared;
use crate::table::named::Changed;
use crate::table::topic::{MAX_QUEUES, TopicChange, is_system};
use crate::topic_attribute;

/// UPDATE_AND_CREATE_TOPIC.
pub(super) fn put(Call { shared, request, .. }: Call<'_>, reply: Reply) {
    let wanted = CreateTopicRequestHeader::read(&request.ext).map_err(Refusal::from);
    let changed = wanted.and_then(|header| {
        check_own(shared, header.topic)?;
        let (topic, changes) =
            (wanted_topic(&header)?, attribute_changes(header.attributes.unwrap_or_default())?);
        shared.topics.update(header.topic, |old| {
            let old = old.map(|old| old.attributes.clone()).unwrap_or_default();
            Ok(TopicConfig { attributes: changed(old, &changes), ..topic })
        })
    });
    let changed = match changed {
        Ok(changed) => changed,
        Err(refusal) => return reply.send(refusal.response()),
    };
    let owner = shared.clone();
    shared.tasks.spawn(async move {
        match put_and_age(&owner, changed).await {
            Err(refusal) => reply.send(refusal.response()),
            Ok(change) => {
                let mut condition = AckCondition::default();
                if !change.topics.is_empty() {
                    // A route query right after the answer finds the topic.
                    condition.announced = owner.announce(&change);
                }
                acknowledge(&owner, condition, reply, Response::success());
            }
        }
    });
}

/// Waits until the topic is stored, and puts its retention into force.
async fn put_and_age(shared: &Arc<Shared>, changed: Changed<TopicConfig>) -> Result<TopicChange, Refusal> {
    let is_aged = changed.values.iter().chain(&changed.replaced).any(|topic| topic_attribute::is_aged(topic));
    let change = TopicChange { topics: changed.values };
    on_disk(changed.written).await?;
    for (topic, before) in change.topics.iter().zip(&changed.replaced) {
        if topic.queues() < before.queues() {
            leave_queues(shared, &topic.name, topic.queues()).await;
        }
    }
    for topic in &change.topics {
        info!(
            topic = topic.name,
            queues = topic.queues(),
            perm = topic.perm.bits(),
            "topic created or changed"
        );
    }
    if is_aged {
        set_topic_retention(shared).await?;
    }
    Ok(change)
}

/// Ends what members hold of the queues of a topic from this one on: their locks, and their pulls.
async fn leave_queues(shared: &Arc<Shared>, topic: &str, from: u32) {
    shared.queue_locks.remove_queues(topic, from);
    super::held::resume_all(shared, |held| held.of_topic(topic)).await;
}

async fn set_topic_retention(shared: &Arc<Shared>) -> Result<(), Refusal> {
    let owner = shared.clone();
    Ok(aside(move || owner.set_topic_retention()).await?)
}

/// What the request says, without attributes.
fn wanted_topic(header: &CreateTopicRequestHeader<'_>) -> Result<TopicConfig, Refusal> {
    let perm = Permission(header.perm);
    if !perm.is_valid() {
        let value = header.perm.to_string();
        return Err(Refusal::Value {
            field: "perm",
            wanted: "a sum of 1 inherit, 2 write, 4 read, 8 priority",
            value,
        });
    }
    Ok(TopicConfig {
        attributes: BTreeMap::new(),
        order: header.order.unwrap_or(false),
        perm,
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

/// # Errors
/// The text is not a topic name, the topic belongs to the system, or the broker is a slave.
fn check_own(shared: &Shared, topic: &str) -> Result<(), Refusal> {
    shared.check_master(OfMaster::Change)?;
    name::check_topic(topic)?;
    if is_system(topic, &shared.config()) {
        return Err(Refusal::SystemTopic { topic: topic.to_owned() });
    }
    Ok(())
}

/// Most changes of attributes in one request. A topic has one attribute here.
const MAX_ATTRIBUTE_CHANGES: usize = 64;

/// A new value of an attribute, or its end.
type AttributeChange<'a> = (&'a str, Option<&'a str>);

/// Reads changes such as `+name=value,-name`.
fn attribute_changes(text: &str) -> Result<Vec<AttributeChange<'_>>, Refusal> {
    if text.split(',').nth(MAX_ATTRIBUTE_CHANGES).is_some() {
        let (field, wanted) = ("attributes", "at most 64 changes");
        return Err(Refusal::Value { field, wanted, value: format!("{} bytes", text.len()) });
    }
    let change = |part| {
        let part: &str = part;
        if let Some(name) = part.strip_prefix('-') {
            return Ok((name, None));
        }
        let pair = part.strip_prefix('+').and_then(|pair| pair.split_once('='));
        let known = pair.filter(|(name, value)| topic_attribute::is_served(name, value));
        known.map(|(name, value)| (name, Some(value))).ok_or_else(|| Refusal::Value {
            field: "attributes",
            wanted: topic_attribute::WANTED,
            value: part.to_owned(),
        })
    };
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(change).collect()
}

fn changed(
    mut attributes: BTreeMap<String, String>,
    changes: &[AttributeChange<'_>],
) -> BTreeMap<String, String> {
    for &(name, value) in changes {
        match value {
            Some(value) => attributes.insert(name.to_owned(), value.to_owned()),
            None => attributes.remove(name),
        };
    }
    attributes
}

/// DELETE_TOPIC_IN_BROKER: the topic, its queues and the offsets stored for it.
pub(super) fn delete(Call { shared, request, .. }: Call<'_>, reply: Reply) {
    let topic = DeleteTopicRequestHeader::read(&request.ext).map_err(Refusal::from).and_then(|header| {
        check_own(shared, header.topic)?;
        Ok(header.topic.to_owned())
    });
    match topic {
        Ok(topic) => answer_later(shared, reply, delete_everywhere(shared.clone(), topic)),
        Err(refusal) => reply.send(refusal.response()),
    }
}

async fn delete_everywhere(shared: Arc<Shared>, topic: String) -> Answer {
    let creation = shared.creations.of_topic(&topic).number;
    on_disk(shared.topics.remove(&topic)?).await?;
    set_topic_retention(&shared).await?;
    // Before the queues: offsets that outlive the queues would be ahead of a later topic's messages.
    on_disk(shared.offsets.remove_creation(&topic, creation)?).await?;
    let (owner, name) = (shared.clone(), topic.clone());
    let queues = aside(move || owner.store.delete_topic(&name)).await?;
    leave_queues(&shared, &topic, 0).await;
    info!(topic, queues, "topic deleted");
    Ok(Response::success())
}

/// GET_ALL_TOPIC_CONFIG.
pub(super) fn all(Call { shared, request, .. }: Call<'_>) -> Answer {
    let header = GetAllTopicConfigRequestHeader::read(&request.ext)?;
    let (data_version, mut topic_config_table) = shared.topics.all();
    let page = Page::of(header.topic_seq, header.max_topic_num);
    let total_topic_num = page.map(|page| page.cut(&mut topic_config_table));
    let body = TopicConfigSerializeWrapper { data_version, topic_config_table, ..Default::default() };
    Ok(success_json_with(&GetAllTopicConfigResponseHeader { total_topic_num }, &body))
}

/// GET_TOPIC_CONFIG.
pub(super) fn get(Call { shared, request, .. }: Call<'_>) -> Answer {
    let header = GetTopicConfigRequestHeader::read(&request.ext)?;
    Ok(success_json(&*existing(shared, header.topic)?))
}

/// GET_TOPIC_STATS_INFO: the bounds of every queue, and how many messages a second came in the last minute.
pub(super) fn stats(Call { shared, connection, request }: Call<'_>) -> Answer {
    let header = GetTopicStatsInfoRequestHeader::read(&request.ext)?;
    let topic = existing(shared, header.topic)?;
    let broker_name: Arc<str> = shared.config().broker_name.as_str().into();
    let name: Arc<str> = topic.name.as_str().into();
    let mut offset_table = BTreeMap::new();
    for queue_id in 0..topic.queues() {
        if !connection.is_open() {
            break; // nobody waits for the rest
        }
        let bounds = shared.store.queue_bounds(&name, queue_id);
        let last = bounds.max.get().checked_sub(1).filter(|last| *last >= bounds.min.get());
        let last_update_at_ms = match last {
            Some(last) => shared.store.stored_at(&name, queue_id, QueueOffset(last))?.unwrap_or(0),
            None => 0,
        };
        let queue = MessageQueue { topic: name.clone(), broker_name: broker_name.clone(), queue_id };
        let (min_offset, max_offset) = (signed(bounds.min.get()), signed(bounds.max.get()));
        offset_table.insert(queue, TopicOffset { last_update_at_ms, max_offset, min_offset });
    }
    let topic_put_tps = shared.rates.put_rate(Instant::now(), &name, shared.messages_of(&topic));
    Ok(success_json(&TopicStatsTable { offset_table, topic_put_tps }))
}

fn existing(shared: &Shared, topic: &str) -> Result<Arc<TopicConfig>, Refusal> {
    shared.topics.get(topic).ok_or_else(|| Refusal::NoTopic { topic: topic.to_owned() })
}

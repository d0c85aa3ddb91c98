//! Offsets of groups as a person sets them, while their members run.
//!
//! # Source
//! docs/reference/protocol.md 2.6.3 and 2.6.5.

use std::collections::BTreeMap;

use rocketpy_model::system;
use rocketpy_store::Boundary;
use tracing::info;

use super::offset::readable;
use crate::blocking::on_disk;
use crate::ground::Ground;
use crate::members::Members;
use crate::refusal::{Refusal, check_group_of_clients, check_offset_of_clients};
use crate::role::OfMaster;
use crate::table::offset::{Place, Readable};

/// Where a group is to continue.
#[derive(Debug, Clone)]
pub(crate) struct Reset {
    pub(crate) group: String,
    pub(crate) topic: String,
    /// `None`: all queues.
    pub(crate) queue_id: Option<i32>,
    /// An offset of that queue; `None`: the time says.
    pub(crate) offset: Option<i64>,
    /// In Unix milliseconds; below 0: the end of each queue.
    pub(crate) at_ms: i64,
    /// Whether members may be moved forward.
    pub(crate) is_forced: bool,
}

/// Where each queue is set to. Blocks.
///
/// # Errors
/// There is no such topic, group, queue or offset, or it is one of the broker's own.
pub(crate) fn targets(ground: &Ground, asked: &Reset) -> Result<Vec<(u32, i64)>, Refusal> {
    check_offset_of_clients(&asked.group, &asked.topic)?;
    let Some(topic) = ground.topics().get(&asked.topic) else {
        return Err(Refusal::NoTopic { topic: asked.topic.clone() });
    };
    if ground.groups().get(&asked.group).is_none() {
        return Err(Refusal::NoGroup { group: asked.group.clone() });
    }
    let queues = match asked.queue_id {
        None => 0..topic.queues(),
        Some(id) => {
            let queue_id = id.unsigned_abs();
            if queue_id >= topic.queues() {
                let queues = topic.queues();
                return Err(Refusal::QueueId { topic: topic.name.clone(), queue_id: id, queues });
            }
            queue_id..queue_id + 1
        }
    };
    queues.map(|queue_id| Ok((queue_id, target(ground, asked, queue_id)?))).collect()
}

fn target(ground: &Ground, asked: &Reset, queue_id: u32) -> Result<i64, Refusal> {
    let (store, topic) = (ground.store(), &asked.topic);
    let Readable { min, max } = readable(store, topic, queue_id);
    match asked.offset {
        Some(offset) if (min..=max).contains(&offset) => Ok(offset),
        Some(offset) => Err(Refusal::OffsetRange { offset, min, max, queue_id }),
        None if asked.at_ms < 0 => Ok(max),
        None => Ok(store.offset_by_time(topic, queue_id, asked.at_ms, Boundary::Lower)?.to_wire()),
    }
}

/// Sets a group to offsets of a topic's queues. Its members go there with their next pulls.
///
/// # Errors
/// The offsets cannot be stored.
pub(crate) async fn set(
    ground: &Ground,
    members: &Members,
    asked: &Reset,
    targets: &[(u32, i64)],
) -> Result<(), Refusal> {
    let Reset { group, topic, .. } = asked;
    let mut writes = Vec::new();
    for (queue_id, offset) in targets {
        let place = Place { group, topic, queue_id: *queue_id };
        let readable = readable(ground.store(), topic, *queue_id);
        writes.push(members.offsets().reset_running(place, *offset, readable)?);
    }
    for written in writes {
        on_disk(written).await?;
    }
    info!(group, topic, queues = targets.len(), "consumer group offsets reset");
    Ok(())
}

/// Offsets to which members are moved: without force, no member is moved forward.
///
/// # Errors
/// The group has no offset for a queue.
pub(crate) fn member_targets(
    members: &Members,
    asked: &Reset,
    mut targets: Vec<(u32, i64)>,
) -> Result<Vec<(u32, i64)>, Refusal> {
    let Reset { group, topic, .. } = asked;
    for (queue_id, offset) in &mut targets {
        let stored = members.offsets().get(group, topic, *queue_id);
        let stored = stored.ok_or_else(|| {
            let (group, topic, queue_id) = (group.clone(), topic.clone(), *queue_id);
            Refusal::NoOffsetToLeave { group, topic, queue_id }
        })?;
        if !asked.is_forced {
            *offset = stored.min(*offset);
        }
    }
    Ok(targets)
}

/// A group begins where another one is, in one topic or in all of that group's.
///
/// # Errors
/// There is no such group, a group or the topic is the broker's own, the offsets cannot be stored, or the broker is a slave.
pub(crate) async fn copy(
    ground: &Ground,
    members: &Members,
    [from, to]: [&str; 2],
    topic: Option<&str>,
) -> Result<(), Refusal> {
    ground.check_master(OfMaster::Change)?;
    for group in [from, to] {
        check_group_of_clients(group)?;
        if ground.groups().get(group).is_none() {
            return Err(Refusal::NoGroup { group: group.to_owned() });
        }
    }
    let offsets = members.offsets();
    let topics = match topic {
        Some(topic) => {
            check_offset_of_clients(to, topic)?;
            vec![topic.to_owned()]
        }
        None => offsets.topics_of(from),
    };
    let mut copied: BTreeMap<(String, u32), i64> = BTreeMap::new();
    for topic in topics.into_iter().filter(|topic| !system::is_broker_topic(topic)) {
        let Some(config) = ground.topics().get(&topic) else { continue };
        for queue_id in 0..config.queues() {
            if let Some(offset) = offsets.get(from, &topic, queue_id) {
                copied.insert((topic.clone(), queue_id), offset);
            }
        }
    }
    let mut writes = Vec::new();
    for ((topic, queue_id), offset) in &copied {
        let place = Place { group: to, topic, queue_id: *queue_id };
        let readable = readable(ground.store(), topic, *queue_id);
        writes.push(offsets.reset_running(place, *offset, readable)?);
    }
    for written in writes {
        on_disk(written).await?;
    }
    info!(from, to, queues = copied.len(), "consumer group offsets copied");
    Ok(())
}

//! Topics as an operator changes them.
//!
//! # Source
//! docs/reference/protocol.md 2.6.1.

use std::collections::BTreeMap;
use std::sync::Arc;

use rocketpy_model::{TopicConfig, name};
use tracing::info;

use crate::blocking::{aside, on_disk};
use crate::ground::Ground;
use crate::members::Members;
use crate::refusal::Refusal;
use crate::role::OfMaster;
use crate::table::named::Changed;
use crate::table::topic::{TopicChange, is_system};
use crate::topic_attribute;

/// A new value of an attribute, or its end.
pub(crate) type AttributeChange<'a> = (&'a str, Option<&'a str>);

/// Makes a topic, or changes its configuration. Its attributes are those that it has, with the changes.
///
/// # Errors
/// The topic is the system's, or the broker is a slave.
pub(crate) fn put(
    ground: &Ground,
    topic: TopicConfig,
    changes: &[AttributeChange<'_>],
) -> Result<Changed<TopicConfig>, Refusal> {
    let name = topic.name.clone();
    ground.topics().update(&name, |old| {
        let old = old.map(|old| old.attributes.clone()).unwrap_or_default();
        Ok(TopicConfig { attributes: changed(old, changes), ..topic })
    })
}

/// The topics that lose queues by a change.
pub(crate) fn shrunk(changed: &Changed<TopicConfig>) -> Vec<Arc<TopicConfig>> {
    let pairs = changed.values.iter().zip(&changed.replaced);
    pairs.filter(|(topic, before)| topic.queues() < before.queues()).map(|(topic, _)| topic.clone()).collect()
}

/// Waits until the topic is stored, and puts its retention into force.
pub(crate) async fn put_and_age(
    ground: &Arc<Ground>,
    changed: Changed<TopicConfig>,
) -> Result<TopicChange, Refusal> {
    let is_aged = changed.values.iter().chain(&changed.replaced).any(|topic| topic_attribute::is_aged(topic));
    let change = TopicChange { topics: changed.values };
    on_disk(changed.written).await?;
    for topic in &change.topics {
        info!(
            topic = topic.name,
            queues = topic.queues(),
            perm = topic.perm.bits(),
            "topic created or changed"
        );
    }
    if is_aged {
        set_topic_retention(ground).await?;
    }
    Ok(change)
}

async fn set_topic_retention(ground: &Arc<Ground>) -> Result<(), Refusal> {
    let owner = ground.clone();
    Ok(aside(move || owner.set_topic_retention()).await?)
}

/// # Errors
/// The text is not a topic name, the topic belongs to the system, or the broker is a slave.
pub(crate) fn check_own(ground: &Ground, topic: &str) -> Result<(), Refusal> {
    ground.check_master(OfMaster::Change)?;
    name::check_topic(topic)?;
    if is_system(topic, &ground.config()) {
        return Err(Refusal::SystemTopic { topic: topic.to_owned() });
    }
    Ok(())
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

/// Deletes a topic, its queues, and the offsets stored for it.
///
/// # Errors
/// Another request is deleting it, or a file cannot be written; what comes before it is done.
pub(crate) async fn delete(ground: &Arc<Ground>, members: &Members, topic: &str) -> Result<(), Refusal> {
    let leaving = ground.topics().leave(topic)?;
    let creation = ground.creations().of_topic(topic).number;
    on_disk(ground.topics().remove(topic)?).await?;
    set_topic_retention(ground).await?;
    // Before the queues: offsets that outlive the queues would be ahead of a later topic's messages.
    on_disk(members.offsets().remove_creation(topic, creation)?).await?;
    let (store, name) = (ground.store().clone(), topic.to_owned());
    let queues = aside(move || {
        let queues = store.delete_topic(&name);
        drop(leaving); // here, because the request may end before its queues are gone
        queues
    });
    let queues = queues.await?;
    ground.metrics().forget_topic(topic);
    info!(topic, queues, "topic deleted");
    Ok(())
}

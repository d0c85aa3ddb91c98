//! Topics as an operator changes them.
//!
//! # Source
//! docs/reference/protocol.md 2.6.1.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rocketpy_model::{PhysicalOffset, TopicConfig, name};
use tracing::info;

use crate::blocking::{aside, on_disk};
use crate::ground::Ground;
use crate::members::Members;
use crate::refusal::{Refusal, check_range};
use crate::role::OfMaster;
use crate::table::named::Changed;
use crate::table::topic::{MAX_QUEUES, TopicChange, is_system};
use crate::topic_attribute;

/// A new value of an attribute, or its end.
pub(crate) type AttributeChange<'a> = (&'a str, Option<&'a str>);

/// A topic as an operator wants it: its configuration without attributes, and changes of those that it has.
pub(crate) type WantedTopic<'a> = (TopicConfig, Vec<AttributeChange<'a>>);

/// Creates topics, or changes their configurations: all or none. A slave changes nothing, and accepts topics that it has already.
///
/// # Errors
/// A topic is the system's, named twice or has other numbers of queues or permissions than topics can have; a slave would have to change one.
pub(crate) fn put_all(
    ground: &Ground,
    wanted: Vec<WantedTopic<'_>>,
) -> Result<Changed<TopicConfig>, Refusal> {
    let mut names = BTreeSet::new();
    for (topic, _) in &wanted {
        check(ground, topic)?;
        if !names.insert(&topic.name) {
            return Err(Refusal::NamedTwice { kind: "topic", name: topic.name.clone() });
        }
    }
    let merge = |(topic, changes): WantedTopic<'_>, old: Option<&TopicConfig>| {
        let attributes = old.map(|old| old.attributes.clone()).unwrap_or_default();
        TopicConfig { attributes: changed(attributes, &changes), ..topic }
    };
    if let Err(refusal) = ground.check_master(OfMaster::Change) {
        let is_there = |wanted: WantedTopic<'_>| {
            ground.topics().get(&wanted.0.name).is_some_and(|known| merge(wanted, Some(&known)) == *known)
        };
        return if wanted.into_iter().all(is_there) { Ok(Changed::nothing()) } else { Err(refusal) };
    }
    let items = wanted
        .into_iter()
        .map(|wanted| (wanted.0.name.clone(), move |old: Option<&TopicConfig>| Ok(merge(wanted, old))));
    ground.topics().update_all(items.collect())
}

/// Whether an operator may make a topic like this.
fn check(ground: &Ground, topic: &TopicConfig) -> Result<(), Refusal> {
    check_own(ground, &topic.name)?;
    if !topic.perm.is_valid() {
        let value = topic.perm.bits().to_string();
        return Err(Refusal::Value {
            field: "perm",
            wanted: "a sum of 1 inherit, 2 write, 4 read, 8 priority",
            value,
        });
    }
    check_range("readQueueNums", 1..=MAX_QUEUES as usize, topic.read_queues)?;
    check_range("writeQueueNums", 1..=MAX_QUEUES as usize, topic.write_queues)
}

/// The topics that lose queues by a change.
pub(crate) fn shrunk(changed: &Changed<TopicConfig>) -> Vec<Arc<TopicConfig>> {
    let is_shrunk = |topic: &&Arc<TopicConfig>| {
        let before = changed.replaced.iter().find(|before| before.name == topic.name);
        before.is_some_and(|before| topic.queues() < before.queues())
    };
    changed.values.iter().filter(is_shrunk).cloned().collect()
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
/// The text is not a topic name, or the topic belongs to the system.
pub(crate) fn check_own(ground: &Ground, topic: &str) -> Result<(), Refusal> {
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

/// Removes the queues of topics that are not in the table, and the offsets stored for them. Returns how many queues there were. A slave
/// removes none: a topic of its master may come after its first message.
///
/// # Errors
/// A file cannot be written; earlier topics are removed.
pub(crate) async fn clean_unused(ground: &Arc<Ground>, members: &Members) -> Result<usize, Refusal> {
    if !ground.role().is_master() {
        return Ok(0);
    }
    let mut removed = 0;
    for name in with_queues(ground).await {
        let Some(leaving) = ground.topics().leave_unknown(&name) else { continue };
        on_disk(members.offsets().remove_topic(&name)?).await?;
        let (store, topic) = (ground.store().clone(), name.clone());
        let queues = aside(move || {
            let queues = store.delete_topic(&topic);
            drop(leaving); // here, because the request may end before its queues are gone
            queues
        });
        removed += queues.await?;
        info!(topic = &*name, "queues of an unused topic removed");
    }
    Ok(removed)
}

/// Removes, at a slave, the queues of topics that its master has deleted. `before` is a place that dispatch had reached when the master was asked
/// for its topics. A queue with a record after it stays: its topic may have been created after the answer. Returns whether all unknown topics are gone.
///
/// # Errors
/// A file cannot be written; what comes before it is done.
pub(crate) async fn clean_deleted(ground: &Arc<Ground>, before: PhysicalOffset) -> Result<bool, Refusal> {
    let mut are_gone = true;
    for name in with_queues(ground).await {
        let Some(leaving) = ground.topics().leave_unknown(&name) else { continue };
        let (store, topic) = (ground.store().clone(), name.clone());
        let queues = aside(move || {
            let queues = store.delete_topic_before(&topic, before);
            drop(leaving); // here, because the round may end before its queues are gone
            queues
        });
        match queues.await? {
            0 => are_gone = false,
            queues => {
                ground.metrics().forget_topic(&name);
                info!(topic = &*name, queues, "topic deleted, as at the master");
            }
        }
    }
    Ok(are_gone)
}

/// Topics that have queues, without those of the system.
async fn with_queues(ground: &Arc<Ground>) -> BTreeSet<Arc<str>> {
    let owner = ground.clone();
    let names = aside(move || {
        let names = owner.store().queues().into_iter().map(|queue| queue.topic);
        names.filter(|name| !is_system(name, &owner.config())).collect()
    });
    names.await
}

#[cfg(test)]
mod tests {
    use rocketpy_model::system;
    use rocketpy_store::NewRecord;

    use super::*;
    use crate::testing::{TestBroker, add_topic, until};

    #[tokio::test]
    async fn the_queues_of_unused_topics_go_and_those_of_known_ones_stay() {
        let broker = TestBroker::open(|_| {});
        add_topic(&broker, TopicConfig::new("known", 1)).await;
        let store = broker.ground.store();
        for topic in ["known", "unused", "leaving", system::SCHEDULE_TOPIC] {
            store.append(&record(topic)).unwrap();
        }
        let length = |topic| store.queue_bounds(topic, 0).max.get();
        until("dispatch has come there", || length(system::SCHEDULE_TOPIC) == 1).await;
        let leaving = broker.ground.topics().leave("leaving").unwrap();
        assert_eq!(clean_unused(&broker.ground, &broker.members).await.unwrap(), 1);
        assert_eq!(["known", "unused", "leaving", system::SCHEDULE_TOPIC].map(length), [1, 0, 1, 1]);
        drop(leaving);
        // One that is about to be written is known.
        let created = broker.ground.topics().create(vec![TopicConfig::new("leaving", 1)]).unwrap();
        assert!(broker.ground.topics().leave_unknown("leaving").is_none());
        created.written.unwrap().done().await.unwrap();
        assert_eq!(clean_unused(&broker.ground, &broker.members).await.unwrap(), 0);
        assert_eq!(length("leaving"), 1);
    }

    #[tokio::test]
    async fn a_slave_keeps_the_queues_of_a_topic_with_a_message_after_the_answer_of_its_master() {
        let broker = TestBroker::open(|_| {});
        add_topic(&broker, TopicConfig::new("known", 1)).await;
        let store = broker.ground.store();
        for topic in ["known", "deleted", "later"] {
            store.append(&record(topic)).unwrap();
        }
        let length = |topic| store.queue_bounds(topic, 0).max.get();
        until("dispatch has come there", || length("later") == 1).await;
        let answered = store.dispatched_offset();
        store.append(&record("later")).unwrap();
        until("dispatch has come there", || length("later") == 2).await;
        assert!(!clean_deleted(&broker.ground, answered).await.unwrap());
        assert_eq!(["known", "deleted", "later"].map(length), [1, 0, 2]);
        assert!(clean_deleted(&broker.ground, store.dispatched_offset()).await.unwrap());
        assert_eq!(["known", "later"].map(length), [1, 0]);
    }

    fn record(topic: &str) -> NewRecord<'_> {
        NewRecord {
            topic,
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_at_ms: 1,
            born_host: "127.0.0.1:1".parse().unwrap(),
            reconsume_times: 0,
            prepared_transaction_offset: PhysicalOffset(0),
            body: b"x",
            properties: b"",
            may_have_crc: true,
        }
    }
}

//! Consumer groups as an operator changes them.
//!
//! # Source
//! docs/reference/protocol.md 2.6.2.

use std::collections::BTreeSet;

use rocketpy_model::{GroupConfig, TopicConfig, name, system};
use tracing::{info, warn};

use crate::blocking::on_disk;
use crate::ground::Ground;
use crate::members::Members;
use crate::put::Intake;
use crate::refusal::{Refusal, check_group_of_clients, check_range};
use crate::role::OfMaster;
use crate::table::group_commit::Written;
use crate::table::topic::{MAX_QUEUES, TopicChange};

/// Maximum number of attributes, subscriptions and retry delays of a group.
const MAX_PARTS: usize = 64;
/// Maximum length of an attribute's name or value, or of an expression, in bytes.
const MAX_TEXT_BYTES: usize = 1024;

/// Creates groups, or changes their configurations: all or none. They count once they are written. A slave changes nothing, and accepts
/// groups that it has with the same configuration.
///
/// # Errors
/// Something of a group has no bound, a group is named twice, or a slave would have to change one.
pub(crate) fn put_all(ground: &Ground, groups: Vec<GroupConfig>) -> Result<Option<Written>, Refusal> {
    let mut names = BTreeSet::new();
    for group in &groups {
        check(group)?;
        check_group_of_clients(&group.name)?;
        if !names.insert(&group.name) {
            return Err(Refusal::NamedTwice { kind: "consumer group", name: group.name.clone() });
        }
    }
    if let Err(refusal) = ground.check_master(OfMaster::Change) {
        let is_there =
            |group: &GroupConfig| ground.groups().get(&group.name).is_some_and(|known| *known == *group);
        return if groups.iter().all(is_there) { Ok(None) } else { Err(refusal) };
    }
    Ok(ground.groups().put_all(groups)?.written)
}

/// The retry topic of a group that has none yet and may retry; `None` at a slave, which gets its master's.
pub(crate) fn missing_retry_topic(ground: &Ground, group: &GroupConfig) -> Option<TopicConfig> {
    let name = system::retry_topic(&group.name);
    let queues = u32::try_from(group.retry_queues).unwrap_or(0);
    let is_missing = queues > 0 && !ground.topics().contains(&name) && ground.role().is_master();
    is_missing.then(|| TopicConfig::new(name, queues))
}

/// Makes the missing retry topics of groups and announces them: tools find groups by these. A group works without; the first retry makes it.
pub(crate) async fn make_retry_topics(ground: &Ground, intake: &Intake, groups: &[GroupConfig]) {
    let missing: Vec<TopicConfig> =
        groups.iter().filter_map(|group| missing_retry_topic(ground, group)).collect();
    if missing.is_empty() {
        return;
    }
    let made = async {
        let changed = ground.topics().create(missing)?;
        on_disk(changed.written).await?;
        intake.announce(&TopicChange { topics: changed.values });
        Ok::<_, Refusal>(())
    };
    if let Err(error) = made.await {
        warn!(%error, "retry topics of new consumer groups not created");
    }
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

/// # Errors
/// The group's name is invalid, or the group is the broker's own.
pub(crate) fn check_delete(group: &str) -> Result<(), Refusal> {
    name::check_group(group)?;
    check_group_of_clients(group)
}

/// Deletes a group, with its offsets where they are to go too.
///
/// # Errors
/// A file cannot be written; what comes before it is done.
pub(crate) async fn delete(
    ground: &Ground,
    members: &Members,
    group: &str,
    cleans_offsets: bool,
) -> Result<(), Refusal> {
    on_disk(ground.groups().remove(group)?).await?;
    if cleans_offsets {
        on_disk(members.offsets().remove_group(group)?).await?;
    }
    ground.metrics().forget_group(group);
    info!(group, "consumer group deleted");
    Ok(())
}

/// Lets a group read a topic, or forbids it; `None` changes nothing. Returns what has to be written.
///
/// # Errors
/// There is no such group or topic, or a slave is to change something.
pub(crate) fn set_readable(
    ground: &Ground,
    group: &str,
    topic: &str,
    readable: Option<bool>,
) -> Result<Option<Written>, Refusal> {
    if ground.groups().get(group).is_none() {
        return Err(Refusal::NoGroup { group: group.to_owned() });
    }
    if ground.topics().get(topic).is_none() {
        return Err(Refusal::NoTopic { topic: topic.to_owned() });
    }
    let Some(readable) = readable else { return Ok(None) };
    ground.check_master(OfMaster::Change)?;
    ground.groups().set_readable(group, topic, readable)
}

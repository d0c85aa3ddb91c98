//! Consumer groups as an operator changes them.
//!
//! # Source
//! docs/reference/protocol.md 2.6.2.

use rocketpy_model::{GroupConfig, name};
use tracing::info;

use crate::blocking::on_disk;
use crate::ground::Ground;
use crate::members::Members;
use crate::refusal::{Refusal, check_group_of_clients, check_range};
use crate::role::OfMaster;
use crate::table::group_commit::Written;
use crate::table::topic::MAX_QUEUES;

/// Maximum number of attributes, subscriptions and retry delays of a group.
const MAX_PARTS: usize = 64;
/// Maximum length of an attribute's name or value, or of an expression, in bytes.
const MAX_TEXT_BYTES: usize = 1024;

/// Makes a group, or changes its configuration. It counts once it is written.
///
/// # Errors
/// Something of it has no bound, or the broker is a slave.
pub(crate) fn put(ground: &Ground, group: GroupConfig) -> Result<Option<Written>, Refusal> {
    ground.check_master(OfMaster::Change)?;
    check(&group)?;
    Ok(ground.groups().put(group)?.written)
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
/// The group's name is none, the group is the broker's own, or the broker is a slave.
pub(crate) fn check_delete(ground: &Ground, group: &str) -> Result<(), Refusal> {
    ground.check_master(OfMaster::Change)?;
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

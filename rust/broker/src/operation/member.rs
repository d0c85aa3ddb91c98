//! Members of groups: heartbeats, and locks of queues.
//!
//! # Source
//! docs/reference/protocol.md 2.3.7 and 2.3.10.

use std::sync::Arc;
use std::time::Instant;

use rocketpy_model::printable::{is_control, printable};
use rocketpy_model::{GroupConfig, MessageQueue, name};
use rocketpy_protocol::body::{ConsumerData, HeartbeatData, OtherSubscription};
use tracing::{debug, warn};

use super::group::missing_retry_topic;
use crate::blocking::on_disk;
use crate::ground::Ground;
use crate::members::Members;
use crate::put::Intake;
use crate::refusal::{Refusal, check_group_of_clients, check_range};
use crate::table::client::{Consumer, Entered, MAX_GROUPS, Member};
use crate::table::group_commit::Written;
use crate::table::queue_lock::Locked;
use crate::table::topic::{MAX_QUEUES, TopicChange};

/// Maximum length of a client id.
const MAX_CLIENT_ID_BYTES: usize = 1024;
/// Maximum number of groups with differing subscriptions that the answer to a heartbeat lists.
const MAX_OTHERS: usize = 16;
/// Maximum number of characters of a subscription in that answer, and of any client text in a log message.
const MAX_LETTERS: usize = 256;

/// Result of a heartbeat.
#[derive(Default)]
pub(crate) struct Heard {
    /// The groups whose members are to be notified of a change, the new member included.
    pub(crate) changed: Vec<String>,
    /// What has to be written before the answer.
    pub(crate) created: Vec<Created>,
    /// Members with other subscriptions, for the answer.
    pub(crate) others: Vec<OtherSubscription>,
    /// Answers the heartbeat instead.
    pub(crate) refused: Option<Refusal>,
}

/// A group, or the retry topic of one, that a heartbeat had to create.
pub(crate) struct Created {
    group: String,
    written: Written,
    retry_topic: Option<TopicChange>,
}

/// What failed for groups of a heartbeat. It makes one line of the log, however many groups a client states.
#[derive(Default)]
struct Failures {
    groups: usize,
    /// The first group and its reason.
    first: Option<String>,
}

impl Failures {
    fn note(&mut self, group: &str, refusal: &Refusal) {
        self.groups += 1;
        self.first.get_or_insert_with(|| format!("{}: {refusal}", shortened(group)));
    }
}

/// The beginning of a text that a client chose.
fn shortened(text: &str) -> String {
    text.chars().take(MAX_LETTERS).collect()
}

/// Waits until what a heartbeat had to create is on disk, and announces its retry topics.
pub(crate) async fn created(intake: &Intake, created: Vec<Created>) {
    let mut failures = Failures::default();
    for Created { group, written, retry_topic } in created {
        match on_disk(Some(written)).await {
            Ok(()) => {
                if let Some(change) = &retry_topic {
                    intake.announce(change);
                }
            }
            // Whoever needs it next creates it.
            Err(refusal) => failures.note(&group, &refusal),
        }
    }
    if let Failures { groups, first: Some(first) } = failures {
        warn!(groups, first, "consumer groups or their retry topics not created");
    }
}

/// Adds a client to its groups, and creates missing groups and their retry topics.
///
/// A group that refuses the client is skipped: the client's other groups must not expire because of it.
///
/// # Errors
/// The client has no id, or too many groups.
pub(crate) fn heartbeat(
    ground: &Ground,
    members: &Members,
    data: &HeartbeatData,
    member: impl Fn(Arc<str>) -> Member,
) -> Result<Heard, Refusal> {
    check_client_id(&data.client_id)?;
    let groups = data.consumer_data_set.len() + data.producer_data_set.len();
    check_range("the number of groups", 0..=MAX_GROUPS, groups)?;
    let client_id: Arc<str> = data.client_id.as_str().into();
    let member = || member(client_id.clone());
    let mut heard = Heard::default();
    let mut skipped = Failures::default();
    let began = Instant::now();
    for producer in &data.producer_data_set {
        let group = &producer.group_name;
        let entered = name::check_group(group).map_err(Refusal::from);
        if let Err(refusal) = entered.and_then(|()| members.clients().enter_producer(group, member())) {
            skipped.note(group, &refusal);
            heard.refused = worse(heard.refused, refusal);
        }
    }
    let with_producers = Instant::now();
    let mut without_retry_topic = Failures::default();
    for consumer in &data.consumer_data_set {
        let entered =
            enter_consumer((ground, members), consumer, member(), &mut heard, &mut without_retry_topic);
        if let Err(refusal) = entered {
            skipped.note(&consumer.group_name, &refusal);
            heard.refused = worse(heard.refused, refusal);
        }
    }
    ground.metrics().registered(
        (data.producer_data_set.len(), with_producers - began),
        (data.consumer_data_set.len(), with_producers.elapsed()),
    );
    assert!(heard.others.len() <= MAX_OTHERS, "other members in the answer to a heartbeat have a bound");
    if let Failures { groups, first: Some(first) } = skipped {
        warn!(client_id = shortened(&client_id), groups, first, "groups of a heartbeat skipped");
    }
    if let Failures { groups, first: Some(first) } = without_retry_topic {
        warn!(client_id = shortened(&client_id), groups, first, "retry topics not created");
    }
    Ok(heard)
}

/// The refusal that answers the whole heartbeat, after its other groups have entered: one that the client can act upon and that no
/// other request would report.
fn worse(before: Option<Refusal>, refusal: Refusal) -> Option<Refusal> {
    match refusal {
        Refusal::FilterTooLong { .. }
        | Refusal::Memory(_)
        | Refusal::BrokerGroup { .. }
        | Refusal::ClientIdTaken { .. } => Some(refusal),
        _ => before,
    }
}

fn check_client_id(client_id: &str) -> Result<(), Refusal> {
    check_range("the length of clientID in bytes", 1..=MAX_CLIENT_ID_BYTES, client_id.len())?;
    // Operators and other members see it.
    match client_id.chars().any(is_control) {
        true => Err(Refusal::ClientIdControl { client_id: printable(&shortened(client_id)).into_owned() }),
        false => Ok(()),
    }
}

fn enter_consumer(
    (ground, members): (&Ground, &Members),
    consumer: &ConsumerData,
    member: Member,
    heard: &mut Heard,
    without_retry_topic: &mut Failures,
) -> Result<(), Refusal> {
    check_group_of_clients(&consumer.group_name)?;
    consumer.subscription_data_set.iter().try_for_each(|data| ground.check_filter(&data.sub_string))?;
    let found = match ground.group(&consumer.group_name) {
        Ok(found) => found,
        // The client learns it from the answers to its pulls.
        Err(Refusal::NoGroup { group }) => {
            debug!(group, "heartbeat names a consumer group that does not exist");
            return Ok(());
        }
        Err(refusal) => return Err(refusal),
    };
    let group = found.group;
    let of_group = |written| Created { group: group.name.clone(), written, retry_topic: None };
    heard.created.extend(found.written.map(of_group));
    match create_retry_topic(ground, consumer, &group) {
        Ok(retry_topic) => heard.created.extend(retry_topic),
        // Pulls do not need it, and the first send to it creates it.
        Err(refusal) => without_retry_topic.note(&group.name, &refusal),
    }
    let client_id = member.client_id.clone();
    let entered = members.clients().enter_consumer(consumer, member)?;
    if entered.is_change {
        heard.changed.push(group.name.clone());
    }
    let other = other_subscription(&group.name, &client_id, entered);
    if heard.others.len() < MAX_OTHERS {
        heard.others.extend(other);
    }
    Ok(())
}

/// The live member that subscribes to something else, or has the same client id, if there is one. The former gets only a part of its
/// messages, as with Apache's broker; the log says it once. The latter gets the same messages.
fn other_subscription(group: &str, client_id: &str, entered: Entered) -> Option<OtherSubscription> {
    let Consumer { member: other, wants } = entered.other?;
    let subscriptions = shortened(&wants.to_string());
    if entered.is_news && *other.client_id != *client_id {
        warn!(
            group,
            client_id = shortened(client_id),
            subscriptions = shortened(&entered.wants.to_string()),
            other_client_id = shortened(&other.client_id),
            other_subscriptions = subscriptions,
            "members of a group subscribe to different topics or tags, so each misses messages"
        );
    }
    Some(OtherSubscription { group: group.to_owned(), client_id: other.client_id.to_string(), subscriptions })
}

fn create_retry_topic(
    ground: &Ground,
    consumer: &ConsumerData,
    group: &GroupConfig,
) -> Result<Option<Created>, Refusal> {
    let Some(mut topic) = missing_retry_topic(ground, group) else { return Ok(None) };
    let subscribed = consumer.subscription_data_set.iter();
    topic.order = subscribed.filter_map(|data| ground.topics().get(&data.topic)).any(|topic| topic.order);
    let changed = ground.topics().create(vec![topic])?;
    let retry_topic = Some(TopicChange { topics: changed.values });
    Ok(changed.written.map(|written| Created { group: group.name.clone(), written, retry_topic }))
}

/// Locks queues of this broker for a client: what it did not hold before is its own once the file has it.
///
/// # Errors
/// The group's or the client's name is none, there are too many queues, or the table has no room.
pub(crate) fn lock(
    ground: &Ground,
    members: &Members,
    group: &str,
    client_id: &str,
    mut queues: Vec<MessageQueue>,
) -> Result<Locked, Refusal> {
    check_lock(group, client_id, queues.len())?;
    // A queue that this broker does not have stays out of the answer.
    queues.retain(|queue| is_here(ground, queue));
    members.queue_locks().lock(group, client_id, queues, Instant::now())
}

/// Gives locks of a client back.
///
/// # Errors
/// As [`lock`].
pub(crate) fn unlock(
    members: &Members,
    group: &str,
    client_id: &str,
    queues: &[MessageQueue],
) -> Result<(), Refusal> {
    check_lock(group, client_id, queues.len())?;
    members.queue_locks().unlock(group, client_id, queues);
    Ok(())
}

fn check_lock(group: &str, client_id: &str, queues: usize) -> Result<(), Refusal> {
    name::check_group(group)?;
    check_client_id(client_id)?;
    check_range("the number of queues in mqSet", 0..=MAX_QUEUES as usize, queues)
}

fn is_here(ground: &Ground, queue: &MessageQueue) -> bool {
    *queue.broker_name == *ground.config().broker_name
        && ground.topics().get(&queue.topic).is_some_and(|topic| queue.queue_id < topic.queues())
}

//! Reads the needs of a request out of its fields and its body.

use std::borrow::Cow;
use std::collections::HashSet;

use rocketpy_model::GroupConfig;
use rocketpy_model::system::{DLQ_PREFIX, RETRY_PREFIX, holds_others};
use rocketpy_protocol::body::{
    CheckClientRequestBody, CreateTopicListRequestBody, HeartbeatData, LockBatchRequestBody,
    SubscriptionGroupList,
};
use rocketpy_protocol::{Command, json};
use serde::de::DeserializeOwned;
use smallvec::smallvec;

use super::{
    CREATE, GET, MAX_BODY_BYTES, MAX_NEEDS, Need, Needs, NeedsError, PUB, READ, ROUTE, SUB, Target, UPDATE,
};
use crate::policy::Actions;

/// Maximum number of items in the lists and maps of a body. An item of two bytes becomes some hundred bytes of memory.
const MAX_ITEMS: usize = 1 << 17;

type Found<'a> = Result<Needs<'a>, NeedsError>;

pub(super) fn one(target: Target<'_>, actions: Actions) -> Found<'_> {
    Ok(smallvec![Need { target, actions }])
}

pub(super) fn own_cluster<'a>(actions: Actions) -> Found<'a> {
    one(Target::OwnCluster, actions)
}

pub(super) fn cluster_of(request: &Command, actions: Actions) -> Found<'_> {
    one(Target::Cluster(field(request, "clusterName")?.into()), actions)
}

/// The topic that a field names; the group, for its retry and dead-letter topics.
pub(super) fn topic<'a>(request: &'a Command, name: &'static str) -> Result<Target<'a>, NeedsError> {
    Ok(target_of_topic(field(request, name)?))
}

/// The messages of a topic that a field names. Policies for the topics of delayed and half messages would open those of every topic.
pub(super) fn messages(request: &Command) -> Result<Target<'_>, NeedsError> {
    Ok(target_of_messages(field(request, "topic")?))
}

pub(super) fn group<'a>(request: &'a Command, name: &'static str) -> Result<Target<'a>, NeedsError> {
    Ok(target_of_group(field(request, name)?))
}

fn field<'a>(request: &'a Command, name: &'static str) -> Result<&'a str, NeedsError> {
    request.ext.get(name).ok_or(NeedsError::NoField { field: name })
}

/// The value of a field that may be absent or empty.
fn stated<'a>(request: &'a Command, name: &str) -> Option<&'a str> {
    request.ext.get(name).filter(|value| !value.is_empty())
}

fn group_of(topic: &str) -> Option<&str> {
    topic.strip_prefix(RETRY_PREFIX).or_else(|| topic.strip_prefix(DLQ_PREFIX))
}

pub(crate) fn target_of_messages(topic: &str) -> Target<'_> {
    if holds_others(topic) { Target::OfOthers(topic.into()) } else { target_of_topic(topic) }
}

fn target_of_topic(topic: &str) -> Target<'_> {
    match group_of(topic) {
        Some(group) => Target::Group(group.into()),
        None => Target::Topic(topic.into()),
    }
}

pub(crate) fn target_of_group(group: &str) -> Target<'_> {
    Target::Group(group_of(group).unwrap_or(group).into())
}

fn owned(target: Target<'_>) -> Target<'static> {
    let owned = |name: Cow<'_, str>| Cow::Owned(name.into_owned());
    match target {
        Target::OwnCluster => Target::OwnCluster,
        Target::Cluster(name) => Target::Cluster(owned(name)),
        Target::Topic(name) => Target::Topic(owned(name)),
        Target::Group(name) => Target::Group(owned(name)),
        Target::OfOthers(name) => Target::OfOthers(owned(name)),
        Target::Peers => Target::Peers,
    }
}

/// Reads a body of bounded size: its user has proved no right yet.
fn body<T: DeserializeOwned>(request: &Command) -> Result<T, NeedsError> {
    if request.body.len() > MAX_BODY_BYTES {
        return Err(NeedsError::TooLong);
    }
    json::from_bounded(&request.body, MAX_ITEMS).map_err(NeedsError::Body)
}

/// Needs out of a body, each once.
#[derive(Default)]
struct Collected {
    topics: HashSet<Box<str>>,
    groups: HashSet<Box<str>>,
}

impl Collected {
    fn topic(&mut self, topic: &str) -> Result<(), NeedsError> {
        match group_of(topic) {
            Some(group) => self.group(group),
            None => self.add(|found| &mut found.topics, topic),
        }
    }

    fn group(&mut self, group: &str) -> Result<(), NeedsError> {
        self.add(|found| &mut found.groups, group_of(group).unwrap_or(group))
    }

    fn add(&mut self, set: fn(&mut Self) -> &mut HashSet<Box<str>>, name: &str) -> Result<(), NeedsError> {
        if set(self).contains(name) {
            return Ok(());
        }
        if self.topics.len() + self.groups.len() >= MAX_NEEDS {
            return Err(NeedsError::TooMany);
        }
        set(self).insert(name.into());
        Ok(())
    }

    fn needs<'a>(self, actions: Actions) -> Needs<'a> {
        let groups = self.groups.into_iter().map(|name| Target::Group(String::from(name).into()));
        let topics = self.topics.into_iter().map(|name| Target::Topic(String::from(name).into()));
        groups.chain(topics).map(|target| Need { target, actions }).collect()
    }
}

/// A send into a retry topic is part of reading.
pub(super) fn send<'a>(request: &'a Command, name: &'static str) -> Found<'a> {
    let target = topic(request, name)?;
    let actions = if matches!(target, Target::Group(_)) { SUB } else { PUB };
    one(target, actions)
}

pub(super) fn route(request: &Command) -> Found<'_> {
    let target = topic(request, "topic")?;
    let actions = if matches!(target, Target::Group(_)) { READ } else { ROUTE };
    one(target, actions)
}

pub(super) fn pull(request: &Command) -> Found<'_> {
    topic_and_group(request, "consumerGroup", SUB)
}

/// Topic and group; the group alone where the topic is its own retry topic.
pub(super) fn topic_and_group<'a>(
    request: &'a Command,
    group_field: &'static str,
    actions: Actions,
) -> Found<'a> {
    let mut needs = one(messages(request)?, actions)?;
    if let Some(group) = request.ext.get(group_field) {
        let target = target_of_group(group);
        if needs[0].target != target {
            needs.push(Need { target, actions });
        }
    } else if actions != GET {
        return Err(NeedsError::NoField { field: group_field });
    }
    Ok(needs)
}

/// A message by its place in the log. Clients before 5.0 do not name its topic. The broker checks the record's topic.
pub(super) fn view(request: &Command) -> Found<'_> {
    match stated(request, "topic") {
        Some(topic) => one(target_of_messages(topic), READ),
        None => Ok(Needs::new()),
    }
}

/// The group gets a copy of the message. The broker checks the record's topic.
pub(super) fn send_back(request: &Command) -> Found<'_> {
    let mut needs = one(group(request, "group")?, SUB)?;
    if let Some(topic) = stated(request, "originTopic") {
        needs.push(Need { target: target_of_topic(topic), actions: SUB });
    }
    Ok(needs)
}

/// Clients before 5.0, Go and C++ do not name the topic. The broker checks the half message's topic.
pub(super) fn end_transaction(request: &Command) -> Found<'_> {
    match stated(request, "topic") {
        Some(topic) => one(target_of_topic(topic), PUB),
        None => Ok(Needs::new()),
    }
}

pub(super) fn clone_offsets(request: &Command) -> Found<'_> {
    let mut needs = one(group(request, "destGroup")?, UPDATE)?;
    needs.push(Need { target: group(request, "srcGroup")?, actions: GET });
    Ok(needs)
}

/// Groups that read, and what they read. Producer groups need nothing: sends are checked by topic.
pub(super) fn heartbeat(request: &Command) -> Found<'_> {
    let heartbeat: HeartbeatData = body(request)?;
    let mut found = Collected::default();
    for consumer in &heartbeat.consumer_data_set {
        found.group(&consumer.group_name)?;
        for subscription in &consumer.subscription_data_set {
            found.topic(&subscription.topic)?;
        }
    }
    Ok(found.needs(SUB))
}

pub(super) fn unregister(request: &Command) -> Found<'_> {
    match stated(request, "consumerGroup") {
        Some(group) => one(target_of_group(group), SUB),
        None => Ok(Needs::new()),
    }
}

pub(super) fn check_client(request: &Command) -> Found<'_> {
    let asked: CheckClientRequestBody = body(request)?;
    let mut found = Collected::default();
    found.group(&asked.group)?;
    found.topic(&asked.subscription_data.topic)?;
    Ok(found.needs(SUB))
}

pub(super) fn lock(request: &Command) -> Found<'_> {
    let asked: LockBatchRequestBody = body(request)?;
    let mut found = Collected::default();
    found.group(&asked.consumer_group)?;
    for queue in &asked.mq_set {
        found.topic(&queue.topic)?;
    }
    Ok(found.needs(SUB))
}

pub(super) fn consume_directly(request: &Command) -> Found<'_> {
    let mut needs = one(group(request, "consumerGroup")?, SUB)?;
    if let Some(topic) = stated(request, "topic") {
        needs.push(Need { target: target_of_topic(topic), actions: SUB });
    }
    Ok(needs)
}

pub(super) fn topics_of_list(request: &Command) -> Found<'_> {
    let list: CreateTopicListRequestBody = body(request)?;
    let mut found = Collected::default();
    for topic in &list.topic_config_list {
        found.topic(&topic.name)?;
    }
    Ok(found.needs(CREATE))
}

pub(super) fn group_of_body(request: &Command) -> Found<'_> {
    let config: GroupConfig = body(request)?;
    one(owned(target_of_group(&config.name)), CREATE)
}

pub(super) fn groups_of_list(request: &Command) -> Found<'_> {
    let list: SubscriptionGroupList = body(request)?;
    let mut found = Collected::default();
    for group in &list.group_config_list {
        found.group(&group.name)?;
    }
    Ok(found.needs(CREATE))
}

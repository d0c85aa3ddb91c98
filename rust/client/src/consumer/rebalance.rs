//! Rebalancing: which queues are assigned to this member, computed again at every change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rocketpy_env::random_u64;
use rocketpy_model::{MessageQueue, QueueOffset};
use rocketpy_protocol::code::response;
use tracing::{debug, info, warn};

use super::assigned::Assignment;
use super::member::{Member, SAME_CLIENT_ID};
use super::push::orderly;
use super::{allocate, commit, handover, pull};
use crate::error::ClientError;
use crate::log_throttle::LogThrottle;
use crate::outcome;
use crate::route::TopicRoute;
use crate::wire::{self, Pull};

const OPERATION: &str = "pull";
/// Time to the next round when the last one could not balance every topic.
const UNBALANCED_PAUSE: Duration = Duration::from_secs(1);

/// This member's queues of one topic.
struct Share {
    queues: Vec<MessageQueue>,
    /// Number of members that share the topic's queues; 0 where queues are not shared.
    members: usize,
    /// Number of the topic's queues.
    topic_queues: usize,
    /// Names of the topic's brokers.
    brokers: Vec<Arc<str>>,
    /// Configured queues that the topic does not have.
    missing: Vec<MessageQueue>,
}

/// A topic with fewer queues than members, of which this member owns no queue.
struct Outnumbered<'a> {
    topic: &'a str,
    queues: usize,
    members: usize,
}

impl Share {
    fn outnumbered<'a>(&self, topic: &'a str) -> Option<Outnumbered<'a>> {
        let (queues, members) = (self.topic_queues, self.members);
        (self.queues.is_empty() && (1..members).contains(&queues)).then_some(Outnumbered {
            topic,
            queues,
            members,
        })
    }
}

/// State of the warnings of rebalance rounds: each problem is logged once, and its end.
#[derive(Default)]
struct Reports {
    failure: LogThrottle,
    /// The member owned no queue.
    is_idle: bool,
}

impl Reports {
    /// Logs topics that cannot be balanced, and missing queues.
    fn note_problem(&mut self, member: &Member, problem: Option<String>) {
        if let Some(problem) = problem {
            if self.failure.failed(Instant::now()) {
                warn!(group = %member.group, "{problem}");
            }
        } else if self.failure.worked() {
            info!(group = %member.group, "rebalance recovered");
        }
    }

    /// Logs that the member owns no queue of any topic because members outnumber queues, and the end of that.
    fn note_idle(&mut self, member: &Member, topics: Vec<Option<Outnumbered<'_>>>) {
        let outnumbered = topics.into_iter().collect::<Option<Vec<_>>>().unwrap_or_default();
        let is_idle = !outnumbered.is_empty();
        if std::mem::replace(&mut self.is_idle, is_idle) == is_idle {
            return;
        }
        let group = &member.group;
        match outnumbered.first() {
            Some(Outnumbered { queues, members, .. }) if member.config.allow_idle => {
                info!(%group, queues, members, "member owns no queue: standby");
            }
            Some(Outnumbered { topic, queues, members }) => {
                let topic = member.client.namespace().strip(topic);
                let hint =
                    format!("run fewer members, or add queues: rocketpy topic create {topic} --queues N");
                let text = "member owns no queue and receives no messages: members outnumber queues";
                warn!(%group, %topic, queues, members, hint, "{text}");
            }
            None => info!(%group, "member owns queues again"),
        }
    }
}

/// Runs rounds until the consumer stops.
///
/// # Source
/// docs/reference/client.md 8.1, 8.2.
pub(super) async fn run(member: Arc<Member>) {
    // Subscriptions whose commits must be repeated once a round has shown which of their queues are still assigned here.
    let (mut to_repeat, mut reports) = (BTreeSet::new(), Reports::default());
    loop {
        let started = Instant::now();
        if member.group_view.reconnected.swap(false, Ordering::AcqRel) {
            to_repeat.extend(0..member.subscriptions.len());
            if member.delivery.needs_locks() {
                member.spawn(async |member: Arc<Member>| orderly::renew_now(&member).await);
            }
        }
        let left = round(&member, &mut reports).await;
        member.signals.progress.notify_waiters();
        let shared_out = &to_repeat - &left;
        if !shared_out.is_empty() {
            to_repeat = &to_repeat & &left;
            member.spawn(|member| commit::repeat(member, shared_out));
        }
        let balanced = left.into_iter().all(|index| member.subscriptions[index].is_retry);
        let interval = member.config.rebalance_interval;
        let pause = if balanced { interval } else { UNBALANCED_PAUSE.min(interval) };
        drop(tokio::time::timeout(pause, member.signals.wake.notified()).await);
        // Notifications arrive in bursts; one round answers them all.
        tokio::time::sleep(member.config.rebalance_min_gap.saturating_sub(started.elapsed())).await;
    }
}

/// Computes and applies the assignment. Returns the subscriptions whose topics could not be balanced and keep their queues.
async fn round(member: &Arc<Member>, reports: &mut Reports) -> BTreeSet<usize> {
    let (mut wanted, mut left, mut others) = (BTreeMap::new(), BTreeSet::new(), false);
    let (mut outnumbered, mut problem) = (Vec::new(), None);
    let (mut brokers, mut knows_all) = (BTreeSet::new(), true);
    for (index, subscription) in member.subscriptions.iter().enumerate() {
        match share_of(member, &subscription.topic).await {
            Ok(share) => {
                others |= share.members > 1;
                if !subscription.is_retry {
                    outnumbered.push(share.outnumbered(&subscription.topic));
                }
                brokers.extend(share.brokers);
                let missing = share.missing.into_iter().next();
                problem = problem.or_else(|| missing.map(|queue| format!("no such queue: {queue}")));
                wanted.extend(share.queues.into_iter().map(|queue| (Arc::new(queue), index)));
            }
            Err(error) => {
                debug!(group = %member.group, topic = subscription.topic, %error, "topic not rebalanced");
                left.insert(index);
                if matches!(error, ClientError::NotBalanced { .. }) {
                    problem.get_or_insert_with(|| error.to_string());
                }
                // A topic that no broker has names none.
                knows_all &= matches!(error, ClientError::NoRoute { .. } | ClientError::NoBrokers { .. });
                if error.is_denial() {
                    member.fail(error);
                } else if matches!(error, ClientError::NoMembers { .. } | ClientError::Refused { .. })
                    && !subscription.is_retry
                {
                    tell_of_missing_group(member, index).await;
                }
                let state = member.state.lock();
                let kept = state.queues().filter(|queue| *queue.topic == *subscription.topic);
                wanted.extend(kept.map(|queue| (queue.clone(), index)));
            }
        }
    }
    reports.note_problem(member, problem);
    if left.iter().all(|index: &usize| member.subscriptions[*index].is_retry) {
        reports.note_idle(member, outnumbered);
    }
    if knows_all && !brokers.is_empty() {
        member.retain_contacts(&brokers);
    }
    let misses_retry_topic = left.iter().any(|index: &usize| member.subscriptions[*index].is_retry);
    member.group_view.misses_retry_topic.store(misses_retry_topic, Ordering::Release);
    apply(member, &wanted, others).await;
    member.state.lock().balanced();
    left
}

async fn share_of(member: &Member, topic: &str) -> Result<Share, ClientError> {
    let api = member.client.api();
    let route = api.route(topic).await.inspect_err(|error| {
        if matches!(error, ClientError::NoRoute { .. }) {
            member.group_view.note_route(topic, &[]);
        }
        member.note_name_server(error);
    })?;
    member.group_view.note_route(topic, &route.subscribe);
    let brokers = route.brokers.iter().map(|broker| broker.broker_name.as_str().into()).collect();
    if member.delivery.is_broadcast() {
        let queues = route.subscribe.to_vec();
        return Ok(Share { topic_queues: queues.len(), queues, members: 0, brokers, missing: Vec::new() });
    }
    let balance = &member.config.balance;
    let members = if balance.is_of_members() { sorted_members(member, &route).await? } else { Vec::new() };
    let client_id = member.client.client_id();
    let queues = balance
        .share(member.client.namespace(), &member.group, &route.subscribe, &members, client_id)
        .await
        .map_err(|cause| {
            let (group, topic) = (member.group.to_string(), topic.to_owned());
            ClientError::NotBalanced { group, topic, reason: cause.to_string() }
        })?;
    let missing = balance.missing(topic, &route.subscribe);
    let (members, topic_queues) = (members.len(), route.subscribe.len());
    Ok(Share { queues, members, topic_queues, brokers, missing })
}

/// The client ids of the group, as every member sorts them.
async fn sorted_members(member: &Member, route: &TopicRoute) -> Result<Vec<String>, ClientError> {
    let client_id = member.client.client_id();
    let is_member = |members: &[String]| members.iter().any(|id| id == client_id);
    let mut members = members(member, route).await?;
    if !is_member(&members) {
        member.client.heartbeat().await;
        members = self::members(member, route).await?;
    }
    note_own_id_twice(member, &members);
    allocate::sort_members(&mut members);
    if members.is_empty() {
        // The broker has not seen the heartbeats yet.
        return Err(ClientError::NoMembers { group: member.group.to_string() });
    }
    if !is_member(&members) {
        let (group, topic) = (&member.group, &route.topic);
        warn!(%group, %topic, "member missing in the member list of its group, no queues assigned");
    }
    Ok(members)
}

/// Tells the log of another client with this one's id. Apache's broker lists a member for each connection, and so also a client that has
/// just connected again, until it notices the end of the earlier connection; RocketPy's lists each once, and tells by the heartbeat.
fn note_own_id_twice(member: &Member, members: &[String]) {
    let client_id = member.client.client_id();
    let mut listed_twice = member.group_view.listed_twice.lock();
    if members.iter().filter(|id| *id == client_id).count() < 2 {
        listed_twice.worked();
    } else if listed_twice.failed(Instant::now()) {
        warn!(group = %member.group, client_id, "{SAME_CLIENT_ID}; or this client has just reconnected");
    }
}

/// Returns an error with the next poll when the broker neither has the group nor creates it.
///
/// Such a broker ignores the group's heartbeats, so the group never has members. Only a pull is answered with the reason.
async fn tell_of_missing_group(member: &Member, index: usize) {
    let (api, subscription) = (member.client.api(), &member.subscriptions[index]);
    let Ok(route) = api.route(&subscription.topic).await else { return };
    for queue in &*route.subscribe {
        let Some(address) = route.reading_address(&queue.broker_name, 0) else { continue };
        let request = wire::lite_pull(&Pull {
            group: &member.group,
            queue,
            offset: QueueOffset(0),
            max_messages: 1,
            max_bytes: 1,
            suspend_ms: None,
            subscription: &subscription.expression,
            expression_type: subscription.expression_type,
        });
        let answer = api.call(address, OPERATION, request, api.timeout()).await;
        if let Ok(answer) = answer
            && answer.code == response::SUBSCRIPTION_GROUP_NOT_EXIST
        {
            let error = outcome::refused(OPERATION, address, &answer);
            warn!(group = %member.group, %error, "group not found at the broker, no queues are read");
            member.fail(error);
        }
        return;
    }
}

/// The group's members, from any broker of the topic.
async fn members(member: &Member, route: &TopicRoute) -> Result<Vec<String>, ClientError> {
    let brokers: Vec<(&str, &str)> = route.addresses().collect();
    let first = random_u64() as usize % brokers.len().max(1);
    let mut last = ClientError::NoQueue { topic: route.topic.to_string(), wanted: "readable" };
    for step in 0..brokers.len() {
        let (broker_name, address) = brokers[(first + step) % brokers.len()];
        let answer = member.client.api().members_at(address, &member.group).await;
        member.note_contact(&broker_name.into(), answer.as_ref().err());
        match answer {
            Ok(members) => return Ok(members),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Starts the gained queues and commits the lost ones. Returns after the answers to those commits, so that a queue that comes back
/// in the next round starts after them.
///
/// # Source
/// docs/reference/client.md 8.3.
async fn apply(member: &Arc<Member>, wanted: &BTreeMap<Arc<MessageQueue>, usize>, others: bool) {
    let has_time = !member.config.handover_timeout.is_zero();
    let (is_careful, keeps) = (others && has_time, (others || member.config.tell_changes) && has_time);
    let Assignment { gained, lost, kept, has_returned } = member.state.lock().assign(wanted, keeps);
    member.tell_of_change();
    if has_returned {
        member.signals.handover.notify_waiters();
    }
    if gained.is_empty() && lost.is_empty() && kept.is_empty() {
        return;
    }
    let (assigned, group) = (wanted.len(), &member.group);
    info!(%group, gained = gained.len(), lost = lost.len() + kept.len(), assigned, "assignment changed");
    if let Some(trace) = &member.trace {
        gained.iter().for_each(|gained| trace.forget(&gained.queue));
    }
    handover::start(member, kept);
    if is_careful {
        handover::begin_when_free(member, gained);
    } else {
        let delay = if others { handover::PAUSE } else { Duration::ZERO };
        gained.into_iter().for_each(|gained| member.spawn(|member| pull::run(member, gained, delay)));
    }
    let unlocked = lost.iter().map(|lost| lost.queue.clone()).collect();
    let done: Vec<_> = lost.into_iter().filter(|lost| lost.to_commit().is_some()).collect();
    let commits = member.config.auto_commit.is_some() || member.commits.asked.load(Ordering::Acquire);
    if commits && !done.is_empty() {
        // The runtime reports a panic; the queues are lost either way.
        drop(member.start_commit_of_lost(done).await);
    }
    orderly::unlock(member, unlocked).await;
}

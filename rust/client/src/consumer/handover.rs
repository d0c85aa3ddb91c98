//! Queues that go from one member to another while a user still works on their messages.
//!
//! The member that loses such a queue keeps it until its user commits or, with automatic commits, polls again, for a bounded time. It
//! then commits for the queue and gives it up. Meanwhile it holds the queue's lock at the broker. The member that gains the queue
//! starts when it gets the lock, or after the bound: a member of another client may hold the lock for as long as it lives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rocketpy_model::MessageQueue;
use rocketpy_protocol::Command;
use rocketpy_protocol::body::{LockBatchRequestBody, LockBatchResponseBody};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::assigned::{Gained, Lost};
use super::member::Member;
use super::pull;
use crate::error::ClientError;
use crate::{outcome, wire};

/// Pause before the first pull of a queue that another member may have had, so that it can commit or lock the queue.
const HANDOVER: Duration = Duration::from_millis(500);
/// Interval at which the lock of a queue is asked for.
const LOCK_INTERVAL: Duration = Duration::from_millis(100);
/// How much longer the new member waits than the old one keeps a queue.
const MARGIN: Duration = Duration::from_secs(1);

/// Starts queues that another member may still keep, each when that member has given it up.
pub(super) async fn begin(member: Arc<Member>, mut gained: Vec<Gained>) {
    tokio::time::sleep(HANDOVER).await;
    let until = Instant::now() + member.config.handover_timeout + MARGIN;
    loop {
        let queues: Vec<_> = gained.iter().map(|gained| gained.queue.clone()).collect();
        let free = lock(&member, &queues).await;
        let is_late = Instant::now() >= until;
        let (start, wait): (Vec<_>, Vec<_>) =
            gained.into_iter().partition(|gained| is_late || free.contains(&gained.queue));
        unlock(&member, &free.into_iter().collect::<Vec<_>>()).await;
        for gained in start {
            member.spawn(|member| pull::run(member, gained));
        }
        if wait.is_empty() {
            return;
        }
        gained = wait;
        tokio::time::sleep(LOCK_INTERVAL).await;
    }
}

/// Keeps queues that were just lost for their user, until [`release`].
pub(super) async fn keep(member: Arc<Member>, queues: Vec<Arc<MessageQueue>>) {
    debug!(group = %member.group, queues = queues.len(), "queues are kept until their messages are done with");
    lock(&member, &queues).await;
    tokio::time::sleep(member.config.handover_timeout).await;
    release(&member)
        .await
        .unwrap_or_else(|error| warn!(group = %member.group, %error, "commit of a lost queue failed"));
}

/// Commits for the kept queues that the user is done with or whose time is over, and gives them up.
///
/// # Errors
/// The first commit that failed. The queues are given up all the same.
pub(super) async fn release(member: &Arc<Member>) -> Result<(), ClientError> {
    let lost = member.state.lock().release(member.config.handover_timeout);
    if lost.is_empty() {
        return Ok(());
    }
    let of_task = member.clone();
    // It ends even if the caller's future is dropped, or the consumer closed: the next member waits for it.
    let task = member.client.runtime().spawn(async move { give_up(&of_task, lost).await });
    // The runtime reports a panic; the queues are given up either way.
    task.await.unwrap_or(Ok(()))
}

/// Commits for queues and unlocks them.
pub(super) async fn give_up(member: &Arc<Member>, lost: Vec<Lost>) -> Result<(), ClientError> {
    if lost.is_empty() {
        return Ok(());
    }
    let queues: Vec<_> = lost.iter().map(|lost| lost.queue.clone()).collect();
    let to_commit: Vec<_> = lost.into_iter().filter(|lost| lost.to_commit().is_some()).collect();
    let committed = if to_commit.is_empty() { Ok(()) } else { member.commit_lost(to_commit).await };
    unlock(member, &queues).await;
    committed
}

/// Locks queues for this member. Returns those that no other member holds; those of a broker that does not tell count as free.
async fn lock(member: &Member, queues: &[Arc<MessageQueue>]) -> BTreeSet<Arc<MessageQueue>> {
    let mut free = BTreeSet::new();
    for queues in by_broker(queues) {
        match ask(member, &queues, wire::lock, "queue lock").await.and_then(|(address, answer)| {
            wire::json::<LockBatchResponseBody>("queue lock", &address, &answer.body)
        }) {
            Ok(held) => free.extend(queues.into_iter().filter(|queue| held.lock_ok_mq_set.contains(queue))),
            Err(error) => {
                debug!(group = %member.group, %error, "the broker locks no queues");
                free.extend(queues);
            }
        }
    }
    free
}

/// Unlocks queues of this member.
pub(super) async fn unlock(member: &Member, queues: &[Arc<MessageQueue>]) {
    for queues in by_broker(queues) {
        if let Err(error) = ask(member, &queues, wire::unlock, "queue unlock").await {
            debug!(group = %member.group, %error, "unlocking queues failed");
        }
    }
}

async fn ask(
    member: &Member,
    queues: &[Arc<MessageQueue>],
    request: fn(&LockBatchRequestBody) -> Command,
    operation: &'static str,
) -> Result<(String, Command), ClientError> {
    let api = member.client.api();
    let address = api.master_of(&queues[0]).await?;
    let request = request(&LockBatchRequestBody {
        client_id: member.client.client_id().to_owned(),
        consumer_group: member.group.to_string(),
        mq_set: queues.iter().map(|queue| (**queue).clone()).collect(),
        only_this_broker: true,
    });
    let answer = api.call(&address, operation, request, api.timeout()).await?;
    Ok((address.clone(), outcome::success(operation, &address, answer)?))
}

/// The queues of each broker; no list is empty.
fn by_broker(queues: &[Arc<MessageQueue>]) -> Vec<Vec<Arc<MessageQueue>>> {
    let mut brokers: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for queue in queues {
        brokers.entry(queue.broker_name.clone()).or_default().push(queue.clone());
    }
    brokers.into_values().collect()
}

//! The locks of queues that are read in order: only the member that holds a queue's lock reads it.
//!
//! # Source
//! docs/reference/client.md 12.1, 12.3; other than Apache's clients this one commits before it gives a lock back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketpy_model::MessageQueue;
use rocketpy_protocol::body::{LockBatchRequestBody, LockBatchResponseBody};
use tracing::{debug, warn};

use crate::consumer::handover;
use crate::consumer::member::Member;
use crate::error::ClientError;
use crate::wire;

const OPERATION: &str = "queue lock";
/// A broker frees a lock 60 s after it was last asked for, and this member trusts one for 30 s.
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// Pause before asking again for a lock that another member holds.
const ASK_INTERVAL: Duration = Duration::from_millis(500);

/// Asks for the lock of a queue. Returns how long to wait before the next try.
pub(in crate::consumer) async fn lock_one(member: &Member, queue: &Arc<MessageQueue>) -> Option<Duration> {
    let queues = [queue.clone()];
    match lock(member, &queues).await {
        Ok(held) if held.contains(queue) => None,
        Ok(_) => {
            debug!(group = %member.group, %queue, "another member holds the lock of the queue");
            Some(ASK_INTERVAL)
        }
        Err(error) => {
            debug!(group = %member.group, %queue, %error, "queue not locked");
            Some(ASK_INTERVAL)
        }
    }
}

/// Renews the locks that the member holds, until it ends.
pub(super) async fn renew(member: Arc<Member>) {
    loop {
        tokio::time::sleep(RENEW_INTERVAL).await;
        renew_now(&member).await;
    }
}

/// Renews the locks, as at a broker that was connected to again and may have forgotten them.
pub(in crate::consumer) async fn renew_now(member: &Member) {
    let locked = member.state.lock().locked_queues();
    for queues in by_broker(locked) {
        match lock(member, &queues).await {
            Ok(held) if held.len() < queues.len() => {
                let (had, has) = (queues.len(), held.len());
                warn!(group = %member.group, had, has, "locks of ordered queues lost to another member");
            }
            Ok(_) => {}
            Err(error) => debug!(group = %member.group, %error, "locks not renewed"),
        }
    }
}

/// Locks queues of one broker, or renews their locks, and notes which are held now.
async fn lock(
    member: &Member,
    queues: &[Arc<MessageQueue>],
) -> Result<BTreeSet<Arc<MessageQueue>>, ClientError> {
    let api = member.client.api();
    let turn = handover::turn(member, queues);
    let _turn = turn.read().await;
    let address = api.master_of(&queues[0]).await?;
    let asked_at = Instant::now();
    let answer = api.call_ok(&address, OPERATION, wire::lock(&body(member, queues))).await?;
    let answer: LockBatchResponseBody = wire::json(OPERATION, &address, &answer.body)?;
    let is_held = |queue: &&Arc<MessageQueue>| answer.lock_ok_mq_set.contains(queue);
    let held: BTreeSet<_> = queues.iter().filter(is_held).cloned().collect();
    member.state.lock().locked(queues, &held, asked_at);
    Ok(held)
}

/// Unlocks queues, after the commit of finished messages. A queue that has come back meanwhile keeps its lock.
pub(in crate::consumer) async fn unlock(member: &Member, queues: Vec<Arc<MessageQueue>>) {
    if !member.delivery.needs_locks() {
        return;
    }
    let api = member.client.api();
    for mut queues in by_broker(queues) {
        let turn = handover::turn(member, &queues);
        let _turn = turn.write().await;
        if !member.is_closed() {
            member.state.lock().retain_gone(&mut queues);
        }
        if queues.is_empty() {
            continue;
        }
        let unlocked = async {
            let address = api.master_of(&queues[0]).await?;
            api.call_ok(&address, "queue unlock", wire::unlock(&body(member, &queues))).await
        };
        if let Err(error) = unlocked.await {
            debug!(group = %member.group, %error, "cannot unlock queues");
        }
    }
}

fn body(member: &Member, queues: &[Arc<MessageQueue>]) -> LockBatchRequestBody {
    let is_of_one_broker = queues.iter().all(|queue| queue.broker_name == queues[0].broker_name);
    assert!(!queues.is_empty() && is_of_one_broker, "a request for locks is about queues of one broker");
    LockBatchRequestBody {
        client_id: member.client.client_id().to_owned(),
        consumer_group: member.group.to_string(),
        mq_set: queues.iter().map(|queue| (**queue).clone()).collect(),
        only_this_broker: false,
    }
}

/// The queues of each broker; no list is empty.
fn by_broker(queues: Vec<Arc<MessageQueue>>) -> impl Iterator<Item = Vec<Arc<MessageQueue>>> {
    let mut brokers: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for queue in queues {
        brokers.entry(queue.broker_name.clone()).or_default().push(queue);
    }
    brokers.into_values()
}

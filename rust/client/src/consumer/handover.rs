//! Queues that go from one member to another while a user works on their messages.
//!
//! The member that loses such a queue keeps it until its user has committed everything or, with automatic commits, polls again, for a
//! bounded time. Meanwhile it holds a lock of the queue at the broker. The member that gains the queue starts when it gets the lock,
//! or after the bound.
//!
//! In order, the member that gains the queue needs the lock of the group in any case, and no bound ends a handler that runs: the queue is kept
//! until it returns.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rocketpy_model::MessageQueue;
use rocketpy_protocol::Command;
use rocketpy_protocol::body::{LockBatchRequestBody, LockBatchResponseBody};
use tokio::time::{Instant, timeout_at};
use tracing::{debug, warn};

use super::assigned::{Gained, Kept};
use super::member::Member;
use super::pull;
use super::state::{CommitScope, GiveUp};
use crate::error::ClientError;
use crate::wire;

/// Pause before the first pull of a queue that another member may have had, so that it can commit or lock the queue.
pub(super) const PAUSE: Duration = Duration::from_millis(500);
/// How much longer the new member waits than the old one keeps a queue.
const MARGIN: Duration = Duration::from_secs(1);
/// A broker frees a lock 60 s after it was last asked for.
const RENEW_INTERVAL: Duration = Duration::from_secs(20);
/// Shortest and longest time between two questions for a lock that another member holds.
const ASK_INTERVAL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));
/// Locks belong to a group of this prefix: brokers send the retries of a group that holds locks to its dead letters, because they take
/// it for one that consumes in order.
const GROUP_PREFIX: &str = "%HANDOVER%";
/// Longest name of a group that brokers accept.
const GROUP_MAX_BYTES: usize = 120;

/// Starts the handover of queues that are kept, a task for each broker.
pub(super) fn start(member: &Member, kept: Vec<Kept>) {
    for kept in by_broker(kept, |kept| &kept.queue) {
        member.spawn_handover(|member| keep_to_the_end(member, kept));
    }
}

/// Starts queues that another member may still keep, each when that member has given it up.
pub(super) fn begin_when_free(member: &Member, gained: Vec<Gained>) {
    for gained in by_broker(gained, |gained| &gained.queue) {
        member.spawn_handover(|member| begin(member, gained));
    }
}

/// Keeps queues until their handover is over. A panic on the way leaves neither a queue nor a lock behind.
async fn keep_to_the_end(member: Arc<Member>, mut kept: Vec<Kept>) {
    let task = member.client.runtime().spawn(keep(member.clone(), kept.clone()));
    if task.await.is_err() {
        // The runtime reports the panic.
        let (over, _) = member.state.lock().give_up(&mut kept, GiveUp::All);
        unlock(&member, over).await;
    }
}

async fn keep(member: Arc<Member>, kept: Vec<Kept>) {
    let until = Instant::now() + member.config.handover_timeout;
    let locked = lock(&member, &names(&kept)).await.unwrap_or_default();
    // Without a lock the next member begins at once: nothing is won by keeping the queue.
    let (mut kept, mut rest): (Vec<_>, Vec<_>) =
        kept.into_iter().partition(|kept| locked.contains(&kept.queue));
    debug!(group = %member.group, kept = kept.len(), given_up = rest.len(), "queues handed over to another member");
    give_up(&member, &mut rest, GiveUp::Overdue).await;
    kept.append(&mut rest);
    if member.config.auto_commit.is_some() {
        // A member of another client does not wait for the lock.
        if let Err(error) = member.commit(CommitScope::Settled).await {
            warn!(group = %member.group, %error, "commit of a lost queue failed");
        }
    }
    let (mut renew_at, mut is_reported) = (Instant::now() + RENEW_INTERVAL, false);
    while !kept.is_empty() {
        let mut changed = pin!(member.signals.handover.notified());
        changed.as_mut().enable();
        let is_late = Instant::now() >= until;
        let which = match () {
            () if member.is_closed() => GiveUp::All,
            () if is_late => GiveUp::Overdue,
            () => GiveUp::Unneeded,
        };
        give_up(&member, &mut kept, which).await;
        if kept.is_empty() {
            return;
        }
        if is_late {
            // In order: until a handler returns.
            if !std::mem::replace(&mut is_reported, true) {
                let queues = kept.len();
                warn!(group = %member.group, queues, "ordered queues kept after handover_timeout: their handlers still run");
            }
            changed.await;
        } else if timeout_at(until.min(renew_at), changed).await.is_err() && renew_at < until {
            drop(lock(&member, &names(&kept)).await);
            renew_at = Instant::now() + RENEW_INTERVAL;
        }
    }
}

/// Commits for queues that were kept, and lets the next member have them.
async fn give_up(member: &Arc<Member>, kept: &mut Vec<Kept>, which: GiveUp) {
    let over = member.give_up(kept, which).await;
    unlock(member, over).await;
}

async fn begin(member: Arc<Member>, mut gained: Vec<Gained>) {
    let (mut ask_at, mut interval) = (Instant::now() + PAUSE, ASK_INTERVAL.0);
    let until = Instant::now() + member.config.handover_timeout + MARGIN;
    while !gained.is_empty() {
        sleep_until(&member, ask_at).await;
        {
            let state = member.state.lock();
            gained.retain(|gained| state.is_assigned(&gained.queue, gained.id));
        }
        if member.is_closed() || gained.is_empty() {
            return;
        }
        let free = ask(&member, &gained).await;
        let is_late = Instant::now() >= until;
        let (start, wait): (Vec<_>, Vec<_>) =
            gained.into_iter().partition(|gained| is_late || free.contains(&gained.queue));
        gained = wait;
        for gained in start {
            member.spawn(|member| pull::run(member, gained, Duration::ZERO));
        }
        (ask_at, interval) = (Instant::now() + interval, (2 * interval).min(ASK_INTERVAL.1));
    }
}

/// Waits until this time or the end of the consumer.
async fn sleep_until(member: &Member, at: Instant) {
    loop {
        let mut changed = pin!(member.signals.handover.notified());
        changed.as_mut().enable();
        if member.is_closed() || timeout_at(at, changed).await.is_err() {
            return;
        }
    }
}

/// The queues that no other member keeps; all of them at a broker that does not tell.
async fn ask(member: &Member, gained: &[Gained]) -> BTreeSet<Arc<MessageQueue>> {
    let queues: Vec<_> = gained.iter().map(|gained| gained.queue.clone()).collect();
    match lock(member, &queues).await {
        Ok(free) => {
            unlock(member, free.iter().cloned().collect()).await;
            free
        }
        Err(_) => queues.into_iter().collect(),
    }
}

/// Locks queues of one broker for this member, or renews their locks. Returns those that it holds now.
async fn lock(
    member: &Member,
    queues: &[Arc<MessageQueue>],
) -> Result<BTreeSet<Arc<MessageQueue>>, ClientError> {
    const OPERATION: &str = "queue lock";
    let turn = turn(member, queues);
    let _turn = turn.write().await;
    let answer = call(member, queues, wire::lock, OPERATION).await;
    let held = answer
        .and_then(|(address, answer)| wire::json::<LockBatchResponseBody>(OPERATION, &address, &answer.body));
    let held = held.inspect_err(|error| debug!(group = %member.group, %error, "queues not locked"))?;
    let is_held = |queue: &&Arc<MessageQueue>| held.lock_ok_mq_set.contains(queue);
    Ok(queues.iter().filter(is_held).cloned().collect())
}

/// Unlocks queues of one broker, except those that this member keeps again.
async fn unlock(member: &Member, mut queues: Vec<Arc<MessageQueue>>) {
    if queues.is_empty() {
        return;
    }
    let turn = turn(member, &queues);
    let _turn = turn.write().await;
    {
        let state = member.state.lock();
        queues.retain(|queue| !state.is_kept(queue));
    }
    if !queues.is_empty()
        && let Err(error) = call(member, &queues, wire::unlock, "queue unlock").await
    {
        debug!(group = %member.group, %error, "cannot unlock queues");
    }
}

/// Turn of requests about locks at the broker of these queues: one that gives locks back has it alone.
pub(super) fn turn(member: &Member, queues: &[Arc<MessageQueue>]) -> Arc<tokio::sync::RwLock<()>> {
    member.handovers.turns.lock().entry(queues[0].broker_name.clone()).or_default().clone()
}

async fn call(
    member: &Member,
    queues: &[Arc<MessageQueue>],
    request: fn(&LockBatchRequestBody) -> Command,
    operation: &'static str,
) -> Result<(String, Command), ClientError> {
    let is_of_one_broker = queues.iter().all(|queue| queue.broker_name == queues[0].broker_name);
    assert!(!queues.is_empty() && is_of_one_broker, "a request for locks is about queues of one broker");
    let api = member.client.api();
    let address = api.master_of(&queues[0]).await?;
    let request = request(&LockBatchRequestBody {
        client_id: member.client.client_id().to_owned(),
        consumer_group: lock_group(&member.group),
        mq_set: queues.iter().map(|queue| (**queue).clone()).collect(),
        only_this_broker: true,
    });
    let answer = api.call_ok(&address, operation, request).await?;
    Ok((address, answer))
}

/// The group of the locks. Two long names that only begin differently share their locks, and wait for each other for a bounded time.
fn lock_group(group: &str) -> String {
    let first = (GROUP_PREFIX.len() + group.len()).saturating_sub(GROUP_MAX_BYTES);
    format!("{GROUP_PREFIX}{}", &group[first..])
}

fn names(kept: &[Kept]) -> Vec<Arc<MessageQueue>> {
    kept.iter().map(|kept| kept.queue.clone()).collect()
}

/// The queues of each broker; no list is empty.
fn by_broker<T>(queues: Vec<T>, name: impl Fn(&T) -> &MessageQueue) -> impl Iterator<Item = Vec<T>> {
    let mut brokers: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for queue in queues {
        brokers.entry(name(&queue).broker_name.clone()).or_default().push(queue);
    }
    brokers.into_values()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_the_locks_is_a_legal_name_of_its_own() {
        assert_eq!(lock_group("report"), "%HANDOVER%report");
        let longest = "x".repeat(GROUP_MAX_BYTES - 1) + "y";
        rocketpy_model::name::check_group(&longest).unwrap();
        let locks = lock_group(&longest);
        rocketpy_model::name::check_group(&locks).unwrap();
        assert!(locks != longest && locks.ends_with("xy"));
    }
}

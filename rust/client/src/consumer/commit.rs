//! Commits: on demand, at intervals, and repeated after a broker's restart.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rocketpy_model::{MessageQueue, QueueOffset};
use rocketpy_protocol::code::response;
use tokio::task::{JoinHandle, JoinSet};
use tracing::{debug, info, warn};

use super::assigned::{Kept, Lost};
use super::member::Member;
use super::pull;
use super::push::orderly;
use super::state::{CommitScope, GiveUp};
use crate::error::ClientError;
use crate::log_throttle::LogThrottle;

/// The turn of a commit.
type Turn<'a> = tokio::sync::MutexGuard<'a, ()>;

/// What brokers said of queues, and the first failure to ask.
type Answers<T> = (BTreeMap<Arc<MessageQueue>, T>, Result<(), ClientError>);

impl Member {
    /// Commits the offsets that the brokers do not have yet.
    pub(super) async fn commit(self: &Arc<Self>, scope: CommitScope) -> Result<(), ClientError> {
        self.commit_in(self.commits.turn.lock().await, scope).await
    }

    /// As [`commit`](Self::commit), in its turn.
    async fn commit_in(self: &Arc<Self>, turn: Turn<'_>, scope: CommitScope) -> Result<(), ClientError> {
        // What was settled before is covered.
        self.commits.asked.store(false, Ordering::Release);
        let (is_any_kept, offsets, kept) = {
            let mut state = self.state.lock();
            // Where handlers finish messages, these say what is done.
            let is_any_kept =
                (scope == CommitScope::HandedOut || self.delivery.is_pushed()) && state.settle();
            (is_any_kept, state.to_commit(scope), state.kept_to_commit())
        };
        let committed = self.send(offsets).await.and(self.commit_lost(kept).await);
        drop(turn);
        if is_any_kept {
            self.signals.handover.notify_waiters();
        }
        committed
    }

    /// Commits in the background what was handed out by now; a failure is logged, and repeated with the next commit.
    pub(super) fn commit_soon(self: &Arc<Self>) {
        self.state.lock().settle();
        self.start_commit();
    }

    /// As [`commit_all`](Self::commit_all), in the background.
    pub(super) fn commit_all_soon(
        self: &Arc<Self>,
        offsets: &[(MessageQueue, QueueOffset)],
    ) -> Result<(), ClientError> {
        {
            let mut state = self.state.lock();
            let checked = offsets.iter().map(|(queue, offset)| state.check_commit(queue, *offset));
            let checked = checked.collect::<Result<Vec<_>, _>>()?;
            checked.iter().for_each(|(queue, offset)| state.settle_at(queue, *offset));
        }
        self.start_commit();
        Ok(())
    }

    /// Starts a commit of what the user is done with, unless one waits for its turn. It goes on if the consumer is closed.
    fn start_commit(self: &Arc<Self>) {
        self.signals.handover.notify_waiters();
        if self.commits.asked.swap(true, Ordering::AcqRel) {
            return;
        }
        let member = self.clone();
        self.client.runtime().spawn(async move {
            let turn = member.commits.turn.lock().await;
            if !member.commits.asked.load(Ordering::Acquire) {
                return; // another commit covered it
            }
            let committed = member.commit_in(turn, CommitScope::Settled).await;
            let mut failure = member.commits.failure.lock();
            match committed {
                Ok(()) if failure.worked() => warn!(group = %member.group, "background commit recovered"),
                Err(error) if failure.failed(Instant::now()) => {
                    warn!(group = %member.group, %error, "background commit failed, retrying with the next commit");
                }
                Ok(()) | Err(_) => {}
            }
        });
    }

    /// Commits offsets that the user chose. Each must be of an assigned or kept queue and not above what was handed out.
    pub(super) async fn commit_all(
        self: &Arc<Self>,
        offsets: &[(MessageQueue, QueueOffset)],
    ) -> Result<(), ClientError> {
        let turn = self.commits.turn.lock().await;
        let (offsets, kept) = {
            let mut state = self.state.lock();
            // Checked under the lock: before that, queues may still go to other members.
            let checked = offsets.iter().map(|(queue, offset)| state.check_commit(queue, *offset));
            let mut offsets = checked.collect::<Result<Vec<_>, _>>()?;
            offsets.iter().for_each(|(queue, offset)| state.settle_at(queue, *offset));
            offsets.retain(|(queue, _)| state.contains(queue));
            (offsets, state.kept_to_commit())
        };
        let committed = self.send(offsets).await.and(self.commit_lost(kept).await);
        drop(turn);
        self.signals.handover.notify_waiters();
        committed
    }

    /// Goes to the offsets that a person set the group to, and commits them: a broker that orders it has not stored them.
    ///
    /// # Source
    /// docs/reference/client.md 15.1, without the wait for what the user works on: its commit cannot undo the reset.
    pub(super) async fn commit_reset(self: Arc<Self>, offsets: BTreeMap<MessageQueue, QueueOffset>) {
        let _turn = self.commits.turn.lock().await;
        let mine: Vec<_> = {
            let mut state = self.state.lock();
            offsets.into_iter().filter(|(queue, offset)| state.reset(queue, *offset)).collect()
        };
        let queues = mine.len();
        let mine = mine.into_iter().map(|(queue, offset)| (Arc::new(queue), offset)).collect();
        match self.send(mine).await {
            Ok(()) => info!(group = %self.group, queues, "offsets of the group reset"),
            Err(error) => {
                warn!(group = %self.group, %error, "reset offsets not committed yet")
            }
        }
    }

    /// Gives up queues that were kept. Commits for them, and returns their names. They are taken out of `kept`, as are those that came back.
    pub(super) async fn give_up(
        self: &Arc<Self>,
        kept: &mut Vec<Kept>,
        which: GiveUp,
    ) -> Vec<Arc<MessageQueue>> {
        // First: where such a queue comes back from now on, its start is asked for after this commit.
        let _turn = self.commits.turn.lock().await;
        let (over, lost) = self.state.lock().give_up(kept, which);
        self.tell_of_change();
        self.commit_lost_or_warn(lost).await;
        orderly::unlock(self, over.clone()).await;
        over
    }

    /// Commits for queues that this member lost or only keeps, in the turn of the caller. The next member continues from there, unless
    /// it has already committed more: this member may notice the loss late. A broker whose offset is below what this member committed
    /// has lost the last commits, or the end of the queue. Then this member commits nothing, so that the next member skips nothing. Nor
    /// does it for a topic that was created again.
    async fn commit_lost(self: &Arc<Self>, mut lost: Vec<Lost>) -> Result<(), ClientError> {
        lost.retain(|lost| lost.to_commit().is_some());
        let furthest = |lost: &Lost| Some((lost.queue.clone(), lost.settled.max(lost.committed)?));
        let (here, probed) = self.without_moved(lost.iter().filter_map(furthest).collect()).await;
        let (stored, asked) = self.stored(here.into_iter()).await;
        let offset = |lost: Lost| {
            let (settled, stored) = (lost.to_commit()?, *stored.get(&lost.queue)?);
            let is_behind = lost.committed < stored && stored < Some(settled);
            (stored == lost.committed || is_behind).then_some((lost.queue, settled))
        };
        probed.and(asked).and(self.send(lost.into_iter().filter_map(offset).collect()).await)
    }

    async fn commit_lost_or_warn(self: &Arc<Self>, lost: Vec<Lost>) {
        if let Err(error) = self.commit_lost(lost).await {
            warn!(group = %self.group, %error, "commit of a lost queue failed");
        }
    }

    /// Starts the commit of lost queues, which continues even if the consumer is closed.
    pub(super) fn start_commit_of_lost(self: &Arc<Self>, lost: Vec<Lost>) -> JoinHandle<()> {
        let member = self.clone();
        self.client.runtime().spawn(async move {
            let _turn = member.commits.turn.lock().await;
            member.commit_lost_or_warn(lost).await;
        })
    }

    /// The stored offsets. A queue whose broker does not answer is left out, and its error returned.
    async fn stored(
        self: &Arc<Self>,
        queues: impl Iterator<Item = Arc<MessageQueue>>,
    ) -> Answers<Option<QueueOffset>> {
        let ask =
            |member: Arc<Self>, queue: Arc<MessageQueue>| async move { member.stored_offset(&queue).await };
        self.of_each(queues, ask).await
    }

    /// The queues in which the broker does not move this member, as it would in a topic that was created again. Asks with a pull at the
    /// furthest offset that the member has: a query of the stored offset would tell the broker that this member knows the later topic, and
    /// its offsets would count there.
    async fn without_moved(
        self: &Arc<Self>,
        furthest: BTreeMap<Arc<MessageQueue>, QueueOffset>,
    ) -> (BTreeSet<Arc<MessageQueue>>, Result<(), ClientError>) {
        let queues: Vec<_> = furthest.keys().cloned().collect();
        let ask = |member: Arc<Self>, queue: Arc<MessageQueue>| {
            let offset = furthest[&queue];
            async move { Ok(member.commits.local.is_none() && pull::is_moved(&member, &queue, offset).await?) }
        };
        let (moved, asked) = self.of_each(queues.into_iter(), ask).await;
        (moved.into_iter().filter(|(_, is_moved)| !is_moved).map(|(queue, _)| queue).collect(), asked)
    }

    /// The ends of queues. A queue whose broker does not answer is left out, and its error returned.
    async fn ends(self: &Arc<Self>, queues: impl Iterator<Item = Arc<MessageQueue>>) -> Answers<QueueOffset> {
        let ask = |member: Arc<Self>, queue: Arc<MessageQueue>| async move {
            member.client.api().max_offset(&queue).await
        };
        self.of_each(queues, ask).await
    }

    /// Asks about all queues at once.
    async fn of_each<T: Send + 'static, A: Future<Output = Result<T, ClientError>> + Send + 'static>(
        self: &Arc<Self>,
        queues: impl Iterator<Item = Arc<MessageQueue>>,
        ask: impl Fn(Arc<Self>, Arc<MessageQueue>) -> A,
    ) -> Answers<T> {
        let asked = queues.map(|queue| {
            let answer = ask(self.clone(), queue.clone());
            async move { (queue, answer.await) }
        });
        let answers = asked.collect::<JoinSet<_>>().join_all().await;
        let (mut known, mut asked) = (BTreeMap::new(), Ok(()));
        for (queue, answer) in answers {
            match answer {
                Ok(answer) => drop(known.insert(queue, answer)),
                Err(error) => {
                    warn!(group = %self.group, %queue, %error, "broker did not report the offset of a queue");
                    asked = asked.and(Err(error));
                }
            }
        }
        (known, asked)
    }

    /// Stores where the group begins in a queue, unless another member has already stored an offset. Returns the stored offset.
    ///
    /// Without it the next member to get the queue would begin at its later end, or at a later time, and no member would read
    /// the messages in between.
    pub(super) async fn store_start(
        &self,
        queue: &MessageQueue,
        offset: QueueOffset,
    ) -> Result<QueueOffset, ClientError> {
        // Starts of several queues must not arrive at once either, see `send_to_table`.
        let _turn = self.commits.turn.lock().await;
        if let Some(stored) = self.stored_offset(queue).await? {
            return Ok(stored);
        }
        self.store_offset(queue, offset).await?;
        self.persist_offsets().await?;
        Ok(offset)
    }

    /// The offset that is stored for the group: at the queue's broker, or here.
    pub(super) async fn stored_offset(
        &self,
        queue: &MessageQueue,
    ) -> Result<Option<QueueOffset>, ClientError> {
        match &self.commits.local {
            Some(offsets) => Ok(offsets.get(queue)),
            None => self.client.api().stored_offset(&self.group, queue).await,
        }
    }

    async fn store_offset(&self, queue: &MessageQueue, offset: QueueOffset) -> Result<(), ClientError> {
        match &self.commits.local {
            Some(offsets) => {
                offsets.put(queue, offset);
                Ok(())
            }
            None => self.client.api().store_offset(&self.group, queue, offset).await,
        }
    }

    /// Writes offsets that are kept here to their file.
    async fn persist_offsets(&self) -> Result<(), ClientError> {
        match &self.commits.local {
            Some(offsets) => offsets.persist(self.client.runtime()).await,
            None => Ok(()),
        }
    }

    /// Waits for the commits that are under way.
    pub(super) async fn after_commits(&self) {
        drop(self.commits.turn.lock().await);
    }

    /// Sends all offsets, notes the acknowledged ones and returns the first failure.
    async fn send(
        self: &Arc<Self>,
        offsets: Vec<(Arc<MessageQueue>, QueueOffset)>,
    ) -> Result<(), ClientError> {
        let mut tables: BTreeMap<_, VecDeque<_>> = BTreeMap::new();
        for (queue, offset) in offsets {
            let table = (queue.broker_name.clone(), queue.topic.clone());
            tables.entry(table).or_default().push_back((queue, offset));
        }
        let calls: JoinSet<_> =
            tables.into_values().map(|offsets| send_to_table(self.clone(), offsets)).collect();
        let sent: Result<(), _> = calls.join_all().await.into_iter().collect();
        sent.map_err(|error| self.explained(error)).and(self.persist_offsets().await)
    }

    async fn send_one(
        self: Arc<Self>,
        (queue, offset): (Arc<MessageQueue>, QueueOffset),
    ) -> Result<(), ClientError> {
        let result = self.store_offset(&queue, offset).await;
        // A consumer that polls gets the error. Push consumers commit by themselves: a message of an earlier topic has nothing to commit.
        if let Err(ClientError::Refused { code: response::INVALID_PARAMETER, .. }) = &result
            && self.delivery.is_pushed()
        {
            warn!(group = %self.group, %queue, queue_offset = offset.get(), "offset not committed: the broker has moved readers of the queue");
            return Ok(());
        }
        match &result {
            Ok(()) => {
                self.state.lock().committed(&queue, offset);
                if let Some(trace) = &self.trace {
                    trace.committed(&queue, offset);
                }
            }
            Err(error) => debug!(%queue, %error, "commit failed"),
        }
        result
    }
}

/// Sends the offsets of one topic at one broker: first one alone, then the others at once.
///
/// Apache's broker creates a group's table of a topic without a lock. When the first commits arrive together, each creates its
/// own table and only the last one's offsets survive.
async fn send_to_table(
    member: Arc<Member>,
    mut offsets: VecDeque<(Arc<MessageQueue>, QueueOffset)>,
) -> Result<(), ClientError> {
    let Some(first) = offsets.pop_front() else { return Ok(()) };
    let first = member.clone().send_one(first).await;
    let others: JoinSet<_> = offsets.into_iter().map(|offset| member.clone().send_one(offset)).collect();
    first.and(others.join_all().await.into_iter().collect())
}

/// At every interval, commits what the user was done with when the latest poll began.
pub(super) async fn run(member: Arc<Member>, interval: Duration) {
    let mut ticks = tokio::time::interval(interval.max(Duration::from_millis(10)));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut failure = LogThrottle::default();
    // The first tick comes at once.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        match member.commit(CommitScope::Settled).await {
            // A warning too: whoever read of the failure reads of its end.
            Ok(()) if failure.worked() => warn!(group = %member.group, "automatic commit recovered"),
            Err(error) if failure.failed(Instant::now()) => {
                warn!(group = %member.group, %error, "automatic commit failed, retrying");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

/// Asks a broker that was connected to again where it moves this member, in all queues: it may have another store, whose queues are still
/// shorter. Then repeats the last acknowledged commits of these subscriptions where the broker has a lower offset: it restarted before it
/// wrote them to disk. A higher offset is the commit of another member. What lies beyond a queue's end is not repeated: the broker lost
/// that end, and new messages get the same offsets.
pub(super) async fn repeat(member: Arc<Member>, subscriptions: BTreeSet<usize>) {
    let _turn = member.commits.turn.lock().await;
    let topics: BTreeSet<_> =
        subscriptions.into_iter().map(|index| &*member.subscriptions[index].topic).collect();
    let (mut offsets, mut furthest) = {
        let state = member.state.lock();
        (state.acknowledged(), state.furthest())
    };
    furthest.retain(|queue, _| topics.contains(&*queue.topic));
    let (here, _) = member.without_moved(furthest).await;
    offsets.retain(|(queue, _)| here.contains(queue));
    let (stored, _) = member.stored(offsets.iter().map(|(queue, _)| queue.clone())).await;
    offsets.retain(|(queue, offset)| stored.get(queue).is_some_and(|stored| *stored < Some(*offset)));
    let (ends, _) = member.ends(offsets.iter().map(|(queue, _)| queue.clone())).await;
    offsets.retain(|(queue, offset)| ends.get(queue).is_some_and(|end| offset <= end));
    if let Err(error) = member.send(offsets).await {
        warn!(group = %member.group, %error, "cannot repeat commits to a broker");
    }
}

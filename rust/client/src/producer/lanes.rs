//! `submit`: messages are handed over one by one and sent together as they gather.
//!
//! The messages of a topic that are bound to no queue share one lane; the queue is chosen when a request is made of them. Those
//! that are bound, by an order key or by name, wait in a lane of their queue. A lane is emptied by workers: tasks that make a
//! request, send it, tell its outcomes and go on, until nothing waits.
//!
//! * Messages gather while a request is under way, so a lone message does not wait, and many messages need few requests. To a topic
//!   that takes no batches each goes in a request of its own.
//! * A bound lane has one worker, and stops behind a failure: what waits then is not sent, for it must not overtake.
//! * A worker that panics fails its request. The shared lane goes on; a bound lane stops behind it, as behind any failure.
//! * The shared lane gets another worker when a request is full, or when those under way take long. Each uses a queue of its own
//!   as long as there is one that has no request under way.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_model::MessageQueue;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout_at;

use super::lane::{Lane, Limits, Submitted, Taken};
use super::pack::{self, Outgoing, Packed, Packer};
use super::receipts::Stored;
use super::send::Sender;
use super::validate;
use super::window::Window;
use super::worker::{BoundWorker, SharedWorker};
use crate::error::ClientError;
use crate::route::TopicRoute;
use crate::send_error::SendError;

/// The lanes of one producer.
pub(crate) struct Lanes {
    pub(super) sender: Sender,
    pub(super) window: Arc<Window>,
    limits: Limits,
    /// Topics with messages that wait or are on their way.
    pub(super) topics: Mutex<HashMap<String, Topic>>,
    /// [`Hurry`]s that live.
    hurrying: AtomicUsize,
}

/// While it lives, no message lingers, not even one that is on its way into its lane.
pub(crate) struct Hurry<'a>(&'a Lanes);

pub(super) struct Topic {
    pub(super) shared: Shared,
    /// Lanes of queues, each where the route has its queue while the route stays the same. None moves or goes.
    pub(super) bound: Vec<Option<Bound>>,
    /// Workers of lanes of queues.
    pub(super) bound_workers: usize,
    /// Whether its requests may hold several messages.
    takes_batches: bool,
    pub(super) limits: Limits,
    gate: Arc<Gate>,
}

/// Holds the workers of a topic back.
pub(super) struct Gate {
    /// Limits the requests under way.
    pub(super) room: Semaphore,
    /// A lane is full, or someone waits for its messages: nobody lingers.
    go: Notify,
}

/// The lane of the messages that are bound to no queue.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) lane: Lane,
    pub(super) workers: usize,
    /// Workers that have made no request yet, and those whose request is not slow.
    pub(super) starting: usize,
    pub(super) prompt: usize,
    most_workers: usize,
    /// Queues with a request under way.
    pub(super) busy: Vec<MessageQueue>,
}

pub(super) struct Bound {
    pub(super) queue: MessageQueue,
    pub(super) lane: Lane,
    pub(super) has_worker: bool,
}

/// Where a message waits.
pub(crate) enum Way {
    /// In the shared lane.
    Any,
    /// In the lane of a queue, which has this index in the route.
    Queue(MessageQueue, Option<usize>),
}

/// One lane of a topic.
#[derive(Debug, Clone, Copy)]
pub(super) enum Which {
    Shared,
    /// That of a queue, by its index in [`Topic::bound`].
    Bound(usize),
}

/// A request, and the messages in it.
pub(super) struct Request<'a> {
    pub(super) outgoing: Outgoing,
    taken: Taken<'a>,
}

impl Lanes {
    pub(crate) fn new(sender: Sender, window: Arc<Window>) -> Self {
        let limits = Limits::new(&sender.config);
        Self { sender, window, limits, topics: Mutex::default(), hurrying: AtomicUsize::new(0) }
    }

    /// Puts a message in its lane and starts a worker if the lane needs one.
    pub(crate) fn push(self: &Arc<Self>, route: &TopicRoute, way: Way, submitted: Submitted) {
        let has_linger = !self.sender.config.linger.is_zero();
        let mut topics = self.topics.lock();
        // Asked under the lock: a hurry that begins later finds the message in its lane.
        let lingers = has_linger && self.hurrying.load(Ordering::Acquire) == 0;
        let topic = match topics.get_mut(&submitted.message.topic) {
            Some(topic) => topic,
            None => {
                let name = submitted.message.topic.clone();
                let topic = Topic::new(&name, self.sender.config.requests_in_flight, self.limits);
                topics.entry(name).or_insert(topic)
            }
        };
        match way {
            Way::Any => {
                // Messages that do not gather do not wait for a queue of their own.
                let queues = if topic.takes_batches { route.publish.len().max(1) } else { usize::MAX };
                topic.shared.most_workers = self.sender.config.requests_in_flight.clamp(1, queues);
                topic.shared.lane.push(submitted, lingers);
                if let Some(worker) = topic.hire(self, &route.topic) {
                    drop(topics);
                    worker.start();
                } else if has_linger && topic.shared.lane.is_due(topic.limits) {
                    topic.gate.go.notify_waiters();
                }
            }
            Way::Queue(queue, index) => {
                let at = topic.lane_of(queue, index);
                let lanes = topic.bound.len();
                let Some(bound) = &mut topic.bound[at] else { unreachable!("the lane was just found") };
                bound.lane.push(submitted, lingers);
                if !bound.has_worker {
                    bound.has_worker = true;
                    topic.bound_workers += 1;
                    assert!(topic.bound_workers <= lanes, "a bound lane has at most one worker");
                    let worker = BoundWorker::new(self, bound.queue.clone(), at, topic.gate.clone());
                    drop(topics);
                    worker.start();
                } else if has_linger && bound.lane.is_due(topic.limits) {
                    topic.gate.go.notify_waiters();
                }
            }
        }
    }

    /// Sends what waits, and what comes while the result lives, without a linger.
    #[must_use = "what comes lingers again once it is dropped"]
    pub(crate) fn hurry(&self) -> Hurry<'_> {
        self.hurrying.fetch_add(1, Ordering::AcqRel);
        let hurry = Hurry(self);
        for topic in self.topics.lock().values_mut() {
            topic.shared.lane.hurry();
            topic.bound.iter_mut().flatten().for_each(|bound| bound.lane.hurry());
            topic.gate.go.notify_waiters();
        }
        hurry
    }

    /// Waits as long as the lane lingers.
    pub(super) async fn linger(&self, topic: &str, gate: &Gate, lane: Which) {
        let linger = self.sender.config.linger;
        if linger.is_zero() {
            return;
        }
        loop {
            let go = gate.go.notified();
            let until = |topic: &mut Topic| {
                let limits = topic.limits;
                topic.lane(lane)?.lingers_until(linger, limits)
            };
            let Some(until) = self.with(topic, until).flatten() else { return };
            if timeout_at(until.into(), go).await.is_err() {
                return;
            }
        }
    }

    /// Packs what fits into a request, and puts the others back.
    pub(super) fn pack<'a>(
        &self,
        packer: &mut Packer,
        topic: &str,
        mut taken: Taken<'a>,
        lane: Which,
    ) -> Request<'a> {
        let ids = self.sender.client.ids();
        let moment = ids.moment();
        let fits = |submitted: &&Submitted| {
            packer.push(&submitted.message, submitted.given(), ids, moment) == Packed::Added
        };
        let count = taken.iter().take_while(fits).count();
        let rest = taken.split_off(count);
        if !rest.is_empty() {
            self.with(topic, |topic| {
                if let Some(lane) = topic.lane(lane) {
                    lane.put_back(rest);
                }
                topic.gate.go.notify_waiters();
            });
        }
        let outgoing = match taken.iter().next() {
            Some(only) if count == 1 => {
                packer.clear();
                pack::single(&only.message, only.given(), &self.sender.config, ids, moment)
            }
            _ => packer.finish(topic, ids, moment),
        };
        assert!(outgoing.keys.len() == taken.iter().len(), "a request has a key for each of its messages");
        Request { outgoing, taken }
    }

    /// Tells why messages are not sent, and counts them.
    pub(super) fn fail(&self, taken: Taken<'_>, error: ClientError) {
        self.sender.recorder.unsent(taken.iter().map(|submitted| &*submitted.message));
        taken.tell_untried(error.into());
    }

    /// Works on a topic under the lock.
    pub(super) fn with<R>(&self, topic: &str, work: impl FnOnce(&mut Topic) -> R) -> Option<R> {
        self.topics.lock().get_mut(topic).map(work)
    }
}

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.hurrying.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Topic {
    fn new(name: &str, requests_in_flight: usize, limits: Limits) -> Self {
        let takes_batches = validate::takes_batches(name);
        let limits = if takes_batches { limits } else { limits.without_batches() };
        let room = Semaphore::new(requests_in_flight.min(Semaphore::MAX_PERMITS));
        let gate = Arc::new(Gate { room, go: Notify::new() });
        Self { shared: Shared::default(), bound: Vec::new(), bound_workers: 0, takes_batches, limits, gate }
    }

    pub(super) fn lane(&mut self, which: Which) -> Option<&mut Lane> {
        match which {
            Which::Shared => Some(&mut self.shared.lane),
            Which::Bound(at) => Some(&mut self.bound.get_mut(at)?.as_mut()?.lane),
        }
    }

    /// Index of the lane of a queue, made if there is none.
    fn lane_of(&mut self, queue: MessageQueue, index: Option<usize>) -> usize {
        let is_it = |bound: &Option<Bound>| bound.as_ref().is_some_and(|bound| bound.queue == queue);
        if let Some(index) = index.filter(|index| self.bound.get(*index).is_some_and(is_it)) {
            return index;
        }
        // The first message for the queue, or the route has changed.
        if let Some(at) = self.bound.iter().position(is_it) {
            return at;
        }
        let free = index.filter(|index| self.bound.get(*index).is_none_or(Option::is_none));
        let at = free.unwrap_or(self.bound.len());
        if at >= self.bound.len() {
            self.bound.resize_with(at + 1, || None);
        }
        self.bound[at] = Some(Bound { queue, lane: Lane::default(), has_worker: false });
        at
    }

    /// Another worker of the shared lane if it needs one, which is then counted: none will soon take what waits, or it fills a
    /// request for another.
    pub(super) fn hire(&mut self, lanes: &Arc<Lanes>, name: &Arc<str>) -> Option<SharedWorker> {
        let shared = &mut self.shared;
        assert!(
            shared.starting <= shared.workers && shared.prompt <= shared.workers,
            "workers that start or are prompt are workers of the lane"
        );
        assert!(shared.busy.len() <= shared.workers, "a worker has one request at a time");
        let starts = shared.workers < shared.most_workers
            && (shared.prompt == 0 || shared.lane.fills(shared.starting + 1, self.limits));
        starts.then(|| {
            shared.workers += 1;
            shared.starting += 1;
            shared.prompt += 1;
            SharedWorker::new(lanes, name.clone(), self.gate.clone())
        })
    }

    pub(super) fn is_idle(&self) -> bool {
        self.shared.workers == 0 && self.bound_workers == 0
    }
}

impl Shared {
    /// Another request may use the queue.
    pub(super) fn free(&mut self, queue: Option<MessageQueue>) {
        if let Some(at) = self.busy.iter().position(|busy| Some(busy) == queue.as_ref()) {
            self.busy.swap_remove(at);
        }
    }
}

impl Request<'_> {
    /// The longest of its messages: giving up earlier would fail messages that may still wait.
    pub(super) fn timeout(&self) -> Duration {
        self.taken.iter().map(|submitted| submitted.timeout).max().unwrap_or_default()
    }

    pub(super) fn tell(self, result: Result<Stored, SendError>) {
        self.taken.tell(result, self.outgoing.keys);
    }
}

//! `submit`: messages are handed over one by one and sent together as they gather.
//!
//! The messages of a topic that are bound to no queue share one lane; the queue is chosen when a request is made of them. Those
//! that are bound, by an order key or by name, wait in a lane of their queue. A lane is emptied by workers: tasks that make a
//! request, send it, tell its outcomes and go on, until nothing waits.
//!
//! * Messages gather while a request is under way, so a lone message does not wait, and many messages need few requests.
//! * A bound lane has one worker, and stops behind a failure: what waits then is not sent, for it must not overtake.
//! * The shared lane gets another worker when a request is full, or when those under way take long. Each uses a queue of its own
//!   as long as there is one that has no request under way.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_model::MessageQueue;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout_at;

use super::lane::{Lane, Limits, Submitted, Taken};
use super::pack::{self, Outgoing, Packed, Packer};
use super::send::{Sender, Stored, Target};
use super::window::Window;
use crate::error::ClientError;
use crate::route::TopicRoute;
use crate::send_error::SendError;

/// A request that takes longer no longer keeps messages of the shared lane waiting for its end. Answers of a busy broker come
/// within a millisecond or two.
const PROMPT: Duration = Duration::from_millis(5);

/// The lanes of one producer.
pub(crate) struct Lanes {
    sender: Sender,
    window: Arc<Window>,
    limits: Limits,
    /// Topics with messages that wait or are on their way.
    topics: Mutex<HashMap<String, Topic>>,
}

struct Topic {
    shared: Shared,
    /// Lanes of queues, each where the route has its queue while the route stays the same. None moves or goes.
    bound: Vec<Option<Bound>>,
    /// Workers of lanes of queues.
    bound_workers: usize,
    gate: Arc<Gate>,
}

/// Holds the workers of a topic back.
struct Gate {
    /// Limits the requests under way.
    room: Semaphore,
    /// A lane is full, or a flush waits for it: nobody lingers.
    go: Notify,
}

/// The lane of the messages that are bound to no queue.
#[derive(Default)]
struct Shared {
    lane: Lane,
    workers: usize,
    /// Workers that have made no request yet, and those whose request is not slow.
    starting: usize,
    prompt: usize,
    most_workers: usize,
    /// Queues with a request under way.
    busy: Vec<MessageQueue>,
}

struct Bound {
    queue: MessageQueue,
    lane: Lane,
    has_worker: bool,
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
enum Which {
    Shared,
    /// That of a queue, by its index in [`Topic::bound`].
    Bound(usize),
}

/// A request, and the messages in it.
struct Request<'a> {
    outgoing: Outgoing,
    taken: Taken<'a>,
}

impl Lanes {
    pub(crate) fn new(sender: Sender, window: Arc<Window>) -> Self {
        let limits = Limits::new(&sender.config);
        Self { sender, window, limits, topics: Mutex::default() }
    }

    /// Puts a message in its lane and starts a worker if the lane needs one.
    pub(crate) fn push(self: &Arc<Self>, route: &TopicRoute, way: Way, submitted: Submitted) {
        let lingers = !self.sender.config.linger.is_zero();
        let mut topics = self.topics.lock();
        let topic = match topics.get_mut(&submitted.message.topic) {
            Some(topic) => topic,
            None => {
                let name = submitted.message.topic.clone();
                topics.entry(name).or_insert_with(|| Topic::new(self.sender.config.requests_in_flight))
            }
        };
        match way {
            Way::Any => {
                topic.shared.most_workers =
                    self.sender.config.requests_in_flight.clamp(1, route.publish.len().max(1));
                topic.shared.lane.push(submitted, lingers);
                if topic.shared.start_worker(self.limits) {
                    self.start_shared(&route.topic);
                } else if lingers && topic.shared.lane.fills(1, self.limits) {
                    topic.gate.go.notify_waiters();
                }
            }
            Way::Queue(queue, index) => {
                let at = topic.lane_of(queue, index);
                let Some(bound) = &mut topic.bound[at] else { unreachable!("the lane was just found") };
                bound.lane.push(submitted, lingers);
                if !bound.has_worker {
                    bound.has_worker = true;
                    topic.bound_workers += 1;
                    self.start_bound(bound.queue.clone(), at);
                } else if lingers && bound.lane.fills(1, self.limits) {
                    topic.gate.go.notify_waiters();
                }
            }
        }
    }

    /// Sends what waits without a linger.
    pub(crate) fn hurry(&self) {
        for topic in self.topics.lock().values_mut() {
            topic.shared.lane.hurry();
            topic.bound.iter_mut().flatten().for_each(|bound| bound.lane.hurry());
            topic.gate.go.notify_waiters();
        }
    }

    fn start_shared(self: &Arc<Self>, topic: &str) {
        let (lanes, topic) = (self.clone(), topic.to_owned());
        self.sender.client.runtime().spawn(async move { lanes.run_shared(&topic).await });
    }

    fn start_bound(self: &Arc<Self>, queue: MessageQueue, at: usize) {
        let lanes = self.clone();
        self.sender.client.runtime().spawn(async move { lanes.run_bound(&queue, at).await });
    }

    /// A worker of the shared lane.
    async fn run_shared(self: &Arc<Self>, topic: &str) {
        let mut packer = Packer::new(&self.sender.config);
        let Some(gate) = self.gate(topic) else { return };
        let mut starts = true;
        loop {
            self.linger(topic, &gate, Which::Shared).await;
            let _room = gate.room.acquire().await.expect("never closed");
            let route = self.sender.route_within(topic, self.sender.config.send_timeout).await;
            let starts = std::mem::take(&mut starts);
            let Some((taken, queue)) = self.cut_shared(topic, route.as_deref().ok(), starts) else { return };
            let taken = Taken::new(taken, &self.window);
            match (route, queue) {
                (Ok(_), Some(queue)) => {
                    let request = self.pack(&mut packer, topic, taken, Which::Shared);
                    let timeout = request.timeout();
                    let result = self.deliver_shared(topic, &request.outgoing, queue.clone(), timeout).await;
                    self.free(topic, &queue);
                    request.tell(result);
                }
                (route, _) => {
                    let none = ClientError::NoQueue { topic: topic.to_owned(), wanted: "writable" };
                    taken.tell_untried(route.err().unwrap_or(none).into());
                }
            }
        }
    }

    /// The worker of the queue's lane, the one at index `at`.
    async fn run_bound(self: &Arc<Self>, queue: &MessageQueue, at: usize) {
        let mut packer = Packer::new(&self.sender.config);
        let Some(gate) = self.gate(&queue.topic) else { return };
        loop {
            self.linger(&queue.topic, &gate, Which::Bound(at)).await;
            let _room = gate.room.acquire().await.expect("never closed");
            let Some(taken) = self.cut_bound(&queue.topic, at) else { return };
            let request =
                self.pack(&mut packer, &queue.topic, Taken::new(taken, &self.window), Which::Bound(at));
            let timeout = request.timeout();
            let result = self.sender.deliver(&request.outgoing, Target::Only(queue.clone()), timeout).await;
            let Err(error) = &result else {
                request.tell(result);
                continue;
            };
            // Taken before the failure is told: whoever sends again after it begins anew.
            let first = error.error.clone();
            let behind =
                self.with(&queue.topic, |topic| topic.lane(Which::Bound(at)).map(Lane::take_all)).flatten();
            request.tell(result);
            Taken::new(behind.unwrap_or_default(), &self.window)
                .tell_untried(ClientError::NotSent { first }.into());
        }
    }

    /// Waits as long as the lane lingers.
    async fn linger(&self, topic: &str, gate: &Gate, lane: Which) {
        let linger = self.sender.config.linger;
        if linger.is_zero() {
            return;
        }
        loop {
            let go = gate.go.notified();
            let until = |topic: &mut Topic| topic.lane(lane)?.lingers_until(linger, self.limits);
            let Some(until) = self.with(topic, until).flatten() else { return };
            if timeout_at(until.into(), go).await.is_err() {
                return;
            }
        }
    }

    /// Takes the messages of the next request of the shared lane and chooses their queue. Ends the worker when none waits.
    fn cut_shared(
        &self,
        name: &str,
        route: Option<&TopicRoute>,
        starts: bool,
    ) -> Option<(VecDeque<Submitted>, Option<MessageQueue>)> {
        let mut topics = self.topics.lock();
        let topic = topics.get_mut(name)?;
        let shared = &mut topic.shared;
        shared.starting -= usize::from(starts);
        if shared.lane.is_empty() {
            shared.workers -= 1;
            shared.prompt -= 1;
            if topic.is_idle() {
                topics.remove(name);
            }
            return None;
        }
        let queue = route.and_then(|route| {
            let mut turn = (0..route.publish.len())
                .map(|_| &route.publish[self.sender.rotation.next(name, route.publish.len(), 1)]);
            turn.find(|queue| !shared.busy.contains(queue)).or(route.publish.first())
        });
        shared.busy.extend(queue.cloned());
        Some((shared.lane.cut(self.limits), queue.cloned()))
    }

    /// Takes the messages of the next request of a queue. Ends the worker when none waits.
    fn cut_bound(&self, name: &str, at: usize) -> Option<VecDeque<Submitted>> {
        let mut topics = self.topics.lock();
        let topic = topics.get_mut(name)?;
        let bound = topic.bound.get_mut(at)?.as_mut()?;
        if bound.lane.is_empty() {
            bound.has_worker = false;
            topic.bound_workers -= 1;
            if topic.is_idle() {
                topics.remove(name);
            }
            return None;
        }
        Some(bound.lane.cut(self.limits))
    }

    /// Packs what fits into a request, and puts the others back.
    fn pack<'a>(&self, packer: &mut Packer, topic: &str, mut taken: Taken<'a>, lane: Which) -> Request<'a> {
        let ids = self.sender.client.ids();
        let moment = ids.moment();
        let fits = |submitted: &&Submitted| {
            packer.push(&submitted.message, submitted.given(), ids, moment) == Packed::Added
        };
        let count = taken.iter().take_while(fits).count();
        let rest = taken.split_off(count);
        if !rest.is_empty() {
            self.with(topic, |topic| topic.lane(lane).map(|lane| lane.put_back(rest)));
        }
        let outgoing = match taken.iter().next() {
            Some(only) if count == 1 => {
                packer.clear();
                pack::single(&only.message, only.given(), &self.sender.config, ids, moment)
            }
            _ => packer.finish(topic, ids, moment),
        };
        Request { outgoing, taken }
    }

    /// Sends a request of the shared lane. While it takes long, others do not wait for it.
    async fn deliver_shared(
        self: &Arc<Self>,
        topic: &str,
        outgoing: &Outgoing,
        queue: MessageQueue,
        timeout: Duration,
    ) -> Result<Stored, SendError> {
        let delivery = self.sender.deliver(outgoing, Target::First(queue), timeout);
        let mut delivery = std::pin::pin!(delivery);
        if let Ok(result) = tokio::time::timeout(PROMPT, &mut delivery).await {
            return result;
        }
        let more = self.with(topic, |topic| {
            topic.shared.prompt -= 1;
            !topic.shared.lane.is_empty() && topic.shared.start_worker(self.limits)
        });
        if more == Some(true) {
            self.start_shared(topic);
        }
        let result = delivery.await;
        self.with(topic, |topic| topic.shared.prompt += 1);
        result
    }

    /// Another request of the shared lane may use the queue.
    fn free(&self, topic: &str, queue: &MessageQueue) {
        self.with(topic, |topic| {
            let busy = &mut topic.shared.busy;
            if let Some(at) = busy.iter().position(|busy| busy == queue) {
                busy.swap_remove(at);
            }
        });
    }

    fn gate(&self, topic: &str) -> Option<Arc<Gate>> {
        self.with(topic, |topic| topic.gate.clone())
    }

    /// Works on a topic under the lock.
    fn with<R>(&self, topic: &str, work: impl FnOnce(&mut Topic) -> R) -> Option<R> {
        self.topics.lock().get_mut(topic).map(work)
    }
}

impl Topic {
    fn new(requests_in_flight: usize) -> Self {
        let room = Semaphore::new(requests_in_flight.min(Semaphore::MAX_PERMITS));
        let gate = Arc::new(Gate { room, go: Notify::new() });
        Self { shared: Shared::default(), bound: Vec::new(), bound_workers: 0, gate }
    }

    fn lane(&mut self, which: Which) -> Option<&mut Lane> {
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

    fn is_idle(&self) -> bool {
        self.shared.workers == 0 && self.bound_workers == 0
    }
}

impl Shared {
    /// Whether to start a worker, which is then counted: none will soon take what waits, or it fills a request for another.
    fn start_worker(&mut self, limits: Limits) -> bool {
        let starts = self.workers < self.most_workers
            && (self.prompt == 0 || self.lane.fills(self.starting + 1, limits));
        if starts {
            self.workers += 1;
            self.starting += 1;
            self.prompt += 1;
        }
        starts
    }
}

impl Request<'_> {
    /// The longest of its messages: giving up earlier would fail messages that may still wait.
    fn timeout(&self) -> Duration {
        self.taken.iter().map(|submitted| submitted.timeout).max().unwrap_or_default()
    }

    fn tell(self, result: Result<Stored, SendError>) {
        self.taken.tell(result, self.outgoing.keys);
    }
}

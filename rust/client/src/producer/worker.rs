//! Workers: tasks that empty a lane, request by request.
//!
//! A topic counts its workers. One that ends because nothing waits is no longer counted from the moment in which nothing waits,
//! and the next message starts another. One that ends otherwise, by a panic or with the runtime, is dropped, and puts the counts
//! right then.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rocketpy_model::MessageQueue;
use tracing::error;

use super::lane::{Lane, Submitted, Taken};
use super::lanes::{Gate, Lanes, Topic, Which};
use super::pack::{Outgoing, Packer};
use super::receipts::Stored;
use super::send::Target;
use crate::error::ClientError;
use crate::route::TopicRoute;
use crate::send_error::SendError;

/// A request that takes longer no longer keeps messages of the shared lane waiting for its end. Answers of a busy broker come
/// within a millisecond or two.
const PROMPT: Duration = Duration::from_millis(5);

/// A worker of a topic's shared lane, which counts it while it lives.
pub(super) struct SharedWorker {
    lanes: Arc<Lanes>,
    topic: Arc<str>,
    gate: Arc<Gate>,
    has_ended: bool,
    /// It has made no request yet.
    starts: bool,
    /// Its request is not slow.
    is_prompt: bool,
    /// Queue of its request.
    busy: Option<MessageQueue>,
}

impl SharedWorker {
    /// A worker that its lane has counted: as one that starts, and is prompt.
    pub(super) fn new(lanes: &Arc<Lanes>, topic: Arc<str>, gate: Arc<Gate>) -> Self {
        Self {
            lanes: lanes.clone(),
            topic,
            gate,
            has_ended: false,
            starts: true,
            is_prompt: true,
            busy: None,
        }
    }

    /// Not under the lock of the lanes: a runtime that has ended drops the worker at once.
    pub(super) fn start(self) {
        let lanes = self.lanes.clone();
        lanes.sender.client.runtime().spawn(self.run());
    }

    async fn run(mut self) {
        let (lanes, gate) = (self.lanes.clone(), self.gate.clone());
        let mut packer = Packer::new(&lanes.sender.config);
        loop {
            lanes.linger(&self.topic, &gate, Which::Shared).await;
            let _room = gate.room.acquire().await.expect("never closed");
            let route = lanes.sender.route_within(&self.topic, lanes.sender.config.send_timeout).await;
            let Some(taken) = self.cut(route.as_deref().ok()) else { return };
            let taken = Taken::new(taken, &lanes.window);
            match (route, self.busy.clone()) {
                (Ok(_), Some(queue)) => {
                    let request = lanes.pack(&mut packer, &self.topic, taken, Which::Shared);
                    let result = self.deliver(&request.outgoing, queue, request.timeout()).await;
                    self.free();
                    request.tell(result);
                }
                (route, _) => {
                    let none = ClientError::NoQueue { topic: self.topic.to_string(), wanted: "writable" };
                    lanes.fail(taken, route.err().unwrap_or(none));
                }
            }
        }
    }

    /// Takes the messages of the next request and chooses their queue. Ends the worker when none waits.
    fn cut(&mut self, route: Option<&TopicRoute>) -> Option<VecDeque<Submitted>> {
        let lanes = self.lanes.clone();
        let mut topics = lanes.topics.lock();
        let topic = topics.get_mut(&*self.topic)?;
        let shared = &mut topic.shared;
        assert!(self.busy.is_none(), "a worker makes a request when its last one has ended");
        assert!(shared.workers > 0, "the lane counts each worker until it ends");
        assert!(shared.starting >= usize::from(self.starts), "the lane counts the workers that start");
        shared.starting -= usize::from(std::mem::take(&mut self.starts));
        if shared.lane.is_empty() {
            self.end(topic);
            if topic.is_idle() {
                topics.remove(&*self.topic);
            }
            return None;
        }
        let queue = route.and_then(|route| {
            let is_free = |queue: &MessageQueue| !shared.busy.contains(queue);
            let picked = lanes.sender.selection.pick(&self.topic, &route.publish, is_free);
            picked.map(|index| &route.publish[index])
        });
        shared.busy.extend(queue.cloned());
        self.busy = queue.cloned();
        Some(shared.lane.cut(topic.limits))
    }

    /// Sends a request. While it takes long, others do not wait for it.
    async fn deliver(
        &mut self,
        outgoing: &Outgoing,
        queue: MessageQueue,
        timeout: Duration,
    ) -> Result<Stored, SendError> {
        let lanes = self.lanes.clone();
        let delivery = lanes.sender.deliver(outgoing, Target::First(queue), timeout);
        let mut delivery = std::pin::pin!(delivery);
        if let Ok(result) = tokio::time::timeout(PROMPT, &mut delivery).await {
            return result;
        }
        let more = lanes.with(&self.topic, |topic| {
            assert!(topic.shared.prompt > 0, "the lane counts a worker as prompt until its request is slow");
            topic.shared.prompt -= 1;
            self.is_prompt = false;
            if topic.shared.lane.is_empty() { None } else { topic.hire(&lanes, &self.topic) }
        });
        if let Some(more) = more.flatten() {
            more.start();
        }
        let result = delivery.await;
        lanes.with(&self.topic, |topic| {
            topic.shared.prompt += 1;
            self.is_prompt = true;
            let (prompt, workers) = (topic.shared.prompt, topic.shared.workers);
            assert!(prompt <= workers, "prompt workers are workers of the lane: {prompt} of {workers}");
        });
        result
    }

    /// Another request may use the queue.
    fn free(&mut self) {
        let busy = self.busy.take();
        self.lanes.with(&self.topic, |topic| topic.shared.free(busy));
    }

    /// The lane counts the worker no more.
    fn end(&mut self, topic: &mut Topic) {
        let shared = &mut topic.shared;
        shared.workers -= 1;
        shared.starting -= usize::from(self.starts);
        shared.prompt -= usize::from(self.is_prompt);
        shared.free(self.busy.take());
        self.has_ended = true;
    }
}

/// The lane goes on with another worker. Where this one did not reach its first request, another would not either: what waits fails.
impl Drop for SharedWorker {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        log_panic(&self.topic);
        let (lanes, starts) = (self.lanes.clone(), self.starts);
        let (mut behind, mut next) = (VecDeque::new(), None);
        {
            let mut topics = lanes.topics.lock();
            let Some(topic) = topics.get_mut(&*self.topic) else { return };
            self.end(topic);
            if starts {
                behind = topic.shared.lane.take_all();
            } else if !topic.shared.lane.is_empty() {
                next = topic.hire(&lanes, &self.topic);
            }
            if topic.is_idle() {
                topics.remove(&*self.topic);
            }
        }
        if let Some(next) = next {
            next.start();
        }
        lanes.fail(Taken::new(behind, &lanes.window), gone());
    }
}

/// The worker of a queue's lane, the one at index `at`.
pub(super) struct BoundWorker {
    lanes: Arc<Lanes>,
    queue: MessageQueue,
    at: usize,
    gate: Arc<Gate>,
    has_ended: bool,
}

impl BoundWorker {
    /// A worker that its topic has counted.
    pub(super) fn new(lanes: &Arc<Lanes>, queue: MessageQueue, at: usize, gate: Arc<Gate>) -> Self {
        Self { lanes: lanes.clone(), queue, at, gate, has_ended: false }
    }

    /// Not under the lock of the lanes: a runtime that has ended drops the worker at once.
    pub(super) fn start(self) {
        let lanes = self.lanes.clone();
        lanes.sender.client.runtime().spawn(self.run());
    }

    async fn run(mut self) {
        let (lanes, gate, lane) = (self.lanes.clone(), self.gate.clone(), Which::Bound(self.at));
        let mut packer = Packer::new(&lanes.sender.config);
        loop {
            lanes.linger(&self.queue.topic, &gate, lane).await;
            let _room = gate.room.acquire().await.expect("never closed");
            let Some(taken) = self.cut() else { return };
            let taken = Taken::new(taken, &lanes.window);
            let request = lanes.pack(&mut packer, &self.queue.topic, taken, lane);
            let target = Target::Only(self.queue.clone());
            let result = lanes.sender.deliver(&request.outgoing, target, request.timeout()).await;
            let Err(error) = &result else {
                request.tell(result);
                continue;
            };
            // Taken before the failure is told: whoever sends again after it begins anew.
            let first = error.error.clone();
            let behind =
                lanes.with(&self.queue.topic, |topic| topic.lane(lane).map(Lane::take_all)).flatten();
            request.tell(result);
            let behind = Taken::new(behind.unwrap_or_default(), &lanes.window);
            lanes.fail(behind, ClientError::NotSent { first });
        }
    }

    /// Takes the messages of the next request. Ends the worker when none waits.
    fn cut(&mut self) -> Option<VecDeque<Submitted>> {
        let lanes = self.lanes.clone();
        let mut topics = lanes.topics.lock();
        let topic = topics.get_mut(&*self.queue.topic)?;
        let bound = topic.bound.get_mut(self.at)?.as_mut()?;
        assert!(bound.has_worker, "a bound lane knows its worker: {}", self.queue);
        assert!(topic.bound_workers > 0, "a topic counts each bound worker until it ends");
        assert_eq!(bound.queue, self.queue, "a bound worker empties the lane of its queue");
        if !bound.lane.is_empty() {
            return Some(bound.lane.cut(topic.limits));
        }
        self.end(topic);
        if topic.is_idle() {
            topics.remove(&*self.queue.topic);
        }
        None
    }

    /// The topic counts the worker no more. Returns what waits in its lane.
    fn end(&mut self, topic: &mut Topic) -> VecDeque<Submitted> {
        self.has_ended = true;
        topic.bound_workers -= 1;
        let Some(bound) = topic.bound.get_mut(self.at).and_then(Option::as_mut) else {
            return VecDeque::new();
        };
        bound.has_worker = false;
        bound.lane.take_all()
    }
}

/// What waits is not sent, as behind any failure: it must not overtake.
impl Drop for BoundWorker {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        log_panic(&self.queue.topic);
        let lanes = self.lanes.clone();
        let behind = {
            let mut topics = lanes.topics.lock();
            let Some(topic) = topics.get_mut(&*self.queue.topic) else { return };
            let behind = self.end(topic);
            if topic.is_idle() {
                topics.remove(&*self.queue.topic);
            }
            behind
        };
        let first = Arc::new(gone());
        lanes.fail(Taken::new(behind, &lanes.window), ClientError::NotSent { first });
    }
}

/// The error that a dropped request tells its messages.
fn gone() -> ClientError {
    ClientError::Closed { what: "runtime" }
}

fn log_panic(topic: &str) {
    if std::thread::panicking() {
        error!(topic, "request of submitted messages panicked");
    }
}

//! `send_many`: wire batches to several queues at a time, each queue in order.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;

use rocketpy_model::Message;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

use super::pack::{self, Given, KeyList, Outgoing, Packed, Packer};
use super::plan::Group;
use super::receipts::{Stored, outcome_of};
use super::send::{Sender, Target};
use crate::error::ClientError;
use crate::receipt::Receipt;
use crate::send_error::SendError;

/// The outcome of [`Producer::send_many`](crate::Producer::send_many), in the order of its messages.
///
/// A receipt is made when it is asked for.
#[derive(Debug)]
pub struct SentMany {
    requests: Vec<Request>,
    /// For each message, its request and its index in that request.
    places: Vec<(u32, u32)>,
    acknowledged: usize,
}

/// One request of a `send_many`.
#[derive(Debug)]
struct Request {
    result: Result<Stored, SendError>,
    keys: KeyList,
    messages: u32,
}

/// What the task of one queue needs.
pub(crate) struct Job<M> {
    pub(crate) sender: Sender,
    pub(crate) messages: Arc<[M]>,
    pub(crate) order_key: Option<Arc<str>>,
    pub(crate) timeout: Duration,
    /// Limits the requests under way, all queues together.
    pub(crate) room: Arc<Semaphore>,
}

impl<M> Clone for Job<M> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            messages: self.messages.clone(),
            order_key: self.order_key.clone(),
            timeout: self.timeout,
            room: self.room.clone(),
        }
    }
}

impl<M: Borrow<Message> + Send + Sync + 'static> Job<M> {
    /// Sends all groups, each with its own task.
    pub(crate) async fn run(self, groups: Vec<Group>) -> SentMany {
        let count = self.messages.len();
        let mut outcomes = Vec::with_capacity(groups.len());
        if let [_] = groups.as_slice() {
            for group in groups {
                outcomes.push(self.clone().run_group(group).await);
            }
        } else {
            let mut workers = JoinSet::new();
            for group in groups {
                workers.spawn(self.clone().run_group(group));
            }
            outcomes = workers.join_all().await;
        }
        SentMany::of(count, outcomes)
    }

    /// Sends the messages of one queue, one request after the other. Packs the next request while one is under way.
    ///
    /// After a failure the rest is not sent: later messages must not overtake the failed ones.
    async fn run_group(self, group: Group) -> (Group, Vec<Request>) {
        let mut packer = Packer::new(&self.sender.config);
        let (mut requests, mut next) = (Vec::new(), 0);
        let mut under_way: Option<JoinHandle<Request>> = None;
        loop {
            let packed = self.pack(&mut packer, &group, &mut next);
            if let Some(task) = under_way.take() {
                requests.push(join(task).await);
                if let Some(Request { result: Err(error), .. }) = requests.last() {
                    let first = error.error.clone();
                    let sent: u32 = requests.iter().map(|request| request.messages).sum();
                    let all = group.indices.len();
                    assert!(
                        sent as usize <= all,
                        "each message of a queue is sent in one request: {sent} of {all}"
                    );
                    let unsent = group.indices[sent as usize..].iter();
                    self.sender.recorder.unsent(unsent.map(|index| self.messages[*index as usize].borrow()));
                    requests.push(Request::not_sent(group.indices.len() as u32 - sent, first));
                    break;
                }
            }
            let Some(outgoing) = packed else { break };
            let target = if group.bound {
                Target::Only(group.queue.clone())
            } else {
                Target::First(group.queue.clone())
            };
            if next == group.indices.len() {
                requests.push(self.clone().deliver(outgoing, target).await);
                break;
            }
            let task = self.clone().deliver(outgoing, target);
            under_way = Some(self.sender.client.runtime().spawn(task));
        }
        (group, requests)
    }

    /// Packs the next request: a batch, or a plain message when the batch would hold only one.
    fn pack(&self, packer: &mut Packer, group: &Group, next: &mut usize) -> Option<Outgoing> {
        let (sender, start) = (&self.sender, *next);
        let (ids, given) =
            (sender.client.ids(), Given { order_key: self.order_key.as_deref(), msg_id: None });
        let moment = ids.moment();
        while let Some(&index) = group.indices.get(*next) {
            if packer.push(self.messages[index as usize].borrow(), given, ids, moment) == Packed::Full {
                break;
            }
            *next += 1;
        }
        let count = *next - start;
        assert!(
            count > 0 || start == group.indices.len(),
            "a queue's messages are packed until none is left: {start}"
        );
        let packed = match count {
            0 => return None,
            1 => {
                packer.clear();
                let message = self.messages[group.indices[start] as usize].borrow();
                pack::single(message, given, &sender.config, ids, moment)
            }
            _ => packer.finish(&group.queue.topic, ids, moment),
        };
        assert_eq!(packed.keys.len(), count, "a request has a key for each of its messages");
        Some(packed)
    }

    async fn deliver(self, outgoing: Outgoing, target: Target) -> Request {
        let room = self.room.acquire().await.expect("the semaphore is never closed");
        let result = self.sender.deliver(&outgoing, target, self.timeout).await;
        drop(room);
        let messages = outgoing.keys.len() as u32;
        Request { result, keys: outgoing.keys, messages }
    }
}

async fn join(task: JoinHandle<Request>) -> Request {
    match task.await {
        Ok(request) => request,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // Only the end of the runtime cancels the task.
        Err(_) => {
            Request { result: Err(ClientError::Abandoned.into()), keys: KeyList::default(), messages: 0 }
        }
    }
}

impl Request {
    fn not_sent(messages: u32, first: Arc<ClientError>) -> Self {
        Self { result: Err(ClientError::NotSent { first }.into()), keys: KeyList::default(), messages }
    }

    /// Whether it failed and may still be stored.
    fn may_have_been_applied(&self) -> bool {
        self.result.as_ref().is_err_and(|error| error.error.may_have_been_applied())
    }
}

impl SentMany {
    fn of(count: usize, outcomes: Vec<(Group, Vec<Request>)>) -> Self {
        let (mut places, mut acknowledged) = (vec![(0, 0); count], 0);
        let placed: usize = outcomes.iter().map(|(group, _)| group.indices.len()).sum();
        assert_eq!(placed, count, "each message of a send has its place in the outcome");
        let mut all = Vec::with_capacity(outcomes.iter().map(|(_, requests)| requests.len()).sum());
        for (group, requests) in outcomes {
            let in_requests: usize = requests.iter().map(|request| request.messages as usize).sum();
            assert!(in_requests == group.indices.len(), "each message of a queue is in one request");
            let mut indices = group.indices.iter();
            for request in requests {
                for (place, index) in (0..request.messages).zip(&mut indices) {
                    places[*index as usize] = (all.len() as u32, place);
                }
                if request.result.is_ok() {
                    acknowledged += request.messages as usize;
                }
                all.push(request);
            }
        }
        assert!(acknowledged <= count, "no more messages are acknowledged than were given");
        Self { requests: all, places, acknowledged }
    }

    pub(crate) fn none() -> Self {
        Self { requests: Vec::new(), places: Vec::new(), acknowledged: 0 }
    }

    /// Number of messages given.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether none was given.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Number of messages acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged
    }

    /// Number of requests sent.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// The receipt of one message.
    ///
    /// # Errors
    /// Why this message was not acknowledged.
    ///
    /// # Panics
    /// When `index` is not below `len()`.
    pub fn receipt(&self, index: usize) -> Result<Receipt, SendError> {
        let (request, place) = self.places[index];
        let request = &self.requests[request as usize];
        outcome_of(&request.result, &request.keys, place as usize)
    }

    /// All receipts in order, each made when the iterator reaches it.
    pub fn receipts(&self) -> impl ExactSizeIterator<Item = Result<Receipt, SendError>> {
        (0..self.len()).map(|index| self.receipt(index))
    }

    /// Succeeds when every message was acknowledged.
    ///
    /// # Errors
    /// [`ClientError::PartlySent`] with the first failure.
    pub fn check(&self) -> Result<(), ClientError> {
        match self.requests.iter().find_map(|request| request.result.as_ref().err()) {
            None => Ok(()),
            Some(first) => Err(ClientError::PartlySent {
                failed: self.len() - self.acknowledged,
                total: self.len(),
                may_have_been_applied: self.requests.iter().any(Request::may_have_been_applied),
                first: first.error.clone(),
            }),
        }
    }
}

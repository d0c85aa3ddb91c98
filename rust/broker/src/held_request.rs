//! Requests that wait: for a message in a queue, or for dispatch.
//!
//! The structure knows when a request has to be looked at again, not what is done then: whoever takes one out resumes it.
//!
//! # Source
//! docs/reference/protocol.md 5.4.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Instant;

use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_remoting::{MemoryKind, NoMemory, Reply, Reservation};
use rocketpy_store::Arrival;
use tokio::sync::Notify;

use crate::held_state::{HeldState, Waits};

mod queue;

use queue::{CODE_BYTES, HeldAtQueue};

/// A request that can wait.
pub(crate) trait Waiter {
    /// Event that ends the wait before its deadline. Fixed for one request.
    fn waits_for(&self) -> WaitsFor<'_>;

    /// Bytes of memory that the request holds besides its own struct.
    fn held_bytes(&self) -> usize;
}

/// Event that ends a wait.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitsFor<'a> {
    /// Dispatch of a message that the request would read.
    Message(Awaited<'a>),
    /// Dispatch covers the log before this offset.
    Dispatch(PhysicalOffset),
}

/// A message that a request waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Awaited<'a> {
    pub(crate) queue: &'a QueueKey,
    /// A message at this queue offset or a later one.
    pub(crate) offset: i64,
    /// Its tags code is one of these, each named once; `None` when any will do.
    pub(crate) codes: Option<&'a [i64]>,
}

/// A queue of this broker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct QueueKey {
    pub(crate) topic: Arc<str>,
    pub(crate) queue_id: u32,
}

/// A request that waits, and the right to answer it.
#[derive(Debug)]
pub(crate) struct Held<W> {
    pub(crate) waiter: W,
    pub(crate) reply: Reply,
    pub(crate) deadline: Instant,
}

/// A request that cannot be held, and why.
pub(crate) type Refused<W> = (Held<W>, NoRoom);

/// Number of a held request, unique in the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct HeldId(u64);

impl HeldId {
    const FIRST: Self = Self(0);
}

/// Bounds of all requests that wait for messages, and again of all that wait for dispatch: neither takes the other's room.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeldLimits {
    pub(crate) requests: usize,
    pub(crate) bytes: usize,
}

/// Why a request cannot be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// As many are held as may be, in all or of the connection.
    Requests { limit: usize },
    /// With this one those that wait for the same would take more memory than they may.
    Bytes { limit: usize },
    /// With this one all peers together would take more memory than they may.
    Memory(NoMemory),
}

/// The kinds of offset of a [`HeldState`]: any number for those who wait for messages, and how far dispatch is.
const MESSAGES: usize = 0;
const DISPATCH: usize = 1;

/// Bytes that the sets of [`State`] take for one request, besides those for each of its tags codes. Most of it is the two trees of a
/// queue that nobody else waits for.
const INDEX_BYTES: usize = 1024;

/// Maximum number of requests that are taken out at a time, and their bytes, of which the sets that they leave are a part. The thread that dispatches
/// takes requests out, or waits while another one does.
const STEP_REQUESTS: usize = 1024;
const STEP_BYTES: usize = 2 << 20;

/// Number of requests that each connection may have while there is room. Beyond it no connection has more than are free, so that one with many
/// leaves room for others.
const OF_ANY_CONNECTION: usize = 16;

/// Requests that were taken out together.
#[derive(Debug)]
pub(crate) struct Released<W> {
    pub(crate) held: Vec<Held<W>>,
    bytes: usize,
}

impl<W> Released<W> {
    /// Whether no more are taken out together: the same call may find others.
    pub(crate) fn is_full(&self) -> bool {
        self.held.len() >= STEP_REQUESTS || self.bytes >= STEP_BYTES
    }
}

impl<W> Default for Released<W> {
    fn default() -> Self {
        Self { held: Vec::new(), bytes: 0 }
    }
}

/// Requests that wait, each until something of its own happens or its time is up.
#[doc(alias = "PullRequestHoldService")]
#[derive(Debug)]
pub(crate) struct HeldRequests<W> {
    state: HeldState<State<W>, 2>,
    limits: HeldLimits,
    /// Notified when the earliest deadline becomes earlier.
    sooner: Notify,
}

/// Every set is ordered by id, so that a request leaves all of them in a few steps, however many are held.
#[derive(Debug)]
struct State<W> {
    next_id: u64,
    for_messages: Usage,
    for_dispatch: Usage,
    requests: HashMap<HeldId, Entry<W>>,
    by_topic: HashMap<Arc<str>, HashMap<u32, HeldAtQueue>>,
    by_dispatch: BTreeSet<(PhysicalOffset, HeldId)>,
    /// By connection, and by the event that they wait for: each kind has limits of its own.
    by_connection: HashMap<(u64, usize), BTreeSet<HeldId>>,
    by_deadline: BTreeSet<(Instant, HeldId)>,
    tell: TellAwaited,
}

/// Called when the first request begins to wait for messages of a queue, and when no request waits for them any more.
struct TellAwaited(Box<Tell>);

type Tell = dyn Fn(&QueueKey, bool) + Send + Sync;

impl fmt::Debug for TellAwaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TellAwaited")
    }
}

/// A request, and its memory in the budget of all peers.
#[derive(Debug)]
struct Entry<W> {
    held: Held<W>,
    bytes: usize,
    _memory: Reservation,
}

/// Share of the limits that the requests of one kind use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    requests: usize,
    bytes: usize,
}

impl<W: Waiter> HeldRequests<W> {
    pub(crate) fn new(limits: HeldLimits) -> Self {
        Self { state: HeldState::new(State::default()), limits, sooner: Notify::new() }
    }

    /// Tells which queues have messages that are waited for, under the lock: `tell` calls nothing of this.
    pub(crate) fn telling(self, tell: impl Fn(&QueueKey, bool) + Send + Sync + 'static) -> Self {
        self.state.with(|state| state.tell = TellAwaited(Box::new(tell)));
        self
    }

    /// Number of requests that wait for messages.
    pub(crate) fn count_for_messages(&self) -> usize {
        self.state.with(|state| state.for_messages.requests)
    }

    /// Number of waiting requests.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.state.with(|state| state.requests.len())
    }

    /// Holds a request. Gives it back when `is_over` says, once it is held, that what it waits for happened just before.
    ///
    /// # Errors
    /// The request, and why there is no room for it.
    pub(crate) fn hold(
        &self,
        held: Held<W>,
        is_over: impl FnOnce(&W) -> bool,
    ) -> Result<Option<Held<W>>, Box<Refused<W>>> {
        let (deadline, bytes) = (held.deadline, bytes_of(&held));
        let memory = match held.reply.connection().reserve(MemoryKind::Requests, bytes) {
            Ok(memory) => memory,
            Err(no_memory) => return Err(Box::new((held, NoRoom::Memory(no_memory)))),
        };
        let add = |state: &mut State<W>| match state.check_room(&held, bytes, self.limits) {
            Ok(()) => Ok(state.insert(Entry { held, bytes, _memory: memory })),
            Err(no_room) => Err(Box::new((held, no_room))),
        };
        let look = |state: &mut State<W>, id| {
            let is_first = state.by_deadline.first() == Some(&(deadline, id));
            let is_over = state.requests.get(&id).is_some_and(|entry| is_over(&entry.held.waiter));
            (is_first, if is_over { state.take(id) } else { None })
        };
        let (is_first, over) = self.state.hold(add, look)?;
        if is_first {
            self.sooner.notify_one();
        }
        Ok(over)
    }

    /// Takes out requests that one of these messages wakes. Gives back the messages that may wake more of them.
    pub(crate) fn arrived<'a>(&self, arrivals: &'a [Arrival]) -> (Released<W>, &'a [Arrival]) {
        let mut rest = arrivals;
        let released = self.state.reached(MESSAGES, 0, |state| {
            let mut released = Released::default();
            while let [arrival, later @ ..] = rest {
                // Taken out right away: the next arrival in the same queue does not find them again.
                let woken = state.at(&arrival.topic, arrival.queue_id).map(|queue| queue.woken_by(arrival));
                let woken = woken.into_iter().flatten().take(STEP_REQUESTS).collect();
                state.take_some(woken, &mut released);
                if released.is_full() {
                    break;
                }
                rest = later;
            }
            released
        });
        released.map_or_else(|| (Released::default(), &[][..]), |released| (released, rest))
    }

    /// Takes out requests that waited for dispatch to come this far.
    pub(crate) fn dispatched(&self, offset: PhysicalOffset) -> Released<W> {
        let released = self.state.reached(DISPATCH, offset.get(), |state| {
            state.release(|state| {
                let covered = state.by_dispatch.iter().take_while(|(end, _)| *end <= offset);
                covered.map(|(_, id)| *id).take(STEP_REQUESTS).collect()
            })
        });
        released.unwrap_or_default()
    }

    /// The queues whose messages are waited for.
    pub(crate) fn queues(&self) -> Vec<QueueKey> {
        self.state.with(|state| {
            let of_topic = |(topic, queues): (&Arc<str>, &HashMap<u32, HeldAtQueue>)| {
                let topic = topic.clone();
                let key = move |queue_id: &u32| QueueKey { topic: topic.clone(), queue_id: *queue_id };
                queues.keys().map(key).collect::<Vec<_>>()
            };
            state.by_topic.iter().flat_map(of_topic).collect()
        })
    }

    /// Takes out requests that wait for a message before the end of one of these queues, whatever their filter.
    pub(crate) fn behind(&self, queues: &[(QueueKey, QueueOffset)]) -> Released<W> {
        self.release(|state| {
            let behind = queues.iter().flat_map(|(queue, end)| {
                state.at(&queue.topic, queue.queue_id).into_iter().flat_map(|held| held.before(*end))
            });
            behind.take(STEP_REQUESTS).collect()
        })
    }

    /// Takes out requests whose time is up.
    pub(crate) fn overdue(&self, now: Instant) -> Released<W> {
        self.release(|state| {
            let overdue = state.by_deadline.iter().take_while(|(deadline, _)| *deadline <= now);
            overdue.map(|(_, id)| *id).take(STEP_REQUESTS).collect()
        })
    }

    /// Takes out requests that wait for messages of a topic.
    pub(crate) fn of_topic(&self, topic: &str) -> Released<W> {
        self.release(|state| {
            let queues = state.by_topic.get(topic).into_iter().flat_map(HashMap::values);
            queues.flat_map(HeldAtQueue::all).take(STEP_REQUESTS).collect()
        })
    }

    /// Takes out requests that wait for messages.
    pub(crate) fn for_messages(&self) -> Released<W> {
        self.release(|state| {
            let queues = state.by_topic.values().flat_map(HashMap::values);
            queues.flat_map(HeldAtQueue::all).take(STEP_REQUESTS).collect()
        })
    }

    /// Takes out everything.
    pub(crate) fn all(&self) -> Vec<Held<W>> {
        self.state.with(|state| {
            let ids: Vec<_> = state.requests.keys().copied().collect();
            ids.into_iter().filter_map(|id| state.take(id)).collect()
        })
    }

    /// Drops the requests of a connection that has ended.
    pub(crate) fn disconnected(&self, connection_id: u64) {
        let some = || {
            self.release(|state| {
                let ids = [MESSAGES, DISPATCH].map(|kind| state.by_connection.get(&(connection_id, kind)));
                ids.into_iter().flatten().flatten().copied().take(STEP_REQUESTS).collect()
            })
        };
        while some().is_full() {}
    }

    /// Waits until the earliest deadline, or `until`.
    pub(crate) async fn wait_for_deadline(&self, until: Instant) {
        loop {
            let first = self.state.with(|state| state.by_deadline.first().map(|(deadline, _)| *deadline));
            let wake_at = first.map_or(until, |deadline| deadline.min(until));
            tokio::select! {
                () = tokio::time::sleep_until(wake_at.into()) => return,
                () = self.sooner.notified() => {}
            }
        }
    }

    fn release(&self, choose: impl FnOnce(&State<W>) -> Vec<HeldId>) -> Released<W> {
        self.state.with(|state| state.release(choose))
    }
}

impl<W> Waits<2> for State<W> {
    fn first(&self) -> [u64; 2] {
        let any_message = if self.for_messages.requests == 0 { u64::MAX } else { 0 };
        [any_message, self.by_dispatch.first().map_or(u64::MAX, |(end, _)| end.get())]
    }
}

impl<W> Default for State<W> {
    fn default() -> Self {
        Self {
            next_id: 0,
            for_messages: Usage::default(),
            for_dispatch: Usage::default(),
            requests: HashMap::new(),
            by_topic: HashMap::new(),
            by_dispatch: BTreeSet::new(),
            by_connection: HashMap::new(),
            by_deadline: BTreeSet::new(),
            tell: TellAwaited(Box::new(|_, _| ())),
        }
    }
}

impl<W: Waiter> State<W> {
    fn check_room(&mut self, held: &Held<W>, bytes: usize, limits: HeldLimits) -> Result<(), NoRoom> {
        let kind = kind_of(&held.waiter);
        let usage = *self.usage(kind);
        let Usage { requests, bytes: held_bytes } = usage;
        assert!(requests <= limits.requests, "held requests are within their limit: {requests}");
        assert!(
            held_bytes <= limits.bytes,
            "the bytes of held requests are within their limit: {held_bytes}"
        );
        let free = limits.requests - requests;
        let of_connection =
            self.by_connection.get(&(held.reply.connection().id(), kind)).map_or(0, BTreeSet::len);
        if free == 0 || of_connection >= free.max(OF_ANY_CONNECTION) {
            return Err(NoRoom::Requests { limit: limits.requests });
        }
        if usage.bytes.saturating_add(bytes) > limits.bytes {
            return Err(NoRoom::Bytes { limit: limits.bytes });
        }
        Ok(())
    }

    /// Share of the limits used by requests that wait for the same event.
    fn usage(&mut self, kind: usize) -> &mut Usage {
        if kind == MESSAGES { &mut self.for_messages } else { &mut self.for_dispatch }
    }

    fn insert(&mut self, entry: Entry<W>) -> HeldId {
        let held = &entry.held;
        let kind = kind_of(&held.waiter);
        let id = HeldId(self.next_id);
        self.next_id += 1;
        match held.waiter.waits_for() {
            WaitsFor::Message(awaited) => {
                let QueueKey { topic, queue_id } = awaited.queue;
                let queues = self.by_topic.entry(topic.clone()).or_default();
                let held = queues.entry(*queue_id).or_default();
                let is_first = held.is_empty();
                held.insert(id, &awaited);
                if is_first {
                    self.tell.0(awaited.queue, true);
                }
            }
            WaitsFor::Dispatch(end) => {
                self.by_dispatch.insert((end, id));
            }
        }
        self.by_connection.entry((held.reply.connection().id(), kind)).or_default().insert(id);
        self.by_deadline.insert((held.deadline, id));
        let usage = self.usage(kind);
        usage.requests += 1;
        usage.bytes += entry.bytes;
        let before = self.requests.insert(id, entry);
        assert!(before.is_none(), "the number of a held request is given once: {id:?}");
        self.check_counts();
        id
    }

    fn take(&mut self, id: HeldId) -> Option<Held<W>> {
        let Entry { held, bytes, .. } = self.requests.remove(&id)?;
        let kind = kind_of(&held.waiter);
        let usage = self.usage(kind);
        assert!(usage.requests > 0, "a request that is taken out was counted");
        assert!(bytes <= usage.bytes, "the bytes of a request that is taken out were counted: {bytes}");
        usage.requests -= 1;
        usage.bytes -= bytes;
        assert!(self.by_deadline.remove(&(held.deadline, id)), "a held request is found by its deadline");
        let is_of_connection =
            remove_from(&mut self.by_connection, &(held.reply.connection().id(), kind), id);
        assert!(is_of_connection, "a held request is found by its connection");
        match held.waiter.waits_for() {
            WaitsFor::Message(awaited) => {
                let was_awaited = self.leave_queue(id, &awaited);
                assert!(was_awaited, "a request that waits for messages is found by its queue");
            }
            WaitsFor::Dispatch(end) => {
                let was_there = self.by_dispatch.remove(&(end, id));
                assert!(was_there, "a request that waits for dispatch is found by its end: {end}");
            }
        }
        self.check_counts();
        Some(held)
    }

    fn check_counts(&self) {
        let (counted, held) = (self.for_messages.requests + self.for_dispatch.requests, self.requests.len());
        assert_eq!(counted, held, "each held request is counted once");
        assert_eq!(self.by_deadline.len(), held, "each held request has a deadline");
    }

    /// Whether the request waited for messages of its queue.
    fn leave_queue(&mut self, id: HeldId, awaited: &Awaited<'_>) -> bool {
        let QueueKey { topic, queue_id } = awaited.queue;
        let Some(queues) = self.by_topic.get_mut(topic) else { return false };
        let Some(held) = queues.get_mut(queue_id) else { return false };
        held.remove(id, awaited);
        if held.is_empty() {
            queues.remove(queue_id);
            self.tell.0(awaited.queue, false);
        }
        if queues.is_empty() {
            self.by_topic.remove(topic);
        }
        true
    }

    fn at(&self, topic: &str, queue_id: u32) -> Option<&HeldAtQueue> {
        self.by_topic.get(topic)?.get(&queue_id)
    }

    fn release(&mut self, choose: impl FnOnce(&Self) -> Vec<HeldId>) -> Released<W> {
        let mut released = Released::default();
        self.take_some(choose(self), &mut released);
        released
    }

    /// Takes these out until `released` is full.
    fn take_some(&mut self, ids: Vec<HeldId>, released: &mut Released<W>) {
        for id in ids {
            if released.is_full() {
                return;
            }
            released.bytes += self.requests.get(&id).map_or(0, |entry| entry.bytes);
            released.held.extend(self.take(id));
        }
    }
}

fn bytes_of<W: Waiter>(held: &Held<W>) -> usize {
    let codes = match held.waiter.waits_for() {
        WaitsFor::Message(Awaited { codes, .. }) => codes.map_or(0, <[i64]>::len),
        WaitsFor::Dispatch(_) => 0,
    };
    size_of::<Held<W>>() + INDEX_BYTES + codes * CODE_BYTES + held.waiter.held_bytes()
}

/// Event that a request waits for.
fn kind_of(waiter: &impl Waiter) -> usize {
    match waiter.waits_for() {
        WaitsFor::Message(_) => MESSAGES,
        WaitsFor::Dispatch(_) => DISPATCH,
    }
}

/// Whether the request was in the set of this key.
fn remove_from<K: Eq + Hash>(sets: &mut HashMap<K, BTreeSet<HeldId>>, key: &K, id: HeldId) -> bool {
    let Some(set) = sets.get_mut(key) else { return false };
    let was_there = set.remove(&id);
    if set.is_empty() {
        sets.remove(key);
    }
    was_there
}

#[cfg(test)]
mod tests;

//! Requests that wait: for a message in a queue, or for dispatch.
//!
//! The structure knows when a request has to be looked at again, not what is done then: whoever takes one out resumes it.
//!
//! # Source
//! docs/reference/protocol.md 5.4.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Instant;

use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_remoting::{MemoryKind, NoMemory, Reply, Reservation};
use rocketpy_store::Arrival;
use tokio::sync::Notify;

use crate::held_state::{HeldState, Waits};

/// A request that can wait.
pub(crate) trait Waiter {
    /// What ends the wait before its deadline. Always the same for one request.
    fn waits_for(&self) -> WaitsFor<'_>;

    /// Whether this message, in a queue that the request waits for, is one it waits for.
    fn is_woken_by(&self, arrival: &Arrival) -> bool;

    /// Whether a queue that the request waits for has grown past what the request has seen, whatever its filter.
    fn is_behind(&self, queue: &QueueKey, max_offset: QueueOffset) -> bool;

    /// Bytes of memory that the request holds besides its own struct.
    fn held_bytes(&self) -> usize;
}

/// What ends a wait.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitsFor<'a> {
    /// A message in one of these queues.
    Messages(&'a [QueueKey]),
    /// Dispatch covers the log before this offset.
    Dispatch(PhysicalOffset),
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

/// Bounds of all requests that wait for messages, and again of all that wait for dispatch: neither takes the other's room.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeldLimits {
    pub(crate) requests: usize,
    pub(crate) bytes: usize,
}

/// Why a request cannot be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// As many are held as may be.
    Requests { limit: usize },
    /// With this one those that wait for the same would take more memory than they may.
    Bytes { limit: usize },
    /// With this one all peers together would take more memory than they may.
    Memory(NoMemory),
}

/// The kinds of offset of a [`HeldState`]: any number for those who wait for messages, and how far dispatch is.
const MESSAGES: usize = 0;
const DISPATCH: usize = 1;

/// Bytes that the sets of [`State`] take for one request.
const INDEX_BYTES: usize = 256;

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
    by_queue: HashMap<QueueKey, BTreeSet<HeldId>>,
    by_dispatch: BTreeSet<(PhysicalOffset, HeldId)>,
    by_connection: HashMap<u64, BTreeSet<HeldId>>,
    by_deadline: BTreeSet<(Instant, HeldId)>,
}

/// A request, and its memory in the budget of all peers.
#[derive(Debug)]
struct Entry<W> {
    held: Held<W>,
    _memory: Reservation,
}

/// What the requests of one kind take of their limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    requests: usize,
    bytes: usize,
}

impl<W: Waiter> HeldRequests<W> {
    pub(crate) fn new(limits: HeldLimits) -> Self {
        Self { state: HeldState::new(State::default()), limits, sooner: Notify::new() }
    }

    /// How many wait for messages.
    pub(crate) fn count_for_messages(&self) -> usize {
        self.state.with(|state| state.for_messages.requests)
    }

    /// How many wait for anything.
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
        let deadline = held.deadline;
        let memory = match held.reply.connection().reserve(MemoryKind::Requests, bytes_of(&held)) {
            Ok(memory) => memory,
            Err(no_memory) => return Err(Box::new((held, NoRoom::Memory(no_memory)))),
        };
        let add = |state: &mut State<W>| match state.check_room(&held, self.limits) {
            Ok(()) => Ok(state.insert(Entry { held, _memory: memory })),
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

    /// Takes out the requests that one of these messages wakes.
    pub(crate) fn arrived(&self, arrivals: &[Arrival]) -> Vec<Held<W>> {
        let released = self.state.reached(MESSAGES, 0, |state| {
            let mut released = Vec::new();
            for arrival in arrivals {
                // Taken out right away: the next arrival in the same queue does not check them again.
                let woken = state.woken_by(arrival);
                released.extend(woken.into_iter().filter_map(|id| state.take(id)));
            }
            released
        });
        released.unwrap_or_default()
    }

    /// Takes out the requests that waited for dispatch to come this far.
    pub(crate) fn dispatched(&self, offset: PhysicalOffset) -> Vec<Held<W>> {
        let released = self.state.reached(DISPATCH, offset.get(), |state| {
            state.release(|state, ids| {
                let covered = state.by_dispatch.iter().take_while(|(end, _)| *end <= offset);
                ids.extend(covered.map(|(_, id)| *id));
            })
        });
        released.unwrap_or_default()
    }

    /// Takes out the requests of which a queue has grown past what they have seen, whatever their filter.
    pub(crate) fn behind(&self, max_offset: impl Fn(&QueueKey) -> QueueOffset) -> Vec<Held<W>> {
        self.release(|state, ids| {
            for (queue, waiting) in &state.by_queue {
                let max = max_offset(queue);
                let is_behind = |id: &&HeldId| {
                    state.requests.get(*id).is_some_and(|entry| entry.held.waiter.is_behind(queue, max))
                };
                ids.extend(waiting.iter().filter(is_behind));
            }
        })
    }

    /// Takes out the requests whose time is up.
    pub(crate) fn overdue(&self, now: Instant) -> Vec<Held<W>> {
        self.release(|state, ids| {
            let overdue = state.by_deadline.iter().take_while(|(deadline, _)| *deadline <= now);
            ids.extend(overdue.map(|(_, id)| *id));
        })
    }

    /// Takes out the requests that wait for messages of a topic.
    pub(crate) fn of_topic(&self, topic: &str) -> Vec<Held<W>> {
        self.release(|state, ids| {
            let queues = state.by_queue.iter().filter(|(queue, _)| *queue.topic == *topic);
            ids.extend(queues.flat_map(|(_, waiting)| waiting));
        })
    }

    /// Takes out the requests that wait for messages.
    pub(crate) fn all_for_messages(&self) -> Vec<Held<W>> {
        self.release(|state, ids| ids.extend(state.by_queue.values().flatten()))
    }

    /// Takes out everything.
    pub(crate) fn all(&self) -> Vec<Held<W>> {
        self.release(|state, ids| ids.extend(state.requests.keys()))
    }

    /// Drops the requests of a connection that has ended.
    pub(crate) fn disconnected(&self, connection_id: u64) {
        drop(
            self.release(|state, ids| {
                ids.extend(state.by_connection.get(&connection_id).into_iter().flatten())
            }),
        );
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

    fn release(&self, choose: impl FnOnce(&State<W>, &mut Vec<HeldId>)) -> Vec<Held<W>> {
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
            by_queue: HashMap::new(),
            by_dispatch: BTreeSet::new(),
            by_connection: HashMap::new(),
            by_deadline: BTreeSet::new(),
        }
    }
}

impl<W: Waiter> State<W> {
    fn check_room(&mut self, held: &Held<W>, limits: HeldLimits) -> Result<(), NoRoom> {
        let usage = *self.usage(&held.waiter);
        if usage.requests >= limits.requests {
            return Err(NoRoom::Requests { limit: limits.requests });
        }
        if usage.bytes.saturating_add(bytes_of(held)) > limits.bytes {
            return Err(NoRoom::Bytes { limit: limits.bytes });
        }
        Ok(())
    }

    /// What the requests take that wait for the same as this one.
    fn usage(&mut self, waiter: &W) -> &mut Usage {
        match waiter.waits_for() {
            WaitsFor::Messages(_) => &mut self.for_messages,
            WaitsFor::Dispatch(_) => &mut self.for_dispatch,
        }
    }

    fn insert(&mut self, entry: Entry<W>) -> HeldId {
        let held = &entry.held;
        let id = HeldId(self.next_id);
        self.next_id += 1;
        match held.waiter.waits_for() {
            WaitsFor::Messages(queues) => {
                for queue in queues {
                    self.by_queue.entry(queue.clone()).or_default().insert(id);
                }
            }
            WaitsFor::Dispatch(end) => {
                self.by_dispatch.insert((end, id));
            }
        }
        self.by_connection.entry(held.reply.connection().id()).or_default().insert(id);
        self.by_deadline.insert((held.deadline, id));
        let usage = self.usage(&held.waiter);
        usage.requests += 1;
        usage.bytes += bytes_of(held);
        self.requests.insert(id, entry);
        id
    }

    fn take(&mut self, id: HeldId) -> Option<Held<W>> {
        let Entry { held, .. } = self.requests.remove(&id)?;
        let usage = self.usage(&held.waiter);
        usage.requests -= 1;
        usage.bytes -= bytes_of(&held);
        self.by_deadline.remove(&(held.deadline, id));
        remove_from(&mut self.by_connection, &held.reply.connection().id(), id);
        match held.waiter.waits_for() {
            WaitsFor::Messages(queues) => {
                queues.iter().for_each(|queue| remove_from(&mut self.by_queue, queue, id));
            }
            WaitsFor::Dispatch(end) => {
                self.by_dispatch.remove(&(end, id));
            }
        }
        Some(held)
    }

    fn release(&mut self, choose: impl FnOnce(&Self, &mut Vec<HeldId>)) -> Vec<Held<W>> {
        let mut ids = Vec::new();
        choose(self, &mut ids);
        // An id may have been chosen twice: the second time it is gone.
        ids.into_iter().filter_map(|id| self.take(id)).collect()
    }

    fn woken_by(&self, arrival: &Arrival) -> Vec<HeldId> {
        let queue = QueueKey { topic: arrival.topic.clone(), queue_id: arrival.queue_id };
        let waiting = self.by_queue.get(&queue).into_iter().flatten().copied();
        waiting
            .filter(|id| self.requests.get(id).is_some_and(|entry| entry.held.waiter.is_woken_by(arrival)))
            .collect()
    }
}

fn bytes_of<W: Waiter>(held: &Held<W>) -> usize {
    size_of::<Held<W>>() + INDEX_BYTES + held.waiter.held_bytes()
}

fn remove_from<K: Eq + Hash>(sets: &mut HashMap<K, BTreeSet<HeldId>>, key: &K, id: HeldId) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(&id);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;

//! The calls that wait for their answers on one connection: opaque table, deadlines, room.
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasherDefault, Hasher};
use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_protocol::{Command, code};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use crate::error::CallError;
use crate::helper::Helper;

/// Bytes counted for a request's header: one with many properties is this long.
const HEAD_BYTES: usize = 4096;

/// The timeout that a caller gives, and when it ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) timeout: Duration,
    pub(crate) deadline: Instant,
}

impl Patience {
    pub(crate) fn from_now(timeout: Duration) -> Self {
        /// Bounds the timeout: a longer one could overflow the instant.
        const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
        Self { timeout, deadline: Instant::now() + timeout.min(YEAR) }
    }

    fn began(&self) -> Option<Instant> {
        self.deadline.checked_sub(self.timeout)
    }

    pub(crate) fn timeout_ms(&self) -> u64 {
        u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Where an answer goes.
pub(crate) type Answer = oneshot::Sender<Result<Command, CallError>>;

fn give(answer: Answer, result: Result<Command, CallError>) {
    drop(answer.send(result)); // the caller may have given up
}

/// One call on its way.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) code: i32,
    pub(crate) patience: Patience,
    /// Bytes of room it holds, given back when it ends.
    pub(crate) cost: u32,
    pub(crate) answer: Answer,
}

/// All calls of one connection.
#[derive(Debug)]
pub(crate) struct Calls {
    table: Mutex<Table>,
    /// Free room in bytes. Closed when the connection ends.
    room: Semaphore,
    total_room: u32,
    least_cost: u32,
}

#[derive(Debug, Default)]
struct Table {
    waiting: HashMap<i32, Call, BuildHasherDefault<OpaqueHasher>>,
    next_opaque: i32,
    /// No call is due before this. It may be earlier than every deadline.
    earliest: Option<Instant>,
    closed: bool,
}

impl Calls {
    /// Room for `max_bytes` of requests, and for `max_calls` of them, however small.
    pub(crate) fn new(max_calls: usize, max_bytes: usize) -> Self {
        let total = u32::try_from(max_bytes.max(HEAD_BYTES)).unwrap_or(u32::MAX);
        let least_cost = (total as usize / max_calls.max(1)).max(1);
        Self {
            table: Mutex::default(),
            room: Semaphore::new(total as usize),
            total_room: total,
            least_cost: u32::try_from(least_cost).unwrap_or(u32::MAX),
        }
    }

    fn cost(&self, request: &Command) -> u32 {
        let bytes = u32::try_from(request.body.len() + HEAD_BYTES).unwrap_or(u32::MAX);
        bytes.max(self.least_cost).min(self.total_room)
    }

    /// Takes the room of a request when it is free: its cost, or `None`.
    pub(crate) fn try_reserve(&self, request: &Command) -> Option<u32> {
        let cost = self.cost(request);
        let permit = self.room.try_acquire_many(cost).ok()?;
        permit.forget();
        Some(cost)
    }

    /// Waits for the room of a request, in the order of asking. `None` when the connection has ended.
    pub(crate) async fn reserve(&self, request: &Command) -> Option<u32> {
        let cost = self.cost(request);
        let permit = self.room.acquire_many(cost).await.ok()?;
        permit.forget();
        Some(cost)
    }

    /// Returns room that was taken and not used.
    pub(crate) fn release(&self, cost: u32) {
        self.room.add_permits(cost as usize);
        assert!(
            self.room.available_permits() <= self.total_room as usize,
            "a connection has no more free room for calls than room"
        );
    }

    /// Bytes of the unanswered requests, written or not.
    pub(crate) fn held_bytes(&self) -> usize {
        (self.total_room as usize).saturating_sub(self.room.available_permits())
    }

    /// Requests that are not answered yet.
    pub(crate) fn len(&self) -> usize {
        self.table.lock().waiting.len()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.room.is_closed()
    }

    /// Enters a call. Returns its opaque and whether it is due before all others, or the call itself when the connection has ended.
    pub(crate) fn insert(&self, call: Call) -> Result<(i32, bool), Call> {
        let mut table = self.table.lock();
        if table.closed {
            return Err(call);
        }
        let mut opaque = table.next_opaque;
        while table.waiting.contains_key(&opaque) {
            opaque = opaque.wrapping_add(1);
        }
        table.next_opaque = opaque.wrapping_add(1);
        let first_due = table.earliest.is_none_or(|earliest| call.patience.deadline < earliest);
        if first_due {
            table.earliest = Some(call.patience.deadline);
        }
        table.waiting.insert(opaque, call);
        Ok((opaque, first_due))
    }

    /// Removes a call without answering it and returns its room. False when it has been answered already.
    pub(crate) fn withdraw(&self, opaque: i32) -> bool {
        let call = self.table.lock().waiting.remove(&opaque);
        call.inspect(|call| self.release(call.cost)).is_some()
    }

    /// Passes a response to the call that waits for it. False when no call does: it timed out, or was never made.
    pub(crate) fn answer(&self, response: Command, addr: &str) -> bool {
        let call = self.table.lock().waiting.remove(&response.opaque);
        let Some(call) = call else { return false };
        self.release(call.cost);
        give(
            call.answer,
            if response.code == code::response::GO_AWAY {
                Err(CallError::GoAway { addr: addr.to_owned(), code: call.code })
            } else {
                Ok(response)
            },
        );
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.lock().waiting.is_empty()
    }

    /// When to check for overdue calls next.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.table.lock().earliest
    }

    /// Ends the calls that are due. Returns when the last begun of them began.
    pub(crate) fn expire(&self, now: Instant, addr: &str) -> Option<Instant> {
        let mut table = self.table.lock();
        if table.earliest.is_none_or(|earliest| earliest > now) {
            return None;
        }
        let overdue: Vec<Call> =
            table.waiting.extract_if(|_, call| call.patience.deadline <= now).map(|(_, call)| call).collect();
        table.earliest = table.waiting.values().map(|call| call.patience.deadline).min();
        drop(table);
        let last_begun = overdue.iter().filter_map(|call| call.patience.began()).max();
        for call in overdue {
            self.release(call.cost);
            let timeout_ms = call.patience.timeout_ms();
            give(call.answer, Err(CallError::Timeout { addr: addr.to_owned(), code: call.code, timeout_ms }));
        }
        last_begun
    }

    /// Ends all calls; later ones are refused.
    pub(crate) fn close(&self, addr: &str) {
        self.room.close();
        let mut table = self.table.lock();
        table.closed = true;
        let waiting = std::mem::take(&mut table.waiting);
        drop(table);
        for call in waiting.into_values() {
            give(
                call.answer,
                Err(CallError::Closed { addr: addr.to_owned(), code: call.code, queued: true }),
            );
        }
    }
}

/// Opaques count up and no peer chooses them, so one multiplication spreads them well enough.
#[derive(Debug, Default)]
struct OpaqueHasher(u64);

impl Hasher for OpaqueHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 << 8) | u64::from(*byte);
        }
    }

    fn write_i32(&mut self, value: i32) {
        self.0 = u64::from(value.cast_unsigned()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// A call whose request is queued; resolves to the response, whatever its code.
///
/// Needs no runtime to be awaited in.
///
/// # Errors
/// [`CallError::Timeout`], [`CallError::Closed`], and [`CallError::GoAway`] for a response 1500.
///
/// # Cancel safety
/// Dropping it gives up the answer, not the request.
#[must_use = "a call that is not awaited loses its answer"]
pub struct PendingCall {
    receiver: oneshot::Receiver<Result<Command, CallError>>,
    /// Not kept alive: it holds the socket open.
    helper: Option<Weak<dyn Helper>>,
}

impl fmt::Debug for PendingCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingCall").field("receiver", &self.receiver).finish_non_exhaustive()
    }
}

impl PendingCall {
    /// `helper`: reads the answer in a thread that [does so](crate::read_here).
    pub(crate) fn new(
        receiver: oneshot::Receiver<Result<Command, CallError>>,
        helper: Option<Weak<dyn Helper>>,
    ) -> Self {
        Self { receiver, helper }
    }
}

impl Future for PendingCall {
    type Output = Result<Command, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut polled = Pin::new(&mut self.receiver).poll(cx);
        if polled.is_pending()
            && let Some(helper) = self.helper.as_ref().and_then(Weak::upgrade)
        {
            helper.read(&mut || {
                polled = Pin::new(&mut self.receiver).poll(cx);
                polled.is_ready()
            });
        }
        // Every call in the table gets an answer; the sender is dropped unused only when the process ends.
        polled.map(|result| result.unwrap_or(Err(CallError::ClientClosed)))
    }
}

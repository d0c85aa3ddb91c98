//! The side of a connection that all threads share: its peer, its queue of frames, its calls.
use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use rocketpy_protocol::{Command, SerializeType, code, flag};
use tokio::sync::oneshot;
use tracing::warn;

use crate::budget::{Account, Holder, MemoryBudget, MemoryKind, NoMemory, Reservation};
use crate::calls::{Answer, Call, Calls, Patience, PendingCall};
use crate::end::BadEnd;
use crate::error::CallError;
use crate::helper::reads_here;
use crate::hook::RequestHook;
use crate::observer::AnswerObserver;
use crate::outbox::{Outbox, PushError};
use crate::response::Response;

/// Bounds of one connection, from the settings of its server or client.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) max_frame_bytes: usize,
    pub(crate) max_queued_bytes: usize,
    pub(crate) max_unanswered: usize,
    pub(crate) max_outstanding_calls: usize,
    pub(crate) max_outstanding_bytes: usize,
    pub(crate) idle_timeout: Duration,
    pub(crate) stall_timeout: Duration,
    /// A connection whose peer answers nothing takes no more calls: the next one opens another.
    pub(crate) retires_when_silent: bool,
    /// `None`: memory is not counted, as on the client's side.
    pub(crate) memory: Option<Arc<MemoryBudget>>,
    /// Takes notice of each answer to the peer.
    pub(crate) observer: Option<Arc<dyn AnswerObserver>>,
}

/// Unanswered requests count as memory in steps of this many, beyond the first step.
const REQUESTS_A_STEP: usize = 64;
/// Memory of one unanswered request: its reply, and what waits with it.
const REQUEST_BYTES: usize = 512;

/// How far a connection is on its way to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    Open = 0,
    /// The server stops: it answers the requests it has and refuses new ones.
    Draining = 1,
    /// Nothing more is read; queued frames are still written.
    Closing = 2,
    /// Ends at once.
    Aborted = 3,
}

impl Phase {
    fn from_u8(value: u8) -> Self {
        match value {
            0 => Self::Open,
            1 => Self::Draining,
            2 => Self::Closing,
            _ => Self::Aborted,
        }
    }
}

/// Source of [`Connection::id`].
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// What becomes true of a connection once.
#[derive(Debug, Default)]
struct Marks {
    /// The peer said GO_AWAY: calls under way continue, new ones go to another connection.
    retired: AtomicBool,
    is_encrypted: AtomicBool,
    has_received: AtomicBool,
}

/// One TCP connection, of a server or of a client.
///
/// Both sides may send requests. It is reference counted and may outlive its socket; from then on it refuses every request.
#[doc(alias = "Channel")]
pub struct Connection {
    id: u64,
    peer: SocketAddr,
    local: SocketAddr,
    /// The peer's address as the caller gave it, for error messages.
    name: Arc<str>,
    limits: Limits,
    account: Arc<Account>,
    /// Completes this side's requests; `None` on the server's side.
    hook: Option<Arc<dyn RequestHook>>,
    outbox: Outbox,
    calls: Calls,
    /// Requests of the peer that were handed out and whose [`Reply`](crate::Reply) is still alive.
    unanswered: AtomicUsize,
    phase: AtomicU8,
    /// Serialization of requests to this peer: the client's choice, or the one that the peer last used.
    serialize: AtomicU8,
    marks: Marks,
    attachment: OnceLock<Arc<dyn Any + Send + Sync>>,
    bad_end: OnceLock<BadEnd>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("id", &self.id)
            .field("peer", &self.peer)
            .field("phase", &self.phase())
            .finish_non_exhaustive()
    }
}

impl Connection {
    pub(crate) fn new(
        (peer, local): (SocketAddr, SocketAddr),
        name: Arc<str>,
        serialize: SerializeType,
        limits: Limits,
        hook: Option<Arc<dyn RequestHook>>,
    ) -> Self {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let account = Arc::new(Account::new(limits.memory.clone(), Some(id)));
        Self {
            id,
            peer,
            local,
            name,
            hook,
            outbox: Outbox::new(limits.max_frame_bytes, &account),
            account,
            calls: Calls::new(limits.max_outstanding_calls, limits.max_outstanding_bytes),
            unanswered: AtomicUsize::new(0),
            phase: AtomicU8::new(Phase::Open as u8),
            serialize: AtomicU8::new(serialize as u8),
            marks: Marks::default(),
            attachment: OnceLock::new(),
            bad_end: OnceLock::new(),
            limits,
        }
    }

    /// Lets a budget close the connection when it holds too much.
    pub(crate) fn register_in(self: &Arc<Self>, budget: &MemoryBudget) {
        let connection: Weak<Self> = Arc::downgrade(self);
        budget.register(self.id, &self.account, connection);
    }

    /// Number of this connection, unique in the process.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Whether the connection runs over TLS, or from this machine.
    pub fn is_private(&self) -> bool {
        self.marks.is_encrypted.load(Ordering::Relaxed) || self.peer.ip().to_canonical().is_loopback()
    }

    pub(crate) fn note_encrypted(&self) {
        self.marks.is_encrypted.store(true, Ordering::Relaxed);
    }

    /// Notes that the peer has sent a whole frame.
    pub(crate) fn note_received(&self) {
        self.marks.has_received.store(true, Ordering::Relaxed);
    }

    /// Whether the peer has sent a whole frame.
    pub(crate) fn has_received(&self) -> bool {
        self.marks.has_received.load(Ordering::Relaxed)
    }

    pub(crate) fn note_end(&self, bad: Option<BadEnd>) {
        if let Some(bad) = bad {
            self.bad_end.get_or_init(|| bad);
        }
    }

    /// How the connection ended, once it has; `None` while it has not, and where a side closed it.
    pub fn bad_end(&self) -> Option<BadEnd> {
        self.bad_end.get().copied()
    }

    /// Whether the connection accepts frames. Its end may not have been noticed yet.
    pub fn is_open(&self) -> bool {
        self.phase() == Phase::Open && !self.calls.is_closed()
    }

    pub fn queued_bytes(&self) -> usize {
        self.outbox.waiting_bytes()
    }

    /// Takes memory for what this connection makes the process keep, until the reservation is dropped.
    ///
    /// # Errors
    /// [`NoMemory`] when all connections together hold as much as they may, and this one would hold the most.
    pub fn reserve(&self, kind: MemoryKind, bytes: usize) -> Result<Reservation, NoMemory> {
        self.account.reserve(kind, bytes)
    }

    /// Whether an answer may have copies of what it could have as slices of mapped files. Not while peers leave many answers: slices cost
    /// no memory, however long they wait.
    pub fn has_room_for_copies(&self) -> bool {
        self.account.has_room_for_copies()
    }

    /// Attaches a value of the layer above; false when there is one already.
    pub fn attach(&self, value: Arc<dyn Any + Send + Sync>) -> bool {
        self.attachment.set(value).is_ok()
    }

    /// The attached value, if it is a `T`.
    pub fn attachment<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.attachment.get().cloned()?.downcast().ok()
    }

    /// Ends the connection: nothing more is read, and queued frames are written if the peer takes them at once.
    pub fn close(&self) {
        self.enter(Phase::Closing);
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// Any [`CallError`] but those of connecting. The response codes of the peer are not errors, except GO_AWAY.
    ///
    /// # Cancel safety
    /// Dropped after its first poll, the request may have been sent.
    pub async fn call(&self, request: Command, timeout: Duration) -> Result<Command, CallError> {
        self.start_call(request, timeout).await?.await
    }

    /// Queues a request and returns a future of its answer; waits only for room.
    ///
    /// # Errors
    /// [`CallError::WindowFull`], [`CallError::Closed`] (not queued), [`CallError::FrameTooLarge`], [`CallError::Encode`]: the peer
    /// has not seen the request.
    pub async fn start_call(
        &self,
        mut request: Command,
        timeout: Duration,
    ) -> Result<PendingCall, CallError> {
        self.begin(&mut request, Patience::from_now(timeout)).await
    }

    /// Requests to the peer that it has not answered yet.
    pub fn open_calls(&self) -> usize {
        self.calls.len()
    }

    /// Queues a request if there is room for it now.
    ///
    /// # Errors
    /// As [`start_call`](Self::start_call).
    pub fn try_start_call(&self, mut request: Command, timeout: Duration) -> Result<PendingCall, CallError> {
        self.complete(&mut request);
        let cost = self.calls.try_reserve(&request).ok_or_else(|| self.no_room(request.code, 0))?;
        let (sender, receiver) = oneshot::channel();
        self.enqueue(&mut request, Patience::from_now(timeout), cost, sender)?;
        Ok(PendingCall::new(receiver, self.outbox.helper().filter(|_| reads_here()).cloned()))
    }

    /// Queues a request that is not answered.
    ///
    /// # Errors
    /// [`CallError::WindowFull`] when more bytes wait for this peer than it may leave waiting; [`CallError::Closed`],
    /// [`CallError::FrameTooLarge`], [`CallError::Encode`]. In each case the peer has not seen it.
    pub fn send_oneway(&self, mut request: Command) -> Result<(), CallError> {
        // Half of the limit that stops reading: one-way requests alone never reach it.
        if self.waiting_bytes_beside_calls() > self.limits.max_queued_bytes / 2 {
            return Err(self.no_room(request.code, 0));
        }
        self.complete(&mut request);
        request.flag |= flag::ONEWAY;
        request.serialize = self.serialize();
        self.push(&request)
    }

    pub(crate) async fn begin(
        &self,
        request: &mut Command,
        patience: Patience,
    ) -> Result<PendingCall, CallError> {
        self.complete(request);
        let cost = self.room_for(request, patience).await?;
        let (sender, receiver) = oneshot::channel();
        self.enqueue(request, patience, cost, sender)?;
        Ok(PendingCall::new(receiver, self.outbox.helper().filter(|_| reads_here()).cloned()))
    }

    async fn room_for(&self, request: &Command, patience: Patience) -> Result<u32, CallError> {
        if let Some(cost) = self.calls.try_reserve(request) {
            return Ok(cost);
        }
        match tokio::time::timeout_at(patience.deadline, self.calls.reserve(request)).await {
            Ok(Some(cost)) => Ok(cost),
            Ok(None) => Err(self.closed(request.code)),
            Err(_) => Err(self.no_room(request.code, patience.timeout_ms())),
        }
    }

    /// Queues a request that is complete and whose room is reserved.
    fn enqueue(
        &self,
        request: &mut Command,
        patience: Patience,
        cost: u32,
        answer: Answer,
    ) -> Result<(), CallError> {
        let call = Call { code: request.code, patience, cost, answer };
        let (opaque, first_due) = self.calls.insert(call).map_err(|call| {
            self.calls.release(call.cost);
            self.closed(call.code)
        })?;
        request.opaque = opaque;
        request.serialize = self.serialize();
        let pushed = self.push(request);
        if first_due {
            // The frame does not wake a task that waits for a slow peer, but the timer must be set anew.
            self.outbox.wake();
        }
        match pushed {
            Err(error) if self.calls.withdraw(opaque) => Err(error),
            // Not withdrawn: the connection has ended and already told the call.
            Err(_) | Ok(()) => Ok(()),
        }
    }

    /// Runs the hook. Comes before the reservation of room: the request's final size counts, and a hook that panics takes no room.
    fn complete(&self, request: &mut Command) {
        if let Some(hook) = &self.hook {
            hook.outgoing(&self.name, request);
        }
    }

    fn push(&self, request: &Command) -> Result<(), CallError> {
        let code = request.code;
        self.outbox.push(request, Vec::new(), 0).map_err(|error| match error {
            PushError::Closed => self.closed(code),
            PushError::TooLarge { size_bytes } => {
                CallError::FrameTooLarge { code, size_bytes, max_bytes: self.limits.max_frame_bytes }
            }
            PushError::Encode { reason } => CallError::Encode { code, reason },
        })
    }

    /// Queues an answer; false where the connection has ended. One that cannot be framed is replaced by SYSTEM_ERROR, so that the peer does
    /// not wait for it.
    pub(crate) fn push_response(&self, request_code: i32, response: Response) -> bool {
        let Response { command, body, mapped_bytes, .. } = response;
        let reason = match self.outbox.push(&command, body, mapped_bytes) {
            Ok(()) => return true,
            Err(PushError::Closed) => return false,
            Err(PushError::TooLarge { size_bytes }) => {
                format!(
                    "the answer has {size_bytes} bytes, more than the frame limit of {}",
                    self.limits.max_frame_bytes
                )
            }
            Err(PushError::Encode { reason }) => format!("the answer cannot be encoded: {reason}"),
        };
        warn!(peer = %self.peer, code = request_code, reason, "response replaced by an error");
        let mut replacement = Response::status(code::response::SYSTEM_ERROR, reason).command;
        replacement.opaque = command.opaque;
        replacement.serialize = command.serialize;
        // The replacement is small and plain; only a closed connection refuses it.
        self.outbox.push(&replacement, Vec::<Bytes>::new(), 0).is_ok()
    }

    pub(crate) fn request_begun(&self) {
        let before = self.unanswered.fetch_add(1, Ordering::Relaxed);
        if (before + 1).is_multiple_of(REQUESTS_A_STEP)
            && !self.account.add(MemoryKind::Requests, REQUESTS_A_STEP * REQUEST_BYTES)
        {
            self.account.settle(MemoryKind::Requests);
        }
    }

    /// Counts a request as done, and wakes the task if it may have waited for it.
    pub(crate) fn request_done(&self) {
        let before = self.unanswered.fetch_sub(1, Ordering::AcqRel);
        if before.is_multiple_of(REQUESTS_A_STEP) {
            self.account.subtract(MemoryKind::Requests, REQUESTS_A_STEP * REQUEST_BYTES);
        }
        if before == self.limits.max_unanswered || before == 1 && self.phase() != Phase::Open {
            self.outbox.wake();
        }
    }

    pub(crate) fn unanswered(&self) -> usize {
        self.unanswered.load(Ordering::Acquire)
    }

    /// Bytes waiting to be written, without those of calls.
    ///
    /// Calls have their own bound. Reading continues however many of them wait: the peer may have to write answers before it
    /// takes more.
    fn waiting_bytes_beside_calls(&self) -> usize {
        self.outbox.waiting_bytes().saturating_sub(self.calls.held_bytes())
    }

    /// Whether the peer may be read from: its waiting answers and its unanswered requests are both within bounds.
    pub(crate) fn has_room_for_requests(&self) -> bool {
        self.waiting_bytes_beside_calls() <= self.limits.max_queued_bytes
            && self.unanswered() < self.limits.max_unanswered
    }

    pub(crate) fn phase(&self) -> Phase {
        Phase::from_u8(self.phase.load(Ordering::Acquire))
    }

    /// Moves forward to `phase`; never back.
    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
        if phase == Phase::Aborted {
            // The queued frames are free at once, whenever the task gets its turn.
            self.outbox.close();
        }
        self.outbox.wake();
    }

    pub(crate) fn serialize(&self) -> SerializeType {
        if self.serialize.load(Ordering::Relaxed) == SerializeType::Binary as u8 {
            SerializeType::Binary
        } else {
            SerializeType::Json
        }
    }

    pub(crate) fn note_serialize(&self, serialize: SerializeType) {
        if self.serialize.load(Ordering::Relaxed) != serialize as u8 {
            self.serialize.store(serialize as u8, Ordering::Relaxed);
        }
    }

    pub(crate) fn retire(&self) {
        self.marks.retired.store(true, Ordering::Release);
    }

    /// Whether new calls may be started here.
    pub(crate) fn takes_calls(&self) -> bool {
        self.is_open() && !self.marks.retired.load(Ordering::Acquire)
    }

    /// Whether the peer said GO_AWAY and the last call has been answered.
    pub(crate) fn is_spent(&self) -> bool {
        self.marks.retired.load(Ordering::Acquire) && self.calls.is_empty()
    }

    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    pub(crate) fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    pub(crate) fn calls(&self) -> &Calls {
        &self.calls
    }

    pub(crate) fn observer(&self) -> Option<&Arc<dyn AnswerObserver>> {
        self.limits.observer.as_ref()
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The socket is gone: waiting calls fail, later frames are refused.
    pub(crate) fn ended(&self) {
        self.phase.store(Phase::Aborted as u8, Ordering::Release);
        self.account.leave();
        self.outbox.end();
        self.calls.close(&self.name);
    }

    fn closed(&self, code: i32) -> CallError {
        CallError::Closed { addr: self.name.to_string(), code, queued: false }
    }

    fn no_room(&self, code: i32, timeout_ms: u64) -> CallError {
        if self.calls.is_closed() {
            return self.closed(code);
        }
        CallError::WindowFull { addr: self.name.to_string(), code, timeout_ms }
    }
}

impl Holder for Connection {
    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn abort(&self) {
        self.enter(Phase::Aborted);
    }
}

//! The task of one connection: writes what is queued, reads and hands on what arrives, watches the clock.
use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use rocketpy_protocol::frame::Frame;
use rocketpy_protocol::{Command, code};
use tokio::time::{Instant, Sleep};
use tracing::{debug, error};

use crate::budget::{Gauge, MemoryKind};
use crate::connection::{Connection, Phase};
use crate::end::End;
use crate::handler::{Reply, Service};
use crate::reader::FrameReader;
use crate::response::Response;
use crate::stream::Stream;
use crate::turn::{Turn, yield_turn};

/// Slices given to one write.
const MAX_SLICES: usize = 128;
/// Rounds of writing and reading before other tasks of the thread get their turn. One write more ends the turn.
const MAX_ROUNDS: usize = 8;
/// A connection that ends waits at most this long for its last answers, and as long again for the peer to take them and close.
const LINGER: Duration = Duration::from_millis(100);
/// Peers of this version and older do not know GO_AWAY.
const GO_AWAY_ABOVE_VERSION: i32 = 475;
/// A peer takes at least this part (1/32) of what waits for it within the stall timeout, and at least [`LEAST_BYTES`]. One that took
/// a byte now and then could keep answers, and the removed files that they lie in, for months.
const LEAST_SHARE: usize = 32;
/// A peer takes at least this much within the stall timeout, or everything.
const LEAST_BYTES: usize = 64 * 1024;
/// Most bytes read for the task at once: a few answers to sends. The task reads better what is larger.
const HELPED_BYTES: usize = 4 * 1024;
/// A peer that sends nothing for less than this may be slow.
const SILENCE: Duration = Duration::from_secs(1);
/// The timer fires at least this often. It bounds configured timeouts, which may be too long to add to an instant.
const MAX_TIMER: Duration = Duration::from_secs(3600);

/// What the task does next.
enum Next {
    Sleep,
    Yield,
}

/// This side's half of the stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteHalf {
    Open,
    /// Being shut: nothing more is written.
    Shutting,
    Shut,
}

/// A time in which the peer has to take a part of what waits for it.
#[derive(Clone, Copy)]
struct Backlog {
    since: Instant,
    /// Bytes that it still has to take in this time.
    owed_bytes: usize,
}

impl Backlog {
    fn new(since: Instant, waiting_bytes: usize) -> Self {
        let owed_bytes = (waiting_bytes / LEAST_SHARE).max(LEAST_BYTES).min(waiting_bytes).max(1);
        Self { since, owed_bytes }
    }
}

/// What comes from the peer.
struct Input {
    reader: FrameReader,
    /// Memory of the reader, as the budget knows it.
    memory: Gauge,
    /// When the last whole frame was read.
    frame_at: Option<Instant>,
    frames: u64,
    /// The peer sends nothing more.
    is_done: bool,
}

/// What goes to the peer.
struct Output {
    /// Taken from the outbox, partly written.
    queue: VecDeque<Bytes>,
    /// The stream may hold written bytes until it is flushed.
    unflushed: bool,
    /// What the peer has to take; `None` while it has taken everything.
    backlog: Option<Backlog>,
    /// Whether the peer takes no more bytes now.
    is_blocked: bool,
    half: WriteHalf,
}

/// The state that only the task of the connection uses.
pub(crate) struct Driver<S, Slot> {
    stream: S,
    connection: Arc<Connection>,
    service: Service,
    input: Input,
    output: Output,
    timer: Pin<Box<Sleep>>,
    active_at: Instant,
    /// When the connection began to end, or last made progress with it.
    ending_since: Option<Instant>,
    /// What ended the connection while another thread wrote or read.
    failed: Option<End>,
    /// There was no room for requests when the task last left its waker.
    parked_without_room: bool,
    started: bool,
    /// The handler was told of the connection.
    announced: bool,
    /// Dropped with the connection: frees its place in the server.
    _slot: Slot,
}

impl<S: Stream, Slot> Driver<S, Slot> {
    pub(crate) fn new(stream: S, connection: Arc<Connection>, service: Service, slot: Slot) -> Self {
        let now = Instant::now();
        let input = Input {
            reader: FrameReader::new(connection.limits().max_frame_bytes),
            memory: Gauge::new(connection.account(), MemoryKind::Frame),
            frame_at: None,
            frames: 0,
            is_done: false,
        };
        let output = Output {
            queue: VecDeque::new(),
            unflushed: false,
            backlog: None,
            is_blocked: false,
            half: WriteHalf::Open,
        };
        Self {
            stream,
            service,
            input,
            output,
            timer: Box::pin(tokio::time::sleep_until(now + connection.limits().idle_timeout.min(MAX_TIMER))),
            connection,
            active_at: now,
            ending_since: None,
            failed: None,
            parked_without_room: false,
            started: false,
            announced: false,
            _slot: slot,
        }
    }

    fn announce(&mut self) {
        if !self.started {
            (self.started, self.announced) = (true, true);
            debug!(peer = %self.connection.peer(), id = self.connection.id(), "connection opened");
            self.service.handler.connected(&self.connection);
        }
    }

    fn advance(&mut self, cx: &mut Context<'_>) -> Result<Next, End> {
        if let Some(end) = self.failed.take() {
            return Err(end);
        }
        self.announce();
        let mut turn = Turn::new();
        for round in 0..=MAX_ROUNDS {
            if self.connection.is_spent() {
                self.connection.enter(Phase::Closing);
            }
            let phase = self.connection.phase();
            if phase == Phase::Aborted {
                return Err(End::Here);
            }
            self.write(cx)?;
            let blocked = self.output.is_blocked;
            let is_over = round == MAX_ROUNDS || turn.is_over();
            if !is_over && self.read(cx, phase, &mut turn)? {
                continue;
            }
            if phase > Phase::Open {
                self.end(cx, blocked)?;
            }
            // Once in a turn at least: a peer that always has bytes to read must not hold up the end or the timeouts.
            let fired = self.watch_clock(cx)?;
            if is_over {
                break;
            }
            if !fired && self.park(cx, phase, blocked) {
                return Ok(Next::Sleep);
            }
        }
        Ok(Next::Yield)
    }

    /// Leaves the waker; false when something happened since this round began.
    fn park(&mut self, cx: &mut Context<'_>, phase: Phase, blocked: bool) -> bool {
        let connection = &self.connection;
        let had_room = connection.has_room_for_requests();
        self.parked_without_room = !had_room;
        let unanswered = connection.unanswered();
        let earliest = connection.calls().earliest();
        let armed = self.timer.deadline();
        connection.outbox().park(cx.waker(), !blocked, || {
            connection.phase() != phase
                || !had_room && connection.has_room_for_requests()
                || phase > Phase::Open && unanswered > 0 && connection.unanswered() == 0
                || earliest.is_some_and(|earliest| earliest < armed)
        })
    }

    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    pub(crate) fn frames(&self) -> u64 {
        self.input.frames
    }

    /// Writes for the sleeping task with this waker; false when it has to be woken. Whoever wakes the task while its waker is in use
    /// here has no effect: each reason for that is found here or by [`park`](Self::park).
    pub(crate) fn write_for_task(&mut self, waker: &Waker) -> bool {
        if !self.is_plain() || self.parked_without_room || self.has_work_left() {
            return false;
        }
        let cx = &mut Context::from_waker(waker);
        if let Err(end) = self.write(cx) {
            self.failed = Some(end);
            return false;
        }
        !self.output.is_blocked && self.park(cx, Phase::Open, false)
    }

    /// Handles what `read` brings, for the task. Everything but whole frames is the task's own: false, where it has to read.
    pub(crate) fn read_for_task(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> bool {
        let takes_frames = self.connection.has_room_for_requests() && !self.connection.account().is_crowded();
        if !self.is_plain() || self.input.is_done || !takes_frames || self.input.reader.is_mid_frame() {
            return false;
        }
        let mut bytes = [0; HELPED_BYTES];
        let handled = match read(&mut bytes) {
            Ok(count) if count > 0 => {
                self.active_at = Instant::now();
                self.input.reader.extend(&bytes[..count]);
                self.hand_on(Phase::Open, &mut Turn::new())
            }
            // The task will find the end of the stream too.
            Ok(_) => return false,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return true;
            }
            Err(error) => Err(error.into()),
        };
        self.failed = handled.err();
        let is_task_needed = self.failed.is_some() || self.has_work_left();
        if is_task_needed {
            self.connection.outbox().wake();
        }
        !is_task_needed
    }

    /// Whether the connection is in no state that takes the task's attention.
    fn is_plain(&self) -> bool {
        self.started
            && self.connection.phase() == Phase::Open
            && self.output.half == WriteHalf::Open
            && self.failed.is_none()
    }

    /// Whether what another thread read leaves something to do for the task.
    fn has_work_left(&self) -> bool {
        self.input.reader.may_have_frame() || self.connection.is_spent()
    }

    /// Writes until nothing is queued or the peer takes no more.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        loop {
            self.connection.outbox().take(&mut self.output.queue);
            if self.output.queue.is_empty() {
                return self.flush(cx);
            }
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let mut count = 0;
            for (slot, slice) in slices.iter_mut().zip(&self.output.queue) {
                *slot = IoSlice::new(slice);
                count += 1;
            }
            match Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..count])? {
                Poll::Pending => {
                    self.blocked();
                    return Ok(());
                }
                Poll::Ready(0) => return Err(End::Io(io::ErrorKind::WriteZero.into())),
                Poll::Ready(written) => self.wrote(written),
            }
        }
    }

    /// Passes on what the stream may have buffered. A socket buffers nothing here.
    fn flush(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        if self.output.unflushed && Pin::new(&mut self.stream).poll_flush(cx)?.is_pending() {
            self.blocked();
            return Ok(());
        }
        self.output.unflushed = false;
        self.output.is_blocked = false;
        self.output.backlog = None;
        Ok(())
    }

    fn blocked(&mut self) {
        self.output.is_blocked = true;
        let waiting_bytes = self.connection.queued_bytes();
        self.output.backlog.get_or_insert_with(|| Backlog::new(Instant::now(), waiting_bytes));
    }

    fn wrote(&mut self, written: usize) {
        self.connection.outbox().written(written);
        self.output.unflushed = true;
        self.active_at = Instant::now();
        self.output.is_blocked = false;
        if let Some(backlog) = &mut self.output.backlog {
            backlog.owed_bytes = backlog.owed_bytes.saturating_sub(written);
        }
        if self.ending_since.is_some() {
            self.ending_since = Some(self.active_at);
        }
        let mut left = written;
        while left > 0 {
            let Some(first) = self.output.queue.front_mut() else { return };
            if first.len() > left {
                first.advance(left);
                return;
            }
            left -= first.len();
            self.output.queue.pop_front();
        }
    }

    /// Handles what was read, or reads once more, and counts the memory that the reader then keeps. True when there was progress.
    fn read(&mut self, cx: &mut Context<'_>, phase: Phase, turn: &mut Turn) -> Result<bool, End> {
        let progress = self.read_and_handle(cx, phase, turn)?;
        let held_bytes = self.input.reader.held_bytes();
        if held_bytes != self.input.memory.bytes() && !self.input.memory.set(held_bytes) {
            self.connection.account().settle(MemoryKind::Frame);
        }
        if self.input.reader.take_progress() {
            self.input.memory.note_progress();
        }
        Ok(progress)
    }

    fn read_and_handle(&mut self, cx: &mut Context<'_>, phase: Phase, turn: &mut Turn) -> Result<bool, End> {
        if self.input.is_done {
            return Ok(false);
        }
        let discards = phase == Phase::Closing || self.output.half != WriteHalf::Open;
        if discards {
            self.input.reader.discard();
        } else if !self.connection.has_room_for_requests() {
            return Ok(false);
        } else if self.connection.account().is_crowded() {
            // The tasks of connections that are being closed get their turn first: they end at once, and their memory is free.
            return Ok(true);
        }
        if self.input.reader.may_have_frame() {
            self.hand_on(phase, turn)?;
            return Ok(true);
        }
        match self.input.reader.poll_read(&mut self.stream, cx)? {
            Poll::Pending => Ok(false),
            Poll::Ready(0) => {
                self.input.is_done = true;
                self.connection.enter(Phase::Closing);
                self.renounce();
                Ok(true)
            }
            Poll::Ready(_) => {
                self.active_at = Instant::now();
                if !discards {
                    self.hand_on(phase, turn)?;
                }
                Ok(true)
            }
        }
    }

    /// Hands on whole frames while there is room for the requests in them and the turn is not over.
    fn hand_on(&mut self, phase: Phase, turn: &mut Turn) -> Result<(), End> {
        // As many requests as are here may each have an answer of many megabytes.
        while !turn.is_over()
            && self.connection.has_room_for_requests()
            && !self.connection.account().is_crowded()
            && let Some(frame) = self.input.reader.next_frame()?
        {
            self.input.frame_at = Some(self.active_at);
            if self.input.frames == 0 {
                self.connection.note_received();
            }
            self.input.frames += 1;
            let frame_bytes = frame.header.len() + frame.body.len();
            let queued_bytes = self.connection.queued_bytes();
            self.receive(frame, phase)?;
            turn.handled(frame_bytes + self.connection.queued_bytes().saturating_sub(queued_bytes));
            if self.connection.phase() == Phase::Aborted {
                return Err(End::Here);
            }
        }
        Ok(())
    }

    fn receive(&mut self, frame: Frame, phase: Phase) -> Result<(), End> {
        let command = Command::decode(frame)?;
        if command.is_response() {
            if command.code == code::response::GO_AWAY {
                self.connection.retire();
            }
            if !self.connection.calls().answer(command, self.connection.name()) {
                debug!(peer = %self.connection.peer(), "response without a waiting request");
            }
            return Ok(());
        }
        self.connection.note_serialize(command.serialize);
        self.connection.request_begun();
        let version = command.version;
        let reply = Reply::new(Arc::clone(&self.connection), &command, self.active_at.into_std());
        if phase == Phase::Open {
            self.handle(command, reply);
        } else if version > GO_AWAY_ABOVE_VERSION {
            reply.send(Response::status(code::response::GO_AWAY, "shutting down"));
        } else {
            reply.send_nothing();
        }
        Ok(())
    }

    fn handle(&self, command: Command, reply: Reply) {
        let (code, connection) = (command.code, &self.connection);
        // The unwinding drops the reply, which then answers SYSTEM_ERROR.
        let outcome = catch_unwind(AssertUnwindSafe(|| match self.service.refusal(connection, &command) {
            None => self.service.handler.handle(connection, command, reply),
            Some(refusal) => reply.send(refusal),
        }));
        if outcome.is_err() {
            error!(peer = %connection.peer(), code, "request handler panicked, answered with SYSTEM_ERROR");
        }
    }

    /// Takes the next step of ending: last answers, then this side is shut, then the peer's close, each within [`LINGER`].
    ///
    /// The socket is not simply closed: with unread bytes of the peer in it the kernel would reset the connection, and a
    /// reset destroys answers that are still on their way.
    fn end(&mut self, cx: &mut Context<'_>, blocked: bool) -> Result<(), End> {
        let since = *self.ending_since.get_or_insert_with(Instant::now);
        let overdue = Instant::now() >= since + LINGER;
        if self.awaits_answers() && (self.is_draining() || !overdue) || blocked && !overdue {
            return Ok(());
        }
        if self.output.half == WriteHalf::Open && !blocked {
            if self.connection.queued_bytes() > 0 {
                // Another thread gave the last answer after this round's write. The next round writes it.
                return Ok(());
            }
            self.output.half = WriteHalf::Shutting;
            self.ending_since = Some(Instant::now());
        } else if overdue {
            return Err(End::Here);
        }
        if !self.is_shut(cx) {
            return Ok(());
        }
        match self.input.is_done {
            true if self.input.reader.is_mid_frame() => Err(End::PeerMidFrame),
            true => Err(End::Peer),
            false => Ok(()),
        }
    }

    /// Goes on shutting this side; true when it is shut.
    fn is_shut(&mut self, cx: &mut Context<'_>) -> bool {
        if self.output.half == WriteHalf::Shutting
            && let Poll::Ready(result) = Pin::new(&mut self.stream).poll_shutdown(cx)
        {
            self.output.half = WriteHalf::Shut;
            if let Err(error) = result {
                debug!(peer = %self.connection.peer(), %error, "socket already closed at the end of its connection");
            }
        }
        self.output.half == WriteHalf::Shut
    }

    fn awaits_answers(&self) -> bool {
        self.connection.unanswered() > 0
    }

    fn is_draining(&self) -> bool {
        self.connection.phase() == Phase::Draining
    }

    /// Ends overdue calls and idle or stalled connections; sets the timer. True when the timer fired and has to be polled again.
    fn watch_clock(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let due = self.due();
        if due < self.timer.deadline() {
            self.timer.as_mut().reset(due);
        }
        if self.timer.as_mut().poll(cx).is_pending() {
            return Ok(false);
        }
        let now = Instant::now();
        let limits = self.connection.limits();
        let expired = self.connection.calls().expire(now, self.connection.name());
        if limits.retires_when_silent && expired.is_some_and(|began| self.is_silent_since(began, now)) {
            debug!(peer = %self.connection.peer(), id = self.connection.id(), "peer silent, the next call opens another connection");
            self.connection.retire();
        }
        if let Some(Backlog { since, owed_bytes }) = self.output.backlog
            && now - since >= limits.stall_timeout
        {
            let waiting_bytes = self.connection.queued_bytes();
            if owed_bytes > 0 {
                return Err(End::Stalled { timeout: limits.stall_timeout, waiting_bytes });
            }
            self.output.backlog = Some(Backlog::new(now, waiting_bytes));
        }
        if now - self.active_at >= limits.idle_timeout {
            return Err(End::Idle(limits.idle_timeout));
        }
        let due = self.due().max(now + Duration::from_millis(1));
        self.timer.as_mut().reset(due);
        Ok(true)
    }

    /// Whether no frame came since a call that timed out began. A network can drop packets and tell neither end. The kernel notices that
    /// after a quarter of an hour.
    fn is_silent_since(&self, began: Instant, now: Instant) -> bool {
        now - began >= SILENCE && self.input.frame_at.is_none_or(|frame_at| frame_at <= began)
    }

    fn due(&self) -> Instant {
        let limits = self.connection.limits();
        let mut due = self.active_at + limits.idle_timeout.min(MAX_TIMER);
        if let Some(backlog) = self.output.backlog {
            due = due.min(backlog.since + limits.stall_timeout.min(MAX_TIMER));
        }
        // A draining connection waits for its answers until its server's deadline.
        if let Some(since) = self.ending_since
            && !(self.is_draining() && self.awaits_answers())
        {
            due = due.min(since + LINGER);
        }
        match self.connection.calls().earliest() {
            Some(earliest) => due.min(earliest),
            None => due,
        }
    }
}

impl<S, Slot> Driver<S, Slot> {
    /// Tells the handler that nothing more will arrive; answers may still be written.
    fn renounce(&mut self) {
        let (connection, handler) = (&self.connection, &self.service.handler);
        if std::mem::take(&mut self.announced)
            && catch_unwind(AssertUnwindSafe(|| handler.disconnected(connection))).is_err()
        {
            error!(peer = %connection.peer(), "handler panicked at the end of a connection");
        }
    }
}

impl<S: Stream, Slot: Unpin> Future for Driver<S, Slot> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.advance(cx) {
            Ok(Next::Sleep) => Poll::Pending,
            Ok(Next::Yield) => {
                yield_turn(cx);
                Poll::Pending
            }
            Err(end) => {
                if matches!(end, End::Frame(_)) {
                    // Requests before the bad frame were answered: try once more to deliver those answers.
                    drop(self.write(cx));
                }
                self.connection.note_end(end.bad());
                end.log(self.connection.peer(), self.connection.id());
                Poll::Ready(())
            }
        }
    }
}

/// However the task ends, even with its runtime: waiting calls and the handler are told.
impl<S, Slot> Drop for Driver<S, Slot> {
    fn drop(&mut self) {
        self.connection.ended();
        self.renounce();
    }
}

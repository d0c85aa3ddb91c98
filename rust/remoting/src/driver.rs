//! The task of one connection: writes what is queued, reads and hands on what comes, watches the clock.
use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use rocketpy_protocol::frame::{Frame, FrameError};
use rocketpy_protocol::{Command, code};
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tracing::{debug, error, info, warn};

use crate::connection::{Connection, Phase};
use crate::handler::{Reply, Response};
use crate::reader::FrameReader;

/// Slices given to one write.
const MAX_SLICES: usize = 128;
/// Rounds of writing and reading before other tasks of the thread get their turn.
const MAX_ROUNDS: usize = 8;
/// A connection that ends waits at most so long for its last answers, and for the peer to take them and to close its side.
const LINGER: Duration = Duration::from_millis(100);
/// Peers older than this do not know GO_AWAY.
const GO_AWAY_ABOVE_VERSION: i32 = 475;
/// The clock is looked at after so long at the latest.
const FAR: Duration = Duration::from_secs(3600);

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("closed by the peer")]
    Peer,
    #[error("closed by the peer in the middle of a frame")]
    PeerMidFrame,
    #[error("closed here")]
    Here,
    #[error("neither read nor written for {} s", .0.as_secs_f32())]
    Idle(Duration),
    #[error("the peer took no bytes for {} s with {waiting_bytes} bytes waiting", .timeout.as_secs_f32())]
    Stalled { timeout: Duration, waiting_bytes: usize },
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What the task does next.
enum Next {
    Sleep,
    Yield,
}

/// The state that belongs to the task alone.
pub(crate) struct Driver<Slot> {
    stream: TcpStream,
    connection: Arc<Connection>,
    reader: FrameReader,
    /// Taken from the outbox, partly written.
    writing: VecDeque<Bytes>,
    timer: Pin<Box<Sleep>>,
    active_at: Instant,
    /// Since when the peer takes no bytes.
    blocked_since: Option<Instant>,
    /// Since when the connection is on its way to the end.
    ending_since: Option<Instant>,
    peer_done: bool,
    write_shut: bool,
    started: bool,
    /// The layer above knows of the connection.
    announced: bool,
    /// Given back when the connection is gone.
    _slot: Slot,
}

impl<Slot> Driver<Slot> {
    pub(crate) fn new(stream: TcpStream, connection: Arc<Connection>, slot: Slot) -> Self {
        let now = Instant::now();
        Self {
            stream,
            reader: FrameReader::new(connection.limits().max_frame_bytes),
            timer: Box::pin(tokio::time::sleep_until(now + connection.limits().idle_timeout.min(FAR))),
            connection,
            writing: VecDeque::new(),
            active_at: now,
            blocked_since: None,
            ending_since: None,
            peer_done: false,
            write_shut: false,
            started: false,
            announced: false,
            _slot: slot,
        }
    }

    fn announce(&mut self) {
        if !self.started {
            (self.started, self.announced) = (true, true);
            debug!(peer = %self.connection.peer(), id = self.connection.id(), "connection opened");
            self.connection.handler().connected(&self.connection);
        }
    }

    /// Tells the layer above that nothing more will come; later answers may still be written.
    fn renounce(&mut self) {
        let connection = &self.connection;
        if std::mem::take(&mut self.announced)
            && catch_unwind(AssertUnwindSafe(|| connection.handler().disconnected(connection))).is_err()
        {
            error!(peer = %connection.peer(), "handler panicked at the end of a connection");
        }
    }

    fn advance(&mut self, cx: &mut Context<'_>) -> Result<Next, End> {
        self.announce();
        for _ in 0..MAX_ROUNDS {
            if self.connection.is_spent() {
                self.connection.enter(Phase::Closing);
            }
            let phase = self.connection.phase();
            if phase == Phase::Aborted {
                return Err(End::Here);
            }
            self.write(cx)?;
            let blocked = self.blocked_since.is_some();
            if self.take_in(cx, phase)? {
                continue;
            }
            if phase > Phase::Open {
                self.end(cx, blocked)?;
            }
            if self.watch_clock(cx)? || !self.park(cx, phase, blocked) {
                continue;
            }
            return Ok(Next::Sleep);
        }
        Ok(Next::Yield)
    }

    /// Leaves the waker; false when something came up since this round began.
    fn park(&self, cx: &mut Context<'_>, phase: Phase, blocked: bool) -> bool {
        let connection = &self.connection;
        let had_room = connection.has_room_for_requests();
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

    /// Writes until nothing is queued or the peer takes no more.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        loop {
            self.connection.outbox().take(&mut self.writing);
            if self.writing.is_empty() {
                self.blocked_since = None;
                return Ok(());
            }
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let mut count = 0;
            for (slot, slice) in slices.iter_mut().zip(&self.writing) {
                *slot = IoSlice::new(slice);
                count += 1;
            }
            match Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..count])? {
                Poll::Pending => {
                    self.blocked_since.get_or_insert_with(Instant::now);
                    return Ok(());
                }
                Poll::Ready(0) => return Err(End::Io(io::ErrorKind::WriteZero.into())),
                Poll::Ready(written) => self.wrote(written),
            }
        }
    }

    fn wrote(&mut self, written: usize) {
        self.connection.outbox().written(written);
        self.active_at = Instant::now();
        self.blocked_since = None;
        if self.ending_since.is_some() {
            self.ending_since = Some(self.active_at);
        }
        let mut left = written;
        while left > 0 {
            let Some(first) = self.writing.front_mut() else { return };
            if first.len() > left {
                first.advance(left);
                return;
            }
            left -= first.len();
            self.writing.pop_front();
        }
    }

    /// Handles what was read, or reads once more; whether anything came of it.
    fn take_in(&mut self, cx: &mut Context<'_>, phase: Phase) -> Result<bool, End> {
        if self.peer_done {
            return Ok(false);
        }
        if phase == Phase::Closing || self.write_shut {
            self.reader.discard();
        } else if !self.connection.has_room_for_requests() {
            return Ok(false);
        }
        if self.reader.may_have_frame() {
            self.hand_on(phase)?;
            return Ok(true);
        }
        match self.reader.poll_read(&mut self.stream, cx)? {
            Poll::Pending => Ok(false),
            Poll::Ready(0) => {
                self.peer_done = true;
                self.connection.enter(Phase::Closing);
                self.renounce();
                Ok(true)
            }
            Poll::Ready(_) => {
                self.active_at = Instant::now();
                if phase != Phase::Closing && !self.write_shut {
                    self.hand_on(phase)?;
                }
                Ok(true)
            }
        }
    }

    /// Hands on all whole frames, as long as there is room for what they ask.
    fn hand_on(&mut self, phase: Phase) -> Result<(), End> {
        while self.connection.has_room_for_requests()
            && let Some(frame) = self.reader.next_frame()?
        {
            self.receive(frame, phase)?;
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
                debug!(peer = %self.connection.peer(), "response that nobody waits for");
            }
            return Ok(());
        }
        self.connection.note_serialize(command.serialize);
        self.connection.request_begun();
        let version = command.version;
        let reply = Reply::new(Arc::clone(&self.connection), &command);
        if phase == Phase::Open {
            self.handle(command, reply);
        } else if version > GO_AWAY_ABOVE_VERSION {
            reply.send(Response::status(code::response::GO_AWAY, "shutting down"));
        } else {
            reply.abandon();
        }
        Ok(())
    }

    fn handle(&self, command: Command, reply: Reply) {
        let code = command.code;
        let connection = &self.connection;
        // The reply, dropped by the unwinding, tells the peer.
        let outcome =
            catch_unwind(AssertUnwindSafe(|| connection.handler().handle(connection, command, reply)));
        if outcome.is_err() {
            error!(peer = %connection.peer(), code, "request handler panicked, answered with SYSTEM_ERROR");
        }
    }

    /// Goes on with the end: last answers, then our side is shut, then the peer's close is awaited, each while [`LINGER`] lasts.
    ///
    /// Closing at once would do for the socket but not for the peer: bytes of it that nobody read make the kernel reset the
    /// connection, and a reset destroys answers on their way.
    fn end(&mut self, cx: &mut Context<'_>, blocked: bool) -> Result<(), End> {
        let since = *self.ending_since.get_or_insert_with(Instant::now);
        let overdue = Instant::now() >= since + LINGER;
        if self.awaits_answers() && (self.is_draining() || !overdue) || blocked && !overdue {
            return Ok(());
        }
        if !self.write_shut && !blocked {
            self.write_shut = true;
            self.ending_since = Some(Instant::now());
            if let Poll::Ready(Err(error)) = Pin::new(&mut self.stream).poll_shutdown(cx) {
                debug!(peer = %self.connection.peer(), %error, "socket was gone before its end");
            }
        } else if overdue {
            return Err(End::Here);
        }
        match self.peer_done {
            true if self.reader.is_mid_frame() => Err(End::PeerMidFrame),
            true => Err(End::Peer),
            false => Ok(()),
        }
    }

    fn awaits_answers(&self) -> bool {
        self.connection.unanswered() > 0
    }

    fn is_draining(&self) -> bool {
        self.connection.phase() == Phase::Draining
    }

    /// Ends calls that are due and connections that do nothing; sets the timer. True when the clock has to be asked again.
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
        self.connection.calls().expire(now, self.connection.name());
        if let Some(since) = self.blocked_since
            && now - since >= limits.stall_timeout
        {
            let waiting_bytes = self.connection.queued_bytes();
            return Err(End::Stalled { timeout: limits.stall_timeout, waiting_bytes });
        }
        if now - self.active_at >= limits.idle_timeout {
            return Err(End::Idle(limits.idle_timeout));
        }
        let due = self.due().max(now + Duration::from_millis(1));
        self.timer.as_mut().reset(due);
        Ok(true)
    }

    fn due(&self) -> Instant {
        let limits = self.connection.limits();
        let mut due = self.active_at + limits.idle_timeout.min(FAR);
        if let Some(since) = self.blocked_since {
            due = due.min(since + limits.stall_timeout.min(FAR));
        }
        // A draining connection waits for its answers as long as its server does.
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

    fn log(&self, end: &End) {
        let (peer, id) = (self.connection.peer(), self.connection.id());
        match end {
            End::Peer | End::Here | End::Io(_) => debug!(%peer, id, reason = %end, "connection ended"),
            End::Idle(_) => info!(%peer, id, reason = %end, "idle connection closed"),
            End::PeerMidFrame | End::Stalled { .. } | End::Frame(_) => {
                warn!(%peer, id, reason = %end, "connection closed");
            }
        }
    }
}

impl<Slot: Unpin> Future for Driver<Slot> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.advance(cx) {
            Ok(Next::Sleep) => Poll::Pending,
            Ok(Next::Yield) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Err(end) => {
                if matches!(end, End::Frame(_)) {
                    // What came before the bad frame was answered: a last try to hand that over.
                    drop(self.write(cx));
                }
                self.log(&end);
                Poll::Ready(())
            }
        }
    }
}

/// However the task ends, also with its runtime: calls and the layer above hear of it.
impl<Slot> Drop for Driver<Slot> {
    fn drop(&mut self) {
        self.connection.ended();
        self.renounce();
    }
}

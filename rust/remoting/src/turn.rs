//! What a connection may do before other tasks of its thread get their turn.
use std::pin::pin;
use std::task::Context;
use std::time::{Duration, Instant};

/// Most frames that a connection handles in one turn. A small frame takes some microseconds, a turn some hundred. Each turn ends with
/// a write and a poll of the sockets: little beside this many frames.
pub(crate) const MAX_FRAMES: usize = 128;
/// A turn ends with the frame that brings the frames and their answers to this many bytes.
pub(crate) const MAX_BYTES: usize = 512 * 1024;

/// A turn ends with the frame that is handled after this time. Some take milliseconds, such as a pull with a costly filter.
const MAX_TIME: Duration = Duration::from_millis(2);

/// What a connection has done in this turn.
#[derive(Debug)]
pub(crate) struct Turn {
    frames: usize,
    bytes: usize,
    end: Instant,
}

impl Turn {
    /// Begins now.
    pub(crate) fn new() -> Self {
        Self { frames: 0, bytes: 0, end: Instant::now() + MAX_TIME }
    }

    /// Counts a frame that was handled, with the bytes of its answer.
    pub(crate) fn handled(&mut self, bytes: usize) {
        self.frames += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Whether it is the turn of others.
    pub(crate) fn is_over(&self) -> bool {
        self.frames >= MAX_FRAMES || self.bytes >= MAX_BYTES || self.frames > 0 && Instant::now() >= self.end
    }
}

/// Gives up the thread. The task runs again once the other tasks have run and the thread has looked at the sockets.
///
/// If a task wakes itself instead, Tokio polls the sockets once in 61 turns, and requests of other peers wait that long.
pub(crate) fn yield_turn(cx: &mut Context<'_>) {
    assert!(pin!(tokio::task::yield_now()).poll(cx).is_pending(), "it yields once");
}

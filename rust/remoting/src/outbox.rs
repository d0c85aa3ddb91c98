//! The frames that wait to be written to one peer, and how the task that writes them is woken.
use std::cell::RefCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use rocketpy_protocol::Command;

/// A body shorter than this is copied behind its header: that costs less than writing one more slice.
/// Slices of a [`Response`](crate::Response) are never copied.
const COPY_BELOW_BYTES: usize = 2048;
/// Headers and short bodies are gathered in chunks of at most about this size.
const CHUNK_BYTES: usize = 64 * 1024;
/// Size of the first chunk; a frame's header usually fits into half of it.
const FIRST_CHUNK_BYTES: usize = 512;

/// Why a frame was not queued.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PushError {
    Closed,
    TooLarge { size_bytes: usize },
    Encode { reason: String },
}

/// The queue of one connection: any thread adds frames, the connection's task takes them.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    /// Bytes that are not written yet, queued or already taken by the task.
    waiting_bytes: AtomicUsize,
    max_frame_bytes: usize,
}

#[derive(Debug)]
struct State {
    /// End of the queue: headers and copied bodies that are not cut into a slice yet.
    tail: BytesMut,
    slices: VecDeque<Bytes>,
    /// Wakes the task while it sleeps. Whoever takes the waker wakes, so each sleep is ended by one wake.
    waker: Option<Waker>,
    /// False while the peer takes no bytes: the task could not write more of them.
    wake_on_push: bool,
    closed: bool,
    next_chunk_bytes: usize,
}

impl Outbox {
    pub(crate) fn new(max_frame_bytes: usize) -> Self {
        let state = State {
            tail: BytesMut::new(),
            slices: VecDeque::new(),
            waker: None,
            wake_on_push: true,
            closed: false,
            next_chunk_bytes: FIRST_CHUNK_BYTES,
        };
        Self { state: Mutex::new(state), waiting_bytes: AtomicUsize::new(0), max_frame_bytes }
    }

    /// Queues one frame and wakes the task when it sleeps.
    pub(crate) fn push(&self, command: &Command, slices: Vec<Bytes>) -> Result<(), PushError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(PushError::Closed);
        }
        let added = state.append(command, slices, self.max_frame_bytes)?;
        self.waiting_bytes.fetch_add(added, Ordering::Relaxed);
        let waker = if state.wake_on_push { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            wake(waker);
        }
        Ok(())
    }

    /// Moves all that is queued to the end of `writing`.
    pub(crate) fn take(&self, writing: &mut VecDeque<Bytes>) {
        let mut state = self.state.lock();
        if !state.tail.is_empty() {
            state.next_chunk_bytes =
                state.tail.len().next_power_of_two().clamp(FIRST_CHUNK_BYTES, CHUNK_BYTES);
            state.cut_tail();
            state.tail = BytesMut::new();
        }
        if writing.is_empty() {
            std::mem::swap(writing, &mut state.slices);
        } else {
            writing.append(&mut state.slices);
        }
    }

    /// Subtracts bytes that were written.
    pub(crate) fn written(&self, written: usize) {
        self.waiting_bytes.fetch_sub(written, Ordering::Relaxed);
    }

    /// Bytes that are not written yet.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes.load(Ordering::Relaxed)
    }

    /// Leaves the waker of the task that is about to sleep. False when it must not sleep: frames are queued, or `stay_awake`,
    /// called under the lock, finds a reason that arose since the task last checked.
    pub(crate) fn park(&self, waker: &Waker, wake_on_push: bool, stay_awake: impl FnOnce() -> bool) -> bool {
        let mut state = self.state.lock();
        if wake_on_push && !(state.tail.is_empty() && state.slices.is_empty()) || stay_awake() {
            return false;
        }
        state.wake_on_push = wake_on_push;
        match &mut state.waker {
            Some(old) => old.clone_from(waker),
            empty => *empty = Some(waker.clone()),
        }
        true
    }

    /// Wakes the task for a reason other than a frame.
    pub(crate) fn wake(&self) {
        let waker = self.state.lock().waker.take();
        if let Some(waker) = waker {
            wake(waker);
        }
    }

    /// Refuses further frames and drops the queued ones.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.tail = BytesMut::new();
        let slices = std::mem::take(&mut state.slices);
        drop(state);
        drop(slices);
    }
}

impl State {
    /// Encodes one frame at the end of the queue and returns its size.
    fn append(
        &mut self,
        command: &Command,
        slices: Vec<Bytes>,
        max_frame_bytes: usize,
    ) -> Result<usize, PushError> {
        if self.tail.capacity() - self.tail.len() < FIRST_CHUNK_BYTES / 2 {
            self.tail.reserve(self.next_chunk_bytes);
        }
        let start = self.tail.len();
        let body_len = command.body.len() + slices.iter().map(Bytes::len).sum::<usize>();
        if let Err(error) = command.encode_head(body_len, &mut self.tail) {
            self.tail.truncate(start);
            return Err(PushError::Encode { reason: error.to_string() });
        }
        let size_bytes = self.tail.len() - start + body_len;
        if size_bytes > max_frame_bytes {
            self.tail.truncate(start);
            return Err(PushError::TooLarge { size_bytes });
        }
        if command.body.len() < COPY_BELOW_BYTES {
            self.tail.extend_from_slice(&command.body);
        } else {
            self.cut_tail();
            self.slices.push_back(command.body.clone());
        }
        for slice in slices {
            if !slice.is_empty() {
                self.cut_tail();
                self.slices.push_back(slice);
            }
        }
        if self.tail.len() >= CHUNK_BYTES {
            self.cut_tail();
        }
        Ok(size_bytes)
    }

    fn cut_tail(&mut self) {
        if !self.tail.is_empty() {
            let slice = self.tail.split().freeze();
            self.slices.push_back(slice);
        }
    }
}

thread_local! {
    static CORKED: RefCell<Option<Vec<Waker>>> = const { RefCell::new(None) };
}

fn wake(waker: Waker) {
    CORKED.with_borrow_mut(|corked| match corked {
        Some(wakers) => wakers.push(waker),
        None => waker.wake(),
    });
}

/// Delays this thread's waking of connections until the guard is dropped.
///
/// A thread that answers many requests, or starts many calls, takes a cork first: each connection is then woken once, finds all
/// of its frames and writes them together. Corks nest; the outermost one counts. Do not wait for a peer while corked.
///
/// ```
/// let _cork = rocketpy_remoting::cork();
/// // reply.send(...), many times
/// ```
pub fn cork() -> Cork {
    let outermost = CORKED.with_borrow_mut(|corked| {
        let outermost = corked.is_none();
        corked.get_or_insert_default();
        outermost
    });
    Cork { outermost, not_send: PhantomData }
}

/// The guard of [`cork`].
#[derive(Debug)]
#[must_use = "dropping the guard ends the cork"]
pub struct Cork {
    outermost: bool,
    not_send: PhantomData<*const ()>,
}

impl Drop for Cork {
    fn drop(&mut self) {
        if self.outermost {
            for waker in CORKED.take().into_iter().flatten() {
                waker.wake();
            }
        }
    }
}

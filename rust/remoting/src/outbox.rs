//! The frames that wait to be written to one peer, and how the task that writes them is woken.
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use rocketpy_protocol::Command;

use crate::budget::{Account, Gauge, MemoryKind};
use crate::helper::Helper;

/// A body shorter than this is copied behind its header: that costs less than writing one more slice.
/// Slices of a [`Response`](crate::Response) are never copied.
const COPY_BELOW_BYTES: usize = 2048;
/// Headers and short bodies are gathered in chunks of at most about this size.
const CHUNK_BYTES: usize = 64 * 1024;
/// Size of the first chunk; a frame's header usually fits into half of it.
const FIRST_CHUNK_BYTES: usize = 512;

/// Memory of waiting frames is counted in steps of this size: few frames touch the numbers that all connections share.
const STEP_BYTES: usize = 16 * 1024;
/// A queue that holds no more than this does not count.
const UNCOUNTED_BYTES: usize = 4 * 1024;
/// Memory that one slice of a mapped file takes, whatever its length: its handle and its place in the queue.
const SLICE_BYTES: usize = 128;

/// Why a frame was not queued.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PushError {
    Closed,
    TooLarge { size_bytes: usize },
    Encode { reason: String },
}

/// The queue of one connection: any thread adds frames, the connection's task takes them.
pub(crate) struct Outbox {
    state: Mutex<State>,
    /// Bytes that are not written yet, queued or already taken by the task.
    waiting_bytes: AtomicUsize,
    written_bytes: AtomicU64,
    max_frame_bytes: usize,
    account: Arc<Account>,
    /// Does the task's work in a thread outside of the runtime, where the connection was given one.
    helper: OnceLock<Weak<dyn Helper>>,
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("waiting_bytes", &self.waiting_bytes).finish_non_exhaustive()
    }
}

/// Memory of the frames up to a place in the stream of bytes.
#[derive(Debug)]
struct Mark {
    /// The frames are gone once this many bytes were ever written.
    end: u64,
    memory_bytes: usize,
}

#[derive(Debug)]
struct State {
    queued_bytes: u64,
    /// Memory of the frames that are not written yet, in the order of the queue.
    marks: VecDeque<Mark>,
    /// The sum of `marks`.
    memory_bytes: usize,
    counted: Gauge,
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
    pub(crate) fn new(max_frame_bytes: usize, account: &Arc<Account>) -> Self {
        let state = State {
            queued_bytes: 0,
            marks: VecDeque::new(),
            memory_bytes: 0,
            counted: Gauge::new(account, MemoryKind::Answers),
            tail: BytesMut::new(),
            slices: VecDeque::new(),
            waker: None,
            wake_on_push: true,
            closed: false,
            next_chunk_bytes: FIRST_CHUNK_BYTES,
        };
        Self {
            state: Mutex::new(state),
            waiting_bytes: AtomicUsize::new(0),
            written_bytes: AtomicU64::new(0),
            max_frame_bytes,
            account: Arc::clone(account),
            helper: OnceLock::new(),
        }
    }

    /// Lets threads outside of the runtime do the task's work. To be called once.
    pub(crate) fn set_helper(&self, helper: Weak<dyn Helper>) {
        drop(self.helper.set(helper));
    }

    pub(crate) fn helper(&self) -> Option<&Weak<dyn Helper>> {
        self.helper.get()
    }

    /// Queues one frame, and writes it here or wakes the task, when that sleeps. Of slices of mapped files only the handles count as
    /// memory.
    pub(crate) fn push(
        &self,
        command: &Command,
        slices: Vec<Bytes>,
        mapped_bytes: usize,
    ) -> Result<(), PushError> {
        assert!(
            mapped_bytes <= slices.iter().map(Bytes::len).sum(),
            "{mapped_bytes} bytes of an answer are mapped"
        );
        let mapped = (if mapped_bytes > 0 { slices.len() } else { 0 }, mapped_bytes);
        let mut state = self.state.lock();
        if state.closed {
            return Err(PushError::Closed);
        }
        let added = state.append(command, slices, self.max_frame_bytes)?;
        self.waiting_bytes.fetch_add(added, Ordering::Relaxed);
        let is_within_bounds = state.count(added, mapped);
        let waker = if state.wake_on_push { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker
            && !self.is_written_here(&waker)
        {
            wake(waker);
        }
        if !is_within_bounds {
            self.account.settle(MemoryKind::Answers);
        }
        Ok(())
    }

    /// Within the runtime a wake costs little, and the task then writes what several others queued together.
    fn is_written_here(&self, waker: &Waker) -> bool {
        let is_outside = CORKED.with_borrow(Option::is_none) && tokio::task::try_id().is_none();
        is_outside && self.helper().and_then(Weak::upgrade).is_some_and(|helper| helper.write(waker))
    }

    /// Moves all that is queued to the end of `writing`.
    pub(crate) fn take(&self, writing: &mut VecDeque<Bytes>) {
        let mut state = self.state.lock();
        state.discount(self.written_bytes.load(Ordering::Relaxed));
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
        let before = self.waiting_bytes.fetch_sub(written, Ordering::Relaxed);
        assert!(written <= before, "no more bytes are written than were queued");
        self.written_bytes.fetch_add(written as u64, Ordering::Relaxed);
    }

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

    /// Refuses further frames and drops the queued ones. They count until [`Self::end`]: the task may still hold some of them.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.tail = BytesMut::new();
        let slices = std::mem::take(&mut state.slices);
        drop(state);
        drop(slices);
    }

    /// As [`Self::close`], when the task has ended.
    pub(crate) fn end(&self) {
        self.close();
        self.state.lock().discount(u64::MAX);
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

    /// Counts the memory of a frame that was queued. False when too much memory is held now.
    fn count(&mut self, frame_bytes: usize, (mapped_slices, mapped_bytes): (usize, usize)) -> bool {
        self.queued_bytes += frame_bytes as u64;
        let memory_bytes = frame_bytes - mapped_bytes + mapped_slices * SLICE_BYTES;
        self.memory_bytes += memory_bytes;
        match self.marks.back_mut() {
            Some(last) if last.memory_bytes < STEP_BYTES => {
                *last = Mark { end: self.queued_bytes, memory_bytes: last.memory_bytes + memory_bytes };
            }
            _ => self.marks.push_back(Mark { end: self.queued_bytes, memory_bytes }),
        }
        if self.memory_bytes <= UNCOUNTED_BYTES.max(self.counted.bytes()) {
            return true;
        }
        self.counted.set(self.memory_bytes.next_multiple_of(STEP_BYTES))
    }

    /// Gives back the memory of frames that were written.
    fn discount(&mut self, written_bytes: u64) {
        let mut progress = false;
        while let Some(mark) = self.marks.front()
            && mark.end <= written_bytes
        {
            assert!(mark.memory_bytes <= self.memory_bytes, "the memory of frames that leave was counted");
            self.memory_bytes -= mark.memory_bytes;
            self.marks.pop_front();
            progress = true;
        }
        if progress {
            self.counted.note_progress();
        }
        let needed = match self.memory_bytes {
            0 => 0,
            bytes => bytes.next_multiple_of(STEP_BYTES),
        };
        if needed < self.counted.bytes() {
            let _is_less = self.counted.set(needed);
        }
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
/// ```text
/// let _cork = cork();
/// reply.send(...); // many times
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

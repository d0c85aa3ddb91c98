//! Records that wait for Python's loggers.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rocketpy_env::now_ms;
use tracing::Level;

/// Most records that wait. With [`MAX_TEXT_BYTES`] it bounds what a slow handler makes the process keep: 4 MiB.
const MAX_RECORDS: usize = 1024;
/// Longest text of a record; the rest is cut off.
pub(super) const MAX_TEXT_BYTES: usize = 4096;

pub(super) struct Record {
    /// Index of its logger.
    pub(super) logger: usize,
    pub(super) level: Level,
    pub(super) made_at_ms: i64,
    pub(super) text: String,
    pub(super) file: &'static str,
    pub(super) line: u32,
}

impl Record {
    /// Says that records found no place.
    pub(super) fn of_lost(lost: u64) -> Self {
        let text = format!("log records came faster than they were handled, dropped: {lost}");
        let made_at_ms = now_ms();
        Self { logger: 0, level: Level::WARN, made_at_ms, text, file: file!(), line: line!() }
    }
}

/// The records of one process.
///
/// A forked child finds the queue of its parent, whose lock another thread may have held at the moment of the fork. It
/// leaves that alone and uses one of its own behind it. Uses the standard library's lock and condition variable: a thread
/// that sleeps in `parking_lot`'s table at a fork harms the child.
pub(super) struct Queue {
    process_id: u32,
    state: Mutex<State>,
    /// A record came, or the thread is asked to end, or it has ended.
    changed: Condvar,
    of_child: OnceLock<Box<Self>>,
}

static FIRST: OnceLock<Queue> = OnceLock::new();

#[derive(Default)]
struct State {
    records: VecDeque<Record>,
    /// Records that found no place since the last ones were taken.
    lost: u64,
    thread: Thread,
}

/// The thread that takes the records.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Thread {
    #[default]
    NotStarted,
    Runs,
    /// It is asked to take the rest and end.
    Ends,
    /// It is asked to leave the rest and end.
    Stops,
    Ended,
}

/// What the thread takes at once.
pub(super) struct Taken {
    pub(super) records: Vec<Record>,
    pub(super) lost: u64,
    /// Nothing comes after these.
    pub(super) is_last: bool,
}

impl Queue {
    fn new(process_id: u32) -> Self {
        Self { process_id, state: Mutex::default(), changed: Condvar::new(), of_child: OnceLock::new() }
    }

    /// The queue of this process, made at the first call. The caller holds the interpreter lock: Python forks only with it,
    /// so no child finds a queue half made.
    pub(super) fn make() -> &'static Self {
        let process_id = rocketpy_env::process_id();
        let mut queue = FIRST.get_or_init(|| Self::new(process_id));
        while queue.process_id != process_id {
            queue = queue.of_child.get_or_init(|| Box::new(Self::new(process_id)));
        }
        queue
    }

    /// The queue of this process, if it has one.
    pub(super) fn find() -> Option<&'static Self> {
        let process_id = rocketpy_env::process_id();
        let mut queue = FIRST.get()?;
        while queue.process_id != process_id {
            queue = queue.of_child.get()?;
        }
        Some(queue)
    }

    /// True for the first caller, who starts the thread.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.state();
        let is_first = state.thread == Thread::NotStarted;
        if is_first {
            state.thread = Thread::Runs;
        }
        is_first
    }

    /// No thread could be started: the next caller of [`begin`](Self::begin) tries again.
    pub(super) fn give_back(&self) {
        self.state().thread = Thread::NotStarted;
    }

    /// Leaves a record, or counts it where there is no place.
    pub(super) fn put(&self, record: Record) {
        let mut state = self.state();
        if state.thread == Thread::Ended {
            return;
        }
        if state.records.len() == MAX_RECORDS {
            state.lost += 1;
            return;
        }
        state.records.push_back(record);
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for records, at most `interval`, and takes all of them.
    pub(super) fn take(&self, interval: Duration) -> Taken {
        let idle = |state: &mut State| state.records.is_empty() && state.thread == Thread::Runs;
        let waited = self.changed.wait_timeout_while(self.state(), interval, idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        Taken {
            records: mem::take(&mut state.records).into(),
            lost: mem::take(&mut state.lost),
            is_last: state.thread != Thread::Runs,
        }
    }

    /// Asks the thread to take the rest and end, then to leave the rest and end. Waits `timeout` for each.
    pub(super) fn end(&self, timeout: Duration) {
        let mut state = self.state();
        for wish in [Thread::Ends, Thread::Stops] {
            if matches!(state.thread, Thread::NotStarted | Thread::Ended) {
                return;
            }
            state.thread = wish;
            self.changed.notify_all();
            let unmet = |state: &mut State| state.thread == wish;
            let waited = self.changed.wait_timeout_while(state, timeout, unmet);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether the thread is to leave the records that it has not handed over.
    pub(super) fn stops(&self) -> bool {
        self.state().thread == Thread::Stops
    }

    /// The thread has ended; records that come later are dropped.
    pub(super) fn finish(&self) {
        self.state().thread = Thread::Ended;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

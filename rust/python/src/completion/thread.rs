//! A thread that completes futures.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use rocketpy_client::{OutcomeSink, Outcomes, UnreadFailures};
use rocketpy_env::process_id;

use super::future::{self, Origin, SendOutcome};
use super::slab::Slab;
use crate::error;
use crate::wait::SIGNAL_INTERVAL;

/// How long the thread keeps the interpreter lock while there are futures to complete: as long as Python's own threads do
/// (`sys.getswitchinterval`).
const TURN: Duration = Duration::from_millis(5);
/// Longest wait for the callback that runs when Python ends.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Futures completed between two readings of the clock.
const STEP: usize = 64;

/// The futures of one producer, completed by a thread that takes every waiting outcome each time it gets the interpreter
/// lock.
///
/// Uses the standard library's condition variable: a thread that sleeps in `parking_lot`'s table at a fork harms the
/// child.
pub(crate) struct FutureThread {
    /// What its futures are made by.
    origin: Origin,
    /// The thread is to leave the futures that it has not completed.
    stops: AtomicBool,
    /// Failures whose futures were dropped.
    unread: Arc<UnreadFailures>,
    state: Mutex<State>,
    /// The thread has something to do: outcomes arrived while it was idle, or the end was called.
    arrived: Condvar,
    /// Futures were completed.
    delivered: Condvar,
}

#[derive(Default)]
struct State {
    /// Outcomes of requests, and the futures that wait for them.
    arrived: Vec<(Outcomes, Vec<Py<SendOutcome>>)>,
    /// Outcomes that ever arrived, and those that reached their future.
    arrived_ever: u64,
    delivered_ever: u64,
    /// Futures whose outcome has not arrived.
    open: Slab<Py<SendOutcome>>,
    idle: bool,
    ended: bool,
    /// The completing thread; the first future starts it.
    thread: Option<ThreadId>,
    /// The thread has ended.
    left: bool,
}

/// Every one of this process and its parents that may still have a thread. Locked only with the interpreter lock, so no child is forked
/// while it is locked.
static ALL: Mutex<Vec<Weak<FutureThread>>> = Mutex::new(Vec::new());

thread_local! {
    /// Number of the completing thread that this thread is; 0: it is none.
    static RUNNING: Cell<u32> = const { Cell::new(0) };
}

/// Whether the calling thread is the completing thread of this number.
pub(super) fn runs_here(thread: u32) -> bool {
    RUNNING.get() == thread
}

/// Ends the threads that complete futures, before Python ends them by force: with Rust below a callback of the user, that would end the
/// process. Callbacks that have not begun are left.
pub(crate) fn end(py: Python<'_>) {
    let all = std::mem::take(&mut *ALL.lock().unwrap_or_else(PoisonError::into_inner));
    let deadline = Instant::now() + END_TIMEOUT;
    for completions in all.iter().filter_map(Weak::upgrade) {
        if completions.origin.process_id == process_id() {
            py.detach(|| completions.stop(deadline));
        }
    }
}

impl FutureThread {
    /// The caller holds the interpreter lock.
    pub(crate) fn new(group: &str) -> Arc<Self> {
        static THREADS: AtomicU32 = AtomicU32::new(1);
        let thread = THREADS.fetch_add(1, Ordering::Relaxed);
        let completions = Arc::new(Self {
            origin: Origin { process_id: process_id(), thread },
            stops: AtomicBool::new(false),
            unread: UnreadFailures::new(group),
            state: Mutex::default(),
            arrived: Condvar::new(),
            delivered: Condvar::new(),
        });
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&completions));
        completions
    }

    /// What its futures are made by.
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// Promises to complete a future, and returns its ticket.
    ///
    /// # Errors
    /// `RocketPyError` when the system gives no thread.
    pub(crate) fn promise(self: &Arc<Self>, future: Py<SendOutcome>) -> PyResult<u64> {
        let mut state = self.state();
        if state.thread.is_none() {
            let completions = Arc::clone(self);
            let thread = thread::Builder::new().name("rocketpy-completions".to_owned());
            let thread =
                thread.spawn(move || completions.run()).map_err(|cause| error::no_threads(&cause))?;
            state.thread = Some(thread.thread().id());
        }
        Ok(state.open.insert(future))
    }

    /// Takes back the promise of an operation that never began, and returns its future.
    pub(crate) fn withdraw(&self, ticket: u64) -> Py<SendOutcome> {
        let future = self.state().open.take(ticket);
        self.arrived.notify_all();
        future
    }

    /// Lets the thread end once nothing is left to complete, and logs failures that nobody has read.
    pub(crate) fn end(&self) {
        self.unread.log();
        self.state().ended = true;
        self.arrived.notify_all();
    }

    /// Asks the thread to leave what it has not completed, and waits for its end until `deadline`.
    fn stop(&self, deadline: Instant) {
        self.stops.store(true, Ordering::Relaxed);
        let mut state = self.state();
        state.ended = true;
        self.arrived.notify_all();
        let left = deadline.saturating_duration_since(Instant::now());
        let runs = |state: &mut State| state.thread.is_some() && !state.left;
        drop(self.delivered.wait_timeout_while(state, left, runs));
    }

    /// Waits until every outcome that has arrived by now reached its future, or until `deadline`. Returns at once when a
    /// future's own callback calls it, which would wait for itself.
    pub(crate) fn settle(&self, py: Python<'_>, deadline: Instant) -> PyResult<()> {
        let (target, thread) = {
            let state = self.state();
            (state.arrived_ever, state.thread)
        };
        while thread != Some(thread::current().id()) {
            let until = deadline.min(Instant::now() + SIGNAL_INTERVAL);
            let settled = py.detach(|| {
                let left = until.saturating_duration_since(Instant::now());
                let waited = self
                    .delivered
                    .wait_timeout_while(self.state(), left, |state| state.delivered_ever < target);
                waited.unwrap_or_else(PoisonError::into_inner).0.delivered_ever >= target
            });
            py.check_signals()?;
            if settled {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(error::slow_callbacks());
            }
        }
        Ok(())
    }

    fn run(&self) {
        RUNNING.set(self.origin.thread);
        self.complete_all();
        self.state().left = true;
        self.delivered.notify_all();
    }

    fn complete_all(&self) {
        loop {
            let arrived = {
                let nothing = |state: &mut State| {
                    let ends = state.ended && (state.open.is_empty() || self.stops.load(Ordering::Relaxed));
                    state.arrived.is_empty() && !ends
                };
                let mut state = self.state();
                state.idle = true;
                let waited = self.arrived.wait_while(state, nothing);
                let mut state = waited.unwrap_or_else(PoisonError::into_inner);
                state.idle = false;
                std::mem::take(&mut state.arrived)
            };
            if arrived.is_empty() {
                return;
            }
            // The interpreter is ending: nobody can read a future any more.
            if self.deliver(arrived).is_none() {
                return;
            }
        }
    }

    /// Completes futures, in turns.
    fn deliver(&self, arrived: Vec<(Outcomes, Vec<Py<SendOutcome>>)>) -> Option<()> {
        let mut requests: VecDeque<_> = arrived
            .into_iter()
            .map(|(outcomes, futures)| futures.into_iter().zip(outcomes.into_outcomes()))
            .collect();
        while !requests.is_empty() {
            let count = Python::try_attach(|py| {
                let (end, mut count) = (Instant::now() + TURN, 0);
                while let Some(request) = requests.front_mut() {
                    for (future, outcome) in request.by_ref().take(STEP) {
                        if self.stops.load(Ordering::Relaxed) {
                            return None;
                        }
                        future::complete(future.bind(py), outcome, &self.unread);
                        count += 1;
                    }
                    if request.len() == 0 {
                        requests.pop_front();
                    }
                    if Instant::now() >= end {
                        break;
                    }
                }
                Some(count)
            })??;
            self.state().delivered_ever += count;
            self.delivered.notify_all();
        }
        Some(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutcomeSink for FutureThread {
    fn told(&self, outcomes: Outcomes) {
        let mut state = self.state();
        let futures: Vec<_> = outcomes.tickets().map(|ticket| state.open.take(ticket)).collect();
        state.arrived_ever += futures.len() as u64;
        state.arrived.push((outcomes, futures));
        let idle = state.idle;
        drop(state);
        if idle {
            self.arrived.notify_all();
        }
    }
}

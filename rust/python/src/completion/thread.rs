//! A thread that completes futures.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use rocketpy_client::{OutcomeSink, Outcomes};

use super::future::{self, SendOutcome};
use super::slab::Slab;
use crate::error;
use crate::wait::SIGNAL_INTERVAL;

/// How long the thread keeps the interpreter lock while there are futures to complete: as long as Python's own threads do
/// (`sys.getswitchinterval`).
const TURN: Duration = Duration::from_millis(5);
/// Futures completed between two readings of the clock.
const STEP: usize = 64;

/// The futures of one producer, completed by a thread that takes every waiting outcome each time it gets the interpreter
/// lock.
///
/// Uses the standard library's condition variable: a thread that sleeps in `parking_lot`'s table at a fork harms the
/// child.
pub(crate) struct FutureThread {
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
    open: Slab,
    idle: bool,
    ended: bool,
    /// The completing thread; the first future starts it.
    thread: Option<ThreadId>,
}

impl FutureThread {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), arrived: Condvar::new(), delivered: Condvar::new() })
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

    /// Lets the thread end once nothing is left to complete.
    pub(crate) fn end(&self) {
        self.state().ended = true;
        self.arrived.notify_all();
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
        loop {
            let arrived = {
                let nothing =
                    |state: &mut State| state.arrived.is_empty() && !(state.ended && state.open.is_empty());
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
            // The interpreter is ending if this fails: nobody can read a future any more.
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
                        future::complete(future.bind(py), outcome);
                        count += 1;
                    }
                    if request.len() == 0 {
                        requests.pop_front();
                    }
                    if Instant::now() >= end {
                        break;
                    }
                }
                count
            })?;
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

//! A thread that completes futures: the sink for `concurrent.futures.Future`.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;

use pyo3::prelude::*;

use super::{Arrival, Promise, Sink};
use crate::convert::ToPython;
use crate::error;
use crate::wait::SIGNAL_INTERVAL;

/// The futures of one producer, completed by a thread that takes every waiting outcome each time it gets the interpreter
/// lock.
///
/// Uses the standard library's condition variable: a thread that sleeps in `parking_lot`'s table at a fork harms the
/// child.
pub(crate) struct FutureThread<T> {
    state: Mutex<State<T>>,
    /// An outcome arrived or was delivered, or the end was called.
    changed: Condvar,
}

struct State<T> {
    arrived: VecDeque<Arrival<T>>,
    /// Outcomes that ever arrived, and those that reached their future.
    arrived_ever: u64,
    delivered_ever: u64,
    /// Promises whose outcome has not arrived.
    open: usize,
    ended: bool,
    /// The completing thread; the first promise starts it.
    thread: Option<ThreadId>,
}

impl<T: ToPython + Send + 'static> FutureThread<T> {
    pub(crate) fn new() -> Arc<Self> {
        let state = State {
            arrived: VecDeque::new(),
            arrived_ever: 0,
            delivered_ever: 0,
            open: 0,
            ended: false,
            thread: None,
        };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Promises to complete a future.
    ///
    /// # Errors
    /// `RocketPyError` when the system gives no thread.
    pub(crate) fn promise(self: &Arc<Self>, future: Py<PyAny>) -> PyResult<Promise<T>> {
        let mut state = self.state();
        if state.thread.is_none() {
            let completions = Arc::clone(self);
            let thread = thread::Builder::new().name("rocketpy-completions".to_owned());
            let thread =
                thread.spawn(move || completions.run()).map_err(|cause| error::no_threads(&cause))?;
            state.thread = Some(thread.thread().id());
        }
        state.open += 1;
        let sink: Arc<Self> = Arc::clone(self);
        Ok(Promise { sink, future: Some(future) })
    }

    /// Lets the thread end once nothing is left to complete.
    pub(crate) fn end(&self) {
        self.state().ended = true;
        self.changed.notify_all();
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
                    .changed
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
                let idle =
                    |state: &mut State<T>| state.arrived.is_empty() && !(state.ended && state.open == 0);
                let waited = self.changed.wait_while(self.state(), idle);
                std::mem::take(&mut waited.unwrap_or_else(PoisonError::into_inner).arrived)
            };
            if arrived.is_empty() {
                return;
            }
            let count = arrived.len() as u64;
            let delivered =
                Python::try_attach(|py| arrived.into_iter().for_each(|arrival| arrival.deliver(py)));
            if delivered.is_none() {
                // The interpreter is ending: nobody can read a future any more.
                return;
            }
            self.state().delivered_ever += count;
            self.changed.notify_all();
        }
    }
}

impl<T> FutureThread<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send> Sink<T> for FutureThread<T> {
    fn take(&self, arrival: Arrival<T>) {
        let mut state = self.state();
        state.arrived.push_back(arrival);
        state.arrived_ever += 1;
        state.open -= 1;
        drop(state);
        self.changed.notify_all();
    }

    fn withdraw(&self) {
        self.state().open -= 1;
        self.changed.notify_all();
    }
}

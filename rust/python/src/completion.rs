//! From the client's callbacks, which run on its network threads, to Python's futures, which need the interpreter.
//!
//! A network thread never waits for the interpreter lock: it leaves the outcome in a list, and a thread of its own takes
//! the whole list each time it gets the lock.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use rocketpy_client::{ClientError, Receipt};

use crate::error::{self, raise};
use crate::receipt;

type Outcome = Result<Receipt, ClientError>;

/// How often a thread that waits for the futures looks for signals.
const STEP: Duration = Duration::from_millis(50);

/// The futures of one producer that wait for their outcome.
///
/// With the standard library's condition variable: what sleeps in `parking_lot`'s table at a fork harms the child.
pub(crate) struct Completions {
    state: Mutex<State>,
    /// Something came, something was delivered, or the end was called.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    arrived: VecDeque<(Py<PyAny>, Outcome)>,
    /// Outcomes that ever arrived, and those that reached their future.
    arrived_ever: u64,
    delivered_ever: u64,
    /// Promises that were made and whose outcome has not arrived.
    open: usize,
    ended: bool,
    /// The thread that completes futures, once there was something to submit.
    thread: Option<ThreadId>,
}

/// The duty to complete one future.
pub(crate) struct Promise {
    completions: Arc<Completions>,
    future: Option<Py<PyAny>>,
}

impl Promise {
    /// Leaves the outcome for the completing thread. Never waits for the interpreter.
    pub(crate) fn keep(mut self, outcome: Outcome) {
        if let Some(future) = self.future.take() {
            let mut state = self.completions.state();
            state.arrived.push_back((future, outcome));
            state.arrived_ever += 1;
            state.open -= 1;
            drop(state);
            self.completions.changed.notify_all();
        }
    }
}

impl Drop for Promise {
    /// A promise that was never handed over (the call failed) leaves nothing behind.
    fn drop(&mut self) {
        if self.future.is_some() {
            self.completions.state().open -= 1;
            self.completions.changed.notify_all();
        }
    }
}

impl Completions {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State::default()), changed: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Promises to complete a future. The first promise starts the thread.
    pub(crate) fn promise(self: &Arc<Self>, future: Py<PyAny>) -> PyResult<Promise> {
        let mut state = self.state();
        if state.thread.is_none() {
            let completions = Arc::clone(self);
            let thread = thread::Builder::new().name("rocketpy-completions".to_owned());
            let thread =
                thread.spawn(move || completions.run()).map_err(|cause| error::no_threads(&cause))?;
            state.thread = Some(thread.thread().id());
        }
        state.open += 1;
        Ok(Promise { completions: Arc::clone(self), future: Some(future) })
    }

    /// Lets the thread end once nothing is left to complete.
    pub(crate) fn end(&self) {
        self.state().ended = true;
        self.changed.notify_all();
    }

    /// Waits until every outcome that has arrived by now reached its future; at most until `deadline`. At once when a
    /// future's own callback calls it, which would wait for itself.
    pub(crate) fn settle(&self, py: Python<'_>, deadline: Instant) -> PyResult<()> {
        let (target, thread) = {
            let state = self.state();
            (state.arrived_ever, state.thread)
        };
        while thread != Some(thread::current().id()) {
            let until = deadline.min(Instant::now() + STEP);
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
                let idle = |state: &mut State| state.arrived.is_empty() && !(state.ended && state.open == 0);
                let waited = self.changed.wait_while(self.state(), idle);
                std::mem::take(&mut waited.unwrap_or_else(PoisonError::into_inner).arrived)
            };
            if arrived.is_empty() {
                return;
            }
            let count = arrived.len() as u64;
            let delivered = Python::try_attach(|py| {
                for (future, outcome) in arrived {
                    deliver(py, future, outcome);
                }
            });
            if delivered.is_none() {
                // The interpreter is ending: nobody can look at a future any more.
                return;
            }
            self.state().delivered_ever += count;
            self.changed.notify_all();
        }
    }
}

/// Completes one future. Its callbacks run here; Python logs what they raise.
fn deliver(py: Python<'_>, future: Py<PyAny>, outcome: Outcome) {
    let receipt = outcome.map_err(raise).and_then(|receipt| receipt::to_python(py, &receipt));
    let set = match receipt {
        Ok(receipt) => future.bind(py).call_method1("set_result", (receipt,)),
        Err(error) => future.bind(py).call_method1("set_exception", (error.into_value(py),)),
    };
    if let Err(error) = set {
        error.write_unraisable(py, Some(future.bind(py)));
    }
}

//! What has arrived for one event loop.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use rocketpy_client::{OutcomeSink, Outcomes};

use super::bell::Bell;
use super::call::{self, Call};
use crate::completion::Slab;
use crate::convert::ToPython;
use crate::error::{self, raise};

/// Calls in a row that may have their answer at once: after that the loop has its turn, so that one task does not hold it.
const AT_ONCE: u32 = 64;
/// How long a delivery goes on while more arrives.
const TURN: Duration = Duration::from_millis(5);

/// The way of answers to one event loop, which watches `descriptor` and then calls `deliver`, in its thread.
#[pyclass(module = "rocketpy._rocketpy", frozen)]
pub(crate) struct Arrivals {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    bell: Bell,
    /// Makes a future of the loop.
    create_future: Py<PyAny>,
    /// Calls that had their answer at once since the loop's last turn.
    at_once: AtomicU32,
    /// Uses the standard library's lock: a thread that sleeps in `parking_lot`'s table at a fork harms the child.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    arrived: Vec<Arrival>,
    /// The futures of messages that are under way.
    open: Slab<Py<PyAny>>,
}

enum Arrival {
    /// The outcomes of a request, and the futures that wait for them.
    Sent(Outcomes, Vec<Py<PyAny>>),
    /// A call that goes on.
    Woken(Arc<Call>),
}

#[pymethods]
impl Arrivals {
    #[new]
    fn new(create_future: Py<PyAny>) -> PyResult<Self> {
        let bell = Bell::new().map_err(|cause| error::no_bell(&cause))?;
        let (at_once, state) = (AtomicU32::new(0), Mutex::default());
        Ok(Self { shared: Arc::new(Shared { bell, create_future, at_once, state }) })
    }

    /// What the loop watches.
    #[getter]
    fn descriptor(&self) -> i32 {
        self.shared.bell.descriptor()
    }

    /// Gives futures what has arrived for them, and what arrives because of that: calls may wait for one another. At most as much as
    /// the loop may wait for.
    fn deliver(&self, py: Python<'_>) {
        let (shared, began) = (&self.shared, Instant::now());
        shared.bell.silence();
        shared.at_once.store(0, Ordering::Relaxed);
        loop {
            let arrived = std::mem::take(&mut shared.state().arrived);
            if arrived.is_empty() {
                return;
            }
            self.give(py, arrived);
            if began.elapsed() >= TURN {
                break;
            }
        }
        if !shared.state().arrived.is_empty() {
            shared.bell.ring();
        }
    }
}

impl Arrivals {
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn give(&self, py: Python<'_>, arrived: Vec<Arrival>) {
        for arrival in arrived {
            match arrival {
                Arrival::Sent(outcomes, futures) => {
                    for (future, outcome) in futures.into_iter().zip(outcomes.into_outcomes()) {
                        let receipt = outcome.receipt().map_err(raise);
                        let receipt = receipt.and_then(|receipt| Ok(receipt.to_python(py)?.unbind()));
                        call::settle(future.bind(py), receipt);
                    }
                }
                Arrival::Woken(call) => call.go_on(py),
            }
        }
    }
}

impl Shared {
    pub(super) fn future<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.create_future.bind(py).call0()
    }

    /// Whether one more call may have its answer without a turn of the loop.
    pub(super) fn may_answer_at_once(&self) -> bool {
        self.at_once.fetch_add(1, Ordering::Relaxed) < AT_ONCE
    }

    pub(super) fn wake(&self, call: Arc<Call>) {
        self.push(Arrival::Woken(call));
    }

    fn push(&self, arrival: Arrival) {
        let mut state = self.state();
        let is_first = state.arrived.is_empty();
        state.arrived.push(arrival);
        drop(state);
        if is_first {
            self.bell.ring();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutcomeSink for Shared {
    fn told(&self, outcomes: Outcomes) {
        let mut state = self.state();
        let futures = outcomes.tickets().map(|ticket| state.open.take(ticket)).collect();
        drop(state);
        self.push(Arrival::Sent(outcomes, futures));
    }
}

/// That a future gets the outcome of a message. Taken back when it is dropped before the message was handed over.
pub(crate) struct Promise {
    shared: Arc<Shared>,
    ticket: Option<u64>,
}

impl Promise {
    pub(super) fn new(shared: &Arc<Shared>, future: Py<PyAny>) -> Self {
        Self { shared: Arc::clone(shared), ticket: Some(shared.state().open.insert(future)) }
    }

    /// What the outcome is told to, and the future's number there.
    pub(crate) fn sink(&self) -> (Arc<dyn OutcomeSink>, u64) {
        (self.shared.clone(), self.ticket.expect("it is not kept yet"))
    }

    /// The message was handed over: the outcome comes.
    pub(crate) fn keep(mut self) {
        self.ticket = None;
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let _future = self.shared.state().open.take(ticket);
        }
    }
}

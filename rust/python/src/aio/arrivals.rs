//! What has arrived for one event loop.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use rocketpy_client::{Bell, Outcome, OutcomeSink, Outcomes};

use super::answer::{Answer, Call};
use crate::completion::Slab;
use crate::{error, receipt};

/// Calls in a row that may have their answer at once: after that the loop has its turn, so that one task does not hold it.
const AT_ONCE: u32 = 64;
/// How long a delivery goes on while there is more.
const TURN: Duration = Duration::from_millis(5);

/// The way of answers to one event loop, which watches `descriptor` and then calls `deliver`, in its thread.
#[pyclass(module = "rocketpy._rocketpy", frozen)]
pub(crate) struct Arrivals {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    bell: Bell,
    event_loop: Py<PyAny>,
    /// Calls that had their answer at once since the loop's last turn.
    at_once: AtomicU32,
    /// Uses the standard library's lock: a thread that sleeps in `parking_lot`'s table at a fork harms the child.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    arrived: VecDeque<Arrival>,
    /// The loop takes what arrives: nobody need ring.
    is_delivering: bool,
    /// The loop was closed: nobody takes what arrives.
    is_over: bool,
    /// The answers for messages that are under way.
    open: Slab<Py<Answer>>,
}

enum Arrival {
    /// The outcomes of a request, each with the answer that it is.
    Sent(Box<dyn Iterator<Item = (Py<Answer>, Outcome)> + Send>),
    /// A call that goes on.
    Woken(Arc<Call>),
}

/// One thing to deliver.
enum Item {
    Sent(Py<Answer>, Outcome),
    Woken(Arc<Call>),
}

#[pymethods]
impl Arrivals {
    #[new]
    fn new(event_loop: Py<PyAny>) -> PyResult<Self> {
        let bell = Bell::new().map_err(|cause| error::no_bell(&cause))?;
        let (at_once, state) = (AtomicU32::new(0), Mutex::default());
        Ok(Self { shared: Arc::new(Shared { bell, event_loop, at_once, state }) })
    }

    /// What the loop watches.
    #[getter]
    fn descriptor(&self) -> i32 {
        self.shared.bell.as_fd().as_raw_fd()
    }

    /// Gives what has arrived to the tasks that wait for it, and lets them run, for at most as long as the loop may wait. The rest, and
    /// what arrives meanwhile, is for the loop's next turn; so it is after an error, which is for the loop to report.
    fn deliver(&self, py: Python<'_>) -> PyResult<()> {
        let (shared, end) = (&self.shared, Instant::now() + TURN);
        shared.bell.silence();
        shared.at_once.store(0, Ordering::Relaxed);
        let mut delivery = Delivery::begin(shared);
        loop {
            let Some(item) = delivery.next() else { return Ok(()) };
            match item {
                Item::Sent(answer, outcome) => {
                    Answer::settle(answer.bind(py), receipt::unread(py, outcome).map(Bound::unbind))?;
                }
                Item::Woken(call) => call.go_on(py)?,
            }
            if Instant::now() >= end {
                return Ok(());
            }
        }
    }

    /// Drops what has arrived, and what still will, for a loop that was closed. Each answer refers to what holds it here: both would
    /// stay, with the descriptor and the loop.
    fn end(&self) {
        let mut state = self.shared.state();
        state.is_over = true;
        let arrived = std::mem::take(&mut state.arrived);
        drop(state);
        drop(arrived);
    }
}

/// One delivery. While it lives, what arrives rings no bell; what is left at the end does.
///
/// It takes one thing after the other: a task may run the loop again, and so begin another delivery within this one.
struct Delivery<'a> {
    shared: &'a Shared,
    /// Arrivals that are still to be delivered.
    left: usize,
}

impl<'a> Delivery<'a> {
    fn begin(shared: &'a Shared) -> Self {
        let mut state = shared.state();
        state.is_delivering = true;
        Self { shared, left: state.arrived.len() }
    }

    fn next(&mut self) -> Option<Item> {
        let mut state = self.shared.state();
        while self.left > 0 {
            if let Arrival::Sent(outcomes) = state.arrived.front_mut()?
                && let Some((answer, outcome)) = outcomes.next()
            {
                return Some(Item::Sent(answer, outcome));
            }
            self.left -= 1;
            if let Arrival::Woken(call) = state.arrived.pop_front()? {
                return Some(Item::Woken(call));
            }
        }
        None
    }
}

impl Drop for Delivery<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.is_delivering = false;
        let is_left = !state.arrived.is_empty();
        drop(state);
        if is_left {
            self.shared.bell.ring();
        }
    }
}

impl Arrivals {
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Shared {
    pub(super) fn event_loop(&self) -> &Py<PyAny> {
        &self.event_loop
    }

    /// Whether one more call may have its answer without a turn of the loop.
    pub(super) fn may_answer_at_once(&self) -> bool {
        self.at_once.fetch_add(1, Ordering::Relaxed) < AT_ONCE
    }

    pub(super) fn wake(&self, call: Arc<Call>) {
        self.push(self.state(), Arrival::Woken(call));
    }

    fn push(&self, mut state: MutexGuard<'_, State>, arrival: Arrival) {
        if state.is_over {
            drop(state); // before what may run Python code
            return;
        }
        let rings = state.arrived.is_empty() && !state.is_delivering;
        state.arrived.push_back(arrival);
        drop(state);
        if rings {
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
        let answers: Vec<_> = outcomes.tickets().map(|ticket| state.open.take(ticket)).collect();
        self.push(state, Arrival::Sent(Box::new(answers.into_iter().zip(outcomes.into_outcomes()))));
    }
}

/// That an answer gets the outcome of a message. Taken back when it is dropped before the message was handed over.
pub(crate) struct Promise {
    shared: Arc<Shared>,
    ticket: Option<u64>,
}

impl Promise {
    pub(super) fn new(shared: &Arc<Shared>, answer: Py<Answer>) -> Self {
        Self { shared: Arc::clone(shared), ticket: Some(shared.state().open.insert(answer)) }
    }

    /// What the outcome is told to, and the answer's number there.
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
            let _answer = self.shared.state().open.take(ticket);
        }
    }
}

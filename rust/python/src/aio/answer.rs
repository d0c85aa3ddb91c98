//! What a task of an event loop awaits.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use pyo3::exceptions::{PyBaseException, PyRuntimeError, PyStopIteration};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::arrivals::Shared;

/// Makes the answer of a call that has ended an object of Python; `None`: the outcome of a message comes later.
pub(super) type Make = Box<dyn FnOnce(Python<'_>) -> PyResult<Option<Py<PyAny>>> + Send>;
pub(super) type Work = Pin<Box<dyn Future<Output = Make> + Send>>;

/// The answer of one call, as asyncio's tasks await a future. For one coroutine of ours, which awaits it at once.
///
/// A future of asyncio asks its loop to run each callback later, which costs more than a send. The answers of a loop come in a
/// callback of that loop anyway ([`Arrivals`](super::Arrivals)): there each task is woken directly. So no task is ever cancelled
/// between its answer and its next step, and messages cannot get lost there.
#[pyclass(module = "rocketpy._rocketpy", frozen)]
pub(crate) struct Answer {
    shared: Arc<Shared>,
    /// Locked only with the interpreter lock, and never while Python code can run.
    state: Mutex<State>,
}

struct State {
    stage: Stage,
    /// A task was given this object, and has not looked at it yet.
    is_yielded: bool,
    /// What wakes the tasks, each with its context.
    callbacks: Callbacks,
}

type Callbacks = SmallVec<[(Py<PyAny>, Option<Py<PyAny>>); 1]>;

enum Stage {
    /// Polled by the loop's thread; `None` meanwhile.
    Working(Option<Work>),
    /// The message was handed over: its outcome comes.
    Sent,
    Done(Result<Py<PyAny>, Py<PyBaseException>>),
    /// With the message of the cancellation.
    Cancelled(Option<Py<PyAny>>),
}

#[pymethods]
impl Answer {
    fn __await__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// The next step of a coroutine that awaits: this object while there is no answer.
    fn __next__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let mut state = slf.get().state.lock();
        match &state.stage {
            Stage::Working(_) | Stage::Sent if !state.is_yielded => {
                state.is_yielded = true;
                drop(state);
                Ok(slf)
            }
            _ => {
                drop(state);
                Err(PyStopIteration::new_err((slf.get().result(slf.py())?,)))
            }
        }
    }

    /// A task sees by this name that it may await the object, and sets it to false.
    #[getter]
    fn _asyncio_future_blocking(&self) -> bool {
        self.state.lock().is_yielded
    }

    #[setter(_asyncio_future_blocking)]
    fn set_yielded(&self, is_yielded: bool) {
        self.state.lock().is_yielded = is_yielded;
    }

    fn get_loop(&self, py: Python<'_>) -> Py<PyAny> {
        self.shared.event_loop().clone_ref(py)
    }

    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        // What makes objects waits until the lock is free: it may start the cycle collector, which takes the lock.
        let message = match &self.state.lock().stage {
            Stage::Done(Ok(answer)) => return Ok(answer.clone_ref(py)),
            Stage::Done(Err(error)) => Err(error.clone_ref(py)),
            Stage::Cancelled(message) => Ok(message.as_ref().map(|message| message.clone_ref(py))),
            Stage::Working(_) | Stage::Sent => {
                return Err(PyRuntimeError::new_err("the answer is not available yet"));
            }
        };
        Err(match message {
            Ok(message) => cancelled(py, message),
            Err(error) => PyErr::from_value(error.into_bound(py).into_any()),
        })
    }

    #[pyo3(signature = (r#fn, *, context=None))]
    fn add_done_callback(slf: &Bound<'_, Self>, r#fn: Py<PyAny>, context: Option<Py<PyAny>>) -> PyResult<()> {
        {
            let mut state = slf.get().state.lock();
            if matches!(state.stage, Stage::Working(_) | Stage::Sent) {
                state.callbacks.push((r#fn, context));
                return Ok(());
            }
        }
        slf.get().call_soon(slf, r#fn, context)
    }

    /// Gives the answer up, if there is none yet. Work that is under way is dropped.
    #[pyo3(signature = (msg=None))]
    fn cancel(slf: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        let (before, callbacks) = {
            let mut state = slf.get().state.lock();
            if !matches!(state.stage, Stage::Working(_) | Stage::Sent) {
                return Ok(false);
            }
            let before = std::mem::replace(&mut state.stage, Stage::Cancelled(msg));
            (before, std::mem::take(&mut state.callbacks))
        };
        drop(before);
        for (callback, context) in callbacks {
            // Another task may run at this moment.
            slf.get().call_soon(slf, callback, context)?;
        }
        Ok(true)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let state = self.state.lock();
        for (callback, context) in &state.callbacks {
            visit.call(callback)?;
            visit.call(context)?;
        }
        match &state.stage {
            Stage::Done(Ok(answer)) => visit.call(answer),
            Stage::Done(Err(error)) => visit.call(error),
            Stage::Cancelled(message) => visit.call(message),
            _ => Ok(()),
        }
    }

    fn __clear__(&self) {
        let _before = std::mem::take(&mut self.state.lock().callbacks);
    }
}

impl Answer {
    /// The answer of work that is to be polled.
    pub(super) fn of_work(py: Python<'_>, shared: &Arc<Shared>, work: Work) -> PyResult<Py<Self>> {
        Self::new(py, shared, Stage::Working(Some(work)))
    }

    /// The answer for a message that is handed over.
    pub(super) fn of_message(py: Python<'_>, shared: &Arc<Shared>) -> PyResult<Py<Self>> {
        Self::new(py, shared, Stage::Sent)
    }

    fn new(py: Python<'_>, shared: &Arc<Shared>, stage: Stage) -> PyResult<Py<Self>> {
        let state = State { stage, is_yielded: false, callbacks: SmallVec::new() };
        Py::new(py, Self { shared: Arc::clone(shared), state: Mutex::new(state) })
    }

    /// The message could not be handed over at once: `work` does it.
    pub(super) fn set_work(&self, work: Work) {
        self.state.lock().stage = Stage::Working(Some(work));
    }

    /// Begins the work, and with `at_once` ends it where its answer is there.
    pub(super) fn begin(slf: &Bound<'_, Self>, runtime: &Handle, at_once: bool) -> PyResult<()> {
        if at_once && Self::poll(slf, runtime, Waker::noop())? {
            return Ok(());
        }
        let call = Arc::new(Call {
            shared: Arc::clone(&slf.get().shared),
            runtime: runtime.clone(),
            is_woken: AtomicBool::new(false),
            answer: slf.clone().unbind(),
        });
        if at_once {
            return call.go_on(slf.py());
        }
        call.wake();
        Ok(())
    }

    /// Polls the work; true when nothing is left of it. In the loop's thread.
    fn poll(slf: &Bound<'_, Self>, runtime: &Handle, waker: &Waker) -> PyResult<bool> {
        let work = match &mut slf.get().state.lock().stage {
            Stage::Working(work) => work.take(),
            _ => None,
        };
        let Some(mut work) = work else { return Ok(true) };
        let polled = {
            let _entered = runtime.enter();
            work.as_mut().poll(&mut Context::from_waker(waker))
        };
        match polled {
            Poll::Pending => {
                if let Stage::Working(place) = &mut slf.get().state.lock().stage {
                    *place = Some(work);
                }
                Ok(false)
            }
            Poll::Ready(make) => {
                match make(slf.py()) {
                    Ok(None) => slf.get().state.lock().stage = Stage::Sent,
                    Ok(Some(answer)) => Self::settle(slf, Ok(answer))?,
                    Err(error) => Self::settle(slf, Err(error))?,
                }
                Ok(true)
            }
        }
    }

    /// Gives the answer, unless it was given up, and wakes who waits for it. Returns what Python's callbacks raise, as far as a task does
    /// not keep that to itself.
    pub(super) fn settle(slf: &Bound<'_, Self>, outcome: PyResult<Py<PyAny>>) -> PyResult<()> {
        let py = slf.py();
        let outcome = outcome.map_err(|error| error.into_value(py));
        let callbacks = {
            let mut state = slf.get().state.lock();
            if let Stage::Done(_) | Stage::Cancelled(_) = state.stage {
                return Ok(());
            }
            state.stage = Stage::Done(outcome);
            std::mem::take(&mut state.callbacks)
        };
        let mut told = Ok(());
        for (callback, context) in callbacks {
            let called = match context {
                Some(context) => context.call_method1(py, intern!(py, "run"), (callback, slf)),
                None => callback.call1(py, (slf,)),
            };
            told = told.and(called.map(drop));
        }
        told
    }

    fn call_soon(
        &self,
        slf: &Bound<'_, Self>,
        callback: Py<PyAny>,
        context: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        let options = PyDict::new(py);
        options.set_item(intern!(py, "context"), context)?;
        let event_loop = self.shared.event_loop().bind(py);
        event_loop.call_method(intern!(py, "call_soon"), (callback, slf), Some(&options)).map(drop)
    }
}

fn cancelled(py: Python<'_>, message: Option<Py<PyAny>>) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let error = CLASS.import(py, "asyncio", "CancelledError").and_then(|class| match message {
        Some(message) => class.call1((message,)),
        None => class.call0(),
    });
    error.map_or_else(|error| error, PyErr::from_value)
}

/// Wakes the work of an answer.
pub(super) struct Call {
    shared: Arc<Shared>,
    runtime: Handle,
    /// It is among what has arrived, and has not been looked at since.
    is_woken: AtomicBool,
    answer: Py<Answer>,
}

impl Call {
    /// Polls the work, in the loop's thread. One that was cancelled is gone: what it would take now, nobody would get.
    pub(super) fn go_on(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        self.is_woken.store(false, Ordering::Release);
        Answer::poll(self.answer.bind(py), &self.runtime, &Waker::from(Arc::clone(self))).map(drop)
    }
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            let shared = Arc::clone(&self.shared);
            shared.wake(self);
        }
    }
}

//! The native part of the future of a submitted message.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::exceptions::PyException;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyString, PyType};
use rocketpy_client::{Failure, Outcome, UnreadFailures};
use rocketpy_env::process_id;
use smallvec::SmallVec;

use super::thread;
use crate::{error, receipt, untracked};

static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

const RUNNING: &str = "RUNNING";
const FINISHED: &str = "FINISHED";

/// What `rocketpy.producing.futures.SendFuture` keeps in place of Python's future, under the same names.
///
/// A future that nobody waits for needs neither a condition nor a receipt: both are made when they are first asked for. Whoever
/// asks for the condition may wait with it, so from then on Python's own methods give the outcome.
#[pyclass(module = "rocketpy._rocketpy", subclass, frozen)]
#[derive(Default)]
pub(crate) struct SendOutcome {
    /// Locked only with the interpreter lock, and never while Python code can run.
    state: Mutex<State>,
}

/// What a future was made by.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) process_id: u32,
    /// Number of the thread that completes it, in this process.
    pub(crate) thread: u32,
}

#[derive(Default)]
struct State {
    finished: bool,
    origin: Option<Origin>,
    /// The outcome, until it is asked for as an object.
    outcome: Option<Outcome>,
    result: Option<Py<PyAny>>,
    exception: Option<Py<PyAny>>,
    /// The failure, until the end of the future: nobody may have read it by then.
    failure: Option<Box<Failure>>,
    callbacks: SmallVec<[Py<PyAny>; 1]>,
    watch: Option<Box<Watch>>,
}

/// Condition and list of waiters.
type Watch = (Py<PyAny>, Py<PyList>);

/// Makes a `rocketpy.producing.futures.SendFuture`.
///
/// The cycle collector does not see it until it gets an attribute or an error: it would walk over each future in flight. What it
/// holds until then, callbacks and a receipt, lets go of it once it is done.
pub(crate) fn make(py: Python<'_>, origin: Origin) -> PyResult<Bound<'_, SendOutcome>> {
    let future = CLASS.import(py, "rocketpy.producing.futures", "SendFuture")?.call0()?;
    let future = future.cast_into::<SendOutcome>()?;
    untracked::untrack(&future);
    future.get().state.lock().origin = Some(origin);
    Ok(future)
}

/// Gives a future its outcome. Its callbacks run here; Python logs what they raise.
pub(crate) fn complete(future: &Bound<'_, SendOutcome>, outcome: Outcome, unread: &Arc<UnreadFailures>) {
    let py = future.py();
    let mut state = future.get().state.lock();
    state.failure = unread.failure(&outcome).map(Box::new);
    let told = if state.watch.is_none() {
        state.outcome = Some(outcome);
        state.finished = true;
        drop(state);
        SendOutcome::_invoke_callbacks(future)
    } else {
        drop(state);
        match receipt::unread(py, outcome) {
            Ok(receipt) => future.call_method1(intern!(py, "set_result"), (receipt,)),
            Err(error) => future.call_method1(intern!(py, "set_exception"), (error.into_value(py),)),
        }
        .map(drop)
    };
    if let Err(error) = told {
        error.write_unraisable(py, Some(future));
    }
}

#[pymethods]
impl SendOutcome {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// True with an outcome. It cannot be cancelled.
    fn done(&self) -> bool {
        self.state.lock().finished
    }

    /// As in Python's future.
    #[pyo3(signature = (timeout=None))]
    fn result<'py>(
        slf: &Bound<'py, Self>,
        timeout: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if slf.get().is_stored() {
            return Ok(Self::_result(slf)?.unwrap_or_else(|| py.None()).into_bound(py));
        }
        slf.get().check_wait(timeout.as_ref())?;
        python_future(py)?.call_method1(intern!(py, "result"), (slf, timeout))
    }

    /// As in Python's future.
    #[pyo3(signature = (timeout=None))]
    fn exception<'py>(
        slf: &Bound<'py, Self>,
        timeout: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if slf.get().is_stored() {
            return Ok(py.None().into_bound(py));
        }
        slf.get().check_wait(timeout.as_ref())?;
        python_future(py)?.call_method1(intern!(py, "exception"), (slf, timeout))
    }

    /// As in Python's future. If it is completed at this moment, either of the two threads may be the one that calls.
    #[pyo3(name = "add_done_callback", signature = (r#fn))]
    fn add_done_callback(slf: &Bound<'_, Self>, r#fn: Bound<'_, PyAny>) -> PyResult<()> {
        let mut state = slf.get().state.lock();
        if state.finished {
            drop(state);
            return call(slf, &r#fn);
        }
        state.callbacks.push(r#fn.unbind());
        Ok(())
    }

    fn _invoke_callbacks(slf: &Bound<'_, Self>) -> PyResult<()> {
        let callbacks = std::mem::take(&mut slf.get().state.lock().callbacks);
        let mut told = Ok(());
        for callback in callbacks {
            told = told.and(call(slf, callback.bind(slf.py())));
        }
        told
    }

    #[getter]
    fn _state<'py>(&self, py: Python<'py>) -> &Bound<'py, PyString> {
        if self.done() { intern!(py, FINISHED) } else { intern!(py, RUNNING) }
    }

    /// Called before the future gets an attribute.
    fn _track(slf: &Bound<'_, Self>) {
        untracked::track(slf);
    }

    #[setter(_state)]
    fn set_state(&self, state: &str) {
        self.state.lock().finished = state == FINISHED;
    }

    #[getter]
    fn _result(slf: &Bound<'_, Self>) -> PyResult<Option<Py<PyAny>>> {
        let py = slf.py();
        Self::make_objects(slf)?;
        Ok(slf.get().state.lock().result.as_ref().map(|result| result.clone_ref(py)))
    }

    #[setter(_result)]
    fn set_result(&self, result: Option<Py<PyAny>>) {
        let _before = std::mem::replace(&mut self.state.lock().result, result);
    }

    /// Python's future reads it in `result` and `exception`, so the failure counts as read.
    #[getter]
    fn _exception(slf: &Bound<'_, Self>) -> PyResult<Option<Py<PyAny>>> {
        if let Some(failure) = &mut slf.get().state.lock().failure {
            failure.read();
        }
        Self::_peek(slf)
    }

    /// The error, for what only observes the future: the failure does not count as read.
    fn _peek(slf: &Bound<'_, Self>) -> PyResult<Option<Py<PyAny>>> {
        let py = slf.py();
        Self::make_objects(slf)?;
        Ok(slf.get().state.lock().exception.as_ref().map(|exception| exception.clone_ref(py)))
    }

    #[setter(_exception)]
    fn set_exception(&self, exception: Option<Py<PyAny>>) {
        let _before = std::mem::replace(&mut self.state.lock().exception, exception);
    }

    #[getter]
    fn _condition(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.watch(py, |watch| watch.0.clone_ref(py))
    }

    #[getter]
    fn _waiters(&self, py: Python<'_>) -> PyResult<Py<PyList>> {
        self.watch(py, |watch| watch.1.clone_ref(py))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let state = self.state.lock();
        state.callbacks.iter().try_for_each(|callback| visit.call(callback))?;
        [&state.result, &state.exception].into_iter().flatten().try_for_each(|object| visit.call(object))?;
        state.watch.as_ref().map_or(Ok(()), |watch| visit.call(&watch.0).and(visit.call(&watch.1)))
    }

    fn __clear__(&self) {
        let _before = std::mem::take(&mut *self.state.lock());
    }
}

impl SendOutcome {
    /// Rejects a wait that could never end.
    ///
    /// # Errors
    /// `ForkedError` in a forked child; `NotSupportedError` in a callback of a future of the same producer, whose thread would complete this one.
    fn check_wait(&self, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let (finished, origin) = {
            let state = self.state.lock();
            (state.finished, state.origin)
        };
        let Some(origin) = origin.filter(|_| !finished) else { return Ok(()) };
        let current = process_id();
        if current != origin.process_id {
            return Err(error::forked(origin.process_id, current));
        }
        let polls = timeout.is_some_and(|timeout| timeout.eq(0).unwrap_or(false));
        if !polls && thread::runs_here(origin.thread) {
            return Err(error::wait_in_callback());
        }
        Ok(())
    }

    /// Whether it ended with a receipt.
    fn is_stored(&self) -> bool {
        let state = self.state.lock();
        match &state.outcome {
            Some(outcome) => outcome.status().is_some(),
            None => state.finished && state.exception.is_none(),
        }
    }

    /// Makes the receipt or the error, once.
    fn make_objects(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let Some(outcome) = slf.get().state.lock().outcome.clone() else { return Ok(()) };
        let (result, exception) = match receipt::unread(py, outcome) {
            Ok(receipt) => (Some(receipt.unbind()), None),
            Err(error) => {
                untracked::track(slf); // the frames of the error's traceback may hold the future
                (None, Some(error.into_value(py).into_any()))
            }
        };
        let mut state = slf.get().state.lock();
        // Another thread may have been first.
        if state.outcome.take().is_some() {
            (state.result, state.exception) = (result, exception);
        }
        Ok(())
    }

    /// Condition and waiters, made at the first use.
    fn watch<R>(&self, py: Python<'_>, get: impl Fn(&Watch) -> R) -> PyResult<R> {
        static CONDITION: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        if let Some(watch) = &self.state.lock().watch {
            return Ok(get(watch));
        }
        let condition = CONDITION.import(py, "threading", "Condition")?.call0()?.unbind();
        let mine = Box::new((condition, PyList::empty(py).unbind()));
        Ok(get(self.state.lock().watch.get_or_insert(mine)))
    }
}

fn python_future(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static FUTURE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    FUTURE.import(py, "concurrent.futures", "Future")
}

/// Calls a callback. As with Python's future, what it raises is logged, unless it is to end the thread.
fn call(future: &Bound<'_, SendOutcome>, callback: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    match callback.call1((future,)) {
        Err(error) if error.is_instance_of::<PyException>(py) => {
            future.call_method1(intern!(py, "_callback_failed"), (error.into_value(py),)).map(drop)
        }
        called => called.map(drop),
    }
}

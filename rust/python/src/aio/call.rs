//! One call, polled by the thread that wants its answer or by an event loop.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use pyo3::intern;
use pyo3::prelude::*;
use tokio::runtime::Handle;

use super::arrivals::{Arrivals, Promise, Shared};
use crate::error::{Raise, raise};
use crate::wait::{wait, wait_detached};

/// Makes the answer of a call that has ended an object of Python.
type Make = Box<dyn FnOnce(Python<'_>) -> PyResult<Option<Py<PyAny>>> + Send>;
type Work = Pin<Box<dyn Future<Output = Make> + Send>>;

/// Who waits for the answers of an object's calls.
pub(crate) enum Caller {
    /// The thread that calls: it gets the answer.
    Thread,
    /// An event loop: the caller gets one of its futures.
    Loop(Py<Arrivals>),
}

impl Caller {
    pub(crate) fn new(py: Python<'_>, arrivals: Option<&Py<Arrivals>>) -> Self {
        arrivals.map_or(Self::Thread, |arrivals| Self::Loop(arrivals.clone_ref(py)))
    }

    /// Waits for a call, or begins it. `convert` makes its answer an object.
    pub(crate) fn answer<'py, T, E, F, C>(
        &self,
        py: Python<'py>,
        runtime: &Handle,
        call: F,
        convert: C,
    ) -> PyResult<Bound<'py, PyAny>>
    where
        T: Send + 'static,
        E: Raise + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        C: FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    {
        match self {
            Self::Thread => {
                let answer = wait(py, runtime, call)?.map_err(raise)?;
                convert(py, answer).map(|object| object.into_bound(py))
            }
            Self::Loop(arrivals) => {
                let make = |answer: Result<T, E>| -> Make {
                    Box::new(move |py| convert(py, answer.map_err(raise)?).map(Some))
                };
                let work = Box::pin(async move { make(call.await) });
                let shared = arrivals.get().shared();
                let at_once = shared.may_answer_at_once();
                begin(py, shared, runtime, shared.future(py)?, work, at_once)
            }
        }
    }

    /// As [`answer`](Self::answer), for a call that has work for the processor before it first waits: neither the interpreter lock nor
    /// an event loop waits for that. It goes on when the one who waits is cancelled.
    pub(crate) fn answer_apart<'py, T, E, F, C>(
        &self,
        py: Python<'py>,
        runtime: &Handle,
        call: F,
        convert: C,
    ) -> PyResult<Bound<'py, PyAny>>
    where
        T: Send + 'static,
        E: Raise + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        C: FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    {
        match self {
            Self::Thread => {
                let answer = wait_detached(py, runtime, call)?.map_err(raise)?;
                convert(py, answer).map(|object| object.into_bound(py))
            }
            Self::Loop(_) => {
                let task = runtime.spawn(call);
                let call = async move {
                    task.await.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))
                };
                self.answer(py, runtime, call, convert)
            }
        }
    }

    /// Hands a message over by `submit`, which tells the outcome to the promise. Only for a loop; its future is returned.
    pub(crate) fn hand_over<'py, E, F>(
        py: Python<'py>,
        arrivals: &Py<Arrivals>,
        runtime: &Handle,
        submit: impl FnOnce(Promise) -> F,
    ) -> PyResult<Bound<'py, PyAny>>
    where
        E: Raise + Send + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
    {
        let shared = arrivals.get().shared();
        let future = shared.future(py)?;
        let handed_over = submit(Promise::new(shared, future.clone().unbind()));
        let work = Box::pin(async move {
            let handed_over = handed_over.await;
            let made: Make = Box::new(move |_py| handed_over.map(|()| None).map_err(raise));
            made
        });
        begin(py, shared, runtime, future, work, true) // who sends waits for the outcome, and gives the loop its turn so
    }
}

/// A call that an event loop waits for.
pub(super) struct Call {
    shared: Arc<Shared>,
    runtime: Handle,
    /// It is among what has arrived, and has not been looked at since.
    is_woken: AtomicBool,
    /// The work and the future that gets its answer, until that has it or is cancelled. Locked in the loop's thread only.
    rest: Mutex<Option<(Work, Py<PyAny>)>>,
}

/// Begins a call, and with `at_once` ends it where its answer is there.
fn begin<'py>(
    py: Python<'py>,
    shared: &Arc<Shared>,
    runtime: &Handle,
    future: Bound<'py, PyAny>,
    work: Work,
    at_once: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let call = Arc::new(Call {
        shared: Arc::clone(shared),
        runtime: runtime.clone(),
        is_woken: AtomicBool::new(false),
        rest: Mutex::new(Some((work, future.clone().unbind()))),
    });
    if at_once {
        call.go_on(py);
    } else {
        Arc::clone(&call).wake();
    }
    if !call.has_ended() {
        future.call_method1(intern!(py, "add_done_callback"), (Cancelled { call },))?;
    }
    Ok(future)
}

impl Call {
    /// Polls the work, in the loop's thread.
    pub(super) fn go_on(self: &Arc<Self>, py: Python<'_>) {
        self.is_woken.store(false, Ordering::Release);
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((work, future)) = &mut *rest else { return };
        if is_done(future.bind(py)) {
            *rest = None; // it was cancelled: what the work would take now, nobody would get
            return;
        }
        let polled = {
            let _entered = self.runtime.enter();
            let waker = Waker::from(Arc::clone(self));
            work.as_mut().poll(&mut Context::from_waker(&waker))
        };
        let Poll::Ready(make) = polled else { return };
        let Some((_, future)) = rest.take() else { return };
        drop(rest);
        match make(py) {
            Ok(None) => {} // the future gets the outcome of its message
            Ok(Some(answer)) => settle(future.bind(py), Ok(answer)),
            Err(error) => settle(future.bind(py), Err(error)),
        }
    }

    fn has_ended(&self) -> bool {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner).is_none()
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

/// Gives a future its outcome, unless it was cancelled.
pub(super) fn settle(future: &Bound<'_, PyAny>, outcome: PyResult<Py<PyAny>>) {
    let py = future.py();
    if is_done(future) {
        return;
    }
    let settled = match outcome {
        Ok(answer) => future.call_method1(intern!(py, "set_result"), (answer,)),
        Err(error) => future.call_method1(intern!(py, "set_exception"), (error.into_value(py),)),
    };
    if let Err(error) = settled {
        error.write_unraisable(py, Some(future)); // as when the loop was closed
    }
}

fn is_done(future: &Bound<'_, PyAny>) -> bool {
    let done = future.call_method0(intern!(future.py(), "done"));
    done.and_then(|done| done.is_truthy()).unwrap_or(true)
}

/// Drops the work of a call whose future was cancelled.
#[pyclass(module = "rocketpy._rocketpy", frozen)]
struct Cancelled {
    call: Arc<Call>,
}

#[pymethods]
impl Cancelled {
    fn __call__(&self, _future: &Bound<'_, PyAny>) {
        let rest = self.call.rest.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(rest);
    }
}

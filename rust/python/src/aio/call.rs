//! One call: the thread that wants its answer waits for it, or an event loop polls it.

use std::sync::Arc;

use pyo3::prelude::*;
use rocketpy_client::{Producer, SendOptions};
use rocketpy_model::Message;
use tokio::runtime::Handle;

use super::answer::{Answer, Make};
use super::arrivals::{Arrivals, Promise};
use crate::error::{Raise, raise};
use crate::wait::{wait, wait_detached};

/// Who waits for the answers of an object's calls.
pub(crate) enum Caller {
    /// The thread that calls: it gets the answer.
    Thread,
    /// An event loop: the caller gets what a task of it can await.
    Loop(Py<Arrivals>),
}

/// Where a call runs before it first waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    Here,
    /// Not in a thread that holds the interpreter lock or an event loop.
    Apart,
}

impl Caller {
    pub(crate) fn new(py: Python<'_>, arrivals: Option<&Py<Arrivals>>) -> Self {
        arrivals.map_or(Self::Thread, |arrivals| Self::Loop(arrivals.clone_ref(py)))
    }

    /// Waits for a call, or begins it. `convert` makes its answer an object.
    pub(crate) fn answer<'py, T: Send + 'static, E: Raise + Send + 'static>(
        &self,
        py: Python<'py>,
        runtime: &Handle,
        call: impl Future<Output = Result<T, E>> + Send + 'static,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.begin(py, runtime, Start::Here, call, convert)
    }

    /// As [`answer`](Self::answer), for a call that has work for the processor before it first waits: neither the interpreter lock nor
    /// an event loop waits for that. It goes on when the one who waits is cancelled.
    pub(crate) fn answer_apart<'py, T: Send + 'static, E: Raise + Send + 'static>(
        &self,
        py: Python<'py>,
        runtime: &Handle,
        call: impl Future<Output = Result<T, E>> + Send + 'static,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.begin(py, runtime, Start::Apart, call, convert)
    }

    fn begin<'py, T: Send + 'static, E: Raise + Send + 'static>(
        &self,
        py: Python<'py>,
        runtime: &Handle,
        start: Start,
        call: impl Future<Output = Result<T, E>> + Send + 'static,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Self::Loop(arrivals) = self else {
            let answer = match start {
                Start::Here => wait(py, runtime, call),
                Start::Apart => wait_detached(py, runtime, call),
            };
            return convert(py, answer?.map_err(raise)?).map(|object| object.into_bound(py));
        };
        let make = |answer: Result<T, E>| -> Make {
            Box::new(move |py| convert(py, answer.map_err(raise)?).map(Some))
        };
        let shared = arrivals.get().shared();
        let answer = match start {
            Start::Here => Answer::of_work(py, shared, Box::pin(async move { make(call.await) })),
            Start::Apart => {
                let task = runtime.spawn(call);
                let work = async move {
                    make(task.await.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic())))
                };
                Answer::of_work(py, shared, Box::pin(work))
            }
        };
        let answer = answer?.into_bound(py);
        Answer::begin(&answer, runtime, shared.may_answer_at_once())?;
        Ok(answer.into_any())
    }

    /// Sends a message. Only for a loop.
    pub(crate) fn hand_over<'py>(
        py: Python<'py>,
        arrivals: &Py<Arrivals>,
        runtime: &Handle,
        producer: &Producer,
        message: Arc<Message>,
        options: SendOptions,
    ) -> PyResult<Bound<'py, PyAny>> {
        let shared = arrivals.get().shared();
        let answer = Answer::of_message(py, shared)?;
        let promise = Promise::new(shared, answer.clone_ref(py));
        let answer = answer.into_bound(py);
        let (sink, ticket) = promise.sink();
        match producer.submit_at_once(&message, options, &sink, ticket).map_err(raise)? {
            None => promise.keep(),
            Some(options) => {
                let producer = producer.clone();
                answer.get().set_work(Box::pin(async move {
                    let handed_over = producer.submit_ticket(message, options, &sink, ticket).await;
                    if handed_over.is_ok() {
                        promise.keep();
                    }
                    let made: Make = Box::new(move |_py| handed_over.map(|()| None).map_err(raise));
                    made
                }));
                // Who sends waits for the outcome, and gives the loop its turn so.
                Answer::begin(&answer, runtime, true)?;
            }
        }
        Ok(answer.into_any())
    }
}

//! Outcomes on their way from the client's network threads to Python's futures.
//!
//! A network thread never waits for the interpreter lock: it keeps a [`Promise`], which leaves the outcome with a
//! [`Sink`]. The sink brings it to a thread that has the lock and calls [`Arrival::deliver`] there. What an outcome holds
//! is [`ToPython`]'s affair, so a sink serves every operation.
//!
//! [`FutureThread`] is the sink for `concurrent.futures.Future`. A sink for asyncio is as thin: it keeps the same list of
//! arrivals, rings an eventfd that the loop watches, and delivers from the loop's callback. Promises, arrivals and
//! conversions stay as they are.

mod thread;

use std::sync::Arc;

use pyo3::prelude::*;
use rocketpy_client::SendError;
pub(crate) use thread::FutureThread;

use crate::convert::ToPython;
use crate::error::raise;

/// What an operation of the client ended with.
pub(crate) type Outcome<T> = Result<T, SendError>;

/// Takes outcomes from network threads. Nothing here waits for the interpreter lock.
pub(crate) trait Sink<T>: Send + Sync {
    /// Takes the outcome of one promise.
    fn take(&self, arrival: Arrival<T>);

    /// Notes that a promise was dropped: its outcome will never come.
    fn withdraw(&self);
}

/// The duty to complete one future.
pub(crate) struct Promise<T> {
    sink: Arc<dyn Sink<T>>,
    /// Taken when the promise is kept.
    future: Option<Py<PyAny>>,
}

impl<T> Promise<T> {
    /// Leaves the outcome with the sink. Never waits for the interpreter lock.
    pub(crate) fn keep(mut self, outcome: Outcome<T>) {
        if let Some(future) = self.future.take() {
            self.sink.take(Arrival { future, outcome });
        }
    }
}

impl<T> Drop for Promise<T> {
    /// Withdraws a promise whose operation never began.
    fn drop(&mut self) {
        if self.future.is_some() {
            self.sink.withdraw();
        }
    }
}

/// An outcome and the future that waits for it.
pub(crate) struct Arrival<T> {
    future: Py<PyAny>,
    outcome: Outcome<T>,
}

impl<T: ToPython> Arrival<T> {
    /// Completes the future. Its callbacks run here; Python logs what they raise.
    fn deliver(self, py: Python<'_>) {
        let future = self.future.bind(py);
        let set = match self.outcome.map_err(raise).and_then(|value| value.to_python(py)) {
            Ok(value) => future.call_method1("set_result", (value,)),
            Err(error) => future.call_method1("set_exception", (error.into_value(py),)),
        };
        if let Err(error) = set {
            error.write_unraisable(py, Some(future));
        }
    }
}

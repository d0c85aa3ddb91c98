//! Waiting without the interpreter lock, awake for Ctrl-C.

use std::pin::pin;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use tokio::runtime::Handle;

use crate::error;

/// How often a waiting call looks for signals: well within the 200 ms that Ctrl-C may take.
const STEP: Duration = Duration::from_millis(50);

/// Longest duration that is accepted: 100 years. Nothing waits without an end.
const LONGEST_SECONDS: f64 = 3.2e9;

/// Waits for a future; on Ctrl-C drops it and raises `KeyboardInterrupt`.
///
/// A future that is ready at once costs neither a switch of the interpreter lock nor a timer.
pub(crate) fn wait<F>(py: Python<'_>, runtime: &Handle, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let mut future = pin!(future);
    {
        let _entered = runtime.enter();
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Ok(output);
        }
    }
    loop {
        let future = future.as_mut();
        let step = py.detach(|| runtime.block_on(async { tokio::time::timeout(STEP, future).await }));
        match step {
            Ok(output) => return Ok(output),
            Err(_elapsed) => py.check_signals()?,
        }
    }
}

/// Runs work that blocks (opening a store, stopping a server) on a thread of its own and waits for it.
///
/// On Ctrl-C the work is left to finish by itself; its result goes to `abandoned`.
pub(crate) fn run<T, W, A>(py: Python<'_>, name: &str, work: W, abandoned: A) -> PyResult<T>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
    A: FnOnce(T) + Send + 'static,
{
    let (results, outcome) = sync_channel(0);
    let run = move || {
        // A rendezvous: either the caller takes the result, or it is gone and the send gives the result back.
        if let Err(unwanted) = results.send(work()) {
            abandoned(unwanted.0);
        }
    };
    thread::Builder::new().name(name.to_owned()).spawn(run).map_err(|cause| error::no_threads(&cause))?;
    let outcome = Mutex::new(outcome);
    loop {
        match py.detach(|| outcome.lock().recv_timeout(STEP)) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => return Err(error::panicked(name)),
        }
    }
}

/// A duration as Python gives it: seconds (int or float) or a `datetime.timedelta`.
#[derive(Clone, Copy)]
pub(crate) struct Seconds(pub(crate) Duration);

impl<'py> FromPyObject<'_, 'py> for Seconds {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let seconds = match value.extract::<f64>() {
            Ok(seconds) => seconds,
            Err(_) if value.hasattr("total_seconds")? => value.call_method0("total_seconds")?.extract()?,
            Err(_) => return Err(error::not_a_duration(&value)),
        };
        if !(0.0..=LONGEST_SECONDS).contains(&seconds) {
            return Err(error::bad_duration(seconds));
        }
        Ok(Self(Duration::from_secs_f64(seconds)))
    }
}

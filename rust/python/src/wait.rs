//! Waiting without the interpreter lock, awake for Ctrl-C. What the wait was for becomes Python's in [`crate::convert`].

use std::pin::pin;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use tokio::runtime::Handle;

use crate::error;

/// Interval at which a waiting call checks for signals: well within the 200 ms that Ctrl-C may take.
pub(crate) const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Waits for a future; on Ctrl-C drops it and raises `KeyboardInterrupt`.
///
/// A future that is ready at once needs neither a switch of the interpreter lock nor a timer. What a future does before it first
/// waits runs with the lock: one that compresses, packs or checks many messages goes through [`wait_detached`].
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
    wait_detached(py, runtime, future)
}

/// As [`wait`], in a thread of ours, which gets no signals: it sleeps until the future is ready.
pub(crate) fn wait_in_thread<F>(py: Python<'_>, runtime: &Handle, future: F) -> F::Output
where
    F: Future + Send,
    F::Output: Send,
{
    let mut future = pin!(future);
    {
        let _entered = runtime.enter();
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
    }
    py.detach(|| runtime.block_on(future))
}

/// As [`wait`], never with the interpreter lock.
pub(crate) fn wait_detached<F>(py: Python<'_>, runtime: &Handle, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    wait_with(py, runtime, future, || ())
}

/// As [`wait_detached`], for one request after the other: this thread reads the answer itself if it comes at once.
pub(crate) fn wait_reading<F>(py: Python<'_>, runtime: &Handle, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    wait_with(py, runtime, future, rocketpy_client::read_here)
}

/// `prepare` gives what this thread holds while it waits.
fn wait_with<F, G>(
    py: Python<'_>,
    runtime: &Handle,
    future: F,
    prepare: impl Fn() -> G + Sync,
) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let mut future = pin!(future);
    loop {
        let future = future.as_mut();
        let step = py.detach(|| {
            let _held = prepare();
            runtime.block_on(async { tokio::time::timeout(SIGNAL_INTERVAL, future).await })
        });
        match step {
            Ok(output) => return Ok(output),
            Err(_elapsed) => py.check_signals()?,
        }
    }
}

/// Runs work that blocks (opening a store, stopping a server) on a thread of its own and waits for it.
///
/// On Ctrl-C it returns at once; the work finishes in the background and its result goes to `abandoned`.
pub(crate) fn run<T, W, A>(py: Python<'_>, name: &str, work: W, abandoned: A) -> PyResult<T>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
    A: FnOnce(T) + Send + 'static,
{
    let (results, outcome) = sync_channel(0);
    let run = move || {
        // The channel holds nothing: either the caller takes the result, or the caller is gone and the send returns it.
        if let Err(unwanted) = results.send(work()) {
            abandoned(unwanted.0);
        }
    };
    thread::Builder::new().name(name.to_owned()).spawn(run).map_err(|cause| error::no_threads(&cause))?;
    let outcome = Mutex::new(outcome);
    loop {
        match py.detach(|| outcome.lock().recv_timeout(SIGNAL_INTERVAL)) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => return Err(error::panicked(name)),
        }
    }
}

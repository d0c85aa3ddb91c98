//! Log records of clients on their way to Python's `logging`.
//!
//! A network thread never waits for the interpreter lock: it leaves a record in a [`Queue`]. A thread of its own takes the
//! lock and hands the records to Python's loggers. It also reads their levels, so that a record that no logger wants is
//! never formatted.

mod level;
mod queue;
mod subscriber;

use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use self::level::{LOGGERS, python_level};
use self::queue::{Queue, Record, Taken};
use crate::error;

/// Interval at which the levels of Python's loggers are read: a change works within a second.
const LEVEL_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time that the end of Python waits for handlers to take the last records, and then again for the record that
/// they have at that moment: a thread in the middle of Python code when Python has ended makes it abort.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Starts the thread of this process; when it runs already, reads the levels at once, so that a client made after a change
/// follows it. Does nothing where a server writes its log lines itself.
///
/// # Errors
/// `RocketPyError` when the system gives no thread.
pub(crate) fn start(py: Python<'_>) -> PyResult<()> {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    if !INSTALLED.get_or_init(subscriber::install) {
        return Ok(());
    }
    let queue = Queue::make();
    if !queue.begin() {
        return level::read(py);
    }
    begin(py, queue).inspect_err(|_| queue.give_back())
}

/// Starts the thread, which the queue counts as running.
fn begin(py: Python<'_>, queue: &'static Queue) -> PyResult<()> {
    level::read(py)?;
    let thread = thread::Builder::new().name("rocketpy-logs".to_owned()).spawn(move || run(queue));
    thread.map(drop).map_err(|cause| error::no_threads(&cause))
}

/// Hands over the last records and ends the thread, before Python ends its threads by force.
pub(crate) fn end(py: Python<'_>) {
    if let Some(queue) = Queue::find() {
        py.detach(|| queue.end(END_TIMEOUT));
    }
}

fn run(queue: &Queue) {
    loop {
        let Taken { records, lost, is_last } = queue.take(LEVEL_INTERVAL);
        let attached = Python::try_attach(|py| {
            let handed = hand_over(py, queue, &records, lost).and_then(|()| level::read(py));
            if let Err(error) = handed {
                error.write_unraisable(py, None);
            }
        });
        if is_last || attached.is_none() {
            return queue.finish();
        }
    }
}

fn hand_over(py: Python<'_>, queue: &Queue, records: &[Record], lost: u64) -> PyResult<()> {
    if records.is_empty() && lost == 0 {
        return Ok(());
    }
    let logging = py.import("logging")?;
    let lost = (lost > 0).then(|| Record::of_lost(lost));
    for record in records.iter().chain(&lost) {
        if queue.stops() {
            break;
        }
        // What a user's filter raises must not take the other records along.
        if let Err(error) = hand_over_one(py, &logging, record) {
            error.write_unraisable(py, None);
        }
    }
    Ok(())
}

fn hand_over_one(py: Python<'_>, logging: &Bound<'_, PyModule>, record: &Record) -> PyResult<()> {
    let logger = logging.call_method1("getLogger", (LOGGERS[record.logger],))?;
    let level = python_level(record.level);
    if logger.call_method1("isEnabledFor", (level,))?.is_truthy()? {
        let (name, arguments) = (LOGGERS[record.logger], PyTuple::empty(py));
        let parts = (name, level, record.file, record.line, &record.text, arguments, py.None());
        let made = logger.call_method1("makeRecord", parts)?;
        made.setattr("threadName", "rocketpy-logs")?;
        made.setattr("created", record.made_at_ms as f64 / 1000.0)?;
        made.setattr("msecs", (record.made_at_ms % 1000) as f64)?;
        logger.call_method1("handle", (made,))?;
    }
    Ok(())
}

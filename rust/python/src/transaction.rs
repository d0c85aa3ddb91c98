//! Transactions: half messages, and the questions of brokers.

use pyo3::prelude::*;
use rocketpy_client::{
    HalfMessage, Namespace, Producer, TransactionCheck, TransactionChecks, TransactionEnd,
};
use rocketpy_protocol::compression::DecompressLimits;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use crate::convert::ToPython;
use crate::duration::Seconds;
use crate::error::raise;
use crate::process::Owned;
use crate::received::{Decoding, Origin, ReceivedMessage, Shown};
use crate::wait::wait;

/// A half message whose transaction is to be ended.
#[pyclass(module = "rocketpy._rocketpy", frozen)]
pub(crate) struct Half {
    running: Owned<(Producer, Handle)>,
    half: HalfMessage,
}

impl Half {
    pub(crate) fn new(producer: Producer, runtime: Handle, half: HalfMessage) -> Self {
        Self { running: Owned::new((producer, runtime)), half }
    }
}

#[pymethods]
impl Half {
    /// The acknowledgement of the half message.
    #[getter]
    fn receipt<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.half.receipt.to_python(py)
    }

    /// Says what becomes of it, and waits until the broker has taken it.
    fn end(&self, py: Python<'_>, commit: bool) -> PyResult<()> {
        let (producer, runtime) = self.running.get()?;
        wait(py, runtime, producer.end_transaction(&self.half, of(commit)))?.map_err(raise)
    }
}

/// The questions of brokers for the end of transactions of a group.
#[pyclass(module = "rocketpy._rocketpy", frozen)]
pub(crate) struct Checks {
    running: Owned<(Producer, Handle, Mutex<TransactionChecks>)>,
}

impl Checks {
    pub(crate) fn new(producer: Producer, runtime: Handle) -> Self {
        let checks = Mutex::new(producer.transaction_checks());
        Self { running: Owned::new((producer, runtime, checks)) }
    }
}

#[pymethods]
impl Checks {
    /// The next question and whether there may be more; `(None, True)` when none came in time, `(None, False)` at the end.
    fn next(&self, py: Python<'_>, timeout: Seconds) -> PyResult<(Option<Check>, bool)> {
        let (producer, runtime, checks) = self.running.get()?;
        let next =
            async { tokio::time::timeout(timeout.0, async { checks.lock().await.next().await }).await };
        Ok(match wait(py, runtime, next)? {
            Ok(Some(check)) => {
                let namespace = producer.client().namespace().clone();
                (Some(Check { check, namespace }), true)
            }
            Ok(None) => (None, false),
            Err(_elapsed) => (None, true),
        })
    }

    /// Answers a question.
    fn answer(&self, py: Python<'_>, check: &Check, commit: bool) -> PyResult<()> {
        let (producer, runtime, _) = self.running.get()?;
        wait(py, runtime, producer.answer_check(&check.check, of(commit)))?.map_err(raise)
    }
}

/// A question.
#[pyclass(module = "rocketpy._rocketpy", frozen)]
pub(crate) struct Check {
    check: TransactionCheck,
    namespace: Namespace,
}

#[pymethods]
impl Check {
    /// The message as it would be delivered.
    #[getter]
    fn message(&self) -> ReceivedMessage {
        let (record, queue) = self.check.parts();
        let shown = Shown { namespace: self.namespace.clone(), ..Shown::default() };
        let decoding = Decoding::new(DecompressLimits::MESSAGE, None);
        ReceivedMessage::new(record, Origin::shown_as(queue, decoding, shown))
    }

    /// Lets the broker ask for the message again. A traceback may keep this object for longer.
    fn done(&self) {
        self.check.done();
    }
}

fn of(commit: bool) -> TransactionEnd {
    if commit { TransactionEnd::Commit } else { TransactionEnd::Rollback }
}

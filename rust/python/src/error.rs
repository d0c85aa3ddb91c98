//! From the errors of the crates below to the classes of `rocketpy.errors`.

mod client;
mod data;

use std::io;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rocketpy_model::printable::printable;
use rocketpy_model::{NameError, PropertyError};

/// The facts of a failure that Python gets.
pub(crate) struct Facts {
    /// Name of the class in `rocketpy.errors`.
    pub(crate) class: &'static str,
    pub(crate) message: String,
    pub(crate) code: Option<i32>,
    pub(crate) retryable: bool,
    pub(crate) may_have_been_applied: bool,
    pub(crate) hint: Option<String>,
    /// Of a send: the unique key of its message, and the broker of the last attempt.
    pub(crate) msg_id: Option<String>,
    pub(crate) broker: Option<Arc<str>>,
}

impl Facts {
    pub(crate) fn new(class: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            class,
            message,
            code: None,
            retryable: false,
            may_have_been_applied: false,
            hint: None,
            msg_id: None,
            broker: None,
        }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Escapes the control characters of what a peer or a file chose.
    pub(crate) fn printable(self) -> Self {
        let escaped = |text: &str| printable(text).into_owned();
        Self { message: escaped(&self.message), hint: self.hint.as_deref().map(escaped), ..self }
    }

    /// As [`Self::printable`], of a message that is several lines on purpose.
    pub(crate) fn printable_lines(self) -> Self {
        let lines: Vec<_> = self.message.split('\n').map(printable).collect();
        Self { message: lines.join("\n"), ..self }
    }

    /// The Python error. If making it fails (a module cannot be imported), that error is returned instead.
    pub(crate) fn raise(self) -> PyErr {
        Python::attach(|py| self.instance(py).map_or_else(|error| error, PyErr::from_value))
    }

    fn instance(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let class = py.import("rocketpy.errors")?.getattr(self.class)?;
        let facts = PyDict::new(py);
        facts.set_item("code", self.code)?;
        facts.set_item("retryable", self.retryable)?;
        facts.set_item("may_have_been_applied", self.may_have_been_applied)?;
        facts.set_item("hint", self.hint)?;
        facts.set_item("msg_id", self.msg_id)?;
        facts.set_item("broker", self.broker.as_deref())?;
        class.call((self.message,), Some(&facts))
    }
}

/// An error of a crate below that has a class in Python.
pub(crate) trait Raise {
    fn facts(&self) -> Facts;
}

/// Turns an error of a crate below into the Python error.
pub(crate) fn raise<E: Raise>(error: E) -> PyErr {
    error.facts().raise()
}

/// Response code for a message that breaks the rules.
const MESSAGE_ILLEGAL: i32 = 13;

impl Raise for NameError {
    fn facts(&self) -> Facts {
        Facts::new("InvalidArgumentError", self.to_string())
    }
}

impl Raise for PropertyError {
    fn facts(&self) -> Facts {
        let facts =
            Facts { code: Some(MESSAGE_ILLEGAL), ..Facts::new("InvalidArgumentError", self.to_string()) };
        match self {
            Self::Reserved { .. } => facts.hint("tag, keys and order_key are arguments of their own"),
            _ => facts,
        }
    }
}

/// An argument breaks a rule that only the Python module has.
pub(crate) fn invalid(message: impl Into<String>) -> PyErr {
    Facts::new("InvalidArgumentError", message).raise()
}

/// As [`invalid`], with the hint of another error.
pub(crate) fn invalid_with(message: String, hint: Option<String>) -> PyErr {
    Facts { hint, ..Facts::new("InvalidArgumentError", message) }.raise()
}

/// A text that has a lone surrogate.
pub(crate) fn not_unicode(what: &str, text: &Bound<'_, PyAny>) -> PyErr {
    let shown = text.repr().map_or_else(|_| String::new(), |repr| repr.to_string_lossy().into_owned());
    Facts::new("InvalidArgumentError", format!("{what} is not valid Unicode: {shown}"))
        .hint("decode bytes with their charset, or replace invalid bytes: data.decode(errors=\"replace\")")
        .raise()
}

/// A call on something that is closed or used up.
pub(crate) fn closed(message: impl Into<String>) -> PyErr {
    Facts::new("ClosedError", message).raise()
}

/// An internal failure, which should not happen.
pub(crate) fn internal(message: impl Into<String>) -> PyErr {
    Facts::new("RocketPyError", message).raise()
}

/// An object of the parent process, used in a forked child.
pub(crate) fn forked(made_by: u32, current: u32) -> PyErr {
    let message = format!(
        "made by process {made_by} before os.fork(), it cannot be used in the child, process: {current}"
    );
    Facts::new("ForkedError", message).hint("make clients and servers after the fork, in the child").raise()
}

pub(crate) fn no_threads(cause: &io::Error) -> PyErr {
    let facts = Facts::new("RocketPyError", format!("the system gives no thread: {cause}"));
    Facts { retryable: true, ..facts }.raise()
}

/// The system gives no descriptor for an event loop to watch.
pub(crate) fn no_bell(cause: &io::Error) -> PyErr {
    let facts = Facts::new("RocketPyError", format!("no descriptor for the event loop to watch: {cause}"));
    Facts { retryable: true, ..facts }.hint("`ulimit -n` shows how many files a process may open").raise()
}

pub(crate) fn panicked(name: &str) -> PyErr {
    Facts::new("RocketPyError", format!("a thread ended without a result, its name: {name}")).raise()
}

/// The messages have their outcome, but callbacks of their futures are still running.
pub(crate) fn slow_callbacks() -> PyErr {
    let facts = Facts::new("RequestTimeoutError", "callbacks of futures were still running at the timeout");
    Facts { retryable: true, may_have_been_applied: true, ..facts }.raise()
}

pub(crate) fn wait_in_callback() -> PyErr {
    let message =
        "a callback of a future cannot wait for another future of its producer: its thread completes both";
    let hint = "wait in another thread, or add a callback to the other future";
    Facts::new("NotSupportedError", message).hint(hint).raise()
}

pub(crate) fn bad_duration(given: &Bound<'_, PyAny>) -> PyErr {
    invalid(format!("{A_DURATION} must be from 0 s to 100 years, given: {given}"))
}

/// What the value of an option is called before the option is known.
pub(crate) const A_DURATION: &str = "a duration";

pub(crate) fn not_a_duration(value: &Bound<'_, PyAny>) -> PyErr {
    wrong_type(A_DURATION, "a number of seconds or a timedelta", value)
}

/// Something else was given where a message to send belongs.
pub(crate) fn not_a_message(what: &str, given: &Bound<'_, PyAny>) -> PyErr {
    wrong_type(what, "a rocketpy.Message, made by rocketpy.Message(topic, body)", given)
}

/// A `TypeError` that names the wanted and the given type.
pub(crate) fn wrong_type(what: &str, wanted: &str, given: &Bound<'_, PyAny>) -> PyErr {
    let name = given.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("{what} must be {wanted}, not {name}"))
}

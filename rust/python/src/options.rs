//! Keyword options: read by name, checked by type, none left over.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyUnicodeEncodeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};

use crate::duration::Seconds;
use crate::error;

/// The `**options` of a constructor.
pub(crate) struct Options<'py> {
    /// The class, for messages.
    class: &'static str,
    given: Option<Bound<'py, PyDict>>,
    known: Vec<&'static str>,
}

impl<'py> Options<'py> {
    pub(crate) fn new(class: &'static str, given: Option<&Bound<'py, PyDict>>) -> Self {
        Self { class, given: given.cloned(), known: Vec::new() }
    }

    /// The value of one option, if given.
    ///
    /// # Errors
    /// `TypeError` for another type, `InvalidArgumentError` for a value out of range; both name the option.
    pub(crate) fn take<T>(&mut self, name: &'static str) -> PyResult<Option<T>>
    where
        T: for<'a> FromPyObject<'a, 'py>,
    {
        self.known.push(name);
        let Some(given) = &self.given else { return Ok(None) };
        let Some(value) = given.get_item(name)? else { return Ok(None) };
        value.extract().map(Some).map_err(|error: T::Error| named(name, &value, error.into(), None))
    }

    /// As [`take`](Self::take), for a plain type: `wanted` says which, for the error.
    pub(crate) fn take_plain<T>(&mut self, name: &'static str, wanted: &str) -> PyResult<Option<T>>
    where
        T: for<'a> FromPyObject<'a, 'py>,
    {
        let Some(value) = self.take::<Bound<'py, PyAny>>(name)? else { return Ok(None) };
        value.extract().map(Some).map_err(|error: T::Error| named(name, &value, error.into(), Some(wanted)))
    }

    /// A text, if given and not None.
    pub(crate) fn take_text(&mut self, name: &'static str) -> PyResult<Option<String>> {
        self.take_plain::<Option<String>>(name, "a str").map(Option::flatten)
    }

    /// A switch, if given.
    pub(crate) fn take_bool(&mut self, name: &'static str) -> PyResult<Option<bool>> {
        self.take_plain(name, "True or False")
    }

    /// Puts a whole number into a setting, if given.
    pub(crate) fn set_int<T>(&mut self, name: &'static str, setting: &mut T) -> PyResult<()>
    where
        T: for<'a> FromPyObject<'a, 'py>,
    {
        let Some(value) = self.take::<Bound<'py, PyAny>>(name)? else { return Ok(()) };
        if value.is_instance_of::<PyBool>() {
            return Err(error::wrong_type(&format!("option {name}"), "an int", &value));
        }
        *setting =
            value.extract().map_err(|error: T::Error| named(name, &value, error.into(), Some("an int")))?;
        Ok(())
    }

    /// As [`set_int`](Self::set_int), for a switch.
    pub(crate) fn set_bool(&mut self, name: &'static str, setting: &mut bool) -> PyResult<()> {
        if let Some(value) = self.take_bool(name)? {
            *setting = value;
        }
        Ok(())
    }

    /// As [`set_int`](Self::set_int), for a duration.
    pub(crate) fn set_duration(
        &mut self,
        name: &'static str,
        setting: &mut std::time::Duration,
    ) -> PyResult<()> {
        if let Some(Seconds(value)) = self.take(name)? {
            *setting = value;
        }
        Ok(())
    }

    /// Checks that every given option was taken.
    ///
    /// # Errors
    /// `TypeError` that names the unknown option, the one most like it, and those that exist.
    pub(crate) fn finish(mut self) -> PyResult<()> {
        let Some(given) = &self.given else { return Ok(()) };
        self.known.push("name_servers"); // an argument of every class that has options
        for name in given.keys() {
            let name = name.cast::<PyString>()?.to_str()?;
            if !self.known.contains(&name) {
                let similar = did_you_mean(given.py(), name, &self.known)?;
                let known = self.known.join(", ");
                return Err(PyTypeError::new_err(format!(
                    "{} has no option {name:?}{similar}; it has: {known}",
                    self.class
                )));
            }
        }
        Ok(())
    }
}

/// In every error for a value of another type.
const MUST_BE: &str = "must be ";

/// A clause that suggests the known name for an unknown one: what it is called here, or the name most like it. Empty without
/// one.
pub(crate) fn did_you_mean(py: Python<'_>, name: &str, known: &[&str]) -> PyResult<String> {
    py.import("rocketpy.base.similar")?.call_method1("did_you_mean", (name, known.to_vec()))?.extract()
}

/// `__getattr__` of a class: the error for a missing attribute, with the name or advice for it. Probes of Python itself, such as
/// `__deepcopy__`, get the plain error.
pub(crate) fn missing_attribute(owner: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> PyResult<Py<PyAny>> {
    let py = owner.py();
    let found = if name.to_str().is_ok_and(|name| name.starts_with('_')) {
        py.get_type::<PyAny>().call_method1(intern!(py, "__getattribute__"), (owner, name))
    } else {
        py.import("rocketpy.base.misuse")?.call_method1("explained_attribute", (owner, name))
    };
    found.map(Bound::unbind)
}

/// Names the option in the error of its value. `wanted`: what a plain type has to be.
fn named(name: &str, value: &Bound<'_, PyAny>, error: PyErr, wanted: Option<&str>) -> PyErr {
    let py = value.py();
    if error.is_instance_of::<PyOverflowError>(py) {
        return error::invalid(format!("option {name} is out of range: {value}"));
    }
    if error.is_instance_of::<PyUnicodeEncodeError>(py) {
        return error::not_unicode(&format!("option {name}"), value);
    }
    if !error.is_instance_of::<PyTypeError>(py) {
        // What is wrong with a duration, the option says.
        if let Some(wrong) = error.value(py).to_string().strip_prefix(error::A_DURATION) {
            return error::invalid(format!("option {name}{wrong}"));
        }
        return error;
    }
    if let Some(wanted) = wanted {
        return error::wrong_type(&format!("option {name}"), wanted, value);
    }
    let text = error.value(py).to_string();
    // What the type says of itself, such as "a duration must be a number of seconds", the option says.
    PyTypeError::new_err(match text.split_once(MUST_BE) {
        Some((_, rest)) => format!("option {name} {MUST_BE}{rest}"),
        None => format!("option {name}: {text}"),
    })
}

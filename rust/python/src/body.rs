//! Bodies of messages: taken from Python, and read as text and as JSON by `rocketpy.codec`.

use bytes::Bytes;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::error::{self, raise};

/// Copies the body out of any bytes-like object.
pub(crate) fn bytes(body: &Bound<'_, PyAny>, topic: &str) -> PyResult<Bytes> {
    let bytes = if let Ok(bytes) = body.cast::<PyBytes>() {
        Bytes::copy_from_slice(bytes.as_bytes())
    } else if body.is_instance_of::<PyString>() {
        return Err(error::wrong_type("body", "bytes (encode the text: text.encode())", body));
    } else {
        let buffer = PyBuffer::<u8>::get(body).map_err(|_not_bytes| not_bytes(body))?;
        Bytes::from(buffer.to_vec(body.py())?)
    };
    if bytes.is_empty() {
        Err(raise(rocketpy_client::ClientError::EmptyBody { topic: topic.to_owned() }))
    } else {
        Ok(bytes)
    }
}

fn not_bytes(body: &Bound<'_, PyAny>) -> PyErr {
    let is_value = body.is_instance_of::<PyDict>() || body.is_instance_of::<PyList>();
    let wanted = match is_value || body.hasattr("__dataclass_fields__").unwrap_or(false) {
        true => "bytes (encode the value as JSON: rocketpy.codec.JsonCodec().encode(value))",
        false => "bytes, bytearray or another contiguous buffer of bytes",
    };
    error::wrong_type("body", wanted, body)
}

/// The body of a message as text.
///
/// # Errors
/// `DecodeError`: it is not UTF-8.
pub(crate) fn text<'py>(message: &Bound<'py, PyAny>, body: &[u8]) -> PyResult<Bound<'py, PyString>> {
    let py = message.py();
    match str::from_utf8(body) {
        Ok(text) => Ok(PyString::new(py, text)),
        Err(error) => {
            let place = error.valid_up_to();
            Err(PyErr::from_value(py.import("rocketpy.codec")?.call_method1("not_text", (message, place))?))
        }
    }
}

/// The value that the body of a message holds as JSON.
///
/// # Errors
/// `DecodeError`: it is not JSON.
pub(crate) fn json<'py>(message: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    message.py().import("rocketpy.codec")?.call_method1("json_value", (message,))
}

//! A message to send.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMapping, PyString, PyTuple};
use rocketpy_model::{Later, Message, Properties, property};

use crate::duration::Seconds;
use crate::error::{self, raise};
use crate::number::within;
use crate::options::{did_you_mean, missing_attribute};
use crate::{body, buffer, untracked};

/// Whether a property belongs to clients and brokers: no message may set it.
#[pyfunction]
pub(crate) fn is_reserved_property(name: &str) -> bool {
    property::is_reserved(name)
}

/// The keys in the stored text of keys: only U+0020 separates them.
#[pyfunction]
pub(crate) fn split_keys(text: &str) -> Vec<&str> {
    property::split_keys(text).collect()
}

/// A message that copies a stored one, with its properties as stored: rules of new messages do not apply.
///
/// # Errors
/// `InvalidArgumentError` for an invalid topic, or properties that no message can have stored.
#[pyfunction]
pub(crate) fn message_copy<'py>(
    py: Python<'py>,
    topic: &str,
    body: &[u8],
    flag: i32,
    properties: Vec<(String, String)>,
) -> PyResult<Bound<'py, PyMessage>> {
    rocketpy_model::name::check_topic(topic).map_err(raise)?;
    let mut message = Message { flag, is_copy: true, ..Message::new(topic, Bytes::copy_from_slice(body)) };
    for (name, value) in properties {
        message.properties.set_stored(name, value).map_err(raise)?;
    }
    untracked::new(py, PyMessage { message: Arc::new(message) })
}

/// A message to send: immutable, cheap to create, and reusable for many sends.
///
/// Args:
///     topic: Target topic: up to 127 characters of `a-z A-Z 0-9 _ - % |`.
///     body: Body, from 1 byte to 4 MiB: bytes, or any other buffer of bytes, which is copied.
///     tag: One word by which consumers filter messages; default None. It must not be `*`, contain `||` or have blanks
///         around it, because no subscription could name it.
///     keys: One or several words by which tools find the message; default None.
///     order_key: Text that selects the queue: messages with the same order key stay in order. Default None.
///     properties: Further texts by name; default None. Names reserved for the system are refused. The send refuses a
///         transaction with `NotSupportedError`.
///     flag: 32-bit number for applications; default 0.
///     wait_store_ok: Whether the acknowledgement waits for the flush, where the broker or the topic flushes before it
///         acknowledges (SYNC_FLUSH); default True. With False a power cut right after the acknowledgement may lose the
///         message.
///     delay_level: Delay level of the broker, from 1 (1 s) to 18 (2 h); default None. At most one of `delay_level`,
///         `deliver_at` and `delay` may be given; a message with one of them is sent in a separate request.
///     deliver_at: Delivery time: a datetime (local without a time zone) or seconds since 1970; default None. Requires
///         a broker with timer messages; a broker without them refuses the send.
///     delay: Delay of the delivery: seconds or a timedelta; default None. Requires timer messages, as `deliver_at`.
///
/// Raises:
///     InvalidArgumentError: A name or a value is invalid.
///     TypeError: An argument has another type.
///
/// Examples:
///     >>> Message("flights", b"UA1545 EWR-IAH", tag="UA", keys=["N14228", "UA1545"], order_key="N14228").keys
///     ('N14228', 'UA1545')
#[pyclass(name = "Message", module = "rocketpy", frozen, eq, hash)]
#[derive(PartialEq, Eq)]
pub(crate) struct PyMessage {
    message: Arc<Message>,
}

impl Hash for PyMessage {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.message.topic.hash(state);
        self.message.body.hash(state);
    }
}

/// The positional and the named arguments of a message.
type NewArguments<'a, 'py> = ((&'a str, Bound<'py, PyBytes>), Bound<'py, PyDict>);

/// Room for the names of tag, keys and order key, their separators, and keys of usual length.
const NAMES_BYTES: usize = 64;

/// A message lent to a send that may outlive the call. It keeps the message alive without the interpreter lock.
pub(crate) struct Lent(Arc<Message>);

impl Borrow<Message> for Lent {
    fn borrow(&self) -> &Message {
        &self.0
    }
}

/// A message given by Python.
pub(crate) struct MessageArgument<'a, 'py>(Borrowed<'a, 'py, PyMessage>);

impl<'a, 'py> FromPyObject<'a, 'py> for MessageArgument<'a, 'py> {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        value.cast().map(Self).map_err(|_not_one| error::not_a_message("message", &value))
    }
}

impl MessageArgument<'_, '_> {
    pub(crate) fn get(&self) -> &PyMessage {
        self.0.get()
    }
}

impl PyMessage {
    pub(crate) fn lend(&self) -> Lent {
        Lent(Arc::clone(&self.message))
    }

    /// The message, shared with a send that outlives the call.
    pub(crate) fn share(&self) -> Arc<Message> {
        Arc::clone(&self.message)
    }

    pub(crate) fn message(&self) -> &Message {
        &self.message
    }
}

#[pymethods]
impl PyMessage {
    #[new]
    #[pyo3(
        signature = (
            topic, body, *, tag=None, keys=None, order_key=None, properties=None, flag=None, wait_store_ok=true,
            delay_level=None, deliver_at=None, delay=None, **unknown
        ),
        text_signature = "(topic, body, *, tag=None, keys=None, order_key=None, properties=None, flag=None, \
                          wait_store_ok=True, delay_level=None, deliver_at=None, delay=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "named by the caller")]
    fn new(
        topic: &Bound<'_, PyAny>,
        body: &Bound<'_, PyAny>,
        tag: Option<&Bound<'_, PyAny>>,
        keys: Option<&Bound<'_, PyAny>>,
        order_key: Option<&Bound<'_, PyAny>>,
        properties: Option<&Bound<'_, PyAny>>,
        flag: Option<&Bound<'_, PyAny>>,
        wait_store_ok: bool,
        delay_level: Option<&Bound<'_, PyAny>>,
        deliver_at: Option<&Bound<'_, PyAny>>,
        delay: Option<&Bound<'_, PyAny>>,
        unknown: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<Self>> {
        if let Some(unknown) = unknown {
            return Err(unknown_argument(unknown)?);
        }
        let topic = text("topic", topic)?;
        let tag = tag.map(|tag| text("tag", tag)).transpose()?;
        let order_key = order_key.map(|key| text("order_key", key)).transpose()?;
        let range = i64::from(i32::MIN)..=i64::from(i32::MAX);
        let flag = flag.map_or(Ok(0), |flag| within("flag", flag, range))? as i32;
        rocketpy_model::name::check_topic(topic).map_err(raise)?;
        let mut message = Message { flag, ..Message::new(topic, body::bytes(body, topic)?) };
        if tag.is_some() || keys.is_some() || order_key.is_some() {
            let texts = tag.map_or(0, str::len) + order_key.map_or(0, str::len);
            message.properties = Properties::with_capacity(texts + NAMES_BYTES);
        }
        if let Some(properties) = properties {
            let wrong = |_not_one| error::wrong_type("properties", "a dict of str by name", properties);
            set_properties(&mut message, properties.cast().map_err(wrong)?)?;
        }
        if let Some(tag) = tag {
            rocketpy_client::check_tag(tag).map_err(raise)?;
            message.set_tag(tag).map_err(raise)?;
        }
        if let Some(keys) = keys
            && let Some(keys) = joined_keys(keys)?
        {
            message.properties.set(property::KEYS, keys).map_err(raise)?;
        }
        if let Some(order_key) = order_key {
            message.set_order_key(order_key).map_err(raise)?;
        }
        if !wait_store_ok {
            message.properties.set(property::WAIT, "false").map_err(raise)?;
        }
        if let Some(later) = later(delay_level, deliver_at, delay)? {
            message.set_later(later);
        }
        untracked::new(body.py(), Self { message: Arc::new(message) }).map(Bound::unbind)
    }

    /// Target topic.
    #[getter]
    fn topic(&self) -> &str {
        &self.message.topic
    }

    /// Body in bytes; copied on each access.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.message.body)
    }

    /// Body as a read-only memoryview of bytes, not copied.
    #[getter]
    fn body_view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        buffer::view(py, self.message.body.clone())
    }

    /// The body as text in UTF-8, decoded on each access.
    ///
    /// Raises:
    ///     DecodeError: The body is not UTF-8.
    #[getter]
    fn text<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyString>> {
        body::text(slf.as_any(), &slf.get().message.body)
    }

    /// The value that the body holds as JSON, decoded on each call.
    ///
    /// Raises:
    ///     DecodeError: The body is not JSON.
    fn json<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        body::json(slf.as_any())
    }

    /// Tag by which consumers filter messages; None without one.
    #[getter]
    fn tag(&self) -> Option<&str> {
        self.message.tag()
    }

    /// Keys by which tools find the message; empty without any.
    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.message.keys().collect::<Vec<_>>())
    }

    /// Order key, which selects the queue; None without one.
    #[getter]
    fn order_key(&self) -> Option<&str> {
        self.message.order_key()
    }

    /// Properties of the application, as a new dict by name.
    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let properties = PyDict::new(py);
        for (name, value) in self.message.properties.iter().filter(|(name, _)| !is_argument(name)) {
            properties.set_item(name, value)?;
        }
        Ok(properties)
    }

    /// 32-bit number of the application.
    #[getter]
    fn flag(&self) -> i32 {
        self.message.flag
    }

    /// Whether the acknowledgement waits for the flush, where the broker or the topic flushes before it acknowledges.
    #[getter]
    fn wait_store_ok(&self) -> bool {
        self.message.properties.get(property::WAIT) != Some("false")
    }

    /// Delay level of the broker, from 1 to 18; None without one.
    #[getter]
    fn delay_level(&self) -> Option<u8> {
        match self.message.later()? {
            Later::Level(level) => Some(level),
            _ => None,
        }
    }

    /// Delivery time, in seconds since 1970 UTC; None without one.
    #[getter]
    fn deliver_at(&self) -> Option<f64> {
        match self.message.later()? {
            Later::AtMs(at_ms) => Some(at_ms as f64 / 1000.0),
            _ => None,
        }
    }

    /// Delay of the delivery, in seconds; None without one.
    #[getter]
    fn delay(&self) -> Option<f64> {
        match self.message.later()? {
            Later::AfterMs(after_ms) => Some(after_ms as f64 / 1000.0),
            _ => None,
        }
    }

    /// The error for a missing attribute names the one that other clients call so.
    fn __getattr__(slf: &Bound<'_, Self>, name: &Bound<'_, PyString>) -> PyResult<Py<PyAny>> {
        missing_attribute(slf.as_any(), name)
    }

    fn __len__(&self) -> usize {
        self.message.body.len()
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        let mut text = format!("Message({:?}, <{} bytes>", self.message.topic, self.message.body.len());
        for (name, value) in self.message.properties.iter() {
            text.push_str(&format!(", {name}={value:?}"));
        }
        text + ")"
    }

    /// What pickle and copy need to make the message again.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<NewArguments<'_, 'py>> {
        let named = PyDict::new(py);
        named.set_item("tag", self.tag())?;
        named.set_item("keys", self.keys(py)?)?;
        named.set_item("order_key", self.order_key())?;
        named.set_item("properties", self.properties(py)?)?;
        named.set_item("flag", self.flag())?;
        named.set_item("wait_store_ok", self.wait_store_ok())?;
        named.set_item("delay_level", self.delay_level())?;
        named.set_item("deliver_at", self.deliver_at())?;
        named.set_item("delay", self.delay())?;
        Ok(((self.topic(), self.body(py)), named))
    }
}

fn text<'a>(what: &str, value: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    let text = value.cast::<PyString>().map_err(|_not_one| error::wrong_type(what, "a str", value))?;
    unicode(what, text)
}

/// The characters of a text.
///
/// # Errors
/// `InvalidArgumentError` for a lone surrogate, which Python makes of a byte that is not text (`os.fsdecode`).
fn unicode<'a>(what: &str, text: &'a Bound<'_, PyString>) -> PyResult<&'a str> {
    text.to_str().map_err(|_lone_surrogate| error::not_unicode(what, text))
}

/// The arguments of a message that are named.
const NAMED: [&str; 9] =
    ["tag", "keys", "order_key", "properties", "flag", "wait_store_ok", "delay_level", "deliver_at", "delay"];

/// The highest delay level of a broker's table.
const LEVELS: i64 = 18;

/// When a message is delivered.
///
/// # Errors
/// More than one is given, or one is out of its range.
fn later(
    level: Option<&Bound<'_, PyAny>>,
    at: Option<&Bound<'_, PyAny>>,
    after: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<Later>> {
    Ok(Some(match (level, at, after) {
        (None, None, None) => return Ok(None),
        (Some(level), None, None) => Later::Level(within("delay_level", level, 1..=LEVELS)? as u8),
        (None, Some(at), None) => {
            let instant_ms = at.py().import("rocketpy.base.instant")?.getattr("instant_ms")?;
            match instant_ms
                .call1((at,))
                .map_err(|error| of_argument("deliver_at", error, at.py()))?
                .extract()?
            {
                at_ms @ 0.. => Later::AtMs(at_ms),
                _ => return Err(error::invalid(format!("deliver_at must not be before 1970: {at}"))),
            }
        }
        (None, None, Some(after)) => {
            let Seconds(after) = after.extract().map_err(|error| of_argument("delay", error, after.py()))?;
            Later::AfterMs(after.as_millis() as u64)
        }
        _ => return Err(error::invalid("give at most one of delay_level, deliver_at and delay")),
    }))
}

/// Names the argument in the error of its value.
fn of_argument(name: &str, error: PyErr, py: Python<'_>) -> PyErr {
    let value = error.value(py);
    match value.getattr("hint").and_then(|hint| hint.extract::<Option<String>>()) {
        Ok(hint) => error::invalid_with(format!("{name}: {value}"), hint),
        Err(_another_class) => error,
    }
}

/// The error for arguments that a message does not have; it suggests the one most like the first of them.
fn unknown_argument(unknown: &Bound<'_, PyDict>) -> PyResult<PyErr> {
    let mut names = unknown.keys().iter();
    let name = names.next().map_or(Ok(String::new()), |name| name.extract())?;
    let similar = did_you_mean(unknown.py(), &name, &NAMED)?;
    let known = NAMED.join(", ");
    Ok(PyTypeError::new_err(format!("Message has no argument {name:?}{similar}; it has: {known}")))
}

/// True for the properties that are arguments of their own.
fn is_argument(name: &str) -> bool {
    matches!(
        name,
        property::TAGS
            | property::KEYS
            | property::SHARDING_KEY
            | property::WAIT
            | property::DELAY
            | property::TIMER_DELAY_MS
            | property::TIMER_DELIVER_MS
    )
}

fn set_properties(message: &mut Message, properties: &Bound<'_, PyMapping>) -> PyResult<()> {
    for item in properties.items()?.iter() {
        let (name, value) = item.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
        let name =
            name.cast::<PyString>().map_err(|_not| error::wrong_type("a property name", "str", &name))?;
        let value =
            value.cast::<PyString>().map_err(|_not| error::wrong_type("a property value", "str", &value))?;
        let name = unicode("a property name", name)?;
        let value = unicode(&format!("property {name}"), value)?;
        // The send refuses these by the name of what they ask for.
        let set = if rocketpy_client::unsupported_feature(name, value).is_some() {
            message.properties.set(name, value)
        } else {
            message.properties.set_user(name, value)
        };
        set.map_err(raise)?;
    }
    Ok(())
}

/// Keys as they are stored: joined by spaces. `None` for no keys.
///
/// # Errors
/// A key that is empty or has a space, which would come back as two.
fn joined_keys(keys: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if let Ok(key) = keys.cast::<PyString>() {
        return checked_key(key).map(|key| Some(key.to_owned()));
    }
    if keys.is_instance_of::<PyBytes>() {
        return Err(wrong_keys(keys));
    }
    let mut joined = String::with_capacity(NAMES_BYTES);
    let mut add = |key: Bound<'_, PyAny>| -> PyResult<()> {
        let key = key.cast::<PyString>().map_err(|_not| error::wrong_type("a key", "str", &key))?;
        if !joined.is_empty() {
            joined.push_str(property::KEY_SEPARATOR);
        }
        joined.push_str(checked_key(key)?);
        Ok(())
    };
    if let Ok(list) = keys.cast::<PyList>() {
        list.iter().try_for_each(add)?;
    } else {
        keys.try_iter().map_err(|_not| wrong_keys(keys))?.try_for_each(|key| add(key?))?;
    }
    Ok((!joined.is_empty()).then_some(joined))
}

fn wrong_keys(given: &Bound<'_, PyAny>) -> PyErr {
    error::wrong_type("keys", "str or an iterable of str", given)
}

fn checked_key<'a>(key: &'a Bound<'_, PyString>) -> PyResult<&'a str> {
    let key = unicode("a key", key)?;
    if key.is_empty() || key.contains(property::KEY_SEPARATOR) {
        return Err(error::invalid(format!(
            "a key must not be empty or contain a space, which separates keys: {key:?}"
        )));
    }
    Ok(key)
}

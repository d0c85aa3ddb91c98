//! A message that was received or read from a store.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};
use rocketpy_client::Namespace;
use rocketpy_model::{MessageQueue, in_calendar, property};
use rocketpy_protocol::compression::DecompressLimits;
use rocketpy_protocol::properties_text;
use rocketpy_protocol::record::RecordView;

use crate::convert::ToPython;
use crate::error::raise;
use crate::options::missing_attribute;
use crate::{body, buffer};

/// The queue that messages of one pull answer came from; its Python object is made once.
pub(crate) struct Origin {
    queue: Arc<MessageQueue>,
    object: PyOnceLock<Py<PyAny>>,
    decoding: Decoding,
    shown: Shown,
}

/// How messages become values.
#[derive(Clone)]
pub(crate) struct Decoding {
    /// Limits of decompressed bodies.
    pub(crate) limits: DecompressLimits,
    /// A function of a message; without it the value is the body.
    decode: Option<Arc<Py<PyAny>>>,
}

impl Decoding {
    pub(crate) const fn new(limits: DecompressLimits, decode: Option<Arc<Py<PyAny>>>) -> Self {
        Self { limits, decode }
    }
}

/// What is shown other than the record says it.
#[derive(Clone, Default)]
pub(crate) struct Shown {
    /// What names of topics are shown without.
    pub(crate) namespace: Namespace,
    /// Of a message that was sent back the topic that it was sent to.
    pub(crate) origin_topic: bool,
    /// How many more times it was tried than the record says.
    pub(crate) tries: i32,
}

impl Origin {
    pub(crate) fn new(queue: Arc<MessageQueue>) -> Arc<Self> {
        Self::shown_as(queue, Decoding::new(DecompressLimits::MESSAGE, None), Shown::default())
    }

    pub(crate) fn shown_as(queue: Arc<MessageQueue>, decoding: Decoding, shown: Shown) -> Arc<Self> {
        let queue = match shown.namespace.is_none() {
            true => queue,
            false => Arc::new(shown.namespace.strip_queue(&queue).into_owned()),
        };
        Arc::new(Self { queue, object: PyOnceLock::new(), decoding, shown })
    }
}

/// The function that restores a message, and its arguments: the record's bytes, the broker's name, `max_body_bytes`, how many more
/// times a handler's message was tried than the record says, the namespace, and the function that decodes the value.
type Restored<'py> = (
    Bound<'py, PyAny>,
    (Bound<'py, PyBytes>, String, Option<usize>, Option<i32>, Option<String>, Option<Bound<'py, PyAny>>),
);

/// A message that was received or read from a store, decoded on access.
///
/// The message shares the bytes of the pull answer, by default at most 1 MiB, and keeps them alive: keep the needed
/// values rather than the message. Every attribute raises `DamagedDataError` if the record is damaged.
#[pyclass(name = "ReceivedMessage", module = "rocketpy", frozen, generic)]
pub(crate) struct ReceivedMessage {
    record: Bytes,
    origin: Arc<Origin>,
    /// The body, if it was decompressed before. In a box, because most messages have none.
    body: Option<Box<Bytes>>,
}

impl ReceivedMessage {
    pub(crate) fn new(record: Bytes, origin: Arc<Origin>) -> Self {
        Self { record, origin, body: None }
    }

    /// Keeps the body that was decompressed.
    pub(crate) fn with_body(self, body: Option<Bytes>) -> Self {
        Self { body: body.map(Box::new), ..self }
    }

    /// The body as it was sent. Decompresses, if need be, without the interpreter lock.
    fn plain_body(&self, py: Python<'_>) -> PyResult<Bytes> {
        if let Some(body) = &self.body {
            return Ok((**body).clone());
        }
        let view = self.view()?;
        if matches!(view.compression(), Ok(None)) {
            return Ok(self.record.slice_ref(view.body));
        }
        let body = py.detach(|| view.plain_body(&self.origin.decoding.limits)).map_err(raise)?;
        Ok(body.into_owned().into())
    }

    pub(crate) fn view(&self) -> PyResult<RecordView<'_>> {
        RecordView::parse(&self.record).map_err(raise)
    }

    /// The record's bytes.
    pub(crate) fn record(&self) -> &Bytes {
        &self.record
    }
}

#[pymethods]
impl ReceivedMessage {
    /// Topic of the message.
    #[getter]
    fn topic(&self) -> PyResult<Cow<'_, str>> {
        let view = self.view()?;
        let origin = self.origin.shown.origin_topic.then(|| view.property(property::RETRY_TOPIC)).flatten();
        Ok(self.origin.shown.namespace.strip(origin.unwrap_or(view.topic)))
    }

    /// The body, decompressed when it was compressed; copied on each access.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.plain_body(py)?))
    }

    /// The body as text in UTF-8, decoded on each access.
    ///
    /// Raises:
    ///     DecodeError: The body is not UTF-8.
    #[getter]
    fn text<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyString>> {
        body::text(slf.as_any(), &slf.get().plain_body(slf.py())?)
    }

    /// The value that the body holds as JSON, decoded on each call. A codec also checks its type.
    ///
    /// Raises:
    ///     DecodeError: The body is not JSON.
    fn json<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        body::json(slf.as_any())
    }

    /// The value decoded by the codec of the consumer, again on each access; the body without a codec. An undecodable body raises
    /// `DecodeError`.
    #[getter]
    fn value<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let this = slf.get();
        match &this.origin.decoding.decode {
            Some(decode) => decode.bind(slf.py()).call1((slf,)),
            None => Ok(this.body(slf.py())?.into_any()),
        }
    }

    /// The body as a read-only memoryview; nothing is copied unless it was compressed.
    #[getter]
    fn body_view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        buffer::view(py, self.plain_body(py)?)
    }

    /// Tag by which consumers filter messages; None without one.
    #[getter]
    fn tag(&self) -> PyResult<Option<Cow<'_, str>>> {
        Ok(self.view()?.property_lossy(property::TAGS))
    }

    /// Keys by which tools find the message; empty without any.
    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let keys = self.view()?.property_lossy(property::KEYS).unwrap_or_default();
        PyTuple::new(py, property::split_keys(&keys).collect::<Vec<_>>())
    }

    /// Order key, which selected the queue; None without one.
    #[getter]
    fn order_key(&self) -> PyResult<Option<Cow<'_, str>>> {
        Ok(self.view()?.property_lossy(property::SHARDING_KEY))
    }

    /// All properties, including those of the system, as a new dict. The last of two with one name counts; bytes that are not UTF-8
    /// become U+FFFD.
    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let properties = PyDict::new(py);
        let text = String::from_utf8_lossy(self.view()?.properties);
        for (name, value) in properties_text::iter(text.as_bytes()) {
            if name != property::CRC32 {
                properties.set_item(name, value)?;
            }
        }
        Ok(properties)
    }

    /// 32-bit number set by the sender.
    #[getter]
    fn flag(&self) -> PyResult<i32> {
        Ok(self.view()?.flag)
    }

    /// Queue of the message.
    #[getter]
    fn queue<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let origin = &self.origin;
        let object = origin.object.get_or_try_init(py, || origin.queue.to_python(py).map(Bound::unbind))?;
        Ok(object.bind(py).clone())
    }

    /// Number of the queue, from 0.
    #[getter]
    fn queue_id(&self) -> u32 {
        self.origin.queue.queue_id
    }

    /// Name of the broker of the queue.
    #[getter]
    pub(crate) fn broker_name(&self) -> &str {
        &self.origin.queue.broker_name
    }

    /// Queue offset of the message, from 0.
    #[getter]
    fn queue_offset(&self) -> PyResult<u64> {
        Ok(self.view()?.queue_offset.get())
    }

    /// Physical offset of the record in the commit log, in bytes.
    #[getter]
    fn physical_offset(&self) -> PyResult<u64> {
        Ok(self.view()?.physical_offset.get())
    }

    /// Time at which the message was created, by the sender's clock; None for a number before 1970 or after the year 9999.
    #[getter]
    fn born_at(&self) -> PyResult<Option<SystemTime>> {
        Ok(instant(self.view()?.born_at_ms))
    }

    /// Time at which the message was created, in milliseconds since 1970 UTC, as stored.
    #[getter]
    fn born_at_ms(&self) -> PyResult<i64> {
        Ok(self.view()?.born_at_ms)
    }

    /// Time at which the message was stored, by the broker's clock; None for a number before 1970 or after the year 9999.
    #[getter]
    fn stored_at(&self) -> PyResult<Option<SystemTime>> {
        Ok(instant(self.view()?.stored_at_ms))
    }

    /// Time at which the message was stored, in milliseconds since 1970 UTC, as stored.
    #[getter]
    fn stored_at_ms(&self) -> PyResult<i64> {
        Ok(self.view()?.stored_at_ms)
    }

    /// `host:port` of the sender.
    #[getter]
    fn born_host(&self) -> PyResult<String> {
        Ok(self.view()?.born_host.to_string())
    }

    /// Advertised `host:port` of the broker that stored the message.
    #[getter]
    fn store_host(&self) -> PyResult<String> {
        Ok(self.view()?.store_host.to_string())
    }

    /// Unique key set by the sender, or else the offset message id.
    #[getter]
    fn msg_id(&self) -> PyResult<String> {
        let view = self.view()?;
        let unique_key = view.property_lossy(property::UNIQUE_KEY);
        Ok(unique_key.map_or_else(|| view.offset_message_id().to_string(), Cow::into_owned))
    }

    /// Offset message id: store host and physical offset, in hexadecimal.
    #[getter]
    fn offset_msg_id(&self) -> PyResult<String> {
        Ok(self.view()?.offset_message_id().to_string())
    }

    /// Number of times that consumers sent the message back, from 0.
    #[getter]
    fn reconsume_times(&self) -> PyResult<i32> {
        Ok(self.view()?.reconsume_times.saturating_add(self.origin.shown.tries))
    }

    /// The error for a missing attribute names the one that other clients call so.
    fn __getattr__(slf: &Bound<'_, Self>, name: &Bound<'_, PyString>) -> PyResult<Py<PyAny>> {
        missing_attribute(slf.as_any(), name)
    }

    fn __repr__(&self) -> PyResult<String> {
        let view = self.view()?;
        let queue = &self.origin.queue;
        let mut text = format!(
            "ReceivedMessage({:?}, queue {} of {}, offset {}, <{} bytes>",
            self.topic()?,
            queue.queue_id,
            queue.broker_name,
            view.queue_offset,
            view.body.len()
        );
        for (label, name) in [("tag", property::TAGS), ("keys", property::KEYS)] {
            if let Some(value) = view.property_lossy(name) {
                // Writing to a String cannot fail.
                let _written = write!(text, ", {label}={value:?}");
            }
        }
        Ok(text + ")")
    }

    /// What pickle needs to restore the message in another process.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Restored<'py>> {
        let py = slf.py();
        let message = slf.get();
        let limits = message.origin.decoding.limits;
        let max_body_bytes = (limits != DecompressLimits::MESSAGE).then_some(limits.max_bytes);
        let restore = slf.get_type().getattr("_restore")?;
        let record = PyBytes::new(py, &message.record);
        let shown = &message.origin.shown;
        let tries = shown.origin_topic.then_some(shown.tries);
        let namespace = shown.namespace.name().map(str::to_owned);
        let decode = message.origin.decoding.decode.as_ref().map(|decode| decode.bind(py).clone());
        Ok((restore, (record, message.broker_name().to_owned(), max_body_bytes, tries, namespace, decode)))
    }

    /// Makes a message from a record's bytes, its broker's name, the largest body that its consumer accepts, a handler's tries, the
    /// namespace, and the function that decodes the value.
    #[staticmethod]
    #[pyo3(
        name = "_restore",
        signature = (record, broker_name, max_body_bytes=None, tries=None, namespace=None, decode=None)
    )]
    fn restore(
        record: &[u8],
        broker_name: &str,
        max_body_bytes: Option<usize>,
        tries: Option<i32>,
        namespace: Option<&str>,
        decode: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let (queue, size) = {
            let view = RecordView::parse(record).map_err(raise)?;
            (MessageQueue::new(view.topic, broker_name, view.queue_id), view.size())
        };
        let record = Bytes::copy_from_slice(&record[..size]);
        let limits = max_body_bytes.map_or(DecompressLimits::MESSAGE, DecompressLimits::up_to);
        let namespace = Namespace::new(namespace).map_err(raise)?;
        let shown = Shown { namespace, origin_topic: tries.is_some(), tries: tries.unwrap_or(0) };
        let decoding = Decoding::new(limits, decode.map(Arc::new));
        Ok(Self::new(record, Origin::shown_as(Arc::new(queue), decoding, shown)))
    }
}

/// A point in time; `None` for a number that not every reader can represent.
pub(crate) fn instant(at_ms: i64) -> Option<SystemTime> {
    let at_ms = in_calendar(at_ms)?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_millis(at_ms.cast_unsigned()))
}

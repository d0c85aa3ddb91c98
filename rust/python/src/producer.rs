//! Sending.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use rocketpy_client::{Client, OutcomeSink, Producer, ProducerConfig, SendOptions};
use rocketpy_model::CompressionType;
use tokio::runtime::Handle;

use crate::client::connect;
use crate::completion::{FutureThread, future};
use crate::convert::ToPython;
use crate::duration::Seconds;
use crate::error::{self, raise};
use crate::message::{Lent, MessageArgument, PyMessage, body_bytes};
use crate::options::Options;
use crate::process::Owned;
use crate::queue::QueueArgument;
use crate::receipt::SentMany;
use crate::received::{Origin, ReceivedMessage};
use crate::transaction::{Checks, Half};
use crate::wait::{wait, wait_detached};

/// Longest wait of a close for the callbacks of futures.
const CALLBACK_TIMEOUT: Duration = Duration::from_secs(3);

/// Messages taken out of a list before other threads may have the interpreter lock: some hundred microseconds.
const LENT_IN_A_TURN: usize = 8192;

/// Sends messages for one producer group.
#[pyclass(name = "Producer", module = "rocketpy._rocketpy", frozen)]
pub(crate) struct PyProducer {
    running: Owned<Running>,
}

struct Running {
    producer: Producer,
    client: Client,
    runtime: Handle,
    completions: Arc<FutureThread>,
    /// The same, as the client knows it.
    sink: Arc<dyn OutcomeSink>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let (producer, client) = (self.producer.clone(), self.client.clone());
        let completions = Arc::clone(&self.completions);
        self.runtime.spawn(async move {
            // No caller is left: a message that could not be sent fails its future.
            let _outcome = producer.close().await;
            client.close().await;
            completions.end();
        });
    }
}

#[pymethods]
impl PyProducer {
    #[new]
    #[pyo3(signature = (group, name_servers, **options))]
    fn new(
        py: Python<'_>,
        group: &str,
        name_servers: Vec<String>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut options = Options::new("Producer", options);
        let config = config(&mut options)?;
        let (client, runtime) = connect(py, name_servers, options)?;
        let producer = wait(py, &runtime, Producer::new(&client, group, config))?.map_err(raise)?;
        let completions = FutureThread::new();
        let sink: Arc<dyn OutcomeSink> = completions.clone();
        Ok(Self { running: Owned::new(Running { producer, client, runtime, completions, sink }) })
    }

    #[getter]
    fn group(&self) -> PyResult<&str> {
        Ok(self.running.get()?.producer.group())
    }

    #[getter]
    fn client_id(&self) -> PyResult<&str> {
        Ok(self.running.get()?.client.client_id())
    }

    #[pyo3(signature = (message, queue=None, timeout=None, msg_id=None))]
    fn send<'py>(
        &self,
        py: Python<'py>,
        message: MessageArgument<'_, 'py>,
        queue: Option<QueueArgument>,
        timeout: Option<Seconds>,
        msg_id: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let running = self.running.get()?;
        let options = SendOptions { msg_id, ..send_options(queue, timeout) };
        let sent = running.producer.send(message.get().message(), options);
        wait_detached(py, &running.runtime, sent)?.map_err(raise)?.to_python(py)
    }

    /// Sends one message and waits for its reply.
    #[pyo3(signature = (message, queue=None, timeout=None, msg_id=None))]
    fn request(
        &self,
        py: Python<'_>,
        message: MessageArgument<'_, '_>,
        queue: Option<QueueArgument>,
        timeout: Option<Seconds>,
        msg_id: Option<String>,
    ) -> PyResult<ReceivedMessage> {
        let running = self.running.get()?;
        let options = SendOptions { msg_id, ..send_options(queue, timeout) };
        let asked = running.producer.request(message.get().message(), options);
        let (record, queue) = wait_detached(py, &running.runtime, asked)?.map_err(raise)?.into_parts();
        Ok(ReceivedMessage::new(record, Origin::new(queue)))
    }

    /// Sends the reply to a request.
    #[pyo3(signature = (request, body, timeout=None))]
    fn reply<'py>(
        &self,
        py: Python<'py>,
        request: &Bound<'py, PyAny>,
        body: &Bound<'py, PyAny>,
        timeout: Option<Seconds>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let running = self.running.get()?;
        let Ok(request) = request.cast::<ReceivedMessage>() else {
            return Err(error::wrong_type("request", "a rocketpy.ReceivedMessage", request));
        };
        let (view, broker_name) = (request.get().view()?, request.get().broker_name());
        let (body, options) = (body_bytes(body, view.topic)?, send_options(None, timeout));
        let replied = running.producer.reply(&view, broker_name, body, options);
        wait_detached(py, &running.runtime, replied)?.map_err(raise)?.to_python(py)
    }

    #[pyo3(signature = (messages, queue=None, timeout=None))]
    fn send_many(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        queue: Option<QueueArgument>,
        timeout: Option<Seconds>,
    ) -> PyResult<SentMany> {
        let running = self.running.get()?;
        let messages = lend_all(messages)?;
        let sent = running.producer.send_many(messages, send_options(queue, timeout));
        wait_detached(py, &running.runtime, sent)?.map(SentMany::new).map_err(raise)
    }

    /// Sends a message that is delivered once its transaction is committed.
    #[pyo3(signature = (message, queue=None, timeout=None, msg_id=None))]
    fn prepare(
        &self,
        py: Python<'_>,
        message: MessageArgument<'_, '_>,
        queue: Option<QueueArgument>,
        timeout: Option<Seconds>,
        msg_id: Option<String>,
    ) -> PyResult<Half> {
        let running = self.running.get()?;
        let options = SendOptions { msg_id, ..send_options(queue, timeout) };
        let prepared = running.producer.prepare(message.get().message(), options);
        let half = wait_detached(py, &running.runtime, prepared)?.map_err(raise)?;
        Ok(Half::new(running.producer.clone(), running.runtime.clone(), half))
    }

    /// The questions of brokers for the end of this group's transactions, from now on.
    fn checks(&self) -> PyResult<Checks> {
        let running = self.running.get()?;
        Ok(Checks::new(running.producer.clone(), running.runtime.clone()))
    }

    /// Takes back a message that waits for its time.
    fn recall(&self, py: Python<'_>, handle: &str) -> PyResult<()> {
        let running = self.running.get()?;
        wait(py, &running.runtime, running.producer.recall(handle))?.map_err(raise)
    }

    /// Hands one message over, and returns the future of its receipt.
    #[pyo3(signature = (message, queue=None, timeout=None, wait=None, msg_id=None))]
    fn submit<'py>(
        &self,
        py: Python<'py>,
        message: MessageArgument<'_, 'py>,
        queue: Option<QueueArgument>,
        timeout: Option<Seconds>,
        wait: Option<Seconds>,
        msg_id: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let running = self.running.get()?;
        let future = future::make(py)?;
        let ticket = running.completions.promise(future.clone().unbind())?;
        let options =
            SendOptions { msg_id, wait: wait.map(|Seconds(wait)| wait), ..send_options(queue, timeout) };
        let handed_over =
            running.producer.submit_ticket(message.get().share(), options, &running.sink, ticket);
        let handed_over =
            self::wait(py, &running.runtime, handed_over).and_then(|outcome| outcome.map_err(raise));
        if handed_over.is_err() {
            drop(running.completions.withdraw(ticket));
        }
        handed_over.map(|()| future.into_any())
    }

    /// Waits until every submitted message has its outcome and its future is done.
    fn flush(&self, py: Python<'_>, timeout: Seconds) -> PyResult<()> {
        let running = self.running.get()?;
        let deadline = Instant::now() + timeout.0;
        wait(py, &running.runtime, running.producer.flush(timeout.0))?.map_err(raise)?;
        running.completions.settle(py, deadline)
    }

    #[pyo3(signature = (message, queue=None))]
    fn send_oneway(
        &self,
        py: Python<'_>,
        message: MessageArgument<'_, '_>,
        queue: Option<QueueArgument>,
    ) -> PyResult<()> {
        let running = self.running.get()?;
        let sent = running.producer.send_oneway(message.get().message(), send_options(queue, None));
        wait_detached(py, &running.runtime, sent)?.map_err(raise)
    }

    /// Queues of a topic that may be written.
    fn queues<'py>(&self, py: Python<'py>, topic: &str) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let running = self.running.get()?;
        let queues = wait(py, &running.runtime, running.producer.queues(topic))?.map_err(raise)?;
        queues.iter().map(|queue| queue.to_python(py)).collect()
    }

    /// Flushes, within the send timeout, and leaves the group. When it returns, the futures are done.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let running = self.running.get()?;
        let closed = wait(py, &running.runtime, running.producer.close())?;
        wait(py, &running.runtime, running.client.close())?;
        let settled = running.completions.settle(py, Instant::now() + CALLBACK_TIMEOUT);
        running.completions.end();
        closed.map_err(raise).and(settled)
    }
}

fn send_options(queue: Option<QueueArgument>, timeout: Option<Seconds>) -> SendOptions {
    SendOptions {
        queue: queue.map(|QueueArgument(queue)| queue),
        timeout: timeout.map(|Seconds(timeout)| timeout),
        ..SendOptions::default()
    }
}

/// Takes messages out of a list, or any other iterable.
fn lend_all(messages: &Bound<'_, PyAny>) -> PyResult<Vec<Lent>> {
    let (py, mut turn) = (messages.py(), 0);
    let mut lend = |message: Bound<'_, PyAny>| {
        turn += 1;
        if turn % LENT_IN_A_TURN == 0 {
            py.detach(|| ());
        }
        match message.cast::<PyMessage>() {
            Ok(message) => Ok(message.get().lend()),
            Err(_not_one) => Err(error::not_a_message("every item of messages", &message)),
        }
    };
    if let Ok(list) = messages.cast::<PyList>() {
        return list.iter().map(lend).collect();
    }
    // Bytes and texts are iterables, of what nobody means to send.
    if messages.is_instance_of::<PyBytes>() || messages.is_instance_of::<PyString>() {
        return Err(not_messages(messages));
    }
    let items = messages.try_iter().map_err(|_not| not_messages(messages))?;
    items.map(|item| lend(item?)).collect()
}

fn not_messages(given: &Bound<'_, PyAny>) -> PyErr {
    let wanted = "a list or another iterable of rocketpy.Message, each made by rocketpy.Message(topic, body)";
    error::wrong_type("messages", wanted, given)
}

fn config(options: &mut Options<'_>) -> PyResult<ProducerConfig> {
    let mut config = ProducerConfig::default();
    options.set_duration("send_timeout", &mut config.send_timeout)?;
    options.set("retries", &mut config.retries)?;
    options.set("max_message_size", &mut config.max_message_size)?;
    if let Some(kind) = options.take::<Option<String>>("compression")? {
        config.compression = kind.as_deref().map(compression).transpose()?;
    }
    options.set("compress_over", &mut config.compress_over)?;
    options.set("compression_level", &mut config.compression_level)?;
    options.set("window_messages", &mut config.window_messages)?;
    options.set("window_bytes", &mut config.window_bytes)?;
    options.set("batch_messages", &mut config.batch_messages)?;
    options.set("batch_bytes", &mut config.batch_bytes)?;
    options.set("requests_in_flight", &mut config.requests_in_flight)?;
    options.set_duration("linger", &mut config.linger)?;
    options.set("default_topic_queues", &mut config.default_topic_queues)?;
    Ok(config)
}

fn compression(kind: &str) -> PyResult<CompressionType> {
    match kind {
        "zlib" => Ok(CompressionType::Zlib),
        "lz4" => Ok(CompressionType::Lz4),
        "zstd" => Ok(CompressionType::Zstd),
        _ => Err(error::invalid(format!(
            "compression must be \"zlib\", \"lz4\", \"zstd\" or None, not {kind:?}"
        ))),
    }
}

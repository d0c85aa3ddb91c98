//! Sending.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyType};
use rocketpy_client::{
    Backoff, Client, OutcomeSink, Producer, ProducerConfig, Receipt, Selector, SendOptions, SendStatus,
};
use rocketpy_model::CompressionType;
use rocketpy_protocol::record::RecordView;
use tokio::runtime::Handle;

use crate::aio::{Arrivals, Caller};
use crate::client::connect_member;
use crate::completion::{FutureThread, future};
use crate::convert::ToPython;
use crate::duration::Seconds;
use crate::error::{self, raise};
use crate::message::{Lent, MessageArgument, PyMessage};
use crate::number::offset;
use crate::options::Options;
use crate::process::Owned;
use crate::queue::QueueArgument;
use crate::receipt::SentMany;
use crate::received::{Origin, ReceivedMessage};
use crate::transaction::{Checks, Half};
use crate::wait::{wait, wait_detached, wait_reading};
use crate::{body, named, stats, trace};

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
    caller: Caller,
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
    #[pyo3(signature = (group, name_servers, arrivals=None, **options))]
    fn new(
        py: Python<'_>,
        group: &str,
        name_servers: Vec<String>,
        arrivals: Option<Py<Arrivals>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut options = Options::new("Producer", options);
        let config = config(&mut options)?;
        let (client, runtime) = connect_member(py, name_servers, options, None)?;
        let producer = wait(py, &runtime, Producer::new(&client, group, config))?.map_err(raise)?;
        let completions = FutureThread::new(producer.group());
        let sink: Arc<dyn OutcomeSink> = completions.clone();
        let caller = Caller::new(py, arrivals.as_ref());
        Ok(Self { running: Owned::new(Running { producer, client, runtime, completions, sink, caller }) })
    }

    #[getter]
    fn group(&self) -> PyResult<&str> {
        Ok(self.running.get()?.producer.group())
    }

    #[getter]
    fn client_id(&self) -> PyResult<&str> {
        Ok(self.running.get()?.client.client_id())
    }

    /// Trace records that were not sent.
    #[getter]
    fn dropped_traces(&self) -> PyResult<u64> {
        Ok(self.running.get()?.producer.dropped_traces())
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
        if let Caller::Loop(arrivals) = &running.caller {
            let message = message.get().share();
            return Caller::hand_over(py, arrivals, &running.runtime, &running.producer, message, options);
        }
        let sent = running.producer.send(message.get().message(), options);
        wait_reading(py, &running.runtime, sent)?.map_err(raise)?.to_python(py)
    }

    /// Sends one message and waits for its reply.
    #[pyo3(signature = (message, queue=None, timeout=None, msg_id=None))]
    fn request<'py>(
        &self,
        py: Python<'py>,
        message: MessageArgument<'_, 'py>,
        queue: Option<QueueArgument>,
        timeout: Option<Seconds>,
        msg_id: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let running = self.running.get()?;
        let options = SendOptions { msg_id, ..send_options(queue, timeout) };
        let (producer, message) = (running.producer.clone(), message.get().share());
        let asked = async move { producer.request(&message, options).await };
        running.caller.answer_apart(py, &running.runtime, asked, |py, reply| {
            let (record, queue) = reply.into_parts();
            Ok(Py::new(py, ReceivedMessage::new(record, Origin::new(queue)))?.into_any())
        })
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
        let request = request.get();
        let (body, options) = (body::bytes(body, request.view()?.topic)?, send_options(None, timeout));
        let (record, broker_name) = (request.record().clone(), request.broker_name().to_owned());
        let producer = running.producer.clone();
        let replied = async move {
            let view = RecordView::parse(&record).expect("it was looked at above");
            producer.reply(&view, &broker_name, body, options).await
        };
        running
            .caller
            .answer_apart(py, &running.runtime, replied, |py, receipt| Ok(receipt.to_python(py)?.unbind()))
    }

    /// `queues`: one for each message.
    #[pyo3(signature = (messages, queue=None, timeout=None, queues=None))]
    fn send_many<'py>(
        &self,
        py: Python<'py>,
        messages: &Bound<'py, PyAny>,
        queue: Option<QueueArgument>,
        timeout: Option<Seconds>,
        queues: Option<Vec<QueueArgument>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let running = self.running.get()?;
        let (producer, messages) = (running.producer.clone(), lend_all(messages)?);
        let options = send_options(queue, timeout);
        let queues: Option<Vec<_>> =
            queues.map(|queues| queues.into_iter().map(|QueueArgument(queue)| queue).collect());
        let sent = async move {
            match queues {
                Some(queues) => producer.send_many_to(messages, queues, options).await,
                None => producer.send_many(messages, options).await,
            }
        };
        running.caller.answer_apart(py, &running.runtime, sent, |py, sent| {
            Ok(Py::new(py, SentMany::new(sent))?.into_any())
        })
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

    /// Whether all brokers of a topic end a transaction once.
    fn ends_once(&self, py: Python<'_>, topic: &str, timeout: Seconds) -> PyResult<bool> {
        let running = self.running.get()?;
        wait(py, &running.runtime, running.producer.ends_once(topic, timeout.0))?.map_err(raise)
    }

    /// The half message that another process sent, by its receipt.
    fn half(
        &self,
        msg_id: String,
        offset_msg_id: String,
        queue: QueueArgument,
        queue_offset: &Bound<'_, PyAny>,
    ) -> PyResult<Half> {
        let running = self.running.get()?;
        let receipt = Receipt {
            status: SendStatus::SendOk,
            transaction_id: Some(msg_id.clone()),
            msg_id,
            offset_msg_id,
            queue: queue.0,
            queue_offset: offset(queue_offset)?,
            recall_handle: None,
        };
        let half = running.producer.half_of(receipt).map_err(raise)?;
        Ok(Half::new(running.producer.clone(), running.runtime.clone(), half))
    }

    /// The questions of brokers for the end of this group's transactions, from now on.
    fn checks(&self) -> PyResult<Checks> {
        let running = self.running.get()?;
        Ok(Checks::new(running.producer.clone(), running.runtime.clone()))
    }

    /// Takes back a message that waits for its time.
    fn recall<'py>(&self, py: Python<'py>, handle: String) -> PyResult<Bound<'py, PyAny>> {
        let running = self.running.get()?;
        let producer = running.producer.clone();
        let recalled = async move { producer.recall(&handle).await };
        running.caller.answer(py, &running.runtime, recalled, |py, ()| Ok(py.None()))
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
        let future = future::make(py, running.completions.origin())?;
        let ticket = running.completions.promise(future.clone().unbind())?;
        let options =
            SendOptions { msg_id, wait: wait.map(|Seconds(wait)| wait), ..send_options(queue, timeout) };
        let (message, producer) = (message.get().share(), &running.producer);
        let handed_over = match producer.submit_at_once(&message, options, &running.sink, ticket) {
            Ok(Some(options)) => {
                let handed_over = producer.submit_ticket(message, options, &running.sink, ticket);
                self::wait(py, &running.runtime, handed_over).and_then(|outcome| outcome.map_err(raise))
            }
            at_once => at_once.map(drop).map_err(raise),
        };
        if handed_over.is_err() {
            drop(running.completions.withdraw(ticket));
        }
        handed_over.map(|()| future.into_any())
    }

    /// Waits until every submitted message has its outcome and its future is done.
    fn flush<'py>(&self, py: Python<'py>, timeout: Seconds) -> PyResult<Bound<'py, PyAny>> {
        let running = self.running.get()?;
        let (producer, deadline) = (running.producer.clone(), Instant::now() + timeout.0);
        let flushed = async move { producer.flush(timeout.0).await };
        let flushed = running.caller.answer(py, &running.runtime, flushed, |py, ()| Ok(py.None()))?;
        running.completions.settle(py, deadline)?;
        Ok(flushed)
    }

    #[pyo3(signature = (message, queue=None))]
    fn send_oneway<'py>(
        &self,
        py: Python<'py>,
        message: MessageArgument<'_, 'py>,
        queue: Option<QueueArgument>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let running = self.running.get()?;
        let (producer, message) = (running.producer.clone(), message.get().share());
        let options = send_options(queue, None);
        let sent = async move { producer.send_oneway(&message, options).await };
        running.caller.answer_apart(py, &running.runtime, sent, |py, ()| Ok(py.None()))
    }

    /// What was sent so far.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        named::to_python(py, &stats::ProducerStats::from(&self.running.get()?.producer.stats()))
    }

    /// Queues of a topic that may be written.
    fn queues<'py>(&self, py: Python<'py>, topic: String) -> PyResult<Bound<'py, PyAny>> {
        let running = self.running.get()?;
        let producer = running.producer.clone();
        let queues = async move { producer.queues(&topic).await };
        running.caller.answer(py, &running.runtime, queues, |py, queues| {
            let queues: Vec<_> = queues.iter().map(|queue| queue.to_python(py)).collect::<PyResult<_>>()?;
            Ok(queues.into_pyobject(py)?.unbind())
        })
    }

    /// Begins what [`close`](Self::close) then waits for.
    fn begin_close(&self) -> PyResult<()> {
        let running = self.running.get()?;
        let (producer, client) = (running.producer.clone(), running.client.clone());
        running.runtime.spawn(async move {
            let _outcome_of_close = producer.close().await;
            client.close().await;
        });
        Ok(())
    }

    /// Flushes, within the send timeout, and leaves the group. When it returns, the futures are done. `now`: the calling thread waits,
    /// whoever waits for other calls.
    #[pyo3(signature = (now=true))]
    fn close<'py>(&self, py: Python<'py>, now: bool) -> PyResult<Bound<'py, PyAny>> {
        let running = self.running.get()?;
        let (producer, client) = (running.producer.clone(), running.client.clone());
        let closed = async move {
            let closed = producer.close().await;
            client.close().await;
            closed
        };
        let caller = if now { &Caller::Thread } else { &running.caller };
        let closed = caller.answer(py, &running.runtime, closed, |py, ()| Ok(py.None()));
        let settled = running.completions.settle(py, Instant::now() + CALLBACK_TIMEOUT);
        running.completions.end();
        closed.and_then(|closed| settled.map(|()| closed))
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
    options.set_duration("attempt_timeout", &mut config.attempt_timeout)?;
    options.set_int("retries", &mut config.retries)?;
    options.set_int("max_message_size", &mut config.max_message_size)?;
    if let Some(kind) =
        options.take_plain::<Option<String>>("compression", "\"zlib\", \"lz4\", \"zstd\" or None")?
    {
        config.compression = kind.as_deref().map(compression).transpose()?;
    }
    options.set_int("compress_over", &mut config.compress_over)?;
    options.set_int("compression_level", &mut config.compression_level)?;
    options.set_int("window_messages", &mut config.window_messages)?;
    options.set_int("window_bytes", &mut config.window_bytes)?;
    options.set_int("batch_messages", &mut config.batch_messages)?;
    options.set_int("batch_bytes", &mut config.batch_bytes)?;
    options.set_int("requests_in_flight", &mut config.requests_in_flight)?;
    options.set_duration("linger", &mut config.linger)?;
    options.set_int("default_topic_queues", &mut config.default_topic_queues)?;
    config.trace_topic = trace::topic(options)?;
    if let Some(BackoffArgument(backoff)) = options.take("backoff")? {
        config.backoff = backoff;
    }
    if let Some(selector) = options.take_text("selector")? {
        config.selector = self::selector(&selector)?;
    }
    Ok(config)
}

/// A `rocketpy.Backoff`.
struct BackoffArgument(Backoff);

static BACKOFF: PyOnceLock<Py<PyType>> = PyOnceLock::new();

impl<'py> FromPyObject<'_, 'py> for BackoffArgument {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = value.py();
        if !value.is_instance(BACKOFF.import(py, "rocketpy.config", "Backoff")?.as_any())? {
            return Err(error::wrong_type("backoff", "a rocketpy.Backoff", &value));
        }
        let Seconds(first) = value.getattr(intern!(py, "first"))?.extract()?;
        let Seconds(longest) = value.getattr(intern!(py, "longest"))?.extract()?;
        let factor = value.getattr(intern!(py, "factor"))?.extract()?;
        let jitter = value.getattr(intern!(py, "jitter"))?.extract()?;
        Ok(Self(Backoff { first, factor, longest, jitter }))
    }
}

fn selector(name: &str) -> PyResult<Selector> {
    match name {
        "round_robin" => Ok(Selector::RoundRobin),
        "random" => Ok(Selector::Random),
        "least_latency" => Ok(Selector::LeastLatency),
        _ => Err(error::invalid(format!(
            "selector must be \"round_robin\", \"random\", \"least_latency\" or a function, not {name:?}"
        ))),
    }
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

//! Receiving.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::RecordBatch;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyList};
use rocketpy_client::{
    Client, ClientError, Namespace, Position, PullConsumer, PulledBatch, PulledPart, Start,
};
use rocketpy_model::{MessageQueue, QueueOffset};
use rocketpy_protocol::compression::DecompressLimits;
use rocketpy_protocol::record::RecordView;
use rocketpy_scan::{BatchLimits, Columns, RecordBatchBuilder, ScanError};
use tokio::runtime::Handle;

use crate::aio::{Arrivals, Caller};
use crate::arrow::{self, ArrowBatch};
use crate::change::PyChange;
use crate::client::connect_member;
use crate::convert::ToPython;
use crate::duration::Seconds;
use crate::error::{self, raise};
use crate::number::{count, offset};
use crate::options::Options;
use crate::process::Owned;
use crate::queue::{self, QueueArgument};
use crate::received::{Decoding, Origin, ReceivedMessage, Shown};
use crate::start::StartArgument;
use crate::wait::wait;
use crate::{consumer_options, named, rows, stats, tags, untracked};

/// Batches kept for their memory: one that the caller reads, and one that it has read.
const SPENT_BATCHES: usize = 2;
/// Do not keep the memory of a batch whose records are larger than this.
const MAX_SPENT_BYTES: usize = 64 << 20;

/// A member of a consumer group.
#[pyclass(name = "Consumer", module = "rocketpy._rocketpy", frozen)]
pub(crate) struct PyConsumer {
    running: Owned<Arc<Running>>,
}

struct Running {
    /// The latest batches of columns, oldest first. The next batch reuses the memory of one that nobody reads any more.
    spent: Mutex<VecDeque<RecordBatch>>,
    consumer: PullConsumer,
    client: Client,
    runtime: Handle,
    caller: Caller,
    decoding: Decoding,
}

impl Drop for Running {
    fn drop(&mut self) {
        let (consumer, client) = (self.consumer.clone(), self.client.clone());
        self.runtime.spawn(async move {
            // No caller is left to hear of a failure.
            let _outcome = consumer.close().await;
            client.close().await;
        });
    }
}

#[pymethods]
impl PyConsumer {
    /// Joins the group: a consumer, or for an event loop a future of one.
    #[staticmethod]
    #[pyo3(signature = (group, topics, name_servers, arrivals=None, decode=None, **options))]
    fn join<'py>(
        py: Python<'py>,
        group: String,
        topics: Vec<String>,
        name_servers: Vec<String>,
        arrivals: Option<Py<Arrivals>>,
        decode: Option<Py<PyAny>>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if topics.is_empty() {
            return Err(error::invalid("a consumer needs at least one topic"));
        }
        let mut options = Options::new("Consumer", options);
        let (tags, sql) = (options.take("tags")?, options.take::<Option<_>>("sql")?.flatten());
        let subscriptions = tags::subscriptions(topics, tags, sql)?;
        let config = consumer_options::config(&mut options)?;
        let (client, runtime) = connect_member(py, name_servers, options, None)?;
        let joined = {
            let client = client.clone();
            async move { PullConsumer::new(&client, &group, subscriptions, config).await }
        };
        let (caller, of_it) = (Caller::new(py, arrivals.as_ref()), Caller::new(py, arrivals.as_ref()));
        caller.answer(py, &runtime.clone(), joined, move |py, consumer| {
            let decoding = Decoding::new(consumer.body_limits(), decode.map(Arc::new));
            let spent = Mutex::default();
            let running = Running { spent, consumer, client, runtime, caller: of_it, decoding };
            Ok(Py::new(py, Self { running: Owned::new(Arc::new(running)) })?.into_any())
        })
    }

    #[getter]
    fn group(&self) -> PyResult<&str> {
        Ok(self.running.get()?.consumer.group())
    }

    #[getter]
    fn client_id(&self) -> PyResult<&str> {
        Ok(self.running.get()?.client.client_id())
    }

    /// Trace records that were not sent.
    #[getter]
    fn dropped_traces(&self) -> PyResult<u64> {
        Ok(self.running.get()?.consumer.dropped_traces())
    }

    fn poll<'py>(
        &self,
        py: Python<'py>,
        max_messages: &Bound<'py, PyAny>,
        timeout: Seconds,
    ) -> PyResult<Bound<'py, PyAny>> {
        let running = self.running.get()?;
        if max_messages.is_instance_of::<PyFloat>() {
            return Err(error::wrong_type("max_messages", "an int (give seconds as timeout=)", max_messages));
        }
        let (max_messages, origins) = (count("max_messages", max_messages)?, running.origins());
        if let Caller::Thread = running.caller {
            return Ok(messages(py, &running.poll(py, max_messages, timeout)?, &origins)?.into_any());
        }
        let polled = poll(running.consumer.clone(), max_messages, timeout);
        running.caller.answer(py, &running.runtime, polled, move |py, batch| {
            Ok(messages(py, &batch, &origins)?.into_any().unbind())
        })
    }

    /// The next message alone, or None when none came in time.
    fn next<'py>(&self, py: Python<'py>, timeout: Seconds) -> PyResult<Bound<'py, PyAny>> {
        let running = self.running.get()?;
        let origins = running.origins();
        let first = move |py: Python<'_>, batch: PulledBatch| {
            let first = batch.parts().iter().flat_map(|part| origins.received(part)).next();
            Ok(first.into_pyobject(py)?.unbind())
        };
        if let Caller::Thread = running.caller {
            return first(py, running.poll(py, 1, timeout)?).map(|message| message.into_bound(py));
        }
        running.caller.answer(py, &running.runtime, poll(running.consumer.clone(), 1, timeout), first)
    }

    /// Messages as columns.
    #[pyo3(signature = (max_rows, timeout, columns=None))]
    fn fetch_columns<'py>(
        &self,
        py: Python<'py>,
        max_rows: &Bound<'py, PyAny>,
        timeout: Seconds,
        columns: Option<Vec<String>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let running = self.running.get()?;
        let (max_rows, columns) = (count("max_rows", max_rows)?, arrow::columns(columns)?);
        if let Caller::Thread = running.caller {
            let batch =
                wait(py, &running.runtime, running.consumer.poll(max_rows, timeout.0))?.map_err(raise)?;
            // Nothing may wait or fail between here and the end of `filled`: the rows would be lost.
            let places = places(&batch);
            let filled = py.detach(|| running.fill(columns, batch));
            return Ok(Bound::new(py, running.filled(filled, &places)?)?.into_any());
        }
        let running = Arc::clone(running);
        let (caller, runtime, of_call) = (&running.caller, &running.runtime, Arc::clone(&running));
        let filled = async move {
            let batch = of_call.consumer.poll(max_rows, timeout.0).await?;
            let guard = TakesBack::new(&of_call.consumer, &batch);
            let filled = apart(move || of_call.fill(columns, batch)).await;
            Ok::<_, ClientError>((filled, guard.places()))
        };
        let of_answer = Arc::clone(&running);
        caller.answer(py, runtime, filled, move |py, (filled, places)| {
            Ok(Py::new(py, of_answer.filled(filled, &places)?)?.into_any())
        })
    }

    #[pyo3(signature = (wait=true))]
    fn commit<'py>(&self, py: Python<'py>, wait: bool) -> PyResult<Bound<'py, PyAny>> {
        let running = self.running.get()?;
        let consumer = running.consumer.clone();
        let commit = async move { if wait { consumer.commit().await } else { consumer.commit_soon() } };
        running.answer(py, commit, |py, ()| Ok(py.None()))
    }

    #[pyo3(signature = (offsets, wait=true))]
    fn commit_offsets<'py>(
        &self,
        py: Python<'py>,
        offsets: Vec<(QueueArgument, Bound<'py, PyAny>)>,
        wait: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let running = self.running.get()?;
        let offsets = offsets
            .into_iter()
            .map(|(QueueArgument(queue), at)| Ok((queue, offset(&at)?)))
            .collect::<PyResult<Vec<_>>>()?;
        let consumer = running.consumer.clone();
        let commit = async move {
            if wait {
                consumer.commit_offsets(&offsets).await
            } else {
                consumer.commit_offsets_soon(&offsets)
            }
        };
        running.answer(py, commit, |py, ()| Ok(py.None()))
    }

    fn committed<'py>(&self, py: Python<'py>, queue: QueueArgument) -> PyResult<Bound<'py, PyAny>> {
        let running = self.running.get()?;
        let consumer = running.consumer.clone();
        running.answer(py, async move { consumer.committed(&queue.0).await }, |py, stored| {
            Ok(stored.map(QueueOffset::get).into_pyobject(py)?.unbind())
        })
    }

    fn positions<'py>(&self, py: Python<'py>) -> PyResult<Vec<(Bound<'py, PyAny>, u64)>> {
        queue::offsets(py, &self.running.get()?.consumer.positions())
    }

    fn lag<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let running = self.running.get()?;
        let consumer = running.consumer.clone();
        running.answer(py, async move { consumer.lag().await }, |py, lags| {
            let rows = lags.into_iter().map(|(queue, lag)| Ok((queue.to_python(py)?, lag)));
            Ok(rows.collect::<PyResult<Vec<_>>>()?.into_pyobject(py)?.unbind())
        })
    }

    fn seek<'py>(
        &self,
        py: Python<'py>,
        queue: QueueArgument,
        to: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let running = self.running.get()?;
        let (consumer, position) = (running.consumer.clone(), position(to)?);
        running.answer(py, async move { consumer.seek(&queue.0, position).await }, |py, moved| {
            Ok(moved.get().into_pyobject(py)?.into_any().unbind())
        })
    }

    fn pause(&self, queues: Vec<QueueArgument>) -> PyResult<()> {
        self.running.get()?.consumer.pause(&plain(queues)).map_err(raise)
    }

    fn resume(&self, queues: Vec<QueueArgument>) -> PyResult<()> {
        self.running.get()?.consumer.resume(&plain(queues)).map_err(raise)
    }

    fn resume_all(&self) -> PyResult<()> {
        self.running.get()?.consumer.resume_all().map_err(raise)
    }

    fn assignment<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.running.get()?.consumer.assignment().iter().map(|queue| queue.to_python(py)).collect()
    }

    /// The assigned queues, and which brokers answer.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        named::to_python(py, &rows::ConsumerState::from(self.running.get()?.consumer.state()))
    }

    /// What was received so far.
    fn stats<'py>(&self, py: Python<'py>, failed_callbacks: u64) -> PyResult<Bound<'py, PyAny>> {
        let stats = self.running.get()?.consumer.stats();
        named::to_python(py, &stats::ConsumerStats::new(stats, failed_callbacks))
    }

    /// What the user has to be told of queues that changed, the same again until `told`.
    fn change(&self) -> PyResult<Option<PyChange>> {
        let running = self.running.get()?;
        let namespace = running.client.namespace();
        Ok(running.consumer.change().map(|change| PyChange { change, namespace: namespace.clone() }))
    }

    fn told(&self, change: &PyChange) -> PyResult<()> {
        self.running.get()?.consumer.told(&change.change);
        Ok(())
    }

    /// Before a close: `change` tells of all queues as lost.
    fn begin_leaving(&self) -> PyResult<()> {
        self.running.get()?.consumer.begin_leaving();
        Ok(())
    }

    fn take_offset_moves<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let moves = self.running.get()?.consumer.take_offset_moves();
        named::list(py, moves.into_iter().map(rows::OffsetMove::from))
    }

    /// Begins what [`close`](Self::close) then waits for.
    fn begin_close(&self) -> PyResult<()> {
        let running = self.running.get()?;
        let (consumer, client) = (running.consumer.clone(), running.client.clone());
        running.runtime.spawn(async move {
            let _outcome_of_close = consumer.close().await;
            client.close().await;
        });
        Ok(())
    }

    /// Leaves the group. `now`: the calling thread waits, whoever waits for other calls.
    #[pyo3(signature = (now=true))]
    fn close<'py>(&self, py: Python<'py>, now: bool) -> PyResult<Bound<'py, PyAny>> {
        let running = self.running.get()?;
        let (consumer, client) = (running.consumer.clone(), running.client.clone());
        let closed = async move {
            let closed = consumer.close().await;
            client.close().await;
            closed
        };
        let caller = if now { &Caller::Thread } else { &running.caller };
        caller.answer(py, &running.runtime, closed, |py, ()| Ok(py.None()))
    }
}

/// The messages of a batch as a list.
fn messages<'py>(py: Python<'py>, batch: &PulledBatch, origins: &Origins) -> PyResult<Bound<'py, PyList>> {
    let messages = PyList::empty(py);
    for part in batch.parts() {
        for message in origins.received(part) {
            messages.append(untracked::new(py, message)?)?;
        }
    }
    Ok(messages)
}

/// What the messages of a reader have in common.
pub(crate) struct Origins {
    pub(crate) decoding: Decoding,
    pub(crate) namespace: Namespace,
}

impl Origins {
    /// Of messages that are shown as they are stored.
    pub(crate) fn plain(limits: DecompressLimits) -> Self {
        Self { decoding: Decoding::new(limits, None), namespace: Namespace::default() }
    }

    /// The messages of a part, each sharing the bytes of the pull answer.
    pub(crate) fn received(&self, part: &PulledPart) -> impl Iterator<Item = ReceivedMessage> {
        let shown = Shown { namespace: self.namespace.clone(), ..Shown::default() };
        let origin = Origin::shown_as(Arc::clone(part.queue()), self.decoding.clone(), shown);
        (0..part.len()).map(move |index| {
            let message = ReceivedMessage::new(part.record_bytes(index), Arc::clone(&origin));
            message.with_body(part.decompressed(index).cloned())
        })
    }
}

/// Polls for an event loop, and decompresses bodies in a thread apart. Dropped, it took nothing.
async fn poll(
    consumer: PullConsumer,
    max_messages: usize,
    timeout: Seconds,
) -> Result<PulledBatch, ClientError> {
    let batch = consumer.poll(max_messages, timeout.0).await?;
    if !batch.has_compressed() {
        return Ok(batch);
    }
    let guard = TakesBack::new(&consumer, &batch);
    let read = apart(move || consumer.read_bodies(batch)).await;
    guard.places();
    read
}

/// Runs work for the processor in a thread for such.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}

/// Takes messages back when it is dropped while they are on their way to the caller.
struct TakesBack(PullConsumer, Vec<(MessageQueue, QueueOffset)>);

impl TakesBack {
    fn new(consumer: &PullConsumer, batch: &PulledBatch) -> Self {
        Self(consumer.clone(), places(batch))
    }

    /// They have come; this is where they begin.
    fn places(mut self) -> Vec<(MessageQueue, QueueOffset)> {
        std::mem::take(&mut self.1)
    }
}

impl Drop for TakesBack {
    fn drop(&mut self) {
        self.0.take_back(&self.1);
    }
}

/// Where the parts of a batch begin, the first last.
fn places(batch: &PulledBatch) -> Vec<(MessageQueue, QueueOffset)> {
    let first = |part: &PulledPart| Some(((**part.queue()).clone(), part.spans().first()?.queue_offset));
    batch.parts().iter().rev().filter_map(first).collect()
}

/// The messages of one poll as columns.
struct Filled {
    batch: RecordBatch,
    /// Where to continue in the queues whose messages did not all fit.
    left: Vec<(MessageQueue, QueueOffset)>,
    /// Why a body could not be added.
    damage: Option<ClientError>,
}

impl Running {
    fn origins(&self) -> Origins {
        Origins { decoding: self.decoding.clone(), namespace: self.client.namespace().clone() }
    }

    /// Polls, and decompresses bodies without the interpreter lock.
    fn poll(&self, py: Python<'_>, max_messages: usize, timeout: Seconds) -> PyResult<PulledBatch> {
        let batch = wait(py, &self.runtime, self.consumer.poll(max_messages, timeout.0))?.map_err(raise)?;
        // Nothing may wait or fail between here and the end of `read_bodies`: the messages would be lost.
        if !batch.has_compressed() {
            return Ok(batch);
        }
        py.detach(|| self.consumer.read_bodies(batch)).map_err(raise)
    }

    fn answer<'py, T, F, C>(&self, py: Python<'py>, call: F, convert: C) -> PyResult<Bound<'py, PyAny>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ClientError>> + Send + 'static,
        C: FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    {
        self.caller.answer(py, &self.runtime, call, convert)
    }

    /// One Arrow batch of messages that begin at these places; those that do not fit, and all when it failed, go back to the consumer.
    fn filled(
        &self,
        filled: Result<Filled, ScanError>,
        places: &[(MessageQueue, QueueOffset)],
    ) -> PyResult<ArrowBatch> {
        let filled = filled.map_err(|error| {
            self.consumer.take_back(places);
            raise(error)
        })?;
        self.consumer.take_back(&filled.left);
        match filled.damage {
            Some(damage) if filled.batch.num_rows() == 0 => Err(raise(damage)),
            _ => Ok(ArrowBatch::new(filled.batch)),
        }
    }

    /// Fills one batch with the messages. Keeps its memory for a later batch, within bounds and while messages come.
    fn fill(&self, columns: Columns, pulled: PulledBatch) -> Result<Filled, ScanError> {
        let size_bytes = pulled.size_bytes();
        // The caller may still read the latest batch, so take the one before it.
        let spent = {
            let mut spent = self.spent.lock();
            if spent.len() < SPENT_BATCHES { None } else { spent.pop_front() }
        };
        let filled = fill(columns, pulled, spent, &self.origins())?;
        let mut spent = self.spent.lock();
        if filled.batch.num_rows() == 0 {
            spent.clear();
        } else if size_bytes <= MAX_SPENT_BYTES && spent.len() < SPENT_BATCHES {
            spent.push_back(filled.batch.clone());
        }
        Ok(filled)
    }
}

/// Makes one batch of the messages, up to its limit in bytes or up to a body that does not decompress.
fn fill(
    columns: Columns,
    pulled: PulledBatch,
    spent: Option<RecordBatch>,
    origins: &Origins,
) -> Result<Filled, ScanError> {
    let (rows, record_bytes) = (pulled.len(), pulled.size_bytes());
    let limits = BatchLimits { rows, bytes: BatchLimits::MOST_BYTES };
    let mut builder = match spent {
        Some(spent) => RecordBatchBuilder::with_room_of(spent, columns, limits, rows, record_bytes),
        None => RecordBatchBuilder::with_room(columns, limits, rows, record_bytes),
    }
    .with_body_limits(origins.decoding.limits);
    let (mut left, mut damage) = (Vec::new(), None);
    // Each part is dropped after its last message, so that its memory can take the next pull answers.
    for part in pulled.into_parts() {
        for record in part.iter() {
            let topic = origins.namespace.strip(record.topic);
            let record = RecordView { topic: &topic, ..record };
            let is_last = damage.is_some() || builder.is_full_before(&record);
            if !is_last && let Err(error) = builder.push(&record, Some(&*part.queue().broker_name)) {
                damage = Some(unreadable(part.queue(), error)?);
            } else if !is_last {
                continue;
            }
            left.push(((**part.queue()).clone(), record.queue_offset));
            break;
        }
    }
    left.reverse(); // the first of several parts of one queue counts, so it goes back last
    Ok(Filled { batch: builder.into_batch()?, left, damage })
}

/// The error of a body, as `poll` gives it: it names the queue and the offset behind the message, for a seek.
fn unreadable(queue: &MessageQueue, error: ScanError) -> Result<ClientError, ScanError> {
    match error {
        ScanError::Body { queue_offset, physical_offset, reason, limit_bytes, .. } => {
            let queue = queue.clone();
            Ok(ClientError::UnreadableBody { queue, queue_offset, physical_offset, reason, limit_bytes })
        }
        other => Err(other),
    }
}

fn plain(queues: Vec<QueueArgument>) -> Vec<MessageQueue> {
    queues.into_iter().map(|QueueArgument(queue)| queue).collect()
}

/// A place in a queue: an offset, or a start.
fn position(to: &Bound<'_, PyAny>) -> PyResult<Position> {
    if to.is_instance_of::<PyInt>() {
        return offset(to).map(Position::Offset);
    }
    match to.extract()? {
        StartArgument(Start::Earliest) => Ok(Position::Begin),
        StartArgument(Start::Latest) => Ok(Position::End),
        StartArgument(Start::Timestamp(at_ms)) => Ok(Position::Timestamp(at_ms)),
        StartArgument(Start::Stored) => {
            Err(error::invalid("seek goes to an offset, the earliest, the latest or a time"))
        }
    }
}

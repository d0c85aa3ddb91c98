//! Receiving.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use arrow_array::RecordBatch;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList};
use rocketpy_client::{BrokerContact, Client, Position, PullConsumer, PulledBatch, PulledPart, Start};
use rocketpy_model::{MessageQueue, QueueOffset};
use rocketpy_protocol::compression::DecompressLimits;
use rocketpy_scan::{BatchLimits, Columns, RecordBatchBuilder, ScanError};
use tokio::runtime::Handle;

use crate::arrow::{self, ArrowBatch};
use crate::client::connect;
use crate::convert::ToPython;
use crate::duration::Seconds;
use crate::error::{self, raise};
use crate::number::{count, offset};
use crate::options::Options;
use crate::process::Owned;
use crate::queue::{self, QueueArgument};
use crate::received::{Origin, ReceivedMessage, instant};
use crate::start::StartArgument;
use crate::tags::TopicTags;
use crate::wait::wait;
use crate::{consumer_options, untracked};

/// Batches kept for their memory: one that the caller reads, and one that it has read.
const SPENT_BATCHES: usize = 2;
/// Do not keep the memory of a batch whose records are larger than this.
const MAX_SPENT_BYTES: usize = 64 << 20;

/// Queues; and name, time and reason of each broker.
type State<'py> = (Vec<Bound<'py, PyAny>>, Vec<(String, Option<SystemTime>, Option<String>)>);

/// A member of a consumer group.
#[pyclass(name = "Consumer", module = "rocketpy._rocketpy", frozen)]
pub(crate) struct PyConsumer {
    running: Owned<Running>,
}

struct Running {
    /// The latest batches of columns, oldest first. The next batch reuses the memory of one that nobody reads any more.
    spent: Mutex<VecDeque<RecordBatch>>,
    consumer: PullConsumer,
    client: Client,
    runtime: Handle,
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
    #[new]
    #[pyo3(signature = (group, topics, name_servers, **options))]
    fn new(
        py: Python<'_>,
        group: &str,
        topics: Vec<String>,
        name_servers: Vec<String>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        if topics.is_empty() {
            return Err(error::invalid("a consumer needs at least one topic"));
        }
        let mut options = Options::new("Consumer", options);
        let tags = options.take("tags")?.unwrap_or_else(|| TopicTags::All("*".into()));
        let subscriptions = tags.subscriptions(topics)?;
        let config = consumer_options::config(&mut options)?;
        let (client, runtime) = connect(py, name_servers, options)?;
        let joined = PullConsumer::new(&client, group, subscriptions, config);
        let consumer = wait(py, &runtime, joined)?.map_err(raise)?;
        let spent = Mutex::default();
        Ok(Self { running: Owned::new(Running { spent, consumer, client, runtime }) })
    }

    #[getter]
    fn group(&self) -> PyResult<&str> {
        Ok(self.running.get()?.consumer.group())
    }

    #[getter]
    fn client_id(&self) -> PyResult<&str> {
        Ok(self.running.get()?.client.client_id())
    }

    fn poll<'py>(
        &self,
        py: Python<'py>,
        max_messages: &Bound<'py, PyAny>,
        timeout: Seconds,
    ) -> PyResult<Bound<'py, PyList>> {
        let running = self.running.get()?;
        let max_messages = count("max_messages", max_messages)?;
        let batch = running.poll(py, max_messages, timeout)?;
        messages(py, &batch, running.consumer.body_limits())
    }

    /// The next message alone, or None when none came in time.
    fn next(&self, py: Python<'_>, timeout: Seconds) -> PyResult<Option<ReceivedMessage>> {
        let running = self.running.get()?;
        let batch = running.poll(py, 1, timeout)?;
        let limits = running.consumer.body_limits();
        Ok(batch.parts().iter().flat_map(|part| received(part, limits)).next())
    }

    #[pyo3(signature = (max_rows, timeout, columns=None))]
    fn fetch_columns(
        &self,
        py: Python<'_>,
        max_rows: &Bound<'_, PyAny>,
        timeout: Seconds,
        columns: Option<Vec<String>>,
    ) -> PyResult<ArrowBatch> {
        let running = self.running.get()?;
        let max_rows = count("max_rows", max_rows)?;
        let columns = arrow::columns(columns)?;
        let batch = wait(py, &running.runtime, running.consumer.poll(max_rows, timeout.0))?.map_err(raise)?;
        // Nothing may wait or fail between here and the end of `columns`: the rows would be lost.
        running.columns(py, columns, batch)
    }

    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        let running = self.running.get()?;
        wait(py, &running.runtime, running.consumer.commit())?.map_err(raise)
    }

    fn commit_offsets(
        &self,
        py: Python<'_>,
        offsets: Vec<(QueueArgument, Bound<'_, PyAny>)>,
    ) -> PyResult<()> {
        let running = self.running.get()?;
        let offsets = offsets
            .into_iter()
            .map(|(QueueArgument(queue), at)| Ok((queue, offset(&at)?)))
            .collect::<PyResult<Vec<_>>>()?;
        wait(py, &running.runtime, running.consumer.commit_offsets(&offsets))?.map_err(raise)
    }

    fn committed(&self, py: Python<'_>, queue: QueueArgument) -> PyResult<Option<u64>> {
        let running = self.running.get()?;
        let stored = wait(py, &running.runtime, running.consumer.committed(&queue.0))?.map_err(raise)?;
        Ok(stored.map(QueueOffset::get))
    }

    fn positions<'py>(&self, py: Python<'py>) -> PyResult<Vec<(Bound<'py, PyAny>, u64)>> {
        queue::offsets(py, &self.running.get()?.consumer.positions())
    }

    fn lag<'py>(&self, py: Python<'py>) -> PyResult<Vec<(Bound<'py, PyAny>, u64)>> {
        let running = self.running.get()?;
        let lags = wait(py, &running.runtime, running.consumer.lag())?.map_err(raise)?;
        lags.into_iter().map(|(queue, lag)| Ok((queue.to_python(py)?, lag))).collect()
    }

    fn seek(&self, py: Python<'_>, queue: QueueArgument, to: &Bound<'_, PyAny>) -> PyResult<u64> {
        let running = self.running.get()?;
        let position = position(to)?;
        let moved = wait(py, &running.runtime, running.consumer.seek(&queue.0, position))?.map_err(raise)?;
        Ok(moved.get())
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

    /// The assigned queues; and for each broker its name, since when it cannot be reached, and why.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<State<'py>> {
        let state = self.running.get()?.consumer.state();
        let assigned = state.assigned.iter().map(|queue| queue.to_python(py)).collect::<PyResult<_>>()?;
        let contact = |one: BrokerContact| {
            let (since, why) =
                one.trouble.map(|trouble| (instant(trouble.since_ms), trouble.last.to_string())).unzip();
            (one.broker_name.to_string(), since, why)
        };
        Ok((assigned, state.brokers.into_iter().map(contact).collect()))
    }

    fn take_offset_moves<'py>(&self, py: Python<'py>) -> PyResult<Vec<(Bound<'py, PyAny>, u64, u64)>> {
        let moves = self.running.get()?.consumer.take_offset_moves();
        moves.iter().map(|one| Ok((one.queue.to_python(py)?, one.from.get(), one.to.get()))).collect()
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let running = self.running.get()?;
        let closed = wait(py, &running.runtime, running.consumer.close())?;
        wait(py, &running.runtime, running.client.close())?;
        closed.map_err(raise)
    }
}

/// The messages of a batch as a list.
fn messages<'py>(
    py: Python<'py>,
    batch: &PulledBatch,
    limits: DecompressLimits,
) -> PyResult<Bound<'py, PyList>> {
    let messages = PyList::empty(py);
    for part in batch.parts() {
        for message in received(part, limits) {
            messages.append(untracked::new(py, message)?)?;
        }
    }
    Ok(messages)
}

/// The messages of a part, each sharing the bytes of the pull answer.
pub(crate) fn received(part: &PulledPart, limits: DecompressLimits) -> impl Iterator<Item = ReceivedMessage> {
    let origin = Origin::with_limits(Arc::clone(part.queue()), limits);
    (0..part.len()).map(move |index| {
        let message = ReceivedMessage::new(part.record_bytes(index), Arc::clone(&origin));
        message.with_body(part.decompressed(index).cloned())
    })
}

/// The messages of one poll as columns.
struct Filled {
    batch: RecordBatch,
    /// Where to continue in the queues whose messages did not all fit.
    left: Vec<(MessageQueue, QueueOffset)>,
    /// Why a body could not be added.
    damage: Option<ScanError>,
}

impl Running {
    /// Polls, and decompresses bodies without the interpreter lock.
    fn poll(&self, py: Python<'_>, max_messages: usize, timeout: Seconds) -> PyResult<PulledBatch> {
        let batch = wait(py, &self.runtime, self.consumer.poll(max_messages, timeout.0))?.map_err(raise)?;
        // Nothing may wait or fail between here and the end of `read_bodies`: the messages would be lost.
        if !batch.has_compressed() {
            return Ok(batch);
        }
        py.detach(|| self.consumer.read_bodies(batch)).map_err(raise)
    }

    /// Makes one Arrow batch of the messages; those that do not fit, and all when it fails, go back to the consumer.
    fn columns(&self, py: Python<'_>, columns: Columns, pulled: PulledBatch) -> PyResult<ArrowBatch> {
        let first = |part: &PulledPart| Some(((**part.queue()).clone(), part.spans().first()?.queue_offset));
        let all: Vec<_> = pulled.parts().iter().rev().filter_map(first).collect();
        let filled = match py.detach(|| self.fill(columns, pulled)) {
            Ok(filled) => filled,
            Err(error) => {
                self.consumer.take_back(&all);
                return Err(raise(error));
            }
        };
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
        let filled = fill(columns, pulled, spent, self.consumer.body_limits())?;
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
    body_limits: DecompressLimits,
) -> Result<Filled, ScanError> {
    let (rows, record_bytes) = (pulled.len(), pulled.size_bytes());
    let limits = BatchLimits { rows, bytes: BatchLimits::MOST_BYTES };
    let mut builder = match spent {
        Some(spent) => RecordBatchBuilder::with_room_of(spent, columns, limits, rows, record_bytes),
        None => RecordBatchBuilder::with_room(columns, limits, rows, record_bytes),
    }
    .with_body_limits(body_limits);
    let (mut left, mut damage) = (Vec::new(), None);
    // Each part is dropped after its last message, so that its memory can take the next pull answers.
    for part in pulled.into_parts() {
        for record in part.iter() {
            let is_last = damage.is_some() || builder.is_full_before(&record);
            if !is_last && let Err(error) = builder.push(&record, Some(&*part.queue().broker_name)) {
                damage = Some(error);
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

//! Reading a part of a queue from its broker, outside any group.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rocketpy_client::{Client, ClientError, PulledPart, RangeReader};
use rocketpy_protocol::compression::DecompressLimits;
use rocketpy_scan::{Output, RecordBatchBuilder, Sums};
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use crate::arrow::{self, ArrowBatch};
use crate::client::connect;
use crate::consumer::Origins;
use crate::error::{self, raise};
use crate::number::{body_limits, offset};
use crate::options::Options;
use crate::process::Owned;
use crate::queue::QueueArgument;
use crate::received::ReceivedMessage;
use crate::tags::TagsArgument;
use crate::wait::wait;

/// Reads a part of a queue into Arrow record batches.
#[pyclass(name = "RangeReader", module = "rocketpy._rocketpy", frozen)]
pub(crate) struct PyRangeReader {
    running: Owned<Running>,
}

/// A batch, the queue offset behind it, and the ranges of offsets that it passed over without a filter.
type Batch = (ArrowBatch, u64, Vec<(u64, u64)>);

struct Running {
    /// Locked during waits: threads that share the reader take turns.
    state: Mutex<State>,
    body_limits: DecompressLimits,
    client: Client,
    runtime: Handle,
}

struct State {
    reader: RangeReader,
    output: Output,
    passed: Passed,
    /// The last pull answer, and the number of its records that are already in batches.
    part: Option<(PulledPart, usize)>,
    /// What ended the last batch before it was full; the next call raises it.
    failed: Option<ClientError>,
}

/// Where the records pushed so far end, and what is missing between those of the batch under way.
struct Passed {
    next_offset: u64,
    gaps: Vec<(u64, u64)>,
    /// Whether the broker leaves messages out, so that a gap says nothing.
    is_filtered: bool,
}

impl Passed {
    fn note(&mut self, queue_offset: u64) {
        if queue_offset > self.next_offset && !self.is_filtered {
            self.gaps.push((self.next_offset, queue_offset));
        }
        self.next_offset = queue_offset + 1;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let client = self.client.clone();
        self.runtime.spawn(async move { client.close().await });
    }
}

#[pymethods]
impl PyRangeReader {
    #[new]
    #[pyo3(signature = (name_servers, queue, start, end, tags, columns, groupings, batch_rows, batch_bytes, max_body_bytes, null_unreadable_bodies, **options))]
    #[expect(clippy::too_many_arguments, reason = "called by one Python function, which names them")]
    fn new(
        py: Python<'_>,
        name_servers: Vec<String>,
        queue: QueueArgument,
        start: &Bound<'_, PyAny>,
        end: &Bound<'_, PyAny>,
        tags: TagsArgument,
        columns: Option<Vec<String>>,
        groupings: Vec<Vec<String>>,
        batch_rows: &Bound<'_, PyAny>,
        batch_bytes: &Bound<'_, PyAny>,
        max_body_bytes: Option<&Bound<'_, PyAny>>,
        null_unreadable_bodies: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (start, end) = (offset(start)?, offset(end)?);
        if start > end {
            return Err(error::invalid(format!("a range cannot end before it starts: {start} to {end}")));
        }
        let body_limits = body_limits(max_body_bytes)?;
        let limits = arrow::limits(batch_rows, batch_bytes)?;
        let groupings = arrow::groupings(groupings)?;
        let output = if groupings.is_empty() {
            let builder = RecordBatchBuilder::new(arrow::columns(columns)?, limits)
                .with_body_limits(body_limits)
                .with_null_unreadable_bodies(null_unreadable_bodies);
            Output::Rows(Box::new(builder))
        } else {
            Output::Sums(Sums::new(groupings, limits.rows))
        };
        let is_filtered = !tags.0.filter().map_err(raise)?.0.is_all();
        let passed = Passed { next_offset: start.get(), gaps: Vec::new(), is_filtered };
        let options = Options::new("RangeReader", options);
        let (client, runtime) = connect(py, name_servers, options)?;
        let opened = RangeReader::new(&client, queue.0, start, end, tags.0);
        let reader = wait(py, &runtime, opened)?.map_err(raise)?;
        let state = Mutex::new(State { reader, output, passed, part: None, failed: None });
        Ok(Self { running: Owned::new(Running { state, body_limits, client, runtime }) })
    }

    /// The next batch, or None at the end of the range.
    fn next_batch(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        let running = self.running.get()?;
        let next = async {
            // What is ready at once is done with the interpreter lock: building a batch must not be.
            tokio::task::yield_now().await;
            running.state.lock().await.next_batch().await
        };
        wait(py, &running.runtime, next)?
    }

    /// The messages of the next pull answer, or None at the end of the range.
    fn next_messages(&self, py: Python<'_>) -> PyResult<Option<Vec<ReceivedMessage>>> {
        let running = self.running.get()?;
        let next = async { running.state.lock().await.next_part().await };
        let part = wait(py, &running.runtime, next)?.map_err(raise)?;
        let origins = Origins::plain(running.body_limits);
        Ok(part.map(|(part, done)| origins.received(&part).skip(done).collect()))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let running = self.running.get()?;
        wait(py, &running.runtime, running.client.close())
    }
}

impl State {
    /// The rest of the last pull answer that is in no batch yet, or else the next pull answer.
    async fn next_part(&mut self) -> Result<Option<(PulledPart, usize)>, ClientError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        match self.part.take() {
            Some(rest) => Ok(Some(rest)),
            None => Ok(self.reader.next().await?.map(|part| (part, 0))),
        }
    }

    /// Fills a batch from as many pull answers as needed. What was read before an error is handed out before it.
    async fn next_batch(&mut self) -> PyResult<Option<Batch>> {
        loop {
            let Some((part, done)) = &mut self.part else {
                match self.next_part().await {
                    Ok(Some(part)) => self.part = Some(part),
                    Ok(None) if self.output.is_empty() => return Ok(None),
                    Err(error) if self.output.is_empty() => return Err(raise(error)),
                    Ok(None) => return self.finish(),
                    Err(error) => {
                        self.failed = Some(error);
                        return self.finish();
                    }
                }
                continue;
            };
            let broker_name = Some(&*part.queue().broker_name);
            while *done < part.len() {
                let record = part.record(*done);
                if self.output.is_full_before(&record) {
                    return self.finish();
                }
                self.output.push(&record, broker_name).map_err(raise)?;
                self.passed.note(record.queue_offset.get());
                *done += 1;
            }
            self.part = None;
        }
    }

    fn finish(&mut self) -> PyResult<Option<Batch>> {
        let batch = self.output.finish().map_err(raise)?;
        let gaps = std::mem::take(&mut self.passed.gaps);
        Ok(Some((ArrowBatch::new(batch), self.passed.next_offset, gaps)))
    }
}

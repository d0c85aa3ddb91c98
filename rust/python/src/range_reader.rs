//! Reading a part of a queue from its broker, outside any group.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rocketpy_client::{Client, PulledPart, RangeReader};
use rocketpy_protocol::compression::DecompressLimits;
use rocketpy_scan::RecordBatchBuilder;
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

struct Running {
    /// Locked during waits: threads that share the reader take turns.
    state: Mutex<State>,
    body_limits: DecompressLimits,
    client: Client,
    runtime: Handle,
}

struct State {
    reader: RangeReader,
    builder: RecordBatchBuilder,
    /// The last pull answer, and the number of its records that are already in batches.
    part: Option<(PulledPart, usize)>,
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
    #[pyo3(signature = (name_servers, queue, start, end, tags, columns, batch_rows, batch_bytes, max_body_bytes, **options))]
    #[expect(clippy::too_many_arguments, reason = "called by one Python function, which names them")]
    fn new(
        py: Python<'_>,
        name_servers: Vec<String>,
        queue: QueueArgument,
        start: &Bound<'_, PyAny>,
        end: &Bound<'_, PyAny>,
        tags: TagsArgument,
        columns: Option<Vec<String>>,
        batch_rows: &Bound<'_, PyAny>,
        batch_bytes: &Bound<'_, PyAny>,
        max_body_bytes: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (start, end) = (offset(start)?, offset(end)?);
        if start > end {
            return Err(error::invalid(format!("a range cannot end before it starts: {start} to {end}")));
        }
        let body_limits = body_limits(max_body_bytes)?;
        let builder =
            RecordBatchBuilder::new(arrow::columns(columns)?, arrow::limits(batch_rows, batch_bytes)?)
                .with_body_limits(body_limits);
        let options = Options::new("RangeReader", options);
        let (client, runtime) = connect(py, name_servers, options)?;
        let opened = RangeReader::new(&client, queue.0, start, end, tags.0);
        let reader = wait(py, &runtime, opened)?.map_err(raise)?;
        let state = Mutex::new(State { reader, builder, part: None });
        Ok(Self { running: Owned::new(Running { state, body_limits, client, runtime }) })
    }

    /// The next batch, or None at the end of the range.
    fn next_batch(&self, py: Python<'_>) -> PyResult<Option<ArrowBatch>> {
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
        let part = wait(py, &running.runtime, async { running.state.lock().await.next_part().await })??;
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
    async fn next_part(&mut self) -> PyResult<Option<(PulledPart, usize)>> {
        match self.part.take() {
            Some(rest) => Ok(Some(rest)),
            None => Ok(self.reader.next().await.map_err(raise)?.map(|part| (part, 0))),
        }
    }

    /// Fills a batch from as many pull answers as needed.
    async fn next_batch(&mut self) -> PyResult<Option<ArrowBatch>> {
        loop {
            let Some((part, done)) = &mut self.part else {
                match self.reader.next().await.map_err(raise)? {
                    Some(part) => self.part = Some((part, 0)),
                    None if self.builder.is_empty() => return Ok(None),
                    None => return self.finish(),
                }
                continue;
            };
            let broker_name = Some(&*part.queue().broker_name);
            while *done < part.len() {
                let record = part.record(*done);
                if self.builder.is_full_before(&record) {
                    return self.finish();
                }
                self.builder.push(&record, broker_name).map_err(raise)?;
                *done += 1;
            }
            self.part = None;
        }
    }

    fn finish(&mut self) -> PyResult<Option<ArrowBatch>> {
        self.builder.finish().map(|batch| Some(ArrowBatch::new(batch))).map_err(raise)
    }
}

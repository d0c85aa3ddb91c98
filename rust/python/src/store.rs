//! Reading a store folder.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatchReader;
use bytes::Bytes;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use rocketpy_filter::MessageFilter;
use rocketpy_model::{MessageQueue, QueueOffset};
use rocketpy_protocol::record::RecordView;
use rocketpy_scan::{PlanOptions, Step, StoreScan, StoreScanOptions, plan};
use rocketpy_store::KeyKind;
use rocketpy_store::reader::{KeyQuery, KeyedRecord, StoreReader};

use crate::admin::no_kind;
use crate::arrow::{self, ArrowBatch};
use crate::error::{self, raise};
use crate::named;
use crate::number::{body_limits, count, offset, within};
use crate::received::{Origin, ReceivedMessage};
use crate::rows::{LostRange, QueueRange, StoreRange, StoredTopic};
use crate::tags::TagsArgument;

/// Reads a store folder without a server. Plain files: it works in a forked child too.
#[pyclass(name = "StoreReader", module = "rocketpy._rocketpy", frozen)]
pub(crate) struct PyStoreReader {
    reader: StoreReader,
}

#[pymethods]
impl PyStoreReader {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, commit_log: Option<PathBuf>) -> PyResult<Self> {
        let open = || match commit_log {
            Some(log_dir) => StoreReader::open_with_log(&path, log_dir),
            None => StoreReader::open(&path),
        };
        Ok(Self { reader: py.detach(open).map_err(raise)? })
    }

    fn topics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let topics = py.detach(|| self.reader.topics()).map_err(raise)?;
        named::list(py, topics.into_iter().map(StoredTopic::from))
    }

    fn topic<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let topic = py.detach(|| self.reader.topic(name)).map_err(raise)?;
        named::to_python(py, &StoredTopic::from(topic))
    }

    #[expect(clippy::too_many_arguments, reason = "called by one Python function, which names them")]
    fn ranges<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        queues: Option<Vec<u32>>,
        starts: Vec<(u32, Bound<'py, PyAny>)>,
        ends: Vec<(u32, Bound<'py, PyAny>)>,
        stored_from_ms: Option<i64>,
        stored_before_ms: Option<i64>,
        part_bytes: &Bound<'py, PyAny>,
        min_parts: &Bound<'py, PyAny>,
        fail_on_data_loss: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = PlanOptions {
            queues,
            stored_from_ms,
            stored_before_ms,
            starts: bounds(starts)?,
            ends: bounds(ends)?,
            slice_bytes: within("part_bytes", part_bytes, 1..=i64::MAX)?.unsigned_abs(),
            min_slices: count("min_parts", min_parts)?,
            fail_on_data_loss,
        };
        let slices = py.detach(|| plan(&self.reader, topic, &options)).map_err(raise)?;
        named::list(py, slices.into_iter().map(StoreRange::from))
    }

    #[expect(clippy::too_many_arguments, reason = "called by one Python function, which names them")]
    fn query(
        &self,
        py: Python<'_>,
        topic: &str,
        key: &str,
        kind: &str,
        begin_ms: i64,
        end_ms: i64,
        max_messages: Option<&Bound<'_, PyAny>>,
        slots_and_entries: Option<(u32, u32)>,
    ) -> PyResult<Vec<ReceivedMessage>> {
        let kind = match kind {
            "key" => KeyKind::Any,
            "unique_key" => KeyKind::Unique,
            "tag" => KeyKind::Tag,
            other => return Err(no_kind(other)),
        };
        let max_records = max_messages.map_or(Ok(usize::MAX), |most| count("max_messages", most))?;
        let query = KeyQuery { kind, max_records, begin_ms, end_ms, slots_and_entries };
        let found = py.detach(|| self.reader.query(topic, key, &query)).map_err(raise)?;
        found.into_iter().map(received).collect()
    }

    #[expect(clippy::too_many_arguments, reason = "called by one Python function, which names them")]
    fn scan(
        &self,
        py: Python<'_>,
        ranges: Vec<QueueRange>,
        columns: Option<Vec<String>>,
        groupings: Vec<Vec<String>>,
        tags: TagsArgument,
        batch_rows: &Bound<'_, PyAny>,
        batch_bytes: &Bound<'_, PyAny>,
        broker_name: Option<String>,
        fail_on_data_loss: bool,
        verify: bool,
        max_body_bytes: Option<&Bound<'_, PyAny>>,
        null_unreadable_bodies: bool,
    ) -> PyResult<Scan> {
        let options = StoreScanOptions {
            columns: arrow::columns(columns)?,
            groupings: arrow::groupings(groupings)?,
            limits: arrow::limits(batch_rows, batch_bytes)?,
            filter: MessageFilter::Tags(tags.0.filter().map_err(raise)?.0).simple(),
            broker_name,
            fail_on_data_loss,
            verify,
            body_limits: body_limits(max_body_bytes)?,
            null_unreadable_bodies,
        };
        let ranges = ranges.into_iter().map(QueueRange::into_range).collect();
        let scan = py.detach(|| StoreScan::new(&self.reader, ranges, options)).map_err(raise)?;
        Ok(Scan { schema: scan.schema(), scan: Mutex::new(Some(scan)) })
    }
}

/// A stored record as a message; its broker is unknown.
fn received(found: KeyedRecord) -> PyResult<ReceivedMessage> {
    let record = Bytes::from(found.bytes);
    let queue = {
        let view = RecordView::parse(&record).map_err(raise)?;
        MessageQueue::new(view.topic, "", view.queue_id)
    };
    Ok(ReceivedMessage::new(record, Origin::new(Arc::new(queue))))
}

fn bounds(given: Vec<(u32, Bound<'_, PyAny>)>) -> PyResult<Vec<(u32, QueueOffset)>> {
    given.into_iter().map(|(queue_id, at)| Ok((queue_id, offset(&at)?))).collect()
}

/// Batches of a store, by iteration, or once by the Arrow PyCapsule interface: `pyarrow.table(scan)`.
#[pyclass(module = "rocketpy", frozen)]
pub(crate) struct Scan {
    schema: arrow_schema::SchemaRef,
    /// Taken by `__arrow_c_stream__`, which hands over the rest.
    scan: Mutex<Option<StoreScan>>,
}

#[pymethods]
impl Scan {
    /// Names of the columns, in order.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        arrow::names(&self.schema)
    }

    /// Ranges of messages that were requested and are left out so far, because their data is lost or damaged.
    #[getter]
    fn lost<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let lost: Vec<_> = py.detach(|| {
            let scan = self.scan.lock();
            let lost = scan.as_ref().map_or(&[][..], StoreScan::lost);
            lost.iter().map(LostRange::from).collect()
        });
        named::list(py, lost)
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<ArrowBatch>> {
        loop {
            let step = py.detach(|| self.scan.lock().as_mut().map(StoreScan::step));
            match step.ok_or_else(handed_over)?.map_err(raise)? {
                Step::Batch(batch) => return Ok(Some(ArrowBatch::new(batch))),
                Step::More => py.check_signals()?,
                Step::End => return Ok(None),
            }
        }
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::schema_capsule(py, &self.schema)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let scan = py.detach(|| self.scan.lock().take()).ok_or_else(handed_over)?;
        arrow::stream_capsule(py, scan)
    }

    fn __repr__(&self) -> String {
        format!("<Scan of {}>", arrow::names(&self.schema).join(", "))
    }
}

fn handed_over() -> PyErr {
    error::closed("the scan was already handed over as an Arrow stream; start a new scan to read again")
}

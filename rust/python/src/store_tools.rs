//! Tools for store folders.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rocketpy_model::{PhysicalOffset, Properties, QueueOffset};
use rocketpy_protocol::properties_text;
use rocketpy_scan::{SelectedScan, Step};
use rocketpy_store::NewRecord;
use rocketpy_store::reader::{ReadError, StoreReader};
use rocketpy_tools::{self as tools, Progress, Selected, Selection, ToolError, Transfer, Watch};

use crate::arrow::{self, ArrowBatch};
use crate::error::{self, raise};
use crate::number::body_limits;
use crate::{logs, named};

/// Interval at which a running tool checks for signals and reports its progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);

/// Runs a tool without the interpreter lock. Its warnings go to Python's `logging`. Ctrl-C stops it, and so does an error that `progress(done, total)` raises.
fn watched<T: Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(Watch<'_>) -> Result<T, ToolError> + Send,
) -> PyResult<T> {
    logs::start(py)?;
    let mut raised = None;
    let result = py.detach(|| {
        let mut reported_at: Option<Instant> = None; // the first step is reported at once
        let mut watch = |at: Progress| {
            if reported_at.is_some_and(|at| at.elapsed() < PROGRESS_INTERVAL) {
                return true;
            }
            reported_at = Some(Instant::now());
            raised = Python::attach(|py| report_progress(py, progress.as_ref(), at)).err();
            raised.is_none()
        };
        work(&mut watch)
    });
    match raised {
        Some(error) => Err(error),
        None => result.map_err(raise),
    }
}

fn report_progress(py: Python<'_>, progress: Option<&Py<PyAny>>, at: Progress) -> PyResult<()> {
    py.check_signals()?;
    match progress {
        Some(progress) => progress.call1(py, (at.done_bytes, at.total_bytes)).map(drop),
        None => Ok(()),
    }
}

fn open(path: &PathBuf, commit_log: Option<PathBuf>) -> Result<StoreReader, ReadError> {
    match commit_log {
        Some(log_dir) => StoreReader::open_with_log(path, log_dir),
        None => StoreReader::open(path),
    }
}

#[pyfunction]
pub(crate) fn store_facts(
    py: Python<'_>,
    path: PathBuf,
    commit_log: Option<PathBuf>,
) -> PyResult<Bound<'_, PyAny>> {
    let facts = watched(py, None, |watch| tools::facts(&open(&path, commit_log)?, watch))?;
    named::to_python(py, &facts)
}

#[pyfunction]
pub(crate) fn store_verify(
    py: Python<'_>,
    path: PathBuf,
    commit_log: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyAny>> {
    let checked = watched(py, progress, |watch| tools::verify(&open(&path, commit_log)?, watch))?;
    named::to_python(py, &checked)
}

#[pyfunction]
pub(crate) fn store_repair(
    py: Python<'_>,
    path: PathBuf,
    commit_log: Option<PathBuf>,
    apply: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyAny>> {
    let tool = if apply { tools::repair } else { tools::plan_repair };
    let repair = watched(py, progress, |watch| tool(&open(&path, commit_log)?, watch))?;
    named::to_python(py, &repair)
}

#[pyfunction]
pub(crate) fn store_cut(
    py: Python<'_>,
    path: PathBuf,
    at: u64,
    commit_log: Option<PathBuf>,
    apply: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyAny>> {
    let tool = if apply { tools::cut } else { tools::plan_cut };
    let cut = watched(py, progress, |watch| tool(&open(&path, commit_log)?, PhysicalOffset(at), watch))?;
    named::to_python(py, &cut)
}

#[pyfunction]
pub(crate) fn store_snapshot(
    py: Python<'_>,
    path: PathBuf,
    target: PathBuf,
    commit_log: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyAny>> {
    let made = watched(py, progress, |watch| tools::snapshot(&open(&path, commit_log)?, &target, watch))?;
    named::to_python(py, &made)
}

#[pyfunction]
pub(crate) fn store_diff(
    py: Python<'_>,
    first: (PathBuf, Option<PathBuf>),
    second: (PathBuf, Option<PathBuf>),
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyAny>> {
    let found = watched(py, progress, |watch| {
        tools::diff(&open(&first.0, first.1)?, &open(&second.0, second.1)?, watch)
    })?;
    named::to_python(py, &found)
}

/// Selected records of a store.
#[pyclass(module = "rocketpy._rocketpy", frozen)]
pub(crate) struct StoreRecords {
    /// Taken by a transfer.
    state: Mutex<Option<SelectedScan>>,
}

#[pymethods]
impl StoreRecords {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "called by one Python function, which names them")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        commit_log: Option<PathBuf>,
        topics: Vec<String>,
        queues: Option<Vec<u32>>,
        queue_offsets: (Option<u64>, Option<u64>),
        physical_offsets: (Option<u64>, Option<u64>),
        stored_ms: (Option<i64>, Option<i64>),
        key: Option<String>,
        use_index: bool,
        skips_damage: bool,
        verify: bool,
        columns: Option<Vec<String>>,
        batch_rows: &Bound<'_, PyAny>,
        batch_bytes: &Bound<'_, PyAny>,
        max_body_bytes: Option<&Bound<'_, PyAny>>,
        takes_waiting: bool,
    ) -> PyResult<Self> {
        let selection = Selection {
            topics,
            queues,
            queue_from: queue_offsets.0.map(QueueOffset),
            queue_before: queue_offsets.1.map(QueueOffset),
            physical_from: physical_offsets.0.map(PhysicalOffset),
            physical_before: physical_offsets.1.map(PhysicalOffset),
            stored_from_ms: stored_ms.0,
            stored_before_ms: stored_ms.1,
            key,
            scans_log: !use_index,
            skips_damage,
            trusts_checksums: !verify,
            takes_waiting,
        };
        let columns = arrow::columns(columns)?;
        let limits = arrow::limits(batch_rows, batch_bytes)?;
        let selected = py.detach(|| Selected::new(&open(&path, commit_log)?, selection)).map_err(raise)?;
        let bodies = body_limits(max_body_bytes)?;
        let scan = SelectedScan::new(selected, columns, limits, None).with_body_limits(bodies);
        Ok(Self { state: Mutex::new(Some(scan)) })
    }

    /// The next batch, or None at the end.
    fn next_batch(&self, py: Python<'_>) -> PyResult<Option<ArrowBatch>> {
        loop {
            let step = py.detach(|| self.state.lock().as_mut().map(SelectedScan::step));
            match step.ok_or_else(used_up)?.map_err(raise)? {
                Step::Batch(batch) => return Ok(Some(ArrowBatch::new(batch))),
                Step::More => py.check_signals()?,
                Step::End => return Ok(None),
            }
        }
    }

    /// The bytes of the next records, one after another, or None at the end.
    fn next_raw<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        loop {
            let mut bytes = Vec::new();
            let step = py.detach(|| self.state.lock().as_mut().map(|scan| scan.step_raw(&mut bytes)));
            let has_more = step.ok_or_else(used_up)?.map_err(raise)?;
            if !bytes.is_empty() {
                return Ok(Some(PyBytes::new(py, &bytes)));
            }
            if !has_more {
                return Ok(None);
            }
            py.check_signals()?;
        }
    }

    /// Damaged records skipped so far; bytes done, total bytes.
    #[getter]
    fn state(&self) -> (u64, u64, u64) {
        let state = self.state.lock();
        state.as_ref().map_or((0, 0, 0), |scan| {
            let progress = scan.selected().progress();
            (scan.left_out(), progress.done_bytes, progress.total_bytes)
        })
    }
}

fn used_up() -> PyErr {
    error::closed("the records were already handed over; select them again to read again")
}

/// A message to import: the dict that `rocketpy.store.tools` makes of a row.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Given {
    /// Number of the row, from 1, for errors.
    number: u64,
    topic: String,
    queue_id: u32,
    flag: i32,
    born_at_ms: i64,
    born_host: String,
    reconsume_times: i32,
    body: Vec<u8>,
    /// As [`store_properties`] makes it.
    properties: Vec<u8>,
}

impl Given {
    fn append_to(&self, transfer: &mut Transfer) -> Result<(), ToolError> {
        let unknown_host = ([127, 0, 0, 1], 0).into();
        let record = NewRecord {
            topic: &self.topic,
            queue_id: self.queue_id,
            flag: self.flag,
            sys_flag: 0,
            born_at_ms: self.born_at_ms,
            born_host: self.born_host.parse().unwrap_or(unknown_host),
            reconsume_times: self.reconsume_times,
            prepared_transaction_offset: PhysicalOffset::ZERO,
            body: &self.body,
            properties: &self.properties,
            may_have_crc: true,
        };
        transfer.append(&record, || format!("row {}", self.number))
    }
}

/// The text in which a store keeps properties.
#[pyfunction]
pub(crate) fn store_properties(py: Python<'_>, pairs: Vec<(String, String)>) -> PyResult<Bound<'_, PyBytes>> {
    let mut properties = Properties::new();
    for (name, value) in pairs {
        properties.set_stored(name, value).map_err(raise)?;
    }
    let mut text = Vec::new();
    properties_text::encode(&properties, &mut text);
    Ok(PyBytes::new(py, &text))
}

/// A store that receives messages.
#[pyclass(module = "rocketpy._rocketpy", frozen)]
pub(crate) struct StoreTransfer {
    transfer: Mutex<Option<Transfer>>,
    like: Option<PathBuf>,
}

#[pymethods]
impl StoreTransfer {
    #[new]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        commit_log: Option<PathBuf>,
        like: Option<PathBuf>,
        like_commit_log: Option<PathBuf>,
        is_new: bool,
    ) -> PyResult<Self> {
        let made = if is_new { Transfer::make } else { Transfer::open };
        let transfer = watched(py, None, |_| {
            let source = like.as_ref().map(|like| open(like, like_commit_log)).transpose()?;
            made(&path, commit_log.as_deref(), source.as_ref())
        })?;
        Ok(Self { transfer: Mutex::new(Some(transfer)), like })
    }

    /// Appends the remaining selected records.
    fn append_records(
        &self,
        py: Python<'_>,
        records: &StoreRecords,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let scan = records.state.lock().take().ok_or_else(used_up)?;
        watched(py, progress, |watch| match self.transfer.lock().as_mut() {
            Some(transfer) => transfer.append_all(scan.into_selected(), watch),
            None => Ok(()),
        })
    }

    /// Appends messages.
    fn append(&self, py: Python<'_>, messages: Vec<Given>) -> PyResult<()> {
        watched(py, None, |_| match self.transfer.lock().as_mut() {
            Some(transfer) => messages.iter().try_for_each(|message| message.append_to(transfer)),
            None => Ok(()),
        })
    }

    /// Closes the store and reports what went in.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let transfer =
            self.transfer.lock().take().ok_or_else(|| error::closed("the transfer is finished"))?;
        let finished = watched(py, None, |_| transfer.finish(self.like.as_deref()))?;
        named::to_python(py, &finished)
    }
}

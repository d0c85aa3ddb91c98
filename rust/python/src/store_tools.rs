//! Tools for store folders. Reports go to Python as JSON, where they become values.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_scan::{SelectedScan, Step};
use rocketpy_store::NewRecord;
use rocketpy_store::reader::{ReadError, StoreReader};
use rocketpy_store::tools::{self, Progress, Selected, Selection, ToolError, Transfer, Watch, to_json};

use crate::arrow::{self, ArrowBatch};
use crate::error::{self, raise};
use crate::number::body_limits;

/// How often a tool looks for signals and says how far it is.
const STEP: Duration = Duration::from_millis(50);

/// Runs a tool without the interpreter lock; it stops for Ctrl-C and for what `progress(done, total)` raises.
fn watched<T: Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(Watch<'_>) -> Result<T, ToolError> + Send,
) -> PyResult<T> {
    let mut raised = None;
    let result = py.detach(|| {
        let mut looked_at: Option<Instant> = None; // the first step is told at once
        let mut watch = |at: Progress| {
            if looked_at.is_some_and(|at| at.elapsed() < STEP) {
                return true;
            }
            looked_at = Some(Instant::now());
            raised = Python::attach(|py| look_up(py, progress.as_ref(), at)).err();
            raised.is_none()
        };
        work(&mut watch)
    });
    match raised {
        Some(error) => Err(error),
        None => result.map_err(raise),
    }
}

fn look_up(py: Python<'_>, progress: Option<&Py<PyAny>>, at: Progress) -> PyResult<()> {
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
pub(crate) fn store_facts(py: Python<'_>, path: PathBuf, commit_log: Option<PathBuf>) -> PyResult<String> {
    watched(py, None, |_| Ok(to_json(&tools::facts(&open(&path, commit_log)?)?)))
}

#[pyfunction]
pub(crate) fn store_verify(
    py: Python<'_>,
    path: PathBuf,
    commit_log: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    watched(py, progress, |watch| Ok(to_json(&tools::verify(&open(&path, commit_log)?, watch)?)))
}

#[pyfunction]
pub(crate) fn store_repair(
    py: Python<'_>,
    path: PathBuf,
    commit_log: Option<PathBuf>,
    apply: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let tool = if apply { tools::repair } else { tools::plan_repair };
    watched(py, progress, |watch| Ok(to_json(&tool(&open(&path, commit_log)?, watch)?)))
}

#[pyfunction]
pub(crate) fn store_snapshot(
    py: Python<'_>,
    path: PathBuf,
    target: PathBuf,
    commit_log: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    watched(py, progress, |watch| Ok(to_json(&tools::snapshot(&open(&path, commit_log)?, &target, watch)?)))
}

/// Chosen records of a store.
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

    /// The bytes of the next records, one behind the other, or None at the end.
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

    /// Damaged records that were left out so far; bytes done, bytes in all.
    #[getter]
    fn state(&self) -> (u64, u64, u64) {
        let state = self.state.lock();
        state.as_ref().map_or((0, 0, 0), |scan| {
            let (selected, progress) = (scan.selected(), scan.selected().progress());
            (selected.left_out(), progress.done_bytes, progress.total_bytes)
        })
    }
}

fn used_up() -> PyErr {
    error::closed("the records were handed over; choose again to read again")
}

/// Topic, queue, flag, system flag, born at, born host, reconsume times, body, properties.
type Given = (String, u32, i32, i32, i64, String, i32, Vec<u8>, Vec<u8>);

/// A store that messages are put into.
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

    /// Appends what is left of a choice of records.
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
        watched(py, None, |_| {
            let mut guard = self.transfer.lock();
            let Some(transfer) = guard.as_mut() else { return Ok(()) };
            messages.iter().try_for_each(|message| {
                let (topic, queue_id, flag, sys_flag, born_at_ms, born_host, times, body, properties) =
                    message;
                let nowhere = ([127, 0, 0, 1], 0).into();
                transfer.append(&NewRecord {
                    topic,
                    queue_id: *queue_id,
                    flag: *flag,
                    sys_flag: *sys_flag,
                    born_at_ms: *born_at_ms,
                    born_host: born_host.parse().unwrap_or(nowhere),
                    reconsume_times: *times,
                    prepared_transaction_offset: PhysicalOffset::ZERO,
                    body,
                    properties,
                })
            })
        })
    }

    /// Closes the store; says what went in.
    fn finish(&self, py: Python<'_>) -> PyResult<String> {
        let transfer =
            self.transfer.lock().take().ok_or_else(|| error::closed("the transfer is finished"))?;
        watched(py, None, |_| Ok(to_json(&transfer.finish(self.like.as_deref())?)))
    }
}

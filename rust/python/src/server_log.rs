//! Log lines of servers in this process.

use std::path::PathBuf;

use pyo3::prelude::*;
use rocketpy_server::{LogFileConfig, LogFormat};

use crate::error::raise;

/// Writes the log lines of servers in this process to a file, or to standard error, as `ROCKETPY_LOG` chooses them.
#[pyfunction]
pub(crate) fn start_log(
    path: Option<PathBuf>,
    max_bytes: u64,
    kept_files: u32,
    is_json: bool,
) -> PyResult<()> {
    let file = path.map(|path| LogFileConfig { path, max_bytes, kept_files, is_private: false });
    let format = if is_json { LogFormat::Json } else { LogFormat::Text };
    rocketpy_server::init_logging(file, format).map_err(raise)
}

/// Opens the log file again.
#[pyfunction]
pub(crate) fn reopen_log(py: Python<'_>) {
    py.detach(rocketpy_server::reopen_log);
}

//! The tokio runtime that all clients of this process share.

use std::mem::ManuallyDrop;

use parking_lot::Mutex;
use pyo3::PyResult;
use rocketpy_env::process_id;
use tokio::runtime::{Builder, Handle};

use crate::error;

/// Upper limit of threads. More do not make a Python process faster: it has one interpreter lock.
const MAX_THREADS: usize = 4;

/// Process id and handle of the runtime. A forked child finds its parent's id here and starts its own runtime.
///
/// Locked only by threads that hold the interpreter lock throughout. Python forks only with that lock, so a child never
/// inherits this one locked.
static RUNTIME: Mutex<Option<(u32, Handle)>> = Mutex::new(None);

/// The runtime's handle; the first call of a process starts its threads.
///
/// # Errors
/// `RocketPyError` when the system gives no threads.
pub(crate) fn handle() -> PyResult<Handle> {
    let pid = process_id();
    let mut current = RUNTIME.lock();
    if let Some((made_by, handle)) = &*current
        && *made_by == pid
    {
        return Ok(handle.clone());
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let runtime = Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("rocketpy-client")
        .enable_all()
        .build()
        .map_err(|cause| error::no_threads(&cause))?;
    // Never dropped: its threads end with the process, and dropping would wait for them.
    let runtime = ManuallyDrop::new(runtime);
    let handle = runtime.handle().clone();
    *current = Some((pid, handle.clone()));
    Ok(handle)
}

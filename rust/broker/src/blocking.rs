//! Work that waits for the disk.

use tokio::runtime::{Handle, RuntimeFlavor};

use crate::refusal::Refusal;
use crate::table::group_commit::Written;

/// Runs work that waits for the disk on a thread that serves connections; the other connections of this thread are served elsewhere meanwhile.
pub(crate) fn blocking<T>(work: impl FnOnce() -> T) -> T {
    let may_step_aside =
        Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if may_step_aside { tokio::task::block_in_place(work) } else { work() }
}

/// Does work that waits for the disk, on a thread that serves no connections.
pub(crate) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(failure) if failure.is_panic() => std::panic::resume_unwind(failure.into_panic()),
        // The runtime ends, and this task with it at its next wait.
        Err(_) => std::future::pending().await,
    }
}

/// Waits for a change to be on disk, if it is not.
pub(crate) async fn on_disk(written: Option<Written>) -> Result<(), Refusal> {
    match written {
        Some(written) => Ok(written.done().await?),
        None => Ok(()),
    }
}

//! Work that waits for the disk, on a thread that serves connections.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs work that waits for the disk; the other connections of this thread are served elsewhere meanwhile.
pub(crate) fn blocking<T>(work: impl FnOnce() -> T) -> T {
    let may_step_aside =
        Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if may_step_aside { tokio::task::block_in_place(work) } else { work() }
}

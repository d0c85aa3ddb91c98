//! What a thread outside of the runtime may do for the task of a connection.
use std::cell::Cell;
use std::marker::PhantomData;
use std::task::Waker;

/// Does the work of a connection's task in the calling thread.
pub(crate) trait Helper: Send + Sync {
    /// Writes what is queued, for the sleeping task with this waker. False: it has to be woken. Never waits.
    fn write(&self, waker: &Waker) -> bool;

    /// Waits a moment for the peer, and handles what it sent, until `is_answered`: this thread or the task has then read the answer. Does
    /// nothing where another thread does so.
    fn read(&self, is_answered: &mut dyn FnMut() -> bool);
}

thread_local! {
    static READS: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread reads the answers that it waits for.
pub(crate) fn reads_here() -> bool {
    READS.get()
}

/// Lets this thread read from the socket while it waits for the answer of a call, until the guard is dropped.
///
/// For a thread that blocks on one call after the other: the poll of a call waits up to 1 ms for the peer, and other futures of the thread
/// wait as long.
pub fn read_here() -> ReadHere {
    ReadHere { before: READS.replace(true), not_send: PhantomData }
}

/// The guard of [`read_here`].
#[derive(Debug)]
#[must_use = "dropping the guard ends it"]
pub struct ReadHere {
    before: bool,
    not_send: PhantomData<*const ()>,
}

impl Drop for ReadHere {
    fn drop(&mut self) {
        READS.set(self.before);
    }
}

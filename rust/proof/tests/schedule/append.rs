//! Threads that wait for appends, as those that send the log to slaves do.

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU64, Ordering, fence};
use shuttle::thread::{self, JoinHandle};

use crate::append_bell::AppendBell;
use crate::{EVER, join};

const WAITERS: u64 = 2;
const APPENDERS: u64 = 2;
const APPENDS: u64 = 2;

#[derive(Default)]
struct Log {
    bell: AppendBell,
    end: AtomicU64,
}

impl Log {
    fn append(&self) {
        self.end.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.bell.ring_if_awaited();
    }

    /// Threads that wait for one end after the other, up to `last`.
    fn waiters(log: &Arc<Self>, last: u64) -> Vec<JoinHandle<()>> {
        let waiter = |_| {
            let log = Arc::clone(log);
            thread::spawn(move || {
                let mut seen = 0;
                while seen < last {
                    log.bell.wait(EVER, || log.end.load(Ordering::SeqCst) > seen);
                    let end = log.end.load(Ordering::SeqCst);
                    if end == seen {
                        return; // the wait was ended
                    }
                    seen = end;
                }
            })
        };
        (0..WAITERS).map(waiter).collect()
    }

    fn appenders(log: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let appender = |_| {
            let log = Arc::clone(log);
            thread::spawn(move || (0..APPENDS).for_each(|_| log.append()))
        };
        (0..APPENDERS).map(appender).collect()
    }
}

/// Threads that wait for every append.
pub(crate) fn waits() {
    let log = Arc::<Log>::default();
    let waiters = Log::waiters(&log, APPENDERS * APPENDS);
    join(Log::appenders(&log));
    join(waiters);
}

/// Threads that wait for one append more than there are, and the end of the store.
pub(crate) fn ends() {
    let log = Arc::<Log>::default();
    let waiters = Log::waiters(&log, APPENDERS * APPENDS + 1);
    let appenders = Log::appenders(&log);
    log.bell.stop();
    join(appenders);
    join(waiters);
}

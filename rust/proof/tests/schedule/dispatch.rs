//! How far dispatch is: appends that wait for it, and whoever is told.

use rocketpy_model::PhysicalOffset;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

use crate::backlog::Backlog;
use crate::wake::Wake;
use crate::{EVER, join};

const RECORD_BYTES: u64 = 10;
/// Most bytes that an append finds undispatched.
const LIMIT_BYTES: u64 = 10;
const APPENDERS: u64 = 3;

/// A log and its dispatch.
pub(crate) struct Log {
    pub(crate) backlog: Backlog,
    pub(crate) end: AtomicU64,
    /// The dispatch thread sleeps here.
    pub(crate) wake: Wake,
}

impl Log {
    pub(crate) fn new() -> Self {
        let backlog = Backlog::new(PhysicalOffset::ZERO);
        Self { backlog, end: AtomicU64::new(0), wake: Wake::default() }
    }

    pub(crate) fn append(&self) -> PhysicalOffset {
        let end = PhysicalOffset(self.end.fetch_add(RECORD_BYTES, Ordering::SeqCst) + RECORD_BYTES);
        self.wake.wake();
        end
    }

    fn undispatched_bytes(&self) -> u64 {
        self.end.load(Ordering::SeqCst).saturating_sub(self.backlog.dispatched().get())
    }

    /// Appends when dispatch is not too far behind.
    fn append_in_turn(&self) {
        let is_over = || self.undispatched_bytes() <= LIMIT_BYTES;
        if !is_over() {
            self.wake.wake();
            assert!(self.backlog.wait(EVER, is_over), "nobody gives up");
        }
        self.append();
    }

    /// The life of the dispatch thread, a record in each round.
    pub(crate) fn dispatch(&self, tell_arrival: impl Fn(), tell_end: impl Fn(PhysicalOffset)) {
        loop {
            let is_last = self.wake.is_stopped();
            if self.undispatched_bytes() > 0 {
                let end = self.backlog.dispatched() + RECORD_BYTES;
                self.backlog.publish(end, &tell_arrival, || tell_end(end));
            } else if is_last {
                return;
            } else {
                self.wake.sleep(EVER, || self.undispatched_bytes() > 0);
            }
        }
    }
}

/// Appends that wait while dispatch is too far behind.
pub(crate) fn appends_wait() {
    let log = Arc::new(Log::new());
    let dispatcher = Arc::clone(&log);
    let dispatcher = thread::spawn(move || dispatcher.dispatch(|| (), |_| ()));
    let appenders = (0..APPENDERS).map(|_| {
        let log = Arc::clone(&log);
        thread::spawn(move || (0..2).for_each(|_| log.append_in_turn()))
    });
    join(appenders.collect());
    log.wake.stop();
    dispatcher.join().expect("it ends");
    assert_eq!(log.backlog.dispatched().get(), log.end.load(Ordering::SeqCst));
}

//! Group commit.

use rocketpy_model::PhysicalOffset;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

use crate::error::FlushError;
use crate::turn::{Flushing, Target, Turns};
use crate::{EVER, join};

const WRITERS: u64 = 3;

/// A log that is flushed in two steps.
struct Log {
    turns: Turns,
    end: AtomicU64,
    flushed: AtomicU64,
}

impl Log {
    fn new() -> Arc<Self> {
        Arc::new(Self { turns: Turns::default(), end: AtomicU64::new(0), flushed: AtomicU64::new(0) })
    }

    /// Appends, and returns once that is durable.
    fn append_durably(&self) {
        let end = PhysicalOffset(self.end.fetch_add(10, Ordering::SeqCst) + 10);
        self.turns.flush_to(end, EVER, self, &|| ()).expect("nothing fails");
        assert!(self.flushed() >= end, "an acknowledgement follows its flush");
    }

    /// Waits until at most 10 bytes are not flushed, as an append does that finds too many.
    fn wait_for_room(&self) {
        let mut turn = self.turns.lock();
        loop {
            self.turns.note_behind();
            if self.end().saturating_sub(self.flushed()) <= 10 {
                return;
            }
            turn = self.turns.wait_for_room(turn, EVER);
        }
    }
}

impl Flushing for Log {
    fn flushed(&self) -> PhysicalOffset {
        PhysicalOffset(self.flushed.load(Ordering::SeqCst))
    }

    fn end(&self) -> PhysicalOffset {
        PhysicalOffset(self.end.load(Ordering::SeqCst))
    }

    fn target(&self) -> Target {
        Target { to: self.end(), stored_at_ms: 0 }
    }

    fn check(&self) -> Result<(), FlushError> {
        Ok(())
    }

    fn flush(&self, target: Target) -> Result<(), FlushError> {
        let from = self.flushed.load(Ordering::SeqCst);
        assert!(from <= target.to.get(), "flushes follow each other");
        self.flushed.store(from + (target.to.get() - from) / 2, Ordering::SeqCst);
        self.turns.ring_for_room();
        self.turns.ring_for_running();
        self.flushed.store(target.to.get(), Ordering::SeqCst);
        self.turns.ring_for_room();
        Ok(())
    }

    fn panicked(&self) {}
}

/// Writers that wait for the flush of what they wrote, one after the other or together.
pub(crate) fn group_commit() {
    let log = Log::new();
    let writers = (0..WRITERS).map(|_| {
        let log = Arc::clone(&log);
        thread::spawn(move || (0..2).for_each(|_| log.append_durably()))
    });
    join(writers.collect());
    assert_eq!(log.flushed(), log.end());
}

/// Appends that wait for room beside writers that flush.
pub(crate) fn room() {
    let log = Log::new();
    log.end.store(40, Ordering::SeqCst);
    let waiting = (0..2).map(|_| {
        let log = Arc::clone(&log);
        thread::spawn(move || log.wait_for_room())
    });
    let waiting: Vec<_> = waiting.collect();
    log.append_durably();
    join(waiting);
}

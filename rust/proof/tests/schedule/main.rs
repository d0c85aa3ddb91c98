//! Group commit and wake-ups under thousands of thread schedules, which `shuttle` draws.
//!
//! `wake.rs` and `flush/turn.rs` of the store are compiled here once more, with the locks and atomics of `shuttle`. A wait never
//! times out there, so that a wake-up that is lost ends in a deadlock, which is reported with its schedule. What it cannot show:
//! the effects of a weak memory order, since each access is in one order for all threads.

mod sync {
    //! In place of the store's `sync`.
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, PoisonError, atomic};
}

mod error {
    //! In place of the store's `error`.
    pub(crate) use rocketpy_store::FlushError;
}

#[allow(dead_code, unused_imports)] // their unit tests are not compiled here
#[path = "../../../store/src/flush/turn.rs"]
mod turn;
#[allow(dead_code, unused_imports)] // their unit tests are not compiled here
#[path = "../../../store/src/wake.rs"]
mod wake;

use std::time::Duration;

use rocketpy_env::planted::Bug;
use rocketpy_model::PhysicalOffset;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

use crate::error::FlushError;
use crate::turn::{Flushing, Target, Turns};
use crate::wake::Wake;

/// Schedules of each kind for each scenario.
const SCHEDULES: usize = 2000;
/// Changes of priority in a schedule of the second kind.
const DEPTH: usize = 3;
const EVER: Duration = Duration::from_secs(1 << 30);
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
fn group_commit() {
    let log = Log::new();
    let writers = (0..WRITERS).map(|_| {
        let log = Arc::clone(&log);
        thread::spawn(move || (0..2).for_each(|_| log.append_durably()))
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.join().expect("it returns");
    }
    assert_eq!(log.flushed(), log.end());
}

/// Appends that wait for room beside writers that flush.
fn room() {
    let log = Log::new();
    log.end.store(40, Ordering::SeqCst);
    let waiting = (0..2).map(|_| {
        let log = Arc::clone(&log);
        thread::spawn(move || log.wait_for_room())
    });
    let waiting: Vec<_> = waiting.collect();
    log.append_durably();
    for waiting in waiting {
        waiting.join().expect("it returns");
    }
}

/// A thread that sleeps when there is no work, and others that bring some.
fn wake_up() {
    let (wake, work) = (Arc::new(Wake::default()), Arc::new(AtomicU64::new(0)));
    let others = (0..WRITERS).map(|_| {
        let (wake, work) = (Arc::clone(&wake), Arc::clone(&work));
        thread::spawn(move || {
            work.fetch_add(1, Ordering::SeqCst);
            wake.wake();
        })
    });
    let others: Vec<_> = others.collect();
    loop {
        let seen = work.load(Ordering::SeqCst);
        if seen == WRITERS {
            break;
        }
        wake.sleep(EVER, || work.load(Ordering::SeqCst) > seen);
    }
    for other in others {
        other.join().expect("it returns");
    }
}

/// A thread that sleeps until it is stopped, while others wake it.
fn stop() {
    let wake = Arc::new(Wake::default());
    let sleeper = thread::spawn({
        let wake = Arc::clone(&wake);
        move || {
            while !wake.is_stopped() {
                wake.sleep(EVER, || false);
            }
        }
    });
    wake.wake();
    wake.stop();
    sleeper.join().expect("it ends");
}

/// What is explored.
struct Scenario {
    name: &'static str,
    run: fn(),
    /// Planted to see whether the scenario can fail.
    bug: Option<Bug>,
}

const SCENARIOS: [Scenario; 4] = [
    Scenario { name: "group commit", run: group_commit, bug: Some(Bug::NextFlushNotRung) },
    Scenario { name: "room", run: room, bug: None },
    Scenario { name: "wake-up", run: wake_up, bug: Some(Bug::SleepNotedLate) },
    Scenario { name: "stop", run: stop, bug: None },
];

fn explore(scenario: fn()) {
    shuttle::check_random(scenario, SCHEDULES);
    shuttle::check_pct(scenario, SCHEDULES, DEPTH);
}

/// Plants the bug of each scenario, which must end in a deadlock.
#[cfg(feature = "planted-bugs")]
fn find_planted_bugs() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use rocketpy_env::planted;
    use rocketpy_proof::planted::{Layer, PROOFS, proof_by};
    let mut found = 0;
    for Scenario { name, run, bug } in SCENARIOS {
        let Some(bug) = bug else { continue };
        planted::set(Some(bug));
        let panic = catch_unwind(AssertUnwindSafe(|| explore(run))).expect_err("a schedule shows the bug");
        planted::set(None);
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        let proof = proof_by(bug, Layer::Schedules).expect("it is this harness's to find");
        assert!(proof.findings.iter().any(|(_, words)| text.contains(words)), "{}: {text}", bug.title());
        eprintln!("{name}: {} ends in a deadlock", bug.title());
        found += 1;
    }
    assert_eq!(found, PROOFS.iter().filter(|proof| proof.layer == Layer::Schedules).count());
}

fn main() {
    for Scenario { name, run, bug } in SCENARIOS {
        explore(run);
        let planted = bug.map_or("none", Bug::title);
        eprintln!("{name}: {} schedules, planted bug: {planted}", 2 * SCHEDULES);
    }
    #[cfg(feature = "planted-bugs")]
    find_planted_bugs();
}

//! The real server in its own process under load, killed or cut from power again and again, on one store.
//!
//! A kill can show that at any moment, during an acknowledgement, a roll, a checkpoint or a change of metadata, the files let
//! the next start continue. It cannot show a missing flush, because what the system holds in memory outlives the process.
//! A power cut shows that: the file system drops everything that was not flushed. Neither shows a disk that loses its own
//! cache or writes sectors out of order; the simulated disk does.

mod journal;
mod later;
mod life;
mod load;
mod members;
mod message;
mod mount;
mod orderly;
mod pair;
mod plan;
mod pull;
mod question;
mod server;
mod shape;
mod sql;
mod survey;
mod topic;

use std::path::PathBuf;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
pub use load::PRODUCERS;
pub use members::{Member, MembersOptions, MembersOutcome, MembersTotals, run_members};
pub use mount::{Kind, Mounted};
use rocketpy_env::failpoint::Point;

use crate::checker::{Counts, Violation};
use crate::history::Acknowledged;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    Sync,
    Async,
}

impl Flush {
    /// Its name in configuration and attributes.
    fn name(self) -> &'static str {
        match self {
            Self::Sync => "SYNC_FLUSH",
            Self::Async => "ASYNC_FLUSH",
        }
    }

    fn acknowledged(self) -> Acknowledged {
        match self {
            Self::Sync => Acknowledged::AfterFlush,
            Self::Async => Acknowledged::BeforeFlush,
        }
    }
}

/// How the lives of the server end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harness {
    Kill,
    /// The file system loses what was not flushed.
    Power,
}

#[derive(Debug, Clone)]
pub struct Options {
    /// What ends the lives.
    pub harness: Harness,
    /// Draws everything else.
    pub seed: u64,
    /// Number of lives of the server.
    pub cycles: u64,
    /// Number of lives on one store before a new one is created.
    pub cycles_a_store: u64,
    /// How long a life is under load, if nothing ends it before; drawn for each life when it is not given.
    pub load: Option<Duration>,
    /// Producers that send side by side, each one message or batch at a time.
    pub producers: u32,
    /// Drawn for each store when it is not given.
    pub flush: Option<Flush>,
    /// Whether topics have a `flush.type` of their own; drawn for each store when it is not given.
    pub own_flush: Option<bool>,
    /// Whether retention is asked to remove log files; drawn for each store when it is not given.
    pub retention: Option<bool>,
    /// Fills the default of `maxUnflushedBytes` with large messages while the disk hangs, and then cuts the power.
    pub bound: bool,
    /// Whether the server has a slave, which waits for it, and which ends too.
    pub pair: bool,
    /// Whether its slave gets less of the log than is appended; drawn for each store when it is not given.
    pub slow_slave: Option<bool>,
    pub server: PathBuf,
    /// Gets the history of the last store, as JSON lines.
    pub history: Option<PathBuf>,
    /// The title of a bug that is planted in the server.
    pub planted: Option<String>,
}

/// Sums of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    pub stores: u64,
    /// Lives of servers.
    pub cycles: u64,
    /// Stores on which a rule was broken.
    pub failed: u64,
    /// Lives that ended at a named point, in the order of [`Point::ALL`].
    points: [u64; Point::ALL.len()],
    /// Lives that ended before the server was ready.
    pub killed_in_start: u64,
    /// Lives that ended at a random time.
    pub killed_by_time: u64,
    /// Lives that ended in order.
    pub stopped: u64,
    /// Lives that ended with the power.
    pub power_cuts: u64,
    /// Slaves that were killed under load.
    pub slaves_killed: u64,
    /// Slaves that ended at the same moment as their master.
    pub ended_both: u64,
    pub messages: u64,
    pub acknowledged: u64,
    /// Acknowledged before the flush and lost with the power: what the contract allows.
    pub lost_as_allowed: u64,
    /// Most bytes of the log that one power cut took behind what the start before it had found, up to the start of the last
    /// acknowledged record.
    pub most_lost_bytes: u64,
    /// How long before its power cut the oldest message that it took was acknowledged.
    pub oldest_lost: Duration,
    /// Log files that retention removed.
    pub removed_files: u64,
    /// Messages that had to wait, and came.
    pub stored_again: u64,
    /// Messages that orderly members worked on.
    pub worked_on: u64,
}

impl Totals {
    /// How often a server ended itself at a point.
    pub fn at(&self, point: Point) -> u64 {
        self.points[point as usize]
    }

    fn add(&mut self, counts: Counts) {
        self.messages += counts.sent;
        self.acknowledged += counts.acknowledged;
        self.lost_as_allowed += counts.lost_as_allowed;
        self.stored_again += counts.stored_again;
        self.worked_on += counts.worked_on;
    }
}

#[derive(Debug)]
pub struct Outcome {
    pub totals: Totals,
    /// What the first store that broke a rule did; empty when all rules held.
    pub violations: Vec<Violation>,
    /// The seed of that store, and the cycle of it in which it broke.
    pub broken_at: Option<(u64, u64)>,
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Whether a signal asked the harness to end.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Runs all cycles, or until a rule is broken. `note` gets the counts after every cycle.
///
/// # Errors
/// The harness cannot run: no temporary folder, no server to start, no right to mount.
pub fn run(options: &Options, mut note: impl FnMut(&Totals)) -> Result<Outcome, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    listen_for_interrupt();
    let mut outcome = Outcome { totals: Totals::default(), violations: Vec::new(), broken_at: None };
    let mut seeds = Rng::with_seed(options.seed);
    while outcome.totals.cycles < options.cycles && !is_interrupted() {
        // The first store has the seed of the run, so that `--seed` repeats a store that broke.
        let seed = if outcome.totals.stores == 0 { options.seed } else { seeds.u64(..) >> 16 };
        let cycles = options.cycles_a_store.min(options.cycles - outcome.totals.cycles);
        let mut life = life::Life::new(options, seed, &runtime, &mut outcome.totals)?;
        let broken = life.run(cycles, &mut note)?;
        if let Some((cycle, violations)) = broken {
            outcome.violations = violations;
            outcome.broken_at = Some((seed, cycle));
            outcome.totals.failed += 1;
            break;
        }
    }
    Ok(outcome)
}

/// From here on SIGINT and SIGTERM end runs between two cycles, after everything is cleaned up.
pub fn listen_for_interrupt() {
    static LISTENS: Once = Once::new();
    LISTENS.call_once(|| {
        std::thread::spawn(|| {
            if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
                runtime.block_on(interrupted());
            }
        });
    });
}

async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    INTERRUPTED.store(true, Ordering::SeqCst);
}

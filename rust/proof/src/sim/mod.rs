//! The store on a simulated disk: scripts, crashes and damage that a seed draws, or a crash after every operation.
//!
//! It can show that what was flushed survives any order of write-backs and any outcome of a power cut, that recovery completes
//! log and queues, and that damage is not mistaken for a torn tail. It cannot show that Linux and a disk behave as the
//! model says; the kills and power cuts of real processes show that.

mod damage;
mod enumerate;
mod group;
mod journal;
mod level_clock;
mod log_files;
pub(crate) mod message;
mod pair;
mod plan;
mod reader;
mod removal;
mod removals;
mod run;
mod script;
mod table;
mod verify;
mod verify_index;
mod waiting;

use std::iter;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

pub use enumerate::{Script, enumerate, enumerate_all};
pub use pair::{PairOutcome, PairTotals, run_pair};
use parking_lot::Mutex;
pub use plan::{Boot, Damage, Plan, Retention};
pub use run::{Outcome, run};

/// Sums of many runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    pub runs: u64,
    /// Of them, those that broke a rule.
    pub failed: u64,
    pub messages: u64,
    pub acknowledged: u64,
    /// Acknowledged before the flush and lost with the power: what the contract allows.
    pub lost_as_allowed: u64,
    /// How often a process ended.
    pub crashes: u64,
    /// Files of the log that retention removed.
    pub removed_files: u64,
    pub deleted_topics: u64,
    pub operations: u64,
}

impl Totals {
    /// Adds a run.
    pub fn add(&mut self, outcome: &Outcome) {
        self.runs += 1;
        self.failed += u64::from(!outcome.violations.is_empty());
        self.messages += outcome.counts.sent;
        self.acknowledged += outcome.counts.acknowledged;
        self.lost_as_allowed += outcome.counts.lost_as_allowed;
        self.crashes += outcome.counts.crashes;
        self.removed_files += outcome.removed_files;
        self.deleted_topics += outcome.deleted_topics;
        self.operations += outcome.operations;
    }
}

/// Runs every seed of a range on `jobs` threads. `note` gets every run, in no order, and returns whether to continue.
pub fn run_seeds(seeds: Range<u64>, jobs: usize, note: impl FnMut(Outcome) -> bool + Send) {
    run_each(seeds, jobs, |seed| Plan::all_of(seed).map(run), note);
}

/// The run of messages that wait, for every seed of a range.
pub fn run_waiting(seeds: Range<u64>, jobs: usize, note: impl FnMut(Outcome) -> bool + Send) {
    run_each(seeds, jobs, |seed| iter::once(run(Plan::waiting_of(seed))), note);
}

/// The same with pairs of a master and a slave.
pub fn run_pairs(seeds: Range<u64>, jobs: usize, note: impl FnMut(PairOutcome) -> bool + Send) {
    run_each(seeds, jobs, |seed| iter::once(run_pair(seed)), note);
}

fn run_each<T: Send, Runs: Iterator<Item = T>>(
    seeds: Range<u64>,
    jobs: usize,
    run: impl Fn(u64) -> Runs + Sync,
    note: impl FnMut(T) -> bool + Send,
) {
    let next = AtomicU64::new(seeds.start);
    let end = AtomicU64::new(seeds.end);
    let note = Mutex::new(note);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end.load(Ordering::Relaxed) {
                        return;
                    }
                    for outcome in run(seed) {
                        if !(note.lock())(outcome) {
                            end.store(0, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
}

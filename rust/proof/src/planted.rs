//! Puts each planted bug in and lets the ordinary run find it.

pub use rocketpy_store::planted::Bug;
use rocketpy_store::planted::{self};

use crate::checker::Violation;
use crate::real::{self, Harness, Options};
use crate::sim::{Outcome, Plan, enumerate, run_seeds};

/// How a bug was found.
#[derive(Debug)]
pub struct Catch {
    /// The part of the run that found it.
    pub layer: &'static str,
    pub violation: Violation,
    pub plan: Plan,
    /// Runs until then, this one included.
    pub runs: u64,
}

/// The ordinary run up to its first failure: random seeds, then the enumerated script. It does not know what is planted.
pub fn ordinary(seeds: u64) -> Option<Catch> {
    let mut runs = 0;
    let mut caught = None;
    let mut note = |layer, outcome: Outcome| {
        runs += 1;
        if let Some(violation) = outcome.violations.into_iter().next() {
            caught.get_or_insert(Catch { layer, violation, plan: outcome.plan, runs });
        }
        caught.is_none()
    };
    let mut is_clean = true;
    run_seeds(0..seeds, 1, |outcome| {
        is_clean = note("random", outcome);
        is_clean
    });
    if is_clean {
        enumerate(|outcome| note("enumerated", outcome));
    }
    caught
}

/// Runs with each bug in turn.
pub fn all(seeds: u64) -> Vec<(Bug, Option<Catch>)> {
    let caught = Bug::ALL.map(|bug| {
        planted::set(Some(bug));
        (bug, ordinary(seeds))
    });
    planted::set(None);
    caught.into()
}

/// The harness of real servers that must find a bug; `None` for what the simulated disk alone must find.
pub const fn real_harness(bug: Bug) -> Option<Harness> {
    match bug {
        // A kill can not show them: what the system holds in memory outlives the process.
        Bug::AckBeforeFlush | Bug::NoDirectoryFsync => Some(Harness::Power),
        _ => None,
    }
}

/// The ordinary run of real servers up to its first failure: so many kills, then eight times as many power cuts. `options` say
/// all else; the bug is the server's. Says in which of the two it was found, by what, and after how many cycles of it.
///
/// # Errors
/// As [`real::run`].
pub fn ordinary_real(
    bug: Bug,
    cycles: u64,
    options: &Options,
) -> Result<Option<(Harness, Violation, u64)>, String> {
    for (harness, cycles) in [(Harness::Kill, cycles), (Harness::Power, 8 * cycles)] {
        let planted = Some(bug.title().to_owned());
        let outcome = real::run(&Options { harness, cycles, planted, ..options.clone() }, |_| ())?;
        if let Some(violation) = outcome.violations.into_iter().next() {
            return Ok(Some((harness, violation, outcome.totals.cycles)));
        }
    }
    Ok(None)
}

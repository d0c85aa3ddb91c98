//! Plants one bug after the other; the ordinary run must find it.

use std::fmt;

use rocketpy_store::planted;
pub use rocketpy_store::planted::Bug;

use crate::checker::{Rule, Violation};
use crate::real::{self, Harness, Options};
use crate::sim::{Outcome, Plan, enumerate, run_seeds};

/// A harness that finds bugs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    SimulatedDisk,
    Real(Harness),
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SimulatedDisk => "simulated disk",
            Self::Real(Harness::Kill) => "kill",
            Self::Real(Harness::Power) => "power cut",
        })
    }
}

/// What a harness says when it finds a bug: the rule that is broken, and words of its text.
pub type Finding = (Rule, &'static str);

/// A harness that must find a bug, and what it may report first.
#[derive(Debug, Clone, Copy)]
pub struct Proof {
    pub bug: Bug,
    pub layer: Layer,
    /// Different seeds may report different ones. `Alive` is a check of the store itself.
    pub findings: &'static [Finding],
}

impl Proof {
    /// Whether the violation shows this bug. Another rule, or a panic for another reason, does not.
    pub fn is_shown_by(&self, violation: &Violation) -> bool {
        let fits = |&(rule, words): &Finding| rule == violation.rule && violation.text.contains(words);
        self.findings.iter().any(fits)
    }
}

const SIMULATED: Layer = Layer::SimulatedDisk;
const POWER_CUT: Layer = Layer::Real(Harness::Power);

/// Every harness that must find a bug. Kills find none of them: what the system holds in memory outlives the process.
pub const PROOFS: &[Proof] = &[
    Proof {
        bug: Bug::AckBeforeFlush,
        layer: SIMULATED,
        findings: &[(Rule::C1, "was acknowledged and is lost, after a power cut")],
    },
    Proof {
        bug: Bug::AckBeforeFlush,
        layer: POWER_CUT,
        findings: &[(Rule::C1, "was acknowledged and is lost, after a power cut")],
    },
    Proof {
        bug: Bug::BelieveRetriedFlush,
        layer: SIMULATED,
        findings: &[
            (Rule::R1, "was acknowledged after a failed flush"),
            (Rule::Alive, "the log is damaged at"),
        ],
    },
    // Depends on which name is lost first: the checkpoint's, a file's, a topic's.
    Proof {
        bug: Bug::NoDirectoryFsync,
        layer: SIMULATED,
        findings: &[
            (Rule::R4, "the durable mark was lost"),
            (Rule::R4, "it was durably removed"),
            (Rule::R6, "that were durable are rebuilt"),
            (Rule::Alive, "commit log files are missing"),
        ],
    },
    Proof { bug: Bug::NoDirectoryFsync, layer: POWER_CUT, findings: &[(Rule::R9, "was made, and is gone")] },
    Proof {
        bug: Bug::SkipRecordCheck,
        layer: SIMULATED,
        findings: &[
            (Rule::R4, "does not refuse the start"),
            (Rule::R4, "is not cut there and counted"),
            (Rule::R6, "behind the end of the log"),
        ],
    },
    Proof {
        bug: Bug::TruncateInteriorDamage,
        layer: SIMULATED,
        findings: &[
            (Rule::R4, "does not refuse the start"),
            (Rule::Alive, "passes the written"),
            (Rule::Alive, "what is dispatched is written"),
        ],
    },
    Proof {
        bug: Bug::OffByOneAtRoll,
        layer: SIMULATED,
        findings: &[(Rule::R6, "has no room for a blank record")],
    },
    Proof {
        bug: Bug::QueueNotTruncated,
        layer: SIMULATED,
        findings: &[
            (Rule::R6, "consume queues that were durable are rebuilt"),
            (Rule::R6, "differs from the log"),
        ],
    },
    Proof { bug: Bug::OffsetClampMissing, layer: SIMULATED, findings: &[(Rule::C12, "which ends at")] },
    Proof {
        bug: Bug::ClampNotPersisted,
        layer: SIMULATED,
        findings: &[(Rule::C12, "after a kill it would continue at")],
    },
    Proof { bug: Bug::CommitAboveEnd, layer: SIMULATED, findings: &[(Rule::C12, "is taken, above the end")] },
    Proof {
        bug: Bug::IndexAheadOfLog,
        layer: SIMULATED,
        findings: &[
            (Rule::R6, "index file"),
            (Rule::Alive, "what is dispatched is written"),
            (Rule::Alive, "a mark out of order"),
        ],
    },
];

/// What a harness must report for a bug; `None` when only other harnesses must find it.
pub fn proof_by(bug: Bug, layer: Layer) -> Option<&'static Proof> {
    PROOFS.iter().find(|proof| proof.bug == bug && proof.layer == layer)
}

/// How a bug was found.
#[derive(Debug)]
pub struct Catch {
    /// The part of the run that found it.
    pub part: &'static str,
    pub violation: Violation,
    pub plan: Plan,
    /// Number of runs, up to and including the one that found it.
    pub runs: u64,
}

/// Runs random seeds, then the enumerated script, up to the first failure. The run does not know what is planted.
pub fn ordinary(seeds: u64) -> Option<Catch> {
    let mut runs = 0;
    let mut caught = None;
    let mut note = |part, outcome: Outcome| {
        runs += 1;
        if let Some(violation) = outcome.violations.into_iter().next() {
            caught.get_or_insert(Catch { part, violation, plan: outcome.plan, runs });
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

/// Runs real servers up to the first failure: `cycles` kills, then eight times as many power cuts. The bug is planted in
/// the server. Returns which harness found it, what it reported, and after how many cycles.
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

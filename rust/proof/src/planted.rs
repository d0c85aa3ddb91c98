//! Plants one bug after the other; the ordinary run must find it.

use std::fmt;

use rocketpy_store::planted;
pub use rocketpy_store::planted::Bug;

use crate::checker::{Rule, Violation};
use crate::real::{self, Flush, Harness, MembersOptions, Options};
use crate::sim::{Outcome, PairOutcome, Plan, enumerate_all, run_pair, run_seeds, run_waiting};

/// A harness that finds bugs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    SimulatedDisk,
    /// Two of them, with a master and a slave.
    SimulatedPair,
    Real(Harness),
    Members,
    Schedules,
    Assertions,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SimulatedDisk => "simulated disk",
            Self::SimulatedPair => "simulated pair",
            Self::Real(Harness::Kill) => "kill",
            Self::Real(Harness::Power) => "power cut",
            Self::Members => "members",
            Self::Schedules => "thread schedules",
            Self::Assertions => "assertions",
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
const PAIR: Layer = Layer::SimulatedPair;
const KILL: Layer = Layer::Real(Harness::Kill);
const POWER_CUT: Layer = Layer::Real(Harness::Power);

/// Every harness that must find a bug. Kills find no missing flush: what the system holds in memory outlives the process.
pub const PROOFS: &[Proof] = &[
    Proof {
        bug: Bug::AckBeforeFlush,
        layer: SIMULATED,
        findings: &[(Rule::C1, "was acknowledged and is lost, after a power cut")],
    },
    Proof {
        bug: Bug::AckBeforeFlush,
        layer: POWER_CUT,
        findings: &[
            (Rule::C1, "was acknowledged and is lost, after a power cut"),
            (Rule::Alive, "the log is damaged at"), // the mark was ahead of the log as well
        ],
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
            (Rule::C1, "wait for longer than their delay level"),
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
    Proof {
        bug: Bug::MarkBeforeQueues,
        layer: SIMULATED,
        findings: &[
            (Rule::R6, "consume queues that were durable are rebuilt"),
            (Rule::R6, "differs from the log"),
        ],
    },
    Proof {
        bug: Bug::MarkBeforeIndex,
        layer: SIMULATED,
        findings: &[(Rule::R6, "index files that were durable are rebuilt"), (Rule::R6, "index file")],
    },
    Proof {
        bug: Bug::NotWrittenAgain,
        layer: SIMULATED,
        findings: &[
            (Rule::C1, "was acknowledged and is lost, after a power cut"),
            (Rule::Alive, "the log is damaged at"),
        ],
    },
    Proof {
        bug: Bug::RetentionBeforeFlush,
        layer: SIMULATED,
        findings: &[
            (Rule::R6, "consume queues that were durable are rebuilt"),
            (Rule::Alive, "commit log files are missing"),
        ],
    },
    Proof {
        bug: Bug::FlushOneRecordShort,
        layer: SIMULATED,
        findings: &[
            (Rule::C1, "was acknowledged and is lost, after a power cut"),
            (Rule::Alive, "the log is damaged at"),
        ],
    },
    Proof {
        bug: Bug::PutOffDropped,
        layer: SIMULATED,
        findings: &[
            (Rule::R6, "consume queues that were durable are rebuilt"),
            (Rule::R6, "differs from the log"),
        ],
    },
    Proof { bug: Bug::NextFlushNotRung, layer: Layer::Schedules, findings: &[(Rule::Alive, "deadlock")] },
    Proof { bug: Bug::SleepNotedLate, layer: Layer::Schedules, findings: &[(Rule::Alive, "deadlock")] },
    Proof {
        bug: Bug::FileWantedTwice,
        layer: Layer::Schedules,
        findings: &[(Rule::Alive, "was made before")],
    },
    Proof { bug: Bug::BehindNotedLate, layer: Layer::Schedules, findings: &[(Rule::Alive, "deadlock")] },
    Proof {
        bug: Bug::DispatchToldEarly,
        layer: Layer::Schedules,
        findings: &[(Rule::Alive, "deadlock"), (Rule::Alive, "the answer leaves nothing out")],
    },
    Proof { bug: Bug::HeldShownLate, layer: Layer::Schedules, findings: &[(Rule::Alive, "deadlock")] },
    Proof {
        bug: Bug::TableFolderNotFlushed,
        layer: SIMULATED,
        findings: &[(Rule::R9, "was answered, and after a start")],
    },
    // Without its topic a message cannot be read.
    Proof {
        bug: Bug::TableNotWritten,
        layer: KILL,
        findings: &[
            (Rule::R9, "was made, and is gone"),
            (Rule::C1, "was acknowledged and is lost, after no power cut"),
        ],
    },
    Proof {
        bug: Bug::TopicFlushIgnored,
        layer: POWER_CUT,
        findings: &[(Rule::C1, "was acknowledged and is lost, after a power cut")],
    },
    Proof {
        bug: Bug::RetentionTooEarly,
        layer: KILL,
        findings: &[(Rule::C1, "retention may have removed it up to")],
    },
    Proof {
        bug: Bug::DelayAheadOfLog,
        layer: SIMULATED,
        findings: &[(Rule::C1, "was acknowledged and never came")],
    },
    Proof { bug: Bug::DelayTooShort, layer: SIMULATED, findings: &[(Rule::C9, "ms early")] },
    Proof { bug: Bug::RetryNotCounted, layer: SIMULATED, findings: &[(Rule::C10, "with delivery count")] },
    Proof { bug: Bug::CommittedAgain, layer: SIMULATED, findings: &[(Rule::C8, "was delivered twice")] },
    Proof {
        bug: Bug::TimerAheadOfLog,
        layer: SIMULATED,
        findings: &[(Rule::C1, "was acknowledged and never came")],
    },
    Proof { bug: Bug::TimerTooEarly, layer: SIMULATED, findings: &[(Rule::C9, "ms early")] },
    Proof {
        bug: Bug::WheelSlotLost,
        layer: SIMULATED,
        findings: &[(Rule::C1, "was acknowledged and never came")],
    },
    Proof {
        bug: Bug::DelayAheadOfLog,
        layer: POWER_CUT,
        findings: &[(Rule::C1, "was acknowledged and never came")],
    },
    Proof { bug: Bug::DelayTooShort, layer: KILL, findings: &[(Rule::C9, "ms early")] },
    Proof { bug: Bug::RetryNotCounted, layer: KILL, findings: &[(Rule::C10, "with delivery count")] },
    Proof {
        bug: Bug::MarkBeforeCommit,
        layer: KILL,
        // The second: the mark alone answered a repeated end, and the kill came before the commit.
        findings: &[
            (Rule::C8, "because it was rolled back before"),
            (Rule::C8, "was acknowledged and never came"),
        ],
    },
    Proof { bug: Bug::CommittedAgain, layer: KILL, findings: &[(Rule::C8, "was delivered twice")] },
    Proof {
        bug: Bug::TimerAheadOfLog,
        layer: POWER_CUT,
        findings: &[(Rule::C1, "was acknowledged and never came")],
    },
    Proof { bug: Bug::TimerTooEarly, layer: KILL, findings: &[(Rule::C9, "ms early")] },
    Proof {
        bug: Bug::WheelSlotLost,
        layer: KILL,
        findings: &[(Rule::C1, "was acknowledged and never came")],
    },
    Proof {
        bug: Bug::SlotNotRebuilt,
        layer: SIMULATED,
        findings: &[
            (Rule::R6, "the timers differ from a rebuild"),
            (Rule::C1, "was acknowledged and never came"), // it was taken late, or the clock was set
        ],
    },
    Proof { bug: Bug::ClockStepMissed, layer: SIMULATED, findings: &[(Rule::C9, "ms early")] },
    Proof {
        bug: Bug::EndsAheadOfLog,
        layer: SIMULATED,
        findings: &[(Rule::C8, "because it was rolled back before")],
    },
    Proof {
        bug: Bug::AckBeforeSlave,
        layer: POWER_CUT,
        findings: &[(Rule::C1, "was acknowledged and is lost, after a power cut")],
    },
    Proof {
        bug: Bug::NothingTakenBack,
        layer: POWER_CUT,
        findings: &[(Rule::C1, "was acknowledged and is lost, after a power cut")],
    },
    Proof {
        bug: Bug::NoEpochBegun,
        layer: PAIR,
        findings: &[
            (Rule::R8, "is no beginning of its master's"),
            (Rule::R8, "the slave's log cannot be cut at"), // it parts elsewhere than its master says
        ],
    },
    Proof {
        bug: Bug::EpochNotWritten,
        layer: PAIR,
        findings: &[
            (Rule::R8, "is no beginning of its master's"),
            (Rule::R8, "a slave with a beginning of the log is refused"),
            (Rule::R8, "the slave's log cannot be cut at"),
        ],
    },
    Proof {
        bug: Bug::AcknowledgedCut,
        layer: PAIR,
        findings: &[(Rule::R8, "the slave would cut off bytes")],
    },
    Proof {
        bug: Bug::ReportBeforeFlush,
        layer: PAIR,
        findings: &[
            (Rule::C1, "were acknowledged and are lost"),
            (Rule::R8, "the slave would cut off bytes"), // its master has them still
        ],
    },
    Proof {
        bug: Bug::MetadataAheadOfLog,
        layer: KILL,
        findings: &[(Rule::C12, "of the slave, where that ends at")],
    },
    Proof { bug: Bug::LocksForgotten, layer: KILL, findings: &[(Rule::C6, "while member")] },
    Proof {
        bug: Bug::HalvesForgotten,
        layer: KILL,
        findings: &[(Rule::C8, "was never asked for"), (Rule::C8, "because it was rolled back before")],
    },
    Proof {
        bug: Bug::CommitUnfinished,
        layer: Layer::Members,
        findings: &[(Rule::C12, "no handler has ended")],
    },
    Proof { bug: Bug::OrderGivenUp, layer: Layer::Members, findings: &[(Rule::C6, "while member")] },
    Proof {
        bug: Bug::RetryNotCounted,
        layer: Layer::Members,
        findings: &[(Rule::C10, "with delivery count")],
    },
    Proof {
        bug: Bug::FlushedPastEnd,
        layer: Layer::Assertions,
        findings: &[(Rule::Alive, "the flushed offset never passes the end of the log")],
    },
    Proof {
        bug: Bug::FlushPastWritten,
        layer: Layer::Assertions,
        findings: &[(Rule::Alive, "a flush never passes what is written")],
    },
    Proof {
        bug: Bug::PublishedAhead,
        layer: Layer::Assertions,
        findings: &[(Rule::Alive, "what is published is what was copied")],
    },
    Proof {
        bug: Bug::DispatchGoesBack,
        layer: Layer::Assertions,
        findings: &[(Rule::Alive, "dispatch never goes back")],
    },
    Proof {
        bug: Bug::EntryMisplaced,
        layer: Layer::Assertions,
        findings: &[(Rule::Alive, "an entry lies where its number says")],
    },
    Proof {
        bug: Bug::MarkBeforeLog,
        layer: Layer::Assertions,
        findings: &[(Rule::Alive, "progress never passes durable data")],
    },
    Proof {
        bug: Bug::NewestFileFirst,
        layer: Layer::Assertions,
        findings: &[(Rule::Alive, "a log has no hole: the oldest file goes first")],
    },
    Proof {
        bug: Bug::EpochsNotCutBack,
        layer: Layer::Assertions,
        findings: &[(Rule::Alive, "epochs are monotonic")],
    },
    Proof {
        bug: Bug::RestartKeepsAcknowledged,
        layer: Layer::Assertions,
        findings: &[(Rule::Alive, "no slave has more of the log than a restart left")],
    },
    Proof {
        bug: Bug::ReportAheadTaken,
        layer: Layer::Assertions,
        findings: &[(Rule::Alive, "the confirm offset never passes what was sent")],
    },
];

/// The kind of store that can show a bug; everything else is drawn.
fn options_for(bug: Bug, options: &Options) -> Options {
    let options = Options { planted: Some(bug.title().to_owned()), ..options.clone() };
    match bug {
        Bug::TopicFlushIgnored => {
            Options { flush: Some(Flush::Async), own_flush: Some(true), cycles_a_store: 6, ..options }
        }
        Bug::DelayAheadOfLog | Bug::TimerAheadOfLog => {
            Options { flush: Some(Flush::Async), retention: Some(false), cycles_a_store: 4, ..options }
        }
        Bug::AckBeforeSlave | Bug::NothingTakenBack => Options {
            pair: true,
            flush: Some(Flush::Async),
            own_flush: Some(false),
            retention: Some(false),
            cycles_a_store: 8,
            ..options
        },
        Bug::MetadataAheadOfLog => Options {
            pair: true,
            slow_slave: Some(true),
            retention: Some(false),
            cycles_a_store: 6,
            ..options
        },
        Bug::MarkBeforeCommit | Bug::HalvesForgotten => {
            Options { retention: Some(false), cycles_a_store: 8, ..options }
        }
        Bug::DelayTooShort
        | Bug::RetryNotCounted
        | Bug::CommittedAgain
        | Bug::TimerTooEarly
        | Bug::WheelSlotLost => Options { retention: Some(false), ..options },
        Bug::RetentionTooEarly => Options { retention: Some(true), cycles_a_store: 4, ..options },
        _ => options,
    }
}

/// What a harness must report for a bug; `None` when only other harnesses must find it.
pub fn proof_by(bug: Bug, layer: Layer) -> Option<&'static Proof> {
    PROOFS.iter().find(|proof| proof.bug == bug && proof.layer == layer)
}

/// How a bug was found.
#[derive(Debug)]
pub struct Catch {
    /// The part of the run that found it.
    pub part: &'static str,
    /// What it said first.
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
    // One seed in eight has a run of messages that wait, which shows some of their bugs once in hundreds of runs. Three times as many follow.
    if is_clean {
        run_waiting(seeds..seeds + 3 * seeds / 8, 1, |outcome| {
            is_clean = note("waiting", outcome);
            is_clean
        });
    }
    if is_clean {
        enumerate_all(|outcome| note("enumerated", outcome));
    }
    caught
}

/// Runs on the simulated disk with the bug planted in this process, up to the first failure.
pub fn by_disk(bug: Bug, seeds: u64) -> Option<Catch> {
    planted::set(Some(bug));
    let caught = ordinary(seeds);
    planted::set(None);
    caught
}

/// Runs pairs of simulated disks with the bug planted in this process, up to the first failure.
pub fn by_pair(bug: Bug, seeds: u64) -> Option<PairOutcome> {
    planted::set(Some(bug));
    let caught = (0..seeds).map(run_pair).find(|outcome| !outcome.violations.is_empty());
    planted::set(None);
    caught
}

/// Runs with each bug in turn that the simulated disk must find.
pub fn all(seeds: u64) -> Vec<(Bug, Option<Catch>)> {
    let is_simulated = |bug: &Bug| proof_by(*bug, SIMULATED).is_some();
    Bug::ALL.into_iter().filter(is_simulated).map(|bug| (bug, by_disk(bug, seeds))).collect()
}

/// Runs real servers up to the first failure, with the bug planted in the server. Returns what was reported, and after how
/// many cycles.
///
/// # Errors
/// As [`real::run`].
pub fn ordinary_real(bug: Bug, options: &Options) -> Result<Option<(Violation, u64)>, String> {
    let outcome = real::run(&options_for(bug, options), |_| ())?;
    let violation = outcome.violations.into_iter().next();
    Ok(violation.map(|violation| (violation, outcome.totals.cycles)))
}

/// Runs groups of push consumers up to the first failure, with the bug planted in their processes and in the server. Returns what was
/// reported.
///
/// # Errors
/// As [`real::run_members`].
pub fn ordinary_members(bug: Bug, options: &MembersOptions) -> Result<Option<Violation>, String> {
    let options = MembersOptions { planted: Some(bug.title().to_owned()), ..options.clone() };
    Ok(real::run_members(&options, |_| ())?.violations.into_iter().next())
}

//! A short script, ended after every single operation.

use rocketpy_env::sim::SimOptions;
use rocketpy_store::FlushMode;

use super::plan::{Boot, Plan, Retention};
use super::run::{Outcome, run};
use crate::history::CrashKind;

/// Outcomes of a power cut that are tried at every operation, and at every one of the scripts that do more.
const OUTCOMES: u64 = 6;
const OUTCOMES_OF_REMOVAL: u64 = 2;
const OUTCOMES_OF_WAITING: u64 = 1;
/// At every operation that is a multiple of this, recovery is also ended after each of its own operations.
const NESTED_EVERY: u64 = 9;

/// The script: small files and large messages, so that it rolls within a few steps.
fn sending(flush: FlushMode) -> Plan {
    Plan {
        seed: 4 + u64::from(flush == FlushMode::Sync),
        flush,
        record_check: true,
        log_file: 16 << 10,
        queue_file: 100,
        index: Some((5, 20)),
        topics: 2,
        queues: 2,
        body_max: 3000,
        open_queue_files: 100,
        flushes: if flush == FlushMode::Async { (4096, 0) } else { (128 << 20, 64 << 20) },
        checkpoint_bytes: 3000,
        put_off: if flush == FlushMode::Sync { (1, 100) } else { (64, 1 << 20) },
        disk: SimOptions { seed: 1, write_back_per_mille: 50, ..SimOptions::default() },
        retention: None,
        deletes: false,
        tables: false,
        waits: false,
        sets_clock: false,
        goes_far: false,
        boots: Vec::new(),
    }
}

/// The same with removals and with changes of tables: retention removes five log files, and two topics are deleted.
fn removing(flush: FlushMode) -> Plan {
    let retention = Retention {
        reserved_ms: 0,
        at_any_hour: false,
        max_files: Some(1),
        files_a_round: 2,
        clean_forcibly: true,
        topic_ms: Some(150),
    };
    Plan { seed: 11, retention: Some(retention), deletes: true, tables: true, ..sending(flush) }
}

/// Messages that wait, and the services that let them come.
fn waiting(flush: FlushMode) -> Plan {
    Plan { seed: 21, waits: true, index: Some((20, 40)), body_max: 300, ..sending(flush) }
}

fn boot(stop: Option<u64>, steps: u32, end: CrashKind, outcome: Option<u64>) -> Boot {
    Boot { stop, steps, end, outcome, damage: None }
}

const STEPS: u32 = 60;

fn ends(outcomes: u64) -> impl Iterator<Item = (CrashKind, Option<u64>)> {
    let cuts = (0..outcomes).map(|outcome| (CrashKind::Power, Some(outcome)));
    [(CrashKind::Kill, None)].into_iter().chain(cuts)
}

/// What a script does beside sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script {
    Nothing,
    Removes,
    Waits,
}

impl Script {
    pub const ALL: [Self; 3] = [Self::Nothing, Self::Removes, Self::Waits];
}

/// Ends a script after every operation, by a kill and by several power cuts. Now and then it also ends the recovery that
/// follows, after each of its operations; the recovery after that runs through. `note` gets every run, and returns
/// whether to continue. Returns its last result.
pub fn enumerate(script: Script, flush: FlushMode, mut note: impl FnMut(Outcome) -> bool) -> bool {
    let (plan, outcomes) = match script {
        Script::Nothing => (sending(flush), OUTCOMES),
        Script::Removes => (removing(flush), OUTCOMES_OF_REMOVAL),
        Script::Waits => (waiting(flush), OUTCOMES_OF_WAITING),
    };
    each(&plan, outcomes, &mut note, |stop, note| {
        script != Script::Nothing || !stop.is_multiple_of(NESTED_EVERY) || nested(flush, stop, note)
    })
}

/// All scripts under both flush policies, up to the first run after which `note` does not continue.
pub fn enumerate_all(mut note: impl FnMut(Outcome) -> bool) {
    let flushes = [FlushMode::Sync, FlushMode::Async];
    let _ =
        flushes.iter().all(|flush| Script::ALL.iter().all(|script| enumerate(*script, *flush, &mut note)));
}

/// Ends a script after each of its operations, then calls `then`.
fn each<N: FnMut(Outcome) -> bool>(
    script: &Plan,
    outcomes: u64,
    note: &mut N,
    mut then: impl FnMut(u64, &mut N) -> bool,
) -> bool {
    for stop in 1.. {
        let mut was_stopped = false;
        for (end, outcome) in ends(outcomes) {
            let first = boot(Some(stop), STEPS, end, outcome);
            let outcome = run(Plan { boots: vec![first], ..script.clone() });
            was_stopped = outcome.stops == 1;
            if !note(outcome) {
                return false;
            }
        }
        if !then(stop, note) {
            return false;
        }
        if !was_stopped {
            break;
        }
    }
    true
}

fn nested(flush: FlushMode, stop: u64, note: &mut impl FnMut(Outcome) -> bool) -> bool {
    for inner in 1.. {
        let mut was_stopped = false;
        for (end, cut) in [(CrashKind::Kill, None), (CrashKind::Power, Some(inner))] {
            let boots = vec![boot(Some(stop), STEPS, end, cut), boot(Some(inner), 0, end, cut)];
            let outcome = run(Plan { boots, ..sending(flush) });
            was_stopped = outcome.stops == 2;
            if !note(outcome) {
                return false;
            }
        }
        if !was_stopped {
            break;
        }
    }
    true
}

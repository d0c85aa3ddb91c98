//! A short script, ended after every single operation.

use rocketpy_env::sim::SimOptions;
use rocketpy_store::FlushMode;

use super::plan::{Boot, Plan};
use super::run::{Outcome, run};
use crate::history::CrashKind;

/// Outcomes of a power cut that are tried at every operation.
const OUTCOMES: u64 = 6;
/// Every so many operations, recovery is ended after each of its own as well.
const NESTED_EVERY: u64 = 9;

/// The script: small files and large messages, so that it rolls within a few steps.
fn script(flush: FlushMode) -> Plan {
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
        handover_limit: 65_536,
        open_queue_files: 100,
        put_off: if flush == FlushMode::Sync { (1, 100) } else { (64, 1 << 20) },
        disk: SimOptions { seed: 1, write_back_per_mille: 50, ..SimOptions::default() },
        boots: Vec::new(),
    }
}

fn boot(stop: Option<u64>, steps: u32, end: CrashKind, outcome: Option<u64>) -> Boot {
    Boot { stop, steps, end, outcome, damage: None }
}

/// Steps of the script.
const STEPS: u32 = 60;

fn ends() -> impl Iterator<Item = (CrashKind, Option<u64>)> {
    let cuts = (0..OUTCOMES).map(|outcome| (CrashKind::Power, Some(outcome)));
    [(CrashKind::Kill, None)].into_iter().chain(cuts)
}

/// Ends the script after every operation, by a kill and by several power cuts; now and then the recovery that follows as
/// well, after each of its own operations, and then the one after that runs through. `note` is told of every run, and says
/// whether to go on.
pub fn enumerate(mut note: impl FnMut(Outcome) -> bool) {
    for flush in [FlushMode::Sync, FlushMode::Async] {
        for stop in 1.. {
            let mut was_stopped = false;
            for (end, outcome) in ends() {
                let first = boot(Some(stop), STEPS, end, outcome);
                let outcome = run(Plan { boots: vec![first], ..script(flush) });
                was_stopped = outcome.stops == 1;
                if !note(outcome) {
                    return;
                }
            }
            if stop % NESTED_EVERY == 0 && !nested(flush, stop, &mut note) {
                return;
            }
            if !was_stopped {
                break;
            }
        }
    }
}

fn nested(flush: FlushMode, stop: u64, note: &mut impl FnMut(Outcome) -> bool) -> bool {
    for inner in 1.. {
        let mut was_stopped = false;
        for (end, cut) in [(CrashKind::Kill, None), (CrashKind::Power, Some(inner))] {
            let boots = vec![boot(Some(stop), STEPS, end, cut), boot(Some(inner), 0, end, cut)];
            let outcome = run(Plan { boots, ..script(flush) });
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

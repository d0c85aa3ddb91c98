//! Pieces of the store and the broker under thousands of thread schedules, which `shuttle` draws.
//!
//! Their files are compiled here once more, with the locks and atomics of `shuttle`. A wait never times out there, so that a wake-up
//! that is lost ends in a deadlock, which is reported with its schedule. What it cannot show: the effects of a weak memory order,
//! since each access is in one order for all threads.

mod sync {
    //! In place of the `sync` of store and broker.
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, PoisonError, atomic};
}

mod error {
    //! In place of the store's `error`.
    pub(crate) use rocketpy_store::FlushError;
}

// Some of what they offer is for their unit tests, or for other parts of store and broker.
#[allow(dead_code, unused_imports)]
#[path = "../../../store/src/append_bell.rs"]
mod append_bell;
#[allow(dead_code, unused_imports)]
#[path = "../../../store/src/dispatch/backlog.rs"]
mod backlog;
#[allow(dead_code, unused_imports)]
#[path = "../../../broker/src/held_state.rs"]
mod held_state;
#[allow(dead_code, unused_imports, unexpected_cfgs)] // `sim` is a feature of the store
#[path = "../../../store/src/allocate/next_file.rs"]
mod next_file;
#[allow(dead_code, unused_imports)]
#[path = "../../../store/src/flush/turn.rs"]
mod turn;
#[allow(dead_code, unused_imports)]
#[path = "../../../store/src/wake.rs"]
mod wake;

#[path = "../support/cases.rs"]
mod cases;

mod allocator;
mod append;
mod dispatch;
mod flush;
mod held;
mod sleep;

use std::panic::catch_unwind;
use std::time::{Duration, Instant};

use rocketpy_env::planted::{self, Bug};
use rocketpy_proof::planted::{Layer, proof_by};
use shuttle::thread::JoinHandle;

use crate::cases::Case;

/// Schedules of each kind for each scenario.
const SCHEDULES: usize = 2000;
/// Changes of priority in a schedule of the second kind.
const DEPTH: usize = 3;
const EVER: Duration = Duration::from_secs(1 << 30);

/// Waits until all have returned.
fn join<T>(threads: Vec<JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().expect("it returns")).collect()
}

/// What is explored.
struct Scenario {
    name: &'static str,
    run: fn(),
    /// Planted to see whether the scenario can fail.
    bugs: &'static [Bug],
}

static SCENARIOS: [Scenario; 12] = [
    Scenario { name: "group commit", run: flush::group_commit, bugs: &[Bug::NextFlushNotRung] },
    Scenario { name: "room", run: flush::room, bugs: &[] },
    Scenario { name: "wake-up", run: sleep::wake_up, bugs: &[Bug::SleepNotedLate] },
    Scenario { name: "hurry", run: sleep::hurry, bugs: &[Bug::SleepNotedLate] },
    Scenario { name: "stop", run: sleep::stop, bugs: &[] },
    Scenario { name: "waits for appends", run: append::waits, bugs: &[Bug::SleepNotedLate] },
    Scenario { name: "end of waits for appends", run: append::ends, bugs: &[] },
    Scenario { name: "next log file", run: allocator::next_file, bugs: &[Bug::FileWantedTwice] },
    Scenario { name: "stop of the allocator", run: allocator::stop, bugs: &[] },
    Scenario {
        name: "appends wait for dispatch",
        run: dispatch::appends_wait,
        bugs: &[Bug::BehindNotedLate],
    },
    Scenario {
        name: "held requests",
        run: held::requests,
        bugs: &[Bug::DispatchToldEarly, Bug::HeldShownLate],
    },
    Scenario { name: "held sends", run: held::sends, bugs: &[Bug::HeldShownLate] },
];

fn explore(scenario: fn()) {
    shuttle::check_random(scenario, SCHEDULES);
    shuttle::check_pct(scenario, SCHEDULES, DEPTH);
}

impl Scenario {
    fn holds(&self) {
        let started = Instant::now();
        explore(self.run);
        eprintln!("{}: {} schedules in {:?}", self.name, 2 * SCHEDULES, started.elapsed());
    }

    /// Plants the bug. A schedule must show it, and be reported as what it is.
    fn finds(&self, bug: Bug) {
        planted::set(Some(bug));
        let panic = catch_unwind(|| explore(self.run)).expect_err("a schedule shows the bug");
        planted::set(None);
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
        let proof = proof_by(bug, Layer::Schedules).expect("it is this harness's to find");
        let shown = proof.findings.iter().find(|(_, words)| text.contains(words));
        let (_, words) = shown.unwrap_or_else(|| panic!("{}: {text}", bug.title()));
        eprintln!("{}: {}, found: {words}", self.name, bug.title());
    }
}

fn every_bug_of_the_schedules_has_a_scenario() {
    let is_planted = |bug: Bug| SCENARIOS.iter().any(|scenario| scenario.bugs.contains(&bug));
    let is_wanted = |bug: Bug| proof_by(bug, Layer::Schedules).is_some();
    assert!(Bug::ALL.into_iter().filter(|bug| is_wanted(*bug)).all(is_planted));
}

fn main() {
    let mut tests = vec![Case {
        name: "every_bug_of_the_schedules_has_a_scenario".to_owned(),
        run: Box::new(every_bug_of_the_schedules_has_a_scenario),
    }];
    for scenario in &SCENARIOS {
        let name = cases::name_of(scenario.name);
        for &bug in scenario.bugs {
            let name = format!("{name}::planted_{}", cases::name_of(bug.title()));
            tests.push(Case { name, run: Box::new(move || scenario.finds(bug)) });
        }
        tests.push(Case { name: format!("{name}::holds"), run: Box::new(|| scenario.holds()) });
    }
    cases::main(tests);
}

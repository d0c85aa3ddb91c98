//! Every planted bug is found, and reported as what it is, by the ordinary simulated run that must find it. The run does not know
//! that there is a bug.
//!
//! A program of its own: a bug is planted in the whole process. `rust/proof/tests/it/planted_real.rs` plants bugs in other processes.

#[path = "../support/cases.rs"]
mod cases;

use rocketpy_proof::checker::Violation;
use rocketpy_proof::planted::{Bug, Catch, Layer, by_disk, by_pair, proof_by};
use rocketpy_proof::sim::{PairOutcome, run, run_pair};

use crate::cases::Case;

/// Seeds for each; nearly all are caught within a few.
const SEEDS: u64 = 3000;

/// The violation must be what the table says of the bug.
fn expect_shown(bug: Bug, layer: Layer, violation: &Violation) {
    let proof = proof_by(bug, layer).expect("only such bugs are tried");
    assert!(proof.is_shown_by(violation), "{} is caught as something else: {violation}", bug.title());
}

/// Looks for the bug. It may show as a panic of the store, here or in a thread of the run, which is not printed.
fn quietly<T>(look: impl FnOnce() -> T) -> T {
    std::panic::set_hook(Box::new(|_| ()));
    let found = look();
    let _ = std::panic::take_hook();
    found
}

fn disk_finds(bug: Bug) {
    let title = bug.title();
    let caught = quietly(|| by_disk(bug, SEEDS));
    let Catch { part, violation, plan, runs } = caught.unwrap_or_else(|| panic!("{title} is not caught"));
    eprintln!("{title}: {part} seed {}, {runs} runs, {violation}", plan.seed);
    expect_shown(bug, Layer::SimulatedDisk, &violation);
    let without = run(plan).violations;
    assert!(without.is_empty(), "the same run fails without {title}: {without:?}");
}

fn pair_finds(bug: Bug) {
    let title = bug.title();
    let caught = quietly(|| by_pair(bug, SEEDS));
    let PairOutcome { seed, violations, .. } = caught.unwrap_or_else(|| panic!("{title} is not caught"));
    eprintln!("{title}: pair seed {seed}, {}", violations[0]);
    expect_shown(bug, Layer::SimulatedPair, &violations[0]);
    let without = run_pair(seed).violations;
    assert!(without.is_empty(), "the same pair fails without {title}: {without:?}");
}

fn main() {
    let mut tests = Vec::new();
    let mut add = |part, bug: Bug, finds: fn(Bug)| {
        let name = format!("{part}::{}", cases::name_of(bug.title()));
        tests.push(Case { name, run: Box::new(move || finds(bug)) });
    };
    for bug in Bug::ALL {
        if proof_by(bug, Layer::SimulatedDisk).is_some() {
            add("disk", bug, disk_finds);
        }
        if proof_by(bug, Layer::SimulatedPair).is_some() {
            add("pair", bug, pair_finds);
        }
    }
    cases::main(tests);
}

//! The simulated runs of every test run.
//!
//! What they can show is described at the head of `rocketpy_proof::sim`; `make soak` runs without end.

use std::num::NonZero;

use rocketpy_proof::sim::{Outcome, PairTotals, Plan, Script, Totals, enumerate, run, run_pairs, run_seeds};
use rocketpy_store::FlushMode;

/// Random seeds of a test run.
const SEEDS: u64 = 4000;
/// Random seeds of pairs.
const PAIR_SEEDS: u64 = 1000;

fn assert_sound(outcome: &Outcome) {
    let (seed, boots) = (outcome.plan.seed, &outcome.plan.boots);
    let waiting = if outcome.plan.waits { " --waiting" } else { "" };
    assert!(
        outcome.violations.is_empty(),
        "seed {seed}: {:?}\n{boots:#?}\n{:#?}\ncargo run -p rocketpy-proof -- sim --seed {seed}{waiting}",
        outcome.violations,
        outcome.starts
    );
}

#[test]
fn no_seed_breaks_what_an_acknowledgement_promises() {
    eprintln!("seeds 0..{SEEDS}");
    let mut totals = Totals::default();
    let jobs = std::thread::available_parallelism().map_or(1, NonZero::get);
    let mut failed = None;
    run_seeds(0..SEEDS, jobs, |outcome| {
        totals.add(&outcome);
        if !outcome.violations.is_empty() {
            failed.get_or_insert(outcome);
        }
        failed.is_none()
    });
    if let Some(failed) = failed {
        assert_sound(&failed);
    }
    eprintln!("seeds 0..{SEEDS}: {totals:?}");
    assert_eq!(totals.runs, (0..SEEDS).flat_map(Plan::all_of).count() as u64);
    assert!(
        totals.crashes > SEEDS && totals.lost_as_allowed > SEEDS / 4,
        "the disk does its worst: {totals:?}"
    );
}

fn a_crash_after_any_operation_loses_nothing(scripts: &[Script], flush: FlushMode) {
    let mut totals = Totals::default();
    for script in scripts {
        enumerate(*script, flush, |outcome| {
            assert_sound(&outcome);
            totals.add(&outcome);
            true
        });
    }
    eprintln!("{totals:?}");
    assert!(totals.runs > 500, "{totals:?}");
    assert_eq!(totals.lost_as_allowed > 0, flush == FlushMode::Async, "{totals:?}");
}

#[test]
fn a_crash_after_any_operation_of_a_short_script_loses_nothing() {
    a_crash_after_any_operation_loses_nothing(&[Script::Nothing], FlushMode::Sync);
}

#[test]
fn a_crash_after_any_operation_of_a_short_script_without_flushes_loses_nothing_more() {
    a_crash_after_any_operation_loses_nothing(&[Script::Nothing], FlushMode::Async);
}

#[test]
fn a_crash_after_any_operation_of_removals_and_waits_loses_nothing() {
    a_crash_after_any_operation_loses_nothing(&[Script::Removes, Script::Waits], FlushMode::Sync);
}

#[test]
fn a_crash_after_any_operation_of_removals_and_waits_without_flushes_loses_nothing_more() {
    a_crash_after_any_operation_loses_nothing(&[Script::Removes, Script::Waits], FlushMode::Async);
}

#[test]
fn a_seed_gives_the_same_history_every_time() {
    for seed in 0..40 {
        for plan in Plan::all_of(seed) {
            let (first, second) = (run(plan.clone()), run(plan));
            assert_eq!(first.operations, second.operations, "seed {seed}");
            assert!(first.events == second.events, "the histories of seed {seed} differ");
        }
    }
    assert!(run(Plan::of(1)).events != run(Plan::of(2)).events);
}

#[test]
fn no_seed_of_a_pair_breaks_what_an_acknowledgement_promises_or_feeds_a_slave_with_other_bytes() {
    let (mut totals, mut failed) = (PairTotals::default(), None);
    let jobs = std::thread::available_parallelism().map_or(1, NonZero::get);
    run_pairs(0..PAIR_SEEDS, jobs, |outcome| {
        totals.add(&outcome);
        if !outcome.violations.is_empty() {
            failed.get_or_insert(outcome);
        }
        failed.is_none()
    });
    assert!(
        failed.is_none(),
        "cargo run -p rocketpy-proof -- sim --pair --seed {}: {failed:#?}",
        failed.as_ref().unwrap().seed
    );
    eprintln!("{totals:?}");
    let PairTotals { acknowledged, lost_as_allowed, ends, promotions, diverged, taken_back, .. } = totals;
    assert!(acknowledged > 5 * PAIR_SEEDS && lost_as_allowed < acknowledged / 4, "{totals:?}");
    assert!(ends.min(promotions).min(diverged).min(taken_back) > PAIR_SEEDS / 10, "{totals:?}");
}

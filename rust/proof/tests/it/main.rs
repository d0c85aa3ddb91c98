//! A fixed part of what `make soak` runs without end.

mod assertions;
mod fuzz;
mod kill;
mod members;
mod planted;
mod planted_real;
mod power;
mod sim;

use rocketpy_proof::real::{Flush, Harness, Options, Outcome, PRODUCERS, run};

/// The seed of the runs: `ROCKETPY_TEST_SEED`, if it is set. `rocketpy-proof` repeats a run by its `--seed`.
fn seed() -> u64 {
    let seed = std::env::var("ROCKETPY_TEST_SEED").ok();
    seed.map_or(20, |seed| seed.parse().expect("ROCKETPY_TEST_SEED is a number"))
}

fn options(harness: Harness, cycles: u64, cycles_a_store: u64, flush: Flush) -> Options {
    Options {
        harness,
        seed: seed(),
        cycles,
        cycles_a_store,
        flush: Some(flush),
        own_flush: Some(false),
        retention: Some(false),
        bound: false,
        pair: false,
        slow_slave: None,
        producers: PRODUCERS,
        load: None,
        server: env!("CARGO_BIN_EXE_rocketpy-proof-server").into(),
        history: None,
        planted: None,
    }
}

/// Runs and expects every rule to hold.
fn prove(options: &Options) -> Outcome {
    eprintln!("seed {}", options.seed);
    let outcome = run(options, |_| ()).unwrap_or_else(|reason| panic!("seed {}: {reason}", options.seed));
    let violations: Vec<String> = outcome.violations.iter().take(10).map(ToString::to_string).collect();
    assert!(violations.is_empty(), "seed {}, at {:?}: {violations:#?}", options.seed, outcome.broken_at);
    eprintln!("{:?}\nseed {}", outcome.totals, options.seed);
    outcome
}

//! Bugs planted in the real server, found by its ordinary run.

use rocketpy_proof::planted::{Layer, PROOFS, ordinary_real};
use rocketpy_proof::real::{Flush, Harness};

use crate::options;
use crate::power::can_cut;

/// Lives of the server for each bug.
const fn cycles(harness: Harness) -> u64 {
    match harness {
        Harness::Kill => 120,
        Harness::Power => 96,
    }
}

#[test]
fn real_servers_show_the_planted_bugs_that_are_theirs_to_show() {
    let can_cut = can_cut();
    let mut found = 0;
    for proof in PROOFS {
        let Layer::Real(harness) = proof.layer else { continue };
        if harness == Harness::Power && !can_cut {
            continue;
        }
        let title = proof.bug.title();
        let cycles = cycles(harness);
        let caught =
            ordinary_real(proof.bug, &options(harness, cycles, cycles.min(20), Flush::Sync)).unwrap();
        let Some((violation, cycles)) = caught else { panic!("{title} is not caught by {harness:?}") };
        eprintln!("{title}: {harness:?} after {cycles} cycles, {violation}");
        assert!(proof.is_shown_by(&violation), "{title} is caught as something else: {violation}");
        found += 1;
    }
    assert!(found >= 1);
}

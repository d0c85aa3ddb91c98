//! Bugs planted in the real server, found by its ordinary run.

use rocketpy_proof::planted::{Bug, Layer, ordinary_real, proof_by};
use rocketpy_proof::real::{Flush, Harness};

use crate::options;
use crate::power::can_cut;

#[test]
fn real_servers_show_the_planted_bugs_that_are_theirs_to_show() {
    if !can_cut() {
        return;
    }
    let mut found = 0;
    for bug in Bug::ALL {
        // A kill shows none of them: what the system holds in memory outlives the process.
        assert!(proof_by(bug, Layer::Real(Harness::Kill)).is_none());
        let Some(proof) = proof_by(bug, Layer::Real(Harness::Power)) else { continue };
        let caught = ordinary_real(bug, 12, &options(Harness::Power, 12, 12, Flush::Sync)).unwrap();
        let Some((harness, violation, cycles)) = caught else { panic!("{} is not caught", bug.title()) };
        eprintln!("{}: {harness:?} after {cycles} cycles, {violation}", bug.title());
        assert_eq!(harness, Harness::Power, "{}: {violation}", bug.title());
        assert!(proof.is_shown_by(&violation), "{} is caught as something else: {violation}", bug.title());
        found += 1;
    }
    assert_eq!(found, 2);
}

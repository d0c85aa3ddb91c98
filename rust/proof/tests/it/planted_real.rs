//! A planted bug for each harness of real processes: the ordinary run finds it. `make soak` plants all of them.

use rocketpy_proof::checker::Violation;
use rocketpy_proof::planted::{Bug, Layer, ordinary_members, ordinary_real, proof_by};
use rocketpy_proof::real::{Flush, Harness};

use crate::power::can_cut;
use crate::{members, options, seed};

/// Server lives to try.
const CYCLES: u64 = 120;

/// The violation must be what the table says of the bug.
fn expect_shown(bug: Bug, layer: Layer, violation: Option<&Violation>) {
    let title = bug.title();
    let violation = violation.unwrap_or_else(|| panic!("seed {}: {title} is not caught", seed()));
    eprintln!("seed {}: {title}: {violation}", seed());
    let proof = proof_by(bug, layer).expect("the table names this harness");
    assert!(proof.is_shown_by(violation), "{title} is caught as something else: {violation}");
}

fn finds(bug: Bug, harness: Harness) {
    let caught = ordinary_real(bug, &options(harness, CYCLES, 20, Flush::Sync)).unwrap();
    expect_shown(bug, Layer::Real(harness), caught.as_ref().map(|(violation, _)| violation));
}

#[test]
fn kills_show_a_planted_bug() {
    finds(Bug::TableNotWritten, Harness::Kill);
}

#[test]
fn power_cuts_show_a_planted_bug() {
    if can_cut() {
        finds(Bug::AckBeforeFlush, Harness::Power);
    }
}

#[test]
fn members_show_a_planted_bug() {
    let caught = ordinary_members(Bug::CommitUnfinished, &members::options(4, 25)).unwrap();
    expect_shown(Bug::CommitUnfinished, Layer::Members, caught.as_ref());
}

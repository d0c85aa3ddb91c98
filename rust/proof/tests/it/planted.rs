//! What the table of planted bugs says. `rust/proof/tests/planted` and `rust/proof/tests/schedule` plant them.

use rocketpy_env::{Disk, RealDisk};
use rocketpy_proof::checker::{Rule, Violation};
use rocketpy_proof::planted::{Bug, Layer, PROOFS, Proof, proof_by};

#[test]
fn every_planted_bug_has_a_harness_that_must_find_it() {
    let is_found = |bug: Bug| PROOFS.iter().any(|proof| proof.bug == bug);
    assert!(Bug::ALL.into_iter().all(is_found));
}

#[test]
fn another_rule_or_a_panic_for_another_reason_shows_no_bug() {
    let violation = |rule, text: &str| Violation { rule, text: text.to_owned() };
    let shows = |bug, violation| proof_by(bug, Layer::SimulatedDisk).unwrap().is_shown_by(&violation);
    let panic = |text: &str| violation(Rule::Alive, &format!("a panic: {text}"));
    assert!(shows(Bug::TruncateInteriorDamage, panic("range 0..9 passes the written 8")));
    for bug in Bug::ALL.into_iter().filter(|bug| proof_by(*bug, Layer::SimulatedDisk).is_some()) {
        assert!(
            !shows(bug, panic("index out of bounds: the len is 0 but the index is 0")),
            "{}",
            bug.title()
        );
        assert!(
            !shows(bug, violation(Rule::C2, "message 1 was delivered and never sent")),
            "{}",
            bug.title()
        );
    }
    assert!(!shows(Bug::OffByOneAtRoll, violation(Rule::R6, "index file 0 differs")));
}

#[test]
fn the_document_names_what_must_find_each_bug() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/durability.md");
    let text = String::from_utf8(RealDisk.read(path.as_ref(), 1 << 20).unwrap()).unwrap();
    let documented: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.starts_with("| planted bug |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    let rows: Vec<String> = PROOFS.iter().map(row).collect();
    assert_eq!(documented, rows, "the table of docs/durability.md should be\n{}", rows.join("\n"));
}

/// The row of docs/durability.md.
fn row(proof: &Proof) -> String {
    let findings = proof.findings.iter().map(|(rule, words)| format!("{rule}: \"{words}\""));
    let findings = findings.collect::<Vec<_>>().join(", ");
    format!("| {} | {} | {findings} |", proof.bug.title(), proof.layer)
}

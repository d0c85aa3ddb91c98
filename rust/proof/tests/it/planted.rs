//! Every planted bug is found, and reported as what it is, by the ordinary run of each harness that must find it. The run does not
//! know that there is a bug.

use rocketpy_env::{Disk, RealDisk};
use rocketpy_proof::checker::{Rule, Violation};
use rocketpy_proof::planted::{Bug, Layer, PROOFS, Proof, all, all_of_pairs, proof_by};
use rocketpy_proof::sim::{PairOutcome, run, run_pair};

/// Seeds for each; nearly all are caught within a few.
const SEEDS: u64 = 3000;

#[test]
fn every_planted_bug_is_caught_as_what_it_is() {
    // A bug may show as a panic of the store, here or in a thread of the run. Panics of other tests are still printed.
    let (default_hook, this) = (std::panic::take_hook(), std::thread::current().id());
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        if thread.name().is_some() && thread.id() != this {
            default_hook(panic);
        }
    }));
    let table = all(SEEDS);
    let _ = std::panic::take_hook();
    let is_found = |bug: Bug| PROOFS.iter().any(|proof| proof.bug == bug);
    assert!(Bug::ALL.into_iter().all(is_found), "a harness finds each");
    let mut wrong = Vec::new();
    for (bug, caught) in table {
        let title = bug.title();
        let Some(catch) = caught else {
            wrong.push(format!("{title} is not caught"));
            continue;
        };
        let violation = catch.violation;
        let said = format!("{title:<28} {:<10} seed {:>5}  {violation}", catch.part, catch.plan.seed);
        eprintln!("{said}");
        let proof = proof_by(bug, Layer::SimulatedDisk).expect("only such bugs are tried");
        if !proof.is_shown_by(&violation) {
            wrong.push(format!("caught as something else: {said}"));
        }
        let without = run(catch.plan).violations;
        if !without.is_empty() {
            wrong.push(format!("the same run fails without {title}: {without:?}"));
        }
    }
    for (bug, caught) in all_of_pairs(SEEDS) {
        let title = bug.title();
        let Some(PairOutcome { seed, violations, .. }) = caught else {
            wrong.push(format!("{title} is not caught"));
            continue;
        };
        eprintln!("{title:<28} pair       seed {seed:>5}  {}", violations[0]);
        let proof = proof_by(bug, Layer::SimulatedPair).expect("only such bugs are tried");
        if !proof.is_shown_by(&violations[0]) {
            wrong.push(format!("{title} is caught as something else: {}", violations[0]));
        }
        let without = run_pair(seed).violations;
        if !without.is_empty() {
            wrong.push(format!("the same pair fails without {title}: {without:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
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

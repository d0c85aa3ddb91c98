//! Every bug that is planted is caught by the ordinary run, which does not know that there is one.

use rocketpy_proof::planted;
use rocketpy_store::planted::Bug;

/// Seeds for each; nearly all are caught within a few.
const SEEDS: u64 = 3000;

#[test]
fn every_planted_bug_is_caught() {
    std::panic::set_hook(Box::new(|_| {})); // a bug may show as a panic of the store
    let table = planted::all(SEEDS);
    let _ = std::panic::take_hook();
    for (bug, caught) in &table {
        match caught {
            Some(catch) => eprintln!(
                "{:<28} {:<10} seed {:>5} {:>5} runs  {}",
                bug.title(),
                catch.layer,
                catch.plan.seed,
                catch.runs,
                catch.violation
            ),
            None => eprintln!("{:<28} NOT CAUGHT", bug.title()),
        }
    }
    let missed: Vec<_> =
        table.iter().filter(|(_, caught)| caught.is_none()).map(|(bug, _)| bug.title()).collect();
    assert_eq!(missed, [] as [&str; 0]);
    assert_eq!(table.len(), Bug::ALL.len());
}

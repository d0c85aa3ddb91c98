//! Push consumers in processes of their own: members that are killed, stopped and come back, and servers that are killed.
//!
//! Shows that each message is handled to the end by each group, or by each member that gets everything, that what is committed was handled,
//! that order and retries hold. It cannot show what a network does that fails in part.

use rocketpy_proof::real::{MembersOptions, run_members};

use crate::seed;

pub(crate) fn options(stores: u64, ends_a_store: u64) -> MembersOptions {
    MembersOptions {
        seed: seed(),
        stores,
        ends_a_store,
        waits_for_locks: false,
        renewals: Some(false),
        server: env!("CARGO_BIN_EXE_rocketpy-proof-server").into(),
        member: env!("CARGO_BIN_EXE_rocketpy-proof").into(),
        history: None,
        planted: None,
    }
}

#[test]
fn each_message_is_handled_to_the_end_whichever_members_are_killed() {
    let options = options(1, 25);
    eprintln!("seed {}", options.seed);
    let outcome = run_members(&options, |_| ()).unwrap();
    let (violations, totals) = (outcome.violations, outcome.totals);
    assert!(violations.is_empty(), "seed {:?}: {violations:#?}", outcome.broken_at);
    assert!(totals.killed[..3].iter().all(|killed| *killed > 0) && totals.stopped > 0, "{totals:?}");
    assert!(totals.messages > 1000 && totals.handled > 3 * totals.messages && totals.dead > 0, "{totals:?}");
    eprintln!("{totals:?}");
}

#[test]
fn members_get_all_of_queues_that_begin_anew() {
    let options = MembersOptions { renewals: Some(true), ..options(1, 25) };
    eprintln!("seed {}", options.seed);
    let outcome = run_members(&options, |_| ()).unwrap();
    let (violations, totals) = (outcome.violations, outcome.totals);
    assert!(violations.is_empty(), "seed {:?}: {violations:#?}", outcome.broken_at);
    assert!(totals.renewed.iter().all(|renewed| *renewed > 0), "{totals:?}");
    assert!(totals.messages > 1000 && totals.handled > totals.messages, "{totals:?}");
    eprintln!("{totals:?}");
}

//! Bugs that are planted in the real server, and found by the ordinary run of it.

use rocketpy_proof::planted::{Bug, ordinary_real, real_harness};
use rocketpy_proof::real::{Flush, Harness};

use crate::options;
use crate::power::can_cut;

#[test]
fn real_servers_show_the_planted_bugs_that_are_theirs_to_show() {
    if !can_cut() {
        return;
    }
    for bug in Bug::ALL {
        let Some(expected) = real_harness(bug) else { continue };
        let caught = ordinary_real(bug, 12, &options(expected, 12, 12, Flush::Sync)).unwrap();
        let Some((harness, violation, cycles)) = caught else { panic!("{} is not caught", bug.title()) };
        eprintln!("{}: {harness:?} after {cycles} cycles, {violation}", bug.title());
        assert_eq!((harness, expected), (Harness::Power, Harness::Power), "{violation}");
    }
}

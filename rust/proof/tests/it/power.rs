//! Power cuts of a real file system on a loop device, with the real server under load.
//!
//! Shows that what was acknowledged was flushed, names of files among it. The disk under the loop device keeps what reached
//! it, so this cannot show sectors that a disk loses or writes out of order: the simulated disk does.

use rocketpy_proof::real::{Flush, Harness, Mounted, Options};

use crate::{options, prove};

/// Whether power can be cut here. If not, standard error says why; under `CI` that is a failure.
pub(crate) fn can_cut() -> bool {
    let cut = Mounted::can_be_cut();
    if let Err(reason) = &cut {
        let reason = format!("root, loop devices and mkfs.ext4 are needed: {reason}");
        assert!(std::env::var_os("CI").is_none(), "{reason}");
        eprintln!("skipped: {reason}");
    }
    cut.is_ok()
}

#[test]
fn under_sync_flush_ten_power_cuts_lose_nothing_that_was_acknowledged() {
    if !can_cut() {
        return;
    }
    let outcome = prove(&options(Harness::Power, 10, 10, Flush::Sync));
    assert_eq!((outcome.totals.power_cuts, outcome.totals.lost_as_allowed), (10, 0));
    assert!(outcome.totals.acknowledged > 100, "{:?}", outcome.totals);
}

#[test]
fn under_async_flush_a_prefix_survives_each_power_cut() {
    if !can_cut() {
        return;
    }
    let outcome = prove(&options(Harness::Power, 6, 6, Flush::Async));
    let totals = outcome.totals;
    assert_eq!(totals.power_cuts, 6);
    assert!(totals.acknowledged > 100, "{totals:?}");
    // The checker shows that a prefix survived. This shows that the cuts took something and left something.
    assert!(totals.lost_as_allowed > 0 && totals.lost_as_allowed < totals.acknowledged, "{totals:?}");
}

#[test]
fn a_topic_keeps_the_promise_of_its_own_flush_type_under_either_policy() {
    if !can_cut() {
        return;
    }
    for flush in [Flush::Async, Flush::Sync] {
        let plain = options(Harness::Power, 3, 3, flush);
        let outcome = prove(&Options { retention: Some(true), own_flush: Some(true), ..plain });
        assert_eq!(outcome.totals.power_cuts, 3);
        assert!(outcome.totals.acknowledged > 50, "{:?}", outcome.totals);
    }
}

/// Takes some ten seconds. `make soak` does the same.
#[test]
#[ignore = "writes 700 MiB"]
fn a_power_cut_takes_no_more_than_the_default_of_the_bytes_that_are_not_flushed() {
    if !can_cut() {
        return;
    }
    let outcome = prove(&Options { bound: true, ..options(Harness::Power, 1, 1, Flush::Async) });
    assert!(outcome.totals.acknowledged > 600, "messages of 1 MiB: {:?}", outcome.totals);
    assert!(outcome.totals.most_lost_bytes > 200 << 20, "the bound was reached: {:?}", outcome.totals);
}

#[test]
fn what_a_pair_acknowledged_survives_power_cuts_of_its_master_and_of_both() {
    if !can_cut() {
        return;
    }
    for flush in [Flush::Async, Flush::Sync] {
        let outcome = prove(&Options { pair: true, ..options(Harness::Power, 6, 6, flush) });
        let totals = outcome.totals;
        assert_eq!(totals.power_cuts, 6);
        assert!(totals.acknowledged > 100 && totals.ended_both > 0, "{totals:?}");
        assert!(flush == Flush::Async || totals.lost_as_allowed == 0, "{totals:?}");
    }
}

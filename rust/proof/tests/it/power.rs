//! Power cuts of a real file system on a loop device, with the real server under load.
//!
//! Shows that what was acknowledged was flushed, names of files among it. The disk under the loop device keeps what reached
//! it, so this cannot show sectors that a disk loses or writes out of order: the simulated disk does.

use rocketpy_proof::real::{Flush, Harness, Mounted};

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

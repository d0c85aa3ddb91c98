//! kill -9 of the real server, at every point that has a name and at random times.
//!
//! Shows that nothing acknowledged is lost with the process, and that every start continues from what the one before left. It
//! cannot show a missing flush: what the system holds in memory outlives the process.

use rocketpy_env::failpoint::Point;
use rocketpy_proof::real::{Flush, Harness, Options};

use crate::{options, prove};

#[test]
fn nothing_acknowledged_is_lost_with_the_process_wherever_it_ends() {
    // Each store goes through all points once: a busy machine may miss a point on one store, not on both.
    let outcome = prove(&options(Harness::Kill, 40, 20, Flush::Sync));
    let missed: Vec<&str> =
        Point::ALL.into_iter().filter(|&point| outcome.totals.at(point) == 0).map(Point::name).collect();
    assert!(missed.is_empty(), "points at which no server ended: {missed:?}");
    assert!(outcome.totals.acknowledged > 500, "{:?}", outcome.totals);
}

#[test]
fn under_async_flush_a_kill_loses_nothing_either() {
    let outcome = prove(&options(Harness::Kill, 14, 14, Flush::Async));
    assert!(outcome.totals.acknowledged > 300, "{:?}", outcome.totals);
    assert_eq!(outcome.totals.lost_as_allowed, 0);
}

#[test]
fn retention_removes_what_it_must_and_no_more_wherever_the_server_ends() {
    let plain = options(Harness::Kill, 8, 4, Flush::Async);
    let outcome = prove(&Options { retention: Some(true), own_flush: Some(true), ..plain });
    assert!(outcome.totals.acknowledged > 100, "{:?}", outcome.totals);
    assert!(outcome.totals.removed_files > 0, "{:?}", outcome.totals);
    assert_eq!(outcome.totals.lost_as_allowed, 0);
}

#[test]
fn a_pair_loses_nothing_whichever_of_the_two_is_killed() {
    let outcome = prove(&Options { pair: true, ..options(Harness::Kill, 10, 10, Flush::Async) });
    let totals = outcome.totals;
    assert!(totals.acknowledged > 200 && totals.lost_as_allowed == 0, "{totals:?}");
    assert!(totals.slaves_killed > 0 && totals.ended_both > 0, "{totals:?}");
}

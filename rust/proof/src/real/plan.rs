//! How a store is set up and how each life of its server ends, drawn from the seed.

use std::time::Duration;

use fastrand::Rng;
use rocketpy_env::failpoint::Point;

use super::mount::{Kind, Mounted};
use super::{Flush, Harness, Options, Totals};

/// What one store is like.
#[derive(Debug, Clone)]
pub struct Shape {
    pub flush: Flush,
    pub kind: Kind,
    pub topics: u32,
    pub queues: u32,
    pub body_max: usize,
    /// `KEY=VALUE` of the server.
    pub settings: Vec<String>,
}

impl Shape {
    pub fn draw(rng: &mut Rng, options: &Options) -> Self {
        let is_sync = rng.bool();
        let flush = options.flush.unwrap_or(if is_sync { Flush::Sync } else { Flush::Async });
        let is_xfs = rng.u8(0..4) == 0;
        let log_file = *rng.choice(&[64 << 10, 128 << 10, 256 << 10]).unwrap_or(&65_536);
        let settings = [
            ("flushDiskType", if flush == Flush::Sync { "SYNC_FLUSH" } else { "ASYNC_FLUSH" }.to_owned()),
            ("mappedFileSizeCommitLog", log_file.to_string()),
            ("mappedFileSizeConsumeQueue", (20 * rng.u32(10..200)).to_string()),
            ("maxHashSlotNum", rng.u32(100..1000).to_string()),
            ("maxIndexNum", rng.u32(500..5000).to_string()),
            ("flushIntervalCommitLog", FLUSH_INTERVAL_MS.to_string()),
            ("flushConsumerOffsetInterval", rng.u32(100..1000).to_string()),
        ];
        Self {
            flush,
            kind: if is_xfs && Mounted::has_xfs() { Kind::Xfs } else { Kind::Ext4 },
            topics: rng.u32(1..=3),
            queues: rng.u32(1..=4),
            body_max: *rng.choice(&[100, 1000, 6000]).unwrap_or(&100),
            settings: settings.iter().map(|(key, value)| format!("{key}={value}")).collect(),
        }
    }
}

/// Of the flush of the log under ASYNC_FLUSH.
pub const FLUSH_INTERVAL_MS: u64 = 100;

/// How a life of the server ends.
#[derive(Debug, Clone, Copy)]
pub struct Ending {
    /// It ends itself here.
    pub kill_at: Option<(Point, u64)>,
    /// Killed so long after its start, if it is not ready before.
    pub in_start: Option<Duration>,
    /// Otherwise after this time of load.
    pub load: Duration,
    /// The load has ended before, and the last thing is an acknowledged change of metadata.
    pub is_quiet: bool,
    pub how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Kill,
    Stop,
    Power,
}

impl Ending {
    pub fn draw(rng: &mut Rng, options: &Options, cycle: u64, totals: &Totals) -> Self {
        let how = match options.harness {
            Harness::Power => How::Power,
            Harness::Kill if rng.u8(0..16) == 0 => How::Stop,
            Harness::Kill => How::Kill,
        };
        let mut ending = Self {
            kill_at: None,
            in_start: None,
            load: Duration::from_millis(rng.u64(20..if how == How::Power { 900 } else { 500 })),
            is_quiet: how == How::Power && rng.bool(),
            how,
        };
        if how == How::Kill && cycle.is_multiple_of(2) {
            let rarest = Point::ALL.into_iter().min_by_key(|&point| totals.at(point));
            let point = rarest.unwrap_or(Point::Roll);
            ending.kill_at = Some((point, rng.u64(1..=most_times(point))));
            ending.load = Duration::from_millis(if point == Point::Checkpoint { 2500 } else { 900 });
        } else if how == How::Kill && rng.u8(0..6) == 0 {
            ending.in_start = Some(Duration::from_millis(rng.u64(0..60)));
        }
        ending
    }

    /// The last one, which nothing ends.
    pub fn healed() -> Self {
        let load = Duration::from_millis(200);
        Self { kill_at: None, in_start: None, load, is_quiet: false, how: How::Stop }
    }
}

/// A point is reached so often in a life as a rule.
const fn most_times(point: Point) -> u64 {
    match point {
        Point::BeforeAppend | Point::AfterAppend | Point::BeforeAcknowledge => 300,
        Point::BeforeFlush | Point::AfterFlush => 5,
        Point::Roll => 2,
        Point::Checkpoint => 3,
        Point::Delete => 4,
        Point::Rename | Point::AfterRename => 20,
    }
}

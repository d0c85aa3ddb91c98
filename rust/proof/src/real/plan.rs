//! How a store is set up and how each life of its server ends, drawn from the seed.

use std::time::Duration;

use fastrand::Rng;
use rocketpy_env::failpoint::Point;

use super::mount::{Kind, Mounted};
use super::{Flush, Harness, Options};

#[cfg(test)]
mod tests;

/// What one store is like.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub flush: Flush,
    pub kind: Kind,
    pub topics: u32,
    pub queues: u32,
    pub body_max: usize,
    /// Interval of flushes of the log under ASYNC_FLUSH.
    pub flush_interval_ms: u64,
    /// `maxUnflushedBytes`.
    pub max_unflushed_bytes: u64,
    /// `KEY=VALUE` of the server.
    pub settings: Vec<String>,
}

impl Shape {
    pub(super) fn draw(rng: &mut Rng, options: &Options) -> Self {
        let is_sync = rng.bool();
        let flush = options.flush.unwrap_or(if is_sync { Flush::Sync } else { Flush::Async });
        let is_xfs = rng.u8(0..4) == 0;
        // A life rolls small files several times, and large ones never: a kill is to meet rolls.
        let log_files: &[u32] = match options.harness {
            Harness::Kill => &[64 << 10, 128 << 10, 256 << 10],
            Harness::Power => &[64 << 10, 128 << 10, 256 << 10, 16 << 20],
        };
        let log_file = *rng.choice(log_files).unwrap_or(&65_536);
        // Frequent flushes, those of the default, or none before the bytes demand one.
        let (flush_interval_ms, max_unflushed_bytes) = *rng
            .choice(&[(100, 256 << 20), (500, 256 << 20), (30_000, 64 << 10)])
            .unwrap_or(&(500, 256 << 20));
        // More queues than a checkpoint flushes one by one: it flushes their file system.
        let (topics, queues) = match rng.u8(0..6) {
            0 => (3, rng.u32(24..=30)),
            _ => (rng.u32(1..=3), rng.u32(1..=4)),
        };
        let settings = [
            ("flushDiskType", if flush == Flush::Sync { "SYNC_FLUSH" } else { "ASYNC_FLUSH" }.to_owned()),
            ("mappedFileSizeCommitLog", log_file.to_string()),
            ("mappedFileSizeConsumeQueue", (20 * rng.u32(10..200)).to_string()),
            ("maxHashSlotNum", rng.u32(100..1000).to_string()),
            ("maxIndexNum", rng.u32(500..5000).to_string()),
            ("flushIntervalCommitLog", flush_interval_ms.to_string()),
            ("maxUnflushedBytes", max_unflushed_bytes.to_string()),
            ("flushConsumerOffsetInterval", rng.u32(100..1000).to_string()),
        ];
        Self {
            flush,
            kind: if is_xfs && Mounted::has_xfs() { Kind::Xfs } else { Kind::Ext4 },
            topics,
            queues,
            flush_interval_ms,
            max_unflushed_bytes,
            body_max: *rng.choice(&[100, 1000, 6000]).unwrap_or(&100),
            settings: settings.iter().map(|(key, value)| format!("{key}={value}")).collect(),
        }
    }
}

/// Draws the lives on one store from its seed alone: the same seed draws the same lives, however the machine ran the ones
/// before.
#[derive(Debug)]
pub(super) struct Lives {
    rng: Rng,
    harness: Harness,
    /// The points at which the lives with an even number end, in turn.
    points: [Point; Point::ALL.len()],
    drawn: usize,
}

/// The plan of one life of the server.
#[derive(Debug)]
pub(super) struct Drawn {
    pub ending: Ending,
    /// Whether all files are checked after its start.
    pub looks_at_files: bool,
    /// Draws what is read after its start. How many numbers that takes depends on the store, so nothing else draws from it.
    pub survey: Rng,
    pub load: Rng,
}

impl Lives {
    pub(super) fn new(rng: &mut Rng, harness: Harness) -> Self {
        let mut rng = rng.fork();
        let mut points = Point::ALL;
        rng.shuffle(&mut points);
        Self { rng, harness, points, drawn: 0 }
    }

    /// The next life.
    pub(super) fn draw(&mut self) -> Drawn {
        let mut rng = self.rng.fork();
        let point = self.points[self.drawn / 2 % self.points.len()];
        let is_at_point = self.harness == Harness::Kill && self.drawn.is_multiple_of(2);
        self.drawn += 1;
        let ending = Ending::draw(&mut rng, self.harness, is_at_point.then_some(point));
        Drawn { ending, looks_at_files: rng.u8(0..4) == 0, survey: rng.fork(), load: rng.fork() }
    }

    /// The last life, which nothing ends.
    pub(super) fn draw_healed(&mut self) -> Drawn {
        let load = Duration::from_millis(200);
        let ending = Ending { kill_at: None, in_start: None, load, is_quiet: false, how: How::Stop };
        Drawn { ending, looks_at_files: true, survey: self.rng.fork(), load: self.rng.fork() }
    }
}

/// How a life of the server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ending {
    /// It ends itself at this point.
    pub kill_at: Option<(Point, u64)>,
    /// Killed after this time if it is not ready by then.
    pub in_start: Option<Duration>,
    /// Otherwise killed after this time of load.
    pub load: Duration,
    /// Before the end the load stops, and a last change of metadata is acknowledged.
    pub is_quiet: bool,
    pub how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Kill,
    Stop,
    Power,
}

impl Ending {
    fn draw(rng: &mut Rng, harness: Harness, at: Option<Point>) -> Self {
        let how = match harness {
            Harness::Power => How::Power,
            Harness::Kill if at.is_none() && rng.u8(0..8) == 0 => How::Stop,
            Harness::Kill => How::Kill,
        };
        let mut ending = Self {
            kill_at: None,
            in_start: None,
            load: Duration::from_millis(match how {
                // Long enough for what ASYNC_FLUSH promises of time and of bytes.
                How::Power if rng.u8(0..5) == 0 => 3000,
                How::Power => rng.u64(20..900),
                _ => rng.u64(20..500),
            }),
            is_quiet: how == How::Power && rng.bool(),
            how,
        };
        if let Some(point) = at {
            ending.kill_at = Some((point, rng.u64(1..=most_times(point))));
            ending.load = Duration::from_millis(if point == Point::Checkpoint { 2500 } else { 900 });
        } else if how == How::Kill && rng.u8(0..6) == 0 {
            ending.in_start = Some(Duration::from_millis(rng.u64(0..60)));
        }
        ending
    }
}

/// How often a life usually reaches a point.
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

//! How a store is set up and how each life of its server ends, drawn from the seed.

use std::ops::RangeInclusive;
use std::time::Duration;

use fastrand::Rng;
use rocketpy_env::failpoint::Point;

use super::pair::SlaveEnd;
use super::{Harness, Options};

#[cfg(test)]
mod tests;

/// Appends of 1 MiB before flushes hang. The last flush covers all but some 64 of them; with the 256 MiB that may follow, there are
/// more than 600.
const HANG_AFTER: RangeInclusive<u64> = 450..=550;
/// A load that fills `maxUnflushedBytes` takes a few seconds.
const FULL_WITHIN: Duration = Duration::from_secs(120);

/// Draws the lives on one store from its seed alone: the same seed draws the same lives, however the machine ran the ones
/// before.
#[derive(Debug)]
pub(super) struct Lives {
    rng: Rng,
    harness: Harness,
    /// See [`Options::bound`].
    is_bound: bool,
    has_slave: bool,
    /// See [`Options::load`].
    load: Option<Duration>,
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
    /// How its slave ends, if it has one.
    pub slave: SlaveEnd,
}

impl Lives {
    pub(super) fn new(rng: &mut Rng, options: &Options) -> Self {
        let mut rng = rng.fork();
        let mut points = Point::ALL;
        rng.shuffle(&mut points);
        Self {
            rng,
            harness: options.harness,
            is_bound: options.bound,
            has_slave: options.pair,
            load: options.load,
            points,
            drawn: 0,
        }
    }

    /// The next life.
    pub(super) fn draw(&mut self) -> Drawn {
        let mut rng = self.rng.fork();
        let point = self.points[self.drawn / 2 % self.points.len()];
        let is_at_point = self.harness == Harness::Kill && self.drawn.is_multiple_of(2);
        self.drawn += 1;
        let mut ending = Ending::draw(&mut rng, self.harness, is_at_point.then_some(point));
        ending.load = self.load.unwrap_or(ending.load);
        if self.is_bound {
            ending = Ending {
                hang_after: Some(rng.u64(HANG_AFTER)),
                load: FULL_WITHIN,
                is_quiet: false,
                ..ending
            };
        }
        let (looks_at_files, survey, load) = (rng.u8(0..4) == 0, rng.fork(), rng.fork());
        let slave = if self.has_slave { SlaveEnd::draw(&mut rng, ending.load) } else { SlaveEnd::Lives };
        Drawn { ending, looks_at_files, survey, load, slave }
    }

    /// The last life, which nothing ends.
    pub(super) fn draw_healed(&mut self) -> Drawn {
        let load = Duration::from_millis(200);
        let ending =
            Ending { kill_at: None, hang_after: None, in_start: None, load, is_quiet: false, how: How::Stop };
        let (survey, load) = (self.rng.fork(), self.rng.fork());
        Drawn { ending, looks_at_files: true, survey, load, slave: SlaveEnd::Lives }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ending {
    /// It ends itself at this point.
    pub kill_at: Option<(Point, u64)>,
    /// Flushes hang after this many appends, and the load goes on until the server takes no more.
    pub hang_after: Option<u64>,
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
            hang_after: None,
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

impl SlaveEnd {
    fn draw(rng: &mut Rng, load: Duration) -> Self {
        match rng.u8(0..4) {
            0 => Self::Killed(load.mul_f64(rng.f64())),
            1 => Self::WithMaster,
            _ => Self::Lives,
        }
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

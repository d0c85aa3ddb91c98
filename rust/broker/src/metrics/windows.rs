//! Windows of counters: their growth in the last minute, hour and day.
//!
//! A service takes samples of each item; a question takes one more. A window is the difference between its oldest sample and that of the
//! question, so it ends now. Apache's end with their last sample.
//!
//! # Source
//! docs/reference/protocol.md 2.6.4.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
/// Interval of the samples of each window, and how many are kept: of a minute, an hour, a day.
const SAMPLED: [(i64, usize); 3] = [(10_000, 7), (10 * MINUTE_MS, 7), (HOUR_MS, 25)];
/// The samples of an item that was idle for so long are all the same.
const ALL_THE_SAME_MS: i64 = 26 * HOUR_MS;

/// Growth of a counter within a window.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Window {
    pub(crate) sum: u64,
    /// Per second.
    pub(crate) rate: f64,
    /// Per event.
    pub(crate) mean: f64,
}

/// The last minute, hour and day.
pub(crate) type Windows3 = [Window; 3];

/// Which counts of an item make a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    pub(super) value: usize,
    /// The count of its events; `None`: they are not counted.
    pub(super) times: Option<usize>,
    /// Parts of a unit that are counted.
    pub(super) parts: u64,
}

impl Shown {
    pub(super) const fn of(value: usize, times: usize) -> Self {
        Self { value, times: Some(times), parts: 1 }
    }

    pub(super) const fn alone(value: usize) -> Self {
        Self { value, times: None, parts: 1 }
    }
}

/// The moments at which samples are due.
#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    /// Due times of the next samples.
    next: Mutex<[i64; 3]>,
}

/// A moment at which samples are taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tick {
    now_ms: i64,
    is_due: [bool; 3],
    /// Idle time after which items are dropped; `None`: never.
    idle_ms: Option<i64>,
}

impl Clock {
    pub(super) fn new(start: Instant) -> Self {
        Self { start, next: Mutex::new(SAMPLED.map(|(interval, _)| interval)) }
    }

    pub(super) fn at(&self, now: Instant) -> i64 {
        i64::try_from(now.saturating_duration_since(self.start).as_millis()).unwrap_or(i64::MAX)
    }

    /// The service that takes samples calls it every ten seconds: the minute's are always due.
    pub(super) fn tick(&self, now: Instant, idle: Option<Duration>) -> Tick {
        let now_ms = self.at(now);
        let mut next = self.next.lock();
        let mut is_due = [true; 3];
        for ((is_due, next), (interval, _)) in is_due.iter_mut().zip(next.iter_mut()).zip(SAMPLED).skip(1) {
            *is_due = now_ms >= *next;
            if *is_due {
                *next = now_ms + interval;
            }
        }
        assert!(
            next.iter().skip(1).all(|next| *next > now_ms),
            "the next sample is due later: {next:?}, {now_ms}"
        );
        let idle_ms = idle.map(|idle| i64::try_from(idle.as_millis()).unwrap_or(i64::MAX));
        Tick { now_ms, is_due, idle_ms }
    }
}

type Sample<const N: usize> = (i64, [u64; N]);

/// Samples of the counts of an item.
#[derive(Debug)]
pub(super) struct Windows<const N: usize> {
    rings: [VecDeque<Sample<N>>; 3],
    /// Counts from which the item began.
    base: [u64; N],
    /// Counts of the last sample.
    last: [u64; N],
    changed_at_ms: i64,
    /// Whether there is no item until the counts change.
    is_dropped: bool,
}

impl<const N: usize> Default for Windows<N> {
    fn default() -> Self {
        Self { rings: Default::default(), base: [0; N], last: [0; N], changed_at_ms: 0, is_dropped: false }
    }
}

impl<const N: usize> Windows<N> {
    pub(super) fn sample(&mut self, tick: &Tick, counts: [u64; N]) {
        let grows = counts.iter().zip(self.last).all(|(now, before)| *now >= before);
        assert!(grows, "counts only grow: {counts:?} after {:?}", self.last);
        if counts != self.last {
            (self.last, self.changed_at_ms, self.is_dropped) = (counts, tick.now_ms, false);
        } else {
            let idle_ms = tick.now_ms - self.changed_at_ms;
            if counts == self.base {
                self.is_dropped |= tick.idle_ms.is_some_and(|limit| idle_ms >= limit);
                return;
            }
            let is_dropped = tick.idle_ms.is_some_and(|limit| idle_ms >= limit);
            if is_dropped || idle_ms >= ALL_THE_SAME_MS {
                *self = Self {
                    base: counts,
                    last: counts,
                    is_dropped,
                    changed_at_ms: self.changed_at_ms,
                    ..Self::default()
                };
                return;
            }
        }
        for (ring, ((interval, kept), is_due)) in
            self.rings.iter_mut().zip(SAMPLED.into_iter().zip(tick.is_due))
        {
            if !is_due {
                continue;
            }
            if ring.is_empty() {
                ring.push_back((tick.now_ms - interval, self.base));
            }
            if ring.len() == kept {
                ring.pop_front();
            }
            let last = ring.back().map_or(i64::MIN, |(at, _)| *at);
            assert!(last <= tick.now_ms, "samples are in the order of their times: {last}, {}", tick.now_ms);
            ring.push_back((tick.now_ms, counts));
        }
    }

    /// Windows up to now; `None` without an item.
    pub(super) fn read(&self, now_ms: i64, counts: [u64; N], shown: Shown) -> Option<Windows3> {
        let of = |counts: &[u64; N]| (counts[shown.value], shown.times.map_or(0, |times| counts[times]));
        let now = of(&counts);
        if now == (0, 0) || self.is_dropped && counts == self.base {
            return None;
        }
        assert!(shown.parts > 0, "a unit has parts: {shown:?}");
        let mut windows = Windows3::default();
        for ((window, ring), (interval, _)) in windows.iter_mut().zip(&self.rings).zip(SAMPLED) {
            let (at_ms, first) = ring.front().copied().unwrap_or((now_ms - interval, self.base));
            let before = of(&first);
            // Counts may be read before a sample that is taken meanwhile.
            let sum = now.0.saturating_sub(before.0) as f64 / shown.parts as f64;
            let times = now.1.saturating_sub(before.1);
            let seconds = (now_ms - at_ms) as f64 / 1000.0;
            *window = Window {
                sum: sum as u64,
                rate: if seconds > 0.0 { sum / seconds } else { 0.0 },
                mean: if times > 0 { sum / times as f64 } else { 0.0 },
            };
        }
        Some(windows)
    }

    /// Whether nothing was counted since the oldest sample of the minute.
    pub(super) fn is_idle(&self, counts: [u64; N]) -> bool {
        self.rings[0].front().map_or(self.base, |(_, first)| *first) == counts
    }
}

/// Counters with their windows.
#[derive(Debug)]
pub(super) struct Item<const N: usize> {
    cells: [AtomicU64; N],
    windows: Mutex<Windows<N>>,
}

impl<const N: usize> Default for Item<N> {
    fn default() -> Self {
        Self { cells: [const { AtomicU64::new(0) }; N], windows: Mutex::default() }
    }
}

impl<const N: usize> Item<N> {
    /// Adds to a counter, and returns its value before.
    #[inline]
    pub(super) fn add(&self, at: usize, count: u64) -> u64 {
        self.cells[at].fetch_add(count, Ordering::Relaxed)
    }

    pub(super) fn get(&self, at: usize) -> u64 {
        self.cells[at].load(Ordering::Relaxed)
    }

    pub(super) fn counts(&self) -> [u64; N] {
        std::array::from_fn(|at| self.get(at))
    }

    pub(super) fn sample(&self, tick: &Tick) {
        self.windows.lock().sample(tick, self.counts());
    }

    pub(super) fn read(&self, now_ms: i64, shown: Shown) -> Option<Windows3> {
        self.windows.lock().read(now_ms, self.counts(), shown)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.windows.lock().is_idle(self.counts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: Shown = Shown::of(1, 0);

    struct Watch {
        clock: Clock,
        idle: Option<Duration>,
        item: Item<2>,
        seconds: u64,
    }

    impl Watch {
        fn new(idle: Option<Duration>) -> Self {
            Self { clock: Clock::new(Instant::now()), idle, item: Item::default(), seconds: 0 }
        }

        fn now(&self) -> Instant {
            self.clock.start + Duration::from_secs(self.seconds)
        }

        /// Samples until then, one each ten seconds, with `times` events of `count` before each.
        fn until(&mut self, seconds: u64, times: u64, count: u64) {
            while self.seconds < seconds {
                self.item.add(0, times);
                self.item.add(1, times * count);
                self.seconds += 10;
                self.item.sample(&self.clock.tick(self.now(), self.idle));
            }
        }

        fn read(&self) -> Option<Windows3> {
            self.item.read(self.clock.at(self.now()), SHOWN)
        }
    }

    fn window(sum: u64, rate: f64, mean: f64) -> Window {
        Window { sum, rate, mean }
    }

    #[test]
    fn windows_end_now_and_begin_with_their_oldest_sample() {
        let mut watch = Watch::new(None);
        assert_eq!(watch.read(), None, "no event yet");
        watch.item.add(0, 2);
        watch.item.add(1, 20);
        let first = [window(20, 2.0, 10.0), window(20, 20.0 / 600.0, 10.0), window(20, 20.0 / 3600.0, 10.0)];
        assert_eq!(
            watch.read(),
            Some(first),
            "before the first sample, zero was counted one interval earlier"
        );
        watch.until(60, 0, 0);
        watch.until(600, 5, 2);
        let [minute, hour, day] = watch.read().unwrap();
        assert_eq!(minute, window(60, 1.0, 2.0));
        assert_eq!((hour.sum, hour.rate), (560, 560.0 / 600.0));
        assert_eq!(day.sum, 560);
        watch.until(4200, 5, 2);
        let [minute, hour, day] = watch.read().unwrap();
        assert_eq!((minute.sum, hour.sum, hour.rate), (60, 3600, 1.0));
        assert_eq!(day.sum, 4160, "all of it");
        watch.until(4270, 0, 0);
        let [minute, hour, day] = watch.read().unwrap();
        assert_eq!((minute, hour.sum, day.sum), (window(0, 0.0, 0.0), 3600, 4160));
        watch.until(28 * 3600, 0, 0);
        assert_eq!(watch.read(), Some(Windows3::default()), "an idle item stays");
        assert!(watch.item.windows.lock().rings.iter().all(VecDeque::is_empty), "equal samples are not kept");
        watch.until(28 * 3600 + 10, 1, 7);
        assert_eq!(watch.read().unwrap().map(|window| window.sum), [7; 3]);
    }

    #[test]
    fn day_has_the_last_24_hours() {
        let mut watch = Watch::new(None);
        watch.until(30 * 3600, 1, 1);
        let [_, _, day] = watch.read().unwrap();
        assert_eq!((day.sum, day.rate), (24 * 360, 0.1));
    }

    #[test]
    fn idle_item_is_dropped_and_begins_again_from_zero() {
        let mut watch = Watch::new(Some(Duration::from_secs(120)));
        watch.until(10, 1, 5);
        watch.until(120, 0, 0);
        assert_eq!(watch.read().unwrap()[2].sum, 5);
        watch.until(130, 0, 0);
        assert_eq!(watch.read(), None);
        watch.until(140, 1, 2);
        assert_eq!(watch.read().unwrap().map(|window| window.sum), [2; 3]);
    }
}

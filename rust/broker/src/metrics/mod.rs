//! The registry of metrics: each one is declared here once, with name, kind, unit and labels.
//!
//! A counter is a cell of the registry. A part adds to it by its index, which the compiler knows: no lock and no look-up. The cell of a
//! gauge is unused: [`crate::figures`] reads the gauge from its part when a tool asks. Rates and values of midnight come from samples of the counters
//! ([`history`]). Samples of the counters of topics, groups and queues are kept beside them ([`windows`]); [`items`] shows them under Apache's names.
//!
//! Counters with labels: of sends ([`sent`]) and requests ([`requests`]) in cells that threads find without a shared lock, of pulls in [`got`], of
//! rarer events in [`labelled`].

mod config;
mod got;
mod histogram;
mod history;
mod items;
mod labelled;
mod put_times;
mod queues;
mod requests;
mod sent;
mod table;
mod windows;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use config::MetricsConfig;
pub(crate) use got::{Got, GotMessages};
pub(crate) use histogram::Buckets;
use history::History;
pub(crate) use history::Rates;
use items::OfBroker;
use labelled::Labelled;
pub(crate) use labelled::{Read, split};
use parking_lot::Mutex;
use queues::Room;
pub(crate) use requests::RequestTimes;
pub(crate) use sent::{MessageType, SentMessages, TimedSend};
pub(crate) use table::Metric;
pub use table::{Declared, Group, Kind, Unit};
use windows::Clock;
pub(crate) use windows::Window;

/// Interval of the samples from which rates are computed.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_secs(10);

const COUNT: usize = Metric::ALL.len();

/// The counters of a broker since its start, and what is computed from them.
#[doc(alias("BrokerStats", "StoreStatsService"))]
#[derive(Debug)]
pub(crate) struct Metrics {
    started: Instant,
    /// By the number of the metric; those of gauges stay 0.
    cells: [AtomicU64; COUNT],
    history: Mutex<History>,
    clock: Clock,
    broker: Mutex<OfBroker>,
    got: GotMessages,
    sent: SentMessages,
    labelled: Labelled,
}

/// All cells at one moment.
#[derive(Debug, Clone, Copy)]
struct Totals([u64; COUNT]);

impl Default for Totals {
    fn default() -> Self {
        Self([0; COUNT])
    }
}

impl Totals {
    fn sum(&self, metrics: &[Metric]) -> u64 {
        metrics.iter().map(|metric| self.0[*metric as usize]).sum()
    }
}

impl Metrics {
    pub(crate) fn new(now_ms: i64, config: &MetricsConfig) -> Self {
        let started = Instant::now();
        let room = || Room::new(config.detail, config.series_limit);
        Self {
            started,
            cells: [const { AtomicU64::new(0) }; COUNT],
            history: Mutex::new(History::new(now_ms)),
            clock: Clock::new(started),
            broker: Mutex::default(),
            got: GotMessages::new(room()),
            sent: SentMessages::new(room()),
            labelled: Labelled::default(),
        }
    }

    /// Adds to a counter without labels.
    #[inline]
    pub(crate) fn add(&self, metric: Metric, count: u64) {
        self.cell(metric).fetch_add(count, Ordering::Relaxed);
    }

    #[inline]
    fn cell(&self, metric: Metric) -> &AtomicU64 {
        let Declared { name, kind, labels, .. } = metric.declared();
        assert!(kind == Kind::Counter && labels.is_empty(), "metric {name} is a counter without labels");
        &self.cells[metric as usize]
    }

    /// The value of a counter without labels.
    pub(crate) fn total(&self, metric: Metric) -> u64 {
        self.cell(metric).load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn put(&self, messages: u64, bytes: u64) {
        self.add(Metric::MessagesIn, messages);
        self.add(Metric::BytesIn, bytes);
    }

    /// Counts a request that exceeded a quota.
    pub(crate) fn throttled(&self) {
        self.add(Metric::Throttled, 1);
    }

    pub(crate) fn put_failed(&self) {
        self.add(Metric::PutsFailed, 1);
    }

    #[inline]
    pub(crate) fn pulled(&self, messages: u64) {
        if messages == 0 {
            self.add(Metric::PullsMissed, 1);
        } else {
            self.add(Metric::PullsFound, 1);
            self.add(Metric::MessagesOut, messages);
        }
    }

    /// Counts the groups of a heartbeat and the time for which they were handled.
    pub(crate) fn registered(&self, producers: (usize, Duration), consumers: (usize, Duration)) {
        for ((groups, took), count, time) in [
            (producers, Metric::ProducersRegistered, Metric::ProducersRegisteredFor),
            (consumers, Metric::ConsumersRegistered, Metric::ConsumersRegisteredFor),
        ] {
            self.add(count, groups as u64);
            let took_ms = if groups > 0 { took.as_millis() } else { 0 };
            self.add(time, u64::try_from(took_ms).unwrap_or(u64::MAX));
        }
    }

    fn totals(&self) -> Totals {
        Totals(std::array::from_fn(|index| self.cells[index].load(Ordering::Relaxed)))
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Takes the samples from which rates and windows are computed. `idle`: time after which idle items are dropped.
    pub(crate) fn sample(&self, now: Instant, now_ms: i64, idle: Option<Duration>) {
        self.history.lock().sample(now, now_ms, self.totals());
        self.sample_items(now, idle);
    }

    /// Forgets the counters of topics and groups that are gone.
    pub(crate) fn retain(&self, is_topic: impl Fn(&str) -> bool, is_group: impl Fn(&str) -> bool) {
        self.sent.retain(&is_topic);
        self.labelled.retain(&is_topic, &is_group);
        self.got.retain(is_topic, is_group);
    }

    /// Forgets the counters of a topic that was deleted.
    pub(crate) fn forget_topic(&self, gone: &str) {
        self.sent.retain(&|topic: &str| topic != gone);
        self.labelled.retain(&|topic: &str| topic != gone, &|_: &str| true);
        self.got.forget(|_, topic| topic == gone);
    }

    /// Forgets the counters of a group that was deleted.
    pub(crate) fn forget_group(&self, gone: &str) {
        self.labelled.retain(&|_: &str| true, &|group: &str| group != gone);
        self.got.forget(|group, _| group == gone);
    }

    /// A counter at the last two midnights: (yesterday's, today's).
    pub(crate) fn mornings(&self, metric: Metric) -> (u64, u64) {
        let (yesterday, today) = self.history.lock().mornings();
        (yesterday.sum(&[metric]), today.sum(&[metric]))
    }

    /// Rate per second of the sum of some counters, over each of three windows.
    pub(crate) fn rates(&self, now: Instant, metrics: &[Metric]) -> Rates {
        let current = self.totals().sum(metrics);
        self.history.lock().rates((now, current), (self.started, 0), metrics)
    }

    /// Counters of sends, by topic.
    pub(crate) fn sent(&self) -> &SentMessages {
        &self.sent
    }

    /// Adds to a counter with labels.
    pub(crate) fn add_to(&self, metric: Metric, labels: &[&str], count: u64) {
        assert!(metric.declared().kind == Kind::Counter, "metric is a counter: {metric:?}");
        self.labelled.change(metric, labels, |series| series.add(count));
    }

    /// Adds a value to a histogram.
    pub(crate) fn observe(&self, metric: Metric, labels: &[&str], value: f64) {
        self.labelled.change(metric, labels, |series| series.observe(value));
    }

    /// Notes how long the creation or change of a topic or group of clients took.
    pub(crate) fn created(&self, metric: Metric, took: Duration, is_done: bool) {
        let status = if is_done { "success" } else { "failure" };
        self.observe(metric, &[status, "false"], took.as_secs_f64() * 1000.0);
    }

    /// Counters and histograms with labels.
    pub(crate) fn labelled(&self) -> &Labelled {
        &self.labelled
    }

    /// Counters of pulls, by group and topic.
    pub(crate) fn got(&self) -> &GotMessages {
        &self.got
    }
}

/// The metrics that an exporter shows, in the order of the table.
pub fn metrics_table() -> impl Iterator<Item = Declared> {
    Metric::ALL.iter().map(|metric| metric.declared()).filter(|declared| declared.group.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_own(metric: Metric) -> bool {
        let of_groups = matches!(metric, Metric::GroupMembers | Metric::RetryLag | Metric::SentBack);
        of_groups || metric.declared().group == Some(Group::Own)
    }

    #[test]
    fn each_metric_is_declared_once_and_counters_say_total() {
        for (index, metric) in Metric::ALL.iter().enumerate() {
            let Declared { name, kind, unit, labels, group, help } = metric.declared();
            assert_eq!(*metric as usize, index, "{name}");
            assert!(Metric::ALL[..index].iter().all(|other| other.declared().name != name), "twice: {name}");
            assert_eq!(name.ends_with("_total"), kind == Kind::Counter, "{name}");
            assert_eq!(name.ends_with("_rate"), labels == ["window"], "{name}");
            assert_eq!(name.ends_with("_ratio"), unit == Unit::Ratio, "{name}");
            assert_eq!(name.starts_with("rocket"), group.is_some(), "{name}");
            assert_eq!(name.starts_with("rocketpy_broker_"), is_own(*metric), "{name}");
            assert!(help.ends_with('.') && !help.contains('\n'), "{name}: {help}");
        }
    }

    #[test]
    #[should_panic(expected = "metric rocketpy_broker_held_pulls is a counter without labels")]
    fn gauge_has_no_cell_to_add_to() {
        Metrics::new(0, &MetricsConfig::default()).add(Metric::HeldPulls, 1);
    }

    #[test]
    fn rates_are_three_numbers_over_growing_spans() {
        let metrics = Metrics::new(0, &MetricsConfig::default());
        let start = metrics.started;
        metrics.put(100, 1000);
        metrics.sample(start + Duration::from_secs(10), 10_000, None);
        metrics.put(100, 1000);
        let rates = metrics.rates(start + Duration::from_secs(20), &[Metric::MessagesIn]);
        assert_eq!(rates.map(|(_, rate)| rate), [10.0, 10.0, 10.0]);
        let later = metrics.rates(start + Duration::from_secs(100), &[Metric::MessagesIn]);
        assert_eq!(later[0], (Duration::from_secs(10), 1.111_111_111_111_111_2));
    }

    #[test]
    fn a_new_day_moves_the_mornings() {
        let metrics = Metrics::new(history::DAY_MS - 1, &MetricsConfig::default());
        metrics.put(5, 0);
        metrics.sample(Instant::now(), history::DAY_MS, None);
        assert_eq!(metrics.mornings(Metric::MessagesIn), (0, 5));
    }
}

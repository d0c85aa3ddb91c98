//! The registry of metrics: each one is declared here once, with name, kind, unit and labels.
//!
//! A counter is a cell of the registry. A part adds to it by its index, which the compiler knows: no lock and no look-up. The cell of a
//! gauge is unused: [`crate::figures`] reads the gauge from its part when a tool asks. Rates and values of midnight come from samples of the counters
//! ([`history`]), those of a topic or a group from their own counters ([`minute`]).
//!
//! Counters with labels: of sends ([`sent`]) and requests ([`requests`]) in cells that threads find without a shared lock, of rarer events in
//! [`labelled`].

mod config;
mod histogram;
mod history;
mod labelled;
mod minute;
mod requests;
mod sent;
mod table;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use config::MetricsConfig;
pub(crate) use histogram::Buckets;
use history::History;
pub(crate) use history::Rates;
use labelled::Labelled;
pub(crate) use labelled::{Read, split};
pub(crate) use minute::MinuteRates;
use parking_lot::Mutex;
pub(crate) use requests::RequestTimes;
pub(crate) use sent::{MessageType, SentMessages};
pub(crate) use table::Metric;
pub use table::{Declared, Group, Kind, Unit};

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
    minute: MinuteRates,
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
    pub(crate) fn new(now_ms: i64) -> Self {
        Self {
            started: Instant::now(),
            cells: [const { AtomicU64::new(0) }; COUNT],
            history: Mutex::new(History::new(now_ms)),
            minute: MinuteRates::default(),
            sent: SentMessages::default(),
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

    fn totals(&self) -> Totals {
        Totals(std::array::from_fn(|index| self.cells[index].load(Ordering::Relaxed)))
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Takes the samples from which rates are computed. `ends` are the sums of the ends of each topic's queues.
    pub(crate) fn sample(&self, now: Instant, now_ms: i64, ends: impl Iterator<Item = (String, u64)>) {
        self.history.lock().sample(now, now_ms, self.totals());
        self.minute.tick(now, ends);
    }

    /// Forgets the counters of topics and groups that are gone.
    pub(crate) fn retain(&self, is_topic: impl Fn(&str) -> bool, is_group: impl Fn(&str) -> bool) {
        self.sent.retain(&is_topic);
        self.labelled.retain(&is_topic, &is_group);
        self.minute.retain(is_topic, is_group);
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

    /// Rates of topics and groups.
    pub(crate) fn minute(&self) -> &MinuteRates {
        &self.minute
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
        let of_groups = matches!(metric, Metric::GroupMembers | Metric::RetryLag);
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
        Metrics::new(0).add(Metric::HeldPulls, 1);
    }

    #[test]
    fn rates_are_three_numbers_over_growing_spans() {
        let metrics = Metrics::new(0);
        let start = metrics.started;
        metrics.put(100, 1000);
        metrics.sample(start + Duration::from_secs(10), 10_000, std::iter::empty());
        metrics.put(100, 1000);
        let rates = metrics.rates(start + Duration::from_secs(20), &[Metric::MessagesIn]);
        assert_eq!(rates.map(|(_, rate)| rate), [10.0, 10.0, 10.0]);
        let later = metrics.rates(start + Duration::from_secs(100), &[Metric::MessagesIn]);
        assert_eq!(later[0], (Duration::from_secs(10), 1.111_111_111_111_111_2));
    }

    #[test]
    fn a_new_day_moves_the_mornings() {
        let metrics = Metrics::new(history::DAY_MS - 1);
        metrics.put(5, 0);
        metrics.sample(Instant::now(), history::DAY_MS, std::iter::empty());
        assert_eq!(metrics.mornings(Metric::MessagesIn), (0, 5));
    }
}

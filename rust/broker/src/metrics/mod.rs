//! The registry of metrics: each one is declared here once, with name, kind, unit and labels.
//!
//! A counter is a cell of the registry. A part adds to it by its index, which the compiler knows: no lock and no look-up. The cell of a
//! gauge is unused: [`crate::figures`] reads the gauge from its part when a tool asks. Rates and values of midnight come from samples of the counters
//! ([`history`]), those of a topic or a group from their own counters ([`minute`]).

mod history;
mod minute;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use history::History;
pub(crate) use history::Rates;
pub(crate) use minute::MinuteRates;
use parking_lot::Mutex;

/// Interval of the samples from which rates are computed.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_secs(10);

/// Whether a value only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Grows from the start of the broker on.
    Counter,
    Gauge,
}

/// What a value counts or measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A state: 1 where it is so.
    Flag,
    Messages,
    MessagesPerSecond,
    /// Pulls or sends.
    Requests,
    RequestsPerSecond,
    Bytes,
    Connections,
    Seconds,
    /// Milliseconds since 1970.
    UnixMillis,
    /// A share from 0 to 1.
    Ratio,
}

/// Declaration of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) unit: Unit,
    /// Names of the labels that tell apart its values.
    pub(crate) labels: &'static [&'static str],
}

macro_rules! metrics {
    ($($metric:ident: $name:literal, $kind:ident, $unit:ident, $labels:expr;)+) => {
        /// A metric of the broker.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Metric {
            $($metric,)+
        }

        impl Metric {
            /// All of them, in the order of the table.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$metric,)+];

            #[inline]
            pub(crate) const fn declared(self) -> Declared {
                match self {
                    $(Self::$metric => {
                        Declared { name: $name, kind: Kind::$kind, unit: Unit::$unit, labels: &$labels }
                    })+
                }
            }
        }
    };
}

metrics! {
    BrokerWritable: "broker_writable", Gauge, Flag, [];
    StartedAt: "started_at", Gauge, UnixMillis, [];
    Uptime: "uptime", Gauge, Seconds, [];
    HeldPulls: "held_pulls", Gauge, Requests, [];
    HeldPullsLimit: "held_pulls_limit", Gauge, Requests, [];
    PeerMemory: "peer_memory", Gauge, Bytes, [];
    PeerMemoryLimit: "peer_memory_limit", Gauge, Bytes, [];
    PeersClosedForMemory: "peers_closed_for_memory_total", Counter, Connections, [];
    MessagesIn: "messages_in_total", Counter, Messages, [];
    BytesIn: "bytes_in_total", Counter, Bytes, [];
    PutsFailed: "puts_failed_total", Counter, Requests, [];
    MessagesOut: "messages_out_total", Counter, Messages, [];
    PullsFound: "pulls_found_total", Counter, Requests, [];
    PullsMissed: "pulls_missed_total", Counter, Requests, [];
    GroupMessagesOut: "group_messages_out_total", Counter, Messages, ["group", "topic"];
    DelayedDelivered: "delayed_delivered_total", Counter, Messages, [];
    DelayedDropped: "delayed_dropped_total", Counter, Messages, [];
    TimersWaiting: "timers_waiting", Gauge, Messages, [];
    TimersDelivered: "timers_delivered_total", Counter, Messages, [];
    TimersRecalled: "timers_recalled_total", Counter, Messages, [];
    TimersDropped: "timers_dropped_total", Counter, Messages, [];
    TransactionsCommitted: "transactions_committed_total", Counter, Messages, [];
    TransactionsRolledBack: "transactions_rolled_back_total", Counter, Messages, [];
    TransactionsGivenUp: "transactions_given_up_total", Counter, Messages, [];
    TransactionsLost: "transactions_lost_total", Counter, Messages, [];
    TransactionsChecked: "transactions_checked_total", Counter, Requests, [];
    MessageSizeAverage: "message_size_average", Gauge, Bytes, [];
    MessagesInAtMidnight: "messages_in_at_midnight", Gauge, Messages, ["day"];
    MessagesOutAtMidnight: "messages_out_at_midnight", Gauge, Messages, ["day"];
    MessagesInRate: "messages_in_rate", Gauge, MessagesPerSecond, ["window"];
    MessagesOutRate: "messages_out_rate", Gauge, MessagesPerSecond, ["window"];
    PullsFoundRate: "pulls_found_rate", Gauge, RequestsPerSecond, ["window"];
    PullsMissedRate: "pulls_missed_rate", Gauge, RequestsPerSecond, ["window"];
    PullsRate: "pulls_rate", Gauge, RequestsPerSecond, ["window"];
    CommitLogMinOffset: "commit_log_min_offset", Gauge, Bytes, [];
    CommitLogMaxOffset: "commit_log_max_offset", Gauge, Bytes, [];
    DispatchBehind: "dispatch_behind", Gauge, Bytes, [];
    FlushBehind: "flush_behind", Gauge, Bytes, [];
    EarliestMessageAt: "earliest_message_at", Gauge, UnixMillis, [];
    DiskUsedRatio: "disk_used_ratio", Gauge, Ratio, ["part", "path"];
    DiskSize: "disk_size", Gauge, Bytes, ["part", "path"];
    DiskFree: "disk_free", Gauge, Bytes, ["part", "path"];
}

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

    /// Rates of topics and groups.
    pub(crate) fn minute(&self) -> &MinuteRates {
        &self.minute
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_metric_is_declared_once_and_counters_say_total() {
        for (index, metric) in Metric::ALL.iter().enumerate() {
            let Declared { name, kind, unit, labels } = metric.declared();
            assert_eq!(*metric as usize, index, "{name}");
            assert!(Metric::ALL[..index].iter().all(|other| other.declared().name != name), "twice: {name}");
            assert_eq!(name.ends_with("_total"), kind == Kind::Counter, "{name}");
            assert_eq!(name.ends_with("_rate"), labels == ["window"], "{name}");
            assert_eq!(name.ends_with("_ratio"), unit == Unit::Ratio, "{name}");
        }
    }

    #[test]
    #[should_panic(expected = "metric held_pulls is a counter without labels")]
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

//! The values of all metrics at one moment: counters and rates from the registry ([`crate::metrics`]), gauges from the parts.
//!
//! Who shows them decides how. GET_BROKER_RUNTIME_INFO writes them under Apache's keys ([`crate::process`]), an exporter under the names of the
//! table, beside the metrics with labels ([`crate::exposition`]).

use std::path::Path;
use std::time::Instant;

use rocketpy_env::{Disk, DiskUsage, RealDisk};
use rocketpy_model::perm;
use rocketpy_protocol::record::RecordView;
use rocketpy_store::Store;

use crate::ground::Ground;
use crate::metrics::{Declared, Kind, Metric, Metrics, Unit};

/// One value of a metric.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure {
    pub(crate) metric: Metric,
    /// Values of its labels, in the order of their declaration.
    pub(crate) labels: Vec<String>,
    pub(crate) value: Value,
}

impl Figure {
    /// The value of a label; `None` when the metric has no such label.
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        let at = self.metric.declared().labels.iter().position(|label| *label == name)?;
        self.labels.get(at).map(String::as_str)
    }
}

/// The value of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value {
    Flag(bool),
    Count(u64),
    Time(i64),
    Real(f64),
}

impl Value {
    fn fits(self, unit: Unit) -> bool {
        match unit {
            Unit::Flag => matches!(self, Self::Flag(_)),
            Unit::Items
            | Unit::Messages
            | Unit::Requests
            | Unit::Connections
            | Unit::Milliseconds
            | Unit::Seconds => {
                matches!(self, Self::Count(_))
            }
            Unit::Bytes => matches!(self, Self::Count(_) | Self::Real(_)),
            Unit::UnixMillis => matches!(self, Self::Time(_)),
            Unit::Ratio | Unit::MessagesPerSecond | Unit::RequestsPerSecond => matches!(self, Self::Real(_)),
        }
    }
}

/// Counter owned by the memory budget of peers, outside the registry.
const OF_BUDGET: Metric = Metric::PeersClosedForMemory;

/// Rates, each with the counters whose sum grows by it.
const RATES: &[(Metric, &[Metric])] = &[
    (Metric::MessagesInRate, &[Metric::MessagesIn]),
    (Metric::MessagesOutRate, &[Metric::MessagesOut]),
    (Metric::PullsFoundRate, &[Metric::PullsFound]),
    (Metric::PullsMissedRate, &[Metric::PullsMissed]),
    (Metric::PullsRate, &[Metric::PullsFound, Metric::PullsMissed]),
    (Metric::TimersEnqueuedRate, &[Metric::TimersEnqueued]),
    (Metric::TimersDeliveredRate, &[Metric::TimersDelivered]),
];

/// Gauges read from parts that depend on the ground.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gauges {
    pub(crate) held_pulls: u64,
    pub(crate) timers_waiting: u64,
}

/// All figures of one moment.
#[derive(Debug, Default)]
pub(crate) struct Figures(pub(crate) Vec<Figure>);

impl Figures {
    /// Reads them. Looks at the file systems: for a tool that asks now and then. May block.
    pub(crate) fn of(ground: &Ground, gauges: Gauges, now: Instant) -> Self {
        let mut figures = Self::default();
        figures.add_broker(ground);
        figures.add(Metric::HeldPulls, Value::Count(gauges.held_pulls));
        figures.add(Metric::TimersWaiting, Value::Count(gauges.timers_waiting));
        figures.add_traffic(ground.metrics(), now);
        figures.add_log(ground.store());
        figures.add_disks(ground.store());
        figures
    }

    /// The value of a metric, and of the label where one is given.
    pub(crate) fn get(&self, metric: Metric, label: Option<(&str, &str)>) -> Option<Value> {
        let has_label = |figure: &Figure| label.is_none_or(|(name, text)| figure.label(name) == Some(text));
        self.all(metric).find(|figure| has_label(figure)).map(|figure| figure.value)
    }

    /// The figures of one metric.
    pub(crate) fn all(&self, metric: Metric) -> impl Iterator<Item = &Figure> {
        self.0.iter().filter(move |figure| figure.metric == metric)
    }

    fn add(&mut self, metric: Metric, value: Value) {
        self.add_labelled(metric, value, Vec::new());
    }

    fn add_labelled(&mut self, metric: Metric, value: Value, labels: Vec<String>) {
        let Declared { name, unit, labels: names, .. } = metric.declared();
        assert!(value.fits(unit), "value of metric {name} has its unit: {value:?}");
        assert!(labels.len() == names.len(), "metric {name} has the labels {names:?}: {labels:?}");
        self.0.push(Figure { metric, labels, value });
    }

    fn add_broker(&mut self, ground: &Ground) {
        let is_writable = ground.permission() & perm::WRITE != 0;
        self.add(Metric::BrokerWritable, Value::Flag(is_writable));
        self.add(Metric::StartedAt, Value::Time(ground.started_at_ms()));
        self.add(Metric::Uptime, Value::Count(ground.metrics().uptime().as_secs()));
        let config = ground.config();
        self.add(Metric::HeldPullsLimit, Value::Count(config.max_held_pulls as u64));
        self.add(Metric::QuotaWaits, Value::Count(ground.quotas().waiting() as u64));
        if let Some(memory) = &config.memory {
            self.add(Metric::PeerMemory, Value::Count(memory.used_bytes() as u64));
            self.add(Metric::PeerMemoryLimit, Value::Count(memory.limit_bytes() as u64));
            self.add(OF_BUDGET, Value::Count(memory.closed_connections()));
        }
    }

    fn add_traffic(&mut self, metrics: &Metrics, now: Instant) {
        for counter in Metric::ALL.iter().copied().filter(|metric| *metric != OF_BUDGET) {
            let Declared { kind, labels, .. } = counter.declared();
            if kind == Kind::Counter && labels.is_empty() {
                self.add(counter, Value::Count(metrics.total(counter)));
            }
        }
        let (messages, bytes) = (metrics.total(Metric::MessagesIn), metrics.total(Metric::BytesIn));
        self.add(Metric::MessageSizeAverage, Value::Real(bytes as f64 / messages.max(1) as f64));
        for (metric, counter) in [
            (Metric::MessagesInAtMidnight, Metric::MessagesIn),
            (Metric::MessagesOutAtMidnight, Metric::MessagesOut),
        ] {
            let (yesterday, today) = metrics.mornings(counter);
            for (day, count) in [("today", today), ("yesterday", yesterday)] {
                self.add_labelled(metric, Value::Count(count), vec![day.to_owned()]);
            }
        }
        for (metric, counters) in RATES {
            for (window, rate) in metrics.rates(now, counters) {
                self.add_labelled(*metric, Value::Real(rate), vec![format!("{}s", window.as_secs())]);
            }
        }
    }

    fn add_log(&mut self, store: &Store) {
        let (min, max) = (store.min_physical_offset().get(), store.max_physical_offset().get());
        self.add(Metric::CommitLogMinOffset, Value::Count(min));
        self.add(Metric::CommitLogMaxOffset, Value::Count(max));
        let behind = store.readable_end().get().saturating_sub(store.dispatched_offset().get());
        self.add(Metric::DispatchBehind, Value::Count(behind));
        let unflushed = max.saturating_sub(store.flushed_offset().get());
        self.add(Metric::FlushBehind, Value::Count(unflushed));
        let first = store.record_at(store.min_physical_offset()).ok().flatten();
        if let Some(first) = first.as_deref().and_then(|bytes| RecordView::parse(bytes).ok()) {
            self.add(Metric::EarliestMessageAt, Value::Time(first.stored_at_ms));
        }
    }

    /// How full the file systems are: of each folder of the log, and of the consume queues.
    fn add_disks(&mut self, store: &Store) {
        for dir in store.config().commit_log_dirs() {
            self.add_disk("commit_log", &dir);
        }
        self.add_disk("consume_queue", &store.config().root);
    }

    /// Nothing where the system does not tell.
    fn add_disk(&mut self, part: &str, dir: &Path) {
        let Ok(usage) = RealDisk.usage(dir) else { return };
        let ratio = |usage: &DiskUsage| usage.used_percent() as f64 / 100.0;
        let labels = vec![part.to_owned(), dir.display().to_string()];
        self.add_labelled(Metric::DiskUsedRatio, Value::Real(ratio(&usage)), labels.clone());
        self.add_labelled(Metric::DiskSize, Value::Count(usage.total_bytes), labels.clone());
        self.add_labelled(Metric::DiskFree, Value::Count(usage.available_bytes), labels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestBroker;

    #[tokio::test]
    async fn every_metric_without_labels_is_read_once() {
        let broker = TestBroker::open(|_| {});
        let gauges = Gauges { held_pulls: 3, timers_waiting: 4 };
        let figures = Figures::of(&broker.ground, gauges, Instant::now());
        for (index, figure) in figures.0.iter().enumerate() {
            let same = |other: &Figure| other.metric == figure.metric && other.labels == figure.labels;
            assert!(!figures.0[..index].iter().any(same), "twice: {figure:?}");
        }
        let is_inner = |metric: &&Metric| metric.declared().group.is_none();
        let unread =
            Metric::ALL.iter().filter(is_inner).filter(|metric| figures.all(**metric).next().is_none());
        assert_eq!(unread.collect::<Vec<_>>(), [&Metric::EarliestMessageAt], "the store is empty");
        assert_eq!(figures.all(Metric::MessagesInRate).count(), 3);
        assert_eq!(figures.get(Metric::HeldPulls, None), Some(Value::Count(3)));
    }

    #[test]
    #[should_panic(expected = "value of metric rocketpy_broker_uptime_seconds has its unit")]
    fn value_of_another_unit_is_not_a_figure() {
        Figures::default().add(Metric::Uptime, Value::Real(1.0));
    }
}

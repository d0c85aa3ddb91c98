//! Counters and histograms with labels, of events that are rarer than messages.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::histogram::{Buckets, Histogram};
use super::windows::{Item, Shown, Tick, Windows3};
use super::{COUNT, Kind, Metric};

/// Maximum number of series of one metric in memory, whatever the configuration says: names come from clients.
const MAX_SERIES: usize = 100_000;

/// The values of a metric by labels, each joined by [`JOINT`].
type Table = HashMap<String, Arc<Series>>;

/// Separates the values of labels in a key: no name has it.
const JOINT: char = '\u{1}';

/// Values of one combination of labels.
#[derive(Debug)]
pub(crate) enum Series {
    Counter(Item<1>),
    Histogram(&'static [f64], Histogram),
}

impl Series {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Histogram(bounds) => Self::Histogram(bounds, Histogram::default()),
            Kind::Counter | Kind::Gauge => Self::Counter(Item::default()),
        }
    }

    pub(super) fn add(&self, count: u64) {
        if let Self::Counter(value) = self {
            value.add(0, count);
        }
    }

    pub(super) fn observe(&self, value: f64) {
        if let Self::Histogram(bounds, histogram) = self {
            histogram.observe(bounds, value);
        }
    }
}

/// Value of a series at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Read {
    Count(u64),
    Buckets(Buckets),
}

/// Tables by the number of the metric.
#[derive(Debug)]
pub(crate) struct Labelled([RwLock<Table>; COUNT]);

impl Default for Labelled {
    fn default() -> Self {
        Self(std::array::from_fn(|_| RwLock::default()))
    }
}

impl Labelled {
    /// Changes a series, which is made where it is new and there is room for it.
    pub(super) fn change(&self, metric: Metric, labels: &[&str], change: impl Fn(&Series)) {
        let declared = metric.declared();
        assert_eq!(labels.len(), declared.labels.len(), "a series has each label of {}", declared.name);
        let key = joined(labels);
        let table = &self.0[metric as usize];
        if let Some(series) = table.read().get(&key) {
            return change(series);
        }
        let mut table = table.write();
        if table.len() < MAX_SERIES || table.contains_key(&key) {
            change(table.entry(key).or_insert_with(|| Arc::new(Series::new(declared.kind))));
        }
    }

    /// The series of a metric.
    pub(crate) fn read(&self, metric: Metric) -> Vec<(String, Read)> {
        let read = |(key, series): (&String, &Arc<Series>)| {
            let value = match &**series {
                Series::Counter(value) => Read::Count(value.get(0)),
                Series::Histogram(_, histogram) => Read::Buckets(histogram.read()),
            };
            (key.clone(), value)
        };
        self.0[metric as usize].read().iter().map(read).collect()
    }

    /// Takes a sample of the counters of some metrics.
    pub(super) fn sample(&self, tick: &Tick, metrics: &[Metric]) {
        for metric in metrics {
            let series: Vec<_> = self.0[*metric as usize].read().values().cloned().collect();
            for series in series {
                if let Series::Counter(item) = &*series {
                    item.sample(tick);
                }
            }
        }
    }

    /// Windows of a counter of which samples are taken. Each event is one.
    pub(super) fn windows(&self, metric: Metric, labels: &[&str], now_ms: i64) -> Option<Windows3> {
        let series = self.0[metric as usize].read().get(&joined(labels))?.clone();
        match &*series {
            Series::Counter(item) => item.read(now_ms, Shown::of(0, 0)),
            Series::Histogram(..) => None,
        }
    }

    /// Forgets series of topics and groups that are gone.
    pub(super) fn retain(&self, is_topic: &impl Fn(&str) -> bool, is_group: &impl Fn(&str) -> bool) {
        for metric in Metric::ALL {
            let names = metric.declared().labels;
            let place = |name: &str| names.iter().position(|label| *label == name);
            let (topic, group) = (place("topic"), place("consumer_group"));
            if topic.is_none() && group.is_none() || self.0[*metric as usize].read().is_empty() {
                continue;
            }
            self.0[*metric as usize].write().retain(|key, _| {
                let has = |at: Option<usize>, is_there: &dyn Fn(&str) -> bool| {
                    at.is_none_or(|at| split(key).nth(at).is_some_and(is_there))
                };
                has(topic, is_topic) && has(group, is_group)
            });
        }
    }
}

fn joined(labels: &[&str]) -> String {
    labels.join(JOINT.encode_utf8(&mut [0; 4]))
}

/// The values of the labels of a key.
pub(crate) fn split(key: &str) -> impl Iterator<Item = &str> {
    key.split(JOINT)
}

#[cfg(test)]
mod tests {
    use super::super::{Metrics, MetricsConfig};
    use super::*;

    #[test]
    fn series_of_topics_and_groups_that_are_gone_are_forgotten() {
        let metrics = Metrics::new(0, &MetricsConfig::default());
        for topic in ["orders", "gone"] {
            metrics.add_to(Metric::DeadLetters, &["g", topic, "false"], 2);
            metrics.add_to(Metric::TopicCommits, &[topic], 1);
        }
        metrics.observe(Metric::DelayLatency, &[], 3.0);
        metrics.retain(|topic| topic == "orders", |group| group == "g");
        assert_eq!(
            metrics.labelled.read(Metric::DeadLetters),
            [("g\u{1}orders\u{1}false".to_owned(), Read::Count(2))]
        );
        assert_eq!(metrics.labelled.read(Metric::DelayLatency).len(), 1);
        metrics.retain(|_| true, |_| false);
        assert!(metrics.labelled.read(Metric::DeadLetters).is_empty());
        assert_eq!(metrics.labelled.read(Metric::TopicCommits).len(), 1);
    }
}

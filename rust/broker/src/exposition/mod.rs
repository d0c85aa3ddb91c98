//! All metrics with their labels, for an exporter: read when it asks, one metric after the other.
//!
//! Nothing here holds a lock of the sends for longer than a copy takes: counters are read as they are, offsets of groups are shared copies.

mod connections;
mod lag;
mod sampled;
mod waiting;

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rocketpy_model::system;

use crate::desk::Desk;
use crate::figures::{Figures, Gauges, Value};
use crate::metrics::{Buckets, Declared, Kind, Metric, Read, split};
use crate::{BrokerConfig, MetricsConfig, health};

/// Value of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sample<'a> {
    /// A whole number.
    Count(u64),
    /// Any number.
    Real(f64),
    /// Counts of values up to each bound, not cumulative, the last one for larger values; and their sum.
    Histogram {
        /// Upper bounds.
        bounds: &'a [f64],
        /// One more than there are bounds.
        counts: &'a [u64],
        /// Sum of the values.
        sum: f64,
    },
}

/// Takes one series: the values of its labels in the order of their declaration, and its value.
pub type AddSeries<'a> = dyn FnMut(&[&str], Sample<'_>) + 'a;

/// Takes metrics for an exporter.
pub trait MetricSink {
    /// Takes a metric. `series` gives its series one after the other; none where there is none yet.
    fn metric(&mut self, declared: &Declared, series: &mut dyn FnMut(&mut AddSeries<'_>));
}

/// What is kept from one reading to the next.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    stored_at: lag::StoredTimes,
    sampled: sampled::RecordSizes,
}

/// Metrics of a broker, and who reads them.
pub(crate) struct Exposition {
    desk: Arc<Desk>,
    /// One reading at a time: a second one would only take the processors from others.
    kept: Mutex<Kept>,
}

impl Exposition {
    pub(crate) fn new(desk: Arc<Desk>) -> Self {
        Self { desk, kept: Mutex::default() }
    }

    /// Reads all metrics. May block.
    pub(crate) fn show(&self, sink: &mut dyn MetricSink) {
        let mut kept = self.kept.lock();
        let config = self.desk.ground.config();
        let mut out = Out { sink, config: &config.metrics, cut: Vec::new() };
        show_state(&self.desk, &config, &mut out);
        show_traffic(&self.desk, &mut out);
        connections::show(&self.desk, &mut out);
        lag::show(&self.desk, &mut kept.stored_at, &mut out);
        waiting::show(&self.desk, &mut out);
        sampled::show(&self.desk, &mut kept.sampled, &mut out);
        show_requests(&self.desk, &mut out);
        show_figures(&self.desk, &mut out);
        let mut cut = std::mem::take(&mut out.cut);
        let of_queues = self.desk.ground.metrics().cut_queues();
        cut.extend(of_queues.into_iter().filter(|(_, count)| *count > 0));
        out.show(Metric::SeriesCut, |add| {
            cut.iter().for_each(|(name, count)| add(&[name], Sample::Count(*count)));
        });
    }
}

/// Where the metrics go, and what was left out.
struct Out<'a> {
    sink: &'a mut dyn MetricSink,
    config: &'a MetricsConfig,
    /// Series beyond the limit, by metric.
    cut: Vec<(&'static str, u64)>,
}

impl Out<'_> {
    /// Whether any series of the metric is shown.
    fn shows(&self, metric: Metric) -> bool {
        metric.declared().group.is_some_and(|group| self.config.shows(group))
    }

    /// Shows the series of a metric, as many as there may be.
    fn show(&mut self, metric: Metric, each: impl Fn(&mut AddSeries<'_>)) {
        if !self.shows(metric) {
            return;
        }
        // The count of cut series has at most one series for each metric.
        let limit = if metric == Metric::SeriesCut { usize::MAX } else { self.config.series_limit };
        let declared = metric.declared();
        let (mut shown, mut cut) = (0, 0);
        self.sink.metric(&declared, &mut |add| {
            each(&mut |labels, sample| {
                assert_eq!(labels.len(), declared.labels.len(), "labels of {}: {labels:?}", declared.name);
                if shown < limit {
                    shown += 1;
                    add(labels, sample);
                } else {
                    cut += 1;
                }
            });
        });
        if cut > 0 {
            self.cut.push((declared.name, cut));
        }
    }

    fn show_one(&mut self, metric: Metric, sample: Sample<'_>) {
        self.show(metric, |add| add(&[], sample));
    }

    /// Shows a metric of the registry that has labels.
    fn show_labelled(&mut self, desk: &Desk, metric: Metric) {
        if !self.shows(metric) {
            return;
        }
        let series = desk.ground.metrics().labelled().read(metric);
        let kind = metric.declared().kind;
        let has_labels = !metric.declared().labels.is_empty();
        self.show(metric, |add| {
            for (key, value) in &series {
                let labels: Vec<&str> = if has_labels { split(key).collect() } else { Vec::new() };
                match value {
                    Read::Count(count) => add(&labels, Sample::Count(*count)),
                    Read::Buckets(buckets) => add(&labels, histogram(kind, buckets)),
                }
            }
        });
    }
}

/// Buckets as a sample.
fn histogram<'a>(kind: Kind, buckets: &'a Buckets) -> Sample<'a> {
    let bounds: &'static [f64] = match kind {
        Kind::Histogram(bounds) => bounds,
        Kind::Counter | Kind::Gauge => &[],
    };
    assert!(!bounds.is_empty(), "a histogram has bounds");
    Sample::Histogram { bounds, counts: &buckets.counts[..=bounds.len()], sum: buckets.sum }
}

/// A label that says yes or no.
fn flag(is_so: bool) -> &'static str {
    if is_so { "true" } else { "false" }
}

/// Permissions, numbers of topics and groups, and requests that wait.
fn show_state(desk: &Desk, config: &BrokerConfig, out: &mut Out<'_>) {
    let ground = &desk.ground;
    out.show_one(Metric::Permission, Sample::Count(config.broker_permission.unsigned_abs().into()));
    out.show_one(Metric::Topics, Sample::Count(ground.topics().len() as u64));
    out.show_one(Metric::Groups, Sample::Count(ground.groups().len() as u64));
    let sends = desk.acks.held().iter().map(|held| held.len()).sum::<usize>();
    let reads = &desk.reads;
    out.show(Metric::Waiting, |add| {
        for (processor, waiting) in [
            ("send", sends),
            ("pull", reads.cold_pulls.waiting()),
            ("query_message", reads.look_ups.waiting()),
            ("admin", reads.surveys.waiting()),
            // Handled as they come: none of them waits.
            ("async_put", 0),
            ("ack", 0),
            ("client_manager", 0),
            ("heartbeat", 0),
            ("lite_pull", 0),
            ("transaction", 0),
            ("consumer_manager", 0),
            ("reply", 0),
        ] {
            add(&[processor], Sample::Count(waiting as u64));
        }
    });
    let poisoned = u64::from(ground.store().poisoned().is_some());
    out.show_one(Metric::Poisoned, Sample::Count(poisoned));
    out.show_one(Metric::Ready, Sample::Count(u64::from(health::ready(desk).is_ok())));
    if let Some(tls) = &config.tls.server {
        out.show_one(Metric::TlsExpiry, Sample::Count((tls.expires_at_ms() / 1000).unsigned_abs()));
        out.show_one(Metric::TlsHalfOpen, Sample::Count(tls.half_open() as u64));
        out.show_one(Metric::TlsRefused, Sample::Count(tls.refused()));
    }
    let (end, slaves) = (ground.store().max_physical_offset(), desk.peers.slaves().all());
    out.show(Metric::ReplicaLag, |add| {
        for slave in slaves.iter().filter(|slave| slave.has_reported()) {
            let replica = match slave.broker_id() {
                Some(id) => id.to_string(),
                None => slave.peer.ip().to_string(),
            };
            add(&[&replica], Sample::Count(end.saturating_sub(slave.acknowledged())));
        }
    });
}

/// Messages by topic and group.
fn show_traffic(desk: &Desk, out: &mut Out<'_>) {
    let metrics = desk.ground.metrics();
    let sent = metrics.sent().read();
    let is_system = |topic: &str| flag(system::is_system_topic(topic));
    out.show(Metric::TopicMessagesIn, |add| {
        for (topic, kind, sent) in &sent {
            add(&[topic, kind.name(), is_system(topic)], Sample::Count(sent.messages));
        }
    });
    out.show(Metric::TopicBytesIn, |add| {
        for (topic, kind, sent) in &sent {
            add(&[topic, kind.name(), is_system(topic)], Sample::Count(sent.bytes));
        }
    });
    let sizes = Metric::TopicMessageSize.declared().kind;
    out.show(Metric::TopicMessageSize, |add| {
        for (topic, kind, sent) in &sent {
            add(&[topic, kind.name(), is_system(topic)], histogram(sizes, &sent.sizes));
        }
    });
    for (at, metric) in [Metric::GroupMessagesOut, Metric::GroupBytesOut].into_iter().enumerate() {
        out.show(metric, |add| {
            metrics.got().groups(|group, topic, counts| {
                let is_system = system::is_system_topic(topic) || system::is_system_group(group);
                add(&[topic, group, flag(is_system)], Sample::Count(counts[at]));
            });
        });
    }
    for metric in [
        Metric::TopicCreation,
        Metric::GroupCreation,
        Metric::DeadLetters,
        Metric::SentBack,
        Metric::TopicCommits,
        Metric::TopicRollbacks,
        Metric::FinishLatency,
        Metric::TimerEnqueued,
        Metric::TimerDequeued,
        Metric::DelayLatency,
        Metric::FlushLatency,
    ] {
        out.show_labelled(desk, metric);
    }
}

fn show_requests(desk: &Desk, out: &mut Out<'_>) {
    let (times, rejected) = desk.watched.request_times.read();
    let kind = Metric::RequestLatency.declared().kind;
    out.show(Metric::RequestLatency, |add| {
        for (request, buckets) in &times {
            let (code, answer) = (request.request(), request.response());
            let labels = ["remoting", &code, &answer, flag(request.was_held), request.result()];
            add(&labels, histogram(kind, buckets));
        }
    });
    out.show(Metric::Rejected, |add| {
        for (reason, count) in &rejected {
            add(&[&reason.to_lowercase()], Sample::Count(*count));
        }
    });
}

/// The figures of GET_BROKER_RUNTIME_INFO that have a name in the table.
fn show_figures(desk: &Desk, out: &mut Out<'_>) {
    let (held_pulls, timers_waiting) = (desk.held.count_for_messages() as u64, desk.timers.waiting());
    let figures = Figures::of(&desk.ground, Gauges { held_pulls, timers_waiting }, Instant::now());
    for metric in Metric::ALL {
        if out.shows(*metric) && figures.all(*metric).next().is_some() {
            out.show(*metric, |add| {
                for figure in figures.all(*metric) {
                    let labels: Vec<&str> = figure.labels.iter().map(String::as_str).collect();
                    add(&labels, sample(figure.value));
                }
            });
        }
    }
    let of_log = Some(("part", "commit_log"));
    if let (Some(Value::Count(size)), Some(Value::Count(free))) =
        (figures.get(Metric::DiskSize, of_log), figures.get(Metric::DiskFree, of_log))
    {
        out.show_one(Metric::StorageSize, Sample::Count(size.saturating_sub(free)));
    }
    let first_ms = match figures.get(Metric::EarliestMessageAt, None) {
        Some(Value::Time(at_ms)) => desk.ground.store().now_ms().saturating_sub(at_ms).max(0),
        _ => 0,
    };
    out.show_one(Metric::ReserveTime, Sample::Count(first_ms.unsigned_abs()));
}

fn sample(value: Value) -> Sample<'static> {
    match value {
        Value::Flag(is_so) => Sample::Count(is_so.into()),
        Value::Count(count) => Sample::Count(count),
        Value::Time(at_ms) => Sample::Real(at_ms as f64),
        Value::Real(number) => Sample::Real(number),
    }
}

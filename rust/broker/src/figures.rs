//! The figures of a running broker: values with a name, a unit and labels, and no text.
//!
//! Who shows them decides how. GET_BROKER_RUNTIME_INFO writes them under Apache's keys ([`crate::process`]).

use std::path::Path;
use std::time::Instant;

use rocketpy_env::{Disk, DiskUsage, RealDisk};
use rocketpy_model::perm;
use rocketpy_protocol::record::RecordView;
use rocketpy_store::Store;

use crate::desk::Desk;
use crate::stats::{Rates, Totals};
use crate::transaction::End;

/// One figure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    /// Tell apart the figures of one name.
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: Value,
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

/// The value of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value {
    Flag(bool),
    Count(u64),
    Time(i64),
    Real(f64),
}

/// All figures of one moment.
#[derive(Debug, Default)]
pub(crate) struct Figures(pub(crate) Vec<Figure>);

impl Figures {
    /// Reads them. Looks at every queue and at the file systems: for a tool that asks now and then. May block.
    pub(crate) fn of(desk: &Desk, now: Instant) -> Self {
        let mut figures = Self::default();
        figures.add_broker(desk);
        figures.add_traffic(desk, now);
        figures.add_log(desk.ground.store());
        figures.add_disks(desk.ground.store());
        figures
    }

    /// The value of the figure that has the name, and the label where one is given.
    pub(crate) fn get(&self, name: &str, label: Option<(&str, &str)>) -> Option<Value> {
        let has_label = |figure: &Figure| {
            label.is_none_or(|(key, text)| figure.labels.iter().any(|(k, v)| *k == key && v == text))
        };
        self.all(name).find(|figure| has_label(figure)).map(|figure| figure.value)
    }

    /// The figures of one name.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &Figure> {
        self.0.iter().filter(move |figure| figure.name == name)
    }

    fn add(&mut self, name: &'static str, unit: Unit, value: Value) {
        self.add_labelled(name, unit, value, Vec::new());
    }

    fn add_labelled(
        &mut self,
        name: &'static str,
        unit: Unit,
        value: Value,
        labels: Vec<(&'static str, String)>,
    ) {
        self.0.push(Figure { name, unit, labels, value });
    }

    fn add_broker(&mut self, desk: &Desk) {
        let is_writable = desk.ground.permission() & perm::WRITE != 0;
        self.add("broker_writable", Unit::Flag, Value::Flag(is_writable));
        self.add("started_at", Unit::UnixMillis, Value::Time(desk.ground.started_at_ms()));
        self.add("uptime", Unit::Seconds, Value::Count(desk.ground.stats().uptime().as_secs()));
        self.add("held_pulls", Unit::Requests, Value::Count(desk.held.count_for_messages() as u64));
        if let Some(memory) = &desk.ground.config().memory {
            self.add("peer_memory", Unit::Bytes, Value::Count(memory.used_bytes() as u64));
            self.add("peer_memory_limit", Unit::Bytes, Value::Count(memory.limit_bytes() as u64));
            let closed = Value::Count(memory.closed_connections());
            self.add("peers_closed_for_memory_total", Unit::Connections, closed);
        }
        self.add(
            "held_pulls_limit",
            Unit::Requests,
            Value::Count(desk.ground.config().max_held_pulls as u64),
        );
    }

    fn add_traffic(&mut self, desk: &Desk, now: Instant) {
        use Unit::{Bytes, Messages, Requests, RequestsPerSecond};
        let stats = desk.ground.stats();
        let totals = stats.totals();
        self.add("messages_in_total", Messages, Value::Count(totals.put_messages));
        self.add("messages_out_total", Messages, Value::Count(totals.got_messages));
        self.add("bytes_in_total", Bytes, Value::Count(totals.put_bytes));
        let average = totals.put_bytes as f64 / totals.put_messages.max(1) as f64;
        self.add("message_size_average", Bytes, Value::Real(average));
        self.add("puts_failed_total", Requests, Value::Count(totals.put_failures));
        self.add("delayed_delivered_total", Messages, Value::Count(desk.delays.delivered()));
        self.add("delayed_dropped_total", Messages, Value::Count(desk.delays.dropped()));
        let timers = &desk.timers;
        self.add("timers_waiting", Messages, Value::Count(timers.waiting()));
        self.add("timers_delivered_total", Messages, Value::Count(timers.delivered()));
        self.add("timers_recalled_total", Messages, Value::Count(timers.recalled()));
        self.add("timers_dropped_total", Messages, Value::Count(timers.dropped()));
        for (name, end) in [
            ("transactions_committed_total", End::Commit),
            ("transactions_rolled_back_total", End::Rollback),
            ("transactions_given_up_total", End::GivenUp),
            ("transactions_lost_total", End::Lost),
        ] {
            self.add(name, Messages, Value::Count(desk.transactions.ended(end)));
        }
        self.add("transactions_checked_total", Requests, Value::Count(desk.transactions.checked()));
        let (yesterday, today) = stats.mornings();
        for (day, morning) in [("today", today), ("yesterday", yesterday)] {
            let labels = vec![("day", day.to_owned())];
            let (puts, gets) = (Value::Count(morning.put_messages), Value::Count(morning.got_messages));
            self.add_labelled("messages_in_at_midnight", Messages, puts, labels.clone());
            self.add_labelled("messages_out_at_midnight", Messages, gets, labels);
        }
        let rates = |counter: fn(&Totals) -> u64| stats.rates(now, counter);
        let messages = Unit::MessagesPerSecond;
        self.add_rates("messages_in_rate", messages, rates(|totals| totals.put_messages));
        self.add_rates("messages_out_rate", messages, rates(|totals| totals.got_messages));
        self.add_rates("pulls_found_rate", RequestsPerSecond, rates(|totals| totals.pulls_found));
        self.add_rates("pulls_missed_rate", RequestsPerSecond, rates(|totals| totals.pulls_missed));
        let pulls = rates(|totals| totals.pulls_found + totals.pulls_missed);
        self.add_rates("pulls_rate", RequestsPerSecond, pulls);
    }

    fn add_rates(&mut self, name: &'static str, unit: Unit, rates: Rates) {
        for (window, rate) in rates {
            let labels = vec![("window", format!("{}s", window.as_secs()))];
            self.add_labelled(name, unit, Value::Real(rate), labels);
        }
    }

    fn add_log(&mut self, store: &Store) {
        let (min, max) = (store.min_physical_offset().get(), store.max_physical_offset().get());
        self.add("commit_log_min_offset", Unit::Bytes, Value::Count(min));
        self.add("commit_log_max_offset", Unit::Bytes, Value::Count(max));
        let behind = store.readable_end().get().saturating_sub(store.dispatched_offset().get());
        self.add("dispatch_behind", Unit::Bytes, Value::Count(behind));
        let unflushed = max.saturating_sub(store.flushed_offset().get());
        self.add("flush_behind", Unit::Bytes, Value::Count(unflushed));
        let first = store.record_at(store.min_physical_offset()).ok().flatten();
        if let Some(first) = first.as_deref().and_then(|bytes| RecordView::parse(bytes).ok()) {
            self.add("earliest_message_at", Unit::UnixMillis, Value::Time(first.stored_at_ms));
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
        let labels = vec![("part", part.to_owned()), ("path", dir.display().to_string())];
        self.add_labelled("disk_used_ratio", Unit::Ratio, Value::Real(ratio(&usage)), labels.clone());
        self.add_labelled("disk_total", Unit::Bytes, Value::Count(usage.total_bytes), labels.clone());
        self.add_labelled("disk_free", Unit::Bytes, Value::Count(usage.available_bytes), labels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestBroker;

    #[tokio::test]
    async fn every_figure_has_a_name_and_labels_of_its_own_and_a_value_of_its_unit() {
        let broker = TestBroker::open(|_| {});
        let figures = Figures::of(&broker, Instant::now());
        for (index, figure) in figures.0.iter().enumerate() {
            let same = |other: &Figure| other.name == figure.name && other.labels == figure.labels;
            assert!(!figures.0[..index].iter().any(same), "twice: {figure:?}");
            let fits = match figure.unit {
                Unit::Flag => matches!(figure.value, Value::Flag(_)),
                Unit::Messages | Unit::Requests | Unit::Connections | Unit::Seconds => {
                    matches!(figure.value, Value::Count(_))
                }
                Unit::Bytes => matches!(figure.value, Value::Count(_) | Value::Real(_)),
                Unit::UnixMillis => matches!(figure.value, Value::Time(at) if at > 1_700_000_000_000),
                Unit::Ratio => matches!(figure.value, Value::Real(share) if (0.0..=1.0).contains(&share)),
                Unit::MessagesPerSecond | Unit::RequestsPerSecond => matches!(figure.value, Value::Real(_)),
            };
            assert!(fits, "{figure:?}");
        }
        assert_eq!(figures.all("messages_in_rate").count(), 3);
        assert!(figures.get("earliest_message_at", None).is_none(), "the store is empty");
    }
}

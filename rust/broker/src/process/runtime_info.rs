//! GET_BROKER_RUNTIME_INFO: the figures of the broker as text, under Apache's keys.
//!
//! # Source
//! docs/reference/protocol.md 2.6.4, docs/reference/store-format.md 13.

use std::collections::BTreeMap;

use rocketpy_model::system;

use crate::desk::Desk;
use crate::figures::{Figure, Figures, Value};
use crate::metrics::{Metric, Metrics};

/// The name of version 479 ([`system::VERSION`]), as the tools print it.
const VERSION_NAME: &str = "V5_3_3";

/// Name and value of a label.
type Label = (&'static str, &'static str);

/// Keys that are one figure each: its metric, and the label that it must have.
const ONE_FIGURE: &[(&str, Metric, Option<Label>)] = &[
    ("brokerActive", Metric::BrokerWritable, None),
    ("bootTimestamp", Metric::StartedAt, None),
    ("msgPutTotalTodayNow", Metric::MessagesIn, None),
    ("msgPutTotalTodayMorning", Metric::MessagesInAtMidnight, Some(("day", "today"))),
    ("msgPutTotalYesterdayMorning", Metric::MessagesInAtMidnight, Some(("day", "yesterday"))),
    ("msgGetTotalTodayNow", Metric::MessagesOut, None),
    ("msgGetTotalTodayMorning", Metric::MessagesOutAtMidnight, Some(("day", "today"))),
    ("msgGetTotalYesterdayMorning", Metric::MessagesOutAtMidnight, Some(("day", "yesterday"))),
    ("putMessageTimesTotal", Metric::MessagesIn, None),
    ("putMessageFailedTimes", Metric::PutsFailed, None),
    ("putMessageSizeTotal", Metric::BytesIn, None),
    ("putMessageAverageSize", Metric::MessageSizeAverage, None),
    ("earliestMessageTimeStamp", Metric::EarliestMessageAt, None),
    ("commitLogMinOffset", Metric::CommitLogMinOffset, None),
    ("commitLogMaxOffset", Metric::CommitLogMaxOffset, None),
    ("dispatchBehindBytes", Metric::DispatchBehind, None),
    ("remainHowManyDataToFlush", Metric::FlushBehind, None),
    ("consumeQueueDiskRatio", Metric::DiskUsedRatio, Some(("part", "consume_queue"))),
    ("heldPulls", Metric::HeldPulls, None),
    ("peerMemoryBytes", Metric::PeerMemory, None),
    ("peerMemoryLimitBytes", Metric::PeerMemoryLimit, None),
    ("peersClosedForMemory", Metric::PeersClosedForMemory, None),
    ("delayedDelivered", Metric::DelayedDelivered, None),
    ("delayedDropped", Metric::DelayedDropped, None),
    ("timersWaiting", Metric::TimersWaiting, None),
    ("timersDelivered", Metric::TimersDelivered, None),
    ("timersRecalled", Metric::TimersRecalled, None),
    ("timersDropped", Metric::TimersDropped, None),
    ("transactionsCommitted", Metric::TransactionsCommitted, None),
    ("transactionsRolledBack", Metric::TransactionsRolledBack, None),
    ("transactionsGivenUp", Metric::TransactionsGivenUp, None),
    ("transactionsLost", Metric::TransactionsLost, None),
    ("transactionsChecked", Metric::TransactionsChecked, None),
];

/// Keys whose text is the rates of three windows.
const THREE_RATES: &[(&str, Metric)] = &[
    ("putTps", Metric::MessagesInRate),
    ("getFoundTps", Metric::PullsFoundRate),
    ("getMissTps", Metric::PullsMissedRate),
    ("getTotalTps", Metric::PullsRate),
    // Tools of the 4.x line read the misspelt key.
    ("getTransferedTps", Metric::MessagesOutRate),
    ("getTransferredTps", Metric::MessagesOutRate),
];

/// Keys whose text is the rate of the last minute.
const MINUTE_RATES: &[(&str, Metric)] =
    &[("timerEnqueueTps", Metric::TimersEnqueuedRate), ("timerDequeueTps", Metric::TimersDeliveredRate)];

/// Figures of Apache's broker without a counterpart: thread pools, transient buffers, the lock on the page cache.
const ALWAYS_ZERO: &[&str] = &[
    "startAcceptSendRequestTimeStamp",
    "dispatchMaxBuffer",
    "pageCacheLockTimeMills",
    "remainHowManyDataToCommit",
    "remainTransientStoreBufferNumbs",
    "EndTransactionQueueSize",
];

/// Apache's thread pools. Here requests are handled as they come; only pulls wait.
const POOLS: [&str; 5] = ["send", "pull", "litePull", "query", "ack"];

/// Capacity of the pool that ends transactions, Apache's default.
const END_TRANSACTION_CAPACITY: u64 = 100_000;

pub(super) type Table = BTreeMap<String, String>;

/// Writes the figures as the tools read them.
pub(super) fn render(figures: &Figures) -> Table {
    let mut table = Table::new();
    put(&mut table, "brokerVersion", system::VERSION);
    put(&mut table, "brokerVersionDesc", VERSION_NAME);
    put(&mut table, "rocketpyVersion", env!("CARGO_PKG_VERSION"));
    // No message yet.
    put(&mut table, "earliestMessageTimeStamp", -1);
    for key in ALWAYS_ZERO {
        put(&mut table, key, 0);
    }
    for (key, metric, label) in ONE_FIGURE {
        if let Some(value) = figures.get(*metric, *label) {
            put(&mut table, key, text(value));
        }
    }
    for (key, metric) in THREE_RATES {
        let rates: Vec<String> = figures.all(*metric).map(|figure| text(figure.value)).collect();
        put(&mut table, key, rates.join(" "));
    }
    if let Some(Value::Count(seconds)) = figures.get(Metric::Uptime, None) {
        put(&mut table, "runtime", readable(seconds));
    }
    for (key, metric) in MINUTE_RATES {
        if let Some(value) = figures.get(*metric, Some(("window", "60s"))) {
            put(&mut table, key, text(value));
        }
    }
    disks(figures, &mut table);
    pools(figures, &mut table);
    table
}

/// Adds messages that wait for a level, for their time, or for the end of their transaction.
pub(super) fn add_waiting(table: &mut Table, desk: &Desk) {
    let mut delayed = 0;
    for (level, (next, end)) in (1..).zip(desk.delays.waiting()) {
        put(table, &format!("scheduleMessageOffset_{level}"), format_args!("{next},{end}"));
        delayed += end.saturating_sub(next);
    }
    put(table, "delayedWaiting", delayed);
    put(table, "halfMessagesWaiting", desk.transactions.waiting());
    let (timers, now_ms) = (&desk.timers, desk.ground.store().now_ms());
    let late_ms = timers.first_due_at_ms().map_or(0, |due_at_ms| now_ms.saturating_sub(due_at_ms).max(0));
    put(table, "timerReadBehind", late_ms / 1000);
    put(table, "timerOffsetBehind", timers.not_taken().0);
    put(table, "timerCongestNum", timers.waiting());
}

/// Adds the times of sends and pulls.
pub(super) fn add_times(table: &mut Table, metrics: &Metrics) {
    let puts = metrics.sent().times();
    put(table, "putMessageEntireTimeMax", puts.max_ms());
    put(table, "putMessageDistributeTime", puts.distribution());
    for (key, share) in [("putLatency99", 0.99), ("putLatency999", 0.999)] {
        put(table, key, format_args!("{:.2}", puts.percentile_ms(share)));
    }
    put(table, "getMessageEntireTimeMax", metrics.got().max_ms());
}

fn put(table: &mut Table, key: &str, value: impl ToString) {
    table.insert(key.to_owned(), value.to_string());
}

fn text(value: Value) -> String {
    match value {
        Value::Flag(value) => value.to_string(),
        Value::Count(value) => value.to_string(),
        Value::Time(value) => value.to_string(),
        Value::Real(value) => value.to_string(),
    }
}

fn readable(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    format!("[ {days} days, {hours} hours, {minutes} minutes, {} seconds ]", seconds % 60)
}

/// Of several folders of the log the emptiest counts, as for retention.
fn disks(figures: &Figures, table: &mut Table) {
    let of_log = |figure: &&Figure| figure.label("part") == Some("commit_log");
    let ratios: Vec<(&str, f64)> = figures
        .all(Metric::DiskUsedRatio)
        .filter(of_log)
        .filter_map(|figure| Some((figure.label("path")?, real(figure.value)?)))
        .collect();
    if ratios.len() > 1 {
        for (path, ratio) in &ratios {
            put(table, &format!("commitLogDiskRatio_{path}"), ratio);
        }
    }
    let Some((path, ratio)) = ratios.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)) else { return };
    put(table, "commitLogDiskRatio", ratio);
    let bytes = |metric| figures.get(metric, Some(("path", path)));
    if let (Some(Value::Count(total)), Some(Value::Count(free))) =
        (bytes(Metric::DiskSize), bytes(Metric::DiskFree))
    {
        let capacity = format!("Total : {}, Free : {}.", gib(total), gib(free));
        put(table, "commitLogDirCapacity", capacity);
    }
}

fn real(value: Value) -> Option<f64> {
    match value {
        Value::Real(value) => Some(value),
        _ => None,
    }
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}

fn pools(figures: &Figures, table: &mut Table) {
    let capacity = figures.get(Metric::HeldPullsLimit, None).map(text).unwrap_or_default();
    for pool in POOLS {
        put(table, &format!("{pool}ThreadPoolQueueSize"), 0);
        put(table, &format!("{pool}ThreadPoolQueueHeadWaitTimeMills"), 0);
        put(table, &format!("{pool}ThreadPoolQueueCapacity"), &capacity);
    }
    put(table, "EndTransactionThreadPoolQueueCapacity", END_TRANSACTION_CAPACITY);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole answer, but for the thread pools. The tools read these keys and texts.
    const GOLDEN: &str = "\
EndTransactionQueueSize=0
EndTransactionThreadPoolQueueCapacity=100000
bootTimestamp=1700000000000
brokerActive=true
brokerVersion=479
brokerVersionDesc=V5_3_3
commitLogDirCapacity=Total : 100.0 GiB, Free : 57.5 GiB.
commitLogDiskRatio=0.42
commitLogDiskRatio_/a=0.97
commitLogDiskRatio_/b=0.42
commitLogMaxOffset=4096
commitLogMinOffset=0
consumeQueueDiskRatio=0.5
dispatchBehindBytes=7
dispatchMaxBuffer=0
earliestMessageTimeStamp=-1
getFoundTps=0 0.5 1.1111111111111112
getMissTps=0 0.5 1.1111111111111112
getTotalTps=0 0.5 1.1111111111111112
getTransferedTps=0 0.5 1.1111111111111112
getTransferredTps=0 0.5 1.1111111111111112
heldPulls=3
msgGetTotalTodayMorning=11
msgGetTotalTodayNow=9
msgGetTotalYesterdayMorning=12
msgPutTotalTodayMorning=11
msgPutTotalTodayNow=8
msgPutTotalYesterdayMorning=12
pageCacheLockTimeMills=0
putMessageAverageSize=128
putMessageFailedTimes=1
putMessageSizeTotal=1024
putMessageTimesTotal=8
putTps=0 0.5 1.1111111111111112
remainHowManyDataToCommit=0
remainHowManyDataToFlush=5
remainTransientStoreBufferNumbs=0
runtime=[ 1 days, 2 hours, 3 minutes, 4 seconds ]
startAcceptSendRequestTimeStamp=0
timerDequeueTps=0.5
timerEnqueueTps=0.5
";

    fn figures() -> Figures {
        let mut all = Vec::new();
        let mut add = |metric, value, labels: &[&str]| {
            let labels = labels.iter().map(|label| (*label).to_owned()).collect();
            all.push(Figure { metric, labels, value });
        };
        add(Metric::BrokerWritable, Value::Flag(true), &[]);
        add(Metric::StartedAt, Value::Time(1_700_000_000_000), &[]);
        for (metric, value) in [
            (Metric::Uptime, 86_400 + 2 * 3600 + 3 * 60 + 4),
            (Metric::HeldPulls, 3),
            (Metric::HeldPullsLimit, 1000),
            (Metric::MessagesIn, 8),
            (Metric::MessagesOut, 9),
            (Metric::PutsFailed, 1),
            (Metric::BytesIn, 1024),
            (Metric::CommitLogMinOffset, 0),
            (Metric::CommitLogMaxOffset, 4096),
            (Metric::DispatchBehind, 7),
            (Metric::FlushBehind, 5),
        ] {
            add(metric, Value::Count(value), &[]);
        }
        add(Metric::MessageSizeAverage, Value::Real(128.0), &[]);
        for metric in [Metric::MessagesInAtMidnight, Metric::MessagesOutAtMidnight] {
            add(metric, Value::Count(11), &["today"]);
            add(metric, Value::Count(12), &["yesterday"]);
        }
        for metric in [
            Metric::MessagesInRate,
            Metric::MessagesOutRate,
            Metric::PullsFoundRate,
            Metric::PullsMissedRate,
            Metric::PullsRate,
            Metric::TimersEnqueuedRate,
            Metric::TimersDeliveredRate,
        ] {
            for (window, rate) in [("10s", 0.0), ("60s", 0.5), ("600s", 1.111_111_111_111_111_2)] {
                add(metric, Value::Real(rate), &[window]);
            }
        }
        for (part, path, ratio) in
            [("commit_log", "/a", 0.97), ("commit_log", "/b", 0.42), ("consume_queue", "/c", 0.5)]
        {
            let labels = [part, path];
            add(Metric::DiskUsedRatio, Value::Real(ratio), &labels);
            let free = if path == "/b" { (57 << 30) + (1 << 29) } else { 1 << 30 };
            add(Metric::DiskSize, Value::Count(100 << 30), &labels);
            add(Metric::DiskFree, Value::Count(free), &labels);
        }
        Figures(all)
    }

    #[test]
    fn the_text_is_the_one_that_tools_know() {
        let mut table = render(&figures());
        assert_eq!(table.remove("rocketpyVersion").as_deref(), Some(env!("CARGO_PKG_VERSION")));
        for pool in POOLS {
            for (what, value) in [("Size", "0"), ("HeadWaitTimeMills", "0"), ("Capacity", "1000")] {
                let key = format!("{pool}ThreadPoolQueue{what}");
                assert_eq!(table.remove(&key).as_deref(), Some(value), "{key}");
            }
        }
        let text: String = table.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        assert_eq!(text, GOLDEN);
    }
}

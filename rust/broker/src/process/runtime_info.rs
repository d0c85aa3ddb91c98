//! GET_BROKER_RUNTIME_INFO: the figures of the broker as text, under Apache's keys.
//!
//! # Source
//! docs/reference/protocol.md 2.6.4, docs/reference/store-format.md 13.

use std::collections::BTreeMap;

use rocketpy_model::system;

use crate::figures::{Figure, Figures, Value};

/// The name of version 479 ([`system::VERSION`]), as the tools print it.
const VERSION_NAME: &str = "V5_3_3";

/// Name and value of a label.
type Label = (&'static str, &'static str);

/// Keys that are one figure each: the figure, and the label that it must have.
const ONE_FIGURE: &[(&str, &str, Option<Label>)] = &[
    ("brokerActive", "broker_writable", None),
    ("bootTimestamp", "started_at", None),
    ("msgPutTotalTodayNow", "messages_in_total", None),
    ("msgPutTotalTodayMorning", "messages_in_at_midnight", Some(("day", "today"))),
    ("msgPutTotalYesterdayMorning", "messages_in_at_midnight", Some(("day", "yesterday"))),
    ("msgGetTotalTodayNow", "messages_out_total", None),
    ("msgGetTotalTodayMorning", "messages_out_at_midnight", Some(("day", "today"))),
    ("msgGetTotalYesterdayMorning", "messages_out_at_midnight", Some(("day", "yesterday"))),
    ("putMessageTimesTotal", "messages_in_total", None),
    ("putMessageFailedTimes", "puts_failed_total", None),
    ("putMessageSizeTotal", "bytes_in_total", None),
    ("putMessageAverageSize", "message_size_average", None),
    ("earliestMessageTimeStamp", "earliest_message_at", None),
    ("commitLogMinOffset", "commit_log_min_offset", None),
    ("commitLogMaxOffset", "commit_log_max_offset", None),
    ("dispatchBehindBytes", "dispatch_behind", None),
    ("remainHowManyDataToFlush", "flush_behind", None),
    ("consumeQueueDiskRatio", "disk_used_ratio", Some(("part", "consume_queue"))),
    ("heldPulls", "held_pulls", None),
    ("peerMemoryBytes", "peer_memory", None),
    ("peerMemoryLimitBytes", "peer_memory_limit", None),
    ("peersClosedForMemory", "peers_closed_for_memory_total", None),
    ("delayedDelivered", "delayed_delivered_total", None),
    ("delayedDropped", "delayed_dropped_total", None),
    ("timersWaiting", "timers_waiting", None),
    ("timersDelivered", "timers_delivered_total", None),
    ("timersRecalled", "timers_recalled_total", None),
    ("timersDropped", "timers_dropped_total", None),
    ("transactionsCommitted", "transactions_committed_total", None),
    ("transactionsRolledBack", "transactions_rolled_back_total", None),
    ("transactionsGivenUp", "transactions_given_up_total", None),
    ("transactionsLost", "transactions_lost_total", None),
    ("transactionsChecked", "transactions_checked_total", None),
];

/// Keys whose text is the rates of three windows.
const THREE_RATES: &[(&str, &str)] = &[
    ("putTps", "messages_in_rate"),
    ("getFoundTps", "pulls_found_rate"),
    ("getMissTps", "pulls_missed_rate"),
    ("getTotalTps", "pulls_rate"),
    // Tools of the 4.x line read the misspelt key.
    ("getTransferedTps", "messages_out_rate"),
    ("getTransferredTps", "messages_out_rate"),
];

/// Figures of Apache's broker without a counterpart: thread pools, transient buffers, the lock on the page cache.
const ALWAYS_ZERO: &[&str] = &[
    "startAcceptSendRequestTimeStamp",
    "dispatchMaxBuffer",
    "pageCacheLockTimeMills",
    "remainHowManyDataToCommit",
    "remainTransientStoreBufferNumbs",
];

/// Apache's thread pools. Here requests are handled as they come; only pulls wait.
const POOLS: [&str; 5] = ["send", "pull", "litePull", "query", "ack"];

pub(super) type Table = BTreeMap<String, String>;

/// Writes the figures as the tools read them.
pub(super) fn render(figures: &Figures) -> Table {
    let mut table = Table::new();
    put(&mut table, "brokerVersion", system::VERSION);
    put(&mut table, "brokerVersionDesc", VERSION_NAME);
    // No message yet.
    put(&mut table, "earliestMessageTimeStamp", -1);
    for key in ALWAYS_ZERO {
        put(&mut table, key, 0);
    }
    for (key, name, label) in ONE_FIGURE {
        if let Some(value) = figures.get(name, *label) {
            put(&mut table, key, text(value));
        }
    }
    for (key, name) in THREE_RATES {
        let rates: Vec<String> = figures.all(name).map(|figure| text(figure.value)).collect();
        put(&mut table, key, rates.join(" "));
    }
    if let Some(Value::Count(seconds)) = figures.get("uptime", None) {
        put(&mut table, "runtime", readable(seconds));
    }
    disks(figures, &mut table);
    pools(figures, &mut table);
    table
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
    let of_log = |figure: &&Figure| figure.labels.iter().any(|(_, label)| label == "commit_log");
    let ratios: Vec<(&str, f64)> = figures
        .all("disk_used_ratio")
        .filter(of_log)
        .filter_map(|figure| Some((path_of(figure)?, real(figure.value)?)))
        .collect();
    if ratios.len() > 1 {
        for (path, ratio) in &ratios {
            put(table, &format!("commitLogDiskRatio_{path}"), ratio);
        }
    }
    let Some((path, ratio)) = ratios.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)) else { return };
    put(table, "commitLogDiskRatio", ratio);
    let bytes = |name| figures.get(name, Some(("path", path)));
    if let (Some(Value::Count(total)), Some(Value::Count(free))) = (bytes("disk_total"), bytes("disk_free")) {
        let capacity = format!("Total : {}, Free : {}.", gib(total), gib(free));
        put(table, "commitLogDirCapacity", capacity);
    }
}

fn path_of(figure: &Figure) -> Option<&str> {
    figure.labels.iter().find(|(key, _)| *key == "path").map(|(_, path)| path.as_str())
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
    let capacity = figures.get("held_pulls_limit", None).map(text).unwrap_or_default();
    for pool in POOLS {
        put(table, &format!("{pool}ThreadPoolQueueSize"), 0);
        put(table, &format!("{pool}ThreadPoolQueueHeadWaitTimeMills"), 0);
        put(table, &format!("{pool}ThreadPoolQueueCapacity"), &capacity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Unit;

    /// The whole answer, but for the thread pools. The tools read these keys and texts.
    const GOLDEN: &str = "\
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
";

    fn figures() -> Figures {
        let mut all = Vec::new();
        let mut add = |name, value, labels: &[(&'static str, &str)]| {
            let labels = labels.iter().map(|(key, label)| (*key, (*label).to_owned())).collect();
            all.push(Figure { name, unit: Unit::Messages, labels, value });
        };
        add("broker_writable", Value::Flag(true), &[]);
        add("started_at", Value::Time(1_700_000_000_000), &[]);
        for (name, value) in [
            ("uptime", 86_400 + 2 * 3600 + 3 * 60 + 4),
            ("held_pulls", 3),
            ("held_pulls_limit", 1000),
            ("messages_in_total", 8),
            ("messages_out_total", 9),
            ("puts_failed_total", 1),
            ("bytes_in_total", 1024),
            ("commit_log_min_offset", 0),
            ("commit_log_max_offset", 4096),
            ("dispatch_behind", 7),
            ("flush_behind", 5),
        ] {
            add(name, Value::Count(value), &[]);
        }
        add("message_size_average", Value::Real(128.0), &[]);
        for name in ["messages_in_at_midnight", "messages_out_at_midnight"] {
            add(name, Value::Count(11), &[("day", "today")]);
            add(name, Value::Count(12), &[("day", "yesterday")]);
        }
        for name in
            ["messages_in_rate", "messages_out_rate", "pulls_found_rate", "pulls_missed_rate", "pulls_rate"]
        {
            for (window, rate) in [("10s", 0.0), ("60s", 0.5), ("600s", 1.111_111_111_111_111_2)] {
                add(name, Value::Real(rate), &[("window", window)]);
            }
        }
        for (part, path, ratio) in
            [("commit_log", "/a", 0.97), ("commit_log", "/b", 0.42), ("consume_queue", "/c", 0.5)]
        {
            let labels = [("part", part), ("path", path)];
            add("disk_used_ratio", Value::Real(ratio), &labels);
            let free = if path == "/b" { (57 << 30) + (1 << 29) } else { 1 << 30 };
            add("disk_total", Value::Count(100 << 30), &labels);
            add("disk_free", Value::Count(free), &labels);
        }
        Figures(all)
    }

    #[test]
    fn the_text_is_the_one_that_tools_know() {
        let mut table = render(&figures());
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

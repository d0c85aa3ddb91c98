//! The broker's own state, as tools read it.
//!
//! # Source
//! docs/reference/protocol.md 2.6.4, docs/reference/store-format.md 13.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use rocketpy_env::{Disk, DiskUsage, RealDisk};
use rocketpy_model::perm;
use rocketpy_protocol::body::KvTable;
use rocketpy_protocol::code::response;
use rocketpy_protocol::header::GetBrokerConfigResponseHeader;
use rocketpy_protocol::json;
use rocketpy_store::Store;

use super::{Answer, success_json};
use crate::Endpoint;
use crate::shared::Shared;

/// The name of version 479 ([`rocketpy_model::system::VERSION`]), as the tools print it.
const VERSION_NAME: &str = "V5_3_3";

/// GET_BROKER_CONFIG: Java properties text.
pub(super) fn config(shared: &Shared) -> Answer {
    let mut text = String::new();
    let (host, port) = match shared.advertised() {
        Some(advertised) => (advertised.host.as_str(), advertised.port),
        None => ("", shared.config.listen.port()),
    };
    let endpoint = Endpoint { listen_ip: shared.config.listen.ip(), port, advertised_host: host };
    for (key, value) in shared.config.describe.lines(&endpoint) {
        // Writing to a text does not fail.
        let _ = writeln!(text, "{key}={value}");
    }
    let version = String::from_utf8_lossy(&json::to_vec(&shared.topics.version())).into_owned();
    let command = super::response(response::SUCCESS)
        .with_header(&GetBrokerConfigResponseHeader { version: &version })
        .with_body(text.into_bytes());
    Ok(command.into())
}

/// GET_BROKER_RUNTIME_INFO.
pub(super) fn runtime_info(shared: &Shared) -> Answer {
    let mut table = BTreeMap::new();
    identity(shared, &mut table);
    rates(shared, &mut table);
    store(shared, &mut table);
    queues(shared, &mut table);
    Ok(success_json(&KvTable { table }))
}

type Table = BTreeMap<String, String>;

fn put(table: &mut Table, key: &str, value: impl ToString) {
    table.insert(key.to_owned(), value.to_string());
}

fn identity(shared: &Shared, table: &mut Table) {
    put(table, "brokerActive", shared.config.broker_permission & perm::WRITE != 0);
    put(table, "brokerVersion", rocketpy_model::system::VERSION);
    put(table, "brokerVersionDesc", VERSION_NAME);
    put(table, "bootTimestamp", shared.started_at_ms);
    put(table, "startAcceptSendRequestTimeStamp", 0);
    put(table, "runtime", readable(shared.stats.uptime()));
}

fn readable(uptime: Duration) -> String {
    let seconds = uptime.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    format!("[ {days} days, {hours} hours, {minutes} minutes, {} seconds ]", seconds % 60)
}

fn rates(shared: &Shared, table: &mut Table) {
    let (stats, now) = (&shared.stats, Instant::now());
    let totals = stats.totals();
    let (yesterday, today) = stats.mornings();
    put(table, "putTps", stats.rates(now, |totals| totals.put_messages));
    put(table, "getFoundTps", stats.rates(now, |totals| totals.pulls_found));
    put(table, "getMissTps", stats.rates(now, |totals| totals.pulls_missed));
    put(table, "getTotalTps", stats.rates(now, |totals| totals.pulls_found + totals.pulls_missed));
    let transferred = stats.rates(now, |totals| totals.got_messages);
    // Tools of the 4.x line read the misspelt key.
    put(table, "getTransferedTps", &transferred);
    put(table, "getTransferredTps", transferred);
    put(table, "msgPutTotalTodayNow", totals.put_messages);
    put(table, "msgPutTotalTodayMorning", today.put_messages);
    put(table, "msgPutTotalYesterdayMorning", yesterday.put_messages);
    put(table, "msgGetTotalTodayNow", totals.got_messages);
    put(table, "msgGetTotalTodayMorning", today.got_messages);
    put(table, "msgGetTotalYesterdayMorning", yesterday.got_messages);
    put(table, "putMessageTimesTotal", totals.put_messages);
    put(table, "putMessageFailedTimes", totals.put_failures);
    put(table, "putMessageSizeTotal", totals.put_bytes);
    put(table, "putMessageAverageSize", totals.put_bytes as f64 / totals.put_messages.max(1) as f64);
}

fn store(shared: &Shared, table: &mut Table) {
    let store = &shared.store;
    let (min, max) = (store.min_physical_offset().get(), store.max_physical_offset().get());
    let behind = store.readable_end().get().saturating_sub(store.dispatched_offset().get());
    let earliest = store.queues().into_iter().filter(|queue| queue.bounds.min < queue.bounds.max);
    let earliest = earliest
        .filter_map(|queue| store.earliest_stored_at(&queue.topic, queue.queue_id).ok().flatten())
        .min();
    put(table, "earliestMessageTimeStamp", earliest.unwrap_or(-1));
    put(table, "commitLogMinOffset", min);
    put(table, "commitLogMaxOffset", max);
    put(table, "dispatchBehindBytes", behind);
    put(table, "dispatchMaxBuffer", 0);
    put(table, "pageCacheLockTimeMills", 0);
    put(table, "remainHowManyDataToCommit", 0);
    put(table, "remainHowManyDataToFlush", max.saturating_sub(store.flushed_offset().get()));
    put(table, "remainTransientStoreBufferNumbs", 0);
    disks(store, table);
}

/// How full the file systems of the store are; of several folders of the log the emptiest counts, as for retention.
fn disks(store: &Store, table: &mut Table) {
    let ratio = |usage: &DiskUsage| usage.used_percent() as f64 / 100.0;
    let dirs = store.config().commit_log_dirs();
    let usages: Vec<_> = dirs.iter().filter_map(|dir| Some((dir, RealDisk.usage(dir).ok()?))).collect();
    if usages.len() > 1 {
        for (dir, usage) in &usages {
            put(table, &format!("commitLogDiskRatio_{}", dir.display()), ratio(usage));
        }
    }
    if let Some((_, usage)) = usages.iter().min_by_key(|(_, usage)| usage.used_percent()) {
        put(table, "commitLogDiskRatio", ratio(usage));
        let capacity = format!("Total : {}, Free : {}.", gib(usage.total_bytes), gib(usage.available_bytes));
        put(table, "commitLogDirCapacity", capacity);
    }
    if let Ok(usage) = RealDisk.usage(&store.config().root) {
        put(table, "consumeQueueDiskRatio", ratio(&usage));
    }
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}

/// Requests are handled as they come; what waits are held pulls.
fn queues(shared: &Shared, table: &mut Table) {
    for pool in ["send", "pull", "litePull", "query", "ack"] {
        put(table, &format!("{pool}ThreadPoolQueueSize"), 0);
        put(table, &format!("{pool}ThreadPoolQueueHeadWaitTimeMills"), 0);
        put(table, &format!("{pool}ThreadPoolQueueCapacity"), shared.config.max_held_pulls);
    }
    put(table, "heldPulls", shared.held_pulls.len());
}

use std::path::PathBuf;
use std::time::Duration;

use rocketpy_broker::{FlushMode, OnFailedFlush};
use rocketpy_model::name;

use super::ServerConfig;
use super::value::{Wanted, addresses, boolean, checked, integer, millis, port};

/// A key that means something here, by Apache's name where Apache has it.
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) set: fn(&mut ServerConfig, &str) -> Result<(), Wanted>,
}

const DAY_MS: i64 = 86_400_000;
const MIB: i64 = 1 << 20;

macro_rules! keys {
    ($($name:literal => |$config:ident, $text:ident| $set:expr;)*) => {
        &[$(Key { name: $name, set: |$config, $text| { $set; Ok(()) } }),*]
    };
}

/// Every key that is used. Limits are stated where the value is parsed.
pub(super) const KEYS: &[Key] = keys! {
    // Ours.
    "nameServerPort" => |c, v| c.name_server_port = Some(port(v)?);
    "readyFile" => |c, v| c.ready_file = Some(PathBuf::from(v));
    "recordCheck" => |c, v| c.broker.store.record_check = boolean(v)?;
    "vipChannelListen" => |c, v| c.broker.vip_channel = boolean(v)?;
    "maxHeldPulls" => |c, v| c.broker.max_held_pulls = size(v, 1, 10_000_000)?;
    "maxConnections" => |c, v| {
        c.broker.max_connections = size(v, 1, 1_000_000)?;
        c.name_server.max_connections = c.broker.max_connections;
    };
    "maxFrameBytes" => |c, v| c.broker.max_frame_bytes = size(v, 4096, 1 << 30)?;
    "maxGroups" => |c, v| c.broker.max_groups = size(v, 32, 10_000_000)?;
    "onFailedFlush" => |c, v| c.broker.store.on_failed_flush = on_failed_flush(v)?;
    "retentionMaxBytes" => |c, v| c.broker.store.retention.max_bytes =
        Some(bytes(v, 0, i64::MAX)?).filter(|limit| *limit > 0);
    "maxUnflushedBytes" => |c, v| c.broker.store.max_unflushed_bytes = bytes(v, 0, i64::MAX)?;
    "maxTopics" => |c, v| c.broker.max_topics = size(v, 32, 10_000_000)?;

    // Identity and network.
    "bindAddress" => |c, v| c.host = host(v)?;
    "listenPort" => |c, v| c.port = Some(port(v)?);
    "namesrvAddr" => |c, v| c.broker.name_servers = addresses(v)?;
    "brokerClusterName" => |c, v| c.broker.cluster_name = checked(v, name::check_cluster)?;
    "brokerName" => |c, v| c.broker.broker_name = checked(v, name::check_broker)?;
    "brokerIP1" => |c, v| c.broker.advertised_host = Some(host(v)?);
    "brokerPermission" => |c, v| c.broker.broker_permission = permission(v)?;
    "regionId" => |c, v| c.broker.region_id = plain(v)?;
    "registerNameServerPeriod" => |c, v| c.broker.register_period =
        millis(v, 0, DAY_MS)?.clamp(Duration::from_secs(10), Duration::from_secs(60));
    "registerBrokerTimeoutMills" => |c, v| c.broker.register_timeout = millis(v, 100, DAY_MS)?;
    "serverChannelMaxIdleTimeSeconds" => |c, v| {
        c.broker.idle_timeout = seconds(v)?;
        c.name_server.idle_timeout = c.broker.idle_timeout;
    };
    "channelExpiredTimeout" => |c, v| c.broker.client_expiry = millis(v, 1000, DAY_MS)?;

    // Name server.
    "orderMessageEnable" => |c, v| c.name_server.order_message_enabled = boolean(v)?;
    "scanNotActiveBrokerInterval" => |c, v| c.name_server.scan_interval = millis(v, 10, DAY_MS)?;

    // Topics, groups, offsets.
    "defaultTopicQueueNums" => |c, v| c.broker.default_topic_queues = queues(v)?;
    "autoCreateTopicEnable" => |c, v| c.broker.auto_create_topic = boolean(v)?;
    "autoCreateSubscriptionGroup" => |c, v| c.broker.auto_create_group = boolean(v)?;
    "clusterTopicEnable" => |c, v| c.broker.cluster_topic = boolean(v)?;
    "brokerTopicEnable" => |c, v| c.broker.broker_topic = boolean(v)?;
    "traceOn" => |c, v| c.broker.trace_on = boolean(v)?;
    "traceTopicEnable" => |c, v| c.broker.trace_topic = boolean(v)?;
    "msgTraceTopicName" => |c, v| c.broker.trace_topic_name = checked(v, name::check_topic)?;
    "notifyConsumerIdsChangedEnable" => |c, v| c.broker.notify_consumer_ids_changed = boolean(v)?;
    "flushConsumerOffsetInterval" => |c, v| c.broker.persist_offsets_every = millis(v, 100, DAY_MS)?;

    // Reading.
    "longPollingEnable" => |c, v| c.broker.long_polling = boolean(v)?;
    "shortPollingTimeMills" => |c, v| c.broker.short_polling = millis(v, 0, DAY_MS)?;
    "litePullMessageEnable" => |c, v| c.broker.lite_pull = boolean(v)?;
    "maxTransferBytesOnMessageInMemory" => |c, v| c.broker.max_transfer_bytes = size(v, 100, 8 * MIB)?;
    "maxTransferCountOnMessageInMemory" => |c, v| c.broker.max_transfer_messages = size(v, 1, 1 << 20)?;

    // Store.
    "storePathRootDir" => |c, v| c.broker.store.root = path(v)?;
    "storePathCommitLog" => |c, v| {
        let mut dirs = paths(v)?.into_iter();
        c.broker.store.commit_log_dir = dirs.next();
        c.broker.store.more_commit_log_dirs = dirs.collect();
    };
    "readOnlyCommitLogStorePaths" => |c, v| c.broker.store.read_only_commit_log_dirs =
        if v.is_empty() { Vec::new() } else { paths(v)? };
    "mappedFileSizeCommitLog" => |c, v| {
        c.broker.store.commit_log_file_size = bytes(v, 16_384, (1 << 31) - 1)?;
        c.is_log_file_size_given = true;
    };
    "mappedFileSizeConsumeQueue" => |c, v| c.broker.store.consume_queue_file_size = bytes(v, 20, 1 << 30)?;
    "fileReservedTime" => |c, v| c.broker.store.retention.reserved_time =
        Duration::from_secs(bytes(v, 0, 1_000_000).map_err(|wanted| format!("{wanted} (hours)"))? * 3600);
    "deleteWhen" => |c, v| c.broker.store.retention.delete_hours =
        v.parse().map_err(|wanted: rocketpy_broker::BadHours| wanted.to_string())?;
    "diskMaxUsedSpaceRatio" => |c, v| c.broker.store.retention.max_used_percent = bytes(v, 0, 100)?;
    "diskSpaceCleanForciblyRatio" => |c, v| c.broker.store.retention.force_used_percent = bytes(v, 0, 100)?;
    "diskSpaceWarningLevelRatio" => |c, v| c.broker.store.retention.refuse_used_percent = bytes(v, 0, 100)?;
    "cleanFileForciblyEnable" => |c, v| c.broker.store.retention.clean_forcibly = boolean(v)?;
    "cleanResourceInterval" => |c, v| c.broker.store.retention.interval = millis(v, 1, DAY_MS)?;
    "deleteFileBatchMax" => |c, v| c.broker.store.retention.files_a_round = size(v, 1, 1_000_000)?;
    "deleteCommitLogFilesInterval" => |c, v| c.broker.store.retention.log_file_pause = millis(v, 0, DAY_MS)?;
    "deleteConsumeQueueFilesInterval" => |c, v| c.broker.store.retention.queue_file_pause = millis(v, 0, DAY_MS)?;
    "maxMessageSize" => |c, v| c.broker.store.max_message_size = count(v, 1, 1 << 30)?;
    "flushDiskType" => |c, v| c.broker.store.flush = flush(v)?;
    "flushCommitLogLeastPages" => |c, v| c.broker.store.flush_least_pages = bytes(v, 0, 1 << 20)?;
    "flushCommitLogThoroughInterval" => |c, v| c.broker.store.flush_thorough_interval = millis(v, 1, DAY_MS)?;
    "flushIntervalConsumeQueue" => |c, v| c.broker.store.checkpoint_interval = millis(v, 10, DAY_MS)?;
    "flushIntervalCommitLog" => |c, v| c.broker.store.flush_interval = millis(v, 1, DAY_MS)?;
    "osPageCacheBusyTimeOutMills" => |c, v| c.broker.store.busy_timeout = millis(v, 1, DAY_MS)?;
    "syncFlushTimeout" => |c, v| c.broker.sync_flush_timeout = millis(v, 1, DAY_MS)?;
    "enabledAppendPropCRC" => |c, v| c.broker.store.record_check = boolean(v)?;
    "messageIndexEnable" => |c, v| c.broker.store.index = boolean(v)?;
    "maxHashSlotNum" => |c, v| c.broker.store.index_slots = count(v, 1, 100_000_000)?;
    "maxIndexNum" => |c, v| c.broker.store.index_entries = count(v, 2, 2_000_000_000)?;
    "maxMsgsNumBatch" => |c, v| c.broker.query_max = count(v, 1, 10_000)?;
    "defaultQueryMaxNum" => |c, v| c.broker.default_query_max = count(v, 1, 10_000)?;
};

fn size(text: &str, least: i64, most: i64) -> Result<usize, Wanted> {
    let value = integer(text, least, most)?;
    usize::try_from(value).map_err(|_| format!("at most {}", usize::MAX))
}

fn count(text: &str, least: i64, most: i64) -> Result<u32, Wanted> {
    let value = integer(text, least, most)?;
    u32::try_from(value).map_err(|_| format!("at most {}", u32::MAX))
}

fn bytes(text: &str, least: i64, most: i64) -> Result<u64, Wanted> {
    Ok(integer(text, least, most)?.unsigned_abs())
}

fn seconds(text: &str) -> Result<Duration, Wanted> {
    Ok(Duration::from_secs(integer(text, 1, DAY_MS / 1000)?.unsigned_abs()))
}

fn queues(text: &str) -> Result<u32, Wanted> {
    let value = integer(text, 1, 16_384)?;
    u32::try_from(value).map_err(|_| "a number of queues".to_owned())
}

fn permission(text: &str) -> Result<i32, Wanted> {
    let value = integer(text, 0, 6)?;
    match i32::try_from(value) {
        Ok(value @ (0 | 2 | 4 | 6)) => Ok(value),
        _ => Err("0, 2 (write), 4 (read) or 6 (both)".to_owned()),
    }
}

fn plain(text: &str) -> Result<String, Wanted> {
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err("a text without control characters".to_owned());
    }
    Ok(text.to_owned())
}

fn host(text: &str) -> Result<String, Wanted> {
    let text = text.trim();
    let is_good = !text.is_empty()
        && !text.chars().any(|c| c.is_whitespace() || matches!(c, '/' | ',' | ';' | '@'))
        && (text.parse::<std::net::Ipv6Addr>().is_ok() || !text.contains(':'));
    if is_good { Ok(text.to_owned()) } else { Err("a host name or an address, without a port".to_owned()) }
}

fn path(text: &str) -> Result<PathBuf, Wanted> {
    if text.trim().is_empty() {
        return Err("the path of a folder".to_owned());
    }
    if text.contains(',') {
        return Err("the path of one folder".to_owned());
    }
    Ok(PathBuf::from(text))
}

/// Folders parted by commas.
fn paths(text: &str) -> Result<Vec<PathBuf>, Wanted> {
    let paths: Vec<_> = text.split(',').map(str::trim).filter(|path| !path.is_empty()).collect();
    match paths.is_empty() {
        true => Err("the path of a folder, or several parted by commas".to_owned()),
        false => Ok(paths.into_iter().map(PathBuf::from).collect()),
    }
}

fn flush(text: &str) -> Result<FlushMode, Wanted> {
    match text {
        "ASYNC_FLUSH" => Ok(FlushMode::Async),
        "SYNC_FLUSH" => Ok(FlushMode::Sync),
        _ => Err("ASYNC_FLUSH or SYNC_FLUSH".to_owned()),
    }
}

fn on_failed_flush(text: &str) -> Result<OnFailedFlush, Wanted> {
    match text {
        "STOP" => Ok(OnFailedFlush::Stop),
        "REFUSE" => Ok(OnFailedFlush::Refuse),
        _ => Err("STOP or REFUSE".to_owned()),
    }
}

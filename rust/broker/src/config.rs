use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use rocketpy_model::{Permission, system};
use rocketpy_store::{OnFailedFlush, RetentionConfig, StoreConfig};

/// When a send is acknowledged in relation to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlushDiskType {
    /// Acknowledged once written to the page cache; flushed in the background.
    #[default]
    Async,
    /// Acknowledged once a flush covers the record.
    Sync,
}

/// Everything the broker needs to know; Apache's defaults unless a field says otherwise.
#[derive(Clone, Debug)]
#[doc(alias("MessageStoreConfig", "NettyServerConfig"))]
pub struct BrokerConfig {
    /// Root of the store (`storePathRootDir`).
    pub store_root: PathBuf,
    /// Folder of the commit log files; `store_root/commitlog` when absent (the first of `storePathCommitLog`).
    pub commit_log_dir: Option<PathBuf>,
    /// Further folders of it, in which new files take turns (the others of `storePathCommitLog`).
    pub more_commit_log_dirs: Vec<PathBuf>,
    /// Folders of it that get no new file (`readOnlyCommitLogStorePaths`).
    pub read_only_commit_log_dirs: Vec<PathBuf>,
    /// When old files go, and when the disk is too full for messages.
    pub retention: RetentionConfig,
    /// Address that listens; port 0 takes a free one. Default `127.0.0.1:10911` (Apache: `0.0.0.0`).
    pub listen: SocketAddr,
    /// Whether `listen.port() - 2` is served as well, when it is free (default false).
    pub vip_channel: bool,
    /// Host that is announced to clients (`brokerIP1`); the listening address when absent.
    pub advertised_host: Option<String>,
    /// `host:port` of every name server (`namesrvAddr`).
    pub name_servers: Vec<String>,
    /// `brokerClusterName`, default `DefaultCluster`.
    pub cluster_name: String,
    /// `brokerName`, default `broker-a`.
    pub broker_name: String,
    /// `brokerPermission`: 4 read, 2 write; default 6.
    pub broker_permission: i32,
    /// `regionId`, default `DefaultRegion`.
    pub region_id: String,
    /// `traceOn`, default true: announced to clients.
    pub trace_on: bool,
    /// `traceTopicEnable`, default false.
    pub trace_topic: bool,
    /// `msgTraceTopicName`, default `RMQ_SYS_TRACE_TOPIC`.
    pub trace_topic_name: String,
    /// `defaultTopicQueueNums`, default 8.
    pub default_topic_queues: u32,
    /// Most topics; more are refused. Default 100,000.
    pub max_topics: usize,
    /// Most consumer groups; more are refused. Default 100,000.
    pub max_groups: usize,
    /// `autoCreateTopicEnable`, default true.
    pub auto_create_topic: bool,
    /// `autoCreateSubscriptionGroup`, default true.
    pub auto_create_group: bool,
    /// `clusterTopicEnable`, default true.
    pub cluster_topic: bool,
    /// `brokerTopicEnable`, default true.
    pub broker_topic: bool,
    /// `longPollingEnable`, default true.
    pub long_polling: bool,
    /// `shortPollingTimeMills`, default 1 s: how long a pull is held when long polling is off.
    pub short_polling: Duration,
    /// `maxHeldPulls`, default 100,000: most requests held at a time; one more is answered SYSTEM_BUSY (`pullThreadPoolQueueCapacity`).
    pub max_held_pulls: usize,
    /// `maxHeldBytes`, default 256 MiB: most memory of all held requests together; beyond it the answer is SYSTEM_BUSY.
    pub max_held_bytes: usize,
    /// Interval at which all held pulls are checked again: a filter may have skipped the message that woke them. Default 5 s.
    pub scan_held_pulls_every: Duration,
    /// `notifyConsumerIdsChangedEnable`, default true.
    pub notify_consumer_ids_changed: bool,
    /// `litePullMessageEnable`, default true.
    pub lite_pull: bool,
    /// `registerNameServerPeriod`, default 30 s, clamped to 10..60 s.
    pub register_period: Duration,
    /// `registerBrokerTimeoutMills`, default 24 s.
    pub register_timeout: Duration,
    /// `flushConsumerOffsetInterval`, default 5 s.
    pub persist_offsets_every: Duration,
    /// What happens after a failed flush; default: the process stops.
    pub on_failed_flush: OnFailedFlush,
    /// `channelExpiredTimeout`, default 120 s: how long a silent client stays in its groups.
    pub client_expiry: Duration,
    /// Distance of the looks for clients that went silent; default 10 s.
    pub expire_clients_every: Duration,
    /// `maxMessageSize`, default 4 MiB: largest message body.
    pub max_message_size: usize,
    /// Most bytes of one pull's answer (`maxTransferBytesOnMessageInMemory`), default 1 MiB. A pull that states no
    /// `maxMsgBytes` gets 256 KiB, Apache's limit.
    pub max_transfer_bytes: usize,
    /// Most messages of one pull's answer (`maxTransferCountOnMessageInMemory`), default 4096 (Apache: 32).
    pub max_transfer_messages: usize,
    /// `flushDiskType`.
    pub flush: FlushDiskType,
    /// Bytes of the log that may be appended and not flushed, default 256 MiB; beyond it sends wait for the disk. 0: no bound.
    pub max_unflushed_bytes: u64,
    /// `osPageCacheBusyTimeOutMills`, default 1 s: how long a send waits for the disk before it is answered SYSTEM_BUSY.
    pub busy_timeout: Duration,
    /// `flushIntervalCommitLog`, default 500 ms.
    pub flush_interval: Duration,
    /// `flushCommitLogLeastPages`, default 0 (Apache: 4): fewer dirty pages of 4 KiB are left for a later interval...
    pub flush_least_pages: u64,
    /// ... but no longer than `flushCommitLogThoroughInterval`, default 10 s.
    pub flush_thorough_interval: Duration,
    /// `flushIntervalConsumeQueue`, default 1 s: distance between two checkpoints, with flushes of consume queues and index.
    pub checkpoint_interval: Duration,
    /// `syncFlushTimeout`, default 5 s.
    pub sync_flush_timeout: Duration,
    /// `mappedFileSizeCommitLog`, default 1 GiB.
    pub commit_log_file_size: u64,
    /// `mappedFileSizeConsumeQueue`, default 6,000,000.
    pub consume_queue_file_size: u64,
    /// Whole-record check of every record (`enabledAppendPropCRC`; default true here, false in Apache's).
    pub record_check: bool,
    /// Whether messages can be looked up by key (`messageIndexEnable`, default true).
    pub index: bool,
    /// Hash slots of an index file (`maxHashSlotNum`), default 5,000,000.
    pub index_slots: u32,
    /// Entry numbers of an index file (`maxIndexNum`), default 20,000,000.
    pub index_entries: u32,
    /// Most messages of one look-up by key (`maxMsgsNumBatch`), default 64.
    pub query_max: u32,
    /// Messages of one look-up by unique key (`defaultQueryMaxNum`), default 32.
    pub default_query_max: u32,
    /// Largest frame that is accepted, default 16 MiB (`com.rocketmq.remoting.frameMaxLength`).
    pub max_frame_bytes: usize,
    /// Most client connections, default 65,536.
    pub max_connections: usize,
    /// `serverChannelMaxIdleTimeSeconds`, default 120 s.
    pub idle_timeout: Duration,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            store_root: PathBuf::from("store"),
            commit_log_dir: None,
            more_commit_log_dirs: Vec::new(),
            read_only_commit_log_dirs: Vec::new(),
            retention: RetentionConfig::default(),
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10911),
            vip_channel: false,
            advertised_host: None,
            name_servers: Vec::new(),
            cluster_name: "DefaultCluster".to_owned(),
            broker_name: "broker-a".to_owned(),
            broker_permission: Permission::READ_WRITE.bits(),
            region_id: system::DEFAULT_REGION.to_owned(),
            trace_on: true,
            trace_topic: false,
            trace_topic_name: system::TRACE_TOPIC.to_owned(),
            default_topic_queues: 8,
            max_topics: 100_000,
            max_groups: 100_000,
            auto_create_topic: true,
            auto_create_group: true,
            cluster_topic: true,
            broker_topic: true,
            long_polling: true,
            short_polling: Duration::from_secs(1),
            max_held_pulls: 100_000,
            max_held_bytes: 256 << 20,
            scan_held_pulls_every: Duration::from_secs(5),
            notify_consumer_ids_changed: true,
            lite_pull: true,
            register_period: Duration::from_secs(30),
            register_timeout: Duration::from_secs(24),
            persist_offsets_every: Duration::from_secs(5),
            on_failed_flush: OnFailedFlush::Stop,
            client_expiry: Duration::from_secs(120),
            expire_clients_every: Duration::from_secs(10),
            max_message_size: 4 << 20,
            max_transfer_bytes: 1 << 20,
            max_transfer_messages: 4096,
            flush: FlushDiskType::Async,
            max_unflushed_bytes: 256 << 20,
            busy_timeout: Duration::from_secs(1),
            flush_interval: Duration::from_millis(500),
            flush_least_pages: 0,
            flush_thorough_interval: Duration::from_secs(10),
            checkpoint_interval: Duration::from_secs(1),
            sync_flush_timeout: Duration::from_secs(5),
            commit_log_file_size: 1 << 30,
            consume_queue_file_size: 6_000_000,
            record_check: true,
            index: true,
            index_slots: 5_000_000,
            index_entries: 20_000_000,
            query_max: 64,
            default_query_max: 32,
            max_frame_bytes: 16 << 20,
            max_connections: 65_536,
            idle_timeout: Duration::from_secs(120),
        }
    }
}

impl BrokerConfig {
    /// The store of this broker, but for the address that goes into records.
    pub fn store(&self) -> StoreConfig {
        StoreConfig {
            commit_log_dir: self.commit_log_dir.clone(),
            more_commit_log_dirs: self.more_commit_log_dirs.clone(),
            read_only_commit_log_dirs: self.read_only_commit_log_dirs.clone(),
            retention: self.retention.clone(),
            commit_log_file_size: self.commit_log_file_size,
            consume_queue_file_size: self.consume_queue_file_size,
            flush: match self.flush {
                FlushDiskType::Async => rocketpy_store::FlushMode::Async,
                FlushDiskType::Sync => rocketpy_store::FlushMode::Sync,
            },
            max_unflushed_bytes: self.max_unflushed_bytes,
            busy_timeout: self.busy_timeout,
            flush_interval: self.flush_interval,
            flush_least_pages: self.flush_least_pages,
            flush_thorough_interval: self.flush_thorough_interval,
            checkpoint_interval: self.checkpoint_interval,
            record_check: self.record_check,
            index: self.index,
            index_slots: self.index_slots,
            index_entries: self.index_entries,
            max_message_size: u32::try_from(self.max_message_size).unwrap_or(u32::MAX),
            on_failed_flush: self.on_failed_flush,
            ..StoreConfig::new(&self.store_root)
        }
    }

    /// The configuration under Apache's key names, as GET_BROKER_CONFIG answers it.
    pub(crate) fn properties(&self, advertised_host: &str, port: u16) -> Vec<(&'static str, String)> {
        let millis = |duration: Duration| duration.as_millis().to_string();
        let store = self.store();
        let list =
            |dirs: &[PathBuf]| dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(",");
        let retention = &self.retention;
        vec![
            ("autoCreateSubscriptionGroup", self.auto_create_group.to_string()),
            ("autoCreateTopicEnable", self.auto_create_topic.to_string()),
            ("bindAddress", self.listen.ip().to_string()),
            ("brokerClusterName", self.cluster_name.clone()),
            ("brokerIP1", advertised_host.to_owned()),
            ("brokerId", system::MASTER_ID.to_string()),
            ("brokerName", self.broker_name.clone()),
            ("brokerPermission", self.broker_permission.to_string()),
            ("brokerRole", "ASYNC_MASTER".to_owned()),
            ("brokerTopicEnable", self.broker_topic.to_string()),
            ("channelExpiredTimeout", millis(self.client_expiry)),
            ("cleanFileForciblyEnable", retention.clean_forcibly.to_string()),
            ("cleanResourceInterval", millis(retention.interval)),
            ("clusterTopicEnable", self.cluster_topic.to_string()),
            ("defaultQueryMaxNum", self.default_query_max.to_string()),
            ("defaultTopicQueueNums", self.default_topic_queues.to_string()),
            ("deleteCommitLogFilesInterval", millis(retention.log_file_pause)),
            ("deleteConsumeQueueFilesInterval", millis(retention.queue_file_pause)),
            ("deleteFileBatchMax", retention.files_a_round.to_string()),
            ("deleteWhen", retention.delete_hours.to_string()),
            ("diskMaxUsedSpaceRatio", retention.max_used_percent.to_string()),
            ("diskSpaceCleanForciblyRatio", retention.force_used_percent.to_string()),
            ("diskSpaceWarningLevelRatio", retention.refuse_used_percent.to_string()),
            ("enabledAppendPropCRC", self.record_check.to_string()),
            ("fileReservedTime", (retention.reserved_time.as_secs() / 3600).to_string()),
            ("flushConsumerOffsetInterval", millis(self.persist_offsets_every)),
            ("flushDiskType", self.flush.apache_name().to_owned()),
            ("flushCommitLogLeastPages", self.flush_least_pages.to_string()),
            ("flushCommitLogThoroughInterval", millis(self.flush_thorough_interval)),
            ("flushIntervalCommitLog", millis(self.flush_interval)),
            ("flushIntervalConsumeQueue", millis(self.checkpoint_interval)),
            ("listenPort", port.to_string()),
            ("litePullMessageEnable", self.lite_pull.to_string()),
            ("longPollingEnable", self.long_polling.to_string()),
            ("mappedFileSizeCommitLog", self.commit_log_file_size.to_string()),
            ("mappedFileSizeConsumeQueue", self.consume_queue_file_size.to_string()),
            ("maxHashSlotNum", self.index_slots.to_string()),
            ("maxIndexNum", self.index_entries.to_string()),
            ("maxMessageSize", self.max_message_size.to_string()),
            ("maxMsgsNumBatch", self.query_max.to_string()),
            ("maxTransferBytesOnMessageInMemory", self.max_transfer_bytes.to_string()),
            ("maxTransferCountOnMessageInMemory", self.max_transfer_messages.to_string()),
            ("maxUnflushedBytes", self.max_unflushed_bytes.to_string()),
            ("messageIndexEnable", self.index.to_string()),
            ("msgTraceTopicName", self.trace_topic_name.clone()),
            ("namesrvAddr", self.name_servers.join(";")),
            ("notifyConsumerIdsChangedEnable", self.notify_consumer_ids_changed.to_string()),
            ("osPageCacheBusyTimeOutMills", millis(self.busy_timeout)),
            ("readOnlyCommitLogStorePaths", list(&self.read_only_commit_log_dirs)),
            ("regionId", self.region_id.clone()),
            ("registerBrokerTimeoutMills", millis(self.register_timeout)),
            ("registerNameServerPeriod", millis(self.register_period)),
            ("retentionMaxBytes", retention.max_bytes.unwrap_or(0).to_string()),
            ("serverChannelMaxIdleTimeSeconds", self.idle_timeout.as_secs().to_string()),
            ("shortPollingTimeMills", millis(self.short_polling)),
            ("storePathCommitLog", list(&store.commit_log_dirs())),
            ("storePathRootDir", self.store_root.display().to_string()),
            ("syncFlushTimeout", millis(self.sync_flush_timeout)),
            ("traceOn", self.trace_on.to_string()),
            ("traceTopicEnable", self.trace_topic.to_string()),
        ]
    }
}

impl FlushDiskType {
    pub(crate) fn apache_name(self) -> &'static str {
        match self {
            Self::Async => "ASYNC_FLUSH",
            Self::Sync => "SYNC_FLUSH",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Default by key, of the table in docs/operations.md. One default may stand for all keys of its row.
    fn documented() -> BTreeMap<&'static str, &'static str> {
        let page = include_str!("../../../docs/operations.md");
        let (_, table) = page.split_once("| key | default | meaning |\n|---|---|---|\n").unwrap();
        let mut found = BTreeMap::new();
        for row in table.lines().take_while(|line| line.starts_with('|')) {
            let mut cells = row.split('|').skip(1).map(str::trim);
            let (keys, default) = (cells.next().unwrap(), cells.next().unwrap());
            let keys: Vec<_> = keys.split(", ").map(|key| key.trim_matches('`')).collect();
            let defaults: Vec<_> = default.split(", ").collect();
            let is_each = keys.len() > 1 && defaults.len() == keys.len();
            for (index, key) in keys.into_iter().enumerate() {
                found.insert(key, if is_each { defaults[index] } else { default });
            }
        }
        found
    }

    #[test]
    fn the_documented_defaults_are_those_of_the_code() {
        let documented = documented();
        let config = BrokerConfig { store_root: PathBuf::from("DIR"), ..BrokerConfig::default() };
        let mut compared = 0;
        for (key, value) in config.properties("the address it listens on", config.listen.port()) {
            let Some(&said) = documented.get(key) else { continue };
            let said = match said {
                "none" => "",
                // Where it is a part of the server, that gives the address.
                "its own, in `rocketpy server`" => "",
                other => other,
            };
            assert_eq!(value, said, "{key}");
            compared += 1;
        }
        assert!(compared > 50, "the table has another form now: {compared} keys");
    }
}

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use rocketpy_model::{Permission, system};
use rocketpy_store::StoreConfig;

/// Everything the broker needs to know; Apache's defaults unless a field says otherwise.
#[derive(Clone, Debug)]
#[doc(alias("MessageStoreConfig", "NettyServerConfig"))]
pub struct BrokerConfig {
    /// The store, but for the address that goes into records: the broker fills it in when it opens the store.
    pub store: StoreConfig,
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
    /// Most pulls held at a time; one more is answered SYSTEM_BUSY (`pullThreadPoolQueueCapacity`, default 100,000).
    pub max_held_pulls: usize,
    /// Distance of the looks at all held pulls, for those whose filter let a message pass by; default 5 s.
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
    /// `channelExpiredTimeout`, default 120 s: how long a silent client stays in its groups.
    pub client_expiry: Duration,
    /// Distance of the looks for clients that went silent; default 10 s.
    pub expire_clients_every: Duration,
    /// Most bytes of one pull's answer (`maxTransferBytesOnMessageInMemory`), default 1 MiB. A pull that states no
    /// `maxMsgBytes` gets 256 KiB, Apache's limit.
    pub max_transfer_bytes: usize,
    /// Most messages of one pull's answer (`maxTransferCountOnMessageInMemory`), default 4096 (Apache: 32).
    pub max_transfer_messages: usize,
    /// `syncFlushTimeout`, default 5 s.
    pub sync_flush_timeout: Duration,
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
            store: StoreConfig::new("store"),
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
            scan_held_pulls_every: Duration::from_secs(5),
            notify_consumer_ids_changed: true,
            lite_pull: true,
            register_period: Duration::from_secs(30),
            register_timeout: Duration::from_secs(24),
            persist_offsets_every: Duration::from_secs(5),
            client_expiry: Duration::from_secs(120),
            expire_clients_every: Duration::from_secs(10),
            max_transfer_bytes: 1 << 20,
            max_transfer_messages: 4096,
            sync_flush_timeout: Duration::from_secs(5),
            query_max: 64,
            default_query_max: 32,
            max_frame_bytes: 16 << 20,
            max_connections: 65_536,
            idle_timeout: Duration::from_secs(120),
        }
    }
}

impl BrokerConfig {
    /// The configuration under Apache's key names, as GET_BROKER_CONFIG answers it.
    pub(crate) fn properties(&self, advertised_host: &str, port: u16) -> Vec<(&'static str, String)> {
        let millis = |duration: Duration| duration.as_millis().to_string();
        let store = &self.store;
        let list =
            |dirs: &[PathBuf]| dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(",");
        let retention = &store.retention;
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
            ("enabledAppendPropCRC", store.record_check.to_string()),
            ("fileReservedTime", (retention.reserved_time.as_secs() / 3600).to_string()),
            ("flushConsumerOffsetInterval", millis(self.persist_offsets_every)),
            ("flushDiskType", store.flush.apache_name().to_owned()),
            ("flushCommitLogLeastPages", store.flush_least_pages.to_string()),
            ("flushCommitLogThoroughInterval", millis(store.flush_thorough_interval)),
            ("flushIntervalCommitLog", millis(store.flush_interval)),
            ("flushIntervalConsumeQueue", millis(store.checkpoint_interval)),
            ("listenPort", port.to_string()),
            ("litePullMessageEnable", self.lite_pull.to_string()),
            ("longPollingEnable", self.long_polling.to_string()),
            ("mappedFileSizeCommitLog", store.commit_log_file_size.to_string()),
            ("mappedFileSizeConsumeQueue", store.consume_queue_file_size.to_string()),
            ("maxHashSlotNum", store.index_slots.to_string()),
            ("maxIndexNum", store.index_entries.to_string()),
            ("maxMessageSize", store.max_message_size.to_string()),
            ("maxMsgsNumBatch", self.query_max.to_string()),
            ("maxTransferBytesOnMessageInMemory", self.max_transfer_bytes.to_string()),
            ("maxTransferCountOnMessageInMemory", self.max_transfer_messages.to_string()),
            ("maxUnflushedBytes", store.max_unflushed_bytes.to_string()),
            ("messageIndexEnable", store.index.to_string()),
            ("msgTraceTopicName", self.trace_topic_name.clone()),
            ("namesrvAddr", self.name_servers.join(";")),
            ("notifyConsumerIdsChangedEnable", self.notify_consumer_ids_changed.to_string()),
            ("osPageCacheBusyTimeOutMills", millis(store.busy_timeout)),
            ("readOnlyCommitLogStorePaths", list(&store.read_only_commit_log_dirs)),
            ("regionId", self.region_id.clone()),
            ("registerBrokerTimeoutMills", millis(self.register_timeout)),
            ("registerNameServerPeriod", millis(self.register_period)),
            ("retentionMaxBytes", retention.max_bytes.unwrap_or(0).to_string()),
            ("serverChannelMaxIdleTimeSeconds", self.idle_timeout.as_secs().to_string()),
            ("shortPollingTimeMills", millis(self.short_polling)),
            ("storePathCommitLog", list(&store.commit_log_dirs())),
            ("storePathRootDir", store.root.display().to_string()),
            ("syncFlushTimeout", millis(self.sync_flush_timeout)),
            ("traceOn", self.trace_on.to_string()),
            ("traceTopicEnable", self.trace_topic.to_string()),
        ]
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
        let config = BrokerConfig { store: StoreConfig::new("DIR"), ..BrokerConfig::default() };
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

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

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
    /// Folder of the commit log files; `store_root/commitlog` when absent (`storePathCommitLog`).
    pub commit_log_dir: Option<PathBuf>,
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
    /// `maxMessageSize`, default 4 MiB: largest message body.
    pub max_message_size: usize,
    /// `maxTransferBytesOnMessageInMemory`, default 256 KiB (a pull's own `maxMsgBytes` may ask for less).
    pub max_transfer_bytes: usize,
    /// `pullBatchMaxMessageCount`-like cap on the messages of one pull (Apache: 32 in memory); default 4096.
    pub max_transfer_messages: usize,
    /// `flushDiskType`.
    pub flush: FlushDiskType,
    /// `flushIntervalCommitLog`, default 500 ms.
    pub flush_interval: Duration,
    /// `syncFlushTimeout`, default 5 s.
    pub sync_flush_timeout: Duration,
    /// `mappedFileSizeCommitLog`, default 1 GiB.
    pub commit_log_file_size: u64,
    /// `mappedFileSizeConsumeQueue`, default 6,000,000.
    pub consume_queue_file_size: u64,
    /// Whole-record check of every record (`enabledAppendPropCRC`; default true here, false in Apache's).
    pub record_check: bool,
    /// Largest frame that is accepted, default 16 MiB (`com.rocketmq.remoting.frameMaxLength`).
    pub max_frame_bytes: usize,
    /// Most client connections, default 65,536.
    pub max_connections: usize,
    /// `serverChannelMaxIdleTimeSeconds`, default 120 s.
    pub idle_timeout: Duration,
}

//! Configuration of a broker.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rocketpy_auth::Guard;
use rocketpy_model::{Permission, port, system};
use rocketpy_protocol::settings::{ConfigChange, ConfigEntries, SettingError};
use rocketpy_remoting::{
    Client, ClientConfig, ClientTls, Credentials, MemoryBudget, RequestHook, ServerTls, Signer,
};
use rocketpy_store::{DelayLevels, StoreConfig};

use crate::ha::ReplicationConfig;
use crate::metrics::MetricsConfig;

/// The port of a broker, as with Apache.
pub const DEFAULT_PORT: u16 = port::BROKER;

/// How a running broker is reached, as it turned out at start.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint<'a> {
    /// The address that it listens on.
    pub listen_ip: IpAddr,
    /// The port that it listens on, the real one.
    pub port: u16,
    /// The host that is announced to clients.
    pub advertised_host: &'a str,
    /// Its id among the brokers of its name at this moment; 0 is the master.
    pub broker_id: u64,
}

/// The configuration as text by key, in the words of the process that read it.
pub trait ConfigText: fmt::Debug + Send + Sync {
    /// Keys and values of a broker with this configuration that is reached there.
    fn lines(&self, config: &BrokerConfig, endpoint: &Endpoint<'_>) -> Vec<(&'static str, String)>;

    /// The keys of [`ConfigText::lines`] with type and layer of each value.
    fn entries(&self, config: &BrokerConfig, endpoint: &Endpoint<'_>) -> ConfigEntries {
        let _ = (config, endpoint);
        ConfigEntries::default()
    }

    /// The configuration with a change of live values. Nothing is saved.
    ///
    /// # Errors
    /// A part of the change is not allowed; then none of it is.
    fn changed(&self, config: &BrokerConfig, change: &ConfigChange) -> Result<BrokerConfig, SettingError>;

    /// Saves an allowed change. Returns a note for the operator.
    ///
    /// # Errors
    /// [`SettingError::NotKept`].
    fn keep(&self, change: &ConfigChange) -> Result<Option<String>, SettingError> {
        let _ = change;
        Ok(None)
    }
}

/// The text of a broker that was started without one: no key has a name.
#[derive(Debug)]
struct NoText;

impl ConfigText for NoText {
    fn lines(&self, _config: &BrokerConfig, _endpoint: &Endpoint<'_>) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn changed(&self, _config: &BrokerConfig, _change: &ConfigChange) -> Result<BrokerConfig, SettingError> {
        Err(SettingError::Fixed("this broker was started without keys".to_owned()))
    }
}

/// Intervals of background work that no key sets.
#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    /// Pause between two requests of a slave for its master's topics, groups, offsets and progress. Default 3 s.
    pub ask_master: Duration,
    /// All held pulls are checked again: a filter may have skipped the message that woke them. Default 5 s.
    pub scan_held_pulls: Duration,
    /// Silent clients expire. Default 10 s.
    pub expire_clients: Duration,
    /// Time for which a slave does not follow a master that it left for a promotion, unless it finds another one. Default 30 s: longer than
    /// a promotion takes, and the registration after it.
    pub stay_away: Duration,
    /// Time in which a group may read the bytes of its limit of cold reads. Default 5 s.
    pub cold_reads: Duration,
}

impl Default for Intervals {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            ask_master: seconds(3),
            scan_held_pulls: seconds(5),
            expire_clients: seconds(10),
            stay_away: seconds(30),
            cold_reads: seconds(5),
        }
    }
}

/// Which topics a broker has, and which it lets others create.
#[derive(Clone, Copy, Debug)]
pub struct TopicRules {
    /// `autoCreateTopicEnable`, default true: whether a send to an unknown topic creates it.
    pub auto_create: bool,
    /// `clusterTopicEnable`, default true: whether a topic with the name of the cluster exists.
    pub of_cluster: bool,
    /// `brokerTopicEnable`, default true: whether a topic with the name of the broker exists.
    pub of_broker: bool,
    /// `enableMixedMessageType`, default false: whether a topic may have the label MIXED.
    pub mixed: bool,
}

impl Default for TopicRules {
    fn default() -> Self {
        Self { auto_create: true, of_cluster: true, of_broker: true, mixed: false }
    }
}

/// Maximum number of messages that one look-up returns.
#[derive(Clone, Copy, Debug)]
pub struct LookUpLimits {
    /// `maxMsgsNumBatch`, default 64: by key.
    pub by_key: u32,
    /// `defaultQueryMaxNum`, default 32: by unique key.
    pub by_unique_key: u32,
}

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
    /// Id among the brokers of the same name at the start, default 0: the master. Any other id is a slave, which holds a copy of what its
    /// master has (`brokerId`; `brokerRole` has to agree).
    pub broker_id: u64,
    /// Whether a slave serves pulls, and a master sends readers there that are far behind (`slaveReadEnable`, default false).
    pub slave_read: bool,
    /// Replication settings of masters and slaves.
    pub replication: ReplicationConfig,
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
    /// Maximum number of topics; more are refused. Default 100,000.
    pub max_topics: usize,
    /// Maximum number of consumer groups; more are refused. Default 100,000.
    pub max_groups: usize,
    /// Which topics there are, and may be.
    pub topics: TopicRules,
    /// `autoCreateSubscriptionGroup`, default true.
    pub auto_create_group: bool,
    /// `longPollingEnable`, default true.
    pub long_polling: bool,
    /// `shortPollingTimeMills`, default 1 s: how long a pull is held when long polling is off.
    pub short_polling: Duration,
    /// `maxHeldPulls`, default 100,000: most pulls held at a time, and again most requests that wait for dispatch; one more is
    /// answered SYSTEM_BUSY.
    pub max_held_pulls: usize,
    /// `maxHeldBytes`, default 256 MiB: most memory of all held pulls, and again of all
    /// requests that wait for dispatch; beyond it the answer is SYSTEM_BUSY.
    pub max_held_bytes: usize,
    /// `maxFilterBytes`, default 64 KiB: longest filter expression of a subscription; a longer one is answered
    /// SUBSCRIPTION_PARSE_FAILED.
    pub max_filter_bytes: usize,
    /// `maxPeerBytes`, default 512 MiB: what all connections together make the broker hold in memory.
    pub max_peer_bytes: usize,
    /// The budget that the parts of a process share; `None`: one of its own, of `max_peer_bytes`.
    pub memory: Option<Arc<MemoryBudget>>,
    /// TLS of the ports, and towards other servers.
    pub tls: Tls,
    /// Users of the ports, and the user of the broker's own requests.
    pub auth: Auth,
    /// Intervals of background work.
    pub intervals: Intervals,
    /// `notifyConsumerIdsChangedEnable`, default true.
    pub notify_consumer_ids_changed: bool,
    /// `useServerSideResetOffset`, default true: a member of a group that is set to other offsets goes there with its next pull. Else
    /// the broker stores nothing, and tells the members.
    pub server_side_reset: bool,
    /// `litePullMessageEnable`, default true.
    pub lite_pull: bool,
    /// `registerNameServerPeriod`, default 30 s, clamped to 10..60 s.
    pub register_period: Duration,
    /// `registerBrokerTimeoutMills`, default 24 s.
    pub register_timeout: Duration,
    /// How long the answer to a topic creation waits for name servers to take it, so that a route query right after it finds
    /// the topic; default 2 s.
    pub announce_wait: Duration,
    /// `flushConsumerOffsetInterval`, default 5 s.
    pub persist_offsets_every: Duration,
    /// `rejectTransactionMessage`, default false.
    pub reject_transactions: bool,
    /// `transactionTimeOut`, default 6 s: how old a half message gets before its producer is asked for the first time.
    pub transaction_timeout: Duration,
    #[doc(alias = "messageDelayLevel")]
    pub delay_levels: DelayLevels,
    /// `transactionCheckInterval`, default 30 s: time between two questions for the same half message.
    pub transaction_check_interval: Duration,
    /// `transactionCheckMax`, default 15: questions for a half message; then it is given up.
    pub transaction_check_max: u32,
    /// `timerMaxDelaySec`, default 3 days: how far ahead the time of a timer message may be.
    pub max_timer_delay: Duration,
    /// `recallMessageEnable`, default true (Apache: false): whether a message that waits for its time may be recalled.
    pub recalls: bool,
    /// `storeReplyMessageEnable`, default true: whether replies are stored, besides being pushed to their clients.
    pub store_replies: bool,
    /// `channelExpiredTimeout`, default 120 s: how long a silent client stays in its groups.
    pub client_expiry: Duration,
    /// Maximum number of bytes of one pull's answer (`maxTransferBytesOnMessageInMemory`), default 1 MiB. A pull that states no
    /// `maxMsgBytes` gets 256 KiB, Apache's limit.
    pub max_transfer_bytes: usize,
    /// Maximum number of messages of one pull's answer (`maxTransferCountOnMessageInMemory`), default 4096 (Apache: 32).
    pub max_transfer_messages: usize,
    /// `syncFlushTimeout`, default 5 s.
    pub sync_flush_timeout: Duration,
    /// Messages of one look-up.
    pub look_ups: LookUpLimits,
    /// Maximum length of the body of a client's message, or of its batch as a whole, in bytes (`maxMessageSize`). Default 4 MiB. What the broker
    /// itself stores has no such limit.
    pub max_message_size: u32,
    /// Maximum size of a frame, default 16 MiB (`com.rocketmq.remoting.frameMaxLength`).
    pub max_frame_bytes: usize,
    /// Maximum number of client connections, default 65,536.
    pub max_connections: usize,
    /// `serverChannelMaxIdleTimeSeconds`, default 120 s.
    pub idle_timeout: Duration,
    /// Which metrics are shown, and how.
    pub metrics: MetricsConfig,
    /// Writes what GET_BROKER_CONFIG answers; default nothing.
    pub text: Arc<dyn ConfigText>,
}

/// Users and policies of a broker.
#[derive(Debug, Clone, Default)]
pub struct Auth {
    /// Checks every request; `None`: users are off.
    pub guard: Option<Arc<Guard>>,
    /// User that signs requests to name servers and other brokers (`innerClientAuthenticationCredentials`). With users on, the broker and
    /// its slaves prove it to each other.
    pub credentials: Option<Credentials>,
}

/// TLS of a broker.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Of its ports; `None`: connections are plain.
    pub server: Option<Arc<ServerTls>>,
    /// Towards name servers and other brokers (`useTLS`); `None`: connections are plain.
    pub client: Option<Arc<ClientTls>>,
}

impl BrokerConfig {
    /// A client for calls to name servers and other brokers.
    pub(crate) fn new_client(&self) -> Client {
        let signer = self.auth.credentials.clone().map(Signer::new);
        let hook = signer.map(|signer| Arc::new(signer) as Arc<dyn RequestHook>);
        Client::new(ClientConfig { hook, tls: self.tls.client.clone(), ..ClientConfig::default() })
    }

    /// TLS towards a master's port for slaves; `None`: the connection is plain.
    pub(crate) fn tls_to_master(&self) -> Option<Arc<ClientTls>> {
        self.tls.client.clone().filter(|_| self.replication.uses_tls)
    }
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            store: StoreConfig::new("store"),
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DEFAULT_PORT),
            vip_channel: false,
            advertised_host: None,
            name_servers: Vec::new(),
            cluster_name: "DefaultCluster".to_owned(),
            broker_name: "broker-a".to_owned(),
            broker_id: system::MASTER_ID,
            slave_read: false,
            replication: ReplicationConfig::default(),
            broker_permission: Permission::READ_WRITE.bits(),
            region_id: system::DEFAULT_REGION.to_owned(),
            trace_on: true,
            trace_topic: false,
            trace_topic_name: system::TRACE_TOPIC.to_owned(),
            default_topic_queues: 8,
            max_topics: 100_000,
            max_groups: 100_000,
            topics: TopicRules::default(),
            auto_create_group: true,
            long_polling: true,
            short_polling: Duration::from_secs(1),
            max_held_pulls: 100_000,
            max_held_bytes: 256 << 20,
            max_filter_bytes: 64 << 10,
            max_peer_bytes: MemoryBudget::DEFAULT_BYTES,
            memory: None,
            tls: Tls::default(),
            auth: Auth::default(),
            intervals: Intervals::default(),
            notify_consumer_ids_changed: true,
            server_side_reset: true,
            lite_pull: true,
            register_period: Duration::from_secs(30),
            register_timeout: Duration::from_secs(24),
            announce_wait: Duration::from_secs(2),
            persist_offsets_every: Duration::from_secs(5),
            reject_transactions: false,
            transaction_timeout: Duration::from_secs(6),
            delay_levels: DelayLevels::default(),
            transaction_check_interval: Duration::from_secs(30),
            transaction_check_max: 15,
            max_timer_delay: Duration::from_secs(259_200),
            recalls: true,
            store_replies: true,
            client_expiry: Duration::from_secs(120),
            max_transfer_bytes: 1 << 20,
            max_transfer_messages: 4096,
            sync_flush_timeout: Duration::from_secs(5),
            look_ups: LookUpLimits { by_key: 64, by_unique_key: 32 },
            max_message_size: 4 << 20,
            max_frame_bytes: 16 << 20,
            max_connections: 65_536,
            idle_timeout: Duration::from_secs(120),
            metrics: MetricsConfig::default(),
            text: Arc::new(NoText),
        }
    }
}

//! The table of keys: each is entered here once, and read, printed, described and documented from here.

use std::path::PathBuf;
use std::time::Duration;

use rocketpy_broker::{BrokerRole, ClientVerification, FlushMode, OnFailedFlush, TlsMode};
use rocketpy_model::name;

use super::ServerConfig;
use super::auth::{Codes, FIRST_USER, PEER_USER};
use super::exporter::{Collector, Exporter, Headers, Labels};
use super::key::{Apache, Key, Section};
use super::kind::{
    Address, Addresses, Choice, DayHours, File, Folder, Folders, Holds, Host, Ips, Kind, Levels, Maybe, Name,
    Permissions, Plain, Port, Secret, Switch, Whole, hours, millis, seconds,
};

const DAY_MS: i64 = 86_400_000;
const MIB: i64 = 1 << 20;
/// A number of bytes without a bound of its own.
const ANY: i64 = i64::MAX;

const FLUSH_MODES: &[(&str, FlushMode)] =
    &[(FlushMode::Async.apache_name(), FlushMode::Async), (FlushMode::Sync.apache_name(), FlushMode::Sync)];
const ROLES: &[(&str, BrokerRole)] = &[
    ("ASYNC_MASTER", BrokerRole::AsyncMaster),
    ("SYNC_MASTER", BrokerRole::SyncMaster),
    ("SLAVE", BrokerRole::Slave),
];
const TLS_MODES: &[(&str, TlsMode)] = &[
    ("disabled", TlsMode::Disabled),
    ("permissive", TlsMode::Permissive),
    ("enforcing", TlsMode::Enforcing),
];
const CLIENT_VERIFICATION: &[(&str, ClientVerification)] = &[
    ("none", ClientVerification::None),
    ("optional", ClientVerification::Optional),
    ("require", ClientVerification::Require),
];
const FAILED_FLUSH: &[(&str, OnFailedFlush)] =
    &[("STOP", OnFailedFlush::Stop), ("REFUSE", OnFailedFlush::Refuse)];

/// One row: description, `"key" = kind => [field]`, and where Apache differs: `ours`, `apache "default"`, or
/// `alias "key"` for a second name of our own. Behind that, `changeable` says that the key may change while a server runs. A value
/// that is not one field is `{|config| get, |config, value| set}`.
macro_rules! keys {
    ($($section:ident {
        $($(#[doc = $text:literal])+ $name:literal = $kind:expr => $target:tt $(, $mark:ident $($with:literal)?)*;)*
    })*) => {
        &[$($(Key {
            name: $name,
            section: Section::$section,
            description: concat!($($text),+),
            apache: keys!(@apache $($mark $($with)?),*),
            alias_of: keys!(@alias $($mark $($with)?),*),
            is_changeable: keys!(@changeable $($mark $($with)?),*),
            shape: || Kind::shape(&$kind),
            get: keys!(@get $kind, $target),
            set: keys!(@set $kind, $target),
        },)*)*]
    };
    (@get $kind:expr, [$($field:ident).+]) => { |config| Holds::value(&$kind, &config.$($field).+) };
    (@set $kind:expr, [$($field:ident).+]) => {
        |config, text| { config.$($field).+ = Holds::parse(&$kind, text)?; Ok(()) }
    };
    (@get $kind:expr, {|$config:ident| $get:expr, |$into:ident, $value:ident| $set:expr}) => {
        |$config| Holds::value(&$kind, &$get)
    };
    (@set $kind:expr, {|$config:ident| $get:expr, |$into:ident, $value:ident| $set:expr}) => {
        |$into, text| { let $value = Holds::parse(&$kind, text)?; $set; Ok(()) }
    };
    (@apache $(changeable)?) => { Apache::Same };
    (@apache apache $default:literal $(, changeable)?) => { Apache::Default($default) };
    (@apache ours $(, changeable)?) => { Apache::Unknown };
    (@apache alias $key:literal $(, changeable)?) => { Apache::Unknown };
    (@alias alias $key:literal $(, changeable)?) => { Some($key) };
    (@alias $($other:tt)*) => { None };
    (@changeable changeable) => { true };
    (@changeable $differs:ident $($with:literal)?, changeable) => { true };
    (@changeable $($other:tt)*) => { false };
}

/// Every key that is used, in the order of the page of keys.
pub const KEYS: &[Key] = keys! {
    Network {
        /// Address or host that every part of the server listens on.
        "bindAddress" = Host => [host], apache "0.0.0.0";
        /// Port of the broker; 0 selects a free one. Without a broker, port of the name server.
        "listenPort" = Port => {|c| c.port.unwrap_or(rocketpy_broker::DEFAULT_PORT), |c, v| c.port = Some(v)};
        /// Name servers where the broker registers; `rocketpy server` registers at its own.
        "namesrvAddr" = Addresses => [broker.name_servers];
        /// Cluster that the broker belongs to.
        "brokerClusterName" = Name(name::check_cluster) => [broker.cluster_name];
        /// Name of the broker in its cluster.
        "brokerName" = Name(name::check_broker) => [broker.broker_name], apache "the host's name";
        /// Address or host that clients connect to. Default: the address the broker listens on, or for 0.0.0.0 the address
        /// of this machine's outgoing connections.
        "brokerIP1" = Maybe(Host) => [broker.advertised_host], apache "the first address found";
        /// Permissions of clients: 4 read, 2 write, 6 both, 0 none. Routes have no more than these. After the write permission is
        /// removed at run time, the broker accepts messages for 60 s more, until clients have read the route.
        "brokerPermission" = Permissions => [broker.broker_permission], changeable;
        /// Region that the broker writes into every message.
        "regionId" = Plain => [broker.region_id];
        /// Interval between registrations; values below 10,000 count as 10,000, values above 60,000 as 60,000.
        "registerNameServerPeriod" = millis(0, DAY_MS) =>
            {|c| c.broker.register_period, |c, v| c.broker.register_period = within_a_minute(v)};
        /// Timeout for a name server's answer to a registration.
        "registerBrokerTimeoutMills" = millis(100, DAY_MS) => [broker.register_timeout];
        /// Idle time after which the broker and the name server close a connection.
        "serverChannelMaxIdleTimeSeconds" = seconds(1, DAY_MS / 1000) =>
            {|c| c.broker.idle_timeout, |c, v| {
                c.broker.idle_timeout = v;
                c.name_server.idle_timeout = v;
            }};
        /// Time without a heartbeat after which a client leaves its groups.
        "channelExpiredTimeout" = millis(1000, DAY_MS) => [broker.client_expiry], changeable;
    }
    Replication {
        /// ASYNC_MASTER acknowledges a send before slaves have the message, SYNC_MASTER after; a SLAVE copies the log of
        /// the master of its broker name.
        "brokerRole" = Choice(ROLES) => [broker.replication.role];
        /// Id among the brokers of one name: 0 for the master, a different number for each slave.
        "brokerId" = Whole(0, ANY, "id") => [broker.broker_id];
        /// Replication address of the master for a slave, as `host:port`. Default: the address from the name servers and
        /// the master.
        "haMasterAddress" = Maybe(Address) => [broker.replication.master_address];
        /// Whether a slave serves pulls, and a master redirects consumers with a large lag to it.
        "slaveReadEnable" = Switch => [broker.slave_read];
        /// Port for slaves, at the address that clients connect to; 0 selects a free one. Default: no port, except for a
        /// SYNC_MASTER and a promoted slave, which use `listenPort` + 1, or a free port if that one is in use.
        "haListenPort" = Maybe(Port) => [broker.replication.port], apache "`listenPort` + 1";
        /// Number of brokers, the master included, that must have a message before a SYNC_MASTER acknowledges its send.
        /// With 1 the master waits for no slave and logs a warning at the start.
        "inSyncReplicas" = Whole(1, 17, "brokers") => {
            |c| c.broker.replication.in_sync_replicas.unwrap_or(2),
            |c, v| c.broker.replication.in_sync_replicas = Some(v)
        }, apache "1";
        /// Timeout for slaves to store a message. After it the send is answered FLUSH_SLAVE_TIMEOUT: the master has the
        /// message.
        "slaveTimeout" = millis(1, DAY_MS) => [broker.replication.slave_timeout], changeable;
        /// Maximum lag of a slave that sends wait for. With too few other slaves a send is answered SLAVE_NOT_AVAILABLE at
        /// once: the master has the message.
        "haSlaveFallbehindMax" = Whole(1, ANY, "bytes") => [broker.replication.max_behind_bytes];
        /// Readers of a SYNC_MASTER see a message once `inSyncReplicas` brokers have it. If slaves confirm nothing for this time,
        /// readers see every message of the master until its slaves have caught up. 0: readers never wait for slaves.
        "haMaxTimeSlaveNotCatchup" = millis(0, DAY_MS) => [broker.replication.max_not_caught_up];
        /// Interval of heartbeats to a slave that receives no other data.
        "haSendHeartbeatInterval" = millis(10, DAY_MS) => [broker.replication.heartbeat_every];
        /// Time without a report after which a slave is disconnected.
        "haHousekeepingInterval" = millis(10, DAY_MS) => [broker.replication.silence_limit];
        /// Timeout for sync-back: after a sudden end, a master that starts requests the lost end of its log from its
        /// slaves. 0 disables it.
        "haSyncBackTimeout" = millis(0, DAY_MS) => [broker.replication.sync_back_timeout];
        /// Maximum number of log bytes in one frame for a slave. RocketPy's slaves receive up to 256 KiB, Apache's slaves
        /// accept less than 4 MiB.
        "haTransferBatchSize" = Whole(1024, 4 * MIB - 12, "bytes") => [broker.replication.frame_bytes];
        /// Whether `maxHaTransferByteInSecond` limits the transfer to each slave, so that a slave far behind leaves disk
        /// and network to clients. Sends of a SYNC_MASTER wait for the limited transfer too.
        "haFlowControlEnable" = Switch => [broker.replication.is_bounded];
        /// Maximum number of log bytes per second for each slave, if `haFlowControlEnable` is true.
        "maxHaTransferByteInSecond" = Whole(4096, 1 << 40, "bytes") => [broker.replication.max_bytes_per_second];
    }
    Topics {
        /// Maximum number of queues of a topic that its first message creates. The sender requests a number: RocketPy's and
        /// Apache's clients request 4.
        "defaultTopicQueueNums" = Whole(1, 16_384, "queues") => [broker.default_topic_queues], changeable;
        /// Whether the first message of an unknown topic creates it.
        "autoCreateTopicEnable" = Switch => [broker.topics.auto_create], changeable;
        /// Whether the first consumer of an unknown group creates it.
        "autoCreateSubscriptionGroup" = Switch => [broker.auto_create_group], changeable;
        /// Whether a topic with the name of the cluster exists.
        "clusterTopicEnable" = Switch => [broker.topics.of_cluster];
        /// Whether a topic with the name of the broker exists.
        "brokerTopicEnable" = Switch => [broker.topics.of_broker];
        /// Whether a topic may have the label MIXED (`+message.type=MIXED`). The label changes nothing else: each topic takes messages of all types.
        "enableMixedMessageType" = Switch => [broker.topics.mixed], changeable;
        /// Whether the broker advises clients to trace their messages.
        "traceOn" = Switch => [broker.trace_on];
        /// Whether the trace topic exists.
        "traceTopicEnable" = Switch => [broker.trace_topic];
        /// Name of the trace topic.
        "msgTraceTopicName" = Name(name::check_topic) => [broker.trace_topic_name];
        /// Whether the broker notifies the members of a group at once when one joins or leaves.
        "notifyConsumerIdsChangedEnable" = Switch => [broker.notify_consumer_ids_changed], changeable;
        /// Whether the broker itself resets the offsets of a running group, which its members use from their next pulls.
        /// Otherwise the broker notifies online members, and they store the offsets.
        "useServerSideResetOffset" = Switch => [broker.server_side_reset], changeable;
        /// Interval between writes of `consumerOffset.json`, if offsets changed.
        "flushConsumerOffsetInterval" = millis(100, DAY_MS) => [broker.persist_offsets_every];
        /// Whether replies to requests are also stored in the cluster's reply topic, in addition to the push to their
        /// clients.
        "storeReplyMessageEnable" = Switch => [broker.store_replies], changeable;
    }
    Transactions {
        /// Whether the broker refuses half messages.
        "rejectTransactionMessage" = Switch => [broker.reject_transactions], changeable;
        /// Age of a half message at its first check-back.
        "transactionTimeOut" = millis(0, DAY_MS) => [broker.transaction_timeout], changeable;
        /// Interval between check-backs of the same half message.
        "transactionCheckInterval" = millis(100, DAY_MS) => [broker.transaction_check_interval], changeable;
        /// Maximum number of check-backs of a half message, restarts included; then it is moved to
        /// `TRANS_CHECK_MAX_TIME_TOPIC`.
        "transactionCheckMax" = Whole(1, 1_000_000, "questions") => [broker.transaction_check_max], changeable;
    }
    Timers {
        /// Delays of the delay levels: up to 64 in s, m, h or d, level 1 first. A start accepts new delays if no message
        /// waits by the previous ones.
        "messageDelayLevel" = Levels => [broker.delay_levels];
        /// Maximum delay of a timer message (TIMER_DELIVER_MS, TIMER_DELAY_MS or TIMER_DELAY_SEC), and maximum
        /// CHECK_IMMUNITY_TIME_IN_SECONDS of a half message.
        "timerMaxDelaySec" = seconds(1, 100 * 365 * DAY_MS / 1000) => [broker.max_timer_delay], changeable;
        /// Whether a timer message can be recalled before its delivery.
        "recallMessageEnable" = Switch => [broker.recalls], apache "false", changeable;
    }
    Reading {
        /// Whether a pull that finds no message is held for the time that its client requests.
        "longPollingEnable" = Switch => [broker.long_polling], changeable;
        /// Time for which a pull that finds no message is held if `longPollingEnable` is false.
        "shortPollingTimeMills" = millis(0, DAY_MS) => [broker.short_polling], changeable;
        /// Whether lite pull consumers may pull.
        "litePullMessageEnable" = Switch => [broker.lite_pull], changeable;
        /// Maximum number of bytes in the answer to one pull. A client that states no limit receives at most 262144.
        "maxTransferBytesOnMessageInMemory" = Whole(100, 8 * MIB, "bytes") => [broker.max_transfer_bytes],
            apache "262144", changeable;
        /// Maximum number of messages in the answer to one pull. A client never receives more than it requests.
        "maxTransferCountOnMessageInMemory" = Whole(1, 1 << 20, "messages") => [broker.max_transfer_messages],
            apache "32", changeable;
        /// Maximum number of messages that one query by key returns.
        "maxMsgsNumBatch" = Whole(1, 10_000, "messages") => [broker.look_ups.by_key], changeable;
        /// Maximum number of messages that one query by unique key returns.
        "defaultQueryMaxNum" = Whole(1, 10_000, "messages") => [broker.look_ups.by_unique_key], changeable;
    }
    Store {
        /// Folder of the store; a folder on the command line has priority.
        "storePathRootDir" = Folder => [broker.store.root], apache "~/store";
        /// Folders of the commit log, one or several on separate disks: new files alternate between them. Default:
        /// `commitlog` in the folder of the store.
        "storePathCommitLog" = Maybe(Folders { least: 1 }) =>
            {|c| commit_log_dirs(c), |c, v| set_commit_log_dirs(c, v)};
        /// Folders of the commit log without new files; their files are read, and removed by retention.
        "readOnlyCommitLogStorePaths" = Folders { least: 0 } => [broker.store.read_only_commit_log_dirs];
        /// Size of one commit log file, allocated in full. A store keeps the size of its files: without the key they decide,
        /// and a different value is an error. A new store has files of 1 GiB if the server is started with a broker.conf
        /// (Java properties) without the key. Master and slaves need the same size. Apache 3.x and 4.0 call it
        /// `mapedFileSizeCommitLog`, an accepted spelling.
        "mappedFileSizeCommitLog" = Whole(16_384, (1 << 31) - 1, "bytes") => [broker.store.commit_log_file_size], apache "1073741824";
        /// Size of one consume queue file, 20 bytes per message. Apache 3.x and 4.0 call it `mapedFileSizeConsumeQueue`, an
        /// accepted spelling.
        "mappedFileSizeConsumeQueue" = Whole(20, 1 << 30, "bytes") => [broker.store.consume_queue_file_size];
        /// Maximum size of a message body, or of a whole batch, that a client sends. The properties of a message have at most 30,207
        /// bytes: a record holds 32,767, and 2,560 are reserved for retries, dead letters and other copies.
        "maxMessageSize" = Whole(1, 1 << 30, "bytes") => [broker.max_message_size], changeable;
        /// Time of the acknowledgement: ASYNC_FLUSH before the flush, SYNC_FLUSH after it.
        "flushDiskType" = Choice(FLUSH_MODES) => [broker.store.flush];
        /// Interval between flushes of the commit log under ASYNC_FLUSH.
        "flushIntervalCommitLog" = millis(1, DAY_MS) => [broker.store.flush_interval];
        /// Minimum number of dirty pages for a flush under ASYNC_FLUSH, until `flushCommitLogThoroughInterval` has passed;
        /// a checkpoint flushes the log as well (`flushIntervalConsumeQueue`).
        "flushCommitLogLeastPages" = Whole(0, 1 << 20, "pages of 4 KiB") => [broker.store.flush_least_pages], apache "4";
        /// Time after which a flush ignores `flushCommitLogLeastPages`; relevant only with a longer
        /// `flushIntervalConsumeQueue`.
        "flushCommitLogThoroughInterval" = millis(1, DAY_MS) => [broker.store.flush_thorough_interval];
        /// Interval between checkpoints, each with a flush of log, consume queues and index; 128 MiB of messages trigger
        /// one earlier. The interval limits the part of the log that a start reads.
        "flushIntervalConsumeQueue" = millis(10, DAY_MS) => [broker.store.checkpoint_interval];
        /// Timeout of a send that waits for the next log file, the disk (`maxUnflushedBytes`) or dispatch
        /// (`maxUndispatchedBytes`); then it is answered SYSTEM_BUSY.
        "osPageCacheBusyTimeOutMills" = millis(1, DAY_MS) => [broker.store.busy_timeout];
        /// Timeout for the flush of a message under SYNC_FLUSH. After it the send is answered FLUSH_DISK_TIMEOUT: the
        /// message is stored, and may or may not be durable.
        "syncFlushTimeout" = millis(1, DAY_MS) => [broker.sync_flush_timeout], changeable;
        /// Whether every record has a whole-record checksum.
        "enabledAppendPropCRC" = Switch => [broker.store.record_check], apache "false";
        /// Whether messages can be queried by key. Of one message the unique key and the first different keys are indexed: 64 in any
        /// case, and more as long as their entries are not longer than their text. After the key is turned on again, the next start
        /// builds the missing part of the index from the log.
        "messageIndexEnable" = Switch => [broker.store.index];
        /// Number of hash slots of one index file, each 4 bytes of memory once used; after a change the next start rebuilds
        /// the index.
        "maxHashSlotNum" = Whole(1, 100_000_000, "slots") => [broker.store.index_slots];
        /// Number of entries of one index file, 20 bytes each on disk; after a change the next start rebuilds the index.
        "maxIndexNum" = Whole(2, 2_000_000_000, "entries") => [broker.store.index_entries];
    }
    Retention {
        /// Minimum age of a log file, since its last write, before retention removes it.
        "fileReservedTime" = hours(0, 1_000_000) => [broker.store.retention.reserved_time], changeable;
        /// Hours of the local day in which expired files are removed, as `04;16`.
        "deleteWhen" = DayHours => [broker.store.retention.delete_hours], changeable;
        /// Disk usage in percent above which expired files are removed at any hour; limited to 10 to 95.
        "diskMaxUsedSpaceRatio" = Whole(0, 100, "percent") => [broker.store.retention.max_used_percent], changeable;
        /// Disk usage in percent above which the oldest files are removed regardless of age, until the usage is below it;
        /// limited to 30 to 85.
        "diskSpaceCleanForciblyRatio" = Whole(0, 100, "percent") => [broker.store.retention.force_used_percent], changeable;
        /// Disk usage in percent above which messages are refused, until it is below `diskSpaceCleanForciblyRatio`; limited
        /// to 35 to 90.
        "diskSpaceWarningLevelRatio" = Whole(0, 100, "percent") => [broker.store.retention.refuse_used_percent], changeable;
        /// Whether unexpired files may be removed when the disk fills up.
        "cleanFileForciblyEnable" = Switch => [broker.store.retention.clean_forcibly], changeable;
        /// Interval between rounds of retention and disk checks; the first round starts after a minute, the first check at
        /// the start.
        "cleanResourceInterval" = millis(1, DAY_MS) => [broker.store.retention.interval], changeable;
        /// Maximum number of log files that one retention round removes.
        "deleteFileBatchMax" = Whole(1, 1_000_000, "files") => [broker.store.retention.files_a_round], changeable;
        /// Pause after the removal of a log file.
        "deleteCommitLogFilesInterval" = millis(0, DAY_MS) => [broker.store.retention.log_file_pause], changeable;
        /// Pause after the removal of a consume queue file.
        "deleteConsumeQueueFilesInterval" = millis(0, DAY_MS) => [broker.store.retention.queue_file_pause], changeable;
    }
    NameServer {
        /// Port of the name server; 0 selects a free one.
        "nameServerPort" = Port =>
            {|c| c.name_server_port.unwrap_or(rocketpy_namesrv::DEFAULT_PORT), |c, v| c.name_server_port = Some(v)}, ours;
        /// File of the key-value configuration (Apache's `kvConfig.json`). Default: in `config` of the store's folder if a
        /// broker runs in the same process, otherwise memory only.
        "kvConfigPath" = Maybe(File) => [name_server.kv_config_path], apache "~/namesrv/kvConfig.json";
        /// Whether routes contain the order configuration of the KV store.
        "orderMessageEnable" = Switch => [name_server.order_message_enabled], changeable;
        /// Interval between checks for brokers that timed out.
        "scanNotActiveBrokerInterval" = millis(10, DAY_MS) => [name_server.scan_interval], changeable;
    }
    Tls {
        /// Connections that the ports accept: `disabled` plain ones, `permissive` plain and TLS ones, `enforcing` TLS ones only.
        /// Without a certificate, `permissive` means plain ones.
        "tlsServerMode" = Choice(TLS_MODES) => [tls.server.mode], ours;
        /// PEM file of the server's certificate, followed by those of its intermediate authorities. A changed file is used
        /// within seconds, without a restart.
        "tlsServerCertPath" = Maybe(File) => [tls.server.cert], ours;
        /// PEM file of its private key: PKCS#8, also encrypted (PBES2), PKCS#1 or SEC1.
        "tlsServerKeyPath" = Maybe(File) => [tls.server.key], ours;
        /// Password of the key. It is never shown.
        "tlsServerKeyPassword" = Maybe(Secret) => [tls.server.key_password], ours;
        /// Whether clients need a certificate: `none`, `optional` or `require`. One that is given is always verified.
        "tlsServerNeedClientAuth" = Choice(CLIENT_VERIFICATION) => [tls.server.client_verification], ours;
        /// PEM file of the authorities of client certificates.
        "tlsServerTrustCertPath" = Maybe(File) => [tls.server.trust], ours;
        /// File with Apache's `tls.*` properties, whose values win over the other sources. Apache's default is not read.
        "tlsConfigFile" = Maybe(File) => [tls.config_file], ours;
        /// Whether the broker connects to name servers and other brokers by TLS, and verifies their certificates and hosts. A
        /// server with its own name server under `enforcing` does so without it, and trusts its own certificate only.
        "useTLS" = Switch => [tls.is_used];
        /// PEM file of the authorities that the broker trusts. Default: those of the system.
        "tlsClientTrustCertPath" = Maybe(File) => [tls.client_trust], ours;
        /// Whether the broker verifies the certificate and the host of the servers that it connects to.
        "tlsClientAuthServer" = Switch => [tls.verifies_servers], ours;
        /// PEM file of the certificate that the broker shows.
        "tlsClientCertPath" = Maybe(File) => [tls.client.cert], ours;
        /// PEM file of its private key.
        "tlsClientKeyPath" = Maybe(File) => [tls.client.key], ours;
        /// Password of that key. It is never shown.
        "tlsClientKeyPassword" = Maybe(Secret) => [tls.client.key_password], ours;
        /// Whether a slave connects to its master's port for slaves by TLS; needs `useTLS`. Apache's masters have none there.
        "haUseTLS" = Switch => [broker.replication.uses_tls], ours;
    }
    Auth {
        /// Whether each request needs the signature of a user. Broker and name server check it.
        "authenticationEnabled" = Switch => [auth.authenticates];
        /// Whether a user needs a policy that allows its request. Requires `authenticationEnabled`.
        "authorizationEnabled" = Switch => [auth.authorizes];
        /// Request codes that need no signature.
        "authenticationWhitelist" = Codes => [auth.unauthenticated];
        /// Request codes that need no policy.
        "authorizationWhitelist" = Codes => [auth.unauthorized];
        /// First administrator, as `{"username":"NAME","password":"SECRET"}`. A start creates the user if it does not exist, and never
        /// updates it. Never shown, and refused on a command line.
        "initAuthenticationUser" = Maybe(FIRST_USER) => [auth.first_user];
        /// User that signs the server's own requests to name servers and other brokers, as `{"accessKey":"NAME","secretKey":"SECRET"}`. A
        /// start creates it as a super user if it does not exist. With users on, slaves prove it to their master. Never shown, and refused on
        /// a command line.
        "innerClientAuthenticationCredentials" = Maybe(PEER_USER) => [auth.peer];
        /// Whether a start reads users and policies from `plain_acl.yml` and `acl/` next to the configuration file, or in `conf` of
        /// `ROCKETMQ_HOME`. Existing users stay as they are.
        "migrateAuthFromV1Enabled" = Switch => [auth.migrates_v1];
        /// Whether every request needs the signed time and code of RocketPy's clients, so that a captured request cannot be repeated.
        /// Apache's clients do not send them, and are refused.
        "authRequireProof" = Switch => [auth.requires_proof], ours;
        /// File of users and policies. Default: `config/users.json` of the store, for a name server alone `users.json` next to
        /// `kvConfigPath`.
        "authConfigPath" = Maybe(File) => [auth.users_file], apache "a folder";
        /// Audit log of denied requests and of administration, as JSON lines. Default: `log/audit.log` of the store, for a name server
        /// alone `audit.log` next to its users.
        "auditLogPath" = Maybe(File) => [auth.audit_file], ours;
        /// Whether a start makes an authority, a certificate, an administrator and a user for clients in the folder `secure` of the
        /// store, if they are missing, and turns TLS and users on. For a name server and a broker in one process.
        "secure" = Switch => [is_secure], ours;
        /// Whether a start that would listen beyond loopback without TLS and users is refused.
        "requireSecure" = Switch => [requires_secure], ours;
    }
    Metrics {
        /// Exporter of the broker's metrics: PROM serves them over HTTP as Prometheus text, with `/readyz` and `/livez`;
        /// OTLP_GRPC sends them to a collector; LOG writes them to the log as OTLP JSON.
        "metricsExporterType" = Exporter => [exporter.kind];
        /// Address or host of the HTTP server. It has no login: every host that reaches it reads the names of all topics
        /// and groups.
        "metricsPromExporterHost" = Host => [exporter.host], apache "`brokerIP1`";
        /// Port of the HTTP server; 0 selects a free one. Each broker of a machine needs its own.
        "metricsPromExporterPort" = Port => [exporter.port];
        /// URL of the collector for OTLP_GRPC.
        "metricsGrpcExporterTarget" = Collector => [exporter.grpc_target], apache "empty";
        /// Headers of requests to the collector, as `name:value,name:value`. Values are not shown by `rocketpy config`.
        "metricsGrpcExporterHeader" = Headers => [exporter.grpc_headers];
        /// Timeout of a request to the collector.
        "metricGrpcExporterTimeOutInMills" = millis(100, DAY_MS) => [exporter.grpc_timeout];
        /// Interval between sends to the collector.
        "metricGrpcExporterIntervalInMills" = millis(100, DAY_MS) => [exporter.grpc_interval];
        /// Interval between lines of the exporter LOG.
        "metricLoggingExporterIntervalInMills" = millis(100, DAY_MS) => [exporter.log_interval];
        /// Maximum number of data points in one message to the collector, or one line of the log.
        "metricsExportBatchMaxDataPoints" = Whole(1, 1_000_000, "data points") => [exporter.batch_points];
        /// Labels of every series, as `name:value,name:value`.
        "metricsLabel" = Labels => [broker.metrics.labels];
        /// Maximum number of series of one metric. `rocketpy_broker_metrics_cut_series` counts the rest.
        "metricsOtelCardinalityLimit" = Whole(1, 10_000_000, "series") => [broker.metrics.series_limit];
        /// Whether queues have statistics of their own, besides topics and groups.
        "enableDetailStat" = Switch => [broker.metrics.detail];
        /// Idle time after which the statistics of a topic, a group or a queue are dropped; -1: never.
        "maxStatsIdleTimeInMinutes" = Whole(-1, 525_600, "minutes") =>
            {|c| minutes(c.broker.metrics.idle), |c, v| c.broker.metrics.idle = from_minutes(v)}, changeable;
        /// Whether permissions, queued requests, and numbers of topics and groups are shown.
        "enableStatsMetrics" = Switch => [broker.metrics.stats];
        /// Whether traffic of topics and groups is shown.
        "enableRequestMetrics" = Switch => [broker.metrics.requests];
        /// Whether connections of producers and consumers are shown.
        "enableConnectionMetrics" = Switch => [broker.metrics.connections];
        /// Whether the lag of consumer groups and dead letters are shown.
        "enableLagAndDlqMetrics" = Switch => [broker.metrics.lag];
        /// Whether transactions are shown.
        "enableTransactionMetrics" = Switch => [broker.metrics.transactions];
        /// Whether requests are timed.
        "enableRemotingMetrics" = Switch => [broker.metrics.remoting];
        /// Whether the state of the store and of waiting timers is shown.
        "enableMessageStoreMetrics" = Switch => [broker.metrics.store];
    }
    Ours {
        /// Addresses that slaves may connect from, separated by semicolons. Empty: any address.
        "haAllowedSlaves" = Ips => [broker.replication.allowed], ours;
        /// File with a shared token by which a master and its slaves authenticate each other. Apache's slaves do not
        /// support it and are refused. Role changes from another machine require it.
        "haTokenFile" = Maybe(File) => [broker.replication.token_file], ours;
        /// File that receives the process id and the addresses as JSON once all ports accept connections.
        "readyFile" = Maybe(File) => [ready_file], ours;
        /// Alias of `enabledAppendPropCRC`.
        "recordCheck" = Switch => [broker.store.record_check], alias "enabledAppendPropCRC";
        /// Whether the broker also listens on `listenPort` - 2. A master with a port for slaves always does, because
        /// Apache's slaves connect there.
        "vipChannelListen" = Switch => [broker.vip_channel], ours;
        /// Maximum number of connections to each port of the broker and the name server; the name server's own default is
        /// 10000. A start lowers it if the limit of open files (`ulimit -n`, raised to the hard limit) requires it.
        "maxConnections" = Whole(1, 1_000_000, "connections") =>
            {|c| c.broker.max_connections, |c, v| {
                c.broker.max_connections = v;
                c.name_server.max_connections = v;
            }}, ours;
        /// Maximum size of a request that the broker accepts.
        "maxFrameBytes" = Whole(4096, 1 << 30, "bytes") => [broker.max_frame_bytes], ours;
        /// Maximum number of held pulls; further pulls are answered SYSTEM_BUSY. Requests that wait for dispatch have a
        /// separate limit of the same size.
        "maxHeldPulls" = Whole(1, 10_000_000, "requests") => [broker.max_held_pulls], ours;
        /// Maximum memory of all held pulls; further pulls are answered SYSTEM_BUSY. Requests that wait for dispatch have a
        /// separate limit of the same size.
        "maxHeldBytes" = Whole(1 << 20, 1 << 40, "bytes") => [broker.max_held_bytes], ours;
        /// Maximum memory that all connections together may make the process hold: half for incomplete frames and unsent
        /// answers, half for unanswered requests and table entries. Above it the connections that hold most are closed, or
        /// their requests are refused. The default is reduced to a quarter of the machine's or the control group's memory.
        "maxPeerBytes" = Whole(64 << 20, 1 << 40, "bytes") => {|c| c.broker.max_peer_bytes, |c, v| {
            c.broker.max_peer_bytes = v;
            c.name_server.max_peer_bytes = v;
        }}, ours;
        /// Maximum size of a subscription's filter expression; a longer one is answered SUBSCRIPTION_PARSE_FAILED.
        "maxFilterBytes" = Whole(256, 1 << 20, "bytes") => [broker.max_filter_bytes], ours, changeable;
        /// Maximum number of topics; further topics are refused.
        "maxTopics" = Whole(32, 10_000_000, "topics") => [broker.max_topics], ours;
        /// Maximum number of consumer groups; further groups are refused.
        "maxGroups" = Whole(32, 10_000_000, "groups") => [broker.max_groups], ours;
        /// Maximum number of unflushed bytes of the log; above it sends wait for the disk. It limits the loss by a power
        /// cut under ASYNC_FLUSH. 0: unlimited.
        "maxUnflushedBytes" = Whole(0, ANY, "bytes") => [broker.store.max_unflushed_bytes], ours;
        /// Maximum number of undispatched bytes of the log; above it sends wait for dispatch. 0: unlimited.
        "maxUndispatchedBytes" = Whole(0, ANY, "bytes") => [broker.store.max_undispatched_bytes], ours;
        /// Log size above which the oldest files are removed at any hour. 0: unlimited.
        "retentionMaxBytes" = Whole(0, ANY, "bytes") => {
            |c| c.broker.store.retention.max_bytes.unwrap_or(0),
            |c, v| c.broker.store.retention.max_bytes = Some(v).filter(|limit| *limit > 0)
        }, ours, changeable;
        /// Reaction to a failed flush: STOP ends the process with exit code 5, REFUSE refuses messages and still serves
        /// reads.
        "onFailedFlush" = Choice(FAILED_FLUSH) => [broker.store.on_failed_flush], ours;
    }
};

fn within_a_minute(period: Duration) -> Duration {
    period.clamp(Duration::from_secs(10), Duration::from_secs(60))
}

/// -1: never.
fn minutes(idle: Option<Duration>) -> i64 {
    idle.map_or(-1, |idle| i64::try_from(idle.as_secs() / 60).unwrap_or(i64::MAX))
}

fn from_minutes(minutes: i64) -> Option<Duration> {
    u64::try_from(minutes).ok().map(|minutes| Duration::from_secs(60 * minutes))
}

fn commit_log_dirs(config: &ServerConfig) -> Option<Vec<PathBuf>> {
    let store = &config.broker.store;
    let first = store.commit_log_dir.clone()?;
    Some([first].into_iter().chain(store.more_commit_log_dirs.clone()).collect())
}

fn set_commit_log_dirs(config: &mut ServerConfig, dirs: Option<Vec<PathBuf>>) {
    let mut dirs = dirs.unwrap_or_default().into_iter();
    config.broker.store.commit_log_dir = dirs.next();
    config.broker.store.more_commit_log_dirs = dirs.collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &[Key] = keys! {
        Topics {
            /// Plain.
            "plain" = Switch => [broker.trace_on];
            /// Changeable.
            "changeable" = Switch => [broker.trace_on], changeable;
            /// Differs.
            "differs" = Switch => [broker.trace_on], apache "false", changeable;
            /// Ours.
            "ours" = Switch => [broker.trace_on], ours, changeable;
            /// Another name.
            "alias" = Switch => [broker.trace_on], alias "plain", changeable;
            /// Another name of a fixed one.
            "fixed" = Switch => [broker.trace_on], alias "plain";
        }
    };

    #[test]
    fn a_row_says_whether_its_key_may_change_and_where_apache_differs() {
        let facts: Vec<_> =
            ROWS.iter().map(|key| (key.name, key.is_changeable, key.apache, key.alias_of)).collect();
        let expected = [
            ("plain", false, Apache::Same, None),
            ("changeable", true, Apache::Same, None),
            ("differs", true, Apache::Default("false"), None),
            ("ours", true, Apache::Unknown, None),
            ("alias", true, Apache::Unknown, Some("plain")),
            ("fixed", false, Apache::Unknown, Some("plain")),
        ];
        assert_eq!(facts, expected);
    }
}

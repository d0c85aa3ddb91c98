//! The table of keys: each is entered here once, and read, printed, described and documented from here.

use std::path::PathBuf;
use std::time::Duration;

use rocketpy_broker::{BrokerRole, FlushMode, OnFailedFlush};
use rocketpy_model::name;

use super::ServerConfig;
use super::key::{Apache, Key, Section};
use super::kind::{
    Address, Addresses, Choice, DayHours, File, Folder, Folders, Holds, Host, Ips, Kind, Levels, Maybe, Name,
    Permissions, Plain, Port, Switch, Whole, hours, millis, seconds,
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
        /// Port of the broker; 0 takes a free one. A name server alone takes it as its own.
        "listenPort" = Port => {|c| c.port.unwrap_or(rocketpy_broker::DEFAULT_PORT), |c, v| c.port = Some(v)};
        /// Name servers that the broker registers at; `rocketpy server` registers at its own.
        "namesrvAddr" = Addresses => [broker.name_servers];
        /// Cluster that the broker belongs to.
        "brokerClusterName" = Name(name::check_cluster) => [broker.cluster_name];
        /// Name of the broker in its cluster.
        "brokerName" = Name(name::check_broker) => [broker.broker_name], apache "the host's name";
        /// Address or host that clients are told; without it, the address the broker listens on, or for 0.0.0.0 the one by
        /// which this machine reaches others.
        "brokerIP1" = Maybe(Host) => [broker.advertised_host], apache "the first address found";
        /// What clients may do: 4 read, 2 write, 6 both, 0 nothing.
        "brokerPermission" = Permissions => [broker.broker_permission], changeable;
        /// Region that the broker writes into every message.
        "regionId" = Plain => [broker.region_id];
        /// Time between two registrations; less than 10,000 counts as 10,000, more than 60,000 as 60,000.
        "registerNameServerPeriod" = millis(0, DAY_MS) =>
            {|c| c.broker.register_period, |c, v| c.broker.register_period = within_a_minute(v)};
        /// How long the broker waits for a name server's answer to a registration.
        "registerBrokerTimeoutMills" = millis(100, DAY_MS) => [broker.register_timeout];
        /// After this time without traffic a connection is closed, at the broker and at the name server.
        "serverChannelMaxIdleTimeSeconds" = seconds(1, DAY_MS / 1000) =>
            {|c| c.broker.idle_timeout, |c, v| {
                c.broker.idle_timeout = v;
                c.name_server.idle_timeout = v;
            }};
        /// After this time without a heartbeat a client leaves its groups.
        "channelExpiredTimeout" = millis(1000, DAY_MS) => [broker.client_expiry], changeable;
    }
    Replication {
        /// ASYNC_MASTER answers a send before slaves have the message, SYNC_MASTER after; a SLAVE copies what the master of its name has.
        "brokerRole" = Choice(ROLES) => [broker.replication.role];
        /// Id among the brokers of one name: 0 for the master, a number of its own for each of its slaves.
        "brokerId" = Whole(0, ANY, "id") => [broker.broker_id];
        /// Where a slave connects, as `host:port`; without it, what the name servers and the master say.
        "haMasterAddress" = Maybe(Address) => [broker.replication.master_address];
        /// Whether a slave serves pulls, and a master sends readers that are far behind to it.
        "slaveReadEnable" = Switch => [broker.slave_read];
        /// Port for slaves, at the address that clients connect to; 0 takes a free one. Without it no port is opened for
        /// slaves, but for a SYNC_MASTER and a slave that was promoted, which take `listenPort` + 1, or a free one where that is taken.
        "haListenPort" = Maybe(Port) => [broker.replication.port], apache "`listenPort` + 1";
        /// How many brokers have a message before a SYNC_MASTER answers its send, itself among them. With 1 it waits for no
        /// slave, and warns at the start.
        "inSyncReplicas" = Whole(1, 17, "brokers") => {
            |c| c.broker.replication.in_sync_replicas.unwrap_or(2),
            |c, v| c.broker.replication.in_sync_replicas = Some(v)
        }, apache "1";
        /// How long a send waits for slaves before it is answered FLUSH_SLAVE_TIMEOUT: the message is stored at the master.
        "slaveTimeout" = millis(1, DAY_MS) => [broker.replication.slave_timeout], changeable;
        /// A slave that is further behind is not waited for: with too few others a send is answered SLAVE_NOT_AVAILABLE at once,
        /// and the message is stored at the master.
        "haSlaveFallbehindMax" = Whole(1, ANY, "bytes") => [broker.replication.max_behind_bytes];
        /// Longest silence towards a slave; then it gets a heartbeat.
        "haSendHeartbeatInterval" = millis(10, DAY_MS) => [broker.replication.heartbeat_every];
        /// A slave that says nothing for this time is let go.
        "haHousekeepingInterval" = millis(10, DAY_MS) => [broker.replication.silence_limit];
        /// How long the start of a master that ended suddenly waits for its slaves, of which it takes what it lost of the log;
        /// 0: it asks none.
        "haSyncBackTimeout" = millis(0, DAY_MS) => [broker.replication.sync_back_timeout];
        /// Maximum number of bytes of the log in one frame for a slave; RocketPy's get up to 256 KiB, Apache's slaves take less than 4 MiB.
        "haTransferBatchSize" = Whole(1024, 4 * MIB - 12, "bytes") => [broker.replication.frame_bytes];
        /// Whether a slave gets no more of the log in a second than `maxHaTransferByteInSecond`: one that is far behind leaves disk and
        /// network to clients then. Sends of a SYNC_MASTER wait for it too.
        "haFlowControlEnable" = Switch => [broker.replication.is_bounded];
        /// Maximum number of bytes of the log that each slave gets in a second, where `haFlowControlEnable` is true.
        "maxHaTransferByteInSecond" = Whole(4096, 1 << 40, "bytes") => [broker.replication.max_bytes_per_second];
    }
    Topics {
        /// Maximum number of queues of a topic that its first message creates. The sender asks for a number: RocketPy's and
        /// Apache's clients for 4.
        "defaultTopicQueueNums" = Whole(1, 16_384, "queues") => [broker.default_topic_queues], changeable;
        /// Whether the first message of an unknown topic creates it.
        "autoCreateTopicEnable" = Switch => [broker.auto_create_topic], changeable;
        /// Whether the first consumer of an unknown group creates it.
        "autoCreateSubscriptionGroup" = Switch => [broker.auto_create_group], changeable;
        /// Whether there is a topic with the name of the cluster.
        "clusterTopicEnable" = Switch => [broker.cluster_topic];
        /// Whether there is a topic with the name of the broker.
        "brokerTopicEnable" = Switch => [broker.broker_topic];
        /// Whether clients are told to trace their messages.
        "traceOn" = Switch => [broker.trace_on];
        /// Whether there is a topic for traces.
        "traceTopicEnable" = Switch => [broker.trace_topic];
        /// Name of the topic for traces.
        "msgTraceTopicName" = Name(name::check_topic) => [broker.trace_topic_name];
        /// Whether the members of a group hear at once that one joined or left.
        "notifyConsumerIdsChangedEnable" = Switch => [broker.notify_consumer_ids_changed], changeable;
        /// Whether the broker itself sets a running group to other offsets; its members go there with their next pulls. If not, the
        /// members that are online are told to, and store the offsets.
        "useServerSideResetOffset" = Switch => [broker.server_side_reset], changeable;
        /// Time between two writes of `consumerOffset.json`, when offsets changed.
        "flushConsumerOffsetInterval" = millis(100, DAY_MS) => [broker.persist_offsets_every];
        /// Whether replies to requests are stored in the cluster's topic of replies, besides being pushed to their clients.
        "storeReplyMessageEnable" = Switch => [broker.store_replies], changeable;
    }
    Transactions {
        /// Whether half messages are refused.
        "rejectTransactionMessage" = Switch => [broker.reject_transactions], changeable;
        /// How old a half message gets before its producer is asked for the first time.
        "transactionTimeOut" = millis(0, DAY_MS) => [broker.transaction_timeout], changeable;
        /// Time between two questions for the same half message.
        "transactionCheckInterval" = millis(100, DAY_MS) => [broker.transaction_check_interval], changeable;
        /// Questions for a half message; after these it goes to `TRANS_CHECK_MAX_TIME_TOPIC`. They count over restarts.
        "transactionCheckMax" = Whole(1, 1_000_000, "questions") => [broker.transaction_check_max], changeable;
    }
    Timers {
        /// How long messages with a delay level wait: up to 64 levels in s, m, h or d, level 1 first. Taken at a start if no message waits by
        /// other ones.
        "messageDelayLevel" = Levels => [broker.delay_levels];
        /// How far ahead the time of a message may be, in TIMER_DELIVER_MS, TIMER_DELAY_MS or TIMER_DELAY_SEC.
        "timerMaxDelaySec" = seconds(1, 100 * 365 * DAY_MS / 1000) => [broker.max_timer_delay], changeable;
        /// Whether a message that waits for its time may be recalled.
        "recallMessageEnable" = Switch => [broker.recalls], apache "false", changeable;
    }
    Reading {
        /// Whether a pull that finds nothing is held for as long as its client asks.
        "longPollingEnable" = Switch => [broker.long_polling], changeable;
        /// How long a pull that finds nothing is held when `longPollingEnable` is false.
        "shortPollingTimeMills" = millis(0, DAY_MS) => [broker.short_polling], changeable;
        /// Whether lite pull consumers may read.
        "litePullMessageEnable" = Switch => [broker.lite_pull], changeable;
        /// Maximum number of bytes in the answer to one pull. A client that does not say how many it takes gets at most 262144.
        "maxTransferBytesOnMessageInMemory" = Whole(100, 8 * MIB, "bytes") => [broker.max_transfer_bytes],
            apache "262144", changeable;
        /// Maximum number of messages in the answer to one pull. A client never gets more than it asks for.
        "maxTransferCountOnMessageInMemory" = Whole(1, 1 << 20, "messages") => [broker.max_transfer_messages],
            apache "32", changeable;
        /// Maximum number of messages that one look-up by key returns.
        "maxMsgsNumBatch" = Whole(1, 10_000, "messages") => [broker.query_max], changeable;
        /// Maximum number of messages that one look-up by unique key returns.
        "defaultQueryMaxNum" = Whole(1, 10_000, "messages") => [broker.default_query_max], changeable;
    }
    Store {
        /// Folder of the store; the folder on the command line wins.
        "storePathRootDir" = Folder => [broker.store.root], apache "~/store";
        /// Folders of the commit log, one or several on disks of their own: new files take turns. Without it,
        /// `commitlog` in the folder of the store.
        "storePathCommitLog" = Maybe(Folders { least: 1 }) =>
            {|c| commit_log_dirs(c), |c, v| set_commit_log_dirs(c, v)};
        /// Folders of the commit log that get no new file; their files are read, and removed when they are old.
        "readOnlyCommitLogStorePaths" = Folders { least: 0 } => [broker.store.read_only_commit_log_dirs];
        /// Size of one commit log file, allocated whole; a store that has log files keeps their size when this is not
        /// set.
        "mappedFileSizeCommitLog" = Whole(16_384, (1 << 31) - 1, "bytes") => [broker.store.commit_log_file_size];
        /// Size of one consume queue file, 20 bytes a message.
        "mappedFileSizeConsumeQueue" = Whole(20, 1 << 30, "bytes") => [broker.store.consume_queue_file_size];
        /// Maximum size of the body of a message that a client sends, or of its batch as a whole.
        "maxMessageSize" = Whole(1, 1 << 30, "bytes") => [broker.max_message_size], changeable;
        /// When a message is acknowledged: ASYNC_FLUSH before its flush, SYNC_FLUSH after it.
        "flushDiskType" = Choice(FLUSH_MODES) => [broker.store.flush];
        /// Time between two flushes of the commit log under ASYNC_FLUSH.
        "flushIntervalCommitLog" = millis(1, DAY_MS) => [broker.store.flush_interval];
        /// With fewer dirty pages than this an interval of ASYNC_FLUSH passes without a flush, until
        /// `flushCommitLogThoroughInterval`; a checkpoint flushes the log as well (`flushIntervalConsumeQueue`).
        "flushCommitLogLeastPages" = Whole(0, 1 << 20, "pages of 4 KiB") => [broker.store.flush_least_pages], apache "4";
        /// After this time a flush does not wait for `flushCommitLogLeastPages`; it matters only with a longer
        /// `flushIntervalConsumeQueue`.
        "flushCommitLogThoroughInterval" = millis(1, DAY_MS) => [broker.store.flush_thorough_interval];
        /// Time between two checkpoints, each with a flush of log, consume queues and index; 128 MiB of messages bring
        /// one earlier. It bounds how much of the log a start reads.
        "flushIntervalConsumeQueue" = millis(10, DAY_MS) => [broker.store.checkpoint_interval];
        /// How long a send waits for the disk, for the next log file or because of `maxUnflushedBytes`, or for dispatch because
        /// of `maxUndispatchedBytes`, before it is answered SYSTEM_BUSY.
        "osPageCacheBusyTimeOutMills" = millis(1, DAY_MS) => [broker.store.busy_timeout];
        /// How long a send waits for its flush under SYNC_FLUSH before it is answered FLUSH_DISK_TIMEOUT: the message is
        /// stored, and may or may not be durable.
        "syncFlushTimeout" = millis(1, DAY_MS) => [broker.sync_flush_timeout], changeable;
        /// Whether every record gets a check of the whole record.
        "enabledAppendPropCRC" = Switch => [broker.store.record_check], apache "false";
        /// Whether messages can be looked up by key; switched on again, the next start builds the missing part of the
        /// index from the log.
        "messageIndexEnable" = Switch => [broker.store.index];
        /// Hash slots of one index file, each 4 bytes of memory once it is used; after a change the next start builds the
        /// index again.
        "maxHashSlotNum" = Whole(1, 100_000_000, "slots") => [broker.store.index_slots];
        /// Entries of one index file, 20 bytes each on disk; after a change the next start builds the index again.
        "maxIndexNum" = Whole(2, 2_000_000_000, "entries") => [broker.store.index_entries];
    }
    Retention {
        /// How long a log file stays after its last write.
        "fileReservedTime" = hours(0, 1_000_000) => [broker.store.retention.reserved_time], changeable;
        /// Hours of the local day in which files that are old enough are removed, as `04;16`.
        "deleteWhen" = DayHours => [broker.store.retention.delete_hours], changeable;
        /// With more of the disk in use than this, files that are old enough are removed at any hour; counts as 10 to 95.
        "diskMaxUsedSpaceRatio" = Whole(0, 100, "percent") => [broker.store.retention.max_used_percent], changeable;
        /// With more of the disk in use than this, the oldest files are removed whatever their age, and no more of them
        /// than it takes; counts as 30 to 85.
        "diskSpaceCleanForciblyRatio" = Whole(0, 100, "percent") => [broker.store.retention.force_used_percent], changeable;
        /// With more of the disk in use than this, messages are refused until it is below `diskSpaceCleanForciblyRatio`;
        /// counts as 35 to 90.
        "diskSpaceWarningLevelRatio" = Whole(0, 100, "percent") => [broker.store.retention.refuse_used_percent], changeable;
        /// Whether files that are not old enough may be removed when the disk fills up.
        "cleanFileForciblyEnable" = Switch => [broker.store.retention.clean_forcibly], changeable;
        /// Time between two rounds of removals and checks of the disk; the first round comes after a minute, the first
        /// check at the start.
        "cleanResourceInterval" = millis(1, DAY_MS) => [broker.store.retention.interval], changeable;
        /// Maximum number of log files that one round removes.
        "deleteFileBatchMax" = Whole(1, 1_000_000, "files") => [broker.store.retention.files_a_round], changeable;
        /// Pause after the removal of a log file.
        "deleteCommitLogFilesInterval" = millis(0, DAY_MS) => [broker.store.retention.log_file_pause], changeable;
        /// Pause after the removal of a consume queue file.
        "deleteConsumeQueueFilesInterval" = millis(0, DAY_MS) => [broker.store.retention.queue_file_pause], changeable;
    }
    NameServer {
        /// Port of the name server; 0 takes a free one.
        "nameServerPort" = Port =>
            {|c| c.name_server_port.unwrap_or(rocketpy_namesrv::DEFAULT_PORT), |c, v| c.name_server_port = Some(v)}, ours;
        /// File of the key-value configuration (Apache's `kvConfig.json`). A name server beside a broker has it in `config` in the
        /// folder of the store; another one without this key has it in memory alone.
        "kvConfigPath" = Maybe(File) => [name_server.kv_config_path], apache "~/namesrv/kvConfig.json";
        /// Whether routes carry the order configuration of the KV store.
        "orderMessageEnable" = Switch => [name_server.order_message_enabled], changeable;
        /// Time between two checks for brokers that fell silent.
        "scanNotActiveBrokerInterval" = millis(10, DAY_MS) => [name_server.scan_interval], changeable;
    }
    Ours {
        /// Addresses that slaves may connect from, with semicolons between them; empty: from every address.
        "haAllowedSlaves" = Ips => [broker.replication.allowed], ours;
        /// File with a token, the same at a master and its slaves, which they prove to each other that they know. A slave of Apache's
        /// knows none, and gets nothing then.
        "haTokenFile" = Maybe(File) => [broker.replication.token_file], ours;
        /// File that gets the process id and the addresses as JSON once everything accepts connections.
        "readyFile" = Maybe(File) => [ready_file], ours;
        /// A second name of `enabledAppendPropCRC`.
        "recordCheck" = Switch => [broker.store.record_check], alias "enabledAppendPropCRC";
        /// Whether the broker listens on `listenPort` - 2 as well. A master that has a port for slaves does: Apache's slaves ask there.
        "vipChannelListen" = Switch => [broker.vip_channel], ours;
        /// Maximum number of connections to each port of the broker and the name server; the name server's own default is
        /// 10000. A start lowers it to what the limit of open files (`ulimit -n`, raised to the hard limit) allows.
        "maxConnections" = Whole(1, 1_000_000, "connections") =>
            {|c| c.broker.max_connections, |c, v| {
                c.broker.max_connections = v;
                c.name_server.max_connections = v;
            }}, ours;
        /// Largest request that the broker takes.
        "maxFrameBytes" = Whole(4096, 1 << 30, "bytes") => [broker.max_frame_bytes], ours;
        /// Maximum number of pulls that wait for a message at a time; one more is answered SYSTEM_BUSY. Requests that wait for
        /// dispatch have the same bound of their own.
        "maxHeldPulls" = Whole(1, 10_000_000, "requests") => [broker.max_held_pulls], ours;
        /// Maximum memory that the waiting pulls take together; one more is answered SYSTEM_BUSY. Requests that wait for
        /// dispatch have the same bound of their own.
        "maxHeldBytes" = Whole(1 << 20, 1 << 40, "bytes") => [broker.max_held_bytes], ours;
        /// Maximum memory that all connections of the process together make it hold: half of it for frames that have not arrived
        /// whole and answers that were not taken, half for unanswered requests and entries of tables. Beyond it the connections
        /// that hold most are closed, or their requests refused.
        "maxPeerBytes" = Whole(64 << 20, 1 << 40, "bytes") => {|c| c.broker.max_peer_bytes, |c, v| {
            c.broker.max_peer_bytes = v;
            c.name_server.max_peer_bytes = v;
        }}, ours;
        /// Longest filter expression of a subscription; a longer one is answered SUBSCRIPTION_PARSE_FAILED.
        "maxFilterBytes" = Whole(256, 1 << 20, "bytes") => [broker.max_filter_bytes], ours, changeable;
        /// Maximum number of topics; one more is refused.
        "maxTopics" = Whole(32, 10_000_000, "topics") => [broker.max_topics], ours;
        /// Maximum number of consumer groups; one more is refused.
        "maxGroups" = Whole(32, 10_000_000, "groups") => [broker.max_groups], ours;
        /// Maximum number of bytes of the log that are written and not flushed; beyond it sends wait for the disk. It bounds
        /// what a power cut takes under ASYNC_FLUSH. 0: no bound.
        "maxUnflushedBytes" = Whole(0, ANY, "bytes") => [broker.store.max_unflushed_bytes], ours;
        /// Maximum number of bytes of the log that have no consume queue entries yet; beyond it sends wait for dispatch.
        /// 0: no bound.
        "maxUndispatchedBytes" = Whole(0, ANY, "bytes") => [broker.store.max_undispatched_bytes], ours;
        /// With more bytes of log than this, the oldest files are removed at any hour. 0: no bound.
        "retentionMaxBytes" = Whole(0, ANY, "bytes") => {
            |c| c.broker.store.retention.max_bytes.unwrap_or(0),
            |c, v| c.broker.store.retention.max_bytes = Some(v).filter(|limit| *limit > 0)
        }, ours, changeable;
        /// What happens after a failed flush: STOP ends the process with exit code 5, REFUSE refuses messages and serves
        /// readers.
        "onFailedFlush" = Choice(FAILED_FLUSH) => [broker.store.on_failed_flush], ours;
    }
};

fn within_a_minute(period: Duration) -> Duration {
    period.clamp(Duration::from_secs(10), Duration::from_secs(60))
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

//! The table of metrics.

/// Whether a value only grows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Grows from the start of the broker on.
    Counter,
    /// Any value.
    Gauge,
    /// Counts of values up to each of some bounds.
    Histogram(&'static [f64]),
}

/// What a value counts or measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A state: 1 where it is so.
    Flag,
    /// A number of what the name says.
    Items,
    Messages,
    MessagesPerSecond,
    /// Requests of clients.
    Requests,
    RequestsPerSecond,
    Bytes,
    Connections,
    Milliseconds,
    Seconds,
    /// Milliseconds since 1970.
    UnixMillis,
    /// A share from 0 to 1.
    Ratio,
}

/// Metrics that are shown together or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// `enableStatsMetrics`.
    Stats,
    /// `enableRequestMetrics`.
    Request,
    /// `enableConnectionMetrics`.
    Connection,
    /// `enableLagAndDlqMetrics`.
    LagAndDlq,
    /// `enableTransactionMetrics`.
    Transaction,
    /// `enableRemotingMetrics`.
    Remoting,
    /// `enableMessageStoreMetrics`. Their series also have the labels `storage_type` and `storage_medium`.
    MessageStore,
    /// Metrics that Apache's brokers do not have.
    Own,
}

/// Declaration of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Declared {
    /// Name in Prometheus text, with the unit.
    pub name: &'static str,
    /// What the value says.
    pub help: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    /// Names of the labels that tell apart its values.
    pub labels: &'static [&'static str],
    /// `None`: only GET_BROKER_RUNTIME_INFO shows it.
    pub group: Option<Group>,
}

const KIB: f64 = 1024.0;
/// Bounds of record sizes, in bytes.
const SIZES: Kind =
    Kind::Histogram(&[KIB, 4.0 * KIB, 512.0 * KIB, KIB * KIB, 2.0 * KIB * KIB, 4.0 * KIB * KIB]);
/// Bounds of the times in which topics and groups are made, in milliseconds.
const CREATIONS: Kind = Kind::Histogram(&[10.0, 100.0, 1000.0, 3000.0, 5000.0]);
/// Bounds of the times between a half message and its commit. Apache declares milliseconds, and records seconds.
const TRANSACTIONS: Kind = Kind::Histogram(&[5.0, 60.0, 600.0, 3600.0, 43_200.0, 86_400.0]);
/// Bounds of the times of requests, in milliseconds.
const REQUESTS: Kind = Kind::Histogram(&[1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1000.0, 2000.0, 3000.0]);
/// Bounds of delays, in seconds.
const DELAYS: Kind = Kind::Histogram(&[1.0, 10.0, 60.0, 600.0, 3600.0, 86_400.0, 604_800.0]);
/// Bounds of flushes, in milliseconds.
const FLUSHES: Kind = Kind::Histogram(&[1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 10_000.0]);

const COUNTER: Kind = Kind::Counter;
const GAUGE: Kind = Kind::Gauge;

macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $metric:ident: $name:literal, $kind:ident, $unit:ident, [$($label:literal),*] $(, $group:ident)?;)+) => {
        /// A metric of the broker.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Metric {
            $($(#[doc = $help])+ $metric,)+
        }

        impl Metric {
            /// All of them, in the order of the table.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$metric,)+];

            #[inline]
            pub(crate) const fn declared(self) -> Declared {
                match self {
                    $(Self::$metric => Declared {
                        name: $name,
                        help: concat!($($help),+).trim_ascii(),
                        kind: $kind,
                        unit: Unit::$unit,
                        labels: &[$($label),*],
                        group: metrics!(@group $($group)?),
                    },)+
                }
            }
        }
    };
    (@group) => { None };
    (@group $group:ident) => { Some(Group::$group) };
}

metrics! {
    /// Permissions of clients: 4 read, 2 write, 6 both.
    Permission: "rocketmq_broker_permission", GAUGE, Items, [], Stats;
    /// Requests that wait, by the kind of their work.
    Waiting: "rocketmq_processor_watermark", GAUGE, Requests, ["processor"], Stats;
    /// Topics of the broker, with its system topics.
    Topics: "rocketmq_topic_number", GAUGE, Items, [], Stats;
    /// Consumer groups of the broker, with its own.
    Groups: "rocketmq_consumer_group_number", GAUGE, Items, [], Stats;

    /// Messages stored by sends of clients.
    TopicMessagesIn: "rocketmq_messages_in_total", COUNTER, Messages, ["topic", "message_type", "is_system"], Request;
    /// Bytes of the records stored by sends of clients.
    TopicBytesIn: "rocketmq_throughput_in_total", COUNTER, Bytes, ["topic", "message_type", "is_system"], Request;
    /// Size of the records of sends, in bytes: of a batch the mean.
    TopicMessageSize: "rocketmq_message_size", SIZES, Bytes, ["topic", "message_type", "is_system"], Request;
    /// Messages returned to pulls.
    GroupMessagesOut: "rocketmq_messages_out_total", COUNTER, Messages, ["topic", "consumer_group", "is_system"], Request;
    /// Bytes of the records returned to pulls.
    GroupBytesOut: "rocketmq_throughput_out_total", COUNTER, Bytes, ["topic", "consumer_group", "is_system"], Request;
    /// Time to create or change a topic.
    TopicCreation: "rocketmq_topic_create_execution_time_milliseconds", CREATIONS, Milliseconds, ["invocation_status", "is_system"], Request;
    /// Time to create or change a consumer group.
    GroupCreation: "rocketmq_consumer_group_create_execution_time_milliseconds", CREATIONS, Milliseconds, ["invocation_status", "is_system"], Request;

    /// Connections of producers, by the version that they state.
    ProducerConnections: "rocketmq_producer_connections", GAUGE, Connections, ["language", "version", "protocol_type"], Connection;
    /// Connections of consumers, by group.
    ConsumerConnections: "rocketmq_consumer_connections", GAUGE, Connections, ["consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"], Connection;

    /// Messages after the committed offsets of a group.
    LagMessages: "rocketmq_consumer_lag_messages", GAUGE, Messages, ["consumer_group", "topic", "is_retry", "is_system"], LagAndDlq;
    /// Age of the first message after the committed offsets of a group; 0 without one.
    LagLatency: "rocketmq_consumer_lag_latency_milliseconds", GAUGE, Milliseconds, ["consumer_group", "topic", "is_retry", "is_system"], LagAndDlq;
    /// Messages that a group has pulled and not committed.
    InflightMessages: "rocketmq_consumer_inflight_messages", GAUGE, Messages, ["consumer_group", "topic", "is_retry", "is_system"], LagAndDlq;
    /// Age of the first message that a group has not pulled; 0 without one.
    QueueingLatency: "rocketmq_consumer_queueing_latency_milliseconds", GAUGE, Milliseconds, ["consumer_group", "topic", "is_retry", "is_system"], LagAndDlq;
    /// Messages that a group has not pulled.
    ReadyMessages: "rocketmq_consumer_ready_messages", GAUGE, Messages, ["consumer_group", "topic", "is_retry", "is_system"], LagAndDlq;
    /// Messages that became dead letters of a group.
    DeadLetters: "rocketmq_send_to_dlq_messages_total", COUNTER, Messages, ["consumer_group", "topic", "is_system"], LagAndDlq;

    /// Open half messages.
    HalfMessages: "rocketmq_half_messages", GAUGE, Messages, ["topic"], Transaction;
    /// Committed transactions.
    TopicCommits: "rocketmq_commit_messages_total", COUNTER, Messages, ["topic"], Transaction;
    /// Transactions that were rolled back.
    TopicRollbacks: "rocketmq_rollback_messages_total", COUNTER, Messages, ["topic"], Transaction;
    /// Time from the birth of a half message to its commit, in seconds in spite of the name.
    FinishLatency: "rocketmq_finish_message_latency_milliseconds", TRANSACTIONS, Milliseconds, ["topic"], Transaction;

    /// Time from a request to its answer.
    RequestLatency: "rocketmq_rpc_latency_milliseconds", REQUESTS, Milliseconds, ["protocol_type", "request_code", "response_code", "is_long_polling", "result"], Remoting;

    /// Used bytes of the file system that holds the commit log.
    StorageSize: "rocketmq_storage_size_bytes", GAUGE, Bytes, [], MessageStore;
    /// Bytes of the commit log that are not durable yet.
    FlushBehind: "rocketmq_storage_flush_behind_bytes", GAUGE, Bytes, [], MessageStore;
    /// Bytes of the commit log that consumers cannot read yet.
    DispatchBehind: "rocketmq_storage_dispatch_behind_bytes", GAUGE, Bytes, [], MessageStore;
    /// Age of the oldest message.
    ReserveTime: "rocketmq_storage_message_reserve_time_milliseconds", GAUGE, Milliseconds, [], MessageStore;
    /// Timer messages that are not in the wheel yet.
    TimerEnqueueLag: "rocketmq_timer_enqueue_lag", GAUGE, Messages, [], MessageStore;
    /// Age of the first timer message that is not in the wheel yet.
    TimerEnqueueLatency: "rocketmq_timer_enqueue_latency_milliseconds", GAUGE, Milliseconds, [], MessageStore;
    /// Timer messages that are due and not delivered.
    TimerDequeueLag: "rocketmq_timer_dequeue_lag", GAUGE, Messages, [], MessageStore;
    /// Time since the first undelivered timer message was due.
    TimerDequeueLatency: "rocketmq_timer_dequeue_latency_milliseconds", GAUGE, Milliseconds, [], MessageStore;
    /// Timer messages that wait, by topic.
    TimingMessages: "rocketmq_timing_messages", GAUGE, Messages, ["topic"], MessageStore;
    /// Timer messages that began to wait, by topic.
    TimerEnqueued: "rocketmq_timer_enqueue_total", COUNTER, Messages, ["topic"], MessageStore;
    /// Timer messages that were delivered, by topic.
    TimerDequeued: "rocketmq_timer_dequeue_total", COUNTER, Messages, ["topic"], MessageStore;
    /// Timer messages that wait, by the seconds until they are due: up to the bound.
    TimerSnapshot: "rocketmq_timer_message_snapshot", GAUGE, Messages, ["timer_bound_s"], MessageStore;
    /// Delays that clients asked for.
    DelayLatency: "rocketmq_delay_message_latency_seconds", DELAYS, Seconds, [], MessageStore;

    /// Members of a consumer group that are connected.
    GroupMembers: "rocketpy_broker_consumer_group_members", GAUGE, Items, ["consumer_group"], LagAndDlq;
    /// Messages that wait for their retry, by group.
    RetryLag: "rocketpy_broker_consumer_retry_lag_messages", GAUGE, Messages, ["consumer_group"], LagAndDlq;
    /// Messages that consumers sent back, to get them again or because they gave them up.
    SentBack: "rocketpy_broker_sent_back_messages_total", COUNTER, Messages, ["consumer_group", "topic", "is_system"], LagAndDlq;
    /// Bytes of the log that a slave does not have yet.
    ReplicaLag: "rocketpy_broker_replica_lag_bytes", GAUGE, Bytes, ["replica"], Own;
    /// Bytes of a topic's consume queues, and an estimate of those of its records.
    TopicSize: "rocketpy_broker_topic_size_bytes", GAUGE, Bytes, ["topic", "part"], Own;
    /// Age of the oldest open half message.
    HalfMessageAge: "rocketpy_broker_half_message_oldest_age_milliseconds", GAUGE, Milliseconds, [], Own;
    /// Requests that were rejected, by reason.
    Rejected: "rocketpy_broker_rejected_requests_total", COUNTER, Requests, ["reason"], Own;
    /// Time of a flush of the commit log.
    FlushLatency: "rocketpy_broker_flush_latency_milliseconds", FLUSHES, Milliseconds, [], Own;
    /// 1 once a failed flush or assertion keeps the broker from acknowledging.
    Poisoned: "rocketpy_broker_store_poisoned", GAUGE, Flag, [], Own;
    /// 1 while the broker is ready for clients, as `/readyz` says.
    Ready: "rocketpy_broker_ready", GAUGE, Flag, [], Own;
    /// Unix time at which the first certificate of the TLS chain in use expires.
    TlsExpiry: "rocketpy_broker_tls_certificate_expiry_timestamp_seconds", GAUGE, Seconds, [], Own;
    /// TLS handshakes that have not ended.
    TlsHalfOpen: "rocketpy_broker_tls_half_open_handshakes", GAUGE, Connections, [], Own;
    /// Connections refused because of TLS: failed or late handshakes, and plain ones under `enforcing`.
    TlsRefused: "rocketpy_broker_tls_refused_connections_total", COUNTER, Connections, [], Own;
    /// Series that were left out, because their metric had more than `metricsOtelCardinalityLimit`.
    SeriesCut: "rocketpy_broker_metrics_cut_series", GAUGE, Items, ["metric"], Own;

    /// Time since the start.
    Uptime: "rocketpy_broker_uptime_seconds", GAUGE, Seconds, [], Own;
    /// Held pulls.
    HeldPulls: "rocketpy_broker_held_pulls", GAUGE, Requests, [], Own;
    /// Maximum number of held pulls.
    HeldPullsLimit: "rocketpy_broker_held_pulls_limit", GAUGE, Requests, [], Own;
    /// Requests that wait for a quota.
    QuotaWaits: "rocketpy_broker_waiting_for_quota", GAUGE, Requests, [], Own;
    /// Requests that exceeded a quota, and waited or were rejected.
    Throttled: "rocketpy_broker_throttled_requests_total", COUNTER, Requests, [], Own;
    /// Memory that connections make the process hold.
    PeerMemory: "rocketpy_broker_peer_memory_bytes", GAUGE, Bytes, [], Own;
    /// Maximum of that memory.
    PeerMemoryLimit: "rocketpy_broker_peer_memory_limit_bytes", GAUGE, Bytes, [], Own;
    /// Connections that were closed for their memory.
    PeersClosedForMemory: "rocketpy_broker_peers_closed_for_memory_total", COUNTER, Connections, [], Own;
    /// Sends that were refused.
    PutsFailed: "rocketpy_broker_puts_failed_total", COUNTER, Requests, [], Own;
    /// Messages of delay levels that were delivered.
    DelayedDelivered: "rocketpy_broker_delayed_delivered_total", COUNTER, Messages, [], Own;
    /// Messages of delay levels that could not be delivered.
    DelayedDropped: "rocketpy_broker_delayed_dropped_total", COUNTER, Messages, [], Own;
    /// Timer messages that wait.
    TimersWaiting: "rocketpy_broker_timers_waiting", GAUGE, Messages, [], Own;
    /// Timer messages that were delivered.
    TimersDelivered: "rocketpy_broker_timers_delivered_total", COUNTER, Messages, [], Own;
    /// Timer messages that were recalled.
    TimersRecalled: "rocketpy_broker_timers_recalled_total", COUNTER, Messages, [], Own;
    /// Timer messages that could not be delivered.
    TimersDropped: "rocketpy_broker_timers_dropped_total", COUNTER, Messages, [], Own;
    /// Transactions that were given up without an answer of a producer.
    TransactionsGivenUp: "rocketpy_broker_transactions_given_up_total", COUNTER, Messages, [], Own;
    /// Half messages that were removed because the disk was full.
    TransactionsLost: "rocketpy_broker_transactions_lost_total", COUNTER, Messages, [], Own;
    /// Questions to producers about half messages.
    TransactionsChecked: "rocketpy_broker_transactions_checked_total", COUNTER, Requests, [], Own;
    /// Used share of the file systems of the store.
    DiskUsedRatio: "rocketpy_broker_disk_used_ratio", GAUGE, Ratio, ["part", "path"], Own;
    /// Size of the file systems of the store.
    DiskSize: "rocketpy_broker_disk_size_bytes", GAUGE, Bytes, ["part", "path"], Own;
    /// Free bytes of the file systems of the store.
    DiskFree: "rocketpy_broker_disk_free_bytes", GAUGE, Bytes, ["part", "path"], Own;

    /// 1 while clients may write.
    BrokerWritable: "broker_writable", GAUGE, Flag, [];
    /// Time of the start.
    StartedAt: "started_at", GAUGE, UnixMillis, [];
    /// Stored messages, with those that the broker stores itself.
    MessagesIn: "messages_in_total", COUNTER, Messages, [];
    /// Bytes of their records.
    BytesIn: "bytes_in_total", COUNTER, Bytes, [];
    /// Messages returned to pulls.
    MessagesOut: "messages_out_total", COUNTER, Messages, [];
    /// Messages returned to pulls that were read from the disk.
    DiskMessagesOut: "disk_messages_out_total", COUNTER, Messages, [];
    /// Bytes of their records.
    DiskBytesOut: "disk_bytes_out_total", COUNTER, Bytes, [];
    /// Consumer groups of heartbeats.
    ConsumersRegistered: "consumers_registered_total", COUNTER, Requests, [];
    /// Time for which they were handled.
    ConsumersRegisteredFor: "consumers_registered_milliseconds_total", COUNTER, Milliseconds, [];
    /// Producer groups of heartbeats.
    ProducersRegistered: "producers_registered_total", COUNTER, Requests, [];
    /// Time for which they were handled.
    ProducersRegisteredFor: "producers_registered_milliseconds_total", COUNTER, Milliseconds, [];
    /// Connections of clients that began.
    Connected: "connected_total", COUNTER, Connections, [];
    /// Connections of clients that ended.
    Disconnected: "disconnected_total", COUNTER, Connections, [];
    /// Connections of clients that were closed because they were idle.
    IdleDisconnected: "idle_disconnected_total", COUNTER, Connections, [];
    /// Connections of clients that broke, or whose client broke the protocol.
    FailedConnections: "failed_connections_total", COUNTER, Connections, [];
    /// Timer messages that began to wait.
    TimersEnqueued: "timers_enqueued_total", COUNTER, Messages, [];
    /// Pulls that returned messages.
    PullsFound: "pulls_found_total", COUNTER, Requests, [];
    /// Pulls that returned none.
    PullsMissed: "pulls_missed_total", COUNTER, Requests, [];
    /// Committed transactions.
    TransactionsCommitted: "transactions_committed_total", COUNTER, Messages, [];
    /// Transactions that were rolled back.
    TransactionsRolledBack: "transactions_rolled_back_total", COUNTER, Messages, [];
    /// Mean size of stored records.
    MessageSizeAverage: "message_size_average", GAUGE, Bytes, [];
    /// Stored messages at midnight.
    MessagesInAtMidnight: "messages_in_at_midnight", GAUGE, Messages, ["day"];
    /// Returned messages at midnight.
    MessagesOutAtMidnight: "messages_out_at_midnight", GAUGE, Messages, ["day"];
    /// Rate of stored messages.
    MessagesInRate: "messages_in_rate", GAUGE, MessagesPerSecond, ["window"];
    /// Rate of returned messages.
    MessagesOutRate: "messages_out_rate", GAUGE, MessagesPerSecond, ["window"];
    /// Rate of pulls that returned messages.
    PullsFoundRate: "pulls_found_rate", GAUGE, RequestsPerSecond, ["window"];
    /// Rate of pulls that returned none.
    PullsMissedRate: "pulls_missed_rate", GAUGE, RequestsPerSecond, ["window"];
    /// Rate of pulls.
    PullsRate: "pulls_rate", GAUGE, RequestsPerSecond, ["window"];
    /// Rate at which timer messages began to wait.
    TimersEnqueuedRate: "timers_enqueued_rate", GAUGE, MessagesPerSecond, ["window"];
    /// Rate at which timer messages were delivered.
    TimersDeliveredRate: "timers_delivered_rate", GAUGE, MessagesPerSecond, ["window"];
    /// Start of the commit log.
    CommitLogMinOffset: "commit_log_min_offset", GAUGE, Bytes, [];
    /// End of the commit log.
    CommitLogMaxOffset: "commit_log_max_offset", GAUGE, Bytes, [];
    /// Time of the oldest message.
    EarliestMessageAt: "earliest_message_at", GAUGE, UnixMillis, [];
}

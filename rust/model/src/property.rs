//! The property names that clients, broker and store give a meaning to, spelt as on the wire.
//!
//! # Source
//! docs/reference/protocol.md 4.4, docs/reference/client.md 4.2.

/// Stands between a name and its value in the stored text.
pub const NAME_VALUE_SEPARATOR: u8 = 1;
/// Ends each name-value pair in the stored text.
pub const PROPERTY_SEPARATOR: u8 = 2;
/// Stands between two keys in the value of [`KEYS`].
pub const KEY_SEPARATOR: &str = " ";

/// Keys for look-ups, separated by [`KEY_SEPARATOR`].
pub const KEYS: &str = "KEYS";
/// The tag.
pub const TAGS: &str = "TAGS";
/// `false`: the acknowledgement does not wait for flush and replication.
#[doc(alias = "WAIT_STORE_MSG_OK")]
pub const WAIT: &str = "WAIT";
/// Delay level.
pub const DELAY: &str = "DELAY";
/// Topic of a message that is in a retry topic.
pub const RETRY_TOPIC: &str = "RETRY_TOPIC";
/// Topic that a message goes to when its delay, timer or transaction ends.
pub const REAL_TOPIC: &str = "REAL_TOPIC";
/// Queue that goes with [`REAL_TOPIC`].
#[doc(alias = "REAL_QID")]
pub const REAL_QUEUE_ID: &str = "REAL_QID";
/// `true` on a half message.
#[doc(alias = "TRAN_MSG")]
pub const TRANSACTION_PREPARED: &str = "TRAN_MSG";
/// Producer group that is asked about a half message.
#[doc(alias = "PGROUP")]
pub const PRODUCER_GROUP: &str = "PGROUP";
/// Minimum offset of the queue, added by the consumer.
pub const MIN_OFFSET: &str = "MIN_OFFSET";
/// Maximum offset of the queue, added by the consumer.
pub const MAX_OFFSET: &str = "MAX_OFFSET";
/// Old, passed through.
pub const BUYER_ID: &str = "BUYER_ID";
/// Old, passed through.
pub const MQ2_FLAG: &str = "MQ2_FLAG";
/// Old, passed through.
pub const TRANSFER_FLAG: &str = "TRANSFER_FLAG";
/// Old, passed through.
pub const CORRECTION_FLAG: &str = "CORRECTION_FLAG";
/// Offset message id of the first delivery of a message that is retried.
pub const ORIGIN_MESSAGE_ID: &str = "ORIGIN_MESSAGE_ID";
/// How often a message was retried, on its way to a retry topic.
pub const RECONSUME_TIME: &str = "RECONSUME_TIME";
/// How often a message may be retried, on its way to a retry topic.
pub const MAX_RECONSUME_TIMES: &str = "MAX_RECONSUME_TIMES";
/// Region of the broker.
pub const MSG_REGION: &str = "MSG_REGION";
/// Whether the broker lets clients trace.
pub const TRACE_ON: &str = "TRACE_ON";
/// Unique key: the message id that users see.
#[doc(alias = "UNIQ_KEY")]
pub const UNIQUE_KEY: &str = "UNIQ_KEY";
/// Reserved.
#[doc(alias = "EXTEND_UNIQ_INFO")]
pub const EXTEND_UNIQUE_INFO: &str = "EXTEND_UNIQ_INFO";
/// When the consumer began, added by it.
pub const CONSUME_START_TIME: &str = "CONSUME_START_TIME";
/// How many messages an inner batch holds.
pub const INNER_NUM: &str = "INNER_NUM";
/// First queue offset of an inner batch.
pub const INNER_BASE: &str = "INNER_BASE";
/// Mark of a mirrored message.
pub const DUP_INFO: &str = "DUP_INFO";
/// For how long a half message is not checked.
pub const CHECK_IMMUNITY_TIME_IN_SECONDS: &str = "CHECK_IMMUNITY_TIME_IN_SECONDS";
/// Queue offset of the half message, on one that was put back.
pub const TRAN_PREPARED_QUEUE_OFFSET: &str = "TRAN_PREPARED_QUEUE_OFFSET";
/// How often a half message was checked.
pub const TRANSACTION_CHECK_TIMES: &str = "TRANSACTION_CHECK_TIMES";
/// Transaction id: the unique key of a half message.
pub const TRANSACTION_ID: &str = "__transactionId__";
/// Namespace of the client.
pub const INSTANCE_ID: &str = "INSTANCE_ID";
/// Ties a reply to its request.
pub const CORRELATION_ID: &str = "CORRELATION_ID";
/// Client id that a reply goes to.
pub const REPLY_TO_CLIENT: &str = "REPLY_TO_CLIENT";
/// How long a requester waits, in milliseconds.
pub const TTL: &str = "TTL";
/// `reply` on a reply.
#[doc(alias = "MSG_TYPE")]
pub const MESSAGE_TYPE: &str = "MSG_TYPE";
/// When the broker got a reply.
pub const ARRIVE_TIME: &str = "ARRIVE_TIME";
/// When the broker passed a reply on.
pub const PUSH_REPLY_TIME: &str = "PUSH_REPLY_TIME";
/// Cluster of the broker.
pub const CLUSTER: &str = "CLUSTER";
/// Check point of a popped message.
pub const POP_CK: &str = "POP_CK";
/// Offset of a popped message.
pub const POP_CK_OFFSET: &str = "POP_CK_OFFSET";
/// When a message was popped first.
pub const FIRST_POP_TIME: &str = "1ST_POP_TIME";
/// The ordering key: all messages of one value go to one queue.
pub const SHARDING_KEY: &str = "__SHARDINGKEY";
/// The ordering key as the Go client spells it.
pub const SHARDING_KEY_GO: &str = "SHARDING_KEY";
/// Further queues that get an entry for the record.
pub const INNER_MULTI_DISPATCH: &str = "INNER_MULTI_DISPATCH";
/// Offsets in the queues of [`INNER_MULTI_DISPATCH`].
pub const INNER_MULTI_QUEUE_OFFSET: &str = "INNER_MULTI_QUEUE_OFFSET";
/// Delay of a timer message, in seconds.
pub const TIMER_DELAY_SEC: &str = "TIMER_DELAY_SEC";
/// Delay of a timer message, in milliseconds.
pub const TIMER_DELAY_MS: &str = "TIMER_DELAY_MS";
/// When a timer message is due.
pub const TIMER_DELIVER_MS: &str = "TIMER_DELIVER_MS";
/// When the timer took a message.
pub const TIMER_ENQUEUE_MS: &str = "TIMER_ENQUEUE_MS";
/// When the timer let a message go.
pub const TIMER_DEQUEUE_MS: &str = "TIMER_DEQUEUE_MS";
/// How often the timer took a message again.
pub const TIMER_ROLL_TIMES: &str = "TIMER_ROLL_TIMES";
/// When a message is due, as the broker worked it out.
pub const TIMER_OUT_MS: &str = "TIMER_OUT_MS";
/// Unique key of the timer message to cancel.
pub const TIMER_DEL_UNIQUE_KEY: &str = "TIMER_DEL_UNIQKEY";
/// Delay level of a message that the timer keeps.
pub const TIMER_DELAY_LEVEL: &str = "TIMER_DELAY_LEVEL";
/// Address of a proxy's client.
pub const BORN_HOST: &str = "__BORNHOST";
/// When a proxy's client made the message.
pub const BORN_TIMESTAMP: &str = "BORN_TIMESTAMP";
/// Topic of a dead letter before it failed.
pub const DLQ_ORIGIN_TOPIC: &str = "DLQ_ORIGIN_TOPIC";
/// Offset message id of a dead letter before it failed.
pub const DLQ_ORIGIN_MESSAGE_ID: &str = "DLQ_ORIGIN_MESSAGE_ID";
/// The whole-record check (docs/reference/store-format.md 2.5).
pub const CRC32: &str = "__CRC32#";

/// Names that a user's own property must not have.
///
/// # Source
/// docs/reference/client.md 4.2, last paragraph.
pub const RESERVED: &[&str] = &[
    TRACE_ON,
    MSG_REGION,
    KEYS,
    TAGS,
    WAIT,
    DELAY,
    RETRY_TOPIC,
    REAL_TOPIC,
    REAL_QUEUE_ID,
    TRANSACTION_PREPARED,
    PRODUCER_GROUP,
    MIN_OFFSET,
    MAX_OFFSET,
    BUYER_ID,
    ORIGIN_MESSAGE_ID,
    TRANSFER_FLAG,
    CORRECTION_FLAG,
    MQ2_FLAG,
    RECONSUME_TIME,
    UNIQUE_KEY,
    MAX_RECONSUME_TIMES,
    CONSUME_START_TIME,
    POP_CK,
    POP_CK_OFFSET,
    FIRST_POP_TIME,
    TRAN_PREPARED_QUEUE_OFFSET,
    DUP_INFO,
    EXTEND_UNIQUE_INFO,
    INSTANCE_ID,
    CORRELATION_ID,
    REPLY_TO_CLIENT,
    TTL,
    ARRIVE_TIME,
    PUSH_REPLY_TIME,
    CLUSTER,
    MESSAGE_TYPE,
    INNER_MULTI_QUEUE_OFFSET,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_ENQUEUE_MS,
    TIMER_DEQUEUE_MS,
    TIMER_ROLL_TIMES,
    TIMER_OUT_MS,
    TIMER_DEL_UNIQUE_KEY,
    TIMER_DELAY_LEVEL,
    BORN_HOST,
    BORN_TIMESTAMP,
    DLQ_ORIGIN_TOPIC,
    DLQ_ORIGIN_MESSAGE_ID,
    CRC32,
];

/// Says whether `name` is one of [`RESERVED`].
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

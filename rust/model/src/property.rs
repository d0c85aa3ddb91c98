//! The property names that clients, broker and store give a meaning to, spelt as on the wire.
//!
//! # Source
//! docs/reference/protocol.md 4.4, docs/reference/client.md 4.2.

/// Separates a name from its value in the stored text.
pub const NAME_VALUE_SEPARATOR: u8 = 1;
/// Ends each name-value pair in the stored text.
pub const PROPERTY_SEPARATOR: u8 = 2;
/// Separates two keys in the value of [`KEYS`].
pub const KEY_SEPARATOR: &str = " ";

/// The keys in a value of [`KEYS`]. Only U+0020 separates keys, as for Apache's clients and index: a tab, a line break or another blank
/// is part of its key.
pub fn split_keys(text: &str) -> impl Iterator<Item = &str> {
    text.split(KEY_SEPARATOR).filter(|key| !key.is_empty())
}

/// As [`split_keys`], for a value that may not be UTF-8.
pub fn split_key_bytes(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let separator = KEY_SEPARATOR.as_bytes()[0];
    text.split(move |&byte| byte == separator).filter(|key| !key.is_empty())
}

/// Keys by which tools look the message up.
pub const KEYS: &str = "KEYS";
/// The tag by which consumers filter.
pub const TAGS: &str = "TAGS";
/// Whether the sender waits until the message is stored.
#[doc(alias = "WAIT_STORE_MSG_OK")]
pub const WAIT: &str = "WAIT";
/// Delay level, from 1.
pub const DELAY: &str = "DELAY";
/// Original topic of a message that is delivered again.
pub const RETRY_TOPIC: &str = "RETRY_TOPIC";
/// Topic that a message goes to once its delay or transaction ends.
pub const REAL_TOPIC: &str = "REAL_TOPIC";
/// Queue that goes with [`REAL_TOPIC`].
#[doc(alias = "REAL_QID")]
pub const REAL_QUEUE_ID: &str = "REAL_QID";
/// Marks a half message.
#[doc(alias = "TRAN_MSG")]
pub const TRANSACTION_PREPARED: &str = "TRAN_MSG";
/// Group that answers the check-back of a half message.
#[doc(alias = "PGROUP")]
pub const PRODUCER_GROUP: &str = "PGROUP";
/// Minimum offset of the queue when the message was pulled.
pub const MIN_OFFSET: &str = "MIN_OFFSET";
/// Maximum offset of the queue when the message was pulled.
pub const MAX_OFFSET: &str = "MAX_OFFSET";
/// Of earlier versions; passed through.
pub const BUYER_ID: &str = "BUYER_ID";
/// Of earlier versions; passed through.
pub const MQ2_FLAG: &str = "MQ2_FLAG";
/// Of earlier versions; passed through.
pub const TRANSFER_FLAG: &str = "TRANSFER_FLAG";
/// Of earlier versions; passed through.
pub const CORRECTION_FLAG: &str = "CORRECTION_FLAG";
/// Message id of the first delivery of a message that is delivered again.
pub const ORIGIN_MESSAGE_ID: &str = "ORIGIN_MESSAGE_ID";
/// How often the message was sent back.
pub const RECONSUME_TIME: &str = "RECONSUME_TIME";
/// Most deliveries before the message goes to the dead-letter topic.
pub const MAX_RECONSUME_TIMES: &str = "MAX_RECONSUME_TIMES";
/// Region of the broker that stored the message.
pub const MSG_REGION: &str = "MSG_REGION";
/// Whether clients trace the message.
pub const TRACE_ON: &str = "TRACE_ON";
/// Unique key that the producer made.
#[doc(alias = "UNIQ_KEY")]
pub const UNIQUE_KEY: &str = "UNIQ_KEY";
/// Reserved by Apache.
#[doc(alias = "EXTEND_UNIQ_INFO")]
pub const EXTEND_UNIQUE_INFO: &str = "EXTEND_UNIQ_INFO";
/// When the consumer entered its listener, in milliseconds since 1970; never sent.
pub const CONSUME_START_TIME: &str = "CONSUME_START_TIME";
/// Number of messages of an inner batch.
pub const INNER_NUM: &str = "INNER_NUM";
/// First queue offset of an inner batch.
pub const INNER_BASE: &str = "INNER_BASE";
/// Marks a mirrored or duplicated message.
pub const DUP_INFO: &str = "DUP_INFO";
/// Seconds before the first check-back of a half message.
pub const CHECK_IMMUNITY_TIME_IN_SECONDS: &str = "CHECK_IMMUNITY_TIME_IN_SECONDS";
/// Queue offset of the half message.
pub const TRAN_PREPARED_QUEUE_OFFSET: &str = "TRAN_PREPARED_QUEUE_OFFSET";
/// How often a half message was checked back.
pub const TRANSACTION_CHECK_TIMES: &str = "TRANSACTION_CHECK_TIMES";
/// Transaction id that the producer chose.
pub const TRANSACTION_ID: &str = "__transactionId__";
/// Namespace of the client.
pub const INSTANCE_ID: &str = "INSTANCE_ID";
/// Matches a reply with its request.
pub const CORRELATION_ID: &str = "CORRELATION_ID";
/// Client that waits for the reply.
pub const REPLY_TO_CLIENT: &str = "REPLY_TO_CLIENT";
/// Milliseconds for which a request waits for its reply.
pub const TTL: &str = "TTL";
/// Kind of the message: a reply says `reply`.
#[doc(alias = "MSG_TYPE")]
pub const MESSAGE_TYPE: &str = "MSG_TYPE";
/// When the broker took a reply, in milliseconds since 1970.
pub const ARRIVE_TIME: &str = "ARRIVE_TIME";
/// When the broker pushed a reply to its client, in milliseconds since 1970.
pub const PUSH_REPLY_TIME: &str = "PUSH_REPLY_TIME";
/// Cluster of the broker that stored the message; replies go to its reply topic.
pub const CLUSTER: &str = "CLUSTER";
/// Receipt handle of a message that was popped.
pub const POP_CK: &str = "POP_CK";
/// Queue offset that goes with [`POP_CK`].
pub const POP_CK_OFFSET: &str = "POP_CK_OFFSET";
/// When the message was popped first, in milliseconds since 1970.
pub const FIRST_POP_TIME: &str = "1ST_POP_TIME";
/// The ordering key: all messages of one value go to one queue.
pub const SHARDING_KEY: &str = "__SHARDINGKEY";
/// Light queues that the message is dispatched to as well.
pub const INNER_MULTI_DISPATCH: &str = "INNER_MULTI_DISPATCH";
/// Queue offsets in the queues of [`INNER_MULTI_DISPATCH`].
pub const INNER_MULTI_QUEUE_OFFSET: &str = "INNER_MULTI_QUEUE_OFFSET";
/// Delay of a timer message in seconds.
pub const TIMER_DELAY_SEC: &str = "TIMER_DELAY_SEC";
/// Delay of a timer message in milliseconds.
pub const TIMER_DELAY_MS: &str = "TIMER_DELAY_MS";
/// Time of delivery of a timer message, in milliseconds since 1970.
pub const TIMER_DELIVER_MS: &str = "TIMER_DELIVER_MS";
/// When the timer wheel took the message, in milliseconds since 1970.
pub const TIMER_ENQUEUE_MS: &str = "TIMER_ENQUEUE_MS";
/// When the timer wheel gave the message out, in milliseconds since 1970.
pub const TIMER_DEQUEUE_MS: &str = "TIMER_DEQUEUE_MS";
/// How often the message went around the timer wheel.
pub const TIMER_ROLL_TIMES: &str = "TIMER_ROLL_TIMES";
/// Time at which the timer wheel is to deliver, in milliseconds since 1970.
pub const TIMER_OUT_MS: &str = "TIMER_OUT_MS";
/// Unique key of the timer message to delete.
pub const TIMER_DEL_UNIQUE_KEY: &str = "TIMER_DEL_UNIQKEY";
/// Delay level of a timer message.
pub const TIMER_DELAY_LEVEL: &str = "TIMER_DELAY_LEVEL";
/// Born host of a message that a proxy sent.
pub const BORN_HOST: &str = "__BORNHOST";
/// Born time of a message that a proxy sent, in milliseconds since 1970.
pub const BORN_TIMESTAMP: &str = "BORN_TIMESTAMP";
/// Topic from which a message came to the dead-letter topic.
pub const DLQ_ORIGIN_TOPIC: &str = "DLQ_ORIGIN_TOPIC";
/// Message id that it had there.
pub const DLQ_ORIGIN_MESSAGE_ID: &str = "DLQ_ORIGIN_MESSAGE_ID";
/// RocketPy's own: why a message that was given back went to the dead-letter topic.
pub const DLQ_REASON: &str = "DLQ_REASON";
/// RocketPy's own: type and text of the error for which a message went to the dead-letter topic, as
/// [`error_text`](crate::dead_letter::error_text) prepares it.
pub const DLQ_ERROR: &str = "DLQ_ERROR";
/// RocketPy's own: topic that a message which was sent again came from.
pub const ORIGIN_TOPIC: &str = "rocketpyOriginTopic";
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
    DLQ_REASON,
    DLQ_ERROR,
    CRC32,
];

/// Says whether `name` is one of [`RESERVED`].
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

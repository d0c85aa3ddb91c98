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

pub const KEYS: &str = "KEYS";
pub const TAGS: &str = "TAGS";
#[doc(alias = "WAIT_STORE_MSG_OK")]
pub const WAIT: &str = "WAIT";
pub const DELAY: &str = "DELAY";
pub const RETRY_TOPIC: &str = "RETRY_TOPIC";
pub const REAL_TOPIC: &str = "REAL_TOPIC";
#[doc(alias = "REAL_QID")]
pub const REAL_QUEUE_ID: &str = "REAL_QID";
#[doc(alias = "TRAN_MSG")]
pub const TRANSACTION_PREPARED: &str = "TRAN_MSG";
#[doc(alias = "PGROUP")]
pub const PRODUCER_GROUP: &str = "PGROUP";
pub const MIN_OFFSET: &str = "MIN_OFFSET";
pub const MAX_OFFSET: &str = "MAX_OFFSET";
pub const BUYER_ID: &str = "BUYER_ID";
pub const MQ2_FLAG: &str = "MQ2_FLAG";
pub const TRANSFER_FLAG: &str = "TRANSFER_FLAG";
pub const CORRECTION_FLAG: &str = "CORRECTION_FLAG";
pub const ORIGIN_MESSAGE_ID: &str = "ORIGIN_MESSAGE_ID";
pub const RECONSUME_TIME: &str = "RECONSUME_TIME";
pub const MAX_RECONSUME_TIMES: &str = "MAX_RECONSUME_TIMES";
pub const MSG_REGION: &str = "MSG_REGION";
pub const TRACE_ON: &str = "TRACE_ON";
#[doc(alias = "UNIQ_KEY")]
pub const UNIQUE_KEY: &str = "UNIQ_KEY";
#[doc(alias = "EXTEND_UNIQ_INFO")]
pub const EXTEND_UNIQUE_INFO: &str = "EXTEND_UNIQ_INFO";
pub const CONSUME_START_TIME: &str = "CONSUME_START_TIME";
pub const INNER_NUM: &str = "INNER_NUM";
pub const INNER_BASE: &str = "INNER_BASE";
pub const DUP_INFO: &str = "DUP_INFO";
pub const CHECK_IMMUNITY_TIME_IN_SECONDS: &str = "CHECK_IMMUNITY_TIME_IN_SECONDS";
pub const TRAN_PREPARED_QUEUE_OFFSET: &str = "TRAN_PREPARED_QUEUE_OFFSET";
pub const TRANSACTION_CHECK_TIMES: &str = "TRANSACTION_CHECK_TIMES";
pub const TRANSACTION_ID: &str = "__transactionId__";
pub const INSTANCE_ID: &str = "INSTANCE_ID";
pub const CORRELATION_ID: &str = "CORRELATION_ID";
pub const REPLY_TO_CLIENT: &str = "REPLY_TO_CLIENT";
pub const TTL: &str = "TTL";
#[doc(alias = "MSG_TYPE")]
pub const MESSAGE_TYPE: &str = "MSG_TYPE";
pub const ARRIVE_TIME: &str = "ARRIVE_TIME";
pub const PUSH_REPLY_TIME: &str = "PUSH_REPLY_TIME";
pub const CLUSTER: &str = "CLUSTER";
pub const POP_CK: &str = "POP_CK";
pub const POP_CK_OFFSET: &str = "POP_CK_OFFSET";
pub const FIRST_POP_TIME: &str = "1ST_POP_TIME";
/// The ordering key: all messages of one value go to one queue.
pub const SHARDING_KEY: &str = "__SHARDINGKEY";
/// The ordering key as the Go client spells it.
pub const SHARDING_KEY_GO: &str = "SHARDING_KEY";
pub const INNER_MULTI_DISPATCH: &str = "INNER_MULTI_DISPATCH";
pub const INNER_MULTI_QUEUE_OFFSET: &str = "INNER_MULTI_QUEUE_OFFSET";
pub const TIMER_DELAY_SEC: &str = "TIMER_DELAY_SEC";
pub const TIMER_DELAY_MS: &str = "TIMER_DELAY_MS";
pub const TIMER_DELIVER_MS: &str = "TIMER_DELIVER_MS";
pub const TIMER_ENQUEUE_MS: &str = "TIMER_ENQUEUE_MS";
pub const TIMER_DEQUEUE_MS: &str = "TIMER_DEQUEUE_MS";
pub const TIMER_ROLL_TIMES: &str = "TIMER_ROLL_TIMES";
pub const TIMER_OUT_MS: &str = "TIMER_OUT_MS";
pub const TIMER_DEL_UNIQUE_KEY: &str = "TIMER_DEL_UNIQKEY";
pub const TIMER_DELAY_LEVEL: &str = "TIMER_DELAY_LEVEL";
pub const BORN_HOST: &str = "__BORNHOST";
pub const BORN_TIMESTAMP: &str = "BORN_TIMESTAMP";
pub const DLQ_ORIGIN_TOPIC: &str = "DLQ_ORIGIN_TOPIC";
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

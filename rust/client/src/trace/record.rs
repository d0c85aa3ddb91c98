//! Trace records.
//!
//! # Source
//! docs/reference/client.md 6.2.

/// Region of a broker that does not say its own.
pub(super) const DEFAULT_REGION: &str = "DefaultRegion";

/// What a client did with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "TraceContext")]
pub enum TraceRecord<'a> {
    /// A broker acknowledged it.
    Sent(TracedSend<'a>),
    /// A consumer got it.
    Began(TracedBegin<'a>),
    /// A consumer is done with it.
    Ended(TracedEnd<'a>),
    TransactionEnded(TracedTransaction<'a>),
    /// It was taken back before its time.
    Recalled(TracedRecall<'a>),
}

/// An acknowledged send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "Pub")]
pub struct TracedSend<'a> {
    /// When the send began (milliseconds since 1970).
    pub at_ms: i64,
    /// Region of the broker.
    pub region: &'a str,
    /// Producer group.
    pub group: &'a str,
    /// The message's topic.
    pub topic: &'a str,
    /// Unique key of the message.
    pub msg_id: &'a str,
    /// The message's tag.
    pub tag: Option<&'a str>,
    /// The message's keys, with blanks between.
    pub keys: Option<&'a str>,
    /// `host:port` of the broker that stored it.
    pub store_host: &'a str,
    /// Length of the body as it was sent, compressed or not.
    pub body_bytes: i64,
    /// From the request to its answer.
    pub cost_ms: i64,
    /// What kind of message it is; `None` for a number that is not known here.
    pub kind: Option<TracedKind>,
    /// Offset message id. Old writers leave it out.
    pub offset_msg_id: Option<&'a str>,
    /// Whether the broker stored it as its policy asks.
    pub success: bool,
    /// The client that sent it. Apache's clients since 5.0 leave it out.
    pub client_host: Option<&'a str>,
}

/// A message that a consumer got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "SubBefore")]
pub struct TracedBegin<'a> {
    /// When (milliseconds since 1970).
    pub at_ms: i64,
    /// Region of the broker.
    pub region: &'a str,
    /// Consumer group.
    pub group: &'a str,
    /// The same in the record of its end.
    pub request_id: &'a str,
    /// Unique key of the message.
    pub msg_id: &'a str,
    /// How many times it had been sent back.
    pub retries: i64,
    /// The message's keys, with blanks between.
    pub keys: Option<&'a str>,
}

/// A message that a consumer is done with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "SubAfter")]
pub struct TracedEnd<'a> {
    /// The same as in the record of its begin.
    pub request_id: &'a str,
    /// Unique key of the message.
    pub msg_id: &'a str,
    /// Time for one message, on average of those that were handed out together.
    pub cost_ms: i64,
    /// Whether it counts as consumed.
    pub success: bool,
    /// The message's keys, with blanks between.
    pub keys: Option<&'a str>,
    /// How it ended; `None` where the writer does not say it.
    pub result: Option<ConsumeResult>,
    /// When (milliseconds since 1970). Old writers leave it out.
    pub at_ms: Option<i64>,
    /// Consumer group. Old writers leave it out.
    pub group: Option<&'a str>,
}

/// The end of a message's transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "EndTransaction")]
pub struct TracedTransaction<'a> {
    /// When (milliseconds since 1970).
    pub at_ms: i64,
    /// Region of the broker.
    pub region: &'a str,
    /// Producer group.
    pub group: &'a str,
    /// The message's topic.
    pub topic: &'a str,
    /// Unique key of the message.
    pub msg_id: &'a str,
    /// The message's tag.
    pub tag: Option<&'a str>,
    /// The message's keys, with blanks between.
    pub keys: Option<&'a str>,
    /// `host:port` of the broker.
    pub store_host: &'a str,
    pub transaction_id: Option<&'a str>,
    /// `COMMIT_MESSAGE`, `ROLLBACK_MESSAGE` or `UNKNOW`.
    pub state: &'a str,
    /// Whether the broker had asked.
    pub from_check: bool,
}

/// A recall of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "Recall")]
pub struct TracedRecall<'a> {
    /// When (milliseconds since 1970).
    pub at_ms: i64,
    /// Region of the broker.
    pub region: &'a str,
    /// Producer group.
    pub group: &'a str,
    /// The message's topic.
    pub topic: &'a str,
    /// Unique key of the message.
    pub msg_id: &'a str,
    /// Whether the broker took it back.
    pub success: bool,
}

/// Kinds of messages. The number of each is its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "MessageType")]
pub enum TracedKind {
    /// None of the others.
    Normal,
    /// It waits for the end of its transaction.
    Half,
    /// Its transaction ended.
    Commit,
    /// It waits for its time.
    Delay,
    /// It has an order.
    Order,
}

impl TracedKind {
    pub(super) const ALL: [Self; 5] = [Self::Normal, Self::Half, Self::Commit, Self::Delay, Self::Order];

    /// Its name in small letters.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Half => "half",
            Self::Commit => "commit",
            Self::Delay => "delay",
            Self::Order => "order",
        }
    }
}

/// How a consumer ended with a message. The number of each is its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "ConsumeReturnType")]
pub enum ConsumeResult {
    /// It is consumed.
    Success,
    /// The handler took longer than it may. The message may be consumed all the same.
    TimedOut,
    /// The handler raised an exception.
    Exception,
    /// The handler returned nothing, where that is no success.
    ReturnedNull,
    /// The handler asked for it again.
    Failed,
}

impl ConsumeResult {
    pub(super) const ALL: [Self; 5] =
        [Self::Success, Self::TimedOut, Self::Exception, Self::ReturnedNull, Self::Failed];

    /// Its name in small letters.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::TimedOut => "timed out",
            Self::Exception => "exception",
            Self::ReturnedNull => "returned null",
            Self::Failed => "failed",
        }
    }
}

impl<'a> TraceRecord<'a> {
    /// The id of the message.
    pub fn msg_id(&self) -> &'a str {
        match self {
            Self::Sent(record) => record.msg_id,
            Self::Began(record) => record.msg_id,
            Self::Ended(record) => record.msg_id,
            Self::TransactionEnded(record) => record.msg_id,
            Self::Recalled(record) => record.msg_id,
        }
    }
}

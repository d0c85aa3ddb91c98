//! What can go wrong in a client, and the two questions every error answers: may a retry help, and may the call
//! have been applied.

use std::sync::Arc;

use rocketpy_filter::{SqlError, TagsError};
use rocketpy_model::{MessageQueue, PhysicalOffset, QueueOffset};
use rocketpy_protocol::code::response;

use crate::admin::CONFIGURATION_CHANGE;
use crate::config::AUTO_COMMIT;

/// Everything a client operation can fail with.
///
/// Cheap to clone: every message of a failed wire batch gets a copy.
///
/// # Source
/// docs/reference/client.md 20.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[doc(alias = "MQClientException")]
#[allow(missing_docs, reason = "the text of each variant names its fields")]
pub enum ClientError {
    /// A topic name breaks the naming rules.
    #[error("{reason}")]
    InvalidTopic { topic: String, reason: String },
    /// A group name breaks the naming rules, or is reserved.
    #[error("{reason}")]
    InvalidGroup { group: String, reason: String },
    /// A topic that clients may not send to.
    #[error("clients may not send to the system topic: {topic}")]
    ReservedTopic { topic: String },
    /// A topic of the broker itself, which clients cannot create, change or delete.
    #[error("a system topic cannot be created, changed or deleted: {topic}")]
    SystemTopic { topic: String },
    /// A message without a body: the wire format has no empty body.
    #[error("the message body is empty, topic: {topic}")]
    EmptyBody { topic: String },
    /// A body, or a batch item, over the limit.
    #[error("the message body is too large ({size_bytes} bytes, at most {limit_bytes}), topic: {topic}")]
    BodyTooLarge { topic: String, size_bytes: usize, limit_bytes: usize },
    /// More property text than a record can hold.
    #[error(
        "the message properties are too large ({size_bytes} bytes, at most {limit_bytes}), topic: {topic}"
    )]
    PropertiesTooLarge { topic: String, size_bytes: usize, limit_bytes: usize },
    /// A property that a record cannot hold.
    #[error("illegal property ({reason}): {name}")]
    InvalidProperty { name: String, reason: String },
    /// A tag that no subscription can name.
    #[error("no subscription can name the tag ({reason}): {tag}")]
    InvalidTag { tag: String, reason: &'static str },
    /// A message that asks for a feature that does not exist yet.
    #[error("{feature} messages are not supported yet, property: {property}")]
    Unsupported { feature: &'static str, property: String },
    /// A transaction whose message is to wait, and a broker that does not say that it can.
    #[error("broker {address} does not support transactions with {property}, Apache's lose the message")]
    NoDelayedTransactions { address: String, property: &'static str },
    /// A queue given for a message of another topic.
    #[error("the queue belongs to topic {queue_topic}, the message to topic: {topic}")]
    WrongQueue { topic: String, queue_topic: String },
    /// Tags that cannot be asked for.
    #[error(transparent)]
    InvalidExpression(#[from] TagsError),
    /// An SQL92 expression that cannot be evaluated.
    #[error("illegal SQL92 expression ({reason}): {expression}")]
    InvalidSql { expression: String, reason: SqlError },
    /// A broker that filters by tags only.
    #[error("broker {address} does not filter by SQL92: {remark}")]
    NoSqlFilter { address: String, remark: String },
    /// A configuration value outside its range.
    #[error("illegal value for {field} ({reason})")]
    InvalidConfig { field: &'static str, reason: String },
    /// An offset message id that does not decode.
    #[error("not an offset message id: {id}")]
    InvalidMessageId { id: String },
    /// A half message whose broker did not confirm that it is safe.
    #[error("the broker did not confirm half message {msg_id} ({status}), it was taken back")]
    HalfInDoubt { msg_id: String, status: &'static str },
    /// A recall handle that does not decode.
    #[error("not a recall handle: {handle}")]
    InvalidRecallHandle { handle: String },
    /// No name server address was given.
    #[error("no name server address was given")]
    NoNameServer,
    /// A server address that is not `host:port`.
    #[error("not a server address (host:port): {address}")]
    InvalidAddress { address: String },
    /// No name server knows the topic.
    #[error("no route for topic: {topic}")]
    NoRoute { topic: String },
    /// A topic to delete, which no name server knows.
    #[error("there is no such topic to delete: {topic}")]
    NoSuchTopic { topic: String },
    /// The topic has a route, but none of its queues may be written (or read).
    #[error("topic has no {wanted} queue: {topic}")]
    NoQueue { topic: String, wanted: &'static str },
    /// The route names a broker without a usable address.
    #[error("no address is known for broker: {broker_name}")]
    BrokerNotFound { broker_name: String },
    /// The name server knows no broker at all.
    #[error("no broker is registered at the name server: {name_server}")]
    NoBrokers { name_server: String },
    /// No cluster of that name is registered.
    #[error("no such cluster: {cluster}")]
    ClusterNotFound { cluster: String },
    /// The group is registered at this client already.
    #[error("the {role} group has been created before by this client: {group}")]
    GroupInUse { role: &'static str, group: String },
    /// Another live member of the group subscribes to other topics or tags. Members share the queues, so each gets only a part of
    /// what it wants.
    #[error(
        "another member of group {group} subscribes to other topics or tags, so both miss messages: {client_id} wants {subscriptions}"
    )]
    OtherSubscriptions { group: String, client_id: String, subscriptions: String },
    /// The broker that was asked knows no member of the group.
    #[error("no members are known of group: {group}")]
    NoMembers { group: String },
    /// A member cannot have its share of a topic's queues, and keeps those that it has.
    #[error(
        "group {group} cannot share out the queues of topic {topic} ({reason}), this member keeps its queues"
    )]
    NotBalanced { group: String, topic: String, reason: String },
    /// The group has live members, which the change would meet.
    #[error("the group has {members} live members: {group}")]
    GroupActive { group: String, members: usize },
    /// The offsets of a member that gets all messages cannot be read, written, or are another member's.
    #[error("the offsets of a broadcast consumer cannot be used ({reason}): {path}")]
    OffsetsFile { path: String, reason: String, is_shared: bool },
    /// The server answered with a code that is not success.
    #[error("{operation} was refused by {address}: {code} {name}: {remark}")]
    Refused { operation: &'static str, address: String, code: i32, name: &'static str, remark: String },
    /// A transaction that can never end as asked: it ended otherwise, or its half message is gone.
    #[error("{refused}")]
    TransactionOver { refused: Box<Self> },
    /// No connection could be made.
    #[error("cannot connect to {address}: {reason}")]
    Connect { address: String, reason: String },
    /// No answer arrived in time.
    #[error("{operation} timed out after {timeout_ms} ms, server: {address}")]
    Timeout { operation: &'static str, address: String, timeout_ms: u64, may_have_been_applied: bool },
    /// Too many requests waited for one server during the whole timeout.
    #[error("no room for {operation} within {timeout_ms} ms: too many requests wait for {address}")]
    Congested { operation: &'static str, address: String, timeout_ms: u64 },
    /// A message, or a batch, that is larger than a frame.
    #[error(
        "the message is too large for a frame ({size_bytes} bytes with its header, at most {limit_bytes}), topic: {topic}"
    )]
    MessageNotFramed { topic: String, size_bytes: usize, limit_bytes: usize },
    /// The request is larger than a frame.
    #[error(
        "the request of {operation} is too large for a frame ({size_bytes} bytes, at most {limit_bytes})"
    )]
    FrameTooLarge { operation: &'static str, size_bytes: usize, limit_bytes: usize },
    /// The request cannot be written in its serialization.
    #[error("the request of {operation} cannot be framed: {reason}")]
    NotFramed { operation: &'static str, reason: String },
    /// The connection ended before the answer arrived.
    #[error("the connection was lost during {operation} ({reason}), server: {address}")]
    ConnectionLost { operation: &'static str, address: String, reason: String, may_have_been_applied: bool },
    /// The request was under way when the runtime ended, or it panicked.
    #[error("given up while it was under way: the runtime of the client ended, or the request panicked")]
    Abandoned,
    /// No broker of a consumer could be reached for a time. It continues by itself when one is back.
    #[error("no broker could be reached for {} s ({brokers}): {last}", silence_ms / 1000)]
    Unreachable { brokers: String, silence_ms: u64, last: Arc<Self> },
    /// The answer does not follow the protocol.
    #[error("{address} sent an ill-formed answer to {operation}: {reason}")]
    BadAnswer { operation: &'static str, address: String, reason: String, may_have_been_applied: bool },
    /// The last of several attempts failed.
    #[error(
        "sending to topic {topic} failed after {attempts} attempts in {elapsed_ms} ms at {brokers}: {last}"
    )]
    SendFailed {
        topic: String,
        attempts: u32,
        elapsed_ms: u64,
        /// Names of the brokers tried, joined by commas.
        brokers: String,
        /// True when any of the attempts may have been applied.
        may_have_been_applied: bool,
        last: Arc<Self>,
    },
    /// A message of `send_many` that was not tried, because an earlier one for the same queue failed.
    #[error("not sent, an earlier message for the same queue failed: {first}")]
    NotSent { first: Arc<Self> },
    /// Some messages of `send_many` were not acknowledged.
    #[error("{failed} of {total} messages were not acknowledged, the first: {first}")]
    PartlySent {
        failed: usize,
        total: usize,
        /// True when any of the messages that were not acknowledged may have been stored.
        may_have_been_applied: bool,
        first: Arc<Self>,
    },
    /// The window of unacknowledged messages stayed full.
    #[error("the send window stayed full for {timeout_ms} ms ({in_flight} messages in flight)")]
    WindowFull { in_flight: usize, timeout_ms: u64 },
    /// A request was sent, and nobody replied in time.
    #[error("no reply came within {timeout_ms} ms to message {msg_id} of topic: {topic}")]
    NoReply { topic: String, msg_id: String, timeout_ms: u64 },
    /// The producer was closed while a request waited for its reply. The request may be stored, and be answered.
    #[error("the producer was closed before a reply came to message {msg_id} of topic: {topic}")]
    ClosedBeforeReply { topic: String, msg_id: String },
    /// As many requests as an instance may have wait for their replies.
    #[error("{limit} requests wait for their replies already")]
    TooManyRequests { limit: usize },
    /// A message that is to be replied to does not ask for a reply.
    #[error("message {msg_id} asks for no reply, it has no property {property}, topic: {topic}")]
    NoRequest { property: &'static str, topic: String, msg_id: String },
    /// Messages were still unacknowledged at the end of the timeout.
    #[error("{in_flight} messages were still unacknowledged after {timeout_ms} ms")]
    FlushTimeout { in_flight: usize, timeout_ms: u64 },
    /// A body that does not compress or decompress.
    #[error("{codec} failed: {reason}")]
    Codec { codec: &'static str, reason: String },
    /// A message is not what was stored: a checksum does not match, or its fields do not fit together. It is not handed out.
    #[error(
        "message {queue_offset} at physical offset {physical_offset} is damaged ({reason}), queue: {queue}"
    )]
    DamagedMessage {
        queue: MessageQueue,
        queue_offset: QueueOffset,
        physical_offset: PhysicalOffset,
        reason: String,
    },
    /// The body of a message does not decompress within the limits. It is not handed out.
    #[error(
        "the body of message {queue_offset} at physical offset {physical_offset} does not decompress ({reason}), queue: {queue}"
    )]
    UnreadableBody {
        queue: MessageQueue,
        queue_offset: QueueOffset,
        physical_offset: PhysicalOffset,
        reason: String,
        /// The limit, if the body exceeds it.
        limit_bytes: Option<usize>,
    },
    /// The queue is not assigned to this consumer.
    #[error("the queue is not assigned to this consumer: {queue}")]
    NotAssigned { queue: MessageQueue },
    /// A seek or commit outside what the queue holds or what was handed out.
    #[error("offset {offset} is outside {min} to {max}, queue: {queue}")]
    OffsetOutOfRange { queue: MessageQueue, offset: QueueOffset, min: QueueOffset, max: QueueOffset },
    /// `Start::Stored`, and the group has no stored offset for the queue.
    #[error("group {group} has no stored offset for the queue: {queue}")]
    NoStoredOffset { group: String, queue: MessageQueue },
    /// The client, producer or consumer was closed.
    #[error("the {what} is closed")]
    Closed { what: &'static str },
    /// The object was made before a fork and is used in the child.
    #[error(
        "the client was created by process {created_by} and cannot be used after a fork, process: {current}"
    )]
    Forked { created_by: u32, current: u32 },
}

/// Local code of "cannot connect". See [`ClientError::code`].
pub(crate) const CODE_CONNECT: i32 = 10001;
/// Local code of "no answer in time".
pub(crate) const CODE_TIMEOUT: i32 = 10002;
/// Local code of "no such broker", and of client errors during a send.
pub(crate) const CODE_BROKER_NOT_EXIST: i32 = 10003;
/// Local code of "no name server".
pub(crate) const CODE_NO_NAME_SERVER: i32 = 10004;
/// Local code of "no route".
pub(crate) const CODE_NO_ROUTE: i32 = 10005;
/// Local code of "no reply in time".
pub(crate) const CODE_NO_REPLY: i32 = 10006;
/// Local code of "no reply can be made".
pub(crate) const CODE_NO_REQUEST: i32 = 10007;

impl ClientError {
    /// The route of a queue's topic does not name its broker.
    pub(crate) fn broker_not_found(queue: &MessageQueue) -> Self {
        Self::BrokerNotFound { broker_name: queue.broker_name.to_string() }
    }

    /// The response code of the server, or the local code that Apache's client gives this failure.
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::TransactionOver { refused } => refused.code(),
            Self::Connect { .. } | Self::ConnectionLost { .. } | Self::Unreachable { .. } => {
                Some(CODE_CONNECT)
            }
            Self::Timeout { .. } | Self::FlushTimeout { .. } => Some(CODE_TIMEOUT),
            Self::BrokerNotFound { .. } | Self::NoBrokers { .. } => Some(CODE_BROKER_NOT_EXIST),
            Self::NoNameServer => Some(CODE_NO_NAME_SERVER),
            Self::NoReply { .. } => Some(CODE_NO_REPLY),
            Self::NoRequest { .. } => Some(CODE_NO_REQUEST),
            Self::NoRoute { .. } | Self::NoSuchTopic { .. } | Self::NoQueue { .. } => Some(CODE_NO_ROUTE),
            Self::EmptyBody { .. }
            | Self::BodyTooLarge { .. }
            | Self::PropertiesTooLarge { .. }
            | Self::MessageNotFramed { .. }
            | Self::InvalidTag { .. } => Some(response::MESSAGE_ILLEGAL),
            Self::SendFailed { last, .. } => last.code(),
            Self::PartlySent { first, .. } | Self::NotSent { first } => first.code(),
            _ => None,
        }
    }

    /// Whether the server answered with this code.
    pub(crate) fn is_refused_with(&self, wanted: i32) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == wanted)
    }

    /// Whether the same call may succeed later without a change of its arguments.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Refused { code, .. } => is_retryable_code(*code),
            Self::Connect { .. }
            | Self::ConnectionLost { .. }
            | Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::Congested { .. }
            | Self::NoRoute { .. }
            | Self::NoQueue { .. }
            | Self::NoMembers { .. }
            | Self::BrokerNotFound { .. }
            | Self::NoBrokers { .. }
            | Self::WindowFull { .. }
            | Self::NoReply { .. }
            | Self::TooManyRequests { .. }
            | Self::HalfInDoubt { .. }
            | Self::FlushTimeout { .. } => true,
            Self::SendFailed { last, .. } => last.retryable(),
            Self::PartlySent { first, .. } | Self::NotSent { first } => first.retryable(),
            _ => false,
        }
    }

    /// Whether the server may have applied the request in spite of this error.
    pub fn may_have_been_applied(&self) -> bool {
        match self {
            Self::Timeout { may_have_been_applied, .. }
            | Self::ConnectionLost { may_have_been_applied, .. }
            | Self::BadAnswer { may_have_been_applied, .. }
            | Self::SendFailed { may_have_been_applied, .. }
            | Self::PartlySent { may_have_been_applied, .. } => *may_have_been_applied,
            Self::FlushTimeout { .. }
            | Self::NoReply { .. }
            | Self::ClosedBeforeReply { .. }
            | Self::Abandoned => true,
            _ => false,
        }
    }

    /// What the caller can do about it, as one sentence.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoRoute { topic } => {
                Some(format!("check its name, or create it with `rocketpy topic create {topic}`"))
            }
            Self::NoSuchTopic { .. } => {
                Some("check the name: `rocketpy topic list` shows the topics".to_owned())
            }
            Self::NoBrokers { .. } => {
                Some("start one with `rocketpy server` or `rocketpy broker --name-server`".to_owned())
            }
            Self::BrokerNotFound { .. } => {
                Some("check its name: `rocketpy cluster list` shows the brokers that are registered".to_owned())
            }
            Self::Connect { .. } => Some("check the address, and that a server listens there".to_owned()),
            // After a call that may have been done, the first thing is not to send it again unseen.
            Self::Timeout { may_have_been_applied: false, .. } => Some(
                "check the address (--name-server): another kind of server may listen there; a busy one needs longer \
                 (api_timeout, --timeout)"
                    .to_owned(),
            ),
            Self::Unreachable { .. } => Some(
                "start the server; the consumer continues when it is back, and says this again after each \
                 unreachable_timeout"
                    .to_owned(),
            ),
            Self::GroupInUse { .. } => {
                Some("use a client with another instance name, or close the first one".to_owned())
            }
            Self::OtherSubscriptions { .. } => Some(
                "members of a group share its queues: give all of them the same topics and tags, or this one a group of its \
                 own; while tags change, set allow_other_subscriptions"
                    .to_owned(),
            ),
            Self::GroupActive { .. } => {
                Some("stop the members first, or force a reset (--force, force=True), which moves them too".to_owned())
            }
            Self::HalfInDoubt { .. } => Some("begin the transaction again".to_owned()),
            Self::WindowFull { .. } => Some("wait for acknowledgements, or raise the window".to_owned()),
            Self::NoReply { .. } => Some(
                "check that a consumer of the topic replies, and give it time; it may have received the message".to_owned(),
            ),
            Self::ClosedBeforeReply { .. } => Some(
                "keep the producer open until its replies are there; a consumer may have received the message".to_owned(),
            ),
            Self::TooManyRequests { .. } => Some("wait for replies before sending more".to_owned()),
            Self::NoRequest { .. } => {
                Some("reply to messages that a producer sent with request(), to a broker that adds CLUSTER".to_owned())
            }
            Self::Forked { .. } => Some("create clients after the fork, in the child".to_owned()),
            Self::DamagedMessage { queue_offset, .. } => {
                Some(format!("seek to {} to skip it", *queue_offset + 1))
            }
            Self::UnreadableBody { queue_offset, limit_bytes: Some(limit), .. } => Some(format!(
                "give the consumer a greater max_body_bytes (the limit was {limit}), or seek to {} to skip it",
                *queue_offset + 1
            )),
            Self::UnreadableBody { queue_offset, .. } => {
                Some(format!("seek to {} to skip it", *queue_offset + 1))
            }
            Self::Refused { operation: CONFIGURATION_CHANGE, .. } => {
                Some("`rocketpy config show` lists the settings, and which may change while a broker runs".to_owned())
            }
            Self::Refused { code, .. } => refusal_hint(*code).map(str::to_owned),
            Self::SendFailed { last, .. } => last.hint(),
            Self::PartlySent { first, .. } | Self::NotSent { first } => first.hint(),
            _ => self.argument_hint(),
        }
    }

    /// The hint for what breaks a rule, before anything is sent.
    fn argument_hint(&self) -> Option<String> {
        match self {
            Self::InvalidConfig { field: AUTO_COMMIT, .. } => {
                Some("the unit is seconds; None or False switches automatic commits off".to_owned())
            }
            Self::InvalidExpression(error) => Some(error.hint()),
            Self::NoSqlFilter { .. } => Some(
                "set enablePropertyFilter=true at Apache's broker and start it again, or choose messages by tags".to_owned(),
            ),
            Self::InvalidMessageId { .. } => Some(
                "an offset_msg_id has 32 hexadecimal digits (56 with an IPv6 address); receipts and received messages \
                     have it"
                    .to_owned(),
            ),
            Self::InvalidRecallHandle { .. } => {
                Some("the receipt of a message that waits for its time has it as recall_handle".to_owned())
            }
            Self::InvalidAddress { .. } => Some("write it as in 127.0.0.1:9876".to_owned()),
            Self::InvalidTag { .. } => Some(
                "give one tag without `||` and without blanks around it, other than `*`; put further words into the keys or a property"
                    .to_owned(),
            ),
            Self::OffsetsFile { is_shared: true, .. } => Some(
                "another member uses them: give each member on this machine an instance_name of its own"
                    .to_owned(),
            ),
            Self::NoNameServer => Some("give name_servers=[\"host:9876\"] or set NAMESRV_ADDR".to_owned()),
            Self::SystemTopic { .. } | Self::ReservedTopic { .. } => {
                Some("choose another name; the system needs this topic for itself".to_owned())
            }
            Self::BodyTooLarge { limit_bytes, .. } => Some(format!(
                "split the message, or raise the producer's max_message_size (--max-message-size) and the broker's \
                     maxMessageSize; the limit is {limit_bytes} bytes"
            )),
            Self::PropertiesTooLarge { .. } => {
                Some("put what is long into the body; keys, tag and order key count as properties".to_owned())
            }
            Self::MessageNotFramed { limit_bytes, .. } => Some(format!(
                "split the message: no request may be longer than {limit_bytes} bytes, whatever max_message_size says"
            )),
            Self::Unsupported { property, .. } => Some(format!("send the message without {property}")),
            Self::NoDelayedTransactions { .. } => {
                Some("begin the transaction without a delay; from its commit on, send what is to wait".to_owned())
            }
            Self::NoStoredOffset { .. } => Some("start from Earliest, Latest or a timestamp".to_owned()),
            Self::OffsetOutOfRange { min, max, .. } => Some(format!("give an offset from {min} to {max}")),
            Self::NotAssigned { .. } => {
                Some("the assignment of this consumer names its queues; other members have the others".to_owned())
            }
            Self::Closed { .. } => {
                Some("make a new one: the end of its `with` block, or close(), has closed this".to_owned())
            }
            _ => None,
        }
    }
}

/// Response codes after which a send is tried at another broker.
///
/// # Source
/// docs/reference/protocol.md 3.2, docs/reference/client.md 5.5.
pub(crate) fn is_retryable_code(code: i32) -> bool {
    matches!(
        code,
        response::TOPIC_NOT_EXIST
            | response::SERVICE_NOT_AVAILABLE
            | response::SYSTEM_ERROR
            | response::SYSTEM_BUSY
            | response::NO_PERMISSION
            | response::NO_BUYER_ID
            | response::NOT_IN_CURRENT_UNIT
            | response::GO_AWAY
    )
}

fn refusal_hint(code: i32) -> Option<&'static str> {
    match code {
        response::REQUEST_CODE_NOT_SUPPORTED => Some(
            "that server does not serve such requests: name_servers (--name-server) wants a name server, not a broker; where one broker is \
             asked, its own address is wanted",
        ),
        response::TOPIC_NOT_EXIST => Some("create the topic, or let the broker create topics by itself"),
        response::SERVICE_NOT_AVAILABLE => Some(
            "the broker's store takes no messages now: free space on its disk if that is full; its log says more",
        ),
        response::MESSAGE_ILLEGAL => Some(
            "the broker says why it takes no such message; a body that is too long may be split, or the broker's maxMessageSize raised",
        ),
        response::ILLEGAL_OPERATION => {
            Some("the broker says why; what is over, ended or due, stays as it is")
        }
        response::SYSTEM_BUSY => Some("send more slowly, or retry later"),
        response::NO_PERMISSION => Some("check the permissions of the topic and of the broker"),
        response::SUBSCRIPTION_GROUP_NOT_EXIST => {
            Some("its first consumer creates it, or `rocketpy group create NAME`; see `rocketpy group list`")
        }
        _ => None,
    }
}

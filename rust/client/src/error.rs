//! What can go wrong in a client, and the questions that every error answers: may a retry help, may the call have been applied, what
//! can the caller do.

pub(crate) mod denial;
mod meaning;

use std::sync::Arc;

use rocketpy_filter::{SqlError, TagsError};
use rocketpy_model::{MessageQueue, PhysicalOffset, QueueOffset, system};
use rocketpy_protocol::code::response::{self, MESSAGE_ILLEGAL};
use rocketpy_protocol::properties_text;

use self::ErrorClass::{
    BrokerNotFound, Closed, ConnectionFailed, ConnectionLost, DamagedData, Forked, GroupConflict,
    InvalidArgument, MessageTooLarge, NotSupported, Offset, PartlySent, Protocol, Refused, RequestTimeout,
    Store, TopicNotFound, TransactionOver,
};
pub use self::denial::Grant;
pub(crate) use self::denial::{ACCESS_CHANGE, ACCESS_QUERY};
pub use self::meaning::{ErrorClass, ErrorMeaning};

/// The operation that changes settings of a broker, whose refusal has a hint of its own.
pub(crate) const CONFIGURATION_CHANGE: &str = "configuration change";
/// The field whose unit is most often mistaken.
pub(crate) const AUTO_COMMIT: &str = "auto_commit";

/// Why a plain connection was lost to a server that closes such connections.
pub(crate) const TLS_ONLY: &str = "the server closed the plain connection, and speaks TLS";

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

/// The hint for a topic of the broker itself.
const SYSTEM_NEEDS_TOPIC: &str = "choose another name; the system needs this topic for itself";

/// Declares each error with its text and, behind `=>`, all that follows from it.
macro_rules! client_errors {
    ($(
        $(#[$($meta:tt)*])*
        $name:ident $({ $($(#[$($field_meta:tt)*])* $field:ident: $type:ty),* $(,)? })? => $meaning:expr;
    )*) => {
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
            $($(#[$($meta)*])* $name $({ $($(#[$($field_meta)*])* $field: $type),* })?,)*
        }

        impl ClientError {
            /// What the error means to its caller.
            #[allow(unused_variables, reason = "few errors need all their fields for that")]
            pub fn meaning(&self) -> ErrorMeaning {
                match self {
                    $(Self::$name $({ $($field),* })? => $meaning,)*
                }
            }
        }
    };
}

client_errors! {
    /// A topic name breaks the naming rules.
    #[error("{reason}")]
    InvalidTopic { topic: String, reason: String } => of(InvalidArgument);
    /// A group name breaks the naming rules, or is reserved.
    #[error("{reason}")]
    InvalidGroup { group: String, reason: String } => of(InvalidArgument);
    /// A topic that clients may not send to.
    #[error("clients may not send to the system topic: {topic}")]
    ReservedTopic { topic: String } => of(InvalidArgument).hint(SYSTEM_NEEDS_TOPIC);
    /// A topic of the broker itself, which clients cannot create, change or delete.
    #[error("a system topic cannot be created, changed or deleted: {topic}")]
    SystemTopic { topic: String } => of(InvalidArgument).hint(SYSTEM_NEEDS_TOPIC);
    /// A message without a body: the wire format has no empty body.
    #[error("the message body is empty, topic: {topic}")]
    EmptyBody { topic: String } => of(InvalidArgument).code(MESSAGE_ILLEGAL);
    /// A body, or a batch item, over the limit.
    #[error("the message body is too large ({size_bytes} bytes, at most {limit_bytes}), topic: {topic}")]
    BodyTooLarge { topic: String, size_bytes: usize, limit_bytes: usize } => of(MessageTooLarge).code(MESSAGE_ILLEGAL).hint(format!(
        "split the message, or raise the producer's max_message_size (--max-message-size) and the broker's \
         maxMessageSize; the limit is {limit_bytes} bytes"
    ));
    /// More property text than a record can hold.
    #[error(
        "the message properties are too large ({size_bytes} bytes, at most {limit_bytes}), topic: {topic}"
    )]
    PropertiesTooLarge { topic: String, size_bytes: usize, limit_bytes: usize } => of(MessageTooLarge)
        .code(MESSAGE_ILLEGAL)
        .hint(format!(
            "move long values into the body; keys, tag, order key and message id count as properties, and brokers of RocketPy accept {} bytes",
            properties_text::MAX_SENT_BYTES
        ));
    /// A property that a record cannot hold.
    #[error("illegal property ({reason}): {name}")]
    InvalidProperty { name: String, reason: String } => of(InvalidArgument);
    /// A tag that no subscription can name.
    #[error("no subscription can name the tag ({reason}): {tag}")]
    InvalidTag { tag: String, reason: &'static str } => of(InvalidArgument).code(MESSAGE_ILLEGAL).hint(
        "give one tag without `||` and without blanks around it, other than `*`; put further words into the keys or a \
         property",
    );
    /// A message that asks for a feature that does not exist yet.
    #[error("{feature} messages are not supported by this call, property: {property}")]
    Unsupported { feature: &'static str, property: String } => of(NotSupported)
        .hint(format!("send the message without {property}"));
    /// A transaction whose message is to wait, and a broker that does not say that it can.
    #[error("broker {address} does not support transactions with {property}, Apache's lose the message")]
    NoDelayedTransactions { address: String, property: &'static str } => of(NotSupported)
        .hint("begin the transaction without a delay; send the delayed message after its commit");
    /// A queue given for a message of another topic.
    #[error("the queue belongs to topic {queue_topic}, the message to topic: {topic}")]
    WrongQueue { topic: String, queue_topic: String } => of(InvalidArgument);
    /// Tags that cannot be asked for.
    #[error("{cause}")]
    InvalidExpression { #[from] cause: TagsError } => of(InvalidArgument).hint(cause.hint());
    /// An SQL92 expression that cannot be evaluated.
    #[error("illegal SQL92 expression ({reason}): {expression}")]
    InvalidSql { expression: String, reason: SqlError } => of(InvalidArgument);
    /// A broker that filters by tags only.
    #[error("broker {address} does not filter by SQL92: {remark}")]
    NoSqlFilter { address: String, remark: String } => of(NotSupported)
        .hint("set enablePropertyFilter=true at Apache's broker and start it again, or choose messages by tags");
    /// A configuration value outside its range.
    #[error("illegal value for {field} ({reason})")]
    InvalidConfig { field: &'static str, reason: String } => of(InvalidArgument)
        .hint_if(*field == AUTO_COMMIT, "the unit is seconds; None or False switches automatic commits off");
    /// An offset message id that does not decode.
    #[error("not an offset message id: {id}")]
    InvalidMessageId { id: String } => of(InvalidArgument).hint(
        "an offset_msg_id has 32 hexadecimal digits (56 with an IPv6 address); receipts and received messages have it",
    );
    /// An offset message id of another cluster: the client does not connect to an address that only an id names.
    #[error("offset message id {id} belongs to {address}, which is not a broker of this cluster")]
    ForeignMessageId { id: String, address: String } => of(BrokerNotFound).hint(
        "give the name server of the cluster that stored the message, or look it up by its msg_id; `rocketpy cluster list` shows the brokers",
    );
    /// A half message whose broker did not confirm that it is safe.
    #[error("broker did not confirm half message {msg_id} ({status}); the client rolled it back")]
    HalfInDoubt { msg_id: String, status: &'static str } => of(RequestTimeout).retry().hint("begin the transaction again");
    /// A recall handle that does not decode.
    #[error("not a recall handle: {handle}")]
    InvalidRecallHandle { handle: String } => of(InvalidArgument)
        .hint("the receipt of a message that waits for its time has it as recall_handle");
    /// No name server address was given.
    #[error("no name server address was given")]
    NoNameServer => of(InvalidArgument)
        .code(CODE_NO_NAME_SERVER)
        .hint("give name_servers=[\"host:9876\"] or set NAMESRV_ADDR");
    /// A server address that is not `host:port`.
    #[error("not a server address (host:port): {address}")]
    InvalidAddress { address: String } => of(InvalidArgument).hint("write it as in 127.0.0.1:9876");
    /// No name server knows the topic.
    #[error("no route for topic: {topic}")]
    NoRoute { topic: String } => of(TopicNotFound)
        .code(CODE_NO_ROUTE)
        .retry()
        .hint(system::missing_topic_hint(topic));
    /// A topic to delete, which no name server knows.
    #[error("cannot delete topic that does not exist: {topic}")]
    NoSuchTopic { topic: String } => of(TopicNotFound)
        .code(CODE_NO_ROUTE)
        .hint("check the name: `rocketpy topic list` shows the topics");
    /// The topic has a route, but none of its queues may be written (or read).
    #[error("topic has no {wanted} queue: {topic}")]
    NoQueue { topic: String, wanted: &'static str } => of(TopicNotFound)
        .code(CODE_NO_ROUTE)
        .retry()
        .hint(
            "check the permissions of the topic (`rocketpy topic describe TOPIC`) and of its brokers (brokerPermission); if only slaves of its brokers are left, \
             `rocketpy ha status` shows them and `rocketpy ha promote` makes one the master",
        );
    /// The route names a broker without a usable address.
    #[error("no address is known for broker: {broker_name}")]
    BrokerNotFound { broker_name: String } => of(BrokerNotFound)
        .code(CODE_BROKER_NOT_EXIST)
        .retry()
        .hint("check its name: `rocketpy cluster list` shows the brokers that are registered");
    /// A broker name stands for several slaves, and one of them is to be changed.
    #[error("broker {broker_name} has several slaves: {addresses}")]
    SeveralSlaves { broker_name: String, addresses: String } => of(InvalidArgument).hint("name one by its address");
    /// The server keeps no live values, as Apache's.
    #[error("server keeps no live values, as Apache's servers: {address}")]
    NoLiveValues { address: String } => of(NotSupported).hint("set the key without options: Apache's servers write it into their file");
    /// The name server knows no broker at all.
    #[error("no broker is registered at the name server: {name_server}")]
    NoBrokers { name_server: String } => of(BrokerNotFound)
        .code(CODE_BROKER_NOT_EXIST)
        .retry()
        .hint("start one with `rocketpy server` or `rocketpy broker --name-server`");
    /// No cluster of that name is registered.
    #[error("no such cluster: {cluster}")]
    ClusterNotFound { cluster: String } => of(BrokerNotFound)
        .hint("check its name: `rocketpy cluster list` shows the clusters with their brokers");
    /// The group is registered at this client already.
    #[error("the {role} group has been created before by this client: {group}")]
    GroupInUse { role: &'static str, group: String } => of(GroupConflict).hint("use a client with another instance name, or close the first one");
    /// Another live member of the group subscribes to other topics or tags. Members share the queues, so each gets only a part of
    /// what it wants.
    #[error(
        "another member of group {group} subscribes to other topics or tags, so both miss messages: {client_id} wants {subscriptions}"
    )]
    OtherSubscriptions { group: String, client_id: String, subscriptions: String } => of(GroupConflict).hint(
        "members of a group share its queues: give all of them the same topics and tags, or this one a group of its own; \
         while tags change, set allow_other_subscriptions",
    );
    /// The broker that was asked knows no member of the group.
    #[error("no members are known of group: {group}")]
    NoMembers { group: String } => of(Refused).retry();
    /// A member cannot have its share of a topic's queues, and keeps those that it has.
    #[error(
        "group {group} cannot share out the queues of topic {topic} ({reason}), this member keeps its queues"
    )]
    NotBalanced { group: String, topic: String, reason: String } => of(Refused);
    /// The group has live members, which the change would meet.
    #[error("the group has {members} live members: {group}")]
    GroupActive { group: String, members: usize } => of(GroupConflict)
        .hint("stop the members first, or force a reset (--force, force=True), which moves them too");
    /// The offsets of a member that gets all messages cannot be read, written, or are another member's.
    #[error("the offsets of a broadcast consumer cannot be used ({reason}): {path}")]
    OffsetsFile { path: String, reason: String, is_shared: bool } => of(if *is_shared { GroupConflict } else { Store }).hint(
        if *is_shared {
            "another member uses them: give each member on this machine an instance_name of its own"
        } else {
            "check disk and permissions; if the file is damaged, restore it and its .bak, or move both away to start without them"
        },
    );
    /// The server answered with a code that is not success.
    #[error("{operation} was refused by {address}: {code} {name}: {remark}")]
    Refused { operation: &'static str, address: String, code: i32, name: &'static str, remark: String } => refused(operation, *code, remark);
    /// A denial by users and policies, with all that the caller needs besides what the server named.
    #[error("{refused}")]
    Denied { refused: Box<Self>, needs: Vec<Grant> } => denied(refused, needs);
    /// A transaction that can never end as asked: it ended otherwise, or its half message is gone.
    #[error("{refused}")]
    TransactionOver { refused: Box<Self> } => ErrorMeaning { code: refused.code(), ..of(TransactionOver) };
    /// No connection could be made.
    #[error("cannot connect to {address}: {reason}")]
    Connect { address: String, reason: String } => of(ConnectionFailed)
        .code(CODE_CONNECT)
        .retry()
        .hint("check the address, and that a server listens there");
    /// The server offers no TLS, or one side did not accept the certificate of the other.
    #[error("cannot connect to {address} by TLS: {reason}")]
    Tls { address: String, reason: String, is_closed: bool } => ErrorMeaning { retryable: *is_closed, ..of(ConnectionFailed) }.code(CODE_CONNECT).hint(
        if *is_closed {
            "the server probably offers no TLS: connect without (no --tls-ca, ROCKETPY_TLS_CA or tls=Tls(...)), or give it a certificate \
             (tlsServerCertPath and tlsServerKeyPath)"
        } else {
            "check that the server has TLS and its certificate names this host; trust its authority with Tls(ca_file=...), --tls-ca or ROCKETPY_TLS_CA"
        },
    );
    /// No answer arrived in time.
    #[error("{operation} timed out after {timeout_ms} ms, server: {address}")]
    Timeout { operation: &'static str, address: String, timeout_ms: u64, may_have_been_applied: bool } => of(RequestTimeout).code(CODE_TIMEOUT).retry().applied(*may_have_been_applied).hint_if(
        // After a call that may have been done, the first thing is not to send it again unseen.
        !may_have_been_applied,
        "check the address (--name-server): another kind of server may listen there; a busy one needs longer (api_timeout, \
         --timeout)",
    );
    /// Too many requests waited for one server during the whole timeout.
    #[error("no room for {operation} within {timeout_ms} ms: too many requests wait for {address}")]
    Congested { operation: &'static str, address: String, timeout_ms: u64 } => of(RequestTimeout).retry();
    /// A message, or a batch, that is larger than a frame.
    #[error(
        "the message is too large for a frame ({size_bytes} bytes with its header, at most {limit_bytes}), topic: {topic}"
    )]
    MessageNotFramed { topic: String, size_bytes: usize, limit_bytes: usize } => of(MessageTooLarge).code(MESSAGE_ILLEGAL).hint(format!(
        "split the message: requests are limited to {limit_bytes} bytes, independent of max_message_size"
    ));
    /// The request is larger than a frame.
    #[error(
        "the request of {operation} is too large for a frame ({size_bytes} bytes, at most {limit_bytes})"
    )]
    FrameTooLarge { operation: &'static str, size_bytes: usize, limit_bytes: usize } => of(InvalidArgument);
    /// The request cannot be written in its serialization.
    #[error("the request of {operation} cannot be framed: {reason}")]
    NotFramed { operation: &'static str, reason: String } => of(InvalidArgument);
    /// The connection ended before the answer arrived.
    #[error("the connection was lost during {operation} ({reason}), server: {address}")]
    ConnectionLost { operation: &'static str, address: String, reason: String, may_have_been_applied: bool } => of(ConnectionLost).code(CODE_CONNECT).retry().applied(*may_have_been_applied).hint_if(
        reason == TLS_ONLY,
        "switch TLS on: --tls-ca FILE before the command, tls=Tls(ca_file=...), or ROCKETPY_TLS_CA",
    );
    /// The request was under way when the runtime ended, or it panicked.
    #[error("given up while it was under way: the runtime of the client ended, or the request panicked")]
    Abandoned => of(ConnectionLost).applied(true);
    /// No broker of a consumer could be reached for a time. It continues by itself when one is back.
    #[error("no broker could be reached for {} s ({brokers}): {last}", silence_ms / 1000)]
    Unreachable { brokers: String, silence_ms: u64, last: Arc<Self> } => of(ConnectionFailed).code(CODE_CONNECT).retry().hint(
        "start the server; the consumer then continues, and repeats this error after each unreachable_timeout",
    );
    /// The answer does not follow the protocol.
    #[error("{address} sent an ill-formed answer to {operation}: {reason}")]
    BadAnswer { operation: &'static str, address: String, reason: String, may_have_been_applied: bool } => of(Protocol).applied(*may_have_been_applied);
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
    } => {
        // No failed connection, by which nothing was applied, if an attempt before the last may have been applied.
        let last = last.meaning();
        let is_lost = last.class == ConnectionFailed && *may_have_been_applied;
        ErrorMeaning { class: if is_lost { ConnectionLost } else { last.class }, ..last }.applied(*may_have_been_applied)
    };
    /// A message of `send_many` that was not tried, because an earlier one for the same queue failed.
    #[error("not sent, an earlier message for the same queue failed: {first}")]
    NotSent { first: Arc<Self> } => first.meaning().applied(false);
    /// Some messages of `send_many` were not acknowledged.
    #[error("{failed} of {total} messages were not acknowledged, the first: {first}")]
    PartlySent {
        failed: usize,
        total: usize,
        /// True when any of the messages that were not acknowledged may have been stored.
        may_have_been_applied: bool,
        first: Arc<Self>,
    } => ErrorMeaning { class: PartlySent, ..first.meaning() }.applied(*may_have_been_applied);
    /// The window of unacknowledged messages stayed full.
    #[error("the send window stayed full for {timeout_ms} ms ({in_flight} messages in flight)")]
    WindowFull { in_flight: usize, timeout_ms: u64 } => of(RequestTimeout).retry().hint("wait for acknowledgements, or raise window_messages and window_bytes");
    /// A request was sent, and nobody replied in time.
    #[error("no reply within {timeout_ms} ms to message {msg_id} of topic: {topic}")]
    NoReply { topic: String, msg_id: String, timeout_ms: u64 } => of(RequestTimeout).code(CODE_NO_REPLY).retry().applied(true).hint(
        "check that a consumer of the topic replies, and give it time; it may have received the message",
    );
    /// The producer was closed while a request waited for its reply. The request may be stored, and be answered.
    #[error("producer closed before the reply to message {msg_id} of topic: {topic}")]
    ClosedBeforeReply { topic: String, msg_id: String } => of(Closed)
        .applied(true)
        .hint("keep the producer open until its replies are there; a consumer may have received the message");
    /// As many requests as an instance may have wait for their replies.
    #[error("{limit} requests wait for their replies already")]
    TooManyRequests { limit: usize } => of(RequestTimeout).retry().hint("wait for replies before sending more");
    /// A message that is to be replied to does not ask for a reply.
    #[error("message {msg_id} is not a request: it lacks property {property}, topic: {topic}")]
    NoRequest { property: &'static str, topic: String, msg_id: String } => of(InvalidArgument)
        .code(CODE_NO_REQUEST)
        .hint("reply to messages that a producer sent with request(), to a broker that adds CLUSTER");
    /// Messages were still unacknowledged at the end of the timeout.
    #[error("{in_flight} messages were still unacknowledged after {timeout_ms} ms")]
    FlushTimeout { in_flight: usize, timeout_ms: u64 } => of(RequestTimeout).code(CODE_TIMEOUT).retry().applied(true);
    /// A body that does not compress or decompress.
    #[error("{codec} failed: {reason}")]
    Codec { codec: &'static str, reason: String } => of(DamagedData);
    /// A message is not what was stored: a checksum does not match, or its fields do not fit together. It is not handed out.
    #[error(
        "message {queue_offset} at physical offset {physical_offset} is damaged ({reason}), queue: {queue}"
    )]
    DamagedMessage {
        queue: MessageQueue,
        queue_offset: QueueOffset,
        physical_offset: PhysicalOffset,
        reason: String,
    } => of(DamagedData).hint(format!("seek to {} to skip it", *queue_offset + 1));
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
    } => match limit_bytes {
        Some(limit) => of(MessageTooLarge).hint(format!(
            "give the consumer a greater max_body_bytes (the limit was {limit}), or seek to {} to skip it",
            *queue_offset + 1
        )),
        None => of(DamagedData).hint(format!("seek to {} to skip it", *queue_offset + 1)),
    };
    /// The queue is not assigned to this consumer.
    #[error("the queue is not assigned to this consumer: {queue}")]
    NotAssigned { queue: MessageQueue } => of(Offset)
        .hint("the assignment of this consumer names its queues; other members have the others");
    /// A seek or commit outside what the queue holds or what was handed out.
    #[error("offset {offset} is outside {min} to {max}, queue: {queue}")]
    OffsetOutOfRange { queue: MessageQueue, offset: QueueOffset, min: QueueOffset, max: QueueOffset } => of(Offset).hint(format!("give an offset from {min} to {max}"));
    /// `Start::Stored`, and the group has no stored offset for the queue.
    #[error("group {group} has no stored offset for the queue: {queue}")]
    NoStoredOffset { group: String, queue: MessageQueue } => of(Offset).hint("start from Earliest, Latest or a timestamp");
    /// The client, producer or consumer was closed.
    #[error("the {what} is closed")]
    Closed { what: &'static str } => of(Closed)
        .hint("make a new one: the end of its `with` block, or close(), has closed this");
    /// The object was made before a fork and is used in the child.
    #[error(
        "the client was created by process {created_by} and cannot be used after a fork, process: {current}"
    )]
    Forked { created_by: u32, current: u32 } => of(Forked).hint("create clients after the fork, in the child");
}

impl ClientError {
    /// The route of a queue's topic does not name its broker.
    pub(crate) fn broker_not_found(queue: &MessageQueue) -> Self {
        Self::BrokerNotFound { broker_name: queue.broker_name.to_string() }
    }

    /// Whether the server answered with this code.
    pub(crate) fn is_refused_with(&self, wanted: i32) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == wanted)
    }

    /// Whether users and policies of a server deny the request. It is denied again until an administrator or the user changes something.
    pub fn is_denial(&self) -> bool {
        match self {
            Self::Refused { code, remark, .. } => {
                *code == response::NO_PERMISSION && denial::is_final(remark)
            }
            Self::Denied { .. } => true,
            _ => false,
        }
    }

    /// Names all that the caller needs, if this is a denial: the server names what it missed first.
    pub(crate) fn needing(self, needs: impl FnOnce() -> Vec<Grant>) -> Self {
        match self {
            Self::Refused { .. } if self.is_denial() => {
                Self::Denied { refused: Box::new(self), needs: needs() }
            }
            error => error,
        }
    }

    /// The response code of the server, or the local code that Apache's client gives this failure.
    pub fn code(&self) -> Option<i32> {
        self.meaning().code
    }

    /// Whether the same call may succeed later without a change of its arguments.
    pub fn retryable(&self) -> bool {
        self.meaning().retryable
    }

    /// Whether the server may have applied the request in spite of this error.
    pub fn may_have_been_applied(&self) -> bool {
        self.meaning().may_have_been_applied
    }

    /// What the caller can do about it, as one sentence.
    pub fn hint(&self) -> Option<String> {
        self.meaning().hint.map(Into::into)
    }
}

const fn of(class: ErrorClass) -> ErrorMeaning {
    ErrorMeaning::of(class)
}

/// What a denial means to a caller that needs all this.
fn denied(refused: &ClientError, needs: &[Grant]) -> ErrorMeaning {
    let meaning = refused.meaning();
    match refused {
        ClientError::Refused { remark, .. } => {
            ErrorMeaning { hint: denial::hint(remark, needs).or(meaning.hint), ..meaning }
        }
        _ => meaning,
    }
}

/// What a refusal of the server means.
fn refused(operation: &str, code: i32, remark: &str) -> ErrorMeaning {
    let known = REFUSALS.iter().find(|refusal| refusal.code == code);
    let mut class = known.map_or(Refused, |refusal| refusal.class);
    if class == ErrorClass::AccessDenied {
        if !denial::is_denial(operation, code, remark) {
            class = Refused;
        }
        if let Some(hint) = denial::hint(remark, &[]) {
            return ErrorMeaning { hint: Some(hint), ..of(class).code(code) };
        }
    }
    let hint = match operation {
        ACCESS_CHANGE if class == Refused => None,
        CONFIGURATION_CHANGE => {
            Some("`rocketpy config show` lists the settings, and which may change while a broker runs")
        }
        _ if code == MESSAGE_ILLEGAL => Some(illegal_message_hint(remark)),
        _ => known.and_then(|refusal| refusal.hint),
    };
    ErrorMeaning { retryable: is_retryable_code(code), hint: hint.map(Into::into), ..of(class).code(code) }
}

/// What to change in a message that a broker rejects. RocketPy's brokers name the limit, Apache's only the field.
fn illegal_message_hint(remark: &str) -> &'static str {
    if remark.contains("maxMessageSize") || remark.contains("body length") {
        "split the message, shorten its properties, or raise maxMessageSize of the broker"
    } else if remark.contains("CHECK_IMMUNITY_TIME_IN_SECONDS") {
        "give a shorter time"
    } else if remark.contains("timerMaxDelaySec") || remark.contains("delay time") {
        "send the message later, or raise timerMaxDelaySec of the broker; `rocketpy config explain timerMaxDelaySec` describes it"
    } else {
        "change what the error names; the broker rejects the same message again"
    }
}

/// A response code that says more than that the server refused.
struct Refusal {
    code: i32,
    class: ErrorClass,
    hint: Option<&'static str>,
}

const fn refusal(code: i32, class: ErrorClass, hint: Option<&'static str>) -> Refusal {
    Refusal { code, class, hint }
}

const REFUSALS: [Refusal; 9] = [
    refusal(
        response::REQUEST_CODE_NOT_SUPPORTED,
        NotSupported,
        Some(
            "that server does not serve such requests: name_servers (--name-server) wants a name server, not a broker; where one \
             broker is asked, its own address is wanted",
        ),
    ),
    refusal(
        response::TOPIC_NOT_EXIST,
        TopicNotFound,
        Some("check its name: `rocketpy topic list` shows the topics"),
    ),
    refusal(
        response::SERVICE_NOT_AVAILABLE,
        Refused,
        Some(
            "free space on the disk of the broker if the error says that it is full; else wait, or check the disk and start the broker again",
        ),
    ),
    refusal(MESSAGE_ILLEGAL, Refused, None),
    refusal(
        response::ILLEGAL_OPERATION,
        Refused,
        Some("the transaction has ended, or the message was delivered: nothing is left to end or to recall"),
    ),
    refusal(response::SYSTEM_BUSY, ErrorClass::BrokerBusy, Some("send more slowly, or retry later")),
    refusal(response::FLOW_CONTROL, ErrorClass::BrokerBusy, None),
    refusal(
        response::NO_PERMISSION,
        ErrorClass::AccessDenied,
        Some(
            "check whether the topic is readable and writable (`rocketpy topic describe TOPIC`), whether the group is enabled \
             (`rocketpy group show GROUP`), and brokerPermission of the brokers",
        ),
    ),
    refusal(
        response::SUBSCRIPTION_GROUP_NOT_EXIST,
        ErrorClass::GroupNotFound,
        Some("its first consumer creates it, or `rocketpy group create NAME`; see `rocketpy group list`"),
    ),
];

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_that_may_be_stored_is_not_a_failed_connection() {
        for (may_have_been_applied, expected) in [(true, ConnectionLost), (false, ConnectionFailed)] {
            let last = ClientError::Connect { address: "a:1".into(), reason: "refused".into() };
            let error = ClientError::SendFailed {
                topic: "t".into(),
                attempts: 2,
                elapsed_ms: 1,
                brokers: "a,b".into(),
                may_have_been_applied,
                last: Arc::new(last),
            };
            assert_eq!(error.meaning().class, expected);
            assert_eq!(error.may_have_been_applied(), may_have_been_applied);
            assert_eq!((error.code(), error.retryable()), (Some(CODE_CONNECT), true));
        }
    }

    #[test]
    fn an_unsent_message_has_the_meaning_of_the_failure_before_it_but_applied_nothing() {
        let first = ClientError::Timeout {
            operation: "send",
            address: "a:1".into(),
            timeout_ms: 1,
            may_have_been_applied: true,
        };
        let error = ClientError::NotSent { first: Arc::new(first.clone()) };
        assert_eq!(error.meaning(), ErrorMeaning { may_have_been_applied: false, ..first.meaning() });
    }

    #[test]
    fn a_refusal_means_what_its_code_says() {
        let refused = |operation, code| {
            let (address, remark) = ("a:1".to_owned(), String::new());
            ClientError::Refused { operation, address, code, name: "", remark }.meaning()
        };
        let busy = refused("send", response::SYSTEM_BUSY);
        assert_eq!((busy.class, busy.retryable, busy.code), (ErrorClass::BrokerBusy, true, Some(2)));
        let unknown = refused("send", 999);
        assert_eq!((unknown.class, unknown.retryable, unknown.hint), (Refused, false, None));
        let change = refused(CONFIGURATION_CHANGE, response::SYSTEM_BUSY);
        assert!(change.hint.is_some_and(|hint| hint.contains("rocketpy config show")));
    }

    #[test]
    fn hint_for_an_illegal_message_follows_the_reason() {
        let hint = |remark: &str| {
            let (operation, address, remark) = ("send", "a:1".to_owned(), remark.to_owned());
            let refused =
                ClientError::Refused { operation, address, code: MESSAGE_ILLEGAL, name: "", remark };
            refused.hint().unwrap()
        };
        let too_long = "message body of 5 bytes exceeds maxMessageSize 4; send less or raise the limit";
        let apache = "the message is illegal, maybe msg body or properties length not matched. msg body length limit 4B";
        for remark in [too_long, apache] {
            assert!(hint(remark).contains("raise maxMessageSize"), "{remark}");
        }
        let too_far = "delay of 9 ms in property TIMER_DELAY_MS exceeds timerMaxDelaySec (0000 ms); send the message later";
        let apache =
            "timer message illegal, the delay time should not be bigger than the max delay 259200000ms";
        for remark in [too_far, apache] {
            assert!(hint(remark).contains("timerMaxDelaySec") && !hint(remark).contains("maxMessageSize"));
        }
        let immunity = "CHECK_IMMUNITY_TIME_IN_SECONDS exceeds timerMaxDelaySec 5: 7; give a shorter time";
        assert_eq!(hint(immunity), "give a shorter time");
        assert!(!hint("the message has no body; give it at least one byte").contains("maxMessageSize"));
    }

    #[test]
    fn hint_for_a_missing_topic_follows_its_kind() {
        let hint = |topic: &str| ClientError::NoRoute { topic: topic.to_owned() }.hint().unwrap();
        assert!(hint("orders").contains("`rocketpy topic create orders`"));
        assert!(hint("a|b").contains("`rocketpy topic create 'a|b'`"), "the shell reads no pipe");
        for (topic, way_out) in [
            ("%RETRY%billing", "`rocketpy group list`"),
            ("%DLQ%billing", "`rocketpy dlq list`"),
            ("RMQ_SYS_TRACE_TOPIC", "`rocketpy cluster list`"),
        ] {
            assert!(hint(topic).contains(way_out) && !hint(topic).contains("topic create"), "{topic}");
        }
        let cluster = ClientError::ClusterNotFound { cluster: "nowhere".to_owned() };
        assert!(cluster.hint().unwrap().contains("`rocketpy cluster list`"));
    }
}

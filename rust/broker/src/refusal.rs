//! Why a request is refused, and the answer that says so.

mod reason;

use std::fmt::Display;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use rocketpy_auth::{AdministerError, SealError};
use rocketpy_env::EnvError;
use rocketpy_filter::SqlError;
use rocketpy_model::{NameError, system};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{HeaderError, key};
use rocketpy_protocol::properties_text::{MAX_BYTES, MAX_SENT_BYTES, RESERVED_BYTES};
use rocketpy_protocol::settings::{ChangeError, SettingError};
use rocketpy_remoting::{NoMemory, Response};
use rocketpy_store::{AppendError, StoreError};

use crate::quota::{Direction, OverQuota};
use crate::role::OfMaster;
use crate::table::offset::CommitError;

/// Why a request is not done, with the facts that its remark names. None of them leaves anything stored, but for [`Self::NotAtSlaves`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    // What the request itself says.
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error("the body must be UTF-8 lines of key=value")]
    NotText,
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error("cannot decode the body of {request}: {reason}")]
    Body { request: &'static str, reason: String },
    #[error("no statistics item {name} with key {key:?}")]
    NoStatistics { name: String, key: String },
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("{field} must be {wanted}: {value}")]
    Value { field: &'static str, wanted: &'static str, value: String },
    #[error("{kind} {name} is in the list twice; name it once")]
    NamedTwice { kind: &'static str, name: String },
    #[error("topic attribute {attribute} rejected: {why}")]
    Attribute { attribute: String, why: &'static str },
    #[error("{field} must be {} to {}: {value}", .range.start(), .range.end())]
    OutOfRange { field: &'static str, range: RangeInclusive<usize>, value: String },
    #[error("request code {code} ({}) is not supported here: {why}", request::name_of(*.code).unwrap_or("unknown"))]
    NotThereYet { code: i32, why: &'static str },

    // Topics and queues.
    #[error("topic {topic} belongs to the system; use a topic of your own")]
    SystemTopic { topic: String },
    #[error("topic {topic} belongs to the system, messages cannot be sent to it; use a topic of your own")]
    SendDenied { topic: String },
    #[error("topic {topic} does not exist on this broker; {}", system::missing_topic_hint(topic))]
    NoTopic { topic: String },
    #[error(
        "topic {topic} was deleted and created again since the message was stored for it; send the message again"
    )]
    EarlierTopic { topic: String },
    #[error("topic {topic} is being deleted; try again")]
    TopicLeaving { topic: String },
    #[error("queue id {queue_id} is out of range, topic {topic} has queues 0 to {}", (*.queues).saturating_sub(1))]
    QueueId { topic: String, queue_id: i32, queues: u32 },
    #[error("topic {topic} has no queue {queue_id} on this broker; GET_TOPIC_STATS_INFO lists its queues")]
    NoQueue { topic: String, queue_id: i32 },
    #[error(
        "topic {topic} is not readable (perm {perm}); give it read permission with UPDATE_AND_CREATE_TOPIC"
    )]
    TopicNotReadable { topic: String, perm: i32 },
    #[error("number of topics has reached {limit} (maxTopics); delete topics, or raise maxTopics")]
    TooManyTopics { limit: usize },

    // Messages.
    #[error("the message has no body; give it at least one byte")]
    NoBody,
    #[error("message at index {index} of the batch: {refusal}")]
    OfBatch { index: usize, refusal: Box<Self> },
    #[error(
        "message body of {size_bytes} bytes exceeds maxMessageSize {limit_bytes}; send less or raise the limit"
    )]
    BodyTooLong { size_bytes: usize, limit_bytes: usize },
    #[error("message properties of {size_bytes} bytes exceed the maximum of {limit_bytes}")]
    PropertiesTooLong { size_bytes: usize, limit_bytes: usize },
    #[error(
        "message properties of {size_bytes} bytes exceed the maximum of {}: a record holds {}, and {} are reserved for retries, dead letters and \
         other copies; send shorter properties",
        MAX_SENT_BYTES,
        MAX_BYTES,
        RESERVED_BYTES
    )]
    NoRoomForCopies { size_bytes: usize },
    #[error(
        "message of {size_bytes} bytes exceeds a commit log file of {file_bytes} bytes (mappedFileSizeCommitLog) with its copies: \
         retries, dead letters and other copies need {} more; send less",
        RESERVED_BYTES
    )]
    LongerThanFile { size_bytes: usize, file_bytes: u64 },
    #[error(
        "property {property} must be a delay level or a delivery time; set DELAY to a level from 1 to 18, or TIMER_DELAY_SEC, \
         TIMER_DELAY_MS, or TIMER_DELIVER_MS (Unix milliseconds) to a whole number"
    )]
    NoTime { property: &'static str },
    #[error(
        "delay of {wait_ms} ms in property {property} exceeds timerMaxDelaySec ({limit_seconds}000 ms); send the message later, or raise the limit"
    )]
    TooFar { property: &'static str, wait_ms: u64, limit_seconds: u64 },
    #[error("the reply must name the client that waits for it; set property REPLY_TO_CLIENT")]
    NoRequester,
    #[error("cannot deliver the reply to client {client_id}: {reason}")]
    ReplyNotPushed { client_id: String, reason: String },
    #[error("recall of messages is disabled on broker {broker} (recallMessageEnable)")]
    RecallsOff { broker: String },
    #[error("cannot use recall handle {handle}: {reason}")]
    RecallHandle { handle: String, reason: String },
    #[error("cannot recall the message: its delivery time has passed")]
    LateRecall,
    #[error("{limit} recalls already wait for the timer wheel; try again later")]
    PendingRecalls { limit: usize },
    #[error("{limit} messages of that second are already recalled; try again when the second has passed")]
    RecallsOfSecond { limit: usize },
    #[error("a batch cannot be delayed (DELAY or a timer property); send the messages one by one")]
    DelayedBatch,
    #[error("a batch cannot be sent in a transaction (property TRAN_MSG); send the messages one by one")]
    TransactionalBatch,
    #[error("a recall cannot be sent in a transaction (property TRAN_MSG); send it by itself")]
    TransactionalRecall,
    #[error(
        "a half message must have property PGROUP, the producer group that its check-backs are sent to; set it"
    )]
    NoProducerGroup,
    #[error(
        "CHECK_IMMUNITY_TIME_IN_SECONDS exceeds timerMaxDelaySec {limit_seconds}: {seconds}; give a shorter time, or raise timerMaxDelaySec"
    )]
    LongImmunity { seconds: u64, limit_seconds: u64 },
    #[error(
        "sysFlag {sys_flag:#x} marks a transaction, but property TRAN_MSG is not true; set both or neither"
    )]
    TransactionFlag { sys_flag: i32 },
    #[error("broker {broker} does not accept transactions (rejectTransactionMessage)")]
    TransactionsOff { broker: String },
    #[error("the record at {offset} is not a half message of producer group {group}: {reason}")]
    NoHalf { offset: i64, group: String, reason: &'static str },
    #[error("the half message at {offset} belongs to another group than {group}")]
    HalfOfOtherGroup { offset: i64, group: String },
    #[error(
        "the half message at {offset} is older than its CHECK_IMMUNITY_TIME_IN_SECONDS; the check-back decides"
    )]
    LateEnd { offset: i64 },
    #[error(
        "another END_TRANSACTION of the half message at {offset} is in progress; if it fails, the check-back decides"
    )]
    EndAtWork { offset: i64 },
    #[error("the transaction of the half message at {offset} is over: {how}")]
    EndedOtherwise { offset: i64, how: &'static str },
    #[error(
        "inner batches are not supported by this broker (sysFlag {sys_flag:#x}); send a batch with code 320"
    )]
    InnerBatch { sys_flag: i32 },
    #[error("a batch cannot be sent to retry topic {topic}; send the messages one by one")]
    BatchToRetryTopic { topic: String },
    #[error("cannot decode the batch: {reason}")]
    BadBatch { reason: String },

    // Permissions and state of the broker.
    #[error("broker {broker} is a slave (broker id {id}) and {refused}")]
    Slave { broker: String, id: u64, refused: OfMaster },
    #[error(
        "this slave of {broker} (broker id {id}) has diverged from its master and serves no consumer group; `rocketpy ha status` shows the cause"
    )]
    Diverged { broker: String, id: u64 },
    #[error("cannot change the role of this broker: {why}")]
    NoRoleChange { why: String },
    #[error(
        "role change refused for {peer}: set the token of haTokenFile (`--token-file`), or run the command on the machine of the broker"
    )]
    RoleNotProved { peer: IpAddr },
    #[error("cannot send the end of the log: {why}")]
    NoCopy { why: String },
    #[error("cannot copy the tables of the master in time; see the log of this slave")]
    TablesNotCopied,
    /// The only one that leaves something stored.
    #[error(
        "the change is stored on this broker, but too few slaves have copied it in time (slaveTimeout): {why}; repeat the request, or see `rocketpy ha status`"
    )]
    NotAtSlaves { why: String },
    #[error("returned message not accepted: {why}; send it to the retry topic, or return it again later")]
    NoSlaveForReturned { why: String },
    #[error("broker {broker} does not accept messages (brokerPermission {permission})")]
    BrokerNotWritable { broker: String, permission: i32 },
    #[error("broker {broker} does not serve pulls (brokerPermission {permission})")]
    BrokerNotReadable { broker: String, permission: i32 },
    #[error(
        "This consumer group is reading cold data: {group} has read {limit_bytes} bytes from the disk in {} s, as many as it may \
         (updateColdDataFlowCtrGroupConfig)",
        .window.as_secs()
    )]
    ReadsCold { group: String, limit_bytes: u64, window: Duration },
    #[error("READ_AHEAD_MODE 1 (random) is not supported: the kernel reads ahead in the log; set mode 0")]
    RandomReads,
    #[error(transparent)]
    Accounts(#[from] AdministerError),
    #[error(transparent)]
    NotSealed(#[from] SealError),
    #[error("users are off on this broker, set authenticationEnabled=true")]
    UsersOff,
    #[error("lite pull is disabled on broker {broker} (litePullMessageEnable)")]
    LitePullOff { broker: String },
    #[error("cannot limit user {name}: no such user; `rocketpy user list` shows the users")]
    NoUser { name: String },
    #[error("{0}")]
    OverQuota(Box<OverQuota>),
    #[error("number of quotas has reached {limit}; remove quotas, or limit several names by one")]
    TooManyQuotas { limit: usize },
    #[error("no quota of {scope} {name} is set")]
    NoQuota { scope: String, name: String },
    #[error("held requests exceed {limit} (maxHeldPulls), or the share of one connection; try again later")]
    TooManyHeld { limit: usize },
    #[error("held requests would exceed {limit} bytes (maxHeldBytes); try again later")]
    HeldBytes { limit: usize },
    #[error(
        "requests that wait for the disk exceed {limit}, or the share of one connection; try again later"
    )]
    DiskReads { limit: usize },
    #[error(transparent)]
    Memory(#[from] NoMemory),
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot write the configuration of the broker: {0}")]
    Config(#[from] EnvError),
    #[error("table would exceed {limit_bytes} bytes; delete some entries")]
    TableFull { limit_bytes: usize },
    #[error("{limit} requests already wait until the same file is written; try again later")]
    TooManyWait { limit: usize },
    #[error("{limit} replies already wait for their clients; try again later")]
    TooManyReplies { limit: usize },
    #[error("messages of {bytes} bytes already wait until their topics are created; try again later")]
    TooManyWaitForTopics { bytes: usize },

    // Groups and subscriptions.
    #[error("consumer group {group} does not exist; create it, or set autoCreateSubscriptionGroup=true")]
    NoGroup { group: String },
    #[error("consumer group {group} belongs to the broker; use a group of your own")]
    BrokerGroup { group: String },
    #[error(
        "consumer group {group} cannot keep offsets in topic {topic}, which the broker reads itself; pull without a commit"
    )]
    BrokerTopic { group: String, topic: String },
    #[error("consumer group {group} is not allowed to consume (consumeEnable=false)")]
    GroupDisabled { group: String },
    #[error("consumer group {group} is not allowed to consume by broadcast (consumeBroadcastEnable=false)")]
    BroadcastDisabled { group: String },
    #[error(
        "consumer group {group} is not allowed to read topic {topic} (forbiddenTable of subscriptionGroup.json)"
    )]
    ReadForbidden { group: String, topic: String },
    #[error(
        "number of topics forbidden to groups has reached {limit}; allow one first (UPDATE_AND_GET_GROUP_FORBIDDEN)"
    )]
    TooMuchForbidden { limit: usize },
    #[error(
        "consumer group {group} has no live member; send a heartbeat first, or pull with a subscription of its own"
    )]
    NoConsumers { group: String },
    #[error(
        "consumer group {group} does not subscribe to topic {topic}; its members may differ in their subscriptions"
    )]
    NoSubscription { group: String, topic: String },
    #[error(
        "the subscription of group {group} to topic {topic} has version {stored} at this broker, older than {asked}; send a heartbeat"
    )]
    OldSubscription { group: String, topic: String, stored: i64, asked: i64 },
    #[error(
        "filter expressions of type {expression_type} are not supported by this broker; use TAG or SQL92"
    )]
    FilterType { expression_type: String },
    #[error("{error}, expression: {expression}")]
    Sql { error: SqlError, expression: String },
    #[error(
        "filter expression of {size_bytes} bytes exceeds {limit_bytes} bytes (maxFilterBytes); use fewer tags"
    )]
    FilterTooLong { size_bytes: usize, limit_bytes: usize },
    #[error("the filter classes of topic {topic} are not supported by this broker; use tags")]
    ClassFilter { topic: String },
    #[error("number of consumer groups has reached {limit} (maxGroups); delete groups, or raise maxGroups")]
    TooManyGroups { limit: usize },
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error("offset {offset} is outside of queue {queue_id}: {min} to {max}")]
    OffsetRange { offset: i64, min: i64, max: i64, queue_id: u32 },
    #[error("no offset of group {group} is stored for queue {queue_id} of topic {topic}")]
    NoOffset { group: String, topic: String, queue_id: u32 },
    #[error(
        "consumer group {group} has no offset for queue {queue_id} of topic {topic}, so its members are not notified of a new one"
    )]
    NoOffsetToLeave { group: String, topic: String, queue_id: u32 },
    #[error("no member of consumer group {group} is online")]
    ConsumerOffline { group: String },
    #[error("consumer group {group} has no live member")]
    NobodyInGroup { group: String },
    #[error(
        "client {client_id} is not a live member of consumer group {group}; GET_CONSUMER_CONNECTION_LIST shows its members"
    )]
    NoMember { group: String, client_id: String },
    #[error(
        "client {client_id} has version {version}, which does not support this request; version 62 and later do"
    )]
    OldMember { client_id: String, version: i32 },
    #[error("client {client_id} did not answer within 10 s")]
    MemberSilent { client_id: String },
    #[error("clientID must not contain control characters: {client_id}")]
    ClientIdControl { client_id: String },
    #[error("replies need topic {cluster}_REPLY_TOPIC while users are on: {topic}")]
    NotReplyTopic { topic: String, cluster: String },
    #[error(
        "clientID is that of a live client of another user: {client_id}; give this client another instance name"
    )]
    ClientIdTaken { client_id: String },
    #[error("cannot send the request to client {client_id}: {reason}")]
    MemberGone { client_id: String, reason: String },
    #[error("{limit} requests already wait for members of groups; try again later")]
    TooManyForwarded { limit: usize },
    #[error("{taken} requests already wait for answers of client {client_id}; try again later")]
    ManyForwardedTo { client_id: String, taken: usize },
    #[error("no member of producer group {group} is online")]
    ProducerOffline { group: String },
    #[error(
        "no message starts at physical offset {offset}; take the offset from an offset message id of this broker"
    )]
    NoMessageAt { offset: i64 },
}

impl Refusal {
    /// The response code, the same that Apache's broker gives: SYSTEM_ERROR where nothing says more.
    ///
    /// # Source
    /// docs/reference/protocol.md 3, docs/reference/store-format.md 6.6.
    pub(crate) fn code(&self) -> i32 {
        match self {
            Self::Header(_)
            | Self::Body { .. }
            | Self::Name(_)
            | Self::Value { .. }
            | Self::NamedTwice { .. }
            | Self::RandomReads
            | Self::Attribute { .. }
            | Self::OutOfRange { .. }
            | Self::QueueId { .. }
            | Self::ClientIdControl { .. }
            | Self::NotText
            | Self::SystemTopic { .. } => response::INVALID_PARAMETER,
            Self::NotThereYet { .. } => response::REQUEST_CODE_NOT_SUPPORTED,
            Self::NoTopic { .. } | Self::EarlierTopic { .. } => response::TOPIC_NOT_EXIST,
            Self::NoBody
            | Self::BodyTooLong { .. }
            | Self::PropertiesTooLong { .. }
            | Self::NoRoomForCopies { .. }
            | Self::LongerThanFile { .. }
            | Self::TransactionalRecall
            | Self::NoProducerGroup
            | Self::LongImmunity { .. }
            | Self::NoTime { .. }
            | Self::TooFar { .. }
            | Self::LateRecall
            | Self::DelayedBatch
            | Self::TransactionalBatch
            | Self::TransactionFlag { .. }
            | Self::InnerBatch { .. }
            | Self::BatchToRetryTopic { .. }
            | Self::BadBatch { .. } => response::MESSAGE_ILLEGAL,
            Self::OfBatch { refusal, .. } => refusal.code(),
            Self::Setting(error) => error.code(),
            Self::Accounts(error) => error.code(),
            Self::LateEnd { .. } | Self::EndedOtherwise { .. } | Self::RecallHandle { .. } => {
                response::ILLEGAL_OPERATION
            }
            Self::FilterTooLong { .. } | Self::Sql { .. } => response::SUBSCRIPTION_PARSE_FAILED,
            Self::Slave { refused, .. } => refused.code(),
            Self::NoSlaveForReturned { .. } => response::SLAVE_NOT_AVAILABLE,
            Self::NotAtSlaves { .. } => response::FLUSH_SLAVE_TIMEOUT,
            Self::Commit(error) => code_of_commit(error),
            Self::Append(error) => code_of_append(error),
            Self::NoGroup { .. } => response::SUBSCRIPTION_GROUP_NOT_EXIST,
            Self::NoConsumers { .. } | Self::NoSubscription { .. } => response::SUBSCRIPTION_NOT_EXIST,
            Self::OldSubscription { .. } => response::SUBSCRIPTION_NOT_LATEST,
            Self::NoOffset { .. } | Self::NoQuota { .. } | Self::NoUser { .. } => response::QUERY_NOT_FOUND,
            Self::OverQuota(over) => match over.direction {
                Direction::Send => response::SYSTEM_BUSY,
                Direction::Pull => response::FLOW_CONTROL,
            },
            Self::ConsumerOffline { .. } => response::CONSUMER_NOT_ONLINE,
            Self::MemberSilent { .. } => response::CONSUME_MSG_TIMEOUT,
            _ if self.is_busy() => response::SYSTEM_BUSY,
            _ if self.is_forbidden() => response::NO_PERMISSION,
            _ => response::SYSTEM_ERROR,
        }
    }

    /// Whether the request may be repeated later.
    fn is_busy(&self) -> bool {
        matches!(
            self,
            Self::TooManyHeld { .. }
                | Self::HeldBytes { .. }
                | Self::DiskReads { .. }
                | Self::ReadsCold { .. }
                | Self::Memory(_)
                | Self::TooManyWait { .. }
                | Self::TooManyForwarded { .. }
                | Self::ManyForwardedTo { .. }
                | Self::TooManyReplies { .. }
                | Self::PendingRecalls { .. }
                | Self::RecallsOfSecond { .. }
                | Self::TooManyWaitForTopics { .. }
                | Self::TopicLeaving { .. }
                | Self::EndAtWork { .. }
                | Self::Diverged { .. }
        )
    }

    /// Whether a permission, a switch of the configuration, or a system topic forbids it.
    fn is_forbidden(&self) -> bool {
        matches!(
            self,
            Self::SendDenied { .. }
                | Self::TransactionsOff { .. }
                | Self::RecallsOff { .. }
                | Self::TopicNotReadable { .. }
                | Self::BrokerNotWritable { .. }
                | Self::BrokerNotReadable { .. }
                | Self::LitePullOff { .. }
                | Self::GroupDisabled { .. }
                | Self::BroadcastDisabled { .. }
                | Self::BrokerGroup { .. }
                | Self::BrokerTopic { .. }
                | Self::ReadForbidden { .. }
                | Self::RoleNotProved { .. }
                | Self::ClientIdTaken { .. }
                | Self::NotReplyTopic { .. }
        )
    }

    /// Whether the message is longer than a record or a file of the log can be.
    pub(crate) fn is_too_long(&self) -> bool {
        matches!(
            self,
            Self::PropertiesTooLong { .. }
                | Self::Append(AppendError::PropertiesTooLong { .. } | AppendError::LongerThanFile { .. })
        )
    }

    /// Whether the transaction that the request names can never end as it asks.
    fn is_transaction_over(&self) -> bool {
        matches!(self, Self::NoHalf { .. } | Self::EndedOtherwise { .. })
    }

    /// The answer: code, and a remark that names the thing and the way out.
    pub(crate) fn response(&self) -> Response {
        let hint = match self {
            Self::Append(error) => error.hint().map(str::to_owned),
            Self::Store(error) => error.hint(),
            Self::Config(error) => error.hint().map(str::to_owned),
            _ => None,
        };
        let mut response = match hint {
            Some(hint) => Response::status(self.code(), format!("{self}; {hint}")),
            None => Response::status(self.code(), self.to_string()),
        };
        response.refused_for = Some(self.reason());
        if self.is_transaction_over() {
            response.command.ext.push(key::TRANSACTION_OVER, "true");
        }
        response
    }
}

/// Checks a number from outside.
///
/// # Errors
/// The value is outside of the range; `field` names it.
pub(crate) fn check_range(
    field: &'static str,
    range: RangeInclusive<usize>,
    value: impl TryInto<usize> + Display + Copy,
) -> Result<(), Refusal> {
    match value.try_into() {
        Ok(number) if range.contains(&number) => Ok(()),
        _ => Err(Refusal::OutOfRange { field, range, value: value.to_string() }),
    }
}

/// Checks that a client may use a group as its own.
///
/// # Errors
/// The broker itself works under this name.
pub(crate) fn check_group_of_clients(group: &str) -> Result<(), Refusal> {
    match system::is_broker_group(group) {
        true => Err(Refusal::BrokerGroup { group: group.to_owned() }),
        false => Ok(()),
    }
}

/// Checks that a client may store an offset of a group in a topic.
///
/// # Errors
/// The group or the topic is the broker's own.
pub(crate) fn check_offset_of_clients(group: &str, topic: &str) -> Result<(), Refusal> {
    check_group_of_clients(group)?;
    match system::is_broker_topic(topic) {
        true => Err(Refusal::BrokerTopic { group: group.to_owned(), topic: topic.to_owned() }),
        false => Ok(()),
    }
}

fn code_of_commit(error: &CommitError) -> i32 {
    match error {
        CommitError::AboveEnd { .. }
        | CommitError::BeforeStart { .. }
        | CommitError::BeforeCreation { .. } => response::INVALID_PARAMETER,
        CommitError::Full { .. } => response::SYSTEM_ERROR,
        CommitError::TooManyWait { .. } => response::SYSTEM_BUSY,
    }
}

fn code_of_append(error: &AppendError) -> i32 {
    match error {
        AppendError::BadTopic(_) => response::INVALID_PARAMETER,
        AppendError::TopicLength { .. }
        | AppendError::PropertiesTooLong { .. }
        | AppendError::BodyTooLong { .. }
        | AppendError::LongerThanFile { .. }
        | AppendError::BadBatch { .. } => response::MESSAGE_ILLEGAL,
        AppendError::DiskFull { .. }
        | AppendError::DiskNearlyFull { .. }
        | AppendError::Poisoned { .. }
        | AppendError::QueueNotWriteable { .. }
        | AppendError::ShutDown => response::SERVICE_NOT_AVAILABLE,
        AppendError::Busy { .. }
        | AppendError::Behind { .. }
        | AppendError::DispatchBehind { .. }
        | AppendError::TooManyWait => response::SYSTEM_BUSY,
        AppendError::NoFile { .. } => response::SYSTEM_ERROR,
    }
}

impl From<ChangeError> for Refusal {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::NotText => Self::NotText,
            ChangeError::Header(error) => Self::Header(error),
        }
    }
}

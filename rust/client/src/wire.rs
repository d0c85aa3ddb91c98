//! The requests that a client makes, and how answers are read.

mod upkeep;

use bytes::Bytes;
use rocketpy_model::{GroupConfig, MessageQueue, PhysicalOffset, QueueOffset, TopicConfig, sys_flag, system};
use rocketpy_protocol::body::{
    CheckClientRequestBody, HeartbeatData, LockBatchRequestBody, OtherSubscription, Quota, SubscriptionData,
};
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{
    ChangeBrokerRoleHeader, CloneGroupOffsetRequestHeader, ConsumerSendMsgBackRequestHeader,
    CreateTopicRequestHeader, DeleteSubscriptionGroupRequestHeader, DeleteTopicFromNamesrvRequestHeader,
    DeleteTopicRequestHeader, EndTransactionRequestHeader, GetAllSubscriptionGroupRequestHeader,
    GetConsumeStatsRequestHeader, GetConsumerConnectionListRequestHeader,
    GetConsumerListByGroupRequestHeader, GetEarliestMsgStoretimeRequestHeader, GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader, GetProducerConnectionListRequestHeader, GetRouteInfoRequestHeader,
    GetTopicConfigRequestHeader, GetTopicStatsInfoRequestHeader, PullMessageRequestHeader,
    QueryConsumerOffsetRequestHeader, QueryMessageRequestHeader, RecallMessageRequestHeader,
    RemoveQuotaRequestHeader, ResetOffsetRequestHeader, SearchOffsetRequestHeader, SendMessageRequestHeader,
    SendMessageRequestHeaderV2, UnregisterClientRequestHeader, UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader, key,
};
use rocketpy_protocol::{Command, Header, json, signature};
use serde::de::DeserializeOwned;
use tracing::debug;

pub use self::upkeep::Leftover;
pub(crate) use self::upkeep::{
    clean, consume_directly, consumer_offsets, delete_kv_config, kv_config, put_kv_config, timer_metrics,
};
use crate::checks::HalfPlace;
use crate::error::ClientError;
use crate::members::Role;
use crate::outcome;
use crate::query::{MessageQuery, QueryKind};

/// Groups of a page: as many as Apache's slaves ask for.
const GROUPS_A_PAGE: i32 = 2000;

/// Reads an answer's custom header.
pub(crate) fn header<'a, H: Header<'a>>(
    operation: &'static str,
    address: &str,
    answer: &'a Command,
) -> Result<H, ClientError> {
    H::read(&answer.ext).map_err(|error| outcome::bad_answer(operation, address, error))
}

/// Reads an answer's JSON body, which has a limited number of items.
pub(crate) fn json<T: DeserializeOwned>(
    operation: &'static str,
    address: &str,
    body: &[u8],
) -> Result<T, ClientError> {
    json::from_answer(body).map_err(|error| outcome::bad_answer(operation, address, error))
}

/// An offset from a header; a negative one is an error.
pub(crate) fn offset(operation: &'static str, address: &str, value: i64) -> Result<QueueOffset, ClientError> {
    let negative = |_| outcome::bad_answer(operation, address, format!("offset {value}"));
    u64::try_from(value).map(QueueOffset).map_err(negative)
}

fn with_broker(mut command: Command, queue: &MessageQueue) -> Command {
    command.ext.push(key::BROKER_NAME, &queue.broker_name);
    command
}

/// What a send carries: one message, or a batch.
pub(crate) struct Send<'a> {
    pub(crate) group: &'a str,
    pub(crate) queue: &'a MessageQueue,
    pub(crate) sys_flag: i32,
    pub(crate) born_at_ms: i64,
    pub(crate) flag: i32,
    /// Property text.
    pub(crate) properties: &'a str,
    pub(crate) batch: bool,
    pub(crate) is_reply: bool,
    /// How many times a retry was sent back, and after how many it is dead.
    pub(crate) reconsume_times: i32,
    pub(crate) max_reconsume_times: Option<i32>,
    pub(crate) body: &'a Bytes,
    /// Queues asked for when the broker creates the topic.
    pub(crate) default_queues: u32,
}

pub(crate) fn end_transaction(group: &str, half: &HalfPlace, end: i32, is_answer: bool) -> Command {
    let header = EndTransactionRequestHeader {
        topic: Some(&half.topic),
        producer_group: group,
        tran_state_table_offset: half.queue_offset,
        commit_log_offset: half.physical_offset,
        commit_or_rollback: end,
        from_transaction_check: Some(is_answer),
        msg_id: &half.msg_id,
        transaction_id: half.transaction_id.as_deref(),
        broker_name: Some(&half.broker_name),
    };
    Command::request(request::END_TRANSACTION, &header)
}

/// What a message is given back with.
pub(crate) struct SendBack<'a> {
    pub(crate) group: &'a str,
    /// Where it was read.
    pub(crate) queue: &'a MessageQueue,
    pub(crate) physical_offset: PhysicalOffset,
    /// Below 0 for the dead letters, 0 for the delay that its number of retries has.
    pub(crate) delay_level: i32,
    pub(crate) msg_id: &'a str,
    /// The topic that it was sent to.
    pub(crate) topic: &'a str,
    /// After so many retries it is dead.
    pub(crate) max_retries: i32,
    /// Error of the handler.
    pub(crate) error: Option<&'a str>,
}

/// CONSUMER_SEND_MSG_BACK.
pub(crate) fn send_back(send_back: &SendBack<'_>) -> Command {
    let header = ConsumerSendMsgBackRequestHeader {
        offset: send_back.physical_offset.to_wire(),
        group: send_back.group,
        delay_level: send_back.delay_level,
        origin_msg_id: Some(send_back.msg_id),
        origin_topic: Some(send_back.topic),
        unit_mode: Some(false),
        max_reconsume_times: Some(send_back.max_retries),
        broker_name: Some(&send_back.queue.broker_name),
    };
    let mut command = Command::request(request::CONSUMER_SEND_MSG_BACK, &header);
    if let Some(error) = send_back.error {
        command.ext.push(key::SEND_BACK_ERROR, error);
    }
    command
}

/// RECALL_MESSAGE.
pub(crate) fn recall(group: &str, queue: &MessageQueue, recall_handle: &str) -> Command {
    let header = RecallMessageRequestHeader {
        producer_group: Some(group),
        topic: &queue.topic,
        recall_handle,
        broker_name: Some(&queue.broker_name),
    };
    Command::request(request::RECALL_MESSAGE, &header)
}

/// SEND_MESSAGE_V2, SEND_BATCH_MESSAGE or SEND_REPLY_MESSAGE_V2.
pub(crate) fn send(send: &Send<'_>) -> Command {
    let header = SendMessageRequestHeader {
        producer_group: send.group,
        topic: &send.queue.topic,
        default_topic: system::TEMPLATE_TOPIC,
        default_topic_queue_nums: send.default_queues as i32,
        queue_id: send.queue.queue_id as i32,
        sys_flag: send.sys_flag,
        born_timestamp: send.born_at_ms,
        flag: send.flag,
        properties: Some(send.properties),
        reconsume_times: Some(send.reconsume_times),
        unit_mode: Some(false),
        max_reconsume_times: send.max_reconsume_times,
        batch: Some(send.batch),
        broker_name: Some(&send.queue.broker_name),
    };
    let code = match (send.batch, send.is_reply) {
        (true, _) => request::SEND_BATCH_MESSAGE,
        (false, true) => request::SEND_REPLY_MESSAGE_V2,
        (false, false) => request::SEND_MESSAGE_V2,
    };
    Command::request(code, &SendMessageRequestHeaderV2(header)).with_body(send.body.clone())
}

/// What a pull asks for.
pub(crate) struct Pull<'a> {
    pub(crate) group: &'a str,
    pub(crate) queue: &'a MessageQueue,
    pub(crate) offset: QueueOffset,
    pub(crate) max_messages: u32,
    pub(crate) max_bytes: u32,
    /// How long the broker may hold it. `None`: not at all.
    pub(crate) suspend_ms: Option<i64>,
    /// The expression.
    pub(crate) subscription: &'a str,
    /// `TAG` or `SQL92`.
    pub(crate) expression_type: &'a str,
}

/// LITE_PULL_MESSAGE with its subscription, which needs no heartbeat before it.
pub(crate) fn lite_pull(pull: &Pull<'_>) -> Command {
    pull_request(request::LITE_PULL_MESSAGE, sys_flag::pull::LITE_PULL, pull)
}

/// PULL_MESSAGE with its subscription: from tools, and from consumers to brokers before 5.0.
pub(crate) fn pull(pull: &Pull<'_>) -> Command {
    pull_request(request::PULL_MESSAGE, 0, pull)
}

fn pull_request(code: i32, flags: i32, pull: &Pull<'_>) -> Command {
    let suspend = if pull.suspend_ms.is_some() { sys_flag::pull::SUSPEND } else { 0 };
    let header = PullMessageRequestHeader {
        consumer_group: pull.group,
        topic: &pull.queue.topic,
        queue_id: pull.queue.queue_id as i32,
        queue_offset: pull.offset.to_wire(),
        max_msg_nums: pull.max_messages as i32,
        sys_flag: flags | suspend | sys_flag::pull::SUBSCRIPTION,
        commit_offset: 0,
        suspend_timeout_millis: pull.suspend_ms.unwrap_or(0),
        subscription: Some(pull.subscription),
        sub_version: 0,
        expression_type: Some(pull.expression_type),
        max_msg_bytes: Some(pull.max_bytes as i32),
        request_source: None,
        proxy_froward_client_id: None,
        broker_name: Some(&pull.queue.broker_name),
    };
    Command::request(code, &header)
}

/// CHECK_CLIENT_CONFIG: whether a broker filters by a subscription.
pub(crate) fn check_subscription(client_id: &str, group: &str, subscription: SubscriptionData) -> Command {
    let body = CheckClientRequestBody {
        client_id: client_id.to_owned(),
        group: group.to_owned(),
        namespace: None,
        subscription_data: subscription,
    };
    Command::bare_request(request::CHECK_CLIENT_CONFIG).with_body(json::to_vec(&body))
}

pub(crate) fn route(topic: &str) -> Command {
    let header = GetRouteInfoRequestHeader { topic, accept_standard_json_only: Some(true) };
    Command::request(request::GET_ROUTEINFO_BY_TOPIC, &header)
}

pub(crate) fn cluster_info() -> Command {
    Command::bare_request(request::GET_BROKER_CLUSTER_INFO)
}

pub(crate) fn ha_status() -> Command {
    Command::bare_request(request::GET_BROKER_HA_STATUS)
}

pub(crate) fn quotas() -> Command {
    Command::bare_request(request::GET_QUOTAS)
}

pub(crate) fn set_quota(quota: &Quota) -> Command {
    Command::bare_request(request::SET_QUOTA).with_body(json::to_vec(quota))
}

pub(crate) fn remove_quota(scope: &str, name: &str) -> Command {
    Command::request(request::REMOVE_QUOTA, &RemoveQuotaRequestHeader { scope, name })
}

/// The role that a broker is to have.
#[derive(Debug, Clone, Copy)]
pub struct WantedRole<'a> {
    /// `ASYNC_MASTER`, `SYNC_MASTER` or `SLAVE`.
    pub role: &'a str,
    /// Of the slave; the smallest free one where it is missing.
    pub broker_id: Option<i64>,
    /// Whether guards are passed over.
    pub force: bool,
}

pub(crate) fn change_role(WantedRole { role, broker_id, force }: WantedRole<'_>) -> Command {
    let header = ChangeBrokerRoleHeader { role, broker_id, force: force.then_some(true) };
    Command::request(request::CHANGE_BROKER_ROLE, &header)
}

/// Proves that the sender of a role change knows the token, by the challenge in the broker's answer to GET_BROKER_HA_STATUS.
pub(crate) fn prove_role_change(asked: &mut Command, wanted: WantedRole<'_>, token: &str, status: &Command) {
    let challenge = status.ext.get(key::CHALLENGE).unwrap_or_default();
    let text = signature::role_change(wanted.role, wanted.broker_id, wanted.force);
    asked.ext.push(key::PROOF, &signature::prove(token, &[challenge.as_bytes(), text.as_bytes()]));
}

pub(crate) fn runtime_info() -> Command {
    Command::bare_request(request::GET_BROKER_RUNTIME_INFO)
}

pub(crate) fn topic_list() -> Command {
    Command::bare_request(request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
}

/// Deletes a topic in the routes of all brokers, or of one broker at RocketPy's name servers.
pub(crate) fn delete_topic_in_name_server(topic: &str, broker_name: Option<&str>) -> Command {
    let header = DeleteTopicFromNamesrvRequestHeader { topic, cluster_name: None, broker_name };
    Command::request(request::DELETE_TOPIC_IN_NAMESRV, &header)
}

pub(crate) fn create_topic(config: &TopicConfig, attributes: Option<&str>) -> Command {
    let header = CreateTopicRequestHeader {
        topic: &config.name,
        default_topic: system::TEMPLATE_TOPIC,
        read_queue_nums: config.read_queues as i32,
        write_queue_nums: config.write_queues as i32,
        perm: config.perm.bits(),
        topic_filter_type: config.filter_type.as_str(),
        topic_sys_flag: Some(config.sys_flag),
        order: Some(config.order),
        attributes,
        force: None,
    };
    Command::request(request::UPDATE_AND_CREATE_TOPIC, &header)
}

pub(crate) fn delete_topic(topic: &str) -> Command {
    Command::request(request::DELETE_TOPIC_IN_BROKER, &DeleteTopicRequestHeader { topic })
}

pub(crate) fn topic_config(topic: &str) -> Command {
    Command::request(request::GET_TOPIC_CONFIG, &GetTopicConfigRequestHeader { topic, logical: None })
}

pub(crate) fn topic_stats(topic: &str) -> Command {
    Command::request(request::GET_TOPIC_STATS_INFO, &GetTopicStatsInfoRequestHeader { topic })
}

/// Asks for a page of a broker's groups, behind the first `from` of them.
pub(crate) fn group_configs(from: usize) -> Command {
    let header = GetAllSubscriptionGroupRequestHeader {
        group_seq: Some(i32::try_from(from).unwrap_or(i32::MAX)),
        data_version: None,
        max_group_num: Some(GROUPS_A_PAGE),
    };
    Command::request(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG, &header)
}

pub(crate) fn put_group(group: &GroupConfig) -> Command {
    Command::bare_request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(json::to_vec(group))
}

pub(crate) fn delete_group(group: &str) -> Command {
    let header = DeleteSubscriptionGroupRequestHeader { group_name: group, clean_offset: Some(true) };
    Command::request(request::DELETE_SUBSCRIPTIONGROUP, &header)
}

pub(crate) fn consume_stats(group: &str, topic: Option<&str>) -> Command {
    let header = GetConsumeStatsRequestHeader { consumer_group: group, topic, topic_list: None };
    Command::request(request::GET_CONSUME_STATS, &header)
}

pub(crate) fn consumer_list(group: &str) -> Command {
    let header = GetConsumerListByGroupRequestHeader { consumer_group: group };
    Command::request(request::GET_CONSUMER_LIST_BY_GROUP, &header)
}

/// Asks for the live members of a group with their connections.
pub(crate) fn consumer_connections(group: &str) -> Command {
    let header = GetConsumerConnectionListRequestHeader { consumer_group: group };
    Command::request(request::GET_CONSUMER_CONNECTION_LIST, &header)
}

/// Asks for the live members of a producer group with their connections.
pub(crate) fn producer_connections(group: &str) -> Command {
    let header = GetProducerConnectionListRequestHeader { producer_group: group };
    Command::request(request::GET_PRODUCER_CONNECTION_LIST, &header)
}

/// Gives a group the offsets of another one in a topic.
pub(crate) fn clone_offsets(from: &str, to: &str, topic: &str) -> Command {
    let header = CloneGroupOffsetRequestHeader {
        src_group: from,
        dest_group: to,
        topic: Some(topic),
        offline: Some(true),
    };
    Command::request(request::CLONE_GROUP_OFFSET, &header)
}

pub(crate) fn broker_config() -> Command {
    Command::bare_request(request::GET_BROKER_CONFIG)
}

pub(crate) fn update_broker_config(text: String) -> Command {
    Command::bare_request(request::UPDATE_BROKER_CONFIG).with_body(text)
}

pub(crate) fn lock(body: &LockBatchRequestBody) -> Command {
    Command::bare_request(request::LOCK_BATCH_MQ).with_body(json::to_vec(body))
}

pub(crate) fn unlock(body: &LockBatchRequestBody) -> Command {
    Command::bare_request(request::UNLOCK_BATCH_MQ).with_body(json::to_vec(body))
}

pub(crate) fn heartbeat(data: &HeartbeatData) -> Command {
    Command::bare_request(request::HEART_BEAT).with_body(json::to_vec(data))
}

/// What the answer to a heartbeat says about members with other subscriptions. Apache's brokers say nothing.
pub(crate) fn other_subscriptions(address: &str, answer: &Command) -> Vec<OtherSubscription> {
    let Some(text) = answer.ext.get(key::OTHER_SUBSCRIPTIONS) else { return Vec::new() };
    json::from_answer(text.as_bytes()).unwrap_or_else(|error| {
        debug!(address, %error, "cannot decode heartbeat response");
        Vec::new()
    })
}

/// Whether the answer to a heartbeat says that transactions may have a delay.
pub(crate) fn keeps_delays(answer: &Command) -> bool {
    answer.ext.get(key::DELAYED_TRANSACTIONS) == Some("true")
}

pub(crate) fn unregister(client_id: &str, role: Role, group: &str) -> Command {
    let (producer_group, consumer_group) = match role {
        Role::Producer => (Some(group), None),
        Role::Consumer => (None, Some(group)),
    };
    let header = UnregisterClientRequestHeader { client_id, producer_group, consumer_group };
    Command::request(request::UNREGISTER_CLIENT, &header)
}

/// Asks for a group's stored offset. The broker answers "none" when there is none, on young topics too.
pub(crate) fn query_offset(group: &str, queue: &MessageQueue) -> Command {
    let header = QueryConsumerOffsetRequestHeader {
        consumer_group: group,
        topic: &queue.topic,
        queue_id: queue.queue_id as i32,
        set_zero_if_not_found: Some(false),
        broker_name: Some(&queue.broker_name),
    };
    Command::request(request::QUERY_CONSUMER_OFFSET, &header)
}

pub(crate) fn update_offset(group: &str, queue: &MessageQueue, offset: QueueOffset) -> Command {
    let header = UpdateConsumerOffsetRequestHeader {
        consumer_group: group,
        topic: &queue.topic,
        queue_id: queue.queue_id as i32,
        commit_offset: offset.to_wire(),
        broker_name: Some(&queue.broker_name),
    };
    Command::request(request::UPDATE_CONSUMER_OFFSET, &header)
}

/// Stores the offset that a person chose for a group whose members have stopped.
pub(crate) fn reset_offset(group: &str, queue: &MessageQueue, offset: QueueOffset) -> Command {
    let mut command = update_offset(group, queue, offset);
    command.ext.push(key::IS_RESET, "true");
    command
}

/// Sets a group to a time (-1: to the end) while its members run.
pub(crate) fn reset_running(group: &str, topic: &str, at_ms: i64) -> Command {
    let (timestamp, is_force) = (at_ms, Some(true));
    let header =
        ResetOffsetRequestHeader { topic, group, timestamp, is_force, queue_id: Some(-1), offset: None };
    Command::request(request::INVOKE_BROKER_TO_RESET_OFFSET, &header)
}

/// Asks for the first offset stored at or after a time.
pub(crate) fn search_offset(queue: &MessageQueue, at_ms: i64) -> Command {
    let header = SearchOffsetRequestHeader {
        topic: &queue.topic,
        queue_id: queue.queue_id as i32,
        timestamp: at_ms,
        boundary_type: Some("LOWER"),
        broker_name: Some(&queue.broker_name),
    };
    Command::request(request::SEARCH_OFFSET_BY_TIMESTAMP, &header)
}

pub(crate) fn max_offset(queue: &MessageQueue, committed: bool) -> Command {
    let header = GetMaxOffsetRequestHeader {
        topic: &queue.topic,
        queue_id: queue.queue_id as i32,
        committed: Some(committed),
    };
    with_broker(Command::request(request::GET_MAX_OFFSET, &header), queue)
}

pub(crate) fn min_offset(queue: &MessageQueue) -> Command {
    let header = GetMinOffsetRequestHeader { topic: &queue.topic, queue_id: queue.queue_id as i32 };
    with_broker(Command::request(request::GET_MIN_OFFSET, &header), queue)
}

pub(crate) fn earliest_stored_at(queue: &MessageQueue) -> Command {
    let header =
        GetEarliestMsgStoretimeRequestHeader { topic: &queue.topic, queue_id: queue.queue_id as i32 };
    with_broker(Command::request(request::GET_EARLIEST_MSG_STORETIME, &header), queue)
}

pub(crate) fn view_message(physical_offset: i64) -> Command {
    let header = ViewMessageRequestHeader { topic: None, offset: physical_offset };
    Command::request(request::VIEW_MESSAGE_BY_ID, &header)
}

/// Asks for messages by key.
pub(crate) fn query_messages(topic: &str, key: &str, query: &MessageQuery) -> Command {
    let header = QueryMessageRequestHeader {
        topic,
        key,
        max_num: i32::try_from(query.max_messages).unwrap_or(i32::MAX),
        begin_timestamp: query.begin_ms,
        end_timestamp: query.end_ms,
        index_type: (query.kind == QueryKind::Tag).then_some("T"),
        last_key: None,
        is_unique_key: Some(query.kind == QueryKind::UniqueKey),
    };
    Command::request(request::QUERY_MESSAGE, &header)
}

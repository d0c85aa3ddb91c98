//! The table of needs: for each request code, the resources and actions that a user needs.
//!
//! A code without an entry does not compile. Where Apache's broker asks for nothing, this table asks for the permission that fits.
//!
//! # Source
//! docs/reference/protocol.md 6.3, docs/decisions/users-and-policies.md.

mod read;

use std::borrow::Cow;
use std::fmt;

use rocketpy_protocol::code::assert_complete;
use rocketpy_protocol::json::JsonError;
use rocketpy_protocol::{Command, request_table};
use smallvec::SmallVec;

use self::read::*;
pub(crate) use self::read::{target_of_group, target_of_messages};
use crate::policy::{Action, Actions, ResourceType};

/// Maximum number of needs of a request: a heartbeat names its groups and topics.
const MAX_NEEDS: usize = 10_000;

/// Maximum length of a body that states needs: the limit of a heartbeat.
const MAX_BODY_BYTES: usize = 4 << 20;

/// What a request needs: every one of these.
pub type Needs<'a> = SmallVec<[Need<'a>; 2]>;

/// A resource, and actions of which one has to be allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need<'a> {
    /// What is read or changed.
    pub target: Target<'a>,
    /// One of these is enough.
    pub actions: Actions,
}

/// What a request reads or changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target<'a> {
    /// The cluster of the server.
    OwnCluster,
    /// A cluster that the request names.
    Cluster(Cow<'a, str>),
    /// A topic that is not of a group.
    Topic(Cow<'a, str>),
    /// A group, or its retry or dead-letter topic.
    Group(Cow<'a, str>),
    /// A topic with messages that are for others: only a super user may read it.
    OfOthers(Cow<'a, str>),
    /// What only a super user may touch: replication.
    Peers,
}

impl Target<'_> {
    /// Kind and name as policies have them; `None` for what no policy allows.
    pub(crate) fn resource<'a>(&'a self, own_cluster: &'a str) -> Option<(ResourceType, &'a str)> {
        Some(match self {
            Self::OwnCluster => (ResourceType::Cluster, own_cluster),
            Self::Cluster(name) => (ResourceType::Cluster, name),
            Self::Topic(name) => (ResourceType::Topic, name),
            Self::Group(name) => (ResourceType::Group, name),
            Self::OfOthers(_) | Self::Peers => return None,
        })
    }
}

/// Why the needs of a request are not known: it is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum NeedsError {
    #[error("request code {code} has no entry in the table of needs")]
    NoEntry { code: i32 },
    #[error("request header has no field {field}")]
    NoField { field: &'static str },
    #[error("request body is invalid: {0}")]
    Body(JsonError),
    #[error("request body exceeds {MAX_BODY_BYTES} bytes")]
    TooLong,
    #[error("request names more than {MAX_NEEDS} resources")]
    TooMany,
}

/// The resources and actions that a request needs.
///
/// # Errors
/// Unknown code; missing or invalid field or body.
pub fn needs(request: &Command) -> Result<Needs<'_>, NeedsError> {
    let entry = route_of(request.code).ok_or(NeedsError::NoEntry { code: request.code })?;
    (entry.0)(request)
}

/// Reads the needs of a request out of it.
struct Entry(for<'a> fn(&'a Command) -> Result<Needs<'a>, NeedsError>);

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entry(..)")
    }
}

const fn any(actions: &[Action]) -> Actions {
    Actions::of(actions)
}

const PUB: Actions = any(&[Action::Pub]);
const SUB: Actions = any(&[Action::Sub]);
const CREATE: Actions = any(&[Action::Create]);
const UPDATE: Actions = any(&[Action::Update]);
const DELETE: Actions = any(&[Action::Delete]);
const GET: Actions = any(&[Action::Get]);
const LIST: Actions = any(&[Action::Get, Action::List]);
/// Whoever may read messages may ask where they are.
const READ: Actions = any(&[Action::Sub, Action::Get]);
const COMMIT: Actions = any(&[Action::Sub, Action::Update]);
const ROUTE: Actions = any(&[Action::Pub, Action::Sub, Action::Get]);

const _: () = assert_complete(CODES);

request_table! {
    Entry:

    // Messages.
    SEND_MESSAGE | SEND_REPLY_MESSAGE => Entry(|request| send(request, "topic"));
    SEND_MESSAGE_V2 | SEND_BATCH_MESSAGE | SEND_REPLY_MESSAGE_V2 => Entry(|request| send(request, "b"));
    PULL_MESSAGE | LITE_PULL_MESSAGE | POP_MESSAGE | PEEK_MESSAGE | NOTIFICATION | POLLING_INFO
    | ACK_MESSAGE | CHANGE_MESSAGE_INVISIBLETIME => Entry(pull);
    QUERY_MESSAGE => Entry(|request| one(messages(request)?, READ));
    VIEW_MESSAGE_BY_ID => Entry(view);
    CONSUMER_SEND_MSG_BACK => Entry(send_back);
    END_TRANSACTION => Entry(end_transaction);
    RECALL_MESSAGE => Entry(|request| one(topic(request, "topic")?, PUB));
    QUERY_CONSUME_QUEUE => Entry(|request| topic_and_group(request, "consumerGroup", GET));

    // Offsets.
    QUERY_CONSUMER_OFFSET => Entry(|request| topic_and_group(request, "consumerGroup", READ));
    UPDATE_CONSUMER_OFFSET => Entry(|request| topic_and_group(request, "consumerGroup", COMMIT));
    GET_MAX_OFFSET | GET_MIN_OFFSET | SEARCH_OFFSET_BY_TIMESTAMP | GET_EARLIEST_MSG_STORETIME => {
        Entry(|request| one(messages(request)?, READ))
    };
    INVOKE_BROKER_TO_RESET_OFFSET => Entry(|request| one(group(request, "group")?, UPDATE));
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS => Entry(|request| one(group(request, "group")?, GET));
    CLONE_GROUP_OFFSET => Entry(clone_offsets);

    // Clients.
    HEART_BEAT => Entry(heartbeat);
    UNREGISTER_CLIENT => Entry(unregister);
    CHECK_CLIENT_CONFIG => Entry(check_client);
    GET_CONSUMER_LIST_BY_GROUP => Entry(|request| one(group(request, "consumerGroup")?, READ));
    LOCK_BATCH_MQ | UNLOCK_BATCH_MQ => Entry(lock);
    GET_CONSUMER_CONNECTION_LIST | GET_CONSUMER_RUNNING_INFO | GET_CONSUME_STATS => {
        Entry(|request| one(group(request, "consumerGroup")?, GET))
    };
    CONSUME_MESSAGE_DIRECTLY => Entry(consume_directly);
    GET_PRODUCER_CONNECTION_LIST | GET_ALL_PRODUCER_INFO => Entry(|_| own_cluster(GET));

    // Topics.
    UPDATE_AND_CREATE_TOPIC => Entry(|request| one(topic(request, "topic")?, CREATE));
    UPDATE_AND_CREATE_TOPIC_LIST => Entry(topics_of_list);
    DELETE_TOPIC_IN_BROKER | DELETE_TOPIC_IN_NAMESRV => Entry(|request| one(topic(request, "topic")?, DELETE));
    GET_TOPIC_CONFIG | GET_TOPIC_STATS_INFO | QUERY_TOPIC_CONSUME_BY_WHO | QUERY_CORRECTION_OFFSET => {
        Entry(|request| one(topic(request, "topic")?, GET))
    };
    QUERY_CONSUME_TIME_SPAN => Entry(|request| topic_and_group(request, "group", GET));
    GET_ROUTEINFO_BY_TOPIC => Entry(route);
    GET_ALL_TOPIC_CONFIG | GET_ALL_TOPIC_LIST_FROM_NAMESERVER | GET_TOPICS_BY_CLUSTER
    | GET_SYSTEM_TOPIC_LIST_FROM_NS | GET_SYSTEM_TOPIC_LIST_FROM_BROKER | GET_UNIT_TOPIC_LIST
    | GET_HAS_UNIT_SUB_TOPIC_LIST | GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST | GET_TOPIC_CONFIG_LIST
    | GET_TOPIC_NAME_LIST => Entry(|_| own_cluster(LIST));

    // Consumer groups.
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP => Entry(group_of_body);
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST => Entry(groups_of_list);
    GET_SUBSCRIPTIONGROUP_CONFIG | QUERY_TOPICS_BY_CONSUMER | QUERY_SUBSCRIPTION_BY_CONSUMER => {
        Entry(|request| one(group(request, "group")?, GET))
    };
    DELETE_SUBSCRIPTIONGROUP => Entry(|request| one(group(request, "groupName")?, DELETE));
    UPDATE_AND_GET_GROUP_FORBIDDEN => Entry(|request| one(group(request, "group")?, UPDATE));
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG => Entry(|_| own_cluster(LIST));

    // State and settings of a server.
    GET_BROKER_CONFIG | GET_NAMESRV_CONFIG | GET_BROKER_RUNTIME_INFO | VIEW_BROKER_STATS_DATA
    | GET_BROKER_CONSUME_STATS | GET_BROKER_CLUSTER_INFO | GET_KV_CONFIG | GET_KVLIST_BY_NAMESPACE
    | GET_BROKER_HA_STATUS | GET_COLD_DATA_FLOW_CTR_INFO | GET_QUOTAS | GET_CLIENT_CONFIG
    | QUERY_BROKER_OFFSET | WHO_CONSUME_THE_MESSAGE | CHECK_ROCKSDB_CQ_WRITE_PROGRESS
    | EXPORT_ROCKSDB_CONFIG_TO_JSON | GET_BROKER_EPOCH_CACHE | QUERY_ASSIGNMENT | GET_BROKER_LITE_INFO
    | GET_PARENT_TOPIC_INFO | GET_LITE_TOPIC_INFO | GET_LITE_CLIENT_INFO | GET_LITE_GROUP_INFO => {
        Entry(|_| own_cluster(GET))
    };
    UPDATE_BROKER_CONFIG | UPDATE_NAMESRV_CONFIG | REGISTER_TOPIC_IN_NAMESRV | PUT_KV_CONFIG | DELETE_KV_CONFIG
    | WIPE_WRITE_PERM_OF_BROKER | ADD_WRITE_PERM_OF_BROKER | CLEAN_UNUSED_TOPIC
    | CLEAN_EXPIRED_CONSUMEQUEUE | DELETE_EXPIRED_COMMITLOG | TRIGGER_DELETE_FILES
    | UPDATE_COLD_DATA_FLOW_CTR_CONFIG | REMOVE_COLD_DATA_FLOW_CTR_CONFIG | SET_COMMITLOG_READ_MODE
    | SWITCH_TIMER_ENGINE | SET_MESSAGE_REQUEST_MODE | POP_ROLLBACK | RESUME_CHECK_HALF_MESSAGE
    | RESET_CONSUMER_OFFSET_IN_BROKER | REGISTER_FILTER_SERVER | REGISTER_MESSAGE_FILTER_CLASS
    | UPDATE_AND_CREATE_STATIC_TOPIC | ADD_BROKER | REMOVE_BROKER | SET_QUOTA | REMOVE_QUOTA
    | BATCH_ACK_MESSAGE | POP_LITE_MESSAGE | LITE_SUBSCRIPTION_CTL | ACK_LITE_MESSAGE
    | TRIGGER_LITE_DISPATCH => Entry(|_| own_cluster(UPDATE));

    // Users and policies.
    AUTH_CREATE_USER | AUTH_UPDATE_USER | AUTH_DELETE_USER | AUTH_CREATE_ACL | AUTH_UPDATE_ACL
    | AUTH_DELETE_ACL => Entry(|_| own_cluster(UPDATE));
    AUTH_GET_USER | AUTH_LIST_USER | AUTH_GET_ACL | AUTH_LIST_ACL => Entry(|_| own_cluster(GET));

    // Brokers among each other and at name servers.
    REGISTER_BROKER | UNREGISTER_BROKER | BROKER_HEARTBEAT => Entry(|request| cluster_of(request, UPDATE));
    QUERY_DATA_VERSION | GET_BROKER_MEMBER_GROUP => Entry(|request| cluster_of(request, GET));
    GET_ALL_CONSUMER_OFFSET | GET_ALL_DELAY_OFFSET | GET_TIMER_CHECK_POINT | GET_TIMER_METRICS
    | GET_ALL_MESSAGE_REQUEST_MODE => Entry(|_| own_cluster(GET));
    EXCHANGE_BROKER_HA_INFO | RESET_MASTER_FLUSH_OFFSET | NOTIFY_MIN_BROKER_ID_CHANGE
    | NOTIFY_BROKER_ROLE_CHANGED | CHANGE_BROKER_ROLE => Entry(|_| own_cluster(UPDATE));
    COPY_LOG | LEAVE_MASTER | COPY_TABLES | COPY_ACCOUNTS => Entry(|_| one(Target::Peers, Actions::ALL));

    // Requests that a controller answers.
    CONTROLLER_ALTER_SYNC_STATE_SET | CONTROLLER_ELECT_MASTER | CONTROLLER_REGISTER_BROKER
    | CONTROLLER_GET_REPLICA_INFO | CONTROLLER_GET_METADATA_INFO | CONTROLLER_GET_SYNC_STATE_DATA
    | UPDATE_CONTROLLER_CONFIG | GET_CONTROLLER_CONFIG | CLEAN_BROKER_DATA
    | CONTROLLER_GET_NEXT_BROKER_ID | CONTROLLER_APPLY_BROKER_ID | BROKER_CLOSE_CHANNEL
    | CHECK_NOT_ACTIVE_BROKER | GET_BROKER_LIVE_INFO | GET_SYNC_STATE_DATA
    | RAFT_BROKER_HEART_BEAT_EVENT => Entry(|_| own_cluster(UPDATE));

    // Requests that a client answers: no server takes them.
    CHECK_TRANSACTION_STATE | NOTIFY_CONSUMER_IDS_CHANGED | SUSPEND_CONSUMER | RESUME_CONSUMER
    | RESET_CONSUMER_OFFSET_IN_CONSUMER | ADJUST_CONSUMER_THREAD_POOL | RESET_CONSUMER_CLIENT_OFFSET
    | GET_CONSUMER_STATUS_FROM_CLIENT | PUSH_REPLY_MESSAGE_TO_CLIENT | NOTIFY_UNSUBSCRIBE_LITE => {
        Entry(|_| own_cluster(UPDATE))
    };
}

//! The table of requests: one row for each code of the protocol.
//!
//! A row holds what is true of a request whoever serves it. What a server of ours does with it is in that server's own table
//! ([`request_table!`](crate::request_table)).
//!
//! # Source
//! docs/reference/protocol.md 3.1, docs/reference/apache-5.5.0.md 3.

/// A request of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Its number in the frame.
    pub code: i32,
    /// Its name in the protocol, and the name of its constant here.
    pub name: &'static str,
    /// Whether it changes something where it is served.
    pub effect: Effect,
    /// Who asks. A request of an administrator needs an administrator's permission once there is access control.
    pub asked_by: Party,
    /// Who answers.
    pub asked_of: Party,
}

/// What a request does to the state of whoever serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It only reads: whether it was served or not, nothing is left in doubt.
    Question,
    /// It changes something: without an answer the sender does not know whether it was applied.
    Change,
}

/// Who takes part in the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    /// A producer or a consumer.
    Client,
    /// A tool in the hands of whoever runs the cluster.
    Administrator,
    /// A broker; requests between brokers are those of replication.
    Broker,
    /// A name server.
    NameServer,
    /// The controller that chooses masters.
    Controller,
}

impl Party {
    /// The name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Administrator => "administrator",
            Self::Broker => "broker",
            Self::NameServer => "name server",
            Self::Controller => "controller",
        }
    }
}

/// Makes a constant of each code, the list of all requests, and the functions that lead from a number to its row.
macro_rules! requests {
    ($($name:ident = $code:literal: $effect:ident, $asked_by:ident => $asked_of:ident;)+) => {
        $(#[doc = concat!("Request code ", $code, ".")] pub const $name: i32 = $code;)+

        /// All requests of the protocol, by number.
        pub const ALL: &[Request] = &[$(Request {
            code: $code,
            name: stringify!($name),
            effect: Effect::$effect,
            asked_by: Party::$asked_by,
            asked_of: Party::$asked_of,
        },)+];

        /// The row of `code`, or `None` when the protocol has no such request.
        #[must_use]
        pub const fn of(code: i32) -> Option<Request> {
            match code {
                $($name => Some(Request {
                    code: $code,
                    name: stringify!($name),
                    effect: Effect::$effect,
                    asked_by: Party::$asked_by,
                    asked_of: Party::$asked_of,
                }),)+
                _ => None,
            }
        }

        /// The name of `code`, or `None` when the protocol has no such request.
        #[must_use]
        pub const fn name_of(code: i32) -> Option<&'static str> {
            match of(code) {
                Some(request) => Some(request.name),
                None => None,
            }
        }
    };
}

/// Whether a request may change something where it is served. An unknown one may.
#[must_use]
pub const fn may_change(code: i32) -> bool {
    !matches!(of(code), Some(Request { effect: Effect::Question, .. }))
}

/// Who answers a request, for the remark of a server that does not.
#[must_use]
pub const fn who_answers(code: i32) -> &'static str {
    match of(code) {
        Some(Request { asked_of: Party::Client | Party::Administrator, .. }) => "a client answers it",
        Some(Request { asked_of: Party::Broker, .. }) => "a broker answers it",
        Some(Request { asked_of: Party::NameServer, .. }) => "a name server answers it",
        Some(Request { asked_of: Party::Controller, .. }) => "a controller answers it",
        None => "no such code is known",
    }
}

requests! {
    // Name = code: effect, who asks => who answers.
    SEND_MESSAGE = 10: Change, Client => Broker;
    PULL_MESSAGE = 11: Question, Client => Broker;
    QUERY_MESSAGE = 12: Question, Client => Broker;
    QUERY_BROKER_OFFSET = 13: Question, Client => Broker;
    QUERY_CONSUMER_OFFSET = 14: Question, Client => Broker;
    UPDATE_CONSUMER_OFFSET = 15: Change, Client => Broker;
    UPDATE_AND_CREATE_TOPIC = 17: Change, Administrator => Broker;
    UPDATE_AND_CREATE_TOPIC_LIST = 18: Change, Administrator => Broker;
    GET_ALL_TOPIC_CONFIG = 21: Question, Broker => Broker;
    GET_TOPIC_CONFIG_LIST = 22: Question, Administrator => Broker;
    GET_TOPIC_NAME_LIST = 23: Question, Administrator => Broker;
    UPDATE_BROKER_CONFIG = 25: Change, Administrator => Broker;
    GET_BROKER_CONFIG = 26: Question, Administrator => Broker;
    TRIGGER_DELETE_FILES = 27: Change, Administrator => Broker;
    GET_BROKER_RUNTIME_INFO = 28: Question, Administrator => Broker;
    SEARCH_OFFSET_BY_TIMESTAMP = 29: Question, Client => Broker;
    GET_MAX_OFFSET = 30: Question, Client => Broker;
    GET_MIN_OFFSET = 31: Question, Client => Broker;
    GET_EARLIEST_MSG_STORETIME = 32: Question, Client => Broker;
    VIEW_MESSAGE_BY_ID = 33: Question, Client => Broker;
    HEART_BEAT = 34: Change, Client => Broker;
    UNREGISTER_CLIENT = 35: Change, Client => Broker;
    CONSUMER_SEND_MSG_BACK = 36: Change, Client => Broker;
    END_TRANSACTION = 37: Change, Client => Broker;
    GET_CONSUMER_LIST_BY_GROUP = 38: Question, Client => Broker;
    CHECK_TRANSACTION_STATE = 39: Question, Broker => Client;
    NOTIFY_CONSUMER_IDS_CHANGED = 40: Change, Broker => Client;
    LOCK_BATCH_MQ = 41: Change, Client => Broker;
    UNLOCK_BATCH_MQ = 42: Change, Client => Broker;
    GET_ALL_CONSUMER_OFFSET = 43: Question, Broker => Broker;
    GET_ALL_DELAY_OFFSET = 45: Question, Broker => Broker;
    CHECK_CLIENT_CONFIG = 46: Question, Client => Broker;
    GET_CLIENT_CONFIG = 47: Question, Client => Broker;
    GET_TIMER_CHECK_POINT = 60: Question, Broker => Broker;
    GET_TIMER_METRICS = 61: Question, Broker => Broker;
    PUT_KV_CONFIG = 100: Change, Administrator => NameServer;
    GET_KV_CONFIG = 101: Question, Client => NameServer;
    DELETE_KV_CONFIG = 102: Change, Administrator => NameServer;
    REGISTER_BROKER = 103: Change, Broker => NameServer;
    UNREGISTER_BROKER = 104: Change, Broker => NameServer;
    GET_ROUTEINFO_BY_TOPIC = 105: Question, Client => NameServer;
    GET_BROKER_CLUSTER_INFO = 106: Question, Administrator => NameServer;
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200: Change, Administrator => Broker;
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201: Question, Broker => Broker;
    GET_TOPIC_STATS_INFO = 202: Question, Administrator => Broker;
    GET_CONSUMER_CONNECTION_LIST = 203: Question, Administrator => Broker;
    GET_PRODUCER_CONNECTION_LIST = 204: Question, Administrator => Broker;
    WIPE_WRITE_PERM_OF_BROKER = 205: Change, Administrator => NameServer;
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206: Question, Administrator => NameServer;
    DELETE_SUBSCRIPTIONGROUP = 207: Change, Administrator => Broker;
    GET_CONSUME_STATS = 208: Question, Administrator => Broker;
    SUSPEND_CONSUMER = 209: Change, Administrator => Client;
    RESUME_CONSUMER = 210: Change, Administrator => Client;
    RESET_CONSUMER_OFFSET_IN_CONSUMER = 211: Change, Broker => Client;
    RESET_CONSUMER_OFFSET_IN_BROKER = 212: Change, Administrator => Broker;
    ADJUST_CONSUMER_THREAD_POOL = 213: Change, Administrator => Client;
    WHO_CONSUME_THE_MESSAGE = 214: Question, Administrator => Broker;
    DELETE_TOPIC_IN_BROKER = 215: Change, Administrator => Broker;
    DELETE_TOPIC_IN_NAMESRV = 216: Change, Administrator => NameServer;
    REGISTER_TOPIC_IN_NAMESRV = 217: Change, Administrator => NameServer;
    GET_KVLIST_BY_NAMESPACE = 219: Question, Administrator => NameServer;
    RESET_CONSUMER_CLIENT_OFFSET = 220: Change, Broker => Client;
    GET_CONSUMER_STATUS_FROM_CLIENT = 221: Question, Broker => Client;
    INVOKE_BROKER_TO_RESET_OFFSET = 222: Change, Administrator => Broker;
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223: Question, Administrator => Broker;
    GET_TOPICS_BY_CLUSTER = 224: Question, Administrator => NameServer;
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = 225: Change, Administrator => Broker;
    QUERY_TOPIC_CONSUME_BY_WHO = 300: Question, Administrator => Broker;
    REGISTER_FILTER_SERVER = 301: Change, Client => Broker;
    REGISTER_MESSAGE_FILTER_CLASS = 302: Change, Client => Broker;
    QUERY_CONSUME_TIME_SPAN = 303: Question, Administrator => Broker;
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304: Question, Administrator => NameServer;
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305: Question, Administrator => Broker;
    CLEAN_EXPIRED_CONSUMEQUEUE = 306: Change, Administrator => Broker;
    GET_CONSUMER_RUNNING_INFO = 307: Question, Administrator => Broker;
    QUERY_CORRECTION_OFFSET = 308: Question, Administrator => Broker;
    CONSUME_MESSAGE_DIRECTLY = 309: Change, Administrator => Broker;
    SEND_MESSAGE_V2 = 310: Change, Client => Broker;
    GET_UNIT_TOPIC_LIST = 311: Question, Administrator => NameServer;
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312: Question, Administrator => NameServer;
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313: Question, Administrator => NameServer;
    CLONE_GROUP_OFFSET = 314: Change, Administrator => Broker;
    VIEW_BROKER_STATS_DATA = 315: Question, Administrator => Broker;
    CLEAN_UNUSED_TOPIC = 316: Change, Administrator => Broker;
    GET_BROKER_CONSUME_STATS = 317: Question, Administrator => Broker;
    UPDATE_NAMESRV_CONFIG = 318: Change, Administrator => NameServer;
    GET_NAMESRV_CONFIG = 319: Question, Administrator => NameServer;
    SEND_BATCH_MESSAGE = 320: Change, Client => Broker;
    QUERY_CONSUME_QUEUE = 321: Question, Administrator => Broker;
    QUERY_DATA_VERSION = 322: Question, Broker => NameServer;
    RESUME_CHECK_HALF_MESSAGE = 323: Change, Administrator => Broker;
    SEND_REPLY_MESSAGE = 324: Change, Client => Broker;
    SEND_REPLY_MESSAGE_V2 = 325: Change, Client => Broker;
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326: Change, Broker => Client;
    ADD_WRITE_PERM_OF_BROKER = 327: Change, Administrator => NameServer;
    GET_ALL_PRODUCER_INFO = 328: Question, Administrator => Broker;
    DELETE_EXPIRED_COMMITLOG = 329: Change, Administrator => Broker;
    QUERY_TOPICS_BY_CONSUMER = 343: Question, Administrator => Broker;
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345: Question, Administrator => Broker;
    GET_TOPIC_CONFIG = 351: Question, Administrator => Broker;
    GET_SUBSCRIPTIONGROUP_CONFIG = 352: Question, Administrator => Broker;
    UPDATE_AND_GET_GROUP_FORBIDDEN = 353: Change, Administrator => Broker;
    CHECK_ROCKSDB_CQ_WRITE_PROGRESS = 354: Question, Administrator => Broker;
    EXPORT_ROCKSDB_CONFIG_TO_JSON = 355: Change, Administrator => Broker;
    LITE_PULL_MESSAGE = 361: Question, Client => Broker;
    RECALL_MESSAGE = 370: Change, Client => Broker;
    QUERY_ASSIGNMENT = 400: Question, Client => Broker;
    SET_MESSAGE_REQUEST_MODE = 401: Change, Administrator => Broker;
    GET_ALL_MESSAGE_REQUEST_MODE = 402: Question, Broker => Broker;
    UPDATE_AND_CREATE_STATIC_TOPIC = 513: Change, Administrator => Broker;
    GET_BROKER_MEMBER_GROUP = 901: Question, Broker => NameServer;
    ADD_BROKER = 902: Change, Administrator => Broker;
    REMOVE_BROKER = 903: Change, Administrator => Broker;
    BROKER_HEARTBEAT = 904: Change, Broker => NameServer;
    NOTIFY_MIN_BROKER_ID_CHANGE = 905: Change, NameServer => Broker;
    EXCHANGE_BROKER_HA_INFO = 906: Change, Broker => Broker;
    GET_BROKER_HA_STATUS = 907: Question, Administrator => Broker;
    RESET_MASTER_FLUSH_OFFSET = 908: Change, Administrator => Broker;
    CONTROLLER_ALTER_SYNC_STATE_SET = 1001: Change, Broker => Controller;
    CONTROLLER_ELECT_MASTER = 1002: Change, Administrator => Controller;
    CONTROLLER_REGISTER_BROKER = 1003: Change, Broker => Controller;
    CONTROLLER_GET_REPLICA_INFO = 1004: Question, Broker => Controller;
    CONTROLLER_GET_METADATA_INFO = 1005: Question, Administrator => Controller;
    CONTROLLER_GET_SYNC_STATE_DATA = 1006: Question, Broker => Controller;
    GET_BROKER_EPOCH_CACHE = 1007: Question, Administrator => Broker;
    NOTIFY_BROKER_ROLE_CHANGED = 1008: Change, Controller => Broker;
    UPDATE_CONTROLLER_CONFIG = 1009: Change, Administrator => Controller;
    GET_CONTROLLER_CONFIG = 1010: Question, Administrator => Controller;
    CLEAN_BROKER_DATA = 1011: Change, Administrator => Controller;
    CONTROLLER_GET_NEXT_BROKER_ID = 1012: Question, Broker => Controller;
    CONTROLLER_APPLY_BROKER_ID = 1013: Change, Broker => Controller;
    BROKER_CLOSE_CHANNEL = 1014: Change, Controller => Controller;
    CHECK_NOT_ACTIVE_BROKER = 1015: Question, Controller => Controller;
    GET_BROKER_LIVE_INFO = 1016: Question, Controller => Controller;
    GET_SYNC_STATE_DATA = 1017: Question, Controller => Controller;
    RAFT_BROKER_HEART_BEAT_EVENT = 1018: Change, Broker => Controller;
    UPDATE_COLD_DATA_FLOW_CTR_CONFIG = 2001: Change, Administrator => Broker;
    REMOVE_COLD_DATA_FLOW_CTR_CONFIG = 2002: Change, Administrator => Broker;
    GET_COLD_DATA_FLOW_CTR_INFO = 2003: Question, Administrator => Broker;
    SET_COMMITLOG_READ_MODE = 2004: Change, Administrator => Broker;
    AUTH_CREATE_USER = 3001: Change, Administrator => Broker;
    AUTH_UPDATE_USER = 3002: Change, Administrator => Broker;
    AUTH_DELETE_USER = 3003: Change, Administrator => Broker;
    AUTH_GET_USER = 3004: Question, Administrator => Broker;
    AUTH_LIST_USER = 3005: Question, Administrator => Broker;
    AUTH_CREATE_ACL = 3006: Change, Administrator => Broker;
    AUTH_UPDATE_ACL = 3007: Change, Administrator => Broker;
    AUTH_DELETE_ACL = 3008: Change, Administrator => Broker;
    AUTH_GET_ACL = 3009: Question, Administrator => Broker;
    AUTH_LIST_ACL = 3010: Question, Administrator => Broker;
    SWITCH_TIMER_ENGINE = 5001: Change, Administrator => Broker;
    COPY_LOG = 10_906: Question, Broker => Broker;
    CHANGE_BROKER_ROLE = 10_907: Change, Administrator => Broker;
    LEAVE_MASTER = 10_908: Change, Broker => Broker;
    COPY_TABLES = 10_909: Change, Broker => Broker;
    COPY_ACCOUNTS = 10_910: Question, Broker => Broker;
    GET_QUOTAS = 10_920: Question, Administrator => Broker;
    SET_QUOTA = 10_921: Change, Administrator => Broker;
    REMOVE_QUOTA = 10_922: Change, Administrator => Broker;
    POP_MESSAGE = 200_050: Change, Client => Broker;
    ACK_MESSAGE = 200_051: Change, Client => Broker;
    PEEK_MESSAGE = 200_052: Question, Client => Broker;
    CHANGE_MESSAGE_INVISIBLETIME = 200_053: Change, Client => Broker;
    NOTIFICATION = 200_054: Question, Client => Broker;
    POLLING_INFO = 200_055: Question, Client => Broker;
    POP_ROLLBACK = 200_056: Change, Client => Broker;
    POP_LITE_MESSAGE = 200_070: Change, Client => Broker;
    LITE_SUBSCRIPTION_CTL = 200_071: Change, Client => Broker;
    ACK_LITE_MESSAGE = 200_072: Change, Client => Broker;
    NOTIFY_UNSUBSCRIBE_LITE = 200_073: Change, Broker => Client;
    GET_BROKER_LITE_INFO = 200_074: Question, Administrator => Broker;
    GET_PARENT_TOPIC_INFO = 200_075: Question, Administrator => Broker;
    GET_LITE_TOPIC_INFO = 200_076: Question, Administrator => Broker;
    GET_LITE_CLIENT_INFO = 200_077: Question, Administrator => Broker;
    GET_LITE_GROUP_INFO = 200_078: Question, Administrator => Broker;
    TRIGGER_LITE_DISPATCH = 200_079: Change, Administrator => Broker;
    BATCH_ACK_MESSAGE = 200_151: Change, Client => Broker;
}

//! Names of topics and groups that belong to the system, and the prefixes of derived names.
//!
//! # Source
//! docs/reference/protocol.md 2.3.1 (end), docs/reference/store-format.md 1.4, docs/reference/client.md 4.5.

/// The template from which missing topics are created.
#[doc(alias = "AUTO_CREATE_TOPIC_KEY_TOPIC")]
pub const TEMPLATE_TOPIC: &str = "TBW102";
/// Topic for the self test.
pub const SELF_TEST_TOPIC: &str = "SELF_TEST_TOPIC";
/// Topic of Apache's benchmark.
pub const BENCHMARK_TOPIC: &str = "BenchmarkTest";
/// Topic that tells of offsets that were corrected.
pub const OFFSET_MOVED_TOPIC: &str = "OFFSET_MOVED_EVENT";
/// Topic of delayed messages; a queue for each delay level.
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";
/// Topic of message traces.
pub const TRACE_TOPIC: &str = "RMQ_SYS_TRACE_TOPIC";
/// Topic of half messages.
pub const HALF_TOPIC: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
/// Topic of op messages, which end half messages.
pub const OP_HALF_TOPIC: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
/// Topic of half messages that were checked back too often.
pub const TRANSACTION_CHECK_MAX_TIME_TOPIC: &str = "TRANS_CHECK_MAX_TIME_TOPIC";
/// Name by which Apache's RocksDB stores mark their progress.
pub const CHECKPOINT_TOPIC: &str = "CHECKPOINT_TOPIC";
/// Topic of timer messages.
pub const TIMER_TOPIC: &str = "rmq_sys_wheel_timer";
/// Starts the names of system topics.
pub const SYSTEM_TOPIC_PREFIX: &str = "rmq_sys_";
/// Starts the names of topics that clients of a cloud service send their traces to.
pub const CLOUD_TRACE_TOPIC_PREFIX: &str = "rmq_sys_TRACE_DATA_";
/// Starts the name of the topic of pop's check points; the cluster name follows.
pub const REVIVE_TOPIC_PREFIX: &str = "rmq_sys_REVIVE_LOG_";
/// Starts the name of the topic that carries broker membership; the broker name follows.
pub const SYNC_MEMBER_TOPIC_PREFIX: &str = "rmq_sys_SYNC_BROKER_MEMBER_";
/// Ends the name of a cluster's reply topic.
pub const REPLY_TOPIC_SUFFIX: &str = "_REPLY_TOPIC";

/// Starts the name of a group's retry topic.
pub const RETRY_PREFIX: &str = "%RETRY%";
/// Starts the name of a group's dead-letter topic.
#[doc(alias = "DLQ_GROUP_TOPIC_PREFIX")]
pub const DLQ_PREFIX: &str = "%DLQ%";

/// Consumer group of the tools.
pub const TOOLS_GROUP: &str = "TOOLS_CONSUMER";
/// Consumer group of clients that name none.
pub const DEFAULT_CONSUMER_GROUP: &str = "DEFAULT_CONSUMER";
/// Producer group of clients that name none.
pub const DEFAULT_PRODUCER_GROUP: &str = "DEFAULT_PRODUCER";
/// Group of the service that delivers delayed messages.
pub const SCHEDULE_GROUP: &str = "SCHEDULE_CONSUMER";
/// Group of filter servers.
pub const FILTER_SERVER_GROUP: &str = "FILTERSRV_CONSUMER";
/// Group of the monitor.
pub const MONITOR_GROUP: &str = "__MONITOR_CONSUMER";
/// Consumer group of the self test.
pub const SELF_TEST_CONSUMER_GROUP: &str = "SELF_TEST_C_GROUP";
/// Producer group of the self test.
pub const SELF_TEST_PRODUCER_GROUP: &str = "SELF_TEST_P_GROUP";
/// Producer group with which clients send back.
pub const CLIENT_INNER_PRODUCER_GROUP: &str = "CLIENT_INNER_PRODUCER";
/// Group of the service that checks half messages back.
pub const TRANSACTION_GROUP: &str = "CID_RMQ_SYS_TRANS";
/// Groups made with broadcast consumption enabled.
pub const ONS_GROUPS: [&str; 4] =
    ["CID_ONS-HTTP-PROXY", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_ONSAPI_PULL"];
/// Starts the names of system groups.
pub const SYSTEM_GROUP_PREFIX: &str = "CID_RMQ_SYS_";

/// Topics that no client may send to, beside those with [`SYSTEM_TOPIC_PREFIX`].
pub const SEND_DENIED_TOPICS: [&str; 7] = [
    TEMPLATE_TOPIC,
    SCHEDULE_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    TRANSACTION_CHECK_MAX_TIME_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_TOPIC,
];

/// Region that a broker states when none is configured.
pub const DEFAULT_REGION: &str = "DefaultRegion";
/// Broker id of a master.
pub const MASTER_ID: u64 = 0;
/// Maximum number of slaves of a master: it closes a further connection at once, and a name server remembers no more slaves of a name.
pub const MAX_SLAVES: usize = 16;
/// Version ordinal that every RocketPy process announces (5.3.3).
#[doc(alias = "MQVersion")]
pub const VERSION: i32 = 479;

/// The retry topic of `group`.
#[must_use]
pub fn retry_topic(group: &str) -> String {
    format!("{RETRY_PREFIX}{group}")
}

/// The dead-letter topic of `group`.
#[must_use]
pub fn dlq_topic(group: &str) -> String {
    format!("{DLQ_PREFIX}{group}")
}

/// The group whose retry topic `topic` is.
#[must_use]
pub fn group_of_retry_topic(topic: &str) -> Option<&str> {
    topic.strip_prefix(RETRY_PREFIX)
}

/// Says whether clients may not send to `topic`. Topics of traces stay open: clients write them.
#[must_use]
#[doc(alias = "isNotAllowedSendTopic")]
pub fn is_send_denied(topic: &str) -> bool {
    SEND_DENIED_TOPICS.contains(&topic)
        || topic.starts_with(SYSTEM_TOPIC_PREFIX) && !topic.starts_with(CLOUD_TRACE_TOPIC_PREFIX)
}

/// Says whether `topic` holds messages that are for other topics.
#[must_use]
pub fn holds_others(topic: &str) -> bool {
    [SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_CHECK_MAX_TIME_TOPIC, TIMER_TOPIC]
        .contains(&topic)
}

/// Says whether clients may neither create nor delete `topic`.
#[must_use]
pub fn is_system_topic(topic: &str) -> bool {
    is_send_denied(topic)
        || [BENCHMARK_TOPIC, TRACE_TOPIC, CHECKPOINT_TOPIC].contains(&topic)
        || topic.starts_with(SYSTEM_TOPIC_PREFIX)
}

/// How a missing topic comes to exist, for errors.
///
/// Retry and dead-letter topics are created by the broker, in answer to a consumer of their group; system topics by each broker at its start.
#[must_use]
pub fn missing_topic_hint(topic: &str) -> String {
    if let Some(group) = topic.strip_prefix(RETRY_PREFIX) {
        return format!(
            "the first retry of group {group} creates this topic; `rocketpy group list` shows the groups"
        );
    }
    if let Some(group) = topic.strip_prefix(DLQ_PREFIX) {
        return format!(
            "the first dead letter of group {group} creates this topic; `rocketpy dlq list` shows the groups with dead letters"
        );
    }
    if is_system_topic(topic) {
        return "brokers create this topic themselves; `rocketpy cluster list` shows the registered brokers"
            .to_owned();
    }
    // The shell reads a bar as a pipe.
    let quote = if topic.contains('|') { "'" } else { "" };
    format!("check its name, or create it with `rocketpy topic create {quote}{topic}{quote}`")
}

/// Says whether `group` belongs to the system.
#[must_use]
pub fn is_system_group(group: &str) -> bool {
    group.starts_with(SYSTEM_GROUP_PREFIX)
        || ONS_GROUPS.contains(&group)
        || [
            TOOLS_GROUP,
            DEFAULT_CONSUMER_GROUP,
            DEFAULT_PRODUCER_GROUP,
            SCHEDULE_GROUP,
            FILTER_SERVER_GROUP,
            MONITOR_GROUP,
            SELF_TEST_CONSUMER_GROUP,
            SELF_TEST_PRODUCER_GROUP,
            CLIENT_INNER_PRODUCER_GROUP,
        ]
        .contains(&group)
}

/// Says whether the broker itself works under the name of `group`: no client may enter it, read as it or move its offsets.
///
/// The other system groups ([`is_system_group`]) belong to tools and to clients without a group of their own, which do all of that.
#[must_use]
#[doc(alias = "isSysConsumerGroup")]
pub fn is_broker_group(group: &str) -> bool {
    group.starts_with(SYSTEM_GROUP_PREFIX) || group == SCHEDULE_GROUP
}

/// Says whether the broker itself reads `topic`: clients may look at its messages, but keep no offsets in it.
///
/// The other system topics ([`is_system_topic`]) are read by clients: traces, corrected offsets, half messages that were given up.
#[must_use]
pub fn is_broker_topic(topic: &str) -> bool {
    [SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECKPOINT_TOPIC].contains(&topic)
        || topic.starts_with(SYSTEM_TOPIC_PREFIX) && !topic.starts_with(CLOUD_TRACE_TOPIC_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_topics_are_known_by_name_and_by_prefix() {
        assert!(is_system_topic("TBW102"));
        assert!(is_system_topic("rmq_sys_REVIVE_LOG_c"));
        assert!(!is_system_topic("orders"));
        assert!(is_send_denied("SELF_TEST_TOPIC"));
        assert!(is_send_denied("TBW102") && is_send_denied("rmq_sys_wheel_timer"));
        assert!(!is_send_denied(TRACE_TOPIC) && !is_send_denied("rmq_sys_TRACE_DATA_cn-hangzhou"));
        assert!(!is_send_denied(BENCHMARK_TOPIC) && !is_send_denied("%RETRY%group"));
    }

    #[test]
    fn names_of_the_broker_are_not_those_of_tools_and_clients() {
        assert!(is_broker_group(TRANSACTION_GROUP) && is_broker_group("CID_RMQ_SYS_REVIVE_GROUP"));
        for group in [TOOLS_GROUP, MONITOR_GROUP, DEFAULT_CONSUMER_GROUP, "CID_ONSAPI_OWNER", "group"] {
            assert!(!is_broker_group(group), "{group}");
        }
        for topic in [HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, "rmq_sys_REVIVE_LOG_c"] {
            assert!(is_broker_topic(topic) && is_system_topic(topic), "{topic}");
        }
        for topic in
            [TRACE_TOPIC, OFFSET_MOVED_TOPIC, TRANSACTION_CHECK_MAX_TIME_TOPIC, BENCHMARK_TOPIC, "%RETRY%g"]
        {
            assert!(!is_broker_topic(topic), "{topic}");
        }
    }

    #[test]
    fn a_retry_topic_names_its_group() {
        assert_eq!(group_of_retry_topic(&retry_topic("g")), Some("g"));
        assert_eq!(group_of_retry_topic("%DLQ%g"), None);
    }
}

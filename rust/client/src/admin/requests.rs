//! Requests that only administration sends.

use rocketpy_protocol::Command;
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{
    GetAllTopicConfigRequestHeader, GetConsumerRunningInfoRequestHeader,
    GetSubscriptionGroupConfigRequestHeader, QueryConsumeTimeSpanRequestHeader,
    QueryTopicConsumeByWhoRequestHeader, ViewBrokerStatsDataRequestHeader,
};

/// Requests the configuration of one group.
pub(super) fn group_config(group: &str) -> Command {
    Command::request(
        request::GET_SUBSCRIPTIONGROUP_CONFIG,
        &GetSubscriptionGroupConfigRequestHeader { group },
    )
}

/// Requests the progress of all groups in all topics.
pub(super) fn all_consume_stats() -> Command {
    let mut command = Command::bare_request(request::GET_BROKER_CONSUME_STATS);
    command.ext.push("isOrder", "false"); // `true` leaves out topics without order
    command
}

/// Requests the configuration of all topics.
pub(super) fn all_topics() -> Command {
    let header = GetAllTopicConfigRequestHeader { topic_seq: None, data_version: None, max_topic_num: None };
    Command::request(request::GET_ALL_TOPIC_CONFIG, &header)
}

/// Requests the state of a member; with the stacks of its threads, if wanted.
pub(super) fn running_info(group: &str, client_id: &str, stacks: bool) -> Command {
    let header =
        GetConsumerRunningInfoRequestHeader { consumer_group: group, client_id, jstack_enable: Some(stacks) };
    Command::request(request::GET_CONSUMER_RUNNING_INFO, &header)
}

/// Requests all live producers.
pub(super) fn all_producers() -> Command {
    Command::bare_request(request::GET_ALL_PRODUCER_INFO)
}

/// Requests the groups that subscribe to a topic, or have offsets for it.
pub(super) fn topic_groups(topic: &str) -> Command {
    Command::request(request::QUERY_TOPIC_CONSUME_BY_WHO, &QueryTopicConsumeByWhoRequestHeader { topic })
}

/// Requests the store times around the offsets of a group in a topic.
pub(super) fn time_spans(topic: &str, group: &str) -> Command {
    Command::request(request::QUERY_CONSUME_TIME_SPAN, &QueryConsumeTimeSpanRequestHeader { topic, group })
}

/// Requests an item of statistics.
pub(super) fn statistics(stats_name: &str, stats_key: &str) -> Command {
    Command::request(
        request::VIEW_BROKER_STATS_DATA,
        &ViewBrokerStatsDataRequestHeader { stats_name, stats_key },
    )
}

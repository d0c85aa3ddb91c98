//! Requests that only administration sends.

use rocketpy_protocol::Command;
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{
    GetAllTopicConfigRequestHeader, GetConsumerRunningInfoRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
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

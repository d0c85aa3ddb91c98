//! Requests of [`crate::Admin`] for the upkeep of single brokers.

use rocketpy_protocol::Command;
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{
    ConsumeMessageDirectlyResultRequestHeader, DeleteKVConfigRequestHeader, GetKVConfigRequestHeader,
    PutKVConfigRequestHeader,
};

/// Leftovers that a broker removes on request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leftover {
    /// Files of the log past their retention, whatever the hour of `deleteWhen`.
    ExpiredLog,
    /// Files of consume queues whose messages have left the log.
    ExpiredQueues,
    /// Consume queues of topics without a configuration.
    UnusedTopics,
}

pub(crate) fn clean(leftover: Leftover) -> Command {
    Command::bare_request(match leftover {
        Leftover::ExpiredLog => request::DELETE_EXPIRED_COMMITLOG,
        Leftover::ExpiredQueues => request::CLEAN_EXPIRED_CONSUMEQUEUE,
        Leftover::UnusedTopics => request::CLEAN_UNUSED_TOPIC,
    })
}

pub(crate) fn consumer_offsets() -> Command {
    Command::bare_request(request::GET_ALL_CONSUMER_OFFSET)
}

pub(crate) fn timer_metrics() -> Command {
    Command::bare_request(request::GET_TIMER_METRICS)
}

pub(crate) fn consume_directly(group: &str, client_id: &str, topic: &str, offset_msg_id: &str) -> Command {
    let header = ConsumeMessageDirectlyResultRequestHeader {
        consumer_group: group,
        client_id: Some(client_id),
        msg_id: Some(offset_msg_id),
        broker_name: None,
        topic: Some(topic),
        topic_sys_flag: None,
        group_sys_flag: None,
    };
    Command::request(request::CONSUME_MESSAGE_DIRECTLY, &header)
}

pub(crate) fn kv_config(namespace: &str, key: &str) -> Command {
    Command::request(request::GET_KV_CONFIG, &GetKVConfigRequestHeader { namespace, key })
}

pub(crate) fn put_kv_config(namespace: &str, key: &str, value: &str) -> Command {
    Command::request(request::PUT_KV_CONFIG, &PutKVConfigRequestHeader { namespace, key, value })
}

pub(crate) fn delete_kv_config(namespace: &str, key: &str) -> Command {
    Command::request(request::DELETE_KV_CONFIG, &DeleteKVConfigRequestHeader { namespace, key })
}

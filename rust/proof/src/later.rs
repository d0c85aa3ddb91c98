//! Messages that have to wait: what all harnesses call them, and the requests that end or give them back.

use rocketpy_model::{sys_flag, system};
use rocketpy_protocol::Command;
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{ConsumerSendMsgBackRequestHeader, EndTransactionRequestHeader};

use crate::history::Acknowledged;

/// Delayed messages and those of transactions come here.
pub(crate) const TOPIC: &str = "later";
pub(crate) const PRODUCERS: &str = "payers";
/// Producers that end a transaction when they are asked, and not before.
pub(crate) const ASKED_PRODUCERS: &str = "asked-payers";
/// The group that gives messages back: once as a retry, then as a dead letter.
pub(crate) const GROUP: &str = "back";
const MOST_RETRIES: i32 = 1;
/// The shortest delay level, and how long it is.
pub(crate) const LEVEL: i32 = 1;
pub(crate) const LEVEL_MS: i64 = 1000;

/// A half message whose place is known, and what is asked to become of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Half {
    pub(crate) message: u64,
    pub(crate) queue_offset: i64,
    pub(crate) physical_offset: i64,
    pub(crate) is_committed: bool,
    pub(crate) was_ended: bool,
}

pub(crate) fn retry_topic() -> String {
    system::retry_topic(GROUP)
}

pub(crate) fn dead_topic() -> String {
    system::dlq_topic(GROUP)
}

/// A send-back is answered after the flush, whatever the broker is set to.
pub(crate) fn topics_of_their_own() -> impl Iterator<Item = (String, Acknowledged)> {
    [retry_topic(), dead_topic()].into_iter().map(|topic| (topic, Acknowledged::AfterFlush))
}

pub(crate) fn unique_key(message: u64) -> String {
    format!("{message:032X}")
}

pub(crate) fn end_transaction(half: &Half) -> Command {
    end_as(half, PRODUCERS, None)
}

/// Ends a transaction as the answer to a question.
pub(crate) fn answer_question(half: &Half) -> Command {
    end_as(half, ASKED_PRODUCERS, Some(true))
}

fn end_as(half: &Half, producer_group: &str, from_transaction_check: Option<bool>) -> Command {
    let state = if half.is_committed { sys_flag::TRANSACTION_COMMIT } else { sys_flag::TRANSACTION_ROLLBACK };
    let header = EndTransactionRequestHeader {
        topic: Some(TOPIC),
        producer_group,
        tran_state_table_offset: half.queue_offset,
        commit_log_offset: half.physical_offset,
        commit_or_rollback: state,
        from_transaction_check,
        msg_id: &unique_key(half.message),
        transaction_id: None,
        broker_name: None,
    };
    Command::request(request::END_TRANSACTION, &header)
}

/// Gives the message of a record back.
pub(crate) fn send_back(start: u64) -> Command {
    let header = ConsumerSendMsgBackRequestHeader {
        offset: start.cast_signed(),
        group: GROUP,
        delay_level: LEVEL,
        origin_msg_id: None,
        origin_topic: None,
        unit_mode: None,
        max_reconsume_times: Some(MOST_RETRIES),
        broker_name: None,
    };
    Command::request(request::CONSUMER_SEND_MSG_BACK, &header)
}

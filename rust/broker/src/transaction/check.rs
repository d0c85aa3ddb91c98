//! Asks producers what became of half messages that they left open.
//!
//! # Source
//! docs/reference/store-format.md 9.5, docs/reference/protocol.md 2.4.2. Apache writes a half message again before each question;
//! here it stays where it is, so that a late answer to an early question still names it.

use std::time::Duration;

use rocketpy_auth::{Action, Actions, Permit};
use rocketpy_env::Disk;
use rocketpy_model::{QueueOffset, property, system};
use rocketpy_protocol::Command;
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::CheckTransactionStateRequestHeader;
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_protocol::record::{RecordFields, RecordView};
use rocketpy_store::QueueEntry;
use tokio::runtime::Handle;
use tracing::{debug, error, warn};

use super::service::RETRY_MS;
use super::{Checked, Claim, End, QUEUE, Transactions};
use crate::BrokerConfig;
use crate::clock_steps::{HELD_MS, Now};
use crate::metrics::Metric;
use crate::put::{DueRecord, StoredAgain, due_record};
use crate::refusal::Refusal;

/// Maximum number of half messages that one round looks at closely; then others get their turn.
const MAX_LOOKS: usize = 1000;
/// Entries that are read at once.
const PAGE: usize = 64;

/// Result of checking a half message.
enum Look {
    /// The transaction has ended or is being ended.
    Nothing,
    /// Nothing to do before this time.
    Due(i64),
    /// All later half messages are younger: no check is due before this time.
    Young(i64),
    /// Something was done; again after an interval.
    Done,
}

/// Looks at the open half messages. Returns when to look again, in milliseconds of the monotonic clock; `None` when a half message
/// arrives. Blocks; puts wait on the runtime.
///
/// # Errors
/// The half queue cannot be read.
pub(super) fn round(
    transactions: &Transactions<impl Disk>,
    now: Now,
    runtime: &Handle,
) -> Result<Option<i64>, Refusal> {
    let at_ms = now.steady_ms;
    let interval_ms = millis(transactions.intake.config().transaction_check_interval);
    let (mut at, mut due_at_ms, mut looks) = (transactions.state.lock().next, None::<i64>, 0);
    loop {
        at = transactions.state.lock().over_from(at);
        let first = transactions.store().queue_bounds(system::HALF_TOPIC, QUEUE).min;
        if at < first {
            lose(transactions, at, first);
            at = first;
        }
        let entries = transactions.store().entries(system::HALF_TOPIC, QUEUE, at, PAGE)?;
        let Some(last) = entries.last() else { return Ok(due_at_ms) };
        if at < entries[0].queue_offset {
            lose(transactions, at, entries[0].queue_offset);
        }
        assert!(at <= last.queue_offset, "half messages are looked at in their order: {at}");
        at = last.queue_offset + 1;
        for entry in &entries {
            let next_ms = match look(transactions, entry, now, runtime)? {
                Look::Nothing => continue,
                Look::Due(next_ms) => next_ms,
                Look::Young(next_ms) => return Ok(Some(due_at_ms.map_or(next_ms, |due| due.min(next_ms)))),
                Look::Done => {
                    looks += 1;
                    at_ms.saturating_add(interval_ms)
                }
            };
            due_at_ms = Some(due_at_ms.map_or(next_ms, |due| due.min(next_ms)));
            if looks >= MAX_LOOKS {
                return Ok(Some(at_ms));
            }
        }
    }
}

/// Half messages are gone, or cannot be read: those that are not over are lost.
fn lose(transactions: &Transactions<impl Disk>, from: QueueOffset, to: QueueOffset) {
    let (mut half, mut lost) = (from, 0);
    loop {
        half = transactions.state.lock().over_from(half);
        if half >= to {
            break;
        }
        transactions.end(half, End::Lost);
        (half, lost) = (half + 1, lost + 1);
    }
    if lost > 0 {
        error!(lost, %from, "half messages of open transactions removed or damaged");
    }
}

fn look(
    transactions: &Transactions<impl Disk>,
    entry: &QueueEntry,
    now: Now,
    runtime: &Handle,
) -> Result<Look, Refusal> {
    let (half, at_ms) = (entry.queue_offset, now.steady_ms);
    let interval_ms = millis(transactions.intake.config().transaction_check_interval);
    let mut checked = {
        let state = transactions.state.lock();
        if state.is_over(half) {
            return Ok(Look::Nothing);
        }
        state.checks.get(&half).copied()
    };
    if let Some(last) = &mut checked
        && let Some(next_ms) = last.at_ms.map(|asked_at_ms| asked_at_ms.saturating_add(interval_ms))
        && at_ms < next_ms
    {
        if !has_lost_its_producer(transactions, last) {
            return Ok(Look::Due(next_ms));
        }
        assert!(last.asked.is_none() || last.times > 0, "a check-back that was sent is counted: {half}");
        last.times -= u32::from(last.asked.take().is_some()); // a question without a possible answer does not count
    }
    let bytes = match due_record(&transactions.intake, entry.physical_offset)? {
        DueRecord::Found(bytes) => Some(bytes),
        DueRecord::Lost(reason) => {
            error!(physical_offset = %entry.physical_offset, reason, "half message lost");
            None
        }
        DueRecord::Unreadable(_) => return Ok(Look::Due(at_ms.saturating_add(RETRY_MS))),
    };
    let Some(record) = bytes.as_deref().and_then(|bytes| RecordView::parse(bytes).ok()) else {
        lose(transactions, half, half + 1);
        return Ok(Look::Nothing);
    };
    let checked = checked.filter(|checked| checked.stored_at_ms == record.stored_at_ms);
    Ok(look_at_record(transactions, &record, checked, now, runtime))
}

/// Whether the producer that got the latest question has gone, or nobody was there to get it, and producers came or went since.
fn has_lost_its_producer(transactions: &Transactions<impl Disk>, last: &Checked) -> bool {
    let clients = transactions.intake.members().clients();
    let most = transactions.intake.config().transaction_check_max;
    last.producer_changes != clients.producer_changes()
        && last.asked.map_or(last.times < most, |connection_id| !clients.is_producer(connection_id))
}

/// Asks for the end of a half message, gives it up, or says when one of them is due.
fn look_at_record(
    transactions: &Transactions<impl Disk>,
    record: &RecordView<'_>,
    checked: Option<Checked>,
    now: Now,
    runtime: &Handle,
) -> Look {
    let (half, at_ms) = (record.queue_offset, now.steady_ms);
    let config = transactions.intake.config();
    let timeout_ms = millis(config.transaction_timeout);
    let own_ms = immunity_ms(record, &config);
    let wait_ms = own_ms.unwrap_or(timeout_ms);
    let age_ms = age_ms(transactions, record, now.wall_ms);
    if let Some(age_ms) = age_ms.filter(|age_ms| checked.is_none() && *age_ms < wait_ms) {
        let next_ms = at_ms.saturating_add(wait_ms - age_ms);
        return if own_ms.is_some() { Look::Due(next_ms) } else { Look::Young(next_ms) };
    }
    let times = checked.map_or_else(|| stored_times(record), |checked| checked.times);
    let stored_at_ms = record.stored_at_ms;
    let producer_changes = transactions.intake.members().clients().producer_changes();
    let note = |times, asked| {
        let mut state = transactions.state.lock();
        if !state.is_over(half) {
            let checked = Checked { times, at_ms: Some(at_ms), stored_at_ms, asked, producer_changes };
            state.checks.insert(half, checked);
        }
    };
    let kept_ms = millis(config.store.retention.reserved_time);
    let most = config.transaction_check_max;
    // However short messages are kept, there is time for all questions.
    let interval_ms = millis(config.transaction_check_interval);
    let asked_ms = wait_ms.saturating_add(interval_ms.saturating_mul(i64::from(most)));
    // A producer has an interval for its answer, also to the last question before a restart.
    let is_asked_before_start = checked.is_some_and(|checked| checked.at_ms.is_none());
    // An age counts from the second look on: the clock may have been ahead at the start, when no step is known.
    let has_been_looked_at = checked.is_some_and(|checked| checked.at_ms.is_some());
    if times >= most && is_asked_before_start {
        note(times, None);
    } else if times >= most
        || has_been_looked_at && age_ms.is_some_and(|age_ms| age_ms > kept_ms.max(asked_ms))
    {
        give_up(transactions, record, half, runtime);
    } else {
        let question = ask(transactions, record, times);
        transactions.state.lock().has_asked |= question != Question::NotSent;
        match question {
            Question::NotSent => note(times, None),
            Question::Sent(connection_id) => note(times + 1, Some(connection_id)),
            Question::Impossible => note(times + 1, None),
        }
    }
    Look::Done
}

/// What became of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    /// It went to the producer with this connection.
    Sent(u64),
    /// No producer of the group is there.
    NotSent,
    /// The half message names no group or no topic, as only another broker stores it: no producer can be asked.
    Impossible,
}

/// Sends the question to one live producer of the group: the first time to the one that sent the half message, then to each other in turn,
/// since each of them may be the one that knows. Members whose users may not send to the topic do not count. Without a producer nothing is
/// sent, and nothing counts.
fn ask(transactions: &Transactions<impl Disk>, record: &RecordView<'_>, times: u32) -> Question {
    let Some(group) = record.property(property::PRODUCER_GROUP) else { return Question::Impossible };
    let mut members = transactions.intake.members().clients().producer_group(group);
    // The question holds the half message, and the group is what its members say.
    if let Some(topic) = record.property(property::REAL_TOPIC)
        && let Some(guard) = &transactions.intake.config().auth.guard
    {
        let may = Permit { topic, group: None, actions: Actions::of(&[Action::Pub]) };
        members.retain(|member| {
            let from = member.connection.peer();
            guard.still_permits(request::CHECK_TRANSACTION_STATE, member.user.as_deref(), from, may)
        });
    }
    if members.is_empty() {
        return Question::NotSent;
    }
    members.sort_unstable_by_key(|member| member.connection.id());
    let sender = members.iter().position(|member| member.connection.peer() == record.born_host);
    let first = sender.unwrap_or(record.queue_offset.get() as usize % members.len());
    let turn = (first + times as usize) % members.len();
    members.rotate_left(turn);
    let Some(question) = question(transactions, record) else { return Question::Impossible };
    for member in members.iter().filter(|member| member.connection.is_open()) {
        match member.connection.send_oneway(question.clone()) {
            Ok(()) => {
                transactions.count(Metric::TransactionsChecked);
                return Question::Sent(member.connection.id());
            }
            Err(error) => debug!(group, %error, "check-back not sent to a producer"),
        }
    }
    Question::NotSent
}

/// CHECK_TRANSACTION_STATE: the body is the half message in the form of its topic.
fn question(transactions: &Transactions<impl Disk>, record: &RecordView<'_>) -> Option<Command> {
    let (topic, queue_id) = real(record)?;
    let fields = RecordFields {
        topic,
        queue_id: u32::try_from(queue_id).unwrap_or(0),
        flag: record.flag,
        sys_flag: record.sys_flag,
        born_at_ms: record.born_at_ms,
        born_host: record.born_host,
        store_host: record.store_host,
        reconsume_times: record.reconsume_times,
        prepared_transaction_offset: record.prepared_transaction_offset,
        body: record.body,
        properties: record.properties,
        may_have_crc: true,
    };
    let mut body = Vec::new();
    let plan = fields.encode(false, &mut body).ok()?;
    plan.finish(&mut body, record.queue_offset, record.physical_offset, record.stored_at_ms);
    let mut offset_msg_id = String::new();
    let host = transactions.intake.ground().store_host();
    OffsetMessageId { host, physical_offset: record.physical_offset }.write(&mut offset_msg_id);
    let header = CheckTransactionStateRequestHeader {
        topic: Some(topic),
        tran_state_table_offset: record.queue_offset.to_wire(),
        commit_log_offset: record.physical_offset.to_wire(),
        msg_id: record.unique_key(),
        transaction_id: record.property(property::TRANSACTION_ID).or_else(|| record.unique_key()),
        offset_msg_id: Some(&offset_msg_id),
        broker_name: Some(&transactions.intake.config().broker_name),
    };
    Some(Command::request(request::CHECK_TRANSACTION_STATE, &header).with_body(body))
}

/// Stores a half message that nobody ends where an operator finds it.
fn give_up(
    transactions: &Transactions<impl Disk>,
    record: &RecordView<'_>,
    half: QueueOffset,
    runtime: &Handle,
) {
    if transactions.claim(half) != Claim::Taken {
        return;
    }
    let kept = StoredAgain::of(record).to(system::TRANSACTION_CHECK_MAX_TIME_TOPIC, 0);
    match runtime.block_on(kept.put_or_beside(&transactions.intake)) {
        Ok(_) => {
            let topic = record.property(property::REAL_TOPIC).unwrap_or_default();
            let kept_in = system::TRANSACTION_CHECK_MAX_TIME_TOPIC;
            warn!(%half, topic, kept_in, "transaction not ended, given up");
            transactions.end(half, End::GivenUp);
        }
        Err(refusal) => {
            warn!(%half, %refusal, "half message not given up yet, retrying");
            transactions.release(half);
        }
    }
}

/// How old a half message is, whatever steps the wall clock has made since; `None` where its stored time is in the future.
fn age_ms(transactions: &Transactions<impl Disk>, record: &RecordView<'_>, wall_ms: i64) -> Option<i64> {
    let steps = transactions.intake.ground().clock_steps();
    let age_ms = wall_ms.saturating_sub(steps.stored_at_ms(record.physical_offset, record.stored_at_ms));
    (age_ms >= -HELD_MS).then_some(age_ms.max(0)) // it may have the time of an earlier record, as long as the clock has not caught up
}

/// Topic and queue of the message.
pub(crate) fn real<'a>(record: &RecordView<'a>) -> Option<(&'a str, i32)> {
    let queue_id = record.property(property::REAL_QUEUE_ID).and_then(|id| id.parse().ok()).unwrap_or(-1);
    Some((record.property(property::REAL_TOPIC)?, queue_id))
}

/// Time before the first check-back, if the message states one. `timerMaxDelaySec` bounds it: other brokers accept any time, and the limit
/// may have been lowered since.
fn immunity_ms(record: &RecordView<'_>, config: &BrokerConfig) -> Option<i64> {
    let text = record.property(property::CHECK_IMMUNITY_TIME_IN_SECONDS)?;
    Some(stated_immunity_ms(text).map_or(millis(config.transaction_timeout), |stated_ms| {
        stated_ms.min(millis(config.max_timer_delay))
    }))
}

/// How long a message may be ended without a question; `None` where it does not say. What it says was accepted: a limit that was
/// lowered since does not bound it.
pub(crate) fn unasked_ms(record: &RecordView<'_>, config: &BrokerConfig) -> Option<i64> {
    let text = record.property(property::CHECK_IMMUNITY_TIME_IN_SECONDS)?;
    Some(stated_immunity_ms(text).unwrap_or(millis(config.transaction_timeout)))
}

fn stated_immunity_ms(text: &str) -> Option<i64> {
    let seconds = text.trim().parse::<i64>().ok().filter(|seconds| *seconds >= 0)?;
    Some(seconds.saturating_mul(1000))
}

/// Number of check-backs by another broker.
fn stored_times(record: &RecordView<'_>) -> u32 {
    record.property(property::TRANSACTION_CHECK_TIMES).and_then(|times| times.parse().ok()).unwrap_or(0)
}

pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

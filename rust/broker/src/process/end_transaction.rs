//! END_TRANSACTION: a producer says what becomes of its half message.
//!
//! # Source
//! docs/reference/protocol.md 2.3.12, docs/reference/store-format.md 9.3. Other than Apache's, a second one for the same half message
//! stores nothing, and one that says another end than the first is refused.

use std::sync::Arc;

use bytes::Bytes;
use rocketpy_env::Disk;
use rocketpy_env::planted::{self, Bug};
use rocketpy_model::{PhysicalOffset, property, sys_flag, system};
use rocketpy_protocol::Command;
use rocketpy_protocol::header::{EndTransactionRequestHeader, Header};
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_protocol::record::RecordView;
use rocketpy_remoting::{Reply, Response};
use rocketpy_store::{KeyKind, ReadLimits, StoreError};
use tracing::{debug, warn};

use crate::call::{Call, look_up_aside, read_record, without_body};
use crate::put::{AckCondition, StoredAgain, acknowledge, check_creation};
use crate::refusal::Refusal;
use crate::role::OfMaster;
use crate::shared::Shared;
use crate::transaction::{Claim, End, immunity_ms, millis, real};
use crate::waiting::header_bytes;

/// Most records that may share the unique key of a message.
const MAX_OF_A_KEY: u32 = 64;
const MAX_BYTES: u64 = 64 << 20;
/// How far apart the clocks of a producer and of earlier brokers of the store may be.
const CLOCKS_DIFFER_MS: i64 = 3_600_000;

/// Ends a transaction. A state that is neither commit nor rollback gets no answer.
pub(super) fn end(Call { shared, request, .. }: Call<'_>, reply: Reply) {
    let request = without_body(request.clone());
    let (bytes, owner) = (header_bytes(&request), shared.clone());
    let offset = match EndTransactionRequestHeader::read(&request.ext) {
        Ok(header) => match header.commit_or_rollback {
            sys_flag::TRANSACTION_COMMIT | sys_flag::TRANSACTION_ROLLBACK => header.commit_log_offset,
            _ => return reply.send_nothing(),
        },
        Err(error) => return reply.send(Refusal::from(error).response()),
    };
    let read = move || (half_of(&owner, &request), owner, request);
    read_record(shared, offset, reply, bytes, read, |(half, shared, request), reply| {
        let owner = shared.clone();
        shared.tasks.run(async move {
            let ended = match half {
                Ok(half) => end_half(&owner, &request, &half).await,
                Err(refusal) => Err(refusal),
            };
            match ended {
                Ok(ack) => acknowledge(&owner, ack, reply, Response::success()),
                Err(refusal) => {
                    if matches!(refusal, Refusal::NoTopic { .. } | Refusal::EarlierTopic { .. }) {
                        warn!(%refusal, "the message of a transaction cannot be delivered, it stays open"); // its producer may ask for no answer
                    } else {
                        debug!(%refusal, peer = %reply.connection().peer(), "transaction not ended");
                    }
                    reply.send(refusal.response());
                }
            }
        });
    });
}

/// The half message that the request names.
///
/// # Errors
/// There is none, or the broker is a slave. Whether clients may write does not matter: what was begun may be ended.
pub(crate) fn half_of(shared: &Shared<impl Disk>, request: &Command) -> Result<Bytes, Refusal> {
    shared.check_master(OfMaster::Transaction)?;
    let header = EndTransactionRequestHeader::read(&request.ext)?;
    let offset = header.commit_log_offset;
    let no_half = |reason| Refusal::NoHalf { offset, group: header.producer_group.to_owned(), reason };
    let missing = || no_half("no message starts there");
    let at = u64::try_from(offset).map_err(|_| missing())?;
    let bytes = shared.store.record_at(PhysicalOffset(at))?.ok_or_else(missing)?;
    let record = RecordView::parse(&bytes).map_err(|_| missing())?;
    let group = record.property(property::PRODUCER_GROUP);
    let is_here = |id: OffsetMessageId| id.physical_offset == record.physical_offset;
    let is_meant = |key: &str| header.msg_id == key || header.msg_id.parse().is_ok_and(is_here);
    let is_other = !header.msg_id.is_empty() && !record.unique_key().is_none_or(is_meant);
    if record.topic != system::HALF_TOPIC {
        Err(no_half("it is in another topic"))
    } else if record.queue_offset.to_wire() != header.tran_state_table_offset {
        Err(no_half("its offset in the half queue is another one"))
    } else if is_other {
        Err(no_half("it is another message: the one that is meant was lost with the power"))
    } else if group != Some(header.producer_group) {
        Err(Refusal::HalfOfOtherGroup { offset, group: header.producer_group.to_owned() })
    } else {
        Ok(bytes)
    }
}

pub(crate) async fn end_half(
    shared: &Arc<Shared<impl Disk>>,
    request: &Command,
    bytes: &Bytes,
) -> Result<AckCondition, Refusal> {
    let header = EndTransactionRequestHeader::read(&request.ext)?;
    let offset = header.commit_log_offset;
    let record = RecordView::parse(bytes).map_err(|_| Refusal::NoMessageAt { offset })?;
    let timeout_ms = millis(shared.config().transaction_timeout);
    let is_late = || {
        let immune = immunity_ms(&record, timeout_ms);
        immune.is_some_and(|immune_ms| shared.store.now_ms().saturating_sub(record.stored_at_ms) > immune_ms)
    };
    let half = record.queue_offset;
    match shared.transactions.claim(half) {
        Claim::Over(end) => return again(shared, &header, end, bytes).await,
        Claim::AtWork => return Err(Refusal::EndAtWork { offset }),
        Claim::Taken => {}
    }
    if header.from_transaction_check != Some(true) && is_late() {
        shared.transactions.release(half);
        return Err(Refusal::LateEnd { offset });
    }
    let end = match header.commit_or_rollback {
        sys_flag::TRANSACTION_COMMIT => End::Commit,
        _ => End::Rollback,
    };
    if planted::has(Bug::MarkBeforeCommit) {
        shared.transactions.end(shared, half, end);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await; // else the window is too short to be hit
    }
    let ended = match end {
        End::Commit => commit(shared, &record, bytes).await,
        _ => Ok(AckCondition::default()),
    };
    match ended {
        Ok(ack) => {
            shared.transactions.end(shared, half, end);
            Ok(ack)
        }
        Err(refusal) => {
            shared.transactions.release(half);
            Err(refusal)
        }
    }
}

/// The transaction is over. To say the same end again is no error; another one comes too late.
async fn again(
    shared: &Arc<Shared<impl Disk>>,
    header: &EndTransactionRequestHeader<'_>,
    end: Option<End>,
    bytes: &Bytes,
) -> Result<AckCondition, Refusal> {
    let (owner, known) = (shared.clone(), bytes.clone());
    let was_committed = match end {
        Some(end) => Some(end == End::Commit),
        None => look_up_aside(shared, move || is_committed(&owner, &known)).await??,
    };
    let wants_commit = header.commit_or_rollback == sys_flag::TRANSACTION_COMMIT;
    if was_committed.is_none_or(|was_committed| was_committed == wants_commit) {
        return Ok(as_stored(shared));
    }
    let how = match end {
        _ if !wants_commit => "it was committed",
        Some(End::GivenUp) => "nobody could say how it ended, and it was given up",
        Some(End::Lost) => "its half message was removed for want of space",
        Some(_) => "it was rolled back",
        None => "it was rolled back or given up",
    };
    Err(Refusal::EndedOtherwise { offset: header.commit_log_offset, how })
}

async fn commit(
    shared: &Arc<Shared<impl Disk>>,
    record: &RecordView<'_>,
    bytes: &Bytes,
) -> Result<AckCondition, Refusal> {
    let named = Refusal::NoHalf {
        offset: record.physical_offset.to_wire(),
        group: String::new(),
        reason: "it names no topic",
    };
    let (topic, queue_id) = real(record).ok_or(named)?;
    check_creation(shared, topic, record)?;
    let again = StoredAgain::of(record).to(topic, queue_id).committed();
    if !shared.transactions.may_be_committed(record.queue_offset) {
        return again.put_or_beside(shared).await;
    }
    let mut committed = shared.transactions.old_commits().await;
    let (owner, known) = (shared.clone(), bytes.clone());
    if committed.has(record)
        || look_up_aside(shared, move || is_committed(&owner, &known)).await?? == Some(true)
    {
        return Ok(as_stored(shared));
    }
    let ack = again.put_or_beside(shared).await?;
    committed.add(record);
    Ok(ack)
}

/// Whether two records are of one send. Apache's broker stores a half message again before each question, and after a kill it may have
/// marked none of the copies.
fn is_same(one: &RecordView<'_>, other: &RecordView<'_>) -> bool {
    one.born_at_ms == other.born_at_ms && one.born_host == other.born_host
}

/// What was stored by an earlier request may not be flushed yet, nor be with slaves: a repetition waits as that did.
fn as_stored(shared: &Shared<impl Disk>) -> AckCondition {
    let end = shared.store.max_physical_offset();
    AckCondition {
        flushed: shared.sync_flush.then_some(end),
        replicated: shared.slaves.are_waited_for().then_some(end),
        announced: None,
    }
}

/// Whether the key index knows the committed message, in its topic or where it waits for its time; `None` where it cannot tell.
fn is_committed(shared: &Shared<impl Disk>, bytes: &Bytes) -> Result<Option<bool>, Refusal> {
    let Ok(record) = RecordView::parse(bytes) else { return Ok(None) };
    let (Some((topic, _)), Some(key)) = (real(&record), record.unique_key()) else { return Ok(None) };
    let limits = ReadLimits { max_messages: MAX_OF_A_KEY, max_bytes: MAX_BYTES, copies: false };
    let from_ms = record.born_at_ms.min(record.stored_at_ms).saturating_sub(CLOCKS_DIFFER_MS).max(0);
    let mut is_whole = true;
    for topic in [topic, system::SCHEDULE_TOPIC, system::TIMER_TOPIC] {
        let found = match shared.store.query_by_key(topic, key, KeyKind::Unique, &limits, from_ms, i64::MAX) {
            Ok(found) => found,
            Err(StoreError::NoIndex) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let is_it = |found: &Bytes| {
            RecordView::parse(found).is_ok_and(|found| {
                (found.prepared_transaction_offset == record.physical_offset || is_same(&found, &record))
                    && sys_flag::transaction(found.sys_flag) == sys_flag::TRANSACTION_COMMIT
            })
        };
        if found.records.iter().any(is_it) {
            return Ok(Some(true));
        }
        is_whole &= found.records.len() < MAX_OF_A_KEY as usize;
    }
    Ok(is_whole.then_some(false))
}

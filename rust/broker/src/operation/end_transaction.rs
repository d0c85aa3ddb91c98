//! End of a transaction: a producer says what becomes of its half message.
//!
//! # Source
//! docs/reference/protocol.md 2.3.12, docs/reference/store-format.md 9.3. Other than Apache's, a second one for the same half message
//! stores nothing, and one that says another end than the first is refused.

use bytes::Bytes;
use rocketpy_env::Disk;
use rocketpy_env::planted::{self, Bug};
use rocketpy_model::{PhysicalOffset, property, sys_flag, system};
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_protocol::record::RecordView;
use rocketpy_store::{ReadLimits, Store, StoreError};

use crate::disk_read::{DiskReads, look_up_aside};
use crate::ground::Ground;
use crate::metrics::Metric;
use crate::put::{AckCondition, Intake, StoredAgain, check_creation};
use crate::refusal::Refusal;
use crate::role::OfMaster;
use crate::transaction::{Claim, End, Transactions, real, unasked_ms};

/// Maximum number of records that may share the unique key of a message.
const MAX_OF_A_KEY: u32 = 64;
const MAX_BYTES: u64 = 64 << 20;
/// How far apart the clocks of a producer and of earlier brokers of the store may be.
const CLOCKS_DIFFER_MS: i64 = 3_600_000;

/// The end of a transaction, as a producer says it.
#[derive(Debug, Clone)]
pub(crate) struct EndTransaction {
    pub(crate) group: String,
    /// Where the half message starts in the log.
    pub(crate) half_at: i64,
    /// Its offset in the half queue.
    pub(crate) half_offset: i64,
    /// The unique key of the message, or its offset message id; may be empty.
    pub(crate) msg_id: String,
    /// A commit, else a rollback.
    pub(crate) commits: bool,
    /// Whether it answers a question of the broker.
    pub(crate) is_asked: bool,
}

/// The parts that end transactions.
pub(crate) struct Ending<'a, D: Disk> {
    pub(crate) intake: &'a Intake<D>,
    pub(crate) transactions: &'a Transactions<D>,
    pub(crate) look_ups: &'a DiskReads,
    /// Connection of the request, which takes a share of the look-ups.
    pub(crate) connection_id: u64,
}

/// The half message of the transaction.
///
/// # Errors
/// There is none, or the broker is a slave. Whether clients may write does not matter: what was begun may be ended.
pub(crate) fn half_of(ground: &Ground<impl Disk>, asked: &EndTransaction) -> Result<Bytes, Refusal> {
    ground.check_master(OfMaster::Transaction)?;
    let EndTransaction { half_at: offset, half_offset, msg_id, .. } = asked;
    let offset = *offset;
    let no_half = |reason| Refusal::NoHalf { offset, group: asked.group.clone(), reason };
    let missing = || no_half("no message starts at that offset");
    let at = u64::try_from(offset).map_err(|_| missing())?;
    let bytes = ground.store().record_at(PhysicalOffset(at))?.ok_or_else(missing)?;
    let record = RecordView::parse(&bytes).map_err(|_| missing())?;
    let group = record.property(property::PRODUCER_GROUP);
    let is_here = |id: OffsetMessageId| id.physical_offset == record.physical_offset;
    let is_meant = |key: &str| msg_id == key || msg_id.parse().is_ok_and(is_here);
    let is_other = !msg_id.is_empty() && !record.unique_key().is_none_or(is_meant);
    if record.topic != system::HALF_TOPIC {
        Err(no_half("the record is in another topic"))
    } else if record.queue_offset.to_wire() != *half_offset {
        Err(no_half("its offset in the half queue does not match the request"))
    } else if is_other {
        Err(no_half("the record is another message: the original was lost in a power cut"))
    } else if group != Some(asked.group.as_str()) {
        Err(Refusal::HalfOfOtherGroup { offset, group: asked.group.clone() })
    } else {
        Ok(bytes)
    }
}

/// Ends the transaction of a half message. Returns what the answer waits for.
///
/// # Errors
/// The transaction is as before, or ended otherwise.
pub(crate) async fn end_half(
    ending: &Ending<'_, impl Disk>,
    asked: &EndTransaction,
    bytes: &Bytes,
) -> Result<AckCondition, Refusal> {
    let Ending { intake, transactions, .. } = ending;
    let offset = asked.half_at;
    let record = RecordView::parse(bytes).map_err(|_| Refusal::NoMessageAt { offset })?;
    let is_late = || {
        let immune = unasked_ms(&record, &intake.config());
        let now_ms = intake.ground().observe_clock().wall_ms;
        let steps = intake.ground().clock_steps();
        let stored_at_ms = steps.stored_at_ms(record.physical_offset, record.stored_at_ms);
        immune.is_some_and(|immune_ms| now_ms.saturating_sub(stored_at_ms) > immune_ms)
    };
    let half = record.queue_offset;
    match transactions.claim(half) {
        Claim::Over(end) => return again(ending, asked, end, bytes).await,
        Claim::AtWork => return Err(Refusal::EndAtWork { offset }),
        Claim::Taken => {}
    }
    if !asked.is_asked && is_late() {
        transactions.release(half);
        return Err(Refusal::LateEnd { offset });
    }
    let end = if asked.commits { End::Commit } else { End::Rollback };
    if planted::has(Bug::MarkBeforeCommit) {
        transactions.end(half, end);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await; // else the window is too short to be hit
    }
    let ended = match end {
        End::Commit => commit(ending, &record, bytes).await,
        _ => Ok(AckCondition::default()),
    };
    match ended {
        Ok(ack) => {
            transactions.end(half, end);
            count(intake, end, &record);
            Ok(ack)
        }
        Err(refusal) => {
            transactions.release(half);
            Err(refusal)
        }
    }
}

/// Counts the end of a transaction for its topic.
fn count(intake: &Intake<impl Disk>, end: End, record: &RecordView<'_>) {
    let Some((topic, _)) = real(record) else { return };
    let metrics = intake.ground().metrics();
    if end == End::Commit {
        let took_ms = intake.store().now_ms().saturating_sub(record.born_at_ms).max(0);
        metrics.add_to(Metric::TopicCommits, &[topic], 1);
        metrics.observe(Metric::FinishLatency, &[topic], took_ms as f64 / 1000.0);
    } else {
        metrics.add_to(Metric::TopicRollbacks, &[topic], 1);
    }
}

/// The transaction is over. To say the same end again is no error; another one comes too late.
async fn again(
    ending: &Ending<'_, impl Disk>,
    asked: &EndTransaction,
    end: Option<End>,
    bytes: &Bytes,
) -> Result<AckCondition, Refusal> {
    let was_committed = match end {
        Some(end) => Some(end == End::Commit),
        None => look_up(ending, bytes).await?,
    };
    if was_committed.is_none_or(|was_committed| was_committed == asked.commits) {
        return Ok(as_stored(ending.intake));
    }
    let how = match end {
        _ if !asked.commits => "it was committed",
        Some(End::GivenUp) => "no producer reported its outcome, and it was given up",
        Some(End::Lost) => "its half message was removed because the disk was full",
        Some(_) => "it was rolled back",
        None => "it was rolled back or given up",
    };
    Err(Refusal::EndedOtherwise { offset: asked.half_at, how })
}

async fn commit(
    ending: &Ending<'_, impl Disk>,
    record: &RecordView<'_>,
    bytes: &Bytes,
) -> Result<AckCondition, Refusal> {
    let Ending { intake, transactions, .. } = ending;
    let named = Refusal::NoHalf {
        offset: record.physical_offset.to_wire(),
        group: String::new(),
        reason: "the record has no topic",
    };
    let (topic, queue_id) = real(record).ok_or(named)?;
    check_creation(intake, topic, record)?;
    let again = StoredAgain::of(record).to(topic, queue_id).committed();
    if !transactions.may_be_committed(record.queue_offset) {
        return again.put_or_beside(intake).await;
    }
    let mut committed = transactions.old_commits().await;
    if committed.has(record) || look_up(ending, bytes).await? == Some(true) {
        return Ok(as_stored(intake));
    }
    let ack = again.put_or_beside(intake).await?;
    committed.add(record);
    Ok(ack)
}

/// [`is_committed`], on a thread that serves no connections.
async fn look_up(ending: &Ending<'_, impl Disk>, bytes: &Bytes) -> Result<Option<bool>, Refusal> {
    let (store, known) = (ending.intake.store().clone(), bytes.clone());
    look_up_aside(ending.look_ups, ending.connection_id, move || is_committed(&store, &known)).await?
}

/// Whether two records are of one send. Apache's broker stores a half message again before each question, and after a kill it may have
/// marked none of the copies.
fn is_same(one: &RecordView<'_>, other: &RecordView<'_>) -> bool {
    one.born_at_ms == other.born_at_ms && one.born_host == other.born_host
}

/// What was stored by an earlier request may not be flushed yet, nor be with slaves: a repetition waits as that did.
fn as_stored(intake: &Intake<impl Disk>) -> AckCondition {
    let end = intake.store().max_physical_offset();
    AckCondition {
        flushed: intake.is_sync_flush().then_some(end),
        replicated: intake.slaves().are_waited_for().then_some(end),
        ..AckCondition::default()
    }
}

/// Whether the key index knows the committed message, in its topic or where it waits for its time; `None` where it cannot tell.
fn is_committed(store: &Store<impl Disk>, bytes: &Bytes) -> Result<Option<bool>, Refusal> {
    let Ok(record) = RecordView::parse(bytes) else { return Ok(None) };
    let (Some((topic, _)), Some(key)) = (real(&record), record.unique_key()) else { return Ok(None) };
    let limits = ReadLimits { max_messages: MAX_OF_A_KEY, max_bytes: MAX_BYTES, copies: false };
    let from_ms = record.born_at_ms.min(record.stored_at_ms).saturating_sub(CLOCKS_DIFFER_MS).max(0);
    let mut is_whole = true;
    for topic in [topic, system::SCHEDULE_TOPIC, system::TIMER_TOPIC] {
        // The committed record follows the half message in the log, with an earlier time where the clock was set back. It may precede a copy of
        // the half message that Apache's broker stored.
        let found = match store.query_since(topic, key, &limits, from_ms, record.physical_offset) {
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

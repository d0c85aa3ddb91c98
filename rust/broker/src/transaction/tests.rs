//! Transactions against a real store, with the time as an argument.

use std::sync::Arc;
use std::time::Duration;

use rocketpy_env::{Disk, DiskFile, OpenMode, RealDisk};
use rocketpy_model::{TopicConfig, sys_flag};
use rocketpy_protocol::header::key;
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_protocol::record::RecordView;
use tokio::runtime::Handle;

use super::service::round;
use super::*;
use crate::blocking::aside;
use crate::clock_steps::Now;
use crate::desk::Desk;
use crate::operation::end_transaction::{EndTransaction, Ending, end_half, half_of};
use crate::put::{Delay, NewMessage, NotPut, Origin, StoredAgain, put, put_and_make};
use crate::refusal::Refusal;
use crate::testing::{MOST_OF_A_MINUTE, TestBroker, add_topic, message, until, with_small_files};
use crate::{BrokerConfig, ConfigChange, ConfigText, Endpoint, SettingError};

const COMMIT: bool = true;
const ROLLBACK: bool = false;

/// Physical offset of a half message.
#[derive(Debug, Clone, Copy)]
struct Half {
    queue_offset: QueueOffset,
    physical_offset: PhysicalOffset,
    stored_at_ms: i64,
}

async fn open() -> TestBroker {
    let broker = TestBroker::open(|_| {});
    add_topic(&broker, TopicConfig::new("orders", 2)).await;
    broker
}

async fn dispatched(broker: &TestBroker) {
    let end = broker.ground.store().max_physical_offset();
    until("it can be read", || broker.ground.store().dispatched_offset() >= end).await;
}

/// Sends a half message of group `g` for queue 1 of `orders`, with more properties.
async fn prepare(broker: &TestBroker, more: &str) -> Half {
    let properties = format!("TRAN_MSG\u{1}true\u{2}PGROUP\u{1}g\u{2}{more}");
    let half = NewMessage { queue_id: 1, sys_flag: 0x4, ..message("orders", &properties) };
    let stored = put(&broker.intake, Origin::Client, &half).unwrap();
    assert_eq!(stored.queue_id, 1, "as it was asked for");
    let physical_offset = stored.places.as_slice()[0];
    let bytes = broker.ground.store().record_at(physical_offset).unwrap().unwrap();
    let record = RecordView::parse(&bytes).unwrap();
    assert_eq!((record.topic, record.queue_id, record.sys_flag), (system::HALF_TOPIC, 0, 0));
    let half = Half { queue_offset: stored.queue_offset, physical_offset, stored_at_ms: record.stored_at_ms };
    dispatched(broker).await;
    half
}

fn end_of(group: &str, half: Half, commits: bool) -> EndTransaction {
    end_of_message("", group, half, commits)
}

fn end_of_message(msg_id: &str, group: &str, half: Half, commits: bool) -> EndTransaction {
    EndTransaction {
        group: group.to_owned(),
        half_at: half.physical_offset.to_wire(),
        half_offset: half.queue_offset.to_wire(),
        msg_id: msg_id.to_owned(),
        commits,
        is_asked: false,
    }
}

async fn end(broker: &TestBroker, half: Half, commits: bool) -> Result<(), Refusal> {
    let asked = end_of("g", half, commits);
    let bytes = half_of(&broker.ground, &asked)?;
    let Desk { intake, transactions, reads, .. } = &***broker;
    let ending = Ending { intake, transactions, look_ups: &reads.look_ups, connection_id: 0 };
    end_half(&ending, &asked, &bytes).await?;
    dispatched(broker).await;
    Ok(())
}

async fn at(broker: &TestBroker, at_ms: i64) -> Option<i64> {
    at_clocks(broker, Now::at(at_ms)).await
}

async fn at_clocks(broker: &TestBroker, now: Now) -> Option<i64> {
    let (owner, runtime) = (Arc::clone(broker), Handle::current());
    let end = broker.ground.store().max_physical_offset();
    broker.ground.clock_steps().observe(|| (end, now, end));
    aside(move || round(&owner.transactions, now, &runtime)).await;
    dispatched(broker).await;
    broker.transactions.state.lock().due_at_ms
}

fn count(broker: &TestBroker, topic: &str, queue_id: u32) -> u64 {
    broker.ground.store().queue_bounds(topic, queue_id).max.get()
}

/// Destroys the magic code of the first entry's record of a queue.
fn damage(broker: &TestBroker, topic: &str) {
    let at = broker.ground.store().entries(topic, 0, QueueOffset::ZERO, 1).unwrap()[0].physical_offset.get();
    let path = broker.ground.store().config().commit_log_dir().join(format!("{:020}", 0));
    let file = RealDisk.open_file(&path, OpenMode::Write).unwrap();
    file.write_all_at(at + 4, &[0; 4]).unwrap();
}

/// Transaction state that a start finds.
fn reopen(broker: &TestBroker) -> Transactions {
    Transactions::open(broker.intake.clone()).unwrap()
}

#[tokio::test]
async fn a_half_message_comes_once_it_is_committed_and_once() {
    let broker = open().await;
    let half = prepare(&broker, "UNIQ_KEY\u{1}U\u{2}TAGS\u{1}a\u{2}").await;
    assert_eq!(count(&broker, "orders", 1), 0);
    for _ in 0..2 {
        end(&broker, half, COMMIT).await.unwrap();
    }
    let refused = end(&broker, half, ROLLBACK).await.unwrap_err();
    assert!(matches!(refused, Refusal::EndedOtherwise { .. }), "{refused}");
    let bytes = broker.only_record("orders", 1);
    let record = RecordView::parse(&bytes).unwrap();
    assert_eq!((record.body, record.flag, record.tag()), (b"body".as_slice(), 7, Some("a")));
    assert_eq!(record.sys_flag, sys_flag::TRANSACTION_COMMIT);
    assert_eq!(record.prepared_transaction_offset, half.physical_offset);
    assert_eq!(record.property("__transactionId__"), Some("U"));
    let mark = broker.only_record(system::OP_HALF_TOPIC, 0);
    let mark = RecordView::parse(&mark).unwrap();
    assert_eq!((mark.body, mark.tag()), (b"0".as_slice(), Some("d")));
    assert_eq!(broker.transactions.ended(End::Commit), 1);
}

#[tokio::test]
async fn a_half_message_that_is_rolled_back_never_comes() {
    let broker = open().await;
    let half = prepare(&broker, "").await;
    for _ in 0..2 {
        end(&broker, half, ROLLBACK).await.unwrap();
    }
    let refused = end(&broker, half, COMMIT).await.unwrap_err();
    assert!(refused.to_string().contains("rolled back"), "{refused}");
    assert_eq!(count(&broker, "orders", 1), 0);
    assert_eq!((broker.transactions.ended(End::Rollback), broker.transactions.ended(End::Commit)), (1, 0));
}

#[tokio::test]
async fn an_end_that_names_another_message_is_refused() {
    let broker = open().await;
    let half = prepare(&broker, "UNIQ_KEY\u{1}0A0B0C0D0000000000000000000000FF\u{2}").await;
    put(&broker.intake, Origin::Client, &message("orders", "PGROUP\u{1}g\u{2}")).unwrap();
    let plain = PhysicalOffset(broker.only_record("orders", 0).len() as u64);
    let no_half = Half { physical_offset: half.physical_offset + plain.get(), ..half };
    let other_number = Half { queue_offset: half.queue_offset + 1, ..half };
    for (request, reason, over) in [
        (end_of("other", half, COMMIT), "another group", None),
        (end_of("g", other_number, COMMIT), "offset in the half queue", Some("true")),
        (end_of("g", no_half, COMMIT), "no message", Some("true")),
        (
            end_of_message("0A0B0C0D0000000000000000000000FE", "g", half, COMMIT),
            "another message",
            Some("true"),
        ),
        (end_of_message("a key of its sender", "other", half, COMMIT), "another message", Some("true")),
    ] {
        let refusal = half_of(&broker.ground, &request).unwrap_err();
        assert!(refusal.to_string().contains(reason), "{refusal}");
        assert_eq!(refusal.response().command.ext.get(key::TRANSACTION_OVER), over, "{refusal}");
    }
    assert_eq!(count(&broker, "orders", 1), 0);
    let place = OffsetMessageId { host: broker.ground.store_host(), physical_offset: half.physical_offset };
    for msg_id in [place.to_string().as_str(), "0A0B0C0D0000000000000000000000FF"] {
        half_of(&broker.ground, &end_of_message(msg_id, "g", half, COMMIT)).unwrap();
    }
    end(&broker, half, COMMIT).await.unwrap();
}

#[tokio::test]
async fn a_start_knows_what_is_over_from_marks_or_from_what_it_had_written() {
    let broker = open().await;
    let mut halves = Vec::new();
    for _ in 0..5 {
        halves.push(prepare(&broker, "").await);
    }
    for number in [0, 1, 3] {
        end(&broker, halves[number], ROLLBACK).await.unwrap();
    }
    for _ in 0..2 {
        let found = reopen(&broker);
        let over: Vec<bool> =
            halves.iter().map(|half| matches!(found.claim(half.queue_offset), Claim::Over(_))).collect();
        assert_eq!(over, [true, true, false, true, false]);
        assert_eq!(found.state.lock().next, QueueOffset(2));
        broker
            .ground
            .store()
            .wait_flushed(broker.ground.store().max_physical_offset(), Duration::from_secs(60))
            .unwrap();
        settle_at_stop(&broker.transactions);
        assert_eq!(broker.members.offsets().get(system::TRANSACTION_GROUP, system::HALF_TOPIC, 0), Some(2));
        assert_eq!(
            broker.members.offsets().get(system::TRANSACTION_GROUP, system::OP_HALF_TOPIC, 0),
            Some(0)
        );
    }
    for number in [2, 4] {
        end(&broker, halves[number], COMMIT).await.unwrap();
    }
    settle_at_stop(&broker.transactions);
    let written = reopen(&broker).state.lock().written;
    assert_eq!((written.half, written.op), (QueueOffset(5), QueueOffset(5)), "no mark has to be read again");
}

/// Notes progress as any client could at earlier brokers.
fn move_progress(broker: &TestBroker, half: u64, op: u64) {
    for (topic, offset) in [(system::HALF_TOPIC, half), (system::OP_HALF_TOPIC, op)] {
        assert!(broker.transactions.commit(topic, QueueOffset(offset)));
    }
}

#[tokio::test]
async fn a_start_trusts_the_log_and_not_the_stored_progress() {
    let broker = open().await;
    let mut halves = Vec::new();
    for _ in 0..6 {
        halves.push(prepare(&broker, "").await);
    }
    for number in [0, 2, 3] {
        end(&broker, halves[number], ROLLBACK).await.unwrap();
    }
    for (half, op) in [(0, 0), (6, 0), (0, 3), (6, 3), (2, 1)] {
        move_progress(&broker, half, op);
        let found = reopen(&broker);
        let over: Vec<bool> =
            halves.iter().map(|half| matches!(found.claim(half.queue_offset), Claim::Over(_))).collect();
        assert_eq!(over, [true, false, true, true, false, false], "progress {half} and {op}");
        found.settle();
        broker.store().wait_flushed(broker.store().max_physical_offset(), Duration::from_secs(60)).unwrap();
        found.settle();
        let stored = |topic| broker.members.offsets().get(system::TRANSACTION_GROUP, topic, 0);
        assert_eq!((stored(system::HALF_TOPIC), stored(system::OP_HALF_TOPIC)), (Some(1), Some(0)));
    }
}

/// Apache's broker leaves half messages without a mark: those that it stored again, and those that it gave up.
#[tokio::test]
async fn half_messages_that_another_broker_replaced_without_a_mark_are_over() {
    let broker = open().await;
    let again = async |half: Half, topic, first: Option<Half>| {
        let bytes = broker.store().record_at(half.physical_offset).unwrap().unwrap();
        let record = RecordView::parse(&bytes).unwrap();
        let mut copy = StoredAgain::of(&record).to(topic, 0);
        if let Some(first) = first {
            let name = rocketpy_model::property::TRAN_PREPARED_QUEUE_OFFSET;
            copy = copy.with_property(name, &first.queue_offset.to_string()).unwrap();
        }
        let at = broker.store().max_physical_offset();
        let queue_offset = QueueOffset(count(&broker, topic, 0));
        drop(copy.put(&broker.intake).await.unwrap());
        dispatched(&broker).await;
        Half { queue_offset, physical_offset: at, ..half }
    };
    let asked = prepare(&broker, "UNIQ_KEY\u{1}asked\u{2}").await;
    let asked_again = again(asked, system::HALF_TOPIC, None).await;
    let given_up = prepare(&broker, "UNIQ_KEY\u{1}given up\u{2}").await;
    again(given_up, system::TRANSACTION_CHECK_MAX_TIME_TOPIC, None).await;
    let immune = prepare(&broker, "UNIQ_KEY\u{1}immune\u{2}").await;
    let immune_again = again(immune, system::HALF_TOPIC, Some(immune)).await;
    let resumed = prepare(&broker, "UNIQ_KEY\u{1}resumed\u{2}").await;
    again(resumed, system::TRANSACTION_CHECK_MAX_TIME_TOPIC, None).await;
    let resumed_again = again(resumed, system::HALF_TOPIC, None).await;
    let open = prepare(&broker, "UNIQ_KEY\u{1}open\u{2}").await;
    assert!(marks::write(&broker.intake, &[immune.queue_offset]));
    dispatched(&broker).await;
    move_progress(&broker, 8, 1);
    let found = reopen(&broker);
    for (half, is_open) in [
        (asked, false),
        (asked_again, true),
        (given_up, false),
        (immune, false),
        (immune_again, false),
        (resumed, false),
        (resumed_again, true),
        (open, true),
    ] {
        assert_eq!(found.is_open(half.queue_offset), is_open, "{half:?}");
    }
}

#[tokio::test]
async fn progress_waits_for_the_flush_of_the_marks() {
    let broker = TestBroker::open(|config| config.store.flush_interval = Duration::from_secs(3600));
    add_topic(&broker, TopicConfig::new("orders", 2)).await;
    let half = prepare(&broker, "").await;
    end(&broker, half, COMMIT).await.unwrap();
    broker.transactions.settle();
    assert!(
        broker.ground.store().flushed_offset() < broker.ground.store().max_physical_offset(),
        "nobody flushes"
    );
    assert_eq!(broker.members.offsets().get(system::TRANSACTION_GROUP, system::HALF_TOPIC, 0), None);
    let owner = Arc::clone(&broker);
    aside(move || settle_at_stop(&owner.transactions)).await;
    assert_eq!(broker.members.offsets().get(system::TRANSACTION_GROUP, system::HALF_TOPIC, 0), Some(1));
}

#[tokio::test]
async fn a_commit_whose_mark_a_kill_has_prevented_does_not_come_twice() {
    let broker = open().await;
    let half = prepare(&broker, "").await;
    let bytes = half_of(&broker.ground, &end_of("g", half, COMMIT)).unwrap();
    let record = RecordView::parse(&bytes).unwrap();
    let committed = StoredAgain::of(&record).to("orders", 1).committed();
    drop(committed.put(&broker.intake).await.unwrap());
    dispatched(&broker).await;
    let found = reopen(&broker);
    assert!(found.may_be_committed(half.queue_offset), "it was there at the start");
    *broker.transactions.state.lock() = found.state.into_inner();
    end(&broker, half, COMMIT).await.unwrap();
    assert_eq!(count(&broker, "orders", 1), 1);
    assert_eq!(count(&broker, system::OP_HALF_TOPIC, 0), 1, "it is marked now");
}

#[tokio::test]
async fn after_a_start_the_index_says_which_of_the_ends_it_was() {
    let broker = open().await;
    for later in ["", "DELAY\u{1}3\u{2}", "TIMER_DELAY_SEC\u{1}60\u{2}"] {
        let (committed, rolled_back) = (prepare(&broker, later).await, prepare(&broker, later).await);
        end(&broker, committed, COMMIT).await.unwrap();
        end(&broker, rolled_back, ROLLBACK).await.unwrap();
        *broker.transactions.state.lock() = reopen(&broker).state.into_inner();
        for (half, said, other) in [(committed, COMMIT, ROLLBACK), (rolled_back, ROLLBACK, COMMIT)] {
            end(&broker, half, said).await.unwrap();
            let refused = end(&broker, half, other).await.unwrap_err();
            assert!(matches!(refused, Refusal::EndedOtherwise { .. }), "{refused}");
        }
    }
}

#[tokio::test]
async fn a_committed_message_that_waits_does_not_come_twice_after_a_kill_before_its_mark() {
    let broker = open().await;
    for later in ["DELAY\u{1}3\u{2}", "TIMER_DELAY_SEC\u{1}60\u{2}"] {
        let half = prepare(&broker, later).await;
        let bytes = half_of(&broker.ground, &end_of("g", half, COMMIT)).unwrap();
        let record = RecordView::parse(&bytes).unwrap();
        drop(StoredAgain::of(&record).to("orders", 1).committed().put(&broker.intake).await.unwrap());
        dispatched(&broker).await;
        *broker.transactions.state.lock() = reopen(&broker).state.into_inner();
        end(&broker, half, COMMIT).await.unwrap();
    }
    assert_eq!((count(&broker, system::SCHEDULE_TOPIC, 2), count(&broker, system::TIMER_TOPIC, 0)), (1, 1));
}

#[tokio::test]
async fn questions_for_a_half_message_that_is_gone_do_not_count_for_another_in_its_place() {
    let broker = open().await;
    let half = prepare(&broker, "").await;
    let times = |stored_at_ms| {
        let checked = Checked { times: 15, stored_at_ms, ..Checked::default() };
        assert!(CheckCounts::of(&[(half.queue_offset, checked)].into()).write(broker.ground.store()));
        *broker.transactions.state.lock() = reopen(&broker).state.into_inner();
    };
    let given_up = || broker.transactions.ended(End::GivenUp);
    times(half.stored_at_ms - 1);
    for later_ms in [60_000, 120_000] {
        at(&broker, half.stored_at_ms + later_ms).await;
        assert_eq!(given_up(), 0);
    }
    times(half.stored_at_ms);
    at(&broker, half.stored_at_ms + 180_000).await;
    assert_eq!(given_up(), 0, "the producer may still answer the last question");
    at(&broker, half.stored_at_ms + 210_000).await;
    assert_eq!(given_up(), 1);
}

#[tokio::test]
async fn questions_are_written_while_the_broker_runs() {
    let broker = open().await;
    let half = prepare(&broker, "").await;
    let checked = Checked { times: 3, at_ms: Some(0), stored_at_ms: half.stored_at_ms, ..Checked::default() };
    {
        let mut state = broker.transactions.state.lock();
        state.checks.insert(half.queue_offset, checked);
        state.has_asked = true;
    }
    at(&broker, half.stored_at_ms).await; // a round; then a kill
    assert_eq!(reopen(&broker).state.lock().checks[&half.queue_offset].times, 3);
}

/// Apache stores a half message again before each question, and marks the old one seconds later.
#[tokio::test]
async fn copies_of_a_half_message_that_another_broker_left_come_once() {
    let broker = open().await;
    let halves =
        [prepare(&broker, "UNIQ_KEY\u{1}U\u{2}").await, prepare(&broker, "UNIQ_KEY\u{1}U\u{2}").await];
    let other = prepare(&broker, "UNIQ_KEY\u{1}V\u{2}").await;
    *broker.transactions.state.lock() = reopen(&broker).state.into_inner();
    for half in halves.into_iter().chain([other]) {
        end(&broker, half, COMMIT).await.unwrap();
    }
    assert_eq!(count(&broker, "orders", 1), 2);
    let again = prepare(&broker, "UNIQ_KEY\u{1}U\u{2}").await;
    end(&broker, again, COMMIT).await.unwrap();
    assert_eq!(count(&broker, "orders", 1), 3, "sent again");
}

#[tokio::test]
async fn a_committed_message_waits_for_its_delay_level() {
    let broker = open().await;
    let half = prepare(&broker, "DELAY\u{1}3\u{2}").await;
    assert_eq!(count(&broker, system::SCHEDULE_TOPIC, 2), 0);
    end(&broker, half, COMMIT).await.unwrap();
    assert_eq!((count(&broker, system::SCHEDULE_TOPIC, 2), count(&broker, "orders", 1)), (1, 0));
}

#[tokio::test]
async fn a_committed_message_waits_for_its_time() {
    let broker = open().await;
    let half = prepare(&broker, "TIMER_DELAY_SEC\u{1}60\u{2}").await;
    assert_eq!(count(&broker, system::TIMER_TOPIC, 0), 0);
    end(&broker, half, COMMIT).await.unwrap();
    assert_eq!((count(&broker, system::TIMER_TOPIC, 0), count(&broker, "orders", 1)), (1, 0));
}

#[tokio::test]
async fn what_a_transaction_cannot_be_is_refused_before_it_is_stored() {
    let broker = open().await;
    let transaction = |more| format!("TRAN_MSG\u{1}true\u{2}PGROUP\u{1}g\u{2}{more}");
    let timed = transaction("TIMER_DELAY_SEC\u{1}999999\u{2}");
    let refused = put_and_make(&broker.intake, Origin::Client, &message("orders", &timed)).await.unwrap_err();
    assert!(matches!(refused, Refusal::TooFar { .. }), "{refused}");
    let mut body = Vec::new();
    let item =
        rocketpy_protocol::batch::BatchItem { flag: 0, body: b"x", properties: b"TRAN_MSG\x01true\x02" };
    item.encode(&mut body).unwrap();
    let batch = NewMessage { is_batch: true, body: &body, ..message("orders", "") };
    let refused = put_and_make(&broker.intake, Origin::Client, &batch).await.unwrap_err();
    let Refusal::OfBatch { index: 0, refusal } = refused else { panic!("{refused}") };
    assert!(matches!(*refusal, Refusal::TransactionalBatch), "{refusal}");
    let retried = transaction("DELAY\u{1}3\u{2}");
    let retry = NewMessage { reconsume_times: 1, ..message("orders", &retried) };
    put(&broker.intake, Origin::Client, &retry).unwrap();
    dispatched(&broker).await;
    assert_eq!((count(&broker, system::HALF_TOPIC, 0), count(&broker, system::SCHEDULE_TOPIC, 2)), (0, 1));
}

#[tokio::test]
async fn a_half_message_without_a_producer_waits_and_one_that_was_asked_for_too_often_is_given_up() {
    let broker = open().await;
    let waiting = prepare(&broker, "").await;
    let asked = prepare(&broker, "TRANSACTION_CHECK_TIMES\u{1}15\u{2}").await;
    let first_ms = waiting.stored_at_ms + 6_000;
    assert_eq!(at(&broker, first_ms - 1).await, Some(first_ms), "not before its time");
    assert_eq!(count(&broker, system::TRANSACTION_CHECK_MAX_TIME_TOPIC, 0), 0);
    let later_ms = asked.stored_at_ms + 6_000;
    let next_ms = at(&broker, later_ms).await.unwrap();
    assert_eq!(next_ms, later_ms + 30_000, "again after the interval");
    assert_eq!(count(&broker, system::TRANSACTION_CHECK_MAX_TIME_TOPIC, 0), 1);
    assert_eq!(broker.transactions.claim(asked.queue_offset), Claim::Over(Some(End::GivenUp)));
    for number in 1..=20 {
        at(&broker, later_ms + number * 30_000).await;
    }
    assert_eq!(broker.transactions.claim(waiting.queue_offset), Claim::Taken, "nobody could be asked");
    assert_eq!((broker.transactions.checked(), broker.transactions.ended(End::GivenUp)), (0, 1));
}

#[tokio::test]
async fn a_last_question_that_was_lost_with_its_connection_does_not_count() {
    let broker = open().await;
    let half = prepare(&broker, "").await;
    let asked_ms = half.stored_at_ms + 6_000;
    let last = Checked {
        times: 15,
        at_ms: Some(asked_ms),
        stored_at_ms: half.stored_at_ms,
        asked: Some(u64::MAX), // a connection that is gone
        producer_changes: u64::MAX,
    };
    broker.transactions.state.lock().checks.insert(half.queue_offset, last);
    for number in 0..=3 {
        at(&broker, asked_ms + 1 + number * 30_000).await;
    }
    assert_eq!(broker.transactions.ended(End::GivenUp), 0, "it waits for a producer");
    assert_eq!(broker.transactions.state.lock().checks[&half.queue_offset].times, 14);
}

#[tokio::test]
async fn what_is_damaged_keeps_back_neither_other_transactions_nor_a_start() {
    let broker = open().await;
    let damaged = prepare(&broker, "").await;
    let ended = prepare(&broker, "").await;
    let asked = prepare(&broker, "TRANSACTION_CHECK_TIMES\u{1}15\u{2}").await;
    end(&broker, ended, ROLLBACK).await.unwrap();
    damage(&broker, system::HALF_TOPIC);
    damage(&broker, system::OP_HALF_TOPIC);
    at(&broker, asked.stored_at_ms + 6_000).await;
    assert_eq!(broker.transactions.claim(damaged.queue_offset), Claim::Over(Some(End::Lost)));
    assert_eq!(broker.transactions.claim(asked.queue_offset), Claim::Over(Some(End::GivenUp)));
    assert_eq!(broker.transactions.ended(End::Lost), 1);
    let again = reopen(&broker);
    assert_eq!(again.claim(ended.queue_offset), Claim::Taken, "its mark is gone: its producer is asked");
    assert_eq!(again.claim(damaged.queue_offset), Claim::Over(None));
}

#[tokio::test]
async fn a_commit_to_a_topic_that_is_gone_leaves_the_half_message_open_until_it_is_given_up() {
    let broker = open().await;
    let half = prepare(&broker, "TRANSACTION_CHECK_TIMES\u{1}15\u{2}").await;
    broker.ground.topics().remove("orders").unwrap().unwrap().done().await.unwrap();
    let refused = end(&broker, half, COMMIT).await.unwrap_err();
    assert!(matches!(refused, Refusal::NoTopic { .. }), "{refused}");
    at(&broker, half.stored_at_ms + 6_000).await;
    assert_eq!(count(&broker, system::TRANSACTION_CHECK_MAX_TIME_TOPIC, 0), 1, "it is kept there");
    assert_eq!((broker.transactions.ended(End::GivenUp), broker.transactions.ended(End::Commit)), (1, 0));
}

#[tokio::test]
async fn however_short_messages_are_kept_there_is_time_for_all_questions() {
    let broker = TestBroker::open(|config| config.store.retention.reserved_time = Duration::ZERO);
    add_topic(&broker, TopicConfig::new("orders", 2)).await;
    let half = prepare(&broker, "").await;
    let all_ms = half.stored_at_ms + 6_000 + 15 * 30_000;
    at(&broker, all_ms).await;
    assert_eq!(broker.transactions.ended(End::GivenUp), 0);
    at(&broker, all_ms + 30_001).await;
    assert_eq!(broker.transactions.ended(End::GivenUp), 1, "nobody could be asked");
}

#[tokio::test]
async fn a_limit_that_was_lowered_since_keeps_no_message_from_its_commit() {
    let broker = TestBroker::open(|config| config.text = Arc::new(ADay));
    add_topic(&broker, TopicConfig::new("orders", 2)).await;
    let half = prepare(&broker, "TIMER_DELAY_SEC\u{1}90000\u{2}").await;
    broker.ground.change_config(&ConfigChange::default()).unwrap();
    let timed = put(&broker.intake, Origin::Client, &message("orders", "TIMER_DELAY_SEC\u{1}90000\u{2}"));
    assert!(timed.is_err(), "the limit holds for what is new");
    end(&broker, half, COMMIT).await.unwrap();
    assert_eq!(count(&broker, system::TIMER_TOPIC, 0), 1);
}

#[tokio::test]
async fn a_limit_that_was_lowered_since_keeps_no_transaction_from_its_end() {
    let broker = TestBroker::open(|config| config.text = Arc::new(ADay));
    add_topic(&broker, TopicConfig::new("orders", 2)).await;
    let immune = "CHECK_IMMUNITY_TIME_IN_SECONDS\u{1}90000\u{2}";
    let half = prepare(&broker, immune).await;
    broker.ground.change_config(&ConfigChange::default()).unwrap();
    let properties = format!("TRAN_MSG\u{1}true\u{2}PGROUP\u{1}g\u{2}{immune}");
    let later = NewMessage { sys_flag: 0x4, ..message("orders", &properties) };
    let refused = put(&broker.intake, Origin::Client, &later).unwrap_err();
    let NotPut::Refused(refused) = refused else { panic!("{refused:?}") };
    let text = refused.to_string();
    assert!(
        text.contains("timerMaxDelaySec 86400: 90000") && text.contains("raise timerMaxDelaySec"),
        "{text}"
    );
    let bytes = broker.ground.store().record_at(half.physical_offset).unwrap().unwrap();
    let (record, config) = (RecordView::parse(&bytes).unwrap(), broker.ground.config());
    assert_eq!(
        unasked_ms(&record, &config),
        Some(90_000_000),
        "its producer may end it as long as was accepted"
    );
    at(&broker, half.stored_at_ms + 86_400_000).await;
    assert_eq!(broker.transactions.state.lock().checks.len(), 1, "questions begin with the lowered limit");
    end(&broker, half, COMMIT).await.unwrap();
}

/// Any change allows messages to wait for a day.
#[derive(Debug)]
struct ADay;

impl ConfigText for ADay {
    fn lines(&self, _config: &BrokerConfig, _endpoint: &Endpoint<'_>) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn changed(&self, config: &BrokerConfig, _change: &ConfigChange) -> Result<BrokerConfig, SettingError> {
        Ok(BrokerConfig { max_timer_delay: Duration::from_secs(86_400), ..config.clone() })
    }
}

#[tokio::test]
async fn a_message_may_want_to_be_left_alone_for_longer() {
    let broker = open().await;
    let immune = prepare(&broker, "CHECK_IMMUNITY_TIME_IN_SECONDS\u{1}60\u{2}").await;
    let plain = prepare(&broker, "").await;
    at(&broker, plain.stored_at_ms + 6_000).await;
    let checks = |half: Half| broker.transactions.state.lock().checks.contains_key(&half.queue_offset);
    assert_eq!((checks(immune), checks(plain)), (false, true));
    at(&broker, immune.stored_at_ms + 60_000).await;
    assert!(checks(immune));
}

#[tokio::test]
async fn immunity_that_another_broker_accepted_ends_with_the_longest_delay() {
    let broker = TestBroker::open(|config| config.max_timer_delay = Duration::from_secs(60));
    add_topic(&broker, TopicConfig::new("orders", 2)).await;
    let immune =
        "TRAN_MSG\u{1}true\u{2}PGROUP\u{1}g\u{2}CHECK_IMMUNITY_TIME_IN_SECONDS\u{1}9223372036854775807\u{2}";
    let half = NewMessage { delay: Delay::Over, ..message(system::HALF_TOPIC, immune) };
    let stored = put(&broker.intake, Origin::Broker, &half).unwrap();
    dispatched(&broker).await;
    let bytes = broker.ground.store().record_at(stored.places.as_slice()[0]).unwrap().unwrap();
    let stored_at_ms = RecordView::parse(&bytes).unwrap().stored_at_ms;
    assert_eq!(at(&broker, stored_at_ms + 59_999).await, Some(stored_at_ms + 60_000));
    at(&broker, stored_at_ms + 60_000).await;
    assert_eq!(broker.transactions.state.lock().checks.len(), 1);
}

#[tokio::test]
async fn the_log_is_kept_from_the_first_open_half_message_on() {
    let broker = open().await;
    let (first, second) = (prepare(&broker, "").await, prepare(&broker, "").await);
    let from = || first_at(broker.ground.store(), broker.transactions.state.lock().written.half);
    assert_eq!(from(), Some(first.physical_offset));
    end(&broker, first, COMMIT).await.unwrap();
    assert_eq!(from(), Some(first.physical_offset), "a power cut may take its copy and its mark");
    let owner = Arc::clone(&broker);
    aside(move || settle_at_stop(&owner.transactions)).await;
    assert_eq!(from(), Some(second.physical_offset));
    end(&broker, second, COMMIT).await.unwrap();
    let owner = Arc::clone(&broker);
    aside(move || settle_at_stop(&owner.transactions)).await;
    assert_eq!(from(), None);
}

#[tokio::test]
async fn a_half_message_that_cannot_be_read_keeps_no_other_back_and_is_tried_for_a_minute() {
    for is_restored in [true, false] {
        let broker = TestBroker::open(with_small_files);
        for topic in ["orders", "filler"] {
            add_topic(&broker, TopicConfig::new(topic, 2)).await;
        }
        broker.fill();
        let first = prepare(&broker, "").await;
        broker.fill();
        let second = prepare(&broker, "").await;
        let log = broker.cut_log(first.physical_offset);
        let at_ms = second.stored_at_ms + 3_600_000;
        let asked =
            || -> Vec<QueueOffset> { broker.transactions.state.lock().checks.keys().copied().collect() };
        assert_eq!(at(&broker, at_ms).await, Some(at_ms + 1000), "it is tried again");
        assert_eq!(asked(), [second.queue_offset]);
        if is_restored {
            log.restore();
            at(&broker, at_ms + 1000).await;
            assert_eq!(asked(), [first.queue_offset, second.queue_offset]);
            continue;
        }
        for second in 0..60 {
            assert!(second > MOST_OF_A_MINUTE || broker.transactions.ended(End::Lost) == 0);
            broker.skip_time(Duration::from_secs(1));
            at(&broker, at_ms).await;
        }
        assert_eq!(broker.transactions.ended(End::Lost), 1);
        assert!(!broker.transactions.is_open(first.queue_offset));
        assert!(broker.transactions.is_open(second.queue_offset));
    }
}

#[tokio::test]
async fn nothing_is_given_up_as_unreadable_while_the_disk_takes_no_writes() {
    let broker = TestBroker::open(with_small_files);
    for topic in ["orders", "filler"] {
        add_topic(&broker, TopicConfig::new(topic, 2)).await;
    }
    broker.fill();
    let half = prepare(&broker, "").await;
    broker.fill();
    let _log = broker.cut_log(half.physical_offset);
    broker.poison();
    let at_ms = half.stored_at_ms + 3_600_000;
    for _ in 0..200 {
        let (owner, runtime) = (Arc::clone(&broker), Handle::current());
        aside(move || round(&owner.transactions, Now::at(at_ms), &runtime)).await;
        broker.skip_time(Duration::from_secs(1));
    }
    assert!(broker.transactions.is_open(half.queue_offset));
}

#[tokio::test]
async fn a_step_of_the_clock_gives_no_transaction_up() {
    let broker = open().await;
    let half = prepare(&broker, "").await;
    let times = |later_ms: i64, days: i64| {
        let steady_ms = half.stored_at_ms + later_ms;
        Now { wall_ms: steady_ms + days * 86_400_000, steady_ms }
    };
    let is_asked = || !broker.transactions.state.lock().checks.is_empty();
    for (later_ms, days) in [(0, 0), (1000, 10), (4000, 10), (5000, 0)] {
        let next_ms = at_clocks(&broker, times(later_ms, days)).await;
        assert_eq!(next_ms, Some(half.stored_at_ms + 6_000), "after {later_ms} ms");
        assert!(!is_asked());
    }
    for number in 0..20 {
        at_clocks(&broker, times(6_000 + number * 30_000, 10)).await;
        assert!(is_asked() && broker.transactions.is_open(half.queue_offset));
    }
    for number in 20..40 {
        at_clocks(&broker, times(6_000 + number * 30_000, -10)).await;
        assert!(broker.transactions.is_open(half.queue_offset));
    }
    assert_eq!(broker.transactions.ended(End::GivenUp), 0);
    at_clocks(&broker, times(4 * 86_400_000, -10)).await;
    assert_eq!(broker.transactions.ended(End::GivenUp), 1, "older than fileReservedTime");
}

#[tokio::test]
async fn nobody_is_asked_early_for_a_half_message_that_has_the_time_of_an_earlier_one() {
    let broker = open().await;
    let half = prepare(&broker, "").await;
    // The clock had been set back by 20 s: the store repeats the time of the record before it until the clock has caught up.
    let later = |steady_ms| Now { wall_ms: half.stored_at_ms - 20_000 + steady_ms, steady_ms };
    let is_asked = || !broker.transactions.state.lock().checks.is_empty();
    for (steady_ms, due_at_ms) in [(0, 6_000), (5_999, 11_999), (20_000, 26_000), (25_999, 26_000)] {
        assert_eq!(at_clocks(&broker, later(steady_ms)).await, Some(due_at_ms), "after {steady_ms} ms");
        assert!(!is_asked());
    }
    at_clocks(&broker, later(26_000)).await;
    assert!(is_asked());
}

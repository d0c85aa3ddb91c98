//! Tests of [`super::state`].

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use rocketpy_model::{MessageQueue, QueueOffset};

use super::assigned::Assignment;
use super::batch::{PulledPart, RecordSpan};
use super::epoch::Epoch;
use super::pulled::Pulled;
use super::state::{CommitScope, GiveUp, State, Task};
use crate::config::ConsumerConfig;

const RECORD_BYTES: u32 = 100;

pub(super) fn queue(id: u32) -> Arc<MessageQueue> {
    Arc::new(MessageQueue::new("t", "b", id))
}

pub(super) fn config() -> ConsumerConfig {
    ConsumerConfig { prefetch_messages: 10, prefetch_total_bytes: 1500, ..ConsumerConfig::default() }
}

/// Id and first epoch of a queue in [`started`].
pub(super) fn number(id: u32) -> Epoch {
    Epoch(u64::from(id) + 1)
}

/// State with queues 0..count, each started at 0.
fn started(count: u32) -> State {
    let mut state = State::default();
    state.assign(&(0..count).map(|id| (queue(id), 0)).collect(), false);
    (0..count).for_each(|id| state.start(&queue(id), number(id), QueueOffset(0), true));
    state
}

/// Messages `[from, to)`, and the broker scanned up to `next`.
pub(super) fn pulled(id: u32, from: u64, to: u64, next: u64) -> Pulled {
    let span = |offset: u64| RecordSpan {
        queue_offset: QueueOffset(offset),
        start: (offset - from) as u32 * RECORD_BYTES,
        size_bytes: RECORD_BYTES,
        is_compressed: false,
    };
    let spans: Arc<[RecordSpan]> = (from..to).map(span).collect();
    let body = Bytes::from(vec![0; spans.len() * RECORD_BYTES as usize]);
    let part = PulledPart::new(queue(id), body, spans, QueueOffset(1000));
    Pulled { part: Some(part), next: QueueOffset(next), end: QueueOffset(next), moved: None }
}

fn gone(from: u64) -> Option<QueueOffset> {
    Some(QueueOffset(from))
}

pub(super) fn nothing(next: u64) -> Pulled {
    Pulled { part: None, next: QueueOffset(next), end: QueueOffset(next), moved: None }
}

/// Where the first queue is pulled next, and in which epoch.
fn pulled_next(state: &State) -> (QueueOffset, Epoch) {
    match state.task(&queue(0), number(0), &config()) {
        Task::Pull { epoch, offset } => (offset, epoch),
        other => panic!("{other:?}"),
    }
}

fn position(state: &State, id: u32) -> u64 {
    let positions: BTreeMap<_, _> = state.positions().into_iter().collect();
    positions[&*queue(id)].get()
}

fn offsets(state: &mut State, max: usize) -> Vec<(u32, u64)> {
    let batch = state.take(max, &config());
    let of = |part: &PulledPart| -> Vec<(u32, u64)> {
        part.spans().iter().map(|span| (part.queue().queue_id, span.queue_offset.get())).collect()
    };
    batch.parts().iter().flat_map(of).collect()
}

#[test]
fn a_position_never_runs_ahead_of_what_was_handed_out() {
    let mut state = started(1);
    assert!(state.pulled(&queue(0), number(0), pulled(0, 0, 5, 9)));
    assert_eq!(position(&state, 0), 0, "pulled, not handed out");
    assert_eq!(offsets(&mut state, 2), [(0, 0), (0, 1)]);
    assert_eq!(position(&state, 0), 2);
    assert_eq!(state.to_commit(CommitScope::HandedOut), [(queue(0), QueueOffset(2))]);
    assert_eq!(offsets(&mut state, 10), [(0, 2), (0, 3), (0, 4)]);
    assert_eq!(position(&state, 0), 9, "behind the filtered tail");
    assert!(offsets(&mut state, 10).is_empty());
}

#[test]
fn what_was_filtered_out_counts_once_everything_before_it_is_handed_out() {
    let mut state = started(1);
    assert!(!state.pulled(&queue(0), number(0), nothing(7)));
    assert_eq!(position(&state, 0), 7, "nothing was held back");
    state.pulled(&queue(0), number(0), pulled(0, 7, 8, 8));
    state.pulled(&queue(0), number(0), nothing(20));
    assert_eq!(position(&state, 0), 7);
    assert_eq!(offsets(&mut state, 1), [(0, 7)]);
    assert_eq!(position(&state, 0), 20);
}

#[test]
fn auto_commit_covers_what_earlier_polls_returned() {
    let mut state = started(1);
    state.pulled(&queue(0), number(0), pulled(0, 0, 4, 4));
    state.settle();
    assert_eq!(offsets(&mut state, 2).len(), 2);
    assert!(state.to_commit(CommitScope::Settled).is_empty(), "the user may still work on these");
    state.settle();
    assert_eq!(state.to_commit(CommitScope::Settled), [(queue(0), QueueOffset(2))]);
    state.committed(&queue(0), QueueOffset(2));
    assert!(state.to_commit(CommitScope::Settled).is_empty(), "acknowledged already");
}

#[test]
fn a_poll_settles_only_queues_that_moved_since_the_one_before() {
    let mut state = started(2);
    state.pulled(&queue(0), number(0), pulled(0, 0, 4, 4));
    assert_eq!(offsets(&mut state, 2).len(), 2);
    state.pulled(&queue(1), number(1), nothing(7));
    assert_eq!(state.unsettled(), [queue(0), queue(1)]);
    state.settle();
    assert!(state.unsettled().is_empty());
    assert_eq!(
        state.to_commit(CommitScope::Settled),
        [(queue(0), QueueOffset(2)), (queue(1), QueueOffset(7))]
    );
    state.seek(&queue(1), QueueOffset(3));
    assert_eq!(state.unsettled(), [queue(1)]);
    state.settle();
    assert_eq!(
        state.to_commit(CommitScope::Settled),
        [(queue(0), QueueOffset(2)), (queue(1), QueueOffset(3))]
    );
}

#[test]
fn a_commit_on_demand_is_what_is_done_until_the_next_poll() {
    let mut state = started(1);
    state.pulled(&queue(0), number(0), pulled(0, 0, 9, 9));
    assert_eq!(offsets(&mut state, 6).len(), 6);
    state.settle_at(&queue(0), QueueOffset(6));
    state.committed(&queue(0), QueueOffset(6));
    assert!(state.to_commit(CommitScope::Settled).is_empty());
    state.settle_at(&queue(0), QueueOffset(3));
    state.committed(&queue(0), QueueOffset(3));
    assert!(state.to_commit(CommitScope::Settled).is_empty(), "one to an older offset holds as well");
    state.settle();
    assert_eq!(state.to_commit(CommitScope::Settled), [(queue(0), QueueOffset(6))]);
}

#[test]
fn queues_are_served_in_turn() {
    let mut state = started(2);
    state.pulled(&queue(0), number(0), pulled(0, 0, 4, 4));
    state.pulled(&queue(1), number(1), pulled(1, 0, 4, 4));
    assert_eq!(offsets(&mut state, 2), [(0, 0), (0, 1)]);
    assert_eq!(offsets(&mut state, 2), [(1, 0), (1, 1)]);
    assert_eq!(offsets(&mut state, 3), [(0, 2), (0, 3), (1, 2)]);
    assert_eq!(offsets(&mut state, 9), [(1, 3)]);
}

#[test]
fn pulling_stops_at_the_bounds_and_goes_on_when_there_is_room() {
    let (mut state, config) = (started(2), config());
    state.pulled(&queue(0), number(0), pulled(0, 0, 10, 10));
    assert_eq!(state.task(&queue(0), number(0), &config), Task::Wait, "10 messages are the bound of a queue");
    state.pulled(&queue(1), number(1), pulled(1, 0, 5, 5));
    assert_eq!(state.task(&queue(1), number(1), &config), Task::Wait, "1500 bytes are the bound of all");
    assert_eq!(offsets(&mut state, 10).len(), 10);
    assert_eq!(
        state.task(&queue(0), number(0), &config),
        Task::Pull { epoch: number(0), offset: QueueOffset(10) }
    );
    assert_eq!(
        state.task(&queue(1), number(1), &config),
        Task::Pull { epoch: number(1), offset: QueueOffset(5) }
    );
}

#[test]
fn a_queue_without_anything_cached_is_pulled_however_full_the_others_are() {
    let (mut state, config) = (started(2), config());
    state.pulled(&queue(0), number(0), pulled(0, 0, 16, 16));
    assert_eq!(
        state.task(&queue(1), number(1), &config),
        Task::Pull { epoch: number(1), offset: QueueOffset(0) }
    );
}

#[test]
fn a_seek_drops_what_was_pulled_ahead_and_the_answer_under_way() {
    let mut state = started(1);
    state.pulled(&queue(0), number(0), pulled(0, 0, 4, 4));
    assert!(state.seek(&queue(0), QueueOffset(2)));
    assert!(offsets(&mut state, 10).is_empty());
    assert!(!state.pulled(&queue(0), number(0), pulled(0, 4, 8, 8)), "an answer of the time before the seek");
    assert_eq!(
        state.task(&queue(0), number(0), &config()),
        Task::Pull { epoch: Epoch(2), offset: QueueOffset(2) }
    );
    assert!(state.pulled(&queue(0), Epoch(2), pulled(0, 2, 4, 4)));
    assert_eq!(offsets(&mut state, 10), [(0, 2), (0, 3)]);
    assert!(!state.seek(&queue(9), QueueOffset(0)));
}

#[test]
fn what_is_taken_back_is_handed_out_again() {
    let mut state = started(1);
    state.pulled(&queue(0), number(0), pulled(0, 0, 4, 4));
    assert_eq!(offsets(&mut state, 3), [(0, 0), (0, 1), (0, 2)]);
    state.take_back(&queue(0), QueueOffset(3));
    assert_eq!(offsets(&mut state, 3), [(0, 3)], "that was not handed out yet: what was pulled ahead stays");
    state.take_back(&queue(0), QueueOffset(1));
    assert_eq!(position(&state, 0), 1);
    assert_eq!(
        state.task(&queue(0), number(0), &config()),
        Task::Pull { epoch: Epoch(2), offset: QueueOffset(1) }
    );
    state.pulled(&queue(0), Epoch(2), pulled(0, 1, 4, 4));
    assert_eq!(offsets(&mut state, 10), [(0, 1), (0, 2), (0, 3)]);
    state.take_back(&queue(9), QueueOffset(0));
    assert_eq!(state.queue_count(), 1);
}

#[test]
fn a_paused_queue_is_neither_pulled_nor_handed_out() {
    let mut state = started(1);
    state.pulled(&queue(0), number(0), pulled(0, 0, 2, 2));
    assert!(state.set_paused(&queue(0), true));
    assert!(offsets(&mut state, 10).is_empty());
    assert_eq!(state.task(&queue(0), number(0), &config()), Task::Wait);
    state.pulled(&queue(0), number(0), pulled(0, 2, 3, 3));
    assert!(offsets(&mut state, 10).is_empty());
    assert!(state.set_paused(&queue(0), false));
    assert_eq!(offsets(&mut state, 10), [(0, 0), (0, 1), (0, 2)]);
}

#[test]
fn a_queue_stays_paused_while_it_is_with_another_member() {
    let (mut state, both) = (started(2), [(queue(0), 0), (queue(1), 0)].into());
    let come_and_go = |state: &mut State| {
        state.assign(&BTreeMap::new(), false);
        for gained in state.assign(&both, false).gained {
            state.start(&gained.queue, gained.id, QueueOffset(0), true);
            state.pulled(&gained.queue, gained.id, pulled(gained.queue.queue_id, 0, 1, 1));
        }
    };
    assert!(state.set_paused(&queue(0), true));
    come_and_go(&mut state);
    assert_eq!(offsets(&mut state, 10), [(1, 0)]);
    assert!(state.set_paused(&queue(0), false));
    come_and_go(&mut state);
    assert_eq!(offsets(&mut state, 10), [(0, 0), (1, 0)], "resumed once and for all");

    assert!(state.set_paused(&queue(0), true) && state.set_paused(&queue(1), true));
    state.assign(&BTreeMap::new(), false);
    assert!(state.set_paused(&queue(0), true), "it is paused already");
    assert!(state.set_paused(&queue(0), false), "it can be resumed from afar");
    assert!(!state.set_paused(&queue(0), true), "it is not this member's to pause");
    assert!(!state.set_paused(&queue(0), false));
    come_and_go(&mut state);
    assert_eq!(offsets(&mut state, 10), [(0, 0)]);
    state.resume_all();
    assert_eq!(offsets(&mut state, 10), [(1, 0)]);
}

#[test]
fn a_lost_queue_takes_its_messages_along_and_says_what_was_done() {
    let mut state = started(2);
    state.pulled(&queue(0), number(0), pulled(0, 0, 4, 4));
    state.pulled(&queue(1), number(1), pulled(1, 0, 4, 4));
    offsets(&mut state, 3);
    state.settle();
    let Assignment { gained, lost, .. } = state.assign(&[(queue(1), 0), (queue(2), 0)].into(), false);
    assert_eq!((gained.len(), &gained[0].queue, gained[0].id), (1, &queue(2), number(2)));
    assert_eq!(lost.len(), 1);
    assert_eq!((&lost[0].queue, lost[0].to_commit()), (&queue(0), Some(QueueOffset(3))));
    assert_eq!(state.task(&queue(0), number(0), &config()), Task::End);
    assert_eq!(state.task(&queue(2), number(2), &config()), Task::FindStart { epoch: number(2) });
    assert_eq!(offsets(&mut state, 10).len(), 4, "only the messages of the queue that stayed");
}

#[test]
fn a_move_is_reported_once() {
    let mut state = started(1);
    state.pulled(&queue(0), number(0), Pulled { moved: gone(0), ..nothing(30) });
    let moves = state.take_moves();
    assert_eq!(moves.len(), 1);
    assert_eq!((moves[0].from, moves[0].to), (QueueOffset(0), QueueOffset(30)));
    assert_eq!(position(&state, 0), 30);
    assert!(state.take_moves().is_empty());
}

#[test]
fn a_group_that_was_reset_leaves_what_was_pulled_ahead() {
    let mut state = started(1);
    state.pulled(&queue(0), number(0), pulled(0, 0, 10, 10));
    assert_eq!(offsets(&mut state, 3).len(), 3);
    assert!(!state.pulled(&queue(0), number(0), Pulled { moved: gone(10), ..nothing(30) }));
    state.was_reset(&queue(0), number(0), QueueOffset(30));
    assert!(offsets(&mut state, 10).is_empty(), "3 to 9 are skipped");
    assert_eq!(state.to_commit(CommitScope::Settled), [(queue(0), QueueOffset(30))]);
    assert_eq!(state.settled("t").collect::<Vec<_>>(), [(&*queue(0), QueueOffset(30))]);
    let moves = state.take_moves();
    assert_eq!((moves.len(), moves[0].from, moves[0].to), (1, QueueOffset(3), QueueOffset(30)));
    let of_before = state.check_commit(&queue(0), QueueOffset(2)).unwrap();
    assert_eq!(of_before, (queue(0), QueueOffset(30)), "a commit of before does not undo it");
    let (_, epoch) = pulled_next(&state);
    state.pulled(&queue(0), epoch, pulled(0, 30, 34, 34));
    assert_eq!(offsets(&mut state, 2).len(), 2);
    assert_eq!(state.check_commit(&queue(0), QueueOffset(31)).unwrap().1, QueueOffset(31));

    let (_, epoch) = pulled_next(&state);
    assert!(!state.pulled(&queue(0), epoch, Pulled { moved: gone(34), ..nothing(33) }));
    state.was_reset(&queue(0), epoch, QueueOffset(33));
    assert_eq!(position(&state, 0), 33, "of what was pulled ahead a part is skipped");
    assert!(state.reset(&queue(0), QueueOffset(1)));
    assert_eq!(position(&state, 0), 1);
    assert_eq!(state.check_commit(&queue(0), QueueOffset(31)).unwrap().1, QueueOffset(1), "nor one above it");
    assert!(!state.reset(&queue(9), QueueOffset(1)), "it is another member's");

    state.committed(&queue(0), QueueOffset(10));
    assert!(state.reset(&queue(0), QueueOffset(0)));
    let (_, epoch) = pulled_next(&state);
    state.pulled(&queue(0), epoch, pulled(0, 0, 10, 10));
    assert_eq!(offsets(&mut state, 10).len(), 10);
    let again = state.to_commit(CommitScope::HandedOut);
    assert_eq!(again, [(queue(0), QueueOffset(10))], "the broker does not have what was committed before");
}

#[test]
fn a_pull_task_of_an_earlier_assignment_ends_when_the_queue_comes_back() {
    let mut state = started(1);
    state.assign(&BTreeMap::new(), false);
    let Assignment { gained, .. } = state.assign(&[(queue(0), 0)].into(), false);
    assert_eq!(state.task(&queue(0), number(0), &config()), Task::End);
    assert!(!state.pulled(&queue(0), number(0), pulled(0, 0, 4, 4)), "its answer is dropped");
    assert_eq!(state.task(&queue(0), gained[0].id, &config()), Task::FindStart { epoch: gained[0].id });
}

#[test]
fn a_start_that_the_broker_does_not_know_yet_is_part_of_the_next_commit() {
    let mut state = State::default();
    state.assign(&[(queue(0), 0)].into(), false);
    state.start(&queue(0), number(0), QueueOffset(70), false);
    assert_eq!(state.to_commit(CommitScope::HandedOut), [(queue(0), QueueOffset(70))]);
    assert!(state.acknowledged().is_empty());
    assert!(started(1).to_commit(CommitScope::HandedOut).is_empty());
}

#[test]
fn a_member_that_is_sent_to_another_offset_drops_what_a_pull_under_way_returns() {
    let mut state = started(1);
    state.pulled(&queue(0), number(0), pulled(0, 0, 10, 10));
    state.sent_to(&queue(0), Pulled { moved: gone(10), ..nothing(3) });
    assert_eq!(pulled_next(&state).0, QueueOffset(0), "nothing was handed out");
    assert!(!state.pulled(&queue(0), number(0), pulled(0, 10, 12, 12)), "it was asked before");
    let (next, epoch) = pulled_next(&state);
    assert_eq!(next, QueueOffset(0));
    assert!(state.pulled(&queue(0), epoch, pulled(0, 0, 3, 3)));
    assert_eq!(offsets(&mut state, 10), [(0, 0), (0, 1), (0, 2)]);
}

#[test]
fn a_queue_that_became_shorter_takes_positions_and_commits_back() {
    let mut state = started(1);
    state.pulled(&queue(0), number(0), pulled(0, 0, 10, 10));
    assert_eq!(offsets(&mut state, 8).len(), 8);
    state.settle();
    state.committed(&queue(0), QueueOffset(8));
    let shorter = Pulled { moved: gone(10), ..nothing(4) };
    assert!(!state.pulled(&queue(0), number(0), shorter));
    assert_eq!(position(&state, 0), 4);
    assert!(offsets(&mut state, 10).is_empty(), "what was pulled ahead is gone");
    assert!(state.acknowledged().is_empty(), "nothing beyond the end is repeated");
    assert_eq!(state.to_commit(CommitScope::Settled), [(queue(0), QueueOffset(4))]);
    let moves = state.take_moves();
    assert_eq!((moves[0].from, moves[0].to), (QueueOffset(10), QueueOffset(4)));
    state.pulled(&queue(0), number(0), pulled(0, 4, 6, 6));
    assert_eq!(offsets(&mut state, 10).len(), 2);
}

#[test]
fn a_queue_that_became_shorter_is_read_on_where_messages_were_handed_out() {
    let mut state = started(1);
    state.pulled(&queue(0), number(0), pulled(0, 0, 10, 10));
    assert_eq!(offsets(&mut state, 3).len(), 3);
    let shorter = Pulled { moved: gone(10), ..nothing(7) };
    assert!(!state.pulled(&queue(0), number(0), shorter));
    assert_eq!(position(&state, 0), 3, "3 to 6 survived and were not handed out");
    let next = state.task(&queue(0), number(0), &ConsumerConfig::default());
    assert_eq!(next, Task::Pull { epoch: number(0), offset: QueueOffset(3) });
    assert_eq!(state.take_moves()[0].to, QueueOffset(3));
}

#[test]
fn a_lost_queue_is_kept_while_messages_of_it_are_in_work() {
    let mut state = started(3);
    state.pulled(&queue(0), number(0), pulled(0, 0, 4, 4));
    state.pulled(&queue(1), number(1), pulled(1, 0, 4, 4));
    assert_eq!(offsets(&mut state, 5).len(), 5);
    let Assignment { lost, mut kept, .. } = state.assign(&BTreeMap::new(), true);
    assert_eq!(
        lost.iter().map(|lost| &lost.queue).collect::<Vec<_>>(),
        [&queue(2)],
        "nothing of it was handed out"
    );
    assert_eq!(state.task(&queue(1), number(1), &config()), Task::Wait);
    assert!(state.queue_count() == 2 && state.queues().count() == 0 && state.positions().is_empty());
    assert!(offsets(&mut state, 10).is_empty(), "what was pulled ahead is dropped");
    assert!(state.give_up(&mut kept, GiveUp::Unneeded).0.is_empty() && kept.len() == 2);

    state.settle_at(&queue(0), QueueOffset(3));
    assert_eq!(state.kept_to_commit()[0].to_commit(), Some(QueueOffset(3)));
    assert!(state.give_up(&mut kept, GiveUp::Unneeded).0.is_empty(), "the fourth message is in work");
    state.take_back(&queue(1), QueueOffset(0));
    assert_eq!(state.give_up(&mut kept, GiveUp::Unneeded).0, [queue(1)], "nothing of it is in work any more");
    let Assignment { kept: again, has_returned, .. } = state.assign(&[(queue(0), 0)].into(), true);
    assert!(again.is_empty() && has_returned && !state.is_kept(&queue(0)));
    let mut later = state.assign(&BTreeMap::new(), true).kept;
    assert_eq!(state.give_up(&mut kept, GiveUp::All).0, [queue(0)], "its first handover is over");
    assert!(state.is_kept(&queue(0)), "the next one is not");
    assert!(
        state.settle()
            && state.give_up(&mut later, GiveUp::Unneeded).1[0].to_commit() == Some(QueueOffset(4))
    );
}

#[test]
#[should_panic(expected = "no more is settled than was handed out")]
fn a_settled_offset_past_what_was_handed_out_is_found() {
    let mut state = started(1);
    state.pulled(&queue(0), number(0), pulled(0, 0, 5, 5));
    assert_eq!(offsets(&mut state, 2).len(), 2);
    state.settle_at(&queue(0), QueueOffset(3));
}

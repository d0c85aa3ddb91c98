//! Tests of what handlers get and finish, in [`super::state`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Instant;

use rocketpy_model::QueueOffset;

use super::delivery::Delivery;
use super::epoch::Epoch;
use super::pulled::Pulled;
use super::state::{CommitScope, Finished, GiveUp, State, Taken, Task};
use super::state_tests::{config, nothing, number, pulled, queue};

/// State of handlers, with queues 0..count, each started at 0 and with messages 0..10.
fn pushed(ordered: bool, count: u32) -> State {
    let mut state = State::new(Delivery::Push { ordered, broadcast: true });
    state.assign(&(0..count).map(|id| (queue(id), 0)).collect(), false);
    for id in 0..count {
        state.start(&queue(id), number(id), QueueOffset(0), true);
        assert!(state.pulled(&queue(id), number(id), pulled(id, 0, 10, 10)));
    }
    state
}

fn take_part(state: &mut State, count: usize) -> Taken {
    state.take_part(&config(), |_| count).unwrap()
}

fn finish(state: &mut State, taken: &Taken, range: std::ops::Range<usize>) -> Finished {
    state.finish(&taken.part.slice(range), taken.life, &config())
}

fn to_commit(state: &State) -> Vec<u64> {
    state.to_commit(CommitScope::Settled).into_iter().map(|(_, offset)| offset.get()).collect()
}

#[test]
fn a_commit_ends_below_the_first_message_that_a_handler_has() {
    let mut state = pushed(false, 1);
    let (first, second) = (take_part(&mut state, 3), take_part(&mut state, 4));
    finish(&mut state, &second, 0..4);
    finish(&mut state, &first, 1..3);
    state.settle();
    assert_eq!(to_commit(&state), [] as [u64; 0], "message 0 is not finished");
    finish(&mut state, &first, 0..1);
    assert_eq!((to_commit(&state), state.unfinished()), (vec![7], 0));
    let third = take_part(&mut state, 10);
    finish(&mut state, &third, 0..3);
    state.pulled(&queue(0), number(0), nothing(20));
    state.settle();
    assert_eq!(to_commit(&state), [20], "what the tags left out is done too");
}

#[test]
fn what_handlers_have_counts_for_the_room_of_their_queue() {
    let mut state = pushed(false, 1);
    let taken = take_part(&mut state, 10);
    assert_eq!(state.task(&queue(0), number(0), &config()), Task::Wait);
    finish(&mut state, &taken, 1..10);
    assert_eq!(state.task(&queue(0), number(0), &config()), Task::Wait, "as many would come again");
    finish(&mut state, &taken, 0..1);
    assert!(matches!(state.task(&queue(0), number(0), &config()), Task::Pull { .. }));
}

#[test]
fn a_queue_is_kept_for_its_handlers_and_free_when_they_have_finished() {
    let mut state = pushed(false, 1);
    let taken = take_part(&mut state, 2);
    let kept = state.assign(&BTreeMap::new(), true).kept;
    assert_eq!(kept.len(), 1);
    assert!(state.take_part(&config(), |_| 10).is_none(), "nothing more is handed out");
    assert!(!finish(&mut state, &taken, 0..1).is_kept_free);
    assert_eq!(state.give_up(&mut kept.clone(), GiveUp::Unneeded).0, []);
    assert!(finish(&mut state, &taken, 1..2).is_kept_free);
    let (over, lost) = state.give_up(&mut kept.clone(), GiveUp::Unneeded);
    assert_eq!((over, lost[0].to_commit()), (vec![queue(0)], Some(QueueOffset(2))));
    assert!(taken.over.load(Ordering::Acquire));
}

#[test]
fn what_was_handed_out_before_a_reset_changes_nothing_after_it() {
    let mut state = pushed(false, 1);
    let before = take_part(&mut state, 5);
    assert!(state.reset(&queue(0), QueueOffset(2)) && before.over.load(Ordering::Acquire));
    let Task::Pull { epoch, .. } = state.task(&queue(0), number(0), &config()) else { panic!() };
    state.pulled(&queue(0), epoch, pulled(0, 2, 6, 6));
    let after = take_part(&mut state, 4);
    finish(&mut state, &before, 0..5);
    state.settle();
    assert_eq!((to_commit(&state), state.unfinished()), (vec![2], 4));
    finish(&mut state, &after, 0..4);
    assert_eq!(to_commit(&state), [6]);
}

#[test]
fn in_order_a_queue_is_handed_out_on_when_its_last_messages_are_finished() {
    let mut state = pushed(true, 2);
    let (first, other) = (take_part(&mut state, 2), take_part(&mut state, 2));
    assert_ne!(first.part.queue(), other.part.queue());
    assert!(state.take_part(&config(), |_| 1).is_none());
    assert!(!finish(&mut state, &first, 0..1).is_next_due);
    assert!(finish(&mut state, &first, 1..2).is_next_due);
    let next = take_part(&mut state, 1);
    assert_eq!((next.part.queue(), next.part.spans()[0].queue_offset), (first.part.queue(), QueueOffset(2)));
}

#[test]
fn in_order_a_queue_is_read_with_its_lock_only_and_from_its_stored_offset_after_a_loss() {
    let mut state = State::new(Delivery::Push { ordered: true, broadcast: false });
    let (one, held) = ([queue(0)], BTreeSet::from([queue(0)]));
    state.assign(&[(queue(0), 0)].into(), false);
    assert_eq!(state.task(&queue(0), number(0), &config()), Task::Lock);
    state.locked(&one, &held, Instant::now());
    let Task::FindStart { epoch } = state.task(&queue(0), number(0), &config()) else { panic!() };
    state.start(&queue(0), epoch, QueueOffset(0), true);
    state.pulled(&queue(0), epoch, pulled(0, 0, 4, 4));
    let taken = take_part(&mut state, 2);
    state.locked(&one, &held, Instant::now());
    finish(&mut state, &taken, 0..1);
    assert_eq!(to_commit(&state), [1], "a renewal changes nothing");
    state.locked(&one, &BTreeSet::new(), Instant::now());
    assert!(taken.over.load(Ordering::Acquire) && state.take_part(&config(), |_| 1).is_none());
    assert_eq!(to_commit(&state), [] as [u64; 0], "another member commits now");
    assert_eq!(state.task(&queue(0), number(0), &config()), Task::Lock);
    state.locked(&one, &held, Instant::now());
    assert!(matches!(state.task(&queue(0), number(0), &config()), Task::FindStart { .. }));
}

/// State in order, with the lock of queue 0, whose messages 0..4 were pulled; a handler has the first one.
fn handling() -> (State, Taken) {
    let mut state = State::new(Delivery::Push { ordered: true, broadcast: false });
    state.assign(&[(queue(0), 0)].into(), false);
    let epoch = read_again(&mut state, number(0));
    assert_eq!(epoch, Epoch(2), "the lock began the second one");
    let taken = take_part(&mut state, 1);
    state.handler_began(taken.part.queue());
    (state, taken)
}

/// Gets the lock of queue 0, if need be, and messages 0..4 of it.
fn read_again(state: &mut State, id: Epoch) -> Epoch {
    state.locked(&[queue(0)], &BTreeSet::from([queue(0)]), Instant::now());
    if let Task::FindStart { epoch } = state.task(&queue(0), id, &config()) {
        state.start(&queue(0), epoch, QueueOffset(0), true);
    }
    let Task::Pull { epoch, offset: QueueOffset(0) } = state.task(&queue(0), id, &config()) else { panic!() };
    assert!(state.pulled(&queue(0), epoch, pulled(0, 0, 4, 4)));
    epoch
}

#[test]
fn in_order_a_queue_that_begins_again_waits_for_the_handler_that_runs() {
    type Again = fn(&mut State) -> Epoch;
    let shorter: Again = |state| {
        let moved = Some(QueueOffset(4));
        state.pulled(&queue(0), Epoch(2), Pulled { moved, ..nothing(0) });
        number(0)
    };
    let reset: Again = |state| {
        assert!(state.reset(&queue(0), QueueOffset(0)));
        number(0)
    };
    let without_lock: Again = |state| {
        state.locked(&[queue(0)], &BTreeSet::new(), Instant::now());
        number(0)
    };
    let lost: Again = |state| {
        let mut kept = state.assign(&BTreeMap::new(), false).kept;
        assert_eq!(state.give_up(&mut kept, GiveUp::All).1.len(), 1);
        state.assign(&[(queue(0), 0)].into(), false).gained[0].id
    };
    for (name, again) in [("shorter", shorter), ("reset", reset), ("lock", without_lock), ("lost", lost)] {
        let (mut state, taken) = handling();
        let id = again(&mut state);
        read_again(&mut state, id);
        assert!(state.take_part(&config(), |_| 1).is_none(), "{name}");
        assert!(!finish(&mut state, &taken, 0..1).is_next_due, "{name}");
        assert!(state.take_part(&config(), |_| 1).is_none(), "{name}");
        assert!(state.handler_ended(&queue(0)).is_next_due, "{name}");
        assert_eq!(take_part(&mut state, 1).part.spans()[0].queue_offset, QueueOffset(0), "{name}");
    }
}

#[test]
fn in_order_messages_beyond_the_end_of_their_queue_end_before_others_begin() {
    let mut state = pushed(true, 1);
    let taken = take_part(&mut state, 2);
    let moved = Some(QueueOffset(10));
    state.pulled(&queue(0), number(0), Pulled { moved, ..nothing(0) });
    state.pulled(&queue(0), number(0), pulled(0, 0, 4, 4));
    finish(&mut state, &taken, 0..1);
    assert!(state.take_part(&config(), |_| 1).is_none(), "the second one comes again in its place");
    assert_eq!(to_commit(&state), [] as [u64; 0]);
    assert!(finish(&mut state, &taken, 1..2).is_next_due);
    assert_eq!(take_part(&mut state, 1).part.spans()[0].queue_offset, QueueOffset(0));
}

#[test]
fn in_order_a_queue_that_was_reset_is_kept_while_a_handler_runs() {
    let (mut state, _taken) = handling();
    assert!(state.reset(&queue(0), QueueOffset(0)));
    let mut kept = state.assign(&BTreeMap::new(), true).kept;
    assert_eq!((kept.len(), state.give_up(&mut kept, GiveUp::Unneeded).0), (1, vec![]));
    assert!(state.handler_ended(&queue(0)).is_kept_free);
    assert_eq!(state.give_up(&mut kept, GiveUp::Unneeded).0, [queue(0)]);
}

#[test]
fn in_order_a_queue_is_kept_past_its_time_while_a_handler_runs() {
    for keep in [true, false] {
        let (mut state, taken) = handling();
        let mut kept = state.assign(&BTreeMap::new(), keep).kept;
        assert_eq!(state.give_up(&mut kept, GiveUp::Overdue).0, []);
        assert!(state.handler_ended(taken.part.queue()).is_kept_free);
        assert_eq!(
            state.give_up(&mut kept, GiveUp::Overdue).0,
            [queue(0)],
            "its message may wait for another try"
        );
        assert!(taken.over.load(Ordering::Acquire));
    }
    let (mut state, _taken) = handling();
    let mut kept = state.assign(&BTreeMap::new(), true).kept;
    assert_eq!(state.give_up(&mut kept, GiveUp::All).0, [queue(0)], "the member ends");
}

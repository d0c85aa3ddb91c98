//! Tests of what handlers get and finish, in [`super::state`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Instant;

use rocketpy_model::QueueOffset;

use super::delivery::Delivery;
use super::state::{CommitScope, Finished, State, Taken, Task};
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
    assert_eq!(state.give_up(&mut kept.clone(), false).0, []);
    assert!(finish(&mut state, &taken, 1..2).is_kept_free);
    let (over, lost) = state.give_up(&mut kept.clone(), false);
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

//! Tests of what a user is told of the assignment, in [`super::state`].

use std::ops::Range;

use rocketpy_model::QueueOffset;

use super::delivery::Delivery;
use super::state::{GiveUp, QueueChange, State};
use super::state_tests::{config, number, pulled, queue};

/// State of a user who is told of changes, with these queues.
fn told(delivery: Delivery, queues: Range<u32>) -> State {
    let mut state = State::new(delivery);
    state.tell_changes();
    assign(&mut state, queues);
    state
}

/// Assigns queues, and returns how many are kept.
fn assign(state: &mut State, queues: Range<u32>) -> usize {
    state.assign(&queues.map(|id| (queue(id), 0)).collect(), true).kept.len()
}

/// What the user is told next: whether it is a gain, and of which queues.
fn shown(change: &QueueChange) -> (bool, Vec<u32>) {
    (change.is_gain(), change.queues().map(|queue| queue.queue_id).collect())
}

/// Tells the user, who has to be told the same until then.
fn tell(state: &mut State) -> Option<(bool, Vec<u32>)> {
    let change = state.change()?;
    assert_eq!(state.change().as_ref(), Some(&change));
    state.delivered(&change);
    Some(shown(&change))
}

#[test]
fn a_user_is_told_of_gains_and_losses_once_and_of_losses_first() {
    let mut state = told(Delivery::Pull, 0..2);
    assert_eq!(tell(&mut state), Some((true, vec![0, 1])));
    assert_eq!(tell(&mut state), None);
    assert_eq!(assign(&mut state, 1..4), 1, "a queue whose loss must be told is kept");
    assert_eq!(tell(&mut state), Some((false, vec![0])));
    assert_eq!(tell(&mut state), Some((true, vec![2, 3])));
    assert_eq!(tell(&mut state), None);
}

#[test]
fn a_kept_queue_goes_once_the_user_was_told_or_time_is_up() {
    let mut state = told(Delivery::Pull, 0..3);
    assert_eq!(tell(&mut state), Some((true, vec![0, 1, 2])));
    let mut kept = state.assign(&[(queue(0), 0)].into(), true).kept;
    assert_eq!((kept.len(), state.give_up(&mut kept, GiveUp::Unneeded).0.len()), (2, 0));
    let change = state.change().unwrap();
    assert_eq!(state.give_up(&mut kept, GiveUp::All).0.len(), 2);
    assert_eq!(state.change(), Some(change), "it is told all the same");
    assert_eq!(tell(&mut state), Some((false, vec![1, 2])));
    let mut kept = state.assign(&[].into(), true).kept;
    assert_eq!((kept.len(), tell(&mut state)), (1, Some((false, vec![0]))));
    assert_eq!(state.give_up(&mut kept, GiveUp::Unneeded).0, [queue(0)]);
}

#[test]
fn a_queue_that_comes_back_in_time_is_no_change_and_one_that_was_away_is_two() {
    let mut state = told(Delivery::Pull, 0..1);
    assert_eq!(tell(&mut state), Some((true, vec![0])));
    assign(&mut state, 0..0);
    assign(&mut state, 0..1);
    assert_eq!(tell(&mut state), None, "it was kept");
    state.assign(&[].into(), false);
    state.assign(&[(queue(0), 0)].into(), false);
    assert_eq!(tell(&mut state), Some((false, vec![0])), "another member may have had it");
    assert_eq!(tell(&mut state), Some((true, vec![0])));
    assign(&mut state, 0..0);
    assert_eq!(tell(&mut state), Some((false, vec![0])));
    assign(&mut state, 0..1);
    assert_eq!(tell(&mut state), Some((true, vec![0])), "it was kept, and the user thinks that it is gone");
}

#[test]
fn a_queue_that_was_never_told_of_is_not_kept() {
    let mut state = told(Delivery::Pull, 0..1);
    assert_eq!(assign(&mut state, 0..0), 0);
    assert_eq!(tell(&mut state), None);
}

#[test]
fn handlers_get_nothing_of_a_queue_before_its_gain_is_told_and_end_before_its_loss_is() {
    let mut state = told(Delivery::Push { ordered: false, broadcast: false }, 0..1);
    state.start(&queue(0), number(0), QueueOffset(0), true);
    assert!(state.pulled(&queue(0), number(0), pulled(0, 0, 2, 2)));
    assert!(state.take_part(&config(), |_| 2).is_none());
    assert_eq!(tell(&mut state), Some((true, vec![0])));
    let taken = state.take_part(&config(), |_| 2).unwrap();
    let mut kept = state.assign(&[(queue(1), 0)].into(), true).kept;
    assert_eq!(tell(&mut state), Some((true, vec![1])), "other changes do not wait");
    assert_eq!(tell(&mut state), None, "a handler has messages");
    assert!(state.finish(&taken.part, taken.life, &config()).is_kept_free);
    assert!(state.give_up(&mut kept, GiveUp::Unneeded).0.is_empty(), "the user was not told");
    assert_eq!(tell(&mut state), Some((false, vec![0])));
    assert_eq!(state.give_up(&mut kept, GiveUp::Unneeded).0, [queue(0)]);
}

#[test]
fn who_leaves_is_told_that_all_queues_are_lost_and_of_nothing_after_that() {
    let mut state = told(Delivery::Push { ordered: false, broadcast: false }, 0..2);
    assert_eq!(tell(&mut state), Some((true, vec![0, 1])));
    state.start(&queue(0), number(0), QueueOffset(0), true);
    assert!(state.pulled(&queue(0), number(0), pulled(0, 0, 2, 2)));
    let _a_handler_that_does_not_return = state.take_part(&config(), |_| 2).unwrap();
    state.begin_leaving();
    assert_eq!(tell(&mut state), Some((false, vec![0, 1])));
    assign(&mut state, 0..4);
    assert_eq!(tell(&mut state), None);
    assert!(state.has_delivered_all());
}

#[test]
fn who_is_being_told_of_a_gain_when_the_member_leaves_is_told_of_the_loss_after_it() {
    let mut state = told(Delivery::Push { ordered: false, broadcast: false }, 0..1);
    let gain = state.next_change().unwrap();
    state.begin_leaving();
    assert_eq!((state.change(), state.has_delivered_all()), (None, false));
    state.delivered(&gain);
    assert!(!state.has_delivered_all());
    assert_eq!(tell(&mut state), Some((false, vec![0])));
    assert!(state.has_delivered_all());
}

//! The worked examples of docs/reference/client.md 8.5.

use std::collections::BTreeMap;

use rocketpy_model::MessageQueue;

use super::allocate::sort_members;
use crate::config::{Balance, NearestRoom, NoShare, Rooms};

fn queues(broker: &str, numbers: std::ops::Range<u32>) -> Vec<MessageQueue> {
    numbers.map(|id| MessageQueue::new("t", broker, id)).collect()
}

fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}

fn numbers(share: &[MessageQueue]) -> Vec<u32> {
    share.iter().map(|queue| queue.queue_id).collect()
}

/// The shares of `count` queues among `members` members.
fn shares(balance: &Balance, count: u32, members: usize) -> Vec<Vec<u32>> {
    let queues = queues("room@b", 0..count);
    let members: Vec<String> = (0..members).map(|member| format!("c{member:02}")).collect();
    let share = |me: &String| numbers(&balance.of_members(&queues, &members, me).unwrap());
    members.iter().map(share).collect()
}

/// Numbers and runs of numbers, members separated by `/`.
fn read(text: &str) -> Vec<Vec<u32>> {
    let number = |text: &str| text.parse::<u32>().unwrap();
    let piece = |piece: &str| match piece.split_once('-') {
        Some((first, last)) => (number(first)..=number(last)).collect::<Vec<_>>(),
        None => vec![number(piece)],
    };
    let share = |share: &str| share.split(',').filter(|piece| *piece != "none").flat_map(piece).collect();
    text.split(" / ").map(share).collect()
}

#[test]
fn shares_are_those_of_the_specification() {
    let rooms = Balance::MachineRoom(["room".to_owned()].into());
    for (count, members, average, circle, room) in [
        (8, 3, "0-2 / 3-5 / 6-7", "0,3,6 / 1,4,7 / 2,5", "0,1,6 / 2,3,7 / 4,5"),
        (10, 4, "0-2 / 3-5 / 6-7 / 8-9", "0,4,8 / 1,5,9 / 2,6 / 3,7", "0,1,8 / 2,3,9 / 4,5 / 6,7"),
        (4, 3, "0-1 / 2 / 3", "0,3 / 1 / 2", "0,3 / 1 / 2"),
        (
            16,
            5,
            "0-3 / 4-6 / 7-9 / 10-12 / 13-15",
            "0,5,10,15 / 1,6,11 / 2,7,12 / 3,8,13 / 4,9,14",
            "0-2,15 / 3-5 / 6-8 / 9-11 / 12-14",
        ),
        (7, 2, "0-3 / 4-6", "0,2,4,6 / 1,3,5", "0-2,6 / 3-5"),
        (5, 2, "0-2 / 3-4", "0,2,4 / 1,3", "0,1,4 / 2,3"),
        (3, 4, "0 / 1 / 2 / none", "0 / 1 / 2 / none", "0 / 1 / 2 / none"),
        (1, 3, "0 / none / none", "0 / none / none", "0 / none / none"),
    ] {
        for (balance, expected) in [(&Balance::Average, average), (&Balance::Circle, circle), (&rooms, room)]
        {
            let found = shares(balance, count, members);
            assert_eq!(found, read(expected), "{balance:?}: {count} queues, {members} members");
        }
    }
}

/// The formula as the reference writes it, for comparison.
fn literal(n: usize, m: usize, i: usize) -> (usize, usize) {
    let r = n % m;
    let size = if n <= m {
        1
    } else if r > 0 && i < r {
        n / m + 1
    } else {
        n / m
    };
    let start = if r > 0 && i < r { i * size } else { i * size + r };
    (start.min(n), size.min(n.saturating_sub(start)))
}

#[test]
fn every_average_share_equals_the_literal_formula() {
    for n in 0..40 {
        for m in 1..20 {
            for (i, share) in shares(&Balance::Average, n, m).iter().enumerate() {
                let (start, size) = literal(n as usize, m, i);
                let expected: Vec<u32> = (start as u32..(start + size) as u32).collect();
                assert_eq!(*share, expected, "{n} queues, {m} members, member {i}");
            }
        }
    }
}

#[test]
fn every_strategy_gives_each_queue_to_one_member() {
    let rooms = Balance::MachineRoom(["room".to_owned()].into());
    let hash = Balance::ConsistentHash { virtual_nodes: 10 };
    let rooms_of = |beginning: &str| Rooms::from([(beginning.to_owned(), "A".to_owned())]);
    let nearest = Balance::NearestRoom(NearestRoom {
        brokers: rooms_of("room"),
        clients: rooms_of("c"),
        inner: Box::new(Balance::Circle),
    });
    for balance in [Balance::Average, Balance::Circle, rooms, hash, nearest] {
        for n in 0..30 {
            for m in 1..12 {
                let mut given = shares(&balance, n, m).concat();
                given.sort_unstable();
                assert_eq!(given, (0..n).collect::<Vec<_>>(), "{balance:?}: {n} queues, {m} members");
            }
        }
    }
}

#[test]
fn a_consistent_hash_moves_the_queues_of_the_member_that_left_and_no_others() {
    let balance = Balance::ConsistentHash { virtual_nodes: 10 };
    let (queues, all) = (queues("b", 0..64), names(["a", "b", "c", "d"]));
    let of = |members: &[String], me: &str| numbers(&balance.of_members(&queues, members, me).unwrap());
    for me in ["a", "b", "c"] {
        let (with, without) = (of(&all, me), of(&all[..3], me));
        assert!(!with.is_empty() && with.iter().all(|queue| without.contains(queue)), "{me}");
    }
}

#[test]
fn only_brokers_of_the_rooms_count_whose_names_java_splits_in_two() {
    let balance = Balance::MachineRoom(["a".to_owned(), "b".to_owned()].into());
    let brokers = ["a@1", "b@1@", "a@1@2", "a", "@a", "c@1", "a@", "@"];
    let queues: Vec<_> = brokers.into_iter().flat_map(|broker| queues(broker, 0..1)).collect();
    let share = balance.of_members(&queues, &names(["c"]), "c").unwrap();
    let brokers: Vec<&str> = share.iter().map(|queue| &*queue.broker_name).collect();
    assert_eq!(brokers, ["a@1", "b@1@"]);
}

#[test]
fn members_read_their_own_room_and_share_the_one_without_members() {
    let of = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(name, room)| ((*name).to_owned(), (*room).to_owned())).collect::<BTreeMap<_, _>>()
    };
    let nearest = |inner| NearestRoom {
        brokers: of(&[("broker-", "C"), ("broker-a", "A"), ("broker-b", "B")]),
        clients: of(&[("a", "A"), ("b", "B")]),
        inner: Box::new(inner),
    };
    let balance = Balance::NearestRoom(nearest(Balance::Average));
    let queues = [queues("broker-a", 0..4), queues("broker-b", 4..8), queues("broker-c", 8..10)].concat();
    let members = names(["a1", "a2", "b1"]);
    let share = |me: &str| numbers(&balance.of_members(&queues, &members, me).unwrap());
    assert_eq!([share("a1"), share("a2"), share("b1")], [vec![0, 1, 8], vec![2, 3, 9], vec![4, 5, 6, 7]]);
    let unknown = |queues, members| balance.of_members(queues, members, "a1").unwrap_err();
    let elsewhere = vec![MessageQueue::new("t", "other", 0)];
    assert_eq!(unknown(&elsewhere, &members), NoShare::NoRoom { what: "broker", name: "other".to_owned() });
    let stranger = NoShare::NoRoom { what: "client", name: "z".to_owned() };
    assert_eq!(unknown(&queues, &names(["a1", "z"])), stranger);
}

#[test]
fn configured_queues_are_read_whatever_others_read_as_far_as_they_are_there() {
    let wanted = [queues("b", 2..4), vec![MessageQueue::new("other", "b", 0)], queues("b", 9..10)].concat();
    let balance = Balance::Configuration(wanted);
    for me in ["a", "stranger"] {
        let share = balance.of_members(&queues("b", 0..4), &names(["a", "b"]), me).unwrap();
        assert_eq!(numbers(&share), [2, 3]);
    }
    assert_eq!(balance.missing("t", &queues("b", 0..4)), queues("b", 9..10));
    let error = balance.check_topics(|topic| topic == "t").unwrap_err().to_string();
    assert!(error.contains("other@b#0"), "{error}");
}

#[test]
fn values_of_a_strategy_are_checked() {
    let nearest = |inner| {
        let rooms = || Rooms::from([(String::new(), "A".to_owned())]);
        Balance::NearestRoom(NearestRoom { brokers: rooms(), clients: rooms(), inner: Box::new(inner) })
    };
    let no_rooms =
        NearestRoom { brokers: Rooms::new(), clients: Rooms::new(), inner: Box::new(Balance::Average) };
    for balance in [
        Balance::Configuration(Vec::new()),
        Balance::Assigned(Vec::new()),
        Balance::MachineRoom(Default::default()),
        Balance::ConsistentHash { virtual_nodes: 0 },
        Balance::ConsistentHash { virtual_nodes: 1001 },
        nearest(Balance::ConsistentHash { virtual_nodes: 0 }),
        nearest(nearest(Balance::Average)),
        Balance::NearestRoom(no_rooms),
    ] {
        assert!(balance.check().unwrap_err().to_string().contains("balance"), "{balance:?}");
    }
    for balance in
        [Balance::Average, nearest(Balance::Circle), Balance::ConsistentHash { virtual_nodes: 1000 }]
    {
        balance.check().unwrap();
    }
}

#[test]
fn a_stranger_gets_nothing() {
    assert!(Balance::Average.of_members(&queues("b", 0..4), &names(["a"]), "b").unwrap().is_empty());
    assert!(Balance::Circle.of_members(&queues("b", 0..4), &[], "b").unwrap().is_empty());
}

#[test]
fn members_sort_by_code_unit() {
    let mut members = names(["\u{ff5e}", "\u{1f600}", "b", "B", "a", "a"]);
    sort_members(&mut members);
    assert_eq!(members, ["B", "a", "b", "\u{1f600}", "\u{ff5e}"], "surrogates sort before U+FF5E");
}

//! Decisions of the limiter, with a clock of the tests.

use rocketpy_protocol::body::Quota;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn quota(scope: &str, name: &str) -> Quota {
    Quota { scope: scope.to_owned(), name: name.to_owned(), ..Quota::default() }
}

fn limiter(quotas: &[Quota]) -> Limiter<u32> {
    let mut limiter = Limiter::default();
    limiter.set_rules(rules(quotas), SECOND);
    limiter
}

fn rules(quotas: &[Quota]) -> Rules {
    Rules::new(quotas.iter().map(|quota| Rule::new(quota.clone()).unwrap()))
}

fn send(topic: &str, address: &str, messages: u64, bytes: u64) -> Want {
    Want {
        direction: Direction::Send,
        topic: Some(topic.into()),
        group: Some("producers".into()),
        address: address.parse().unwrap(),
        user: None,
        messages,
        bytes,
    }
}

fn pull(group: &str, messages: u64) -> Want {
    let want = send("orders", "10.0.0.1", messages, 0);
    Want { direction: Direction::Pull, group: Some(group.into()), ..want }
}

fn passed(limiter: &mut Limiter<u32>, now: Duration) -> Vec<u32> {
    let released = limiter.release(now).into_iter();
    let number = |released| match released {
        Released::Passed(number) => number,
        Released::Late(number, over) => panic!("{number} is late: {over}"),
    };
    released.map(number).collect()
}

#[test]
fn requests_over_a_limit_pass_in_their_order_at_its_rate() {
    let mut limiter = limiter(&[Quota { send_messages: Some(10), ..quota("topic", "orders") }]);
    let want = send("orders", "10.0.0.1", 1, 100);
    for _ in 0..10 {
        limiter.ask(&want, SECOND).unwrap();
    }
    for number in 0..5 {
        let over = limiter.ask(&want, SECOND).unwrap_err();
        let text = "send quota of topic orders exceeded: limit 10 messages/s, try again in 100 ms";
        assert_eq!(over.to_string(), text);
        limiter.hold(want.clone(), number, SECOND * 2, SECOND);
    }
    assert_eq!(limiter.next_due(SECOND), Some(SECOND + SECOND / 10));
    assert_eq!(passed(&mut limiter, SECOND), [0; 0]);
    assert_eq!(passed(&mut limiter, SECOND + SECOND / 10), [0]);
    limiter.ask(&want, SECOND + SECOND / 5).expect_err("those that wait are before it");
    assert_eq!(passed(&mut limiter, SECOND + SECOND / 2), [1, 2, 3, 4]);
    assert_eq!((limiter.waiting(), limiter.next_due(SECOND)), (0, None));
    limiter.ask(&send("payments", "10.0.0.1", 1, 100), SECOND).expect("no quota limits it");
    let used = limiter.usage().of("topic:orders");
    assert_eq!(used.rate(Direction::Send, SECOND * 2), [15, 1500]);
    assert_eq!((used.throttled, used.rejected), (6, 0));
}

#[test]
fn a_request_that_does_not_pass_in_time_is_late() {
    let mut limiter = limiter(&[Quota { send_bytes: Some(100), ..quota("topic", "*") }]);
    limiter.ask(&send("orders", "10.0.0.1", 1, 1000), SECOND).expect("a long message passes");
    let want = send("orders", "10.0.0.1", 1, 10);
    limiter.ask(&want, SECOND).unwrap_err();
    limiter.hold(want, 7, SECOND * 2, SECOND);
    assert_eq!(limiter.next_due(SECOND), Some(SECOND * 2));
    let released = limiter.release(SECOND * 2);
    let [Released::Late(7, over)] = &released[..] else { panic!("{released:?}") };
    let text = "send quota of topic orders exceeded: limit 100 bytes/s, try again in 8010 ms";
    assert_eq!(over.to_string(), text, "the debt of the long one");
    assert_eq!(limiter.usage().of("topic:*").rejected, 1);
    assert_eq!(limiter.waiting(), 0);
}

#[test]
fn all_quotas_of_a_request_have_to_allow_it_and_none_takes_before() {
    let mut limiter = limiter(&[
        Quota { send_messages: Some(2), ..quota("topic", "orders") },
        Quota { send_messages: Some(3), ..quota("address", "*") },
        Quota { send_messages: Some(100), ..quota("group", "*") },
    ]);
    let of = |topic: &str, address: &str| send(topic, address, 1, 1);
    limiter.ask(&of("orders", "10.0.0.1"), SECOND).unwrap();
    limiter.ask(&of("orders", "10.0.0.1"), SECOND).unwrap();
    let over = limiter.ask(&of("orders", "10.0.0.1"), SECOND).unwrap_err();
    assert_eq!((over.scope, over.name()), (Scope::Topic, "orders"));
    limiter.ask(&of("payments", "10.0.0.1"), SECOND).expect("the refused one took nothing from the address");
    let over = limiter.ask(&of("payments", "10.0.0.1"), SECOND).unwrap_err();
    assert_eq!((over.scope, over.name()), (Scope::Address, "10.0.0.1"));
    limiter.ask(&of("payments", "10.0.0.2"), SECOND).expect("each address has its own");

    limiter.hold(of("orders", "10.0.0.1"), 1, SECOND * 9, SECOND);
    limiter.hold(of("payments", "10.0.0.1"), 2, SECOND * 9, SECOND);
    assert_eq!(passed(&mut limiter, SECOND * 27 / 20), [2], "the topic has less than a message");
    assert_eq!(passed(&mut limiter, SECOND + SECOND / 2), [0; 0], "now it waits for the address");
    assert_eq!(passed(&mut limiter, SECOND * 17 / 10), [1]);
}

#[test]
fn a_pull_takes_what_it_returned_and_the_next_one_waits_for_it() {
    let mut limiter = limiter(&[Quota { pull_messages: Some(10), ..quota("group", "readers") }]);
    limiter.ask(&pull("readers", 0), SECOND).unwrap();
    limiter.charge(&pull("readers", 32), SECOND);
    limiter.ask(&pull("others", 0), SECOND).unwrap();
    limiter.ask(&send("orders", "10.0.0.1", 1, 1), SECOND).expect("the quota does not limit sends");
    for number in [1, 2] {
        let over = limiter.ask(&pull("readers", 0), SECOND).unwrap_err();
        assert!(over.to_string().ends_with("limit 10 messages/s, try again in 2300 ms"), "{over}");
        limiter.hold(pull("readers", 0), number, SECOND * 9, SECOND);
    }
    let due = SECOND + SECOND * 23 / 10;
    assert_eq!(limiter.next_due(SECOND), Some(due));
    assert_eq!(passed(&mut limiter, due), [1], "what the first one returns is not known yet");
    limiter.charge(&pull("readers", 32), due);
    assert_eq!(passed(&mut limiter, due), [0; 0]);
    assert_eq!(limiter.usage().of("group:readers").rate(Direction::Pull, SECOND * 4), [32, 0]);
}

#[test]
fn a_changed_quota_counts_for_those_that_wait() {
    let slow = Quota { send_messages: Some(1), ..quota("topic", "orders") };
    let mut limiter = limiter(std::slice::from_ref(&slow));
    let want = send("orders", "10.0.0.1", 1, 1);
    limiter.ask(&want, SECOND).unwrap();
    for number in 0..3 {
        limiter.ask(&want, SECOND).unwrap_err();
        limiter.hold(want.clone(), number, SECOND * 9, SECOND);
    }
    let now = SECOND + SECOND / 10;
    assert_eq!(passed(&mut limiter, now), [0; 0]);
    limiter.set_rules(rules(&[Quota { send_messages: Some(1000), ..slow.clone() }]), now);
    assert_eq!(limiter.next_due(now), Some(now + SECOND * 9 / 10 / 1000));
    assert_eq!(passed(&mut limiter, now + SECOND / 1000), [0]);
    limiter.set_rules(rules(&[]), now);
    assert_eq!(limiter.next_due(now), Some(now));
    assert_eq!(passed(&mut limiter, now), [1, 2]);
    assert_eq!(limiter.waiting(), 0);
    limiter.ask(&want, now).unwrap();
}

#[test]
fn names_without_a_place_share_one_limit() {
    let mut limiter = limiter(&[Quota { send_messages: Some(1), ..quota("group", "*") }]);
    let group = |number: usize| {
        let want = send("orders", "10.0.0.1", 1, 1);
        Want { group: Some(number.to_string().into()), ..want }
    };
    for number in 0..MAX_NAMES {
        limiter.ask(&group(number), SECOND).unwrap();
    }
    limiter.ask(&group(MAX_NAMES), SECOND).expect("the first of the others");
    for number in MAX_NAMES + 1..MAX_NAMES + 100 {
        let over = limiter.ask(&group(number), SECOND).unwrap_err();
        assert_eq!(over.name(), "*");
    }
    limiter.ask(&group(0), SECOND).expect_err("its bucket was not forgotten");
    limiter.ask(&group(MAX_NAMES + 200), SECOND * 3).expect("full buckets gave their places");
    limiter.ask(&group(MAX_NAMES + 201), SECOND * 3).expect("each for itself");
}

#[test]
fn a_stop_takes_all_that_wait() {
    let mut limiter = limiter(&[Quota { send_messages: Some(1), ..quota("topic", "*") }]);
    for (number, topic) in [(1, "b"), (2, "a"), (3, "b")] {
        let _ = limiter.ask(&send(topic, "10.0.0.1", 1, 1), SECOND);
        limiter.hold(send(topic, "10.0.0.1", 1, 1), number, SECOND * 9, SECOND);
    }
    assert_eq!(limiter.take_all(), [1, 2, 3]);
    assert_eq!((limiter.waiting(), limiter.next_due(SECOND)), (0, None));
}

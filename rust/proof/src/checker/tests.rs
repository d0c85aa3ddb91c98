//! Small histories: for each rule one that keeps it, and one that breaks it.

use super::*;
use crate::history::{Acknowledged, Contract, Delivery, Group, LogRange, QueueName, Send};

struct History {
    events: Vec<Event>,
    op: u64,
}

fn queue() -> QueueName {
    QueueName { topic: "t".into(), queue_id: 0 }
}

fn send(message: u64) -> Send {
    Send { message, topic: "t".into(), digest: message * 10, ..Send::default() }
}

fn at(message: u64, offset: u64) -> Delivery {
    let log = Some(LogRange { start: offset * 100, end: offset * 100 + 100 });
    Delivery { message, queue: queue(), offset, digest: message * 10, log, times: 0 }
}

fn group(name: &str) -> Group {
    Group { name: name.into(), ..Group::default() }
}

impl History {
    fn new(acknowledged: Acknowledged, groups: Vec<Group>) -> Self {
        Self::under(Contract { acknowledged, topics: BTreeMap::new(), groups })
    }

    fn under(contract: Contract) -> Self {
        Self { events: vec![Event::Begin { harness: "test".into(), seed: 0, contract }], op: 0 }
    }

    fn sync() -> Self {
        Self::new(Acknowledged::AfterFlush, vec![group("g")])
    }

    fn asynchronous() -> Self {
        Self::new(Acknowledged::BeforeFlush, vec![])
    }

    fn then(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }

    fn call(mut self, call: Call) -> Self {
        self.op += 1;
        let op = self.op;
        self.then(Event::Invoke { op, call })
    }

    fn ok(self, reply: Reply) -> Self {
        let op = self.op;
        self.then(Event::Ok { op, reply })
    }

    fn sent(self, message: u64, offset: u64) -> Self {
        self.sent_as(send(message), offset)
    }

    fn sent_as(self, send: Send, offset: u64) -> Self {
        let log = Some(LogRange { start: offset * 100, end: offset * 100 + 100 });
        self.call(Call::Send(send)).ok(Reply::Sent { queue: queue(), offset, log })
    }

    fn unknown(self, message: u64) -> Self {
        let history = self.call(Call::Send(send(message)));
        let op = history.op;
        history.then(Event::Unknown { op, reason: "a reset".into() })
    }

    fn received(self, deliveries: Vec<Delivery>) -> Self {
        self.received_by("g", 0, 1_000, deliveries)
    }

    fn received_by(self, group: &str, member: u32, at_ms: i64, deliveries: Vec<Delivery>) -> Self {
        self.call(Call::Receive { group: group.into(), member }).ok(Reply::Received { at_ms, deliveries })
    }

    fn came(self, stored_at_ms: i64, deliveries: Vec<Delivery>) -> Self {
        let arrivals = deliveries.into_iter().map(|delivery| (stored_at_ms, delivery)).collect();
        self.call(Call::ReadLater).ok(Reply::Came { arrivals })
    }

    fn audited(self, deliveries: Vec<Delivery>) -> Self {
        self.call(Call::Audit).ok(Reply::Audited { deliveries, ends: vec![] })
    }

    fn audited_to(self, deliveries: Vec<Delivery>, end: u64) -> Self {
        self.call(Call::Audit).ok(Reply::Audited { deliveries, ends: vec![(queue(), end)] })
    }

    fn expired(self, before: u64) -> Self {
        self.then(Event::Expired { topic: None, queue_id: None, before })
    }

    fn asked_to_delete(self) -> Self {
        self.call(Call::Delete { topic: "t".into() })
    }

    fn deleted(self) -> Self {
        self.asked_to_delete().ok(Reply::Deleted)
    }

    fn crash(self, kind: CrashKind) -> Self {
        self.then(Event::Crash { kind })
    }

    fn found(self, by: Look, messages: Vec<u64>) -> Self {
        self.call(Call::Find { by }).ok(Reply::Found { messages })
    }

    #[track_caller]
    fn breaks(self, rule: Rule) {
        let violations = check(&self.events);
        assert!(violations.iter().any(|violation| violation.rule == rule), "{rule} holds: {violations:?}");
        assert!(violations.iter().all(|violation| violation.rule == rule), "and others: {violations:?}");
    }

    #[track_caller]
    fn holds(self) {
        assert_eq!(check(&self.events), []);
    }
}

#[test]
fn a_run_in_which_everything_is_right_breaks_no_rule() {
    History::sync()
        .sent(1, 0)
        .unknown(2)
        .received(vec![at(1, 0)])
        .call(Call::Commit { group: "g".into(), queue: queue(), offset: 1 })
        .ok(Reply::Committed)
        .crash(CrashKind::Power)
        .audited(vec![at(1, 0), at(2, 1)])
        .then(Event::Positioned { group: "g".into(), queue: queue(), offset: 1, member: None })
        .sent(3, 2)
        .received(vec![at(1, 0), at(2, 1), at(3, 2)])
        .found(Look::Id { message: 3 }, vec![3])
        .then(Event::Healed)
        .then(Event::End)
        .holds();
}

#[test]
fn c1_what_was_acknowledged_after_its_flush_survives_a_power_cut_and_comes_to_every_group() {
    History::sync().sent(1, 0).sent(2, 1).crash(CrashKind::Power).audited(vec![at(1, 0)]).breaks(Rule::C1);
    History::sync().sent(1, 0).sent(2, 1).received(vec![at(1, 0)]).then(Event::End).breaks(Rule::C1);
    // Nor what a consumer saw.
    let seen = History::sync().unknown(1).received(vec![at(1, 0)]);
    seen.crash(CrashKind::Power).audited(vec![]).breaks(Rule::C1);
    History::sync().unknown(1).crash(CrashKind::Power).audited(vec![]).then(Event::End).holds();
}

#[test]
fn c1_what_was_acknowledged_before_its_flush_survives_a_kill_and_a_prefix_a_power_cut() {
    let sent = || History::asynchronous().sent(1, 0).sent(2, 1).sent(3, 2);
    sent().crash(CrashKind::Kill).audited(vec![at(1, 0), at(2, 1)]).breaks(Rule::C1);
    sent().crash(CrashKind::Power).audited(vec![at(1, 0), at(2, 1)]).holds();
    sent()
        .then(Event::Flushed { end: 300 })
        .crash(CrashKind::Power)
        .audited(vec![at(1, 0), at(2, 1)])
        .breaks(Rule::C1);
    // The same message, now with another number: 2 is lost, 3 is not.
    let moved = Delivery { offset: 1, ..at(3, 2) };
    let violations = check(&sent().crash(CrashKind::Power).audited(vec![at(1, 0), moved]).events);
    assert!(violations.iter().any(|violation| violation.text.contains("survived")), "{violations:?}");
}

#[test]
fn c1_a_topic_may_be_acknowledged_in_a_way_of_its_own() {
    let history = |acknowledged, own| {
        let topics = [("t".to_owned(), own)].into();
        let history = History::under(Contract { acknowledged, topics, groups: vec![group("g")] });
        history.sent(1, 0).sent(2, 1)
    };
    let sync = || history(Acknowledged::BeforeFlush, Acknowledged::AfterFlush);
    sync().crash(CrashKind::Power).audited(vec![at(1, 0)]).breaks(Rule::C1);
    // Its consumers may see what is lost: that follows the broker.
    let seen = sync().unknown(3).received(vec![at(3, 2)]).crash(CrashKind::Power);
    seen.audited(vec![at(1, 0), at(2, 1)]).holds();
    let asynchronous = || history(Acknowledged::AfterFlush, Acknowledged::BeforeFlush);
    asynchronous().crash(CrashKind::Power).audited(vec![at(1, 0)]).holds();
    asynchronous().crash(CrashKind::Kill).audited(vec![at(1, 0)]).breaks(Rule::C1);
    let seen = asynchronous().received(vec![at(1, 0), at(2, 1)]).crash(CrashKind::Power);
    seen.audited(vec![at(1, 0)]).breaks(Rule::C1);
}

#[test]
fn a_member_that_outlives_a_power_cut_may_hand_out_what_it_holds_until_it_got_something_new() {
    let cut = |outlives| {
        let groups = vec![Group { outlives, ..group("g") }];
        let history = History::new(Acknowledged::BeforeFlush, groups).sent(1, 0).sent(2, 1).unknown(3);
        history.received(vec![at(1, 0)]).crash(CrashKind::Power).audited(vec![at(1, 0)])
    };
    cut(true).received(vec![at(2, 1), at(3, 2)]).then(Event::End).holds();
    cut(false).received(vec![at(2, 1)]).breaks(Rule::C4);
    // The numbers are used again. What has them now is owed to the group.
    let again = || cut(true).sent(4, 1);
    again().received(vec![at(2, 1), at(4, 1)]).then(Event::End).holds();
    again().received(vec![at(2, 1)]).then(Event::End).breaks(Rule::C1);
    let violations = check(&again().received(vec![at(4, 1), at(2, 1)]).events);
    assert!(violations.iter().any(|violation| violation.text.contains("came back")), "{violations:?}");
}

#[test]
fn c1_a_reported_cut_explains_what_lay_behind_it_and_nothing_else() {
    let sent = || History::asynchronous().sent(1, 0).sent(2, 1).sent(3, 2).crash(CrashKind::Kill);
    sent().then(Event::Cut { at: 100 }).audited(vec![at(1, 0)]).holds();
    sent().then(Event::Cut { at: 200 }).audited(vec![at(1, 0)]).breaks(Rule::C1);
}

#[test]
fn c1_retention_explains_what_lay_before_its_bound_and_nothing_else() {
    let sent = || History::sync().sent(1, 0).sent(2, 1).sent(3, 2);
    sent().expired(200).crash(CrashKind::Power).audited(vec![at(3, 2)]).received(vec![at(3, 2)]).holds();
    sent().expired(100).crash(CrashKind::Power).audited(vec![at(3, 2)]).breaks(Rule::C1);
    let of = |topic: &str, queue_id| Event::Expired { topic: Some(topic.into()), queue_id, before: 300 };
    for its in [of("t", None), of("t", Some(queue().queue_id))] {
        sent().then(its).audited_to(vec![], 3).holds();
    }
    for other in [of("u", None), of("t", Some(queue().queue_id + 1))] {
        let lost = sent().then(other).audited_to(vec![], 3);
        assert!(check(&lost.events).iter().all(|violation| violation.rule == Rule::C1));
        assert_eq!(check(&lost.events).len(), 3);
    }
    // A late group gets what is left; the rest is not owed to it.
    sent().expired(200).received(vec![at(3, 2)]).then(Event::End).holds();
    sent().expired(200).then(Event::End).breaks(Rule::C1);
}

#[test]
fn c4_what_nobody_saw_may_have_been_hidden_where_its_topic_hides_what_is_old() {
    let hides = |topic: &str| Event::Expired { topic: Some(topic.into()), queue_id: None, before: 100 };
    let in_doubt = |topic| History::sync().unknown(1).crash(CrashKind::Kill).then(hides(topic));
    in_doubt("t").audited(vec![]).audited(vec![at(1, 0)]).holds();
    in_doubt("u").audited(vec![]).audited(vec![at(1, 0)]).breaks(Rule::C4);
    // Nor does it tell that the topic was deleted.
    in_doubt("t").asked_to_delete().audited(vec![]).audited(vec![at(1, 0)]).holds();
    in_doubt("u").asked_to_delete().audited(vec![]).audited(vec![at(1, 0)]).breaks(Rule::R9);
}

#[test]
fn c4_the_numbers_of_what_retention_removed_are_used_up() {
    let sent = || History::sync().sent(1, 0).sent(2, 1).expired(200).crash(CrashKind::Kill);
    sent().audited_to(vec![], 2).sent(3, 2).holds();
    sent().audited_to(vec![], 0).breaks(Rule::C4);
    sent().sent(3, 1).breaks(Rule::C4);
}

#[test]
fn a_deleted_topic_takes_its_messages_numbers_and_positions_along() {
    let commit = |offset| Call::Commit { group: "g".into(), queue: queue(), offset };
    let positioned = |offset| Event::Positioned { group: "g".into(), queue: queue(), offset, member: None };
    let deleted = || History::sync().sent(1, 0).sent(2, 1).call(commit(2)).ok(Reply::Committed).deleted();
    deleted().sent(3, 0).crash(CrashKind::Kill).audited(vec![at(3, 0)]).then(positioned(0)).holds();
    deleted().crash(CrashKind::Kill).audited(vec![at(1, 0), at(2, 1)]).breaks(Rule::R9);
    deleted().sent(3, 0).crash(CrashKind::Kill).audited(vec![]).breaks(Rule::C1);
    deleted().then(positioned(1)).breaks(Rule::C12);
    // What was sent since is owed to the group, and no more.
    deleted().sent(3, 0).received(vec![at(3, 0)]).then(Event::End).holds();
    deleted().sent(3, 0).then(Event::End).breaks(Rule::C1);
    deleted().then(Event::Rebuilt).audited(vec![at(1, 0), at(2, 1)]).then(Event::End).holds();
    let twice = deleted().then(Event::Rebuilt).received(vec![at(1, 0)]).received(vec![at(1, 0)]);
    twice.sent(3, 2).received(vec![at(3, 2)]).then(Event::End).holds();
}

#[test]
fn c12_a_group_that_committed_nothing_begins_at_the_first_message_that_is_left() {
    let positioned = |offset| Event::Positioned { group: "g".into(), queue: queue(), offset, member: None };
    let left =
        || History::sync().sent(1, 0).sent(2, 1).sent(3, 2).expired(100).audited(vec![at(2, 1), at(3, 2)]);
    left().then(positioned(1)).holds();
    left().then(positioned(2)).breaks(Rule::C12);
}

#[test]
fn a_deletion_that_did_not_return_happened_or_did_not() {
    let asked = || History::sync().sent(1, 0).asked_to_delete().crash(CrashKind::Kill);
    asked().audited(vec![]).sent(2, 0).received(vec![at(2, 0)]).then(Event::End).holds();
    asked().audited(vec![at(1, 0)]).received(vec![at(1, 0)]).then(Event::End).holds();
    // Once an audit has shown whether it happened, that stays.
    asked().audited(vec![at(1, 0)]).crash(CrashKind::Kill).audited(vec![]).breaks(Rule::C1);
    asked().audited(vec![]).crash(CrashKind::Kill).audited(vec![at(1, 0)]).breaks(Rule::R9);
    asked().audited(vec![at(1, 0)]).then(Event::End).breaks(Rule::C1);
    // What retention hides may show again, so its absence shows nothing.
    asked().expired(100).audited_to(vec![], 1).crash(CrashKind::Kill).audited(vec![at(1, 0)]).holds();
}

#[test]
fn c2_nothing_comes_that_was_never_sent_or_that_was_refused() {
    History::sync().received(vec![at(9, 0)]).breaks(Rule::C2);
    let refused =
        History::sync().call(Call::Send(send(1))).then(Event::Fail { op: 1, reason: "full".into() });
    refused.audited(vec![at(1, 0)]).breaks(Rule::C2);
    let elsewhere = Delivery { queue: QueueName { topic: "u".into(), queue_id: 0 }, ..at(1, 0) };
    History::sync().unknown(1).audited(vec![elsewhere]).breaks(Rule::C2);
}

#[test]
fn c3_bytes_are_equal() {
    History::sync().sent(1, 0).received(vec![Delivery { digest: 11, ..at(1, 0) }]).breaks(Rule::C3);
}

#[test]
fn c4_offsets_have_no_gap_no_repeat_and_keep_their_message() {
    History::sync().sent(1, 0).sent(2, 2).audited(vec![at(1, 0), at(2, 2)]).breaks(Rule::C4);
    History::sync().sent(1, 0).sent(2, 0).breaks(Rule::C4);
    // It was lost as the contract allows: its number is free, and it must not come back.
    let lost = || History::asynchronous().sent(1, 0).crash(CrashKind::Power).audited(vec![]);
    lost().sent(2, 0).audited(vec![at(2, 0)]).holds();
    lost().audited(vec![at(1, 0)]).breaks(Rule::C4);
    let absent = History::asynchronous().unknown(1).audited(vec![]);
    absent.crash(CrashKind::Kill).audited(vec![at(1, 0)]).breaks(Rule::C4);
    // Retention hid it, and may show it again.
    let hidden = History::asynchronous().sent(1, 0).expired(100).crash(CrashKind::Power).audited(vec![]);
    hidden.crash(CrashKind::Kill).audited(vec![at(1, 0)]).holds();
}

#[test]
fn c5_one_producers_sends_to_a_queue_keep_their_order() {
    History::asynchronous().unknown(1).unknown(2).audited(vec![at(2, 0), at(1, 1)]).breaks(Rule::C5);
    let other = Send { producer: 7, ..send(2) };
    History::asynchronous().unknown(1).call(Call::Send(other)).audited(vec![at(2, 0), at(1, 1)]).holds();
    let in_batch = |message| Call::Send(Send { batch: Some(1), ..send(message) });
    let batch = || History::asynchronous().call(in_batch(1)).call(in_batch(2));
    batch().audited(vec![at(2, 0), at(1, 1)]).breaks(Rule::C5);
    batch().audited(vec![at(1, 0), at(2, 1)]).holds();
}

#[test]
fn c6_orderly_work_on_a_queue_never_overlaps() {
    let handling = |member, message| Event::Handling { group: "g".into(), member, queue: queue(), message };
    let handled = |member, message| Event::Handled { group: "g".into(), member, queue: queue(), message };
    History::sync().then(handling(1, 1)).then(handling(2, 2)).breaks(Rule::C6);
    History::sync().then(handling(1, 1)).then(handled(1, 1)).then(handling(2, 2)).holds();
    History::sync().then(handling(1, 1)).crash(CrashKind::Kill).then(handling(2, 1)).breaks(Rule::C6);
}

#[test]
fn c7_a_duplicate_needs_a_crash_a_retry_or_a_rebalance() {
    let twice = || History::sync().sent(1, 0).received(vec![at(1, 0)]);
    twice().received(vec![at(1, 0)]).breaks(Rule::C7);
    twice().crash(CrashKind::Stop).received(vec![at(1, 0)]).breaks(Rule::C7);
    twice().crash(CrashKind::Kill).received(vec![at(1, 0)]).holds();
    twice().then(Event::Rebalance { group: "g".into() }).received(vec![at(1, 0)]).holds();
    twice().received(vec![Delivery { times: 1, ..at(1, 0) }]).holds();
    // It is there twice, and was sent once; or was sent again.
    History::sync().sent(1, 0).audited(vec![at(1, 0), at(1, 1)]).breaks(Rule::C7);
    History::sync()
        .unknown(1)
        .sent(1, 1)
        .audited(vec![at(1, 0), at(1, 1)])
        .received(vec![at(1, 0), at(1, 1)])
        .holds();
}

#[test]
fn c8_transactions_are_seen_when_they_are_committed_and_only_then() {
    let half = || History::sync().sent_as(Send { transaction: true, ..send(1) }, 0);
    let deciding = |committed| half().call(Call::Decide { message: 1, committed });
    half().came(0, vec![at(1, 0)]).breaks(Rule::C8);
    deciding(false).ok(Reply::Decided).came(0, vec![at(1, 0)]).breaks(Rule::C8);
    deciding(true).ok(Reply::Decided).then(Event::End).breaks(Rule::C8);
    deciding(true).ok(Reply::DecidedOtherwise).breaks(Rule::C8);
    half().then(Event::End).holds();
    let asked_for = || History::sync().sent_as(Send { transaction: true, asked_for: true, ..send(1) }, 0);
    asked_for().crash(CrashKind::Kill).then(Event::End).breaks(Rule::C8);
    asked_for().call(Call::Decide { message: 1, committed: false }).then(Event::End).holds();
    asked_for().call(Call::Decide { message: 1, committed: true }).then(Event::End).breaks(Rule::C8);
    deciding(true).came(0, vec![at(1, 0)]).then(Event::End).holds();
    deciding(true).ok(Reply::Decided).came(0, vec![at(1, 0)]).then(Event::End).holds();
    deciding(true)
        .ok(Reply::Decided)
        .crash(CrashKind::Kill)
        .came(0, vec![at(1, 0), at(1, 1)])
        .breaks(Rule::C8);
}

#[test]
fn c9_nothing_comes_before_its_time() {
    let delayed = || History::sync().sent_as(Send { not_before_ms: Some(1_000), ..send(1) }, 0);
    delayed().came(999, vec![at(1, 0)]).breaks(Rule::C9);
    delayed().came(1_000, vec![at(1, 0)]).then(Event::End).holds();
    let recalled = |in_time| delayed().call(Call::Recall { message: 1 }).ok(Reply::Recalled { in_time });
    recalled(true).came(1_000, vec![at(1, 0)]).breaks(Rule::C9);
    recalled(true).then(Event::End).holds();
    recalled(false).came(1_000, vec![at(1, 0)]).then(Event::End).holds();
}

#[test]
fn what_waits_comes_and_comes_once_unless_a_crash_explains_it() {
    let waiting = |history: History| history.sent_as(Send { not_before_ms: Some(0), ..send(1) }, 0);
    let sync = || waiting(History::sync());
    let cut = |history: History| history.crash(CrashKind::Power).audited(vec![]);
    sync().then(Event::End).breaks(Rule::C1);
    cut(sync()).then(Event::End).breaks(Rule::C1);
    cut(sync().came(0, vec![at(1, 0)])).then(Event::End).breaks(Rule::C1);
    cut(waiting(History::asynchronous())).then(Event::End).holds();
    cut(waiting(History::asynchronous()).then(Event::Flushed { end: 1 })).then(Event::End).breaks(Rule::C1);
    sync().came(0, vec![at(1, 0), at(1, 1)]).breaks(Rule::C7);
    sync().crash(CrashKind::Stop).came(0, vec![at(1, 0), at(1, 1)]).breaks(Rule::C7);
    sync().crash(CrashKind::Kill).came(0, vec![at(1, 0), at(1, 1)]).then(Event::End).holds();
    sync().came(0, vec![at(2, 0)]).breaks(Rule::C2);
    sync().came(0, vec![Delivery { digest: 0, ..at(1, 0) }]).breaks(Rule::C3);
    sync().came(0, vec![Delivery { times: 1, ..at(1, 0) }]).breaks(Rule::C10);
}

#[test]
fn c10_retry_counts_grow_and_a_message_dies_once() {
    let tried = || {
        History::sync().sent(1, 0).received(vec![Delivery { times: 3, ..at(1, 0) }]).crash(CrashKind::Kill)
    };
    tried().received(vec![Delivery { times: 2, ..at(1, 0) }]).breaks(Rule::C10);
    let dead = || Event::DeadLetter { group: "g".into(), message: 1 };
    tried().then(dead()).then(dead()).breaks(Rule::C10);
    tried().then(dead()).received(vec![Delivery { times: 4, ..at(1, 0) }]).breaks(Rule::C10);
    tried().then(dead()).then(Event::End).holds();
}

#[test]
fn c11_in_broadcasting_every_member_gets_everything() {
    let all = Group { broadcasting: true, members: vec![1, 2], ..group("all") };
    let history = || History::new(Acknowledged::AfterFlush, vec![all.clone()]).sent(1, 0);
    history().received_by("all", 1, 0, vec![at(1, 0)]).then(Event::End).breaks(Rule::C11);
    history()
        .received_by("all", 1, 0, vec![at(1, 0)])
        .received_by("all", 2, 0, vec![at(1, 0)])
        .then(Event::End)
        .holds();
}

#[test]
fn c12_a_group_goes_on_neither_ahead_of_its_commit_nor_behind_the_end() {
    let at_offset = |offset| Event::Positioned { group: "g".into(), queue: queue(), offset, member: None };
    let commit = |offset| Call::Commit { group: "g".into(), queue: queue(), offset };
    let history = || History::sync().call(commit(2)).ok(Reply::Committed);
    history().then(at_offset(3)).breaks(Rule::C12);
    history().then(at_offset(2)).holds();
    history().then(at_offset(0)).holds();
    // The log lost what was committed: the position is clamped to what is left.
    history().unknown(1).audited(vec![at(1, 0)]).then(at_offset(2)).breaks(Rule::C12);
}

#[test]
fn c13_filters_pass_what_they_should() {
    let picky = Group { tags: vec!["a".into()], ..group("picky") };
    let history = |tag: &str| {
        let send = Send { tag: Some(tag.into()), ..send(1) };
        History::new(Acknowledged::AfterFlush, vec![picky.clone()]).sent_as(send, 0)
    };
    history("b").received_by("picky", 0, 0, vec![at(1, 0)]).breaks(Rule::C13);
    history("a").then(Event::End).breaks(Rule::C13);
    history("b").then(Event::End).holds();
}

#[test]
fn c14_a_look_up_finds_its_messages_and_no_others() {
    let history = || History::sync().sent_as(Send { keys: vec!["k".into()], ..send(1) }, 0).sent(2, 1);
    let by_key = || Look::Key { topic: "t".into(), key: "k".into() };
    history().found(by_key(), vec![]).breaks(Rule::C14);
    history().found(by_key(), vec![1, 2]).breaks(Rule::C14);
    history().found(by_key(), vec![1]).holds();
    history().found(Look::Id { message: 2 }, vec![]).breaks(Rule::C14);
}

#[test]
fn c15_after_healing_everything_drains() {
    History::sync().then(Event::Healed).call(Call::Send(send(1))).then(Event::End).breaks(Rule::C15);
    History::sync().then(Event::Healed).unknown(1).then(Event::End).breaks(Rule::C15);
    History::sync().call(Call::Send(send(1))).then(Event::End).holds();
}

#[test]
fn r1_nothing_is_acknowledged_after_a_failed_flush() {
    History::sync().then(Event::FlushFailed).sent(1, 0).breaks(Rule::R1);
    History::sync().then(Event::FlushFailed).crash(CrashKind::Kill).sent(1, 0).holds();
}

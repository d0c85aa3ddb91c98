//! Small histories of handlers: for each rule those that keep it, and those that break it.

use crate::checker::{Rule, check};
use crate::history::{
    Acknowledged, Call, Contract, CrashKind, Delivery, Event, Group, HandlerEnd, Handlers, QueueName, Reply,
    Send,
};

const RETRIES: u32 = 2;

struct History {
    events: Vec<Event>,
    op: u64,
}

fn queue(topic: &str) -> QueueName {
    QueueName { topic: topic.to_owned(), queue_id: 0 }
}

fn of(group: Group) -> History {
    let contract =
        Contract { acknowledged: Acknowledged::AfterFlush, topics: [].into(), groups: vec![group] };
    History { events: vec![Event::Begin { harness: "test".into(), seed: 0, contract }], op: 0 }
}

fn group(ordered: bool) -> Group {
    let handlers = Some(Handlers { ordered, max_retries: RETRIES });
    Group { name: "g".into(), handlers, ..Group::default() }
}

fn side_by_side() -> History {
    of(group(false)).sent(0).sent(1)
}

fn in_order() -> History {
    of(group(true)).sent(0).sent(1)
}

fn everybody() -> History {
    of(Group { broadcasting: true, members: vec![1, 2], ..group(false) }).sent(0).sent(1)
}

impl History {
    fn then(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }

    fn call(mut self, call: Call, reply: Reply) -> Self {
        self.op += 1;
        let op = self.op;
        self.then(Event::Invoke { op, call }).then(Event::Ok { op, reply })
    }

    /// A message with the number of its offset.
    fn sent(self, message: u64) -> Self {
        self.sent_at(message, message)
    }

    fn sent_at(self, message: u64, offset: u64) -> Self {
        let send = Send { message, topic: "t".into(), ..Send::default() };
        self.call(Call::Send(send), Reply::Sent { queue: queue("t"), offset, log: None })
    }

    fn begins_at(self, member: u32, message: u64, topic: &str, offset: u64, times: u32) -> Self {
        let delivery = Delivery { message, queue: queue(topic), offset, digest: 0, log: None, times };
        let reply = Reply::Received { at_ms: 0, deliveries: vec![delivery] };
        self.call(Call::Receive { group: "g".into(), member }, reply)
    }

    fn ends_at(self, member: u32, message: u64, topic: &str, offset: u64, end: HandlerEnd) -> Self {
        self.then(Event::Returned { group: "g".into(), member, queue: queue(topic), offset, message, end })
    }

    fn begins(self, member: u32, message: u64) -> Self {
        self.begins_at(member, message, "t", message, 0)
    }

    fn ends(self, member: u32, message: u64, end: HandlerEnd) -> Self {
        self.ends_at(member, message, "t", message, end)
    }

    fn handled(self, member: u32, message: u64) -> Self {
        self.begins(member, message).ends(member, message, HandlerEnd::Done)
    }

    fn retried(self, message: u64, offset: u64, times: u32, end: HandlerEnd) -> Self {
        let retries = "%RETRY%g";
        self.begins_at(1, message, retries, offset, times).ends_at(1, message, retries, offset, end)
    }

    fn positioned(self, member: Option<u32>, offset: u64) -> Self {
        self.then(Event::Positioned { group: "g".into(), queue: queue("t"), offset, member })
    }

    fn gone(self, member: u32) -> Self {
        self.then(Event::MemberGone { group: "g".into(), member })
    }

    fn dead(self, message: u64) -> Self {
        self.then(Event::DeadLetter { group: "g".into(), message })
    }

    #[track_caller]
    fn breaks(self, rule: Rule) {
        let violations = check(&self.events);
        assert!(violations.first().is_some_and(|first| first.rule == rule), "{rule} holds: {violations:?}");
    }

    #[track_caller]
    fn holds(self) {
        assert_eq!(check(&self.events), []);
    }
}

#[test]
fn c1_each_message_is_handled_to_the_end_or_a_dead_letter() {
    side_by_side().handled(1, 0).handled(1, 1).then(Event::End).holds();
    side_by_side().handled(1, 0).begins(1, 1).then(Event::End).breaks(Rule::C1);
    side_by_side().handled(1, 0).begins(1, 1).gone(1).handled(2, 1).then(Event::End).holds();
    let rejected = || side_by_side().handled(1, 0).begins(1, 1).ends(1, 1, HandlerEnd::Rejected);
    rejected().then(Event::End).breaks(Rule::C1);
    rejected().dead(1).then(Event::End).holds();
}

#[test]
fn c5_and_c6_in_order_none_is_left_out_and_no_two_are_worked_on() {
    in_order().handled(1, 0).handled(2, 1).then(Event::End).holds();
    in_order().begins(1, 0).begins(2, 1).breaks(Rule::C6);
    in_order().handled(1, 1).breaks(Rule::C5);
    in_order().begins(1, 0).gone(1).handled(2, 0).handled(2, 1).holds();
    in_order().begins(1, 0).gone(2).begins(2, 0).breaks(Rule::C6);
    let failed = || in_order().begins(1, 0).ends(1, 0, HandlerEnd::Failed);
    failed().handled(1, 0).handled(1, 1).holds();
    failed().handled(1, 1).breaks(Rule::C5);
    side_by_side().begins(1, 0).begins(2, 1).holds();
    // A member that is sent back waits for its own handler.
    let created_again =
        in_order().call(Call::Delete { topic: "t".into() }, Reply::Deleted).sent_at(2, 0).sent_at(3, 1);
    let first = created_again.begins_at(1, 2, "t", 0, 0).ends_at(1, 2, "t", 0, HandlerEnd::Done);
    let second = first.begins_at(1, 3, "t", 1, 0).then(Event::Crash { kind: CrashKind::Kill });
    second.begins_at(1, 2, "t", 0, 0).breaks(Rule::C6);
    // Members that get everything each have an order of their own.
    let both = of(Group { broadcasting: true, members: vec![1, 2], ..group(true) }).sent(0).sent(1);
    both.begins(1, 0).begins(2, 0).ends(2, 0, HandlerEnd::Done).begins(2, 1).holds();
}

#[test]
fn c7_a_second_delivery_to_a_member_is_explained_by_its_end_or_a_rebalance() {
    side_by_side().handled(1, 0).handled(1, 0).breaks(Rule::C7);
    side_by_side().handled(1, 0).handled(2, 0).holds();
    side_by_side().handled(1, 0).gone(1).handled(1, 0).holds();
    side_by_side().handled(1, 0).then(Event::Rebalance { group: "g".into() }).handled(1, 0).holds();
    side_by_side().handled(1, 0).then(Event::Crash { kind: CrashKind::Kill }).handled(1, 0).holds();
    everybody().handled(1, 0).handled(2, 0).holds();
}

#[test]
fn c10_each_failure_makes_one_retry_and_the_last_one_a_dead_letter() {
    let failed = || side_by_side().begins(1, 0).ends(1, 0, HandlerEnd::Failed);
    failed().retried(0, 0, 1, HandlerEnd::Failed).retried(0, 1, 2, HandlerEnd::Rejected).dead(0).holds();
    failed().retried(0, 0, 2, HandlerEnd::Done).breaks(Rule::C10);
    failed().retried(0, 0, 0, HandlerEnd::Done).breaks(Rule::C10);
    failed().retried(0, 0, 1, HandlerEnd::Done).retried(0, 1, 1, HandlerEnd::Done).breaks(Rule::C10);
    failed().dead(0).breaks(Rule::C10);
    side_by_side().begins(1, 0).retried(0, 0, 1, HandlerEnd::Done).breaks(Rule::C10);
    let broken = || failed().then(Event::Crash { kind: CrashKind::Kill });
    broken().retried(0, 0, 1, HandlerEnd::Done).retried(0, 1, 1, HandlerEnd::Done).holds();
    let rejected = || side_by_side().begins(1, 0).ends(1, 0, HandlerEnd::Rejected).dead(0);
    rejected().holds();
    rejected().dead(0).breaks(Rule::C10);
    // The member that gave up on it did not live to say so: another one does it again.
    rejected().gone(1).begins(2, 0).ends(2, 0, HandlerEnd::Rejected).dead(0).holds();
}

#[test]
fn c11_each_member_that_gets_everything_handles_everything() {
    everybody().handled(1, 0).handled(1, 1).handled(2, 0).then(Event::End).breaks(Rule::C11);
    everybody().handled(1, 0).handled(1, 1).handled(2, 0).handled(2, 1).then(Event::End).holds();
    let begun = everybody().handled(1, 0).handled(1, 1).handled(2, 0).begins(2, 1);
    begun.gone(2).then(Event::End).breaks(Rule::C11);
}

#[test]
fn c12_what_is_committed_was_handled_without_a_gap() {
    side_by_side().handled(1, 0).positioned(None, 1).holds();
    side_by_side().begins(1, 0).positioned(None, 1).breaks(Rule::C12);
    side_by_side().begins(1, 0).handled(1, 1).positioned(None, 2).breaks(Rule::C12);
    side_by_side().begins(1, 0).handled(1, 1).ends(1, 0, HandlerEnd::Failed).positioned(None, 2).holds();
    everybody().handled(1, 0).positioned(Some(1), 1).holds();
    everybody().handled(1, 0).positioned(Some(2), 1).breaks(Rule::C12);
}

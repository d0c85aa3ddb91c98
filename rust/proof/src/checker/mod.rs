//! The one checker of all harnesses: reads a history line by line and says which rule it breaks.
//!
//! # Source
//! docs/durability.md 1 and 3.

mod group;
mod handlers;
mod later;
mod ledger;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use group::Members;
use later::Later;
use ledger::{Ledger, Place};

use crate::history::{Call, Contract, CrashKind, Delivery, Event, Group, Look, Reply, Send};

/// A rule that a history must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Every acknowledged message is there, and is delivered to every group.
    C1,
    /// Nothing is delivered that was never sent.
    C2,
    /// Bytes are equal.
    C3,
    /// A queue's offsets have no gap, no repeat and never change their message.
    C4,
    /// One producer's sends to one queue keep their order.
    C5,
    /// Orderly consumption never overlaps.
    C6,
    /// No duplicate without a crash, a retry or a rebalance that explains it.
    C7,
    /// Transactions: rolled back never seen, committed never missing, half never seen.
    C8,
    /// Never before the delivery time, nor after a recall in time.
    C9,
    /// Retry counts grow, dead letter once.
    C10,
    /// In broadcasting every member gets every message.
    C11,
    /// A group never continues ahead of what was committed, nor behind the end of a queue.
    C12,
    /// Filters pass what they should and nothing else.
    C13,
    /// Look-up by key, unique key and offset id finds it.
    C14,
    /// After healing everything drains.
    C15,
    /// After a failed flush nothing is acknowledged.
    R1,
    /// Damage before the durable mark refuses the start and is named; a torn tail is cut and counted.
    R4,
    /// After a recovery consume queues equal a rebuild from the log.
    R6,
    /// A slave follows its master after whatever ended either, and has the same log.
    R8,
    /// Metadata that was acknowledged is there after a start, and what was deleted is not: it was durable before the answer.
    R9,
    /// A store opens again, and none of its threads panics.
    Alive,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A rule that a history breaks, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub rule: Rule,
    /// What was seen, in words.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.text)
    }
}

/// Counts of a history, as a harness prints them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub sent: u64,
    pub acknowledged: u64,
    /// Acknowledged and gone, where the contract allows it.
    pub lost_as_allowed: u64,
    /// How often the process ended, in any way.
    pub crashes: u64,
    /// Messages that had to wait, and came.
    pub stored_again: u64,
    /// Messages that orderly members worked on.
    pub worked_on: u64,
}

/// Reads a history.
#[derive(Debug, Default)]
pub struct Checker {
    violations: Vec<Violation>,
    ledger: Ledger,
    later: Later,
    groups: BTreeMap<String, Members>,
    pending: HashMap<u64, Call>,
    worked_on: u64,
    healed: bool,
}

pub(crate) type Wrong = Vec<Violation>;

pub(crate) fn wrong(violations: &mut Wrong, rule: Rule, text: impl Into<String>) {
    violations.push(Violation { rule, text: text.into() });
}

/// Checks a whole history.
pub fn check(events: &[Event]) -> Vec<Violation> {
    let mut checker = Checker::default();
    events.iter().for_each(|event| checker.observe(event));
    checker.violations
}

/// A group by its name. One that the contract does not name is checked for what it does, but need not get everything.
fn group_of<'a>(groups: &'a mut BTreeMap<String, Members>, name: &str) -> &'a mut Members {
    groups.entry(name.to_owned()).or_insert_with(|| Members::named(name))
}

impl Checker {
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    pub fn counts(&self) -> Counts {
        let (stored_again, worked_on) = (self.later.came(), self.worked_on);
        Counts { stored_again, worked_on, ..self.ledger.counts() }
    }

    /// Messages that had to wait, must come or be asked for, and have not been seen; and those that handlers have not ended, of each group.
    pub fn missing(&self) -> usize {
        let unhandled: usize = self.groups.values().map(|group| group.missing(&self.ledger)).sum();
        self.later.missing() + unhandled
    }

    /// Messages of some sends that had to wait, must come, and have not been seen.
    pub(crate) fn missing_of(&self, is_meant: impl Fn(&Send) -> bool) -> usize {
        self.later.missing_of(is_meant)
    }

    /// Whether a call has not ended yet, as far as the history was read.
    pub(crate) fn is_pending(&self, op: u64) -> bool {
        self.pending.contains_key(&op)
    }

    /// How many members of a group have joined.
    pub(crate) fn joined(&self, group: &str) -> usize {
        self.groups.get(group).map_or(0, Members::count_joined)
    }

    /// Reads the next line.
    pub fn observe(&mut self, event: &Event) {
        let wrongs = &mut self.violations;
        match event {
            Event::Begin { contract, .. } => self.begin(contract),
            Event::Invoke { op, call } => self.invoke(*op, call),
            Event::Ok { op, reply } => {
                if let Some(call) = self.pending.remove(op) {
                    self.ok(&call, reply);
                }
            }
            Event::Fail { op, reason } => self.failed(*op, true, reason),
            Event::Unknown { op, reason } => self.failed(*op, false, reason),
            Event::Flushed { end } => self.ledger.flushed(*end),
            Event::FlushFailed => self.ledger.flush_failed = true,
            Event::Crash { kind } => self.crash(*kind),
            Event::Cut { at } => self.ledger.cut(*at),
            Event::Expired { topic, queue_id, before } => {
                self.ledger.expired(topic.as_deref(), *queue_id, *before);
            }
            Event::Rebuilt => self.ledger.rebuilt(),
            Event::Healed => self.healed = true,
            Event::End => self.end(),
            Event::Joined { group, member } => group_of(&mut self.groups, group).joined(*member),
            Event::Rebalance { group } => group_of(&mut self.groups, group).rebalance(),
            Event::Handling { group, member, queue, message } => {
                group_of(&mut self.groups, group).handling(wrongs, *member, queue, *message);
            }
            Event::Handled { group, queue, .. } => {
                self.worked_on += 1;
                group_of(&mut self.groups, group).handled(queue);
            }
            Event::Returned { group, member, queue, offset, message, end } => {
                let place = Place { queue: queue.clone(), offset: *offset };
                let is_deleted = self.ledger.is_deleted(*message);
                let group = group_of(&mut self.groups, group);
                let is_known = group.returned(*member, &place, *message, *end, is_deleted);
                self.worked_on += u64::from(is_known);
            }
            Event::MemberGone { group, member } => group_of(&mut self.groups, group).member_gone(*member),
            Event::DeadLetter { group, message } => {
                group_of(&mut self.groups, group).dead_letter(wrongs, *message);
            }
            Event::Positioned { group, queue, offset, member } => {
                // Where retention has removed the first messages, a group begins behind them.
                if *offset > self.ledger.audited_start(queue) {
                    let end = self.ledger.audited_end(queue);
                    group_of(&mut self.groups, group).positioned(wrongs, *member, queue, *offset, end);
                }
            }
        }
    }

    fn begin(&mut self, contract: &Contract) {
        self.ledger.acknowledged = contract.acknowledged;
        self.ledger.acknowledged_of.clone_from(&contract.topics);
        let named = |group: &Group| (group.name.clone(), Members::new(group.clone()));
        self.groups = contract.groups.iter().map(named).collect();
    }

    /// A call came back with an error. `is_certain` says that it had no effect.
    fn failed(&mut self, op: u64, is_certain: bool, reason: &str) {
        let Some(Call::Send(send)) = self.pending.remove(&op) else { return };
        if !Later::takes(&send) {
            self.ledger.ended(send.message, is_certain);
        } else if is_certain {
            self.later.refused(&send);
        }
        if self.healed {
            let text = format!("message {} was not sent after healing: {reason}", send.message);
            wrong(&mut self.violations, Rule::C15, text);
        }
    }

    fn crash(&mut self, kind: CrashKind) {
        self.ledger.crash(kind);
        self.later.crash(kind);
        self.groups.values_mut().for_each(|group| group.crash(kind));
    }

    fn invoke(&mut self, op: u64, call: &Call) {
        match call {
            Call::Send(send) if Later::takes(send) => self.later.invoked(send),
            Call::Send(send) => self.ledger.invoked(send),
            Call::Decide { message, committed } => self.later.decided(*message, *committed, false),
            Call::Recall { message } => self.later.recall(*message),
            Call::Commit { group, queue, offset } => group_of(&mut self.groups, group).commit(queue, *offset),
            Call::Delete { topic } => self.ledger.delete(topic),
            Call::Receive { .. } | Call::Audit | Call::ReadLater | Call::Find { .. } => {}
        }
        self.pending.insert(op, call.clone());
    }

    fn ok(&mut self, call: &Call, reply: &Reply) {
        let wrongs = &mut self.violations;
        match (call, reply) {
            (Call::Send(send), Reply::Sent { log, .. }) if Later::takes(send) => {
                self.ledger.check_acknowledged(wrongs, send.message);
                self.later.acknowledged(send, log.map(|log| log.start));
            }
            (Call::Send(send), Reply::Sent { queue, offset, log }) => {
                let place = Place { queue: queue.clone(), offset: *offset };
                self.ledger.acknowledged(wrongs, send.message, &place, *log);
            }
            (Call::Receive { group, member }, Reply::Received { deliveries, .. }) => {
                self.received(group, *member, deliveries);
            }
            (Call::Audit, Reply::Audited { deliveries, ends }) => {
                let in_flight = |message: u64| {
                    let sends = self.pending.values();
                    sends.into_iter().any(|call| matches!(call, Call::Send(send) if send.message == message))
                };
                let end = later::end_of(deliveries).max(self.ledger.flushed_to());
                self.later.audited(end, |topic| self.ledger.acknowledges(topic));
                self.ledger.audited(wrongs, deliveries, ends, in_flight);
            }
            (Call::Find { by }, Reply::Found { messages }) => self.found(by, messages),
            (Call::ReadLater, Reply::Came { arrivals }) => {
                arrivals.iter().for_each(|(stored_at_ms, delivery)| self.came(*stored_at_ms, delivery));
            }
            (Call::Commit { .. }, Reply::Committed) => {}
            (Call::Decide { message, committed }, Reply::Decided) => {
                self.later.decided(*message, *committed, true);
            }
            (Call::Decide { message, committed }, Reply::DecidedOtherwise) => {
                self.later.decided_otherwise(wrongs, *message, *committed);
            }
            (Call::Recall { message }, Reply::Recalled { in_time }) if *in_time => {
                self.later.recalled(*message)
            }
            (Call::Recall { .. }, Reply::Recalled { .. }) => {}
            (Call::Delete { topic }, Reply::Deleted) => {
                self.ledger.deleted(topic);
                self.groups.values_mut().for_each(|group| group.forget_topic(topic));
            }
            _ => wrong(wrongs, Rule::Alive, format!("{call:?} was answered by {reply:?}")),
        }
    }

    /// A member of a group got messages.
    fn received(&mut self, group: &str, member: u32, deliveries: &[Delivery]) {
        let wrongs = &mut self.violations;
        let group = group_of(&mut self.groups, group);
        for delivery in deliveries {
            let gone_at = self.ledger.gone_at(delivery.message);
            if gone_at.is_some_and(|gone_at| group.may_hold(&delivery.queue, gone_at)) {
                continue; // it came before the power cut
            }
            let (is_retry, is_deleted) =
                (group.is_retry(&delivery.queue), self.ledger.is_deleted(delivery.message));
            if is_deleted && group.has_handlers() {
                // It was pulled before its topic was deleted. A copy may be in the retry topic since.
                if is_retry {
                    group.received_late(member, delivery);
                }
                continue;
            }
            if is_retry {
                self.ledger.delivered_again(wrongs, delivery);
            } else {
                self.ledger.delivered(wrongs, delivery);
            }
            group.received(wrongs, member, delivery, self.ledger.message(delivery.message));
        }
    }

    /// A message that had to wait was read.
    fn came(&mut self, stored_at_ms: i64, delivery: &Delivery) {
        let wrongs = &mut self.violations;
        if self.later.has(delivery.message, &delivery.queue.topic) {
            self.later.received(wrongs, delivery, stored_at_ms);
        } else {
            let (number, queue) = (delivery.message, &delivery.queue);
            wrong(wrongs, Rule::C2, format!("message {number} in {queue} was never sent there"));
        }
    }

    fn found(&mut self, by: &Look, found: &[u64]) {
        let wrongs = &mut self.violations;
        let fits = |number: u64| match (by, self.ledger.message(number)) {
            (_, None) => false,
            (Look::Id { message }, _) => *message == number,
            (Look::Key { topic, key }, Some(message)) => {
                message.send.topic == *topic && message.send.keys.contains(key)
            }
        };
        for &message in found.iter().filter(|&&message| !fits(message)) {
            wrong(
                wrongs,
                Rule::C14,
                format!("message {message} was found by {by:?}, which does not match it"),
            );
        }
        for (number, _) in self.ledger.owed().filter(|(number, _)| fits(*number)) {
            if !found.contains(&number) {
                wrong(wrongs, Rule::C14, format!("message {number} was not found by {by:?}"));
            }
        }
    }

    fn end(&mut self) {
        let wrongs = &mut self.violations;
        self.ledger.check_order(wrongs);
        self.later.end(wrongs);
        for group in self.groups.values() {
            group.end(wrongs, &self.ledger);
        }
        if self.healed && !self.pending.is_empty() {
            let mut open: Vec<_> = self.pending.keys().collect();
            open.sort();
            wrong(wrongs, Rule::C15, format!("calls that never returned: {open:?}"));
        }
    }
}

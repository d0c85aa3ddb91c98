//! What a consumer group got.

use std::collections::{BTreeMap, BTreeSet};

use super::handlers::{Handled, Place};
use super::ledger::{Ledger, Message};
use super::{Rule, Wrong, wrong};
use crate::history::{CrashKind, Delivery, Group, HandlerEnd, QueueName};

/// The last delivery of a message.
#[derive(Debug, Clone, Copy)]
struct Got {
    era: u64,
    times: u32,
    offset: u64,
}

#[derive(Debug)]
pub(super) struct Members {
    group: Group,
    /// Whether the contract names it: then it must get everything.
    is_owed: bool,
    /// By message, and in broadcasting by member.
    got: BTreeMap<(u64, u32), Got>,
    /// Grows with each event that explains a second delivery: a crash, a rebalance.
    era: u64,
    committed: BTreeMap<QueueName, u64>,
    /// When the newest of the messages was sent that it got of each queue, counted in lines of the history.
    newest: BTreeMap<QueueName, u64>,
    dead: BTreeSet<u64>,
    /// Which member works on which message of a queue. Members outlive the process that serves them.
    at_work: BTreeMap<QueueName, (u32, u64)>,
    /// What its handlers do, if it has any.
    handled: Option<Handled>,
    joined: BTreeSet<u32>,
}

impl Members {
    pub(super) fn new(group: Group) -> Self {
        Self { is_owed: true, ..Self::of(group) }
    }

    pub(super) fn named(name: &str) -> Self {
        Self::of(Group { name: name.to_owned(), ..Group::default() })
    }

    fn of(group: Group) -> Self {
        Self {
            handled: group.handlers.map(|handlers| Handled::new(&group, handlers)),
            group,
            is_owed: false,
            got: BTreeMap::new(),
            era: 0,
            committed: BTreeMap::new(),
            newest: BTreeMap::new(),
            dead: BTreeSet::new(),
            at_work: BTreeMap::new(),
            joined: BTreeSet::new(),
        }
    }

    pub(super) fn joined(&mut self, member: u32) {
        self.joined.insert(member);
    }

    pub(super) fn count_joined(&self) -> usize {
        self.joined.len()
    }

    pub(super) fn crash(&mut self, kind: CrashKind) {
        self.era += u64::from(kind != CrashKind::Stop);
        if let Some(handled) = &mut self.handled {
            handled.broker_ended();
        }
    }

    pub(super) fn member_gone(&mut self, member: u32) {
        self.era += 1;
        if let Some(handled) = &mut self.handled {
            handled.gone(member);
        }
    }

    /// How a handler ended; false in a group without them.
    pub(super) fn returned(
        &mut self,
        member: u32,
        place: &Place,
        message: u64,
        end: HandlerEnd,
        is_deleted: bool,
    ) -> bool {
        let Some(handled) = &mut self.handled else { return false };
        let is_known = handled.returned(member, place, message, end);
        if is_deleted && !is_known {
            handled.returned_late(message, end);
        }
        is_known
    }

    pub(super) const fn has_handlers(&self) -> bool {
        self.handled.is_some()
    }

    /// A handler begins with a copy of a message whose topic was deleted.
    pub(super) fn received_late(&mut self, member: u32, delivery: &Delivery) {
        if let Some(handled) = &mut self.handled {
            handled.received_late(member, delivery);
        }
    }

    /// Whether a queue is that of the group's retries.
    pub(super) fn is_retry(&self, queue: &QueueName) -> bool {
        self.handled.as_ref().is_some_and(|handled| handled.retry_topic == queue.topic)
    }

    /// Messages that its handlers must still bring to an end.
    pub(super) fn missing(&self, ledger: &Ledger) -> usize {
        let missing = |handled: &Handled| {
            let owed = ledger.owed().filter(|(_, message)| self.wants(message));
            owed.filter(|(number, _)| handled.missing(*number).is_some()).count()
        };
        self.handled.as_ref().map_or(0, missing)
    }

    pub(super) fn rebalance(&mut self) {
        self.era += 1;
    }

    pub(super) fn commit(&mut self, queue: &QueueName, offset: u64) {
        let committed = self.committed.entry(queue.clone()).or_default();
        *committed = offset.max(*committed);
    }

    /// Whether the group may still hold messages of a queue that it got before an audit found them gone.
    pub(super) fn may_hold(&self, queue: &QueueName, gone_at: u64) -> bool {
        self.group.outlives && self.newest.get(queue).is_none_or(|&newest| newest < gone_at)
    }

    /// Forgets what was committed for a deleted topic.
    pub(super) fn forget_topic(&mut self, topic: &str) {
        self.committed.retain(|queue, _| queue.topic != topic);
        if let Some(handled) = &mut self.handled {
            handled.forget_topic(topic);
        }
    }

    pub(super) fn positioned(
        &self,
        wrongs: &mut Wrong,
        member: Option<u32>,
        queue: &QueueName,
        offset: u64,
        end: Option<u64>,
    ) {
        if let Some(handled) = &self.handled {
            return handled.positioned(wrongs, member, queue, offset);
        }
        let name = &self.group.name;
        let committed = self.committed.get(queue).copied().unwrap_or(0);
        if offset > committed {
            wrong(
                wrongs,
                Rule::C12,
                format!("{name} continues at {offset} of {queue}, {committed} was committed"),
            );
        }
        if let Some(end) = end.filter(|&end| offset > end) {
            wrong(wrongs, Rule::C12, format!("{name} continues at {offset} of {queue}, which ends at {end}"));
        }
    }

    pub(super) fn handling(&mut self, wrongs: &mut Wrong, member: u32, queue: &QueueName, message: u64) {
        if let Some((other, former)) = self.at_work.insert(queue.clone(), (member, message)) {
            let text = format!(
                "{} works on message {message} of {queue} in member {member} while member {other} works on {former}",
                self.group.name
            );
            wrong(wrongs, Rule::C6, text);
        }
    }

    pub(super) fn handled(&mut self, queue: &QueueName) {
        self.at_work.remove(queue);
    }

    pub(super) fn dead_letter(&mut self, wrongs: &mut Wrong, message: u64) {
        if let Some(handled) = &mut self.handled {
            return handled.dead_letter(wrongs, message);
        }
        if !self.dead.insert(message) {
            wrong(
                wrongs,
                Rule::C10,
                format!("message {message} is a dead letter of {} twice", self.group.name),
            );
        }
    }

    pub(super) fn received(
        &mut self,
        wrongs: &mut Wrong,
        member: u32,
        delivery: &Delivery,
        message: Option<&Message>,
    ) {
        let number = delivery.message;
        if let Some(message) = message.filter(|_| self.group.outlives) {
            let newest = self.newest.entry(delivery.queue.clone()).or_default();
            *newest = message.invoked_at.max(*newest);
        }
        let name = &self.group.name;
        if message.is_some_and(|message| !self.wants(message)) {
            wrong(
                wrongs,
                Rule::C13,
                format!("message {number} does not pass the filter of {name}, which got it"),
            );
        }
        if let Some(handled) = &mut self.handled {
            return handled.received(wrongs, member, delivery, self.era);
        }
        if self.dead.contains(&number) {
            wrong(
                wrongs,
                Rule::C10,
                format!("message {number} was delivered to {name} after it was a dead letter"),
            );
        }
        let key = (number, if self.group.broadcasting { member } else { 0 });
        let now = Got { era: self.era, times: delivery.times, offset: delivery.offset };
        let Some(former) = self.got.insert(key, now) else { return };
        if now.times < former.times {
            let text = format!(
                "message {number} came to {name} with delivery count {} after {}",
                now.times, former.times
            );
            wrong(wrongs, Rule::C10, text);
        }
        let was_sent_twice =
            former.offset != now.offset && message.is_some_and(|message| message.attempts > 1);
        let may_come_again = message.is_some_and(|message| message.may_come_again);
        if former.era == now.era && now.times <= former.times && !was_sent_twice && !may_come_again {
            wrong(
                wrongs,
                Rule::C7,
                format!("message {number} was delivered twice to {name}, and nothing explains it"),
            );
        }
    }

    fn wants(&self, message: &Message) -> bool {
        let (topics, tags) = (&self.group.topics, &self.group.tags);
        let has_tag = || message.send.tag.as_ref().is_some_and(|tag| tags.contains(tag));
        (topics.is_empty() || topics.contains(&message.send.topic)) && (tags.is_empty() || has_tag())
    }

    /// Checks that the group got everything that it must get.
    pub(super) fn end(&self, wrongs: &mut Wrong, ledger: &Ledger) {
        if !self.is_owed {
            return;
        }
        let name = &self.group.name;
        if let Some(handled) = &self.handled {
            for (number, _) in ledger.owed().filter(|(_, message)| self.wants(message)) {
                if let Some((rule, text)) = handled.missing(number) {
                    wrong(wrongs, rule, text);
                }
            }
            return;
        }
        for (number, _) in
            ledger.owed().filter(|(number, message)| self.wants(message) && !self.dead.contains(number))
        {
            if self.group.broadcasting {
                for member in
                    self.group.members.iter().filter(|&&member| !self.got.contains_key(&(number, member)))
                {
                    wrong(
                        wrongs,
                        Rule::C11,
                        format!("message {number} did not come to member {member} of {name}"),
                    );
                }
            } else if !self.got.contains_key(&(number, 0)) {
                let rule = if self.group.tags.is_empty() { Rule::C1 } else { Rule::C13 };
                wrong(wrongs, rule, format!("message {number} did not come to {name}"));
            }
        }
    }
}

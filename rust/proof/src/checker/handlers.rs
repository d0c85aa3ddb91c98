//! What the handlers of a group did: side by side, in order, or each member with everything.
//!
//! A member notes a delivery before its handler begins, and the end of the handler before the client learns it. So what a history shows
//! to overlap did overlap, and what was committed, sent back or given up was noted before.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rocketpy_model::system;

pub(super) use super::ledger::Place;
use super::{Rule, Wrong, wrong};
use crate::history::{Delivery, Group, HandlerEnd, Handlers, QueueName};

/// A member in broadcasting; elsewhere all members are one.
type Reader = u32;

/// Offsets of a queue whose handlers have ended.
#[derive(Debug, Default)]
struct Ended {
    /// All before this one.
    next: u64,
    above: BTreeSet<u64>,
}

impl Ended {
    fn insert(&mut self, offset: u64) {
        if offset >= self.next {
            self.above.insert(offset);
        }
        while self.above.remove(&self.next) {
            self.next += 1;
        }
    }
}

/// The handlers of a group, and what became of its messages.
#[derive(Debug)]
pub(super) struct Handled {
    name: String,
    pub(super) retry_topic: String,
    handlers: Handlers,
    /// In broadcasting, those that must get everything.
    members: Option<Vec<u32>>,
    /// Messages that handlers have, by member and place, with how often each had come before.
    at_work: BTreeMap<(u32, Place, u64), u32>,
    /// In which era a place was last delivered, and to which member. A retry in its place takes it out.
    delivered: HashMap<(Reader, Place), (u64, u32)>,
    ended: BTreeMap<(Reader, QueueName), Ended>,
    done: BTreeSet<(Reader, u64)>,
    /// Copies that came, by message and how often it had come before.
    copies: HashMap<(u64, u32), BTreeSet<Place>>,
    /// Failed handlers, by message and how often it had come before: each makes one copy.
    failed: HashMap<(u64, u32), u64>,
    /// Handlers that made a dead letter of a message.
    rejected: HashMap<u64, u64>,
    dead: HashMap<u64, u64>,
    /// Topics that were deleted. After a crash of the broker, readers of the later ones are sent back to where it knows the group.
    renewed: BTreeSet<String>,
    /// Ends of brokers: each explains that a copy is stored twice, whose send was not answered or which waited for its time.
    broker_ends: u64,
}

impl Handled {
    pub(super) fn new(group: &Group, handlers: Handlers) -> Self {
        Self {
            name: group.name.clone(),
            retry_topic: system::retry_topic(&group.name),
            handlers,
            members: group.broadcasting.then(|| group.members.clone()),
            at_work: BTreeMap::new(),
            delivered: HashMap::new(),
            ended: BTreeMap::new(),
            done: BTreeSet::new(),
            copies: HashMap::new(),
            failed: HashMap::new(),
            rejected: HashMap::new(),
            dead: HashMap::new(),
            renewed: BTreeSet::new(),
            broker_ends: 0,
        }
    }

    fn reader(&self, member: u32) -> Reader {
        if self.members.is_some() { member } else { 0 }
    }

    fn next_of(&self, reader: Reader, queue: &QueueName) -> u64 {
        self.ended.get(&(reader, queue.clone())).map_or(0, |ended| ended.next)
    }

    pub(super) const fn broker_ended(&mut self) {
        self.broker_ends += 1;
    }

    pub(super) fn gone(&mut self, member: u32) {
        self.at_work.retain(|(other, ..), _| *other != member);
    }

    /// A handler begins.
    pub(super) fn received(&mut self, wrongs: &mut Wrong, member: u32, delivery: &Delivery, era: u64) {
        let Delivery { message, queue, offset, times, .. } = delivery;
        let (name, reader) = (self.name.clone(), self.reader(member));
        let place = Place { queue: queue.clone(), offset: *offset };
        if self.handlers.ordered {
            self.check_order(wrongs, member, &place);
        }
        // Two members may have a queue for a while: a broker that was just started does not know all of them.
        let is_sent_back = self.broker_ends > 0 && self.renewed.contains(&queue.topic);
        if self.delivered.insert((reader, place.clone()), (era, member)) == Some((era, member))
            && !is_sent_back
        {
            let text = format!(
                "message {message} at {offset} of {queue} was delivered twice to {name}, and nothing explains it"
            );
            wrong(wrongs, Rule::C7, text);
        }
        self.check_count(wrongs, *message, *times, &place);
        self.at_work.insert((member, place, *message), *times);
    }

    /// A handler begins with a copy of a message whose topic was deleted. It may have been pulled before.
    pub(super) fn received_late(&mut self, member: u32, delivery: &Delivery) {
        let Delivery { message, queue, offset, times, .. } = delivery;
        let place = Place { queue: queue.clone(), offset: *offset };
        self.at_work.insert((member, place, *message), *times);
    }

    /// A handler ends with a message whose topic was deleted while it had it: what it asks for may still be done.
    pub(super) fn returned_late(&mut self, message: u64, end: HandlerEnd) {
        if end == HandlerEnd::Rejected {
            *self.rejected.entry(message).or_default() += 1;
        }
    }

    /// A topic is deleted: its offsets start again.
    pub(super) fn forget_topic(&mut self, topic: &str) {
        self.renewed.insert(topic.to_owned());
        self.at_work.retain(|(_, place, _), _| place.queue.topic != topic);
        self.delivered.retain(|(_, place), _| place.queue.topic != topic);
        self.ended.retain(|(_, queue), _| queue.topic != topic);
    }

    /// Checks that nobody works on another message of the queue, and that none before this one is left out.
    fn check_order(&self, wrongs: &mut Wrong, member: u32, place: &Place) {
        let (name, reader) = (&self.name, self.reader(member));
        let is_beside = |other: u32, at: &Place| at.queue == place.queue && self.reader(other) == reader;
        let mut beside = self.at_work.keys().filter(|(other, at, _)| is_beside(*other, at));
        let Place { queue, offset } = place;
        if let Some((other, at, _)) = beside.next() {
            let text = format!(
                "{name} works on {offset} of {queue} in member {member} while member {other} works on {}",
                at.offset
            );
            wrong(wrongs, Rule::C6, text);
        }
        let next = self.next_of(reader, queue);
        if *offset > next {
            let text = format!("{name} works on {offset} of {queue} in order, and has not ended {next}");
            wrong(wrongs, Rule::C5, text);
        }
    }

    /// Checks that as many handlers failed as copies come.
    fn check_count(&mut self, wrongs: &mut Wrong, message: u64, times: u32, place: &Place) {
        let (name, most) = (&self.name, self.handlers.max_retries);
        if (times > 0) != (place.queue.topic == self.retry_topic) || times > most {
            let queue = &place.queue;
            let text = format!(
                "message {message} came to {name} from {queue} with delivery count {times}, at most {most} are retries"
            );
            wrong(wrongs, Rule::C10, text);
        }
        if times == 0 {
            return;
        }
        let copies = self.copies.entry((message, times)).or_default();
        copies.insert(place.clone());
        let failed = self.failed.get(&(message, times - 1)).copied().unwrap_or(0);
        if copies.len() as u64 > failed * (1 + self.broker_ends) {
            let text = format!(
                "message {message} came to {name} in {} copies with delivery count {times}, {failed} handlers had failed for it",
                copies.len()
            );
            wrong(wrongs, Rule::C10, text);
        }
    }

    /// A handler ends. False when its message was not its own.
    pub(super) fn returned(&mut self, member: u32, place: &Place, message: u64, end: HandlerEnd) -> bool {
        let Some(times) = self.at_work.remove(&(member, place.clone(), message)) else { return false };
        let reader = self.reader(member);
        if end == HandlerEnd::Failed && self.handlers.ordered {
            self.delivered.remove(&(reader, place.clone())); // it is tried again in its place
            return true;
        }
        self.ended.entry((reader, place.queue.clone())).or_default().insert(place.offset);
        match end {
            // In broadcasting nothing comes again.
            _ if self.members.is_some() => drop(self.done.insert((reader, message))),
            HandlerEnd::Done => drop(self.done.insert((reader, message))),
            HandlerEnd::Failed => *self.failed.entry((message, times)).or_default() += 1,
            HandlerEnd::Rejected => *self.rejected.entry(message).or_default() += 1,
        }
        true
    }

    pub(super) fn dead_letter(&mut self, wrongs: &mut Wrong, message: u64) {
        let dead = self.dead.entry(message).or_default();
        *dead += 1;
        let rejected = self.rejected.get(&message).copied().unwrap_or(0);
        if *dead > rejected * (1 + self.broker_ends) {
            let text = format!(
                "message {message} is {dead} dead letters of {}, {rejected} handlers gave up on it",
                self.name
            );
            wrong(wrongs, Rule::C10, text);
        }
    }

    /// Checks that a place to continue at is not behind a message whose handler has not ended.
    pub(super) fn positioned(&self, wrongs: &mut Wrong, member: Option<u32>, queue: &QueueName, offset: u64) {
        let next = self.next_of(member.map_or(0, |member| self.reader(member)), queue);
        if offset > next {
            let (name, of) = (&self.name, member.map(|member| format!(" in member {member}")));
            let text = format!(
                "{name}{} continues at {offset} of {queue}, no handler has ended {next}",
                of.unwrap_or_default()
            );
            wrong(wrongs, Rule::C12, text);
        }
    }

    /// What is wrong at the end, if no handler has brought a message to an end.
    pub(super) fn missing(&self, message: u64) -> Option<(Rule, String)> {
        let name = &self.name;
        if let Some(members) = &self.members {
            let member = members.iter().find(|member| !self.done.contains(&(**member, message)))?;
            return Some((Rule::C11, format!("message {message} did not come to member {member} of {name}")));
        }
        let is_ended = self.done.contains(&(0, message)) || self.dead.contains_key(&message);
        (!is_ended).then(|| (Rule::C1, format!("no handler of {name} brought message {message} to an end")))
    }
}

#[cfg(test)]
mod tests;

//! What was sent, what was promised for it, and where it lies.

mod audit;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Counts, Rule, Wrong, wrong};
use crate::history::{Acknowledged, CrashKind, Delivery, LogRange, QueueName, Send};

/// An entry of a queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub queue: QueueName,
    pub offset: u64,
}

/// Whether the topic of a message was deleted after it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deleted {
    No,
    /// A deletion was asked for; the next audit shows whether it happened.
    Asked,
    /// It was deleted, and the message is gone.
    Yes,
    /// It was deleted, but the message may be back: queues were rebuilt from the log.
    Back,
}

/// One message with all attempts to send it.
#[derive(Debug)]
pub(super) struct Message {
    pub send: Send,
    pub attempts: u32,
    /// Attempts that certainly had no effect.
    refused: u32,
    pub acknowledged: bool,
    /// When it was first sent, and when the last attempt ended, counted in lines of the history.
    pub invoked_at: u64,
    ended_at: Option<u64>,
    place: Option<Place>,
    log: Option<LogRange>,
    /// A consumer saw it, and under this contract no consumer sees what may be lost.
    kept: bool,
    /// An acknowledgement, a delivery or an audit showed that it was stored.
    stored: bool,
    /// It is gone, as the contract allows; its queue offset is free.
    pub lost: bool,
    deleted: Deleted,
    /// Deletion of its topic was asked for, which also deletes the offsets of groups: a group may get it again.
    pub may_come_again: bool,
    /// All its attempts had ended when an audit did not find it.
    absent: bool,
    /// When an audit found it lost or absent, counted as above.
    gone_at: u64,
}

/// What may have been removed on purpose.
#[derive(Debug, Default)]
struct Removed {
    /// Retention may have removed the log before this, for all topics and for single ones or queues of them. Queue offsets stay used.
    expired: u64,
    expired_of: BTreeMap<(String, Option<u32>), u64>,
    /// Topics whose deletion did not return.
    asked: BTreeSet<String>,
}

/// All messages of a run.
#[derive(Debug)]
pub(super) struct Ledger {
    pub acknowledged: Acknowledged,
    /// Of topics with a `flush.type` of their own.
    pub acknowledged_of: BTreeMap<String, Acknowledged>,
    messages: BTreeMap<u64, Message>,
    /// The message of each entry that was ever seen.
    places: HashMap<QueueName, BTreeMap<u64, u64>>,
    /// Ends of the queues at the last audit, and where those begin that had messages.
    ends: Option<HashMap<QueueName, u64>>,
    starts: HashMap<QueueName, u64>,
    flushed: u64,
    removed: Removed,
    pub flush_failed: bool,
    /// Events since the last audit.
    power_cut: bool,
    cut_at: Option<u64>,
    clock: u64,
    crashes: u64,
    lost_as_allowed: u64,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            acknowledged: Acknowledged::AfterFlush,
            acknowledged_of: BTreeMap::new(),
            messages: BTreeMap::new(),
            places: HashMap::new(),
            ends: None,
            starts: HashMap::new(),
            flushed: 0,
            removed: Removed::default(),
            flush_failed: false,
            power_cut: false,
            cut_at: None,
            clock: 0,
            crashes: 0,
            lost_as_allowed: 0,
        }
    }
}

impl Ledger {
    pub(super) fn counts(&self) -> Counts {
        let acknowledged = self.messages.values().filter(|message| message.acknowledged).count() as u64;
        Counts {
            sent: self.messages.len() as u64,
            acknowledged,
            lost_as_allowed: self.lost_as_allowed,
            crashes: self.crashes,
            stored_again: 0,
            worked_on: 0,
        }
    }

    pub(super) fn message(&self, number: u64) -> Option<&Message> {
        self.messages.get(&number)
    }

    /// When an audit found that a message is gone although nobody removed it.
    pub(super) fn gone_at(&self, number: u64) -> Option<u64> {
        self.messages
            .get(&number)
            .filter(|message| message.lost || message.absent)
            .map(|message| message.gone_at)
    }

    /// Messages that must be there for everybody.
    pub(super) fn owed(&self) -> impl Iterator<Item = (u64, &Message)> {
        let is_owed = |message: &Message| message.acknowledged && !message.lost && !self.is_removed(message);
        self.messages
            .iter()
            .filter(move |(_, message)| is_owed(message))
            .map(|(&number, message)| (number, message))
    }

    /// Whether the topic of a message was deleted after it was sent.
    pub(super) fn is_deleted(&self, number: u64) -> bool {
        self.messages.get(&number).is_some_and(|message| message.deleted != Deleted::No)
    }

    /// Whether a message may be gone because it was removed on purpose.
    fn is_removed(&self, message: &Message) -> bool {
        message.deleted != Deleted::No || self.is_expired(message)
    }

    fn is_expired(&self, message: &Message) -> bool {
        let Some(log) = message.log else { return false };
        let is_its = |topic: &str, queue_id: Option<u32>| {
            let place = message.place.as_ref();
            let is_there = |id| place.is_some_and(|place| place.queue.queue_id == id);
            topic == message.send.topic && queue_id.is_none_or(is_there)
        };
        let mut bounds = self.removed.expired_of.iter();
        log.start < self.removed.expired
            || bounds.any(|((topic, queue_id), &before)| log.start < before && is_its(topic, *queue_id))
    }

    /// Whether a message may be there although an audit does not find it: one that nobody has seen yet, whose place in the log is not
    /// known, in a topic that hides what is old.
    fn may_be_hidden(&self, message: &Message) -> bool {
        let hides = |((topic, _), before): (&(String, Option<u32>), &u64)| {
            *before > 0 && *topic == message.send.topic
        };
        self.is_expired(message) || message.log.is_none() && self.removed.expired_of.iter().any(hides)
    }

    /// When sends to a topic are acknowledged.
    pub(super) fn acknowledges(&self, topic: &str) -> Acknowledged {
        self.acknowledged_of.get(topic).copied().unwrap_or(self.acknowledged)
    }

    /// The log is known to be durable before this.
    pub(super) const fn flushed_to(&self) -> u64 {
        self.flushed
    }

    /// The first message of a queue, or its end where it has none.
    pub(super) fn audited_start(&self, queue: &QueueName) -> u64 {
        self.starts.get(queue).copied().or_else(|| self.audited_end(queue)).unwrap_or(0)
    }

    pub(super) fn audited_end(&self, queue: &QueueName) -> Option<u64> {
        self.ends.as_ref().map(|ends| ends.get(queue).copied().unwrap_or(0))
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    // Calls and events.

    pub(super) fn invoked(&mut self, send: &Send) {
        let now = self.tick();
        if self.removed.asked.remove(&send.topic) {
            self.move_deleted(Some(&send.topic), Deleted::Asked, Deleted::Back); // an old and a new topic share the name
        }
        let message = self.messages.entry(send.message).or_insert_with(|| Message {
            send: send.clone(),
            attempts: 0,
            refused: 0,
            acknowledged: false,
            invoked_at: now,
            ended_at: None,
            place: None,
            log: None,
            kept: false,
            stored: false,
            lost: false,
            deleted: Deleted::No,
            may_come_again: false,
            absent: false,
            gone_at: 0,
        });
        message.attempts += 1;
        message.absent = false;
    }

    pub(super) fn ended(&mut self, number: u64, is_certain: bool) {
        let now = self.tick();
        if let Some(message) = self.messages.get_mut(&number) {
            message.refused += u32::from(is_certain);
            message.ended_at = Some(now);
        }
    }

    pub(super) fn flushed(&mut self, end: u64) {
        self.flushed = self.flushed.max(end);
    }

    pub(super) fn crash(&mut self, kind: CrashKind) {
        self.flush_failed = false;
        self.power_cut |= kind == CrashKind::Power;
        self.crashes += u64::from(kind != CrashKind::Stop);
    }

    pub(super) fn cut(&mut self, at: u64) {
        self.flushed = self.flushed.min(at);
        self.cut_at = Some(self.cut_at.map_or(at, |former| former.min(at)));
    }

    pub(super) fn expired(&mut self, topic: Option<&str>, queue_id: Option<u32>, before: u64) {
        let bound = match topic {
            Some(topic) => self.removed.expired_of.entry((topic.to_owned(), queue_id)).or_default(),
            None => &mut self.removed.expired,
        };
        *bound = before.max(*bound);
    }

    pub(super) fn rebuilt(&mut self) {
        self.move_deleted(None, Deleted::Yes, Deleted::Back);
    }

    /// A topic is about to be deleted: its numbers start again.
    pub(super) fn delete(&mut self, topic: &str) {
        self.places.retain(|queue, _| queue.topic != topic);
        self.removed.asked.insert(topic.to_owned());
        self.move_deleted(Some(topic), Deleted::No, Deleted::Asked);
    }

    /// The topic is deleted. What is sent from now on belongs to a new one.
    pub(super) fn deleted(&mut self, topic: &str) {
        self.removed.asked.remove(topic);
        self.move_deleted(Some(topic), Deleted::Asked, Deleted::Yes);
    }

    fn move_deleted(&mut self, topic: Option<&str>, from: Deleted, to: Deleted) {
        let is_meant = |message: &Message| {
            let is_there = !message.lost && !message.absent && message.deleted == from;
            is_there && topic.is_none_or(|topic| message.send.topic == topic)
        };
        for message in self.messages.values_mut().filter(|message| is_meant(message)) {
            message.deleted = to;
            message.may_come_again = true;
        }
    }

    // Replies.

    pub(super) fn acknowledged(
        &mut self,
        wrongs: &mut Wrong,
        number: u64,
        place: &Place,
        log: Option<LogRange>,
    ) {
        let now = self.tick();
        self.check_acknowledged(wrongs, number);
        self.put(wrongs, number, place);
        if let Some(message) = self.messages.get_mut(&number) {
            message.acknowledged = true;
            message.stored = true;
            message.lost = false;
            message.ended_at = Some(now);
            message.log = log.or(message.log);
        }
    }

    /// Checks that something may be acknowledged now.
    pub(super) fn check_acknowledged(&self, wrongs: &mut Wrong, number: u64) {
        if self.flush_failed {
            wrong(wrongs, Rule::R1, format!("message {number} was acknowledged after a failed flush"));
        }
    }

    /// Notes which message an entry holds.
    fn put(&mut self, wrongs: &mut Wrong, number: u64, place: &Place) {
        let queue = match self.places.get_mut(&place.queue) {
            Some(queue) => queue,
            None => self.places.entry(place.queue.clone()).or_default(),
        };
        if let Some(former) = queue.insert(place.offset, number)
            && former != number
            && self.messages.get(&former).is_some_and(|former| !former.lost && former.deleted == Deleted::No)
        {
            let Place { queue, offset } = place;
            wrong(
                wrongs,
                Rule::C4,
                format!("entry {offset} of {queue} was message {former}, now it is {number}"),
            );
        }
        // What retention hides may show again at a later start.
        let was_hidden = self.messages.get(&number).is_some_and(|message| self.is_expired(message));
        let Some(message) = self.messages.get_mut(&number) else { return };
        message.lost &= !was_hidden;
        if message.lost || message.absent {
            wrong(wrongs, Rule::C4, format!("message {number} came back after it was gone"));
        }
        match &message.place {
            Some(former) if former != place && message.attempts == 1 && !message.lost => {
                let text = format!(
                    "message {number} is at {} of {} and at {} of {}, and was sent once",
                    former.offset, former.queue, place.offset, place.queue
                );
                wrong(wrongs, Rule::C7, text);
            }
            Some(former) if former == place => {}
            _ => message.place = Some(place.clone()),
        }
    }

    /// Checks a message that anybody got: it was sent, and its bytes are equal.
    fn got(&self, wrongs: &mut Wrong, delivery: &Delivery) {
        let number = delivery.message;
        match self.messages.get(&number) {
            None => wrong(wrongs, Rule::C2, format!("message {number} was never sent")),
            Some(message) if message.refused == message.attempts => {
                wrong(
                    wrongs,
                    Rule::C2,
                    format!("message {number} is there, although every attempt to send it was refused"),
                );
            }
            Some(message) if message.send.digest != delivery.digest => {
                let (offset, queue) = (delivery.offset, &delivery.queue);
                wrong(wrongs, Rule::C3, format!("message {number} has other bytes at {offset} of {queue}"));
            }
            Some(_) => {}
        }
    }

    /// Checks a message that anybody got in its own topic, and notes its place.
    fn found(&mut self, wrongs: &mut Wrong, delivery: &Delivery) {
        self.got(wrongs, delivery);
        let (number, queue) = (delivery.message, &delivery.queue);
        if self.messages.get(&number).is_some_and(|message| message.send.topic != queue.topic) {
            wrong(wrongs, Rule::C2, format!("message {number} is in {queue}, another topic than its own"));
        }
        self.put(wrongs, number, &Place { queue: queue.clone(), offset: delivery.offset });
    }

    /// A delivery of a copy that a group got from its retry topic.
    pub(super) fn delivered_again(&mut self, wrongs: &mut Wrong, delivery: &Delivery) {
        self.tick();
        self.got(wrongs, delivery);
    }

    pub(super) fn delivered(&mut self, wrongs: &mut Wrong, delivery: &Delivery) {
        self.tick();
        self.found(wrongs, delivery);
        let keeps = self.acknowledged == Acknowledged::AfterFlush;
        let Some(message) = self.messages.get_mut(&delivery.message) else { return };
        message.kept |= keeps;
        message.stored = true;
        message.log = delivery.log.or(message.log);
    }

    /// Checks that no message lies behind one that the same producer sent after it: once that had ended, or later in the same batch.
    pub(super) fn check_order(&self, wrongs: &mut Wrong) {
        for (queue, entries) in &self.places {
            let mut latest: HashMap<u32, &Message> = HashMap::new();
            for number in entries.values() {
                let is_single = |message: &&Message| message.attempts == 1 && message.deleted == Deleted::No;
                let Some(message) = self.messages.get(number).filter(is_single) else {
                    continue;
                };
                let former = latest.entry(message.send.producer).or_insert(message);
                if message.was_sent_before(former) && !message.lost {
                    let former = former.send.message;
                    let text =
                        format!("message {number} was sent before {former} and lies behind it in {queue}");
                    wrong(wrongs, Rule::C5, text);
                }
                if message.invoked_at > former.invoked_at {
                    *former = message;
                }
            }
        }
    }
}

impl Message {
    fn was_sent_before(&self, other: &Self) -> bool {
        let is_of_one_batch = self.send.batch.is_some() && self.send.batch == other.send.batch;
        self.ended_at.is_some_and(|ended_at| ended_at < other.invoked_at)
            || is_of_one_batch && self.invoked_at < other.invoked_at
    }
}

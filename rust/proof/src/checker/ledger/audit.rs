//! An audit: which messages are there, and whether the contract allows the others to be gone.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Deleted, Ledger, Message};
use crate::checker::{Rule, Wrong, wrong};
use crate::history::{Acknowledged, Delivery, LogRange, QueueName};

impl Ledger {
    /// Checks an audit: a message that is missing must be allowed to be gone.
    pub(in crate::checker) fn audited(
        &mut self,
        wrongs: &mut Wrong,
        deliveries: &[Delivery],
        ends: &[(QueueName, u64)],
        in_flight: impl Fn(u64) -> bool,
    ) {
        self.tick();
        let last_ends = check_offsets(wrongs, deliveries);
        self.judge_missing(wrongs, deliveries, in_flight);
        for delivery in deliveries {
            self.present(wrongs, delivery);
        }
        let ends = last_ends.into_iter().chain(ends.iter().cloned()).collect();
        self.check_ends(wrongs, &ends);
        self.starts.clear();
        for delivery in deliveries {
            let start = self.starts.entry(delivery.queue.clone()).or_insert(delivery.offset);
            *start = delivery.offset.min(*start);
        }
        self.ends = Some(ends);
        self.power_cut = false;
        self.cut_at = None;
        self.check_order(wrongs);
    }

    /// Notes a message that the audit found. It must not be one of a deleted topic.
    fn present(&mut self, wrongs: &mut Wrong, delivery: &Delivery) {
        self.found(wrongs, delivery);
        let Some(message) = self.messages.get_mut(&delivery.message) else { return };
        message.stored = true;
        message.log = delivery.log.or(message.log);
        match message.deleted {
            Deleted::Asked => message.deleted = Deleted::No, // the deletion did not happen
            Deleted::Yes => {
                let (number, topic) = (delivery.message, &message.send.topic);
                wrong(wrongs, Rule::R9, format!("message {number} is there, and {topic} was deleted"));
            }
            Deleted::No | Deleted::Back => {}
        }
    }

    /// Checks that each queue ends behind all of its messages, also those that retention removed: no number is used twice.
    fn check_ends(&self, wrongs: &mut Wrong, ends: &HashMap<QueueName, u64>) {
        for (queue, entries) in &self.places {
            let end = ends.get(queue).copied().unwrap_or(0);
            let is_kept = |number: &u64| {
                let message = self.messages.get(number);
                message
                    .is_some_and(|message| message.stored && !message.lost && message.deleted == Deleted::No)
            };
            if let Some((offset, number)) = entries.range(end..).find(|(_, number)| is_kept(number)) {
                let text = format!("{queue} ends at {end}, message {number} has the number {offset}");
                wrong(wrongs, Rule::C4, text);
            }
        }
    }

    /// Judges every message that the audit did not find. The survivors must be a prefix of the log.
    fn judge_missing(
        &mut self,
        wrongs: &mut Wrong,
        deliveries: &[Delivery],
        in_flight: impl Fn(u64) -> bool,
    ) {
        let present: BTreeSet<u64> = deliveries.iter().map(|delivery| delivery.message).collect();
        let mut first_lost = u64::MAX;
        for number in self.newly_lost(&present, in_flight) {
            first_lost = first_lost.min(self.lose(wrongs, number).unwrap_or(u64::MAX));
        }
        let log_of: BTreeMap<u64, LogRange> =
            deliveries.iter().filter_map(|delivery| Some((delivery.message, delivery.log?))).collect();
        if let Some((number, log)) = log_of.iter().find(|(_, log)| log.start > first_lost) {
            let text =
                format!("message {number} at {} survived, a message at {first_lost} did not", log.start);
            wrong(wrongs, Rule::C1, text);
        }
    }

    /// The missing messages that were stored before. Notes which of the others are deleted, and which were never stored.
    fn newly_lost(&mut self, present: &BTreeSet<u64>, in_flight: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut lost = Vec::new();
        let now = self.clock;
        self.removed.asked.clear();
        self.note_deletions(present);
        let mut absent = Vec::new();
        for (&number, message) in self.messages.iter().filter(|(number, _)| !present.contains(number)) {
            if message.deleted != Deleted::No {
                continue;
            }
            if !message.stored {
                let is_over = message.ended_at.is_some() && !in_flight(number);
                if is_over && !message.absent && !self.may_be_hidden(message) {
                    absent.push(number);
                }
            } else if !message.lost {
                lost.push(number);
            }
        }
        for number in absent {
            self.messages.entry(number).and_modify(|message| (message.absent, message.gone_at) = (true, now));
        }
        lost
    }

    /// A deletion that did not return happened if messages that should be there are missing. One that retention may hide tells
    /// nothing: a later start may show it again.
    fn note_deletions(&mut self, present: &BTreeSet<u64>) {
        let is_deleted = |number: &u64, message: &Message| {
            message.deleted == Deleted::Asked && !present.contains(number) && !self.may_be_hidden(message)
        };
        let numbers = self.messages.iter().filter(|(number, message)| is_deleted(number, message));
        let numbers: Vec<u64> = numbers.map(|(&number, _)| number).collect();
        for number in numbers {
            self.messages.entry(number).and_modify(|message| message.deleted = Deleted::Yes);
        }
    }

    /// Notes that a message is gone, and checks that this is allowed. Returns where it lay in the log, unless retention may have
    /// removed it.
    fn lose(&mut self, wrongs: &mut Wrong, number: u64) -> Option<u64> {
        let message = &self.messages[&number];
        let is_expired = self.is_expired(message);
        if self.must_survive(message) {
            if is_expired {
                return None;
            }
            let what = if message.acknowledged { "acknowledged" } else { "stored" };
            let how = if self.power_cut { "a power cut" } else { "no power cut" };
            let log = message.log;
            let text = format!("message {number} was {what} and is lost, after {how}: {log:?}");
            wrong(wrongs, Rule::C1, text);
        }
        let message = self.messages.get_mut(&number)?;
        (message.lost, message.gone_at) = (true, self.clock);
        self.lost_as_allowed += u64::from(message.acknowledged && !is_expired);
        message.log.filter(|_| !is_expired).map(|log| log.start)
    }

    /// Whether a message must survive what happened since the last audit, unless retention removes it.
    fn must_survive(&self, message: &Message) -> bool {
        let is_cut = self.cut_at.is_some_and(|at| message.log.is_some_and(|log| log.start >= at));
        let is_flushed = message.log.is_some_and(|log| log.end <= self.flushed);
        let acknowledged = self.acknowledges(&message.send.topic);
        let is_promised =
            is_flushed || message.kept || message.acknowledged && acknowledged == Acknowledged::AfterFlush;
        !is_cut && (is_promised || !self.power_cut)
    }
}

/// Checks that no queue has a gap. Returns where each queue ends.
fn check_offsets(wrongs: &mut Wrong, deliveries: &[Delivery]) -> Vec<(QueueName, u64)> {
    let mut offsets_of: BTreeMap<&QueueName, Vec<u64>> = BTreeMap::new();
    for delivery in deliveries {
        offsets_of.entry(&delivery.queue).or_default().push(delivery.offset);
    }
    let mut ends = Vec::new();
    for (queue, mut offsets) in offsets_of {
        offsets.sort_unstable();
        for pair in offsets.windows(2).filter(|pair| pair[0] + 1 != pair[1]) {
            wrong(wrongs, Rule::C4, format!("entry {} of {queue} follows entry {}", pair[1], pair[0]));
        }
        ends.extend(offsets.last().map(|last| (queue.clone(), last + 1)));
    }
    ends
}

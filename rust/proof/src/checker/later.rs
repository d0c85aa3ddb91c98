//! Messages that are stored again before they come: delayed ones, transactions, retries, dead letters.
//!
//! Their acknowledgement names the record that waits, not their place in their topic. What came of them is read as a whole, again and
//! again, so that a delivery that a power cut took back is missed.

use std::collections::{BTreeMap, BTreeSet};

use rocketpy_model::system;

use super::{Rule, Wrong, wrong};
use crate::history::{Acknowledged, CrashKind, Delivery, QueueName, Send};

/// A message that is to come to a topic: its number, and the topic.
type Name = (u64, String);

#[derive(Debug)]
struct Promise {
    send: Send,
    /// Crashes before it was made: a later one explains that it comes twice.
    crashes: u64,
    is_acknowledged: bool,
    is_refused: bool,
    /// Where the record lies that waits.
    start: Option<u64>,
    /// The contract lets it be gone with the power.
    may_be_lost: bool,
    /// The outcome of its transaction, acknowledged or not, and acknowledged.
    asked: Option<bool>,
    decided: Option<bool>,
    /// It was asked to be recalled, and it was in time.
    is_recalled: bool,
    must_not_come: bool,
    came: BTreeSet<(QueueName, u64)>,
    has_come: bool,
}

impl Promise {
    /// It must come, or have come.
    fn is_owed(&self) -> bool {
        // A producer that was asked says the same again, until the broker knows it.
        let is_committed = self.decided == Some(true) || self.send.asked_for && self.asked == Some(true);
        let is_whole = !self.send.transaction || is_committed;
        self.is_acknowledged && !self.may_be_lost && !self.is_recalled && is_whole
    }

    /// Its producer must have been asked what becomes of it, and was not.
    fn is_unasked(&self) -> bool {
        self.send.asked_for && self.is_acknowledged && !self.may_be_lost && self.asked.is_none()
    }
}

/// All that waits, or waited.
#[derive(Debug, Default)]
pub(super) struct Later {
    promises: BTreeMap<Name, Promise>,
    crashes: u64,
    was_power_cut: bool,
}

impl Later {
    /// Whether a send is one of these.
    pub(super) const fn takes(send: &Send) -> bool {
        send.not_before_ms.is_some() || send.transaction
    }

    /// Whether a message of a topic is one of these.
    pub(super) fn has(&self, number: u64, topic: &str) -> bool {
        self.promises.contains_key(&(number, topic.to_owned()))
    }

    /// Those that have ever come, each counted once.
    pub(super) fn came(&self) -> u64 {
        self.promises.values().filter(|promise| promise.has_come).count() as u64
    }

    /// Those that must still come, or be asked for.
    pub(super) fn missing(&self) -> usize {
        let unasked = self.promises.values().filter(|promise| promise.is_unasked());
        self.missing_of(|_| true) + unasked.count()
    }

    /// Those of some sends that must still come.
    pub(super) fn missing_of(&self, is_meant: impl Fn(&Send) -> bool) -> usize {
        let is_missing =
            |promise: &&Promise| promise.is_owed() && promise.came.is_empty() && is_meant(&promise.send);
        self.promises.values().filter(is_missing).count()
    }

    pub(super) fn invoked(&mut self, send: &Send) {
        let promise = Promise {
            send: send.clone(),
            crashes: self.crashes,
            is_acknowledged: false,
            is_refused: false,
            start: None,
            may_be_lost: false,
            asked: None,
            decided: None,
            is_recalled: false,
            must_not_come: false,
            came: BTreeSet::new(),
            has_come: false,
        };
        self.promises.insert((send.message, send.topic.clone()), promise);
    }

    pub(super) fn acknowledged(&mut self, send: &Send, start: Option<u64>) {
        if let Some(promise) = self.promises.get_mut(&(send.message, send.topic.clone())) {
            (promise.is_acknowledged, promise.start) = (true, start);
        }
    }

    pub(super) fn refused(&mut self, send: &Send) {
        if let Some(promise) = self.promises.get_mut(&(send.message, send.topic.clone())) {
            promise.is_refused = true;
        }
    }

    /// A transaction's outcome was asked for; with `is_certain` it was acknowledged.
    pub(super) fn decided(&mut self, number: u64, committed: bool, is_certain: bool) {
        let mut halves = self.promises.values_mut();
        let half = halves.find(|promise| promise.send.message == number && promise.send.transaction);
        if let Some(half) = half {
            half.asked = Some(committed);
            half.decided = is_certain.then_some(committed).or(half.decided);
        }
    }

    /// Somebody takes a message back that waits for its time.
    pub(super) fn recall(&mut self, number: u64) {
        self.timed(number).for_each(|promise| promise.is_recalled = true);
    }

    /// That was in time.
    pub(super) fn recalled(&mut self, number: u64) {
        self.timed(number).for_each(|promise| promise.must_not_come = true);
    }

    /// A message that is not given back yet.
    fn timed(&mut self, number: u64) -> impl Iterator<Item = &mut Promise> {
        let is_it = move |promise: &&mut Promise| promise.send.message == number && promise.send.times == 0;
        self.promises.values_mut().filter(is_it)
    }

    /// A transaction's outcome was refused: it had the other one. Nobody asked for that: these histories ask for one alone.
    pub(super) fn decided_otherwise(&self, wrongs: &mut Wrong, number: u64, committed: bool) {
        let (asked, had) = if committed { ("commit", "rolled back") } else { ("rollback", "committed") };
        let text = format!("{asked} of message {number} was refused, because it was {had} before");
        wrong(wrongs, Rule::C8, text);
    }

    pub(super) fn crash(&mut self, kind: CrashKind) {
        self.crashes += u64::from(kind != CrashKind::Stop);
        if kind == CrashKind::Power {
            self.was_power_cut = true;
            self.promises.values_mut().for_each(|promise| promise.came.clear()); // the next reading shows what is left
        }
    }

    /// An audit found that the log holds everything before `end`.
    pub(super) fn audited(&mut self, end: u64, of: impl Fn(&str) -> Acknowledged) {
        if !std::mem::take(&mut self.was_power_cut) {
            return;
        }
        for promise in self.promises.values_mut() {
            let is_behind = promise.start.is_none_or(|start| start >= end);
            if of(&promise.send.topic) == Acknowledged::BeforeFlush {
                promise.may_be_lost |= is_behind;
                promise.decided = None; // the end of its transaction may be lost too
            }
        }
    }

    /// Something of these came, stored at a time.
    pub(super) fn received(&mut self, wrongs: &mut Wrong, delivery: &Delivery, stored_at_ms: i64) {
        let (number, queue) = (delivery.message, &delivery.queue);
        let Some(promise) = self.promises.get_mut(&(number, queue.topic.clone())) else { return };
        let what = format!("message {number} of {}", queue.topic);
        if promise.is_refused {
            wrong(wrongs, Rule::C2, format!("{what} is there, although it was refused"));
        }
        if promise.send.digest != delivery.digest {
            wrong(wrongs, Rule::C3, format!("{what} has other bytes"));
        }
        if promise.send.transaction && promise.asked != Some(true) {
            let state = if promise.asked.is_some() { "rolled back" } else { "half" };
            wrong(wrongs, Rule::C8, format!("{what} was delivered, and is {state}"));
        }
        if let Some(early) = promise.send.not_before_ms.map(|not_before| not_before - stored_at_ms)
            && early > 0
        {
            wrong(wrongs, Rule::C9, format!("{what} was delivered {early} ms early"));
        }
        if promise.must_not_come {
            wrong(wrongs, Rule::C9, format!("{what} was recalled in time, and came"));
        }
        if delivery.times != promise.send.times {
            let (times, expected) = (delivery.times, promise.send.times);
            wrong(
                wrongs,
                Rule::C10,
                format!("{what} came with delivery count {times}, it should be {expected}"),
            );
        }
        let is_dead_letter = queue.topic.starts_with(system::DLQ_PREFIX);
        promise.has_come = true;
        promise.came.insert((queue.clone(), delivery.offset));
        // Each crash since explains one repeat, but none of a transaction: its end counts once whatever happens.
        let crashes = self.crashes - promise.crashes;
        let explained = match &promise.send {
            Send { transaction: true, .. } => 0,
            Send { rolls: true, .. } => (1 << crashes.min(32)) - 1,
            _ => crashes,
        };
        if promise.came.len() as u64 > 1 + explained {
            let rule = match (promise.send.transaction, is_dead_letter) {
                (true, _) => Rule::C8,
                (_, true) => Rule::C10,
                _ => Rule::C7,
            };
            wrong(wrongs, rule, format!("{what} was delivered twice, and nothing explains it"));
        }
    }

    /// Checks that everything came, and that no producer waits for a question.
    pub(super) fn end(&self, wrongs: &mut Wrong) {
        for ((number, _), promise) in self.promises.iter().filter(|(_, promise)| promise.is_unasked()) {
            let start = promise.start;
            let text = format!("message {number} was never asked for, its half lies at {start:?}");
            wrong(wrongs, Rule::C8, text);
        }
        for ((number, topic), promise) in
            self.promises.iter().filter(|(_, promise)| promise.is_owed() && promise.came.is_empty())
        {
            let rule = if promise.send.transaction { Rule::C8 } else { Rule::C1 };
            let start = promise.start;
            let text = format!(
                "message {number} was acknowledged and never came to {topic}, its record waited at {start:?}"
            );
            wrong(wrongs, rule, text);
        }
    }
}

/// Where the log ends that holds these messages.
pub(super) fn end_of(deliveries: &[Delivery]) -> u64 {
    deliveries.iter().filter_map(|delivery| delivery.log).map(|log| log.end).max().unwrap_or(0)
}

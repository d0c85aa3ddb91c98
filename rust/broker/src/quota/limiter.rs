//! Which requests pass, which wait, and which of those that wait are next.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::bucket::Bucket;
use super::rule::{Direction, Rule, Rules, Scope};
use super::usage::Usage;

/// Maximum number of names of one scope and direction that are counted, each for itself.
pub(super) const MAX_NAMES: usize = 10_000;
/// Minimum time between two searches for names that need no place any more.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// First character of the name that counts all names without a place together; no client can use it.
const OTHERS: char = '\0';

/// A request that needs the consent of quotas.
#[derive(Debug, Clone)]
pub(crate) struct Want {
    pub(crate) direction: Direction,
    /// Absent where quotas of topics do not limit it.
    pub(crate) topic: Option<Box<str>>,
    pub(crate) group: Option<Box<str>>,
    pub(crate) address: IpAddr,
    /// Absent while users are off.
    pub(crate) user: Option<Box<str>>,
    /// 0 for a pull, which is charged for the messages that it returned ([`Limiter::charge`]).
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

/// Why a request does not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OverQuota {
    pub(crate) direction: Direction,
    pub(crate) scope: Scope,
    name: String,
    /// Messages or bytes per second.
    limit: u64,
    unit: &'static str,
    /// Time until the next request passes, if no other takes its place.
    wait: Duration,
}

impl OverQuota {
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for OverQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { direction, scope, name, limit, unit, wait } = self;
        let direction = match direction {
            Direction::Send => "send",
            Direction::Pull => "pull",
        };
        let wait_ms = wait.as_nanos().div_ceil(1_000_000);
        write!(
            f,
            "{direction} quota of {scope} {name} exceeded: limit {limit} {unit}/s, try again in {wait_ms} ms"
        )
    }
}

/// Scope and direction as one number, and a name.
type Key = (usize, Arc<str>);

fn slot(scope: Scope, direction: Direction) -> usize {
    scope as usize * 2 + direction as usize
}

/// A name that is counted.
#[derive(Debug)]
struct Tracked<T> {
    rule: Arc<Rule>,
    /// Of messages and of bytes.
    buckets: [Option<Bucket>; 2],
    waiting: VecDeque<Waiting<T>>,
}

#[derive(Debug)]
struct Waiting<T> {
    number: u64,
    deadline: Duration,
    want: Want,
    item: T,
}

/// A request that waited.
#[derive(Debug)]
pub(crate) enum Released<T> {
    /// The request took its messages and bytes.
    Passed(T),
    Late(T, OverQuota),
}

/// Requests of type `T` under quotas. Times are of the monotonic clock.
#[derive(Debug)]
pub(super) struct Limiter<T> {
    rules: Rules,
    names: [HashMap<Arc<str>, Tracked<T>>; 8],
    /// Names with requests that wait.
    blocked: BTreeSet<Key>,
    deadlines: BTreeMap<(Duration, u64), Key>,
    next_number: u64,
    /// Waited for a quota that is gone.
    free: Vec<T>,
    swept_at: Option<Duration>,
    usage: Usage,
}

impl<T> Default for Limiter<T> {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            names: Default::default(),
            blocked: BTreeSet::new(),
            deadlines: BTreeMap::new(),
            next_number: 0,
            free: Vec::new(),
            swept_at: None,
            usage: Usage::default(),
        }
    }
}

impl<T> Limiter<T> {
    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    pub(super) fn usage(&mut self) -> &mut Usage {
        &mut self.usage
    }

    /// Takes messages and bytes of a request, if all of its quotas allow it.
    ///
    /// # Errors
    /// A quota does not allow the request, or earlier requests wait for that quota.
    pub(super) fn ask(&mut self, want: &Want, now: Duration) -> Result<(), OverQuota> {
        let keys = self.keys(want, now);
        match keys.iter().find(|key| !self.passes(key, now, true)) {
            Some(key) => {
                let over = self.over(key, now);
                let rule = self.tracked(key).rule.clone();
                self.usage.throttled(rule.id());
                Err(over)
            }
            None => {
                self.take(&keys, want.messages, want.bytes, now);
                Ok(())
            }
        }
    }

    /// Has a request wait that did not pass. It passes in the order of those that wait for the same name.
    pub(super) fn hold(&mut self, want: Want, item: T, deadline: Duration, now: Duration) {
        let number = self.next_number;
        self.next_number += 1;
        let keys = self.keys(&want, now);
        let over = keys.iter().find(|key| !self.passes(key, now, true)).or(keys.first());
        let Some(key) = over.cloned() else {
            return self.free.push(item); // its quota was removed meanwhile
        };
        self.wait_for(key, Waiting { number, deadline, want, item });
    }

    fn wait_for(&mut self, key: Key, waiting: Waiting<T>) {
        let other = self.deadlines.insert((waiting.deadline, waiting.number), key.clone());
        assert!(other.is_none(), "a request waits for one name at a time: {other:?}");
        self.tracked(&key).waiting.push_back(waiting);
        self.blocked.insert(key);
    }

    /// Charges a pull for the messages that it returned. The balance may become a debt.
    pub(super) fn charge(&mut self, want: &Want, now: Duration) {
        let keys = self.keys(want, now);
        self.take(&keys, want.messages, want.bytes, now);
    }

    /// Notes that a request was rejected that did not wait, or a connection.
    pub(super) fn rejected(&mut self, scope: Scope, name: &str) {
        if let Some(rule) = self.rules.find(scope, name) {
            self.usage.rejected(rule.id());
        }
    }

    /// Requests that pass now, and those whose time is up. Of the pulls for one name only the first, because its size is not known yet.
    pub(super) fn release(&mut self, now: Duration) -> Vec<Released<T>> {
        let mut released: Vec<_> = self.free.drain(..).map(Released::Passed).collect();
        for key in self.blocked.clone() {
            while self.passes(&key, now, false)
                && let Some(waiting) = self.pop(&key)
            {
                let keys = self.keys(&waiting.want, now);
                if let Some(other) =
                    keys.iter().find(|other| **other != key && !self.passes(other, now, true))
                {
                    self.wait_for(other.clone(), waiting);
                    continue;
                }
                self.take(&keys, waiting.want.messages, waiting.want.bytes, now);
                let is_pull = waiting.want.direction == Direction::Pull;
                released.push(Released::Passed(waiting.item));
                if is_pull {
                    break;
                }
            }
        }
        self.expire(now, &mut released);
        assert!(self.blocked.len() <= self.deadlines.len(), "each blocked name has a request that waits");
        released
    }

    fn expire(&mut self, now: Duration, released: &mut Vec<Released<T>>) {
        while let Some((&(deadline, number), key)) = self.deadlines.first_key_value()
            && deadline <= now
        {
            let key = key.clone();
            let over = self.over(&key, now);
            let waiting = &mut self.tracked(&key).waiting;
            let at = waiting.iter().position(|waiting| waiting.number == number);
            let item = at.and_then(|at| waiting.remove(at)).expect("each request that waits has a deadline");
            self.forget_wait(&key, (deadline, number));
            let rule = self.tracked(&key).rule.clone();
            self.usage.rejected(rule.id());
            released.push(Released::Late(item.item, over));
        }
    }

    fn pop(&mut self, key: &Key) -> Option<Waiting<T>> {
        let waiting = self.names[key.0].get_mut(&key.1)?.waiting.pop_front()?;
        self.forget_wait(key, (waiting.deadline, waiting.number));
        Some(waiting)
    }

    fn forget_wait(&mut self, key: &Key, deadline: (Duration, u64)) {
        let known = self.deadlines.remove(&deadline);
        assert!(known.as_ref() == Some(key), "a request that waited had a deadline: {known:?}");
        if self.tracked(key).waiting.is_empty() {
            self.blocked.remove(key);
        }
    }

    /// When the next request passes or is late.
    pub(super) fn next_due(&mut self, now: Duration) -> Option<Duration> {
        if !self.free.is_empty() {
            return Some(now);
        }
        let (&(mut due, _), _) = self.deadlines.first_key_value()?;
        for key in &self.blocked {
            let tracked = self.names[key.0].get_mut(&key.1).expect("a name with waiting requests is counted");
            due = due.min(now.saturating_add(wait(&mut tracked.buckets, now).0));
        }
        Some(due)
    }

    /// Number of requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.deadlines.len() + self.free.len()
    }

    /// Number of requests that wait for the names of a quota.
    pub(super) fn waiting_for(&self, rule_id: &str) -> u64 {
        let of =
            |(slot, name): &Key| self.names[*slot].get(name).filter(|tracked| tracked.rule.id() == rule_id);
        self.blocked.iter().filter_map(of).map(|tracked| tracked.waiting.len() as u64).sum()
    }

    /// Replaces the quotas. Requests that wait are tried again with the next [`Self::release`].
    pub(super) fn set_rules(&mut self, rules: Rules, now: Duration) {
        let mut waiting = Vec::new();
        for names in &mut self.names {
            waiting.extend(names.values_mut().flat_map(|tracked| std::mem::take(&mut tracked.waiting)));
        }
        self.blocked.clear();
        self.deadlines.clear();
        self.rules = rules;
        let Self { rules, names, .. } = self;
        for (slot, names) in names.iter_mut().enumerate() {
            let (scope, direction) = parts_of(slot);
            names.retain(|name, tracked| match find(rules, scope, name) {
                Some(rule) => {
                    tracked.buckets =
                        with_limits(std::mem::take(&mut tracked.buckets), rule.limits(direction), now);
                    tracked.rule = rule.clone();
                    tracked.buckets.iter().any(Option::is_some)
                }
                None => false,
            });
        }
        assert!(
            self.names.iter().flat_map(HashMap::values).all(|tracked| tracked.waiting.is_empty()),
            "no request waits while quotas are replaced"
        );
        self.usage.retain(|id| self.rules.has(id));
        waiting.sort_by_key(|waiting| waiting.number);
        for waiting in waiting {
            match self.keys(&waiting.want, now).into_iter().next() {
                Some(key) => self.wait_for(key, waiting),
                None => self.free.push(waiting.item),
            }
        }
    }

    /// Takes out all requests that wait.
    pub(super) fn take_all(&mut self) -> Vec<T> {
        let mut all: Vec<_> =
            self.names.iter_mut().flat_map(HashMap::values_mut).flat_map(|t| t.waiting.drain(..)).collect();
        self.blocked.clear();
        self.deadlines.clear();
        all.sort_by_key(|waiting| waiting.number);
        self.free.drain(..).chain(all.into_iter().map(|waiting| waiting.item)).collect()
    }

    fn tracked(&mut self, (slot, name): &Key) -> &mut Tracked<T> {
        self.names[*slot].get_mut(name).expect("a key names what is counted")
    }

    /// Whether the next request of the name passes; with `behind`, a new one after those that wait.
    fn passes(&mut self, key: &Key, now: Duration, behind: bool) -> bool {
        let Some(tracked) = self.names[key.0].get_mut(&key.1) else { return false };
        (!behind || tracked.waiting.is_empty()) && wait(&mut tracked.buckets, now).0.is_zero()
    }

    fn over(&mut self, key: &Key, now: Duration) -> OverQuota {
        let tracked = self.tracked(key);
        let (wait, at) = wait(&mut tracked.buckets, now);
        let limit = tracked.buckets[at].as_ref().map_or(0, Bucket::rate);
        let (scope, direction) = parts_of(key.0);
        let name = if key.1.starts_with(OTHERS) { &tracked.rule.quota().name } else { &*key.1 };
        let unit = ["messages", "bytes"][at];
        OverQuota { direction, scope, name: name.to_owned(), limit, unit, wait }
    }

    fn take(&mut self, keys: &[Key], messages: u64, bytes: u64, now: Duration) {
        assert!(keys.len() <= Scope::ALL.len(), "a request has one name of each scope: {keys:?}");
        for key in keys {
            let tracked = self.names[key.0].get_mut(&key.1).expect("a key names what is counted");
            for (bucket, tokens) in tracked.buckets.iter_mut().zip([messages, bytes]) {
                if let Some(bucket) = bucket {
                    bucket.take(tokens, now);
                }
            }
            self.usage.took(tracked.rule.id(), parts_of(key.0).1, [messages, bytes], now);
        }
    }

    /// The names under which the request is counted.
    fn keys(&mut self, want: &Want, now: Duration) -> Vec<Key> {
        let mut keys = Vec::with_capacity(Scope::ALL.len());
        for scope in Scope::ALL {
            if !self.rules.any_of(scope, want.direction) {
                continue;
            }
            let key = match scope {
                Scope::Topic => {
                    want.topic.as_deref().and_then(|topic| self.key(scope, want.direction, topic, now))
                }
                Scope::Group => {
                    want.group.as_deref().and_then(|group| self.key(scope, want.direction, group, now))
                }
                Scope::User => {
                    want.user.as_deref().and_then(|user| self.key(scope, want.direction, user, now))
                }
                Scope::Address => {
                    let name = self.rules.find_address(want.address).map(|(_, name)| name);
                    name.and_then(|name| self.key(scope, want.direction, &name, now))
                }
            };
            keys.extend(key);
        }
        keys
    }

    /// The key of a name that a quota limits; it is counted from now on.
    fn key(&mut self, scope: Scope, direction: Direction, name: &str, now: Duration) -> Option<Key> {
        let slot = slot(scope, direction);
        if let Some((name, _)) = self.names[slot].get_key_value(name) {
            return Some((slot, name.clone()));
        }
        let rule = self.rules.find(scope, name)?.clone();
        let limits = rule.limits(direction);
        if limits.iter().all(Option::is_none) {
            return None;
        }
        if self.names[slot].len() >= MAX_NAMES {
            self.sweep(slot, now);
        }
        let name: Arc<str> = match self.names[slot].len() >= MAX_NAMES {
            // A name that makes room by its number gets no second of its own: all such names share one.
            true => format!("{OTHERS}{}", rule.id()).into(),
            false => name.into(),
        };
        let tracked =
            || Tracked { rule, buckets: with_limits([None, None], limits, now), waiting: VecDeque::new() };
        self.names[slot].entry(name.clone()).or_insert_with(tracked);
        Some((slot, name))
    }

    /// Removes names whose buckets are full: a new bucket would be the same.
    fn sweep(&mut self, slot: usize, now: Duration) {
        if self.swept_at.is_some_and(|at| now < at + SWEEP_EVERY) {
            return;
        }
        self.swept_at = Some(now);
        self.names[slot].retain(|_, tracked| {
            let is_full = tracked.buckets.iter_mut().flatten().all(|bucket| bucket.is_full(now));
            !is_full || !tracked.waiting.is_empty()
        });
    }
}

fn parts_of(slot: usize) -> (Scope, Direction) {
    let direction = if slot.is_multiple_of(2) { Direction::Send } else { Direction::Pull };
    (Scope::ALL[slot / 2], direction)
}

/// The quota of a name that is counted.
fn find<'a>(rules: &'a Rules, scope: Scope, name: &str) -> Option<&'a Arc<Rule>> {
    match name.strip_prefix(OTHERS) {
        Some(id) => rules.by_id(id),
        None => rules.find(scope, name),
    }
}

/// Time until both buckets give something, and the index of the one that takes longer.
fn wait(buckets: &mut [Option<Bucket>; 2], now: Duration) -> (Duration, usize) {
    let mut wait =
        |at: usize| buckets[at].as_mut().map_or(Duration::ZERO, |bucket: &mut Bucket| bucket.wait(now));
    let (messages, bytes) = (wait(0), wait(1));
    if bytes > messages { (bytes, 1) } else { (messages, 0) }
}

fn with_limits(
    mut buckets: [Option<Bucket>; 2],
    limits: [Option<u64>; 2],
    now: Duration,
) -> [Option<Bucket>; 2] {
    for (bucket, limit) in buckets.iter_mut().zip(limits) {
        match (bucket.as_mut(), limit) {
            (Some(bucket), Some(limit)) => bucket.set_rate(limit, now),
            (_, limit) => *bucket = limit.map(|limit| Bucket::full(limit, now)),
        }
    }
    buckets
}

#[cfg(test)]
mod tests;

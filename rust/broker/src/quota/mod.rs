//! Quotas: messages and bytes per second, and connections, by topic, group, client address and user.
//!
//! [`rule`] has what an operator sets, [`limiter`] decides, [`crate::process`] asks for each send and pull while any quota is set
//! (docs/decisions/quotas.md).

mod bucket;
mod connections;
mod limiter;
mod rule;
mod usage;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use connections::Connections;
use limiter::Limiter;
pub(crate) use limiter::{OverQuota, Released, Want};
use parking_lot::Mutex;
use rocketpy_env::Disk;
use rocketpy_model::DataVersion;
use rocketpy_protocol::Command;
use rocketpy_protocol::body::{QuotaFile, QuotaList, QuotaUse};
use rocketpy_remoting::{ConnectionCheck, Reply, Reservation};
use rule::Rules;
pub(crate) use rule::{Direction, Rule, Scope, is_limited_topic};
use tokio::sync::Notify;
use tracing::warn;

use crate::config_file::ConfigFile;
use crate::refusal::Refusal;
use crate::shares::Place;
use crate::table::group_commit::Written;
use crate::table::named::{Limits, NamedTable};
use crate::{BrokerConfig, BrokerError};

/// Maximum number of quotas.
const MAX_QUOTAS: usize = 1000;
/// Time between two warnings of one kind.
const WARN_EVERY: Duration = Duration::from_secs(1);

/// A request that waits for its quotas.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) request: Command,
    pub(crate) reply: Reply,
    /// Both are given back when it is served.
    pub(crate) room: (Reservation, Place),
}

/// The quotas of this broker, kept in `config/quotas.json`, and the requests that wait for them.
#[derive(Debug)]
pub(crate) struct Quotas {
    table: NamedTable<Rule>,
    /// Whether any quota limits messages or bytes.
    are_on: AtomicBool,
    limiter: Mutex<Limiter<Waiting>>,
    /// Notified when a request begins to wait, or quotas change.
    changed: Notify,
    /// Set once the broker stops.
    is_stopped: AtomicBool,
    connections: Connections,
    /// Time of the last warning about dropped one-way sends, and their number since then.
    dropped: Mutex<(Option<Duration>, u64)>,
}

impl Quotas {
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn open(disk: impl Disk, config: &BrokerConfig) -> Result<Self, BrokerError> {
        let file = ConfigFile::on(disk, &config.store.root, "quotas.json");
        let loaded = file.load::<QuotaFile>()?.unwrap_or_default();
        let mut rules = HashMap::new();
        for (name, quota) in loaded.quota_table {
            match Rule::new(quota) {
                Ok(rule) => drop(rules.insert(rule.id().into(), Arc::new(rule))),
                Err(error) => warn!(quota = name, %error, "quota ignored in the quota table"),
            }
        }
        let limits = Limits { entries: MAX_QUOTAS, refusal: |limit| Refusal::TooManyQuotas { limit } };
        let save = move |data_version, rules: std::collections::BTreeMap<String, Rule>| {
            let quota_table = rules.into_iter().map(|(id, rule)| (id, rule.quota().clone())).collect();
            file.save(&QuotaFile { data_version, quota_table })
        };
        let quotas = Self {
            table: NamedTable::new(loaded.data_version, rules, limits, save),
            are_on: AtomicBool::new(false),
            limiter: Mutex::default(),
            changed: Notify::new(),
            is_stopped: AtomicBool::new(false),
            connections: Connections::default(),
            dropped: Mutex::default(),
        };
        quotas.apply(Duration::ZERO);
        Ok(quotas)
    }

    /// Whether any quota limits messages or bytes. All requests ask, so that nothing else is done without quotas.
    pub(crate) fn are_on(&self) -> bool {
        self.are_on.load(Ordering::Relaxed)
    }

    /// Adds a quota or replaces the one of its scope and name. It counts after [`Self::apply`], once it is written.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn set(&self, rule: Rule) -> Result<Option<Written>, Refusal> {
        Ok(self.table.put(rule)?.written)
    }

    /// Removes a quota.
    ///
    /// # Errors
    /// Scope or name is invalid, or no such quota is set.
    pub(crate) fn remove(&self, scope: &str, name: &str) -> Result<Option<Written>, Refusal> {
        let id = rule::id_of(scope, name)?;
        match self.table.remove(&id)? {
            None => Err(Refusal::NoQuota { scope: scope.to_owned(), name: name.to_owned() }),
            written => Ok(written),
        }
    }

    /// Makes the quotas those of the master.
    ///
    /// # Errors
    /// A quota of the list is invalid; then nothing changes.
    pub(crate) fn adopt(&self, list: QuotaList) -> Result<Option<Written>, Refusal> {
        let mut rules = HashMap::new();
        for QuotaUse { quota, .. } in list.quotas {
            let rule = Rule::new(quota)?;
            rules.insert(rule.id().into(), Arc::new(rule));
        }
        Ok(self.table.adopt(list.data_version, rules)?.1)
    }

    pub(crate) fn version(&self) -> DataVersion {
        self.table.version()
    }

    /// Has the quotas count that are written, also for requests that wait.
    pub(crate) fn apply(&self, now: Duration) {
        let mut limiter = self.limiter.lock();
        let (_, rules) = self.table.all();
        let rules = Rules::new(rules.into_values());
        let are_on = rules.any();
        self.are_on.store(are_on, Ordering::Relaxed);
        limiter.set_rules(rules, now);
        assert!(are_on == limiter.rules().any(), "quotas are asked if one limits something");
        drop(limiter);
        self.changed.notify_one();
    }

    /// All quotas with their use.
    pub(crate) fn list(&self, now: Duration) -> QuotaList {
        let (data_version, rules) = self.table.all();
        let mut limiter = self.limiter.lock();
        let open = self.connections.by_rule(limiter.rules());
        let used = |(id, rule): (String, Rule)| {
            let (used, waiting) = (limiter.usage().of(&id), limiter.waiting_for(&id));
            let [sent, pulled] =
                [Direction::Send, Direction::Pull].map(|direction| used.rate(direction, now));
            QuotaUse {
                connections: open.get(&id).copied().unwrap_or(0),
                pull_bytes: pulled[1],
                pull_messages: pulled[0],
                quota: rule.quota().clone(),
                rejected: used.rejected,
                send_bytes: sent[1],
                send_messages: sent[0],
                throttled: used.throttled,
                waiting,
            }
        };
        let number = rules.len();
        let quotas: Vec<QuotaUse> = rules.into_iter().map(used).collect();
        assert!(quotas.len() == number, "each quota is listed");
        QuotaList { data_version, quotas }
    }

    /// Takes messages and bytes of a request, if its quotas allow it now.
    ///
    /// # Errors
    /// The quota that does not allow it.
    pub(crate) fn ask(&self, want: &Want, now: Duration) -> Result<(), OverQuota> {
        self.limiter.lock().ask(want, now)
    }

    /// Has a request wait, until `deadline` at most.
    ///
    /// # Errors
    /// The request, because the broker stops ([`Self::take_all`]).
    pub(crate) fn hold(
        &self,
        want: Want,
        waiting: Waiting,
        deadline: Duration,
        now: Duration,
    ) -> Result<(), Box<Waiting>> {
        let mut limiter = self.limiter.lock();
        if self.is_stopped.load(Ordering::Relaxed) {
            return Err(Box::new(waiting));
        }
        limiter.hold(want, waiting, deadline, now);
        drop(limiter);
        self.changed.notify_one();
        Ok(())
    }

    /// Notes a request that was rejected at once, because too many wait.
    pub(crate) fn rejected(&self, over: &OverQuota) {
        self.limiter.lock().rejected(over.scope, over.name());
    }

    /// Charges a reader for the messages that it received.
    pub(crate) fn charge(&self, want: &Want, now: Duration) {
        self.limiter.lock().charge(want, now);
    }

    /// Requests that pass now, and those whose time is up.
    pub(crate) fn release(&self, now: Duration) -> Vec<Released<Waiting>> {
        self.limiter.lock().release(now)
    }

    /// Takes out all requests that wait. No request waits from now on.
    pub(crate) fn take_all(&self) -> Vec<Waiting> {
        let mut limiter = self.limiter.lock();
        self.is_stopped.store(true, Ordering::Relaxed); // read under the same lock
        limiter.take_all()
    }

    /// Number of requests that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.limiter.lock().waiting()
    }

    /// Waits until [`Self::release`] may have something to return.
    pub(crate) async fn due(&self, now: impl Fn() -> Duration) {
        loop {
            let due = self.limiter.lock().next_due(now());
            match due.map(|due| due.saturating_sub(now())) {
                Some(Duration::ZERO) => return,
                Some(rest) => drop(tokio::time::timeout(rest, self.changed.notified()).await),
                None => self.changed.notified().await,
            }
        }
    }

    /// Logs a dropped one-way send, at most once per second with the number of all.
    pub(crate) fn warn_of_dropped(&self, over: &OverQuota, now: Duration) {
        let mut dropped = self.dropped.lock();
        dropped.1 += 1;
        if dropped.0.is_none_or(|at| now >= at + WARN_EVERY) {
            warn!(dropped = dropped.1, cause = %over, "sends dropped over quota, their producers asked for no answer");
            *dropped = (Some(now), 0);
        }
    }
}

impl ConnectionCheck for Quotas {
    fn opens(&self, peer: IpAddr) -> bool {
        let mut limiter = self.limiter.lock();
        let limit = limiter.rules().find_address(peer);
        let limit = limit.and_then(|(rule, name)| Some((rule.quota().connections?, name)));
        let Some((limit, name)) = limit else {
            self.connections.open(peer, None);
            return true;
        };
        let is_open = self.connections.open(peer, Some(limit));
        if !is_open {
            limiter.rejected(Scope::Address, &name);
        }
        is_open
    }

    fn closed(&self, peer: IpAddr) {
        self.connections.close(peer);
    }
}

//! Base of all other parts of a broker: configuration, store, tables of topics and groups, and role.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use rocketpy_env::{Disk, RealDisk, memory_limit, now_ms};
use rocketpy_model::perm;
use rocketpy_protocol::message_id::{UniqueKeys, month_start_ms};
use rocketpy_protocol::settings::ConfigChange;
use rocketpy_store::{Store, StoreError};
use tokio::runtime::Handle;

use crate::clock_steps::{ClockSteps, Now};
use crate::metrics::Metrics;
use crate::quota::Quotas;
use crate::refusal::Refusal;
use crate::role::{OfMaster, Role, RoleCell};
use crate::table::creation::Creations;
use crate::table::group::{FoundGroup, GroupTable};
use crate::table::topic::TopicTable;
use crate::tasks::Tasks;
use crate::{BrokerConfig, BrokerError, topic_attribute};

/// Within this time all clients know a changed route: they ask for routes every 30 s, and the name servers get the change at once.
const ROUTE_SPREADS_WITHIN: Duration = Duration::from_secs(60);
/// Share of the memory that the process may use whose last messages count as hot (`accessMessageInMemoryMaxRatio`).
const HOT_PERCENT: u64 = 40;
/// Taken when the machine does not say how much memory it has.
const DEFAULT_MEMORY_BYTES: u64 = 8 << 30;

/// Configuration before and after a change, and a note for the operator.
#[derive(Debug)]
pub(crate) struct ConfigChanged {
    pub(crate) before: Arc<BrokerConfig>,
    pub(crate) after: Arc<BrokerConfig>,
    pub(crate) note: Option<String>,
}

/// Configuration, store, topics, groups, role and counters of a broker.
#[derive(Debug)]
pub(crate) struct Ground<D: Disk = RealDisk> {
    /// As it is now: some of it may change while the broker runs.
    config: ArcSwap<BrokerConfig>,
    /// Until when, on the monotonic clock, clients may write whose permission was taken while the broker runs.
    writable_until: Mutex<Option<Duration>>,
    store: Arc<Store<D>>,
    topics: Arc<TopicTable>,
    /// Which creation of its name each topic is.
    creations: Arc<Creations<D>>,
    turns: Turns,
    groups: GroupTable,
    quotas: Arc<Quotas>,
    /// Read on every use: it may change while the broker runs.
    role: Arc<RoleCell>,
    metrics: Metrics,
    /// Work that requests leave behind.
    tasks: Tasks,
    unique_keys: UniqueKeys,
    started_at_ms: i64,
    hot_bytes: u64,
    clock_steps: ClockSteps,
}

/// Changes that are made one after the other.
#[derive(Debug, Default)]
struct Turns {
    config: Mutex<()>,
    retention: Mutex<()>,
}

impl<D: Disk> Ground<D> {
    /// Loads the tables of topics and groups.
    ///
    /// # Errors
    /// A table cannot be read.
    pub(crate) fn open(
        config: BrokerConfig,
        store: Arc<Store<D>>,
        role: Arc<RoleCell>,
        unique_keys: UniqueKeys,
        runtime: Handle,
        hot_bytes: u64,
    ) -> Result<Self, BrokerError> {
        let (disk, log) = (store.disk().clone(), Arc::downgrade(&store));
        let creations = Arc::new(Creations::open(disk.clone(), &config.store.root, role.is_master(), log));
        let topics = Arc::new(TopicTable::open_with(disk, &config, Some(creations.clone()))?);
        let groups = GroupTable::open(store.disk().clone(), &config)?;
        let quotas = Arc::new(Quotas::open(store.disk().clone(), &config)?);
        let started_at_ms = now_ms();
        let metrics = Metrics::new(started_at_ms, &config.metrics);
        assert_eq!(role.get(), Role::of_id(config.broker_id), "the role of a broker follows from its id");
        Ok(Self {
            config: ArcSwap::from_pointee(config),
            writable_until: Mutex::default(),
            store,
            topics,
            creations,
            turns: Turns::default(),
            groups,
            quotas,
            role,
            metrics,
            tasks: Tasks::new(runtime),
            unique_keys,
            started_at_ms,
            hot_bytes,
            clock_steps: ClockSteps::default(),
        })
    }

    pub(crate) fn store(&self) -> &Arc<Store<D>> {
        &self.store
    }

    /// The address in offset message ids and records.
    pub(crate) fn store_host(&self) -> SocketAddr {
        self.store.config().store_host
    }

    pub(crate) fn topics(&self) -> &Arc<TopicTable> {
        &self.topics
    }

    /// Changed by changes of the topics, and at a slave by its master's.
    pub(crate) fn creations(&self) -> &Creations<D> {
        &self.creations
    }

    pub(crate) fn groups(&self) -> &GroupTable {
        &self.groups
    }

    pub(crate) fn quotas(&self) -> &Arc<Quotas> {
        &self.quotas
    }

    pub(crate) fn role(&self) -> &Arc<RoleCell> {
        &self.role
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// When the broker started, in Unix milliseconds.
    pub(crate) fn started_at_ms(&self) -> i64 {
        self.started_at_ms
    }

    /// Messages that lie this close to the end of the log count as being in memory.
    pub(crate) fn hot_bytes(&self) -> u64 {
        self.hot_bytes
    }

    /// The configuration as it is now.
    pub(crate) fn config(&self) -> Guard<Arc<BrokerConfig>> {
        self.config.load()
    }

    /// Makes and saves a change of live values, all of it or none. A dry run only checks it. Blocks until the values are on disk.
    ///
    /// # Errors
    /// A key cannot change while the broker runs, its value is invalid, or the live values cannot be saved.
    pub(crate) fn change_config(&self, change: &ConfigChange) -> Result<ConfigChanged, Refusal> {
        // Not the lock of `writable_until`, for which each send at a drained broker would wait: the disk is written here.
        let _one_at_a_time = self.turns.config.lock();
        let before = self.config.load_full();
        let after = Arc::new(before.text.changed(&before, change)?);
        let identity = |config: &BrokerConfig| (config.broker_name.clone(), config.broker_id);
        assert_eq!(identity(&before), identity(&after), "a broker keeps its name and id while it runs");
        assert_eq!(before.store.root, after.store.root, "a broker keeps its store while it runs");
        if change.is_dry_run {
            return Ok(ConfigChanged { before: before.clone(), after: before, note: None });
        }
        self.store.set_retention(after.store.retention.clone())?;
        let note = match before.text.keep(change) {
            Ok(note) => note,
            Err(error) => {
                self.store.set_retention(before.store.retention.clone())?;
                return Err(error.into());
            }
        };
        let is_writable = [&before, &after].map(|config| config.broker_permission & perm::WRITE != 0);
        let mut writable_until = self.writable_until.lock();
        match is_writable {
            [true, false] => *writable_until = Some(self.store.monotonic() + ROUTE_SPREADS_WITHIN),
            [_, true] => *writable_until = None,
            [false, false] => {}
        }
        self.config.store(after.clone());
        Ok(ConfigChanged { before, after, note })
    }

    /// Sets what clients may do here, until the next start and at once; returns what they might before.
    pub(crate) fn set_permission(&self, permission: i32) -> i32 {
        let _one_at_a_time = self.turns.config.lock();
        *self.writable_until.lock() = None;
        let before = self.config.load_full();
        let after = BrokerConfig { broker_permission: permission, ..(*before).clone() };
        self.config.store(Arc::new(after));
        before.broker_permission
    }

    /// Whether clients may write still, because some of them do not know yet that they are to go elsewhere.
    pub(crate) fn is_writable_still(&self) -> bool {
        self.writable_until.lock().is_some_and(|until| self.store.monotonic() < until)
    }

    /// Tells the store how long messages of each topic stay readable.
    pub(crate) fn set_topic_retention(&self) -> Result<(), StoreError> {
        // One after the other: an older table must not replace a newer one.
        let _one_at_a_time = self.turns.retention.lock();
        let (_, topics) = self.topics.all();
        self.store.set_topic_retention(topic_attribute::retention_of(&topics))
    }

    /// Permissions of clients: as configured, limited by the role.
    pub(crate) fn permission(&self) -> i32 {
        self.config().broker_permission & self.role.get().permission()
    }

    /// Whether groups may continue here.
    ///
    /// # Errors
    /// This broker is a slave whose log has diverged from its master's.
    pub(crate) fn check_log(&self) -> Result<(), Refusal> {
        if !self.role.has_diverged() {
            return Ok(());
        }
        Err(Refusal::Diverged { broker: self.config().broker_name.clone(), id: self.role.get().broker_id() })
    }

    /// Whether this broker does what only a master does.
    ///
    /// # Errors
    /// This broker is a slave.
    pub(crate) fn check_master(&self, asked: OfMaster) -> Result<(), Refusal> {
        match self.role.get() {
            Role::Master => Ok(()),
            Role::Slave { id } => {
                Err(Refusal::Slave { broker: self.config().broker_name.clone(), id, refused: asked })
            }
        }
    }

    /// The group's configuration. A master creates a missing group when it may. A slave makes none, and serves one that its master would
    /// create as what that would make of it: when the master is gone, new groups may read too.
    ///
    /// # Errors
    /// Those of [`GroupTable::get_or_create`].
    pub(crate) fn group(&self, name: &str) -> Result<FoundGroup, Refusal> {
        if self.role.is_master() {
            return self.groups.get_or_create(name, &self.config());
        }
        self.groups.get_or_default(name, &self.config())
    }

    /// Steps of the wall clock since the start.
    pub(crate) fn clock_steps(&self) -> &ClockSteps {
        &self.clock_steps
    }

    /// Reads both clocks, and notes a step of the wall clock.
    pub(crate) fn observe_clock(&self) -> Now {
        let end = || self.store.max_physical_offset();
        self.clock_steps.observe(|| (end(), Now::of(&self.store), end()))
    }

    /// Takes the samples from which rates and statistics are computed.
    pub(crate) fn sample(&self, now: Instant) {
        self.observe_clock();
        self.metrics.sample(now, now_ms(), self.config().metrics.idle);
        self.metrics.retain(|topic| self.topics.get(topic).is_some(), |group| self.groups.contains(group));
    }

    pub(crate) fn next_unique_key(&self) -> String {
        let now = self.store.now_ms();
        self.unique_keys.next(now, month_start_ms(now, 0)).to_string()
    }

    /// # Errors
    /// The expression is longer than filters may be.
    pub(crate) fn check_filter(&self, expression: &str) -> Result<(), Refusal> {
        let (size_bytes, limit_bytes) = (expression.len(), self.config().max_filter_bytes);
        if size_bytes > limit_bytes {
            return Err(Refusal::FilterTooLong { size_bytes, limit_bytes });
        }
        Ok(())
    }
}

/// Bytes at the end of the log that count as being in memory.
pub(crate) fn hot_bytes() -> u64 {
    memory_limit().unwrap_or(DEFAULT_MEMORY_BYTES) / 100 * HOT_PERCENT
}

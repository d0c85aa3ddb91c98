//! What the requests and services of one broker share.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use rocketpy_env::{Disk, RealDisk, now_ms};
use rocketpy_filter::MessageFilter;
use rocketpy_model::{PhysicalOffset, TopicConfig};
use rocketpy_protocol::message_id::{UniqueKeys, month_start_ms};
use rocketpy_store::{Store, StoreError};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::delay::Delays;
use crate::disk_read::DiskReads;
use crate::expression::ExpressionKind;
use crate::ha::{Past, Replication, Slaves};
use crate::held_request::{HeldLimits, HeldRequests};
use crate::held_send::HeldSends;
use crate::minute::MinuteRates;
use crate::process::{Forwarded, Pushes, SendsToNewTopics};
use crate::put::UnreadablePages;
use crate::put::properties::broker_suffix;
use crate::refusal::Refusal;
use crate::registration::{Announced, Registrar};
use crate::role::{OfMaster, Role, RoleCell};
use crate::role_change::RoleOrder;
use crate::slave::{MasterAddress, MasterMetadata, OwnCommits};
use crate::stats::Stats;
use crate::table::client::ClientTable;
use crate::table::creation::Creations;
use crate::table::group::{FoundGroup, GroupTable};
use crate::table::missing::MissingTables;
use crate::table::offset::OffsetTable;
use crate::table::queue_lock::QueueLocks;
use crate::table::topic::{TopicChange, TopicTable};
use crate::tasks::Tasks;
use crate::timer::Timers;
use crate::transaction::Transactions;
use crate::waiting::Waiting;
use crate::{BrokerConfig, BrokerError, FlushMode, topic_attribute};

/// Share of the machine's memory whose last messages count as hot (`accessMessageInMemoryMaxRatio`).
const HOT_PERCENT: u64 = 40;
/// Taken when the machine does not say how much memory it has.
const DEFAULT_MEMORY_BYTES: u64 = 8 << 30;

/// Everything that the requests and services of one broker share.
#[derive(Debug)]
pub(crate) struct Shared<D: Disk = RealDisk> {
    /// As it is now: some of it may change while the broker runs.
    config: ArcSwap<BrokerConfig>,
    pub(crate) store: Arc<Store<D>>,
    pub(crate) topics: Arc<TopicTable>,
    /// Which creation of its name each topic is.
    pub(crate) creations: Arc<Creations<D>>,
    pub(crate) groups: GroupTable,
    pub(crate) offsets: OffsetTable<D>,
    pub(crate) clients: ClientTable,
    pub(crate) queue_locks: QueueLocks<D>,
    pub(crate) held: HeldRequests<Waiting>,
    pub(crate) held_sends: Arc<HeldSends>,
    /// Sends that wait for slaves.
    pub(crate) held_for_slaves: Arc<HeldSends>,
    /// The slaves that are connected; none unless this is a master that has a port for them.
    pub(crate) slaves: Arc<Slaves>,
    /// Messages that wait for a delay level.
    pub(crate) delays: Delays<D>,
    /// Messages that wait for their time.
    pub(crate) timers: Timers<D>,
    /// Messages that wait for the end of their transaction.
    pub(crate) transactions: Transactions,
    /// Where the records of such messages cannot be read.
    pub(crate) unreadable: UnreadablePages,
    /// Pulls of what is not in memory.
    pub(crate) cold_pulls: DiskReads,
    /// Requests that look a message or an offset up.
    pub(crate) look_ups: DiskReads,
    /// Statistics, which read a record of each queue: nobody else waits for them.
    pub(crate) surveys: DiskReads,
    pub(crate) sends_to_new_topics: SendsToNewTopics,
    pub(crate) forwarded: Forwarded,
    /// Replies that wait for their clients.
    pub(crate) reply_pushes: Pushes,
    pub(crate) stats: Stats,
    pub(crate) rates: MinuteRates,
    /// Read on every use: it may change while the broker runs.
    pub(crate) role: Arc<RoleCell>,
    /// Where the master is, of a slave.
    pub(crate) master: MasterAddress,
    /// Work that requests leave behind.
    pub(crate) tasks: Tasks,
    pub(crate) started_at_ms: i64,
    /// Where the log ended at the start, if it may have been longer before.
    pub(crate) in_doubt_to: Option<PhysicalOffset>,
    /// Whether sends are answered after the flush.
    pub(crate) sync_flush: bool,
    /// The properties that every message gets, as text.
    pub(crate) property_suffix: Vec<u8>,
    /// Messages that lie this close to the end of the log count as being in memory.
    pub(crate) hot_bytes: u64,
    /// The filter of the last pull that brought its own: scans and lite consumers send the same one over and over.
    last_filter: Mutex<LastFilter>,
    setting_retention: Mutex<()>,
    setting_config: Mutex<()>,
    unique_keys: UniqueKeys,
    advertised: OnceLock<Advertised>,
    slave_port: OnceLock<u16>,
    past: OnceLock<Arc<Past<D>>>,
    /// The threads that copy the log, once they run.
    pub(crate) replication: OnceLock<Replication>,
    /// What a command wants this broker to become.
    pub(crate) role_orders: watch::Sender<Option<RoleOrder>>,
    /// Held by a command that is about to change the role: one at a time.
    pub(crate) role_change: tokio::sync::Mutex<()>,
    /// What consumers committed at a slave.
    pub(crate) own_commits: OwnCommits,
    /// Why a slave does not follow its master, though it reaches it.
    pub(crate) not_followed: Arc<Mutex<Option<String>>>,
    registrar: OnceLock<Registrar>,
    /// The service that asks the master.
    master_metadata: OnceLock<Weak<MasterMetadata>>,
}

/// How clients reach this broker; known once it listens.
#[derive(Debug, Clone)]
pub(crate) struct Advertised {
    /// In offset message ids and records.
    pub(crate) store_host: SocketAddr,
    /// In routes.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Advertised {
    /// `host:port`, an IPv6 address in brackets.
    pub(crate) fn address(&self) -> String {
        self.with_port(self.port)
    }

    pub(crate) fn with_port(&self, port: u16) -> String {
        if self.host.contains(':') {
            format!("[{}]:{port}", self.host)
        } else {
            format!("{}:{port}", self.host)
        }
    }
}

impl<D: Disk> Shared<D> {
    /// Loads the tables of an open store. Called on a runtime, they are written on its threads, else by whoever changes something. Whether
    /// members of groups may have seen a longer log than this one decides how they go on (`is_in_doubt`).
    pub(crate) fn open(
        config: BrokerConfig,
        store: Arc<Store<D>>,
        unique_keys: UniqueKeys,
        runtime: Handle,
        is_in_doubt: bool,
    ) -> Result<Self, BrokerError> {
        let disk = store.disk().clone();
        let missing = MissingTables::replace(&disk, &config.store.root);
        let is_master = Role::of_id(config.broker_id) == Role::Master;
        let log = Arc::downgrade(&store);
        let creations = Arc::new(Creations::open(disk.clone(), &config.store.root, is_master, log));
        let topics = Arc::new(TopicTable::open_with(disk.clone(), &config, Some(creations.clone()))?);
        let groups = GroupTable::open(disk.clone(), &config)?;
        let offsets = OffsetTable::open_with(disk.clone(), &config.store.root, Handle::try_current().ok())?;
        let max_offset = |topic: &str, queue_id| {
            i64::try_from(store.queue_bounds(topic, queue_id).max.get()).unwrap_or(i64::MAX)
        };
        offsets.clamp(max_offset, is_in_doubt)?;
        missing.warn(&store, &topics);
        let queue_locks =
            QueueLocks::open(disk, &config.store.root, Instant::now(), Handle::try_current().ok())?;
        let delays = Delays::open(&store, &config.delay_levels)?;
        let timers = Timers::open(&store)?;
        let transactions = Transactions::open(&store, &offsets)?;
        let started_at_ms = now_ms();
        let limits = HeldLimits { requests: config.max_held_pulls, bytes: config.max_held_bytes };
        let of_queue = Arc::clone(&store);
        let held = HeldRequests::new(limits).telling(move |queue, is_awaited| {
            of_queue.set_awaited(&queue.topic, queue.queue_id, is_awaited);
        });
        let held_for_slaves = Arc::new(HeldSends::for_slaves());
        let shared = Self {
            in_doubt_to: is_in_doubt.then(|| store.max_physical_offset()),
            store,
            topics,
            creations,
            groups,
            offsets,
            clients: ClientTable::default(),
            queue_locks,
            held,
            held_sends: Arc::new(HeldSends::for_flush(held_for_slaves.clone())),
            slaves: Arc::new(Slaves::new(&config.replication, held_for_slaves.clone())),
            held_for_slaves,
            delays,
            timers,
            transactions,
            unreadable: UnreadablePages::default(),
            cold_pulls: DiskReads::giving_way(),
            look_ups: DiskReads::new(),
            surveys: DiskReads::new(),
            sends_to_new_topics: SendsToNewTopics::default(),
            forwarded: Forwarded::default(),
            reply_pushes: Pushes::default(),
            stats: Stats::new(started_at_ms),
            rates: MinuteRates::default(),
            role: Arc::new(RoleCell::new(Role::of_id(config.broker_id))),
            master: MasterAddress::default(),
            tasks: Tasks::new(runtime),
            started_at_ms,
            sync_flush: config.store.flush == FlushMode::Sync,
            property_suffix: broker_suffix(&config.region_id, config.trace_on, &config.cluster_name),
            hot_bytes: memory_bytes().unwrap_or(DEFAULT_MEMORY_BYTES) / 100 * HOT_PERCENT,
            last_filter: Mutex::default(),
            setting_retention: Mutex::default(),
            unique_keys,
            advertised: OnceLock::new(),
            slave_port: OnceLock::new(),
            past: OnceLock::new(),
            replication: OnceLock::new(),
            role_orders: watch::Sender::default(),
            role_change: tokio::sync::Mutex::default(),
            own_commits: OwnCommits::default(),
            not_followed: Arc::default(),
            registrar: OnceLock::new(),
            master_metadata: OnceLock::new(),
            config: ArcSwap::from_pointee(config),
            setting_config: Mutex::default(),
        };
        shared.set_topic_retention().map_err(BrokerError::from)?;
        Ok(shared)
    }

    /// The configuration as it is now.
    pub(crate) fn config(&self) -> Guard<Arc<BrokerConfig>> {
        self.config.load()
    }

    /// Takes the changes of a text of `key=value` lines, all or none; the configuration of before and the new one.
    ///
    /// # Errors
    /// A key may not change while the broker runs, or its value is none of its values.
    pub(crate) fn change_config(&self, text: &str) -> Result<[Arc<BrokerConfig>; 2], Refusal> {
        let _one_at_a_time = self.setting_config.lock();
        let before = self.config.load_full();
        let after = Arc::new(before.text.changed(&before, text)?);
        self.store.set_retention(after.store.retention.clone())?;
        self.config.store(after.clone());
        Ok([before, after])
    }

    /// Sets what clients may do here, until the next start; returns what they might before.
    pub(crate) fn set_permission(&self, permission: i32) -> i32 {
        let _one_at_a_time = self.setting_config.lock();
        let before = self.config.load_full();
        let after = BrokerConfig { broker_permission: permission, ..(*before).clone() };
        self.config.store(Arc::new(after));
        before.broker_permission
    }

    /// Tells the store how long messages of each topic stay readable.
    pub(crate) fn set_topic_retention(&self) -> Result<(), StoreError> {
        // One after the other: an older table must not replace a newer one.
        let _one_at_a_time = self.setting_retention.lock();
        let (_, topics) = self.topics.all();
        self.store.set_topic_retention(topic_attribute::retention_of(&topics))
    }

    /// Says how clients reach this broker. Called once, after the bind.
    pub(crate) fn set_advertised(&self, advertised: Advertised) {
        self.store.set_store_host(advertised.store_host);
        let set = self.advertised.set(advertised);
        assert!(set.is_ok(), "the advertised address is set once");
    }

    /// Says what is known of the past of the log. Called once, before the first request.
    pub(crate) fn set_past(&self, past: Arc<Past<D>>) {
        let set = self.past.set(past);
        assert!(set.is_ok(), "the past is set once");
    }

    /// What is known of the past of the log; `None` for a broker that never was a master with slaves, or a slave.
    pub(crate) fn past(&self) -> Option<&Arc<Past<D>>> {
        self.past.get()
    }

    /// Says which port listens for slaves. Called once, after the bind.
    pub(crate) fn set_slave_port(&self, port: u16) {
        let set = self.slave_port.set(port);
        assert!(set.is_ok(), "the port for slaves is set once");
    }

    /// Where slaves connect, as `host:port`; `None`: nowhere.
    pub(crate) fn slave_address(&self) -> Option<String> {
        Some(self.advertised()?.with_port(*self.slave_port.get()?))
    }

    pub(crate) fn advertised(&self) -> Option<&Advertised> {
        self.advertised.get()
    }

    pub(crate) fn store_host(&self) -> SocketAddr {
        self.advertised.get().map_or(self.config().listen, |advertised| advertised.store_host)
    }

    pub(crate) fn set_registrar(&self, registrar: Registrar) {
        let set = self.registrar.set(registrar);
        assert!(set.is_ok(), "the registrar is set once");
    }

    pub(crate) fn set_master_metadata(&self, service: &Arc<MasterMetadata>) {
        let set = self.master_metadata.set(Arc::downgrade(service));
        assert!(set.is_ok(), "the service is set once");
    }

    /// The service that asks the master; `None` while the broker starts or stops.
    pub(crate) fn master_metadata(&self) -> Option<Arc<MasterMetadata>> {
        self.master_metadata.get()?.upgrade()
    }

    pub(crate) fn registrar(&self) -> Option<&Registrar> {
        self.registrar.get()
    }

    /// What clients may do here: as configured, and no more than the role allows.
    pub(crate) fn permission(&self) -> i32 {
        self.config().broker_permission & self.role.get().permission()
    }

    /// Whether groups may go on here.
    ///
    /// # Errors
    /// It is a slave with another log than its master's.
    pub(crate) fn check_log(&self) -> Result<(), Refusal> {
        if !self.role.has_parted() {
            return Ok(());
        }
        Err(Refusal::Parted { broker: self.config().broker_name.clone(), id: self.role.get().broker_id() })
    }

    /// Whether this broker does what only a master does.
    ///
    /// # Errors
    /// It is a slave.
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

    /// Tells the name servers about changed topics; `None` where the broker has no name server.
    pub(crate) fn announce(&self, change: &TopicChange) -> Option<Announced> {
        self.registrar().map(|registrar| registrar.announce(change))
    }

    /// The ends of a topic's queues, summed up: how many messages it ever got.
    pub(crate) fn messages_of(&self, topic: &TopicConfig) -> u64 {
        let end = |queue_id| self.store.queue_bounds(&topic.name, queue_id).max.get();
        (0..topic.queues()).map(end).fold(0, u64::saturating_add)
    }

    /// Takes the samples from which rates are computed.
    pub(crate) fn sample(&self, now: Instant) {
        self.stats.sample(now, now_ms());
        let (_, topics) = self.topics.all();
        let totals = topics.into_iter().map(|(name, topic)| (name, self.messages_of(&topic)));
        self.rates.tick(now, totals);
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

    /// The filter of an expression of this type.
    ///
    /// # Errors
    /// The expression is too long, of a type that is not served, or broken.
    pub(crate) fn parsed_filter(
        &self,
        expression_type: Option<&str>,
        expression: &str,
    ) -> Result<Arc<MessageFilter>, Refusal> {
        self.check_filter(expression)?;
        let kind = ExpressionKind::of(expression_type)?;
        if let Some(filter) = self.last_filter.lock().of(kind, expression) {
            return Ok(filter);
        }
        // Nobody waits for the lock while this one is parsed.
        let filter = Arc::new(kind.parse(expression)?);
        let last = LastFilter { kind, expression: expression.to_owned(), filter: filter.clone() };
        *self.last_filter.lock() = last;
        Ok(filter)
    }
}

/// An expression and its filter.
#[derive(Debug, Default)]
struct LastFilter {
    kind: ExpressionKind,
    expression: String,
    filter: Arc<MessageFilter>,
}

impl LastFilter {
    fn of(&self, kind: ExpressionKind, expression: &str) -> Option<Arc<MessageFilter>> {
        (self.kind == kind && self.expression == expression).then(|| self.filter.clone())
    }
}

/// Memory of this machine, where the system tells.
fn memory_bytes() -> Option<u64> {
    let text = RealDisk.read("/proc/meminfo".as_ref(), 1 << 16).ok()?;
    let text = String::from_utf8(text).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

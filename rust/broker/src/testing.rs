//! The parts of a broker, on a temporary folder and without connections.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rocketpy_env::{Disk, DiskFile, OpenMode, RealDisk};
use rocketpy_filter::MessageFilter;
use rocketpy_model::{PhysicalOffset, TopicConfig, system};
use rocketpy_protocol::Command;
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{SendMessageRequestHeader, SendMessageRequestHeaderV2};
use rocketpy_protocol::message_id::UniqueKeys;
use rocketpy_remoting::Client;
use rocketpy_store::{ReadLimits, Store, StoreConfig};
use tempfile::TempDir;
use tokio::sync::watch;

use crate::BrokerConfig;
use crate::advertised::Advertised;
use crate::broker::write_tables;
use crate::desk::{Desk, Endpoints};
use crate::ground::hot_bytes;
use crate::ha::{Past, Peers, Replication, SharedSecret};
use crate::parts::{Foundation, Parts};
use crate::put::{Delay, NewMessage, Origin, Template, put};
use crate::registration::{Identity, Registrar};
use crate::role::{Role, RoleCell};
use crate::role_change::RoleChanges;
use crate::service::Service;
use crate::slave::MasterMetadata;

/// Longest a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a broker of the tests registers as; it waits as long as a test does.
pub(crate) fn identity() -> Identity {
    Identity {
        cluster_name: "c".to_owned(),
        broker_name: "b".to_owned(),
        broker_addr: "127.0.0.1:10911".to_owned(),
        ha_addr: "127.0.0.1:10912".to_owned(),
        member_proof: None,
        period: PATIENCE,
        timeout: PATIENCE,
    }
}

/// Fewer seconds than the minute for which an unreadable record is tried again; the rest is slack for a slow test.
pub(crate) const MOST_OF_A_MINUTE: u32 = 30;

/// Waits until something is so; `what` says it.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "never came true: {what}");
}

/// Asserts that something is done while this thread holds a lock.
pub(crate) fn does_not_wait(what: impl FnOnce() + Send + 'static) {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        what();
        let _ = done.send(());
    });
    assert!(is_done.recv_timeout(Duration::from_secs(10)).is_ok(), "it waits for the lock");
}

/// Begins to wait for the next round of a service. Called on a runtime.
pub(crate) fn poll_due(service: &impl Service) {
    let _ = service.due().as_mut().poll(&mut Context::from_waker(Waker::noop()));
}

/// The parts of a broker over a real store. Must be made on a runtime.
pub(crate) struct TestBroker {
    desk: Arc<Desk>,
    registrar: Option<Arc<Registrar>>,
    folder: Arc<TempDir>,
}

impl TestBroker {
    pub(crate) fn open(change: impl FnOnce(&mut BrokerConfig)) -> Self {
        Self::open_with(change, None, hot_bytes())
    }

    /// One that registers at these name servers, as [`identity`] says.
    pub(crate) fn registering(
        client: Client,
        name_servers: &[String],
        change: impl FnOnce(&mut BrokerConfig),
    ) -> Self {
        Self::open_with(change, Some((client, name_servers)), hot_bytes())
    }

    /// One where messages this close to the end of the log count as being in memory.
    pub(crate) fn with_hot_bytes(hot_bytes: u64, change: impl FnOnce(&mut BrokerConfig)) -> Self {
        Self::open_with(change, None, hot_bytes)
    }

    fn open_with(
        change: impl FnOnce(&mut BrokerConfig),
        names: Option<(Client, &[String])>,
        hot_bytes: u64,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store_host = "127.0.0.1:10911".parse().unwrap();
        let store = StoreConfig {
            store_host,
            commit_log_file_size: 1 << 20,
            consume_queue_file_size: 2000,
            busy_timeout: PATIENCE,
            ..StoreConfig::new(folder.path().join("store"))
        };
        let mut config = BrokerConfig { store, ..BrokerConfig::default() };
        change(&mut config);
        Self::on(Arc::new(folder), config, names, hot_bytes)
    }

    fn on(
        folder: Arc<TempDir>,
        config: BrokerConfig,
        names: Option<(Client, &[String])>,
        hot_bytes: u64,
    ) -> Self {
        let store = Store::open(config.store.clone()).unwrap();
        RealDisk.create_dir_all(&config.store.root.join("config")).unwrap();
        let store_host = config.store.store_host;
        let unique_keys = UniqueKeys::new(store_host.ip(), std::process::id(), 0);
        let (runtime, is_in_doubt) = (tokio::runtime::Handle::current(), !store.recovery().clean_exit);
        let role = Arc::new(RoleCell::new(Role::of_id(config.broker_id)));
        let registrar = names.map(|(client, name_servers)| {
            Arc::new(Registrar::new(client, name_servers, identity(), role.clone()))
        });
        let foundation = Foundation {
            config,
            store,
            role,
            registrar: registrar.clone(),
            unique_keys,
            runtime,
            is_in_doubt,
            hot_bytes,
        };
        let parts = Parts::open(foundation).unwrap();
        let advertised =
            Advertised { store_host, host: store_host.ip().to_string(), port: store_host.port() };
        let config = parts.ground.config();
        let past = SharedSecret::of(&config).unwrap().map(|secret| {
            let names = (&*config.broker_name, config.broker_id);
            Arc::new(Past::load(RealDisk, &config.store.root, names, Some(secret), true).unwrap().unwrap())
        });
        let peers = Peers::new(parts.slaves.clone(), past);
        let role_changes = Arc::new(RoleChanges::new(
            parts.ground.clone(),
            advertised.clone(),
            peers.clone(),
            Replication::default(),
            Arc::new(MasterMetadata::new(&parts, peers.master().clone(), peers.secret_of_master())),
            watch::Sender::default(),
        ));
        let endpoints = Endpoints { advertised, slaves: None };
        let desk = Desk::new(&parts, registrar.clone(), peers, role_changes, endpoints);
        Self { desk: Arc::new(desk), registrar, folder }
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        self.ground.store()
    }

    /// Of one that registers.
    pub(crate) fn registrar(&self) -> &Arc<Registrar> {
        self.registrar.as_ref().unwrap()
    }

    /// The same folder after a stop and a start, by which a broker changes its role.
    pub(crate) async fn started_again(self, change: impl FnOnce(&mut BrokerConfig)) -> Self {
        write_tables(&self.ground, &self.members).await;
        let (desk, folder) = (self.desk.clone(), self.folder.clone());
        drop(self);
        let mut config = BrokerConfig::clone(&desk.ground.config());
        change(&mut config);
        assert!(Arc::into_inner(desk).is_some(), "nobody else has the store open");
        Self::on(folder, config, None, hot_bytes())
    }

    /// The bytes of a queue's only record, once it can be read.
    pub(crate) fn only_record(&self, topic: &str, queue_id: u32) -> Vec<u8> {
        let end = self.store().max_physical_offset();
        self.store().wait_flushed(end, PATIENCE).unwrap();
        let started = std::time::Instant::now();
        while self.store().dispatched_offset() < end {
            assert!(started.elapsed() < PATIENCE, "dispatch does not reach {end:?}");
            std::thread::yield_now();
        }
        let limits = ReadLimits { max_messages: 2, max_bytes: 1 << 20, copies: true };
        let fetch = self.store().get(topic, queue_id, 0, &limits, &MessageFilter::All).unwrap();
        assert_eq!(fetch.count, 1, "records in {topic} {queue_id}");
        fetch.records.concat()
    }
}

/// The end of the first log file, which cannot be read until it is there again.
pub(crate) struct CutLog {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl CutLog {
    /// The file is as it was.
    pub(crate) fn restore(self) {
        let file = RealDisk.open_file(&self.path, OpenMode::Write).unwrap();
        file.write_all_at(0, &self.bytes).unwrap();
    }
}

/// Files of the log that are soon full.
pub(crate) fn with_small_files(config: &mut BrokerConfig) {
    config.store.commit_log_file_size = 64 << 10;
}

impl TestBroker {
    /// Fills more than half of a log file of [`with_small_files`] with messages of topic `filler`.
    pub(crate) fn fill(&self) {
        let body = [7; 4000];
        for _ in 0..10 {
            put(&self.intake, Origin::Broker, &NewMessage { body: &body, ..message("filler", "") }).unwrap();
        }
    }

    /// Cuts the log file short that is written to, so that the store is poisoned.
    pub(crate) fn poison(&self) {
        let end = self.wait_dispatched(); // else dispatch finds the cut first, and appends are refused for another reason
        let file_size = self.store().config().commit_log_file_size;
        let start = end.get() / file_size * file_size;
        let path = self.store().config().commit_log_dir().join(format!("{start:020}"));
        RealDisk.open_file(&path, OpenMode::Write).unwrap().set_len(0).unwrap();
        assert!(put(&self.intake, Origin::Broker, &message("filler", "")).is_err());
        assert!(self.store().poisoned().is_some());
    }

    /// Waits until consume queues have all of the log. Returns its end.
    fn wait_dispatched(&self) -> PhysicalOffset {
        let end = self.store().max_physical_offset();
        let started = std::time::Instant::now();
        while self.store().dispatched_offset() < end {
            assert!(started.elapsed() < PATIENCE, "dispatch does not reach {end:?}");
            std::thread::yield_now();
        }
        end
    }

    /// Cuts the first log file short, so that the record at a place and all after it there cannot be read.
    pub(crate) fn cut_log(&self, at: PhysicalOffset) -> CutLog {
        let end = self.wait_dispatched();
        assert!(end.get() > self.store().config().commit_log_file_size, "appends go to another file");
        self.store().wait_flushed(end, PATIENCE).unwrap();
        let path = self.store().config().commit_log_dir().join(format!("{:020}", 0));
        let bytes = RealDisk.read(&path, 1 << 30).unwrap();
        RealDisk.open_file(&path, OpenMode::Write).unwrap().set_len(at.get() / 4096 * 4096).unwrap();
        CutLog { path, bytes }
    }

    /// The time passes after which what cannot be read is tried again.
    pub(crate) fn skip_time(&self, time: Duration) {
        *self.intake.unreadable().skipped.lock() += time;
    }
}

impl Deref for TestBroker {
    type Target = Arc<Desk>;

    fn deref(&self) -> &Self::Target {
        &self.desk
    }
}

impl Drop for TestBroker {
    fn drop(&mut self) {
        let closed = self.store().shutdown();
        let may_fail = std::thread::panicking() || self.store().poisoned().is_some();
        // After a failed test its own message is the one to read.
        assert!(closed.is_ok() || may_fail, "{closed:?}");
    }
}

/// Holds up writes or reads while a test has closed it, and counts them.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
    arrived: AtomicUsize,
}

impl Gate {
    pub(crate) fn close(&self) {
        *self.is_closed.lock() = true;
    }

    pub(crate) fn open(&self) {
        *self.is_closed.lock() = false;
        self.opened.notify_all();
    }

    /// Those that have come here, with the one that waits.
    pub(crate) fn arrived(&self) -> usize {
        self.arrived.load(Ordering::SeqCst)
    }

    pub(crate) fn pass(&self) {
        self.arrived.fetch_add(1, Ordering::SeqCst);
        let mut is_closed = self.is_closed.lock();
        while *is_closed {
            self.opened.wait(&mut is_closed);
        }
    }
}

/// Opens the gate again however a test ends: a thread that waits there would keep it from ending.
pub(crate) struct Closed(Arc<Gate>);

impl Closed {
    pub(crate) fn new(gate: &Arc<Gate>) -> Self {
        gate.close();
        Self(gate.clone())
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Where [`message`] comes from.
pub(crate) const PRODUCER: &str = "10.0.0.7:50123";

/// A message with the body `body` for queue 0 of a topic that may be made.
pub(crate) fn message<'a>(topic: &'a str, properties: &'a str) -> NewMessage<'a> {
    NewMessage {
        topic,
        template: Some(Template { topic: system::TEMPLATE_TOPIC, queues: 4 }),
        queue_id: 0,
        flag: 7,
        sys_flag: 0,
        born_at_ms: 1_700_000_000_000,
        born_host: PRODUCER.parse().unwrap(),
        reconsume_times: 0,
        max_reconsume_times: None,
        prepared_transaction_offset: None,
        delay: Delay::Asked,
        is_batch: false,
        body: b"body",
        properties: properties.as_bytes(),
    }
}

pub(crate) async fn add_topic(broker: &TestBroker, topic: TopicConfig) {
    let created = broker.ground.topics().create(vec![topic]).unwrap();
    created.written.unwrap().done().await.unwrap();
}

/// A message of a client for queue 0, as a request.
pub(crate) fn send(topic: &str, body: impl AsRef<[u8]>) -> Command {
    let header = SendMessageRequestHeader {
        producer_group: "producers",
        topic,
        default_topic: "TBW102",
        default_topic_queue_nums: 1,
        queue_id: 0,
        sys_flag: 0,
        born_timestamp: 1,
        flag: 0,
        properties: None,
        reconsume_times: None,
        unit_mode: None,
        max_reconsume_times: None,
        batch: None,
        broker_name: None,
    };
    let command = Command::request(request::SEND_MESSAGE_V2, &SendMessageRequestHeaderV2(header));
    command.with_body(body.as_ref().to_vec())
}

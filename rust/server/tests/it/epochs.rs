//! A master that lost the end of its log, and the slave that has it.
#![expect(clippy::disallowed_methods, reason = "a test reads and copies its own files")]

use std::path::{Path, PathBuf};

use rocketpy_broker::BrokerRole;
use rocketpy_protocol::body::{HaRuntimeInfo, KvTable};
use rocketpy_protocol::code::request;
use rocketpy_protocol::{Command, json};
use rocketpy_server::{Process, Role, ServerConfig};
use tempfile::TempDir;

use crate::support::{Caller, TIMEOUT, config, wait_until};

/// A name server, a master and its slave, with a folder.
struct Pair {
    folder: TempDir,
    caller: Caller,
    names: Process,
    master: Option<Process>,
    slave: Option<Process>,
}

impl Pair {
    /// With a topic that the slave knows.
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let names = Process::start(Role::NameServer, config(&folder.path().join("names"))).unwrap();
        let mut pair = Self { caller: Caller::new(), names, master: None, slave: None, folder };
        pair.master = Some(Process::start(Role::Broker, pair.of_master("master")).unwrap());
        pair.slave = Some(Process::start(Role::Broker, pair.of_slave()).unwrap());
        pair.caller.create_topic(&pair.master(), "orders");
        pair
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn of(&self, name: &str) -> ServerConfig {
        let mut config = config(&self.path(name));
        config.broker.name_servers = self.names.addresses().name_server.clone().into_iter().collect();
        config.broker.broker_name = "pair".to_owned();
        config
    }

    fn of_master(&self, name: &str) -> ServerConfig {
        let mut config = self.of(name);
        config.broker.replication.port = Some(0);
        config.broker.replication.sync_back_timeout = TIMEOUT;
        config
    }

    fn of_slave(&self) -> ServerConfig {
        let mut config = self.of("slave");
        (config.broker.broker_id, config.broker.replication.role) = (1, BrokerRole::Slave);
        config
    }

    fn master(&self) -> String {
        self.master.as_ref().unwrap().addresses().broker.clone().unwrap()
    }

    fn send(&self, bodies: std::ops::Range<u32>) {
        for body in bodies {
            assert_eq!(self.caller.send(&self.master(), "orders", &body.to_string()).code, 0);
        }
    }

    fn end(&self, broker: &str) -> u64 {
        let answer = self.caller.call(broker, Command::bare_request(request::GET_BROKER_RUNTIME_INFO));
        let mut table = json::from_slice::<KvTable>(&answer.body).unwrap().table;
        table.remove("commitLogMaxOffset").unwrap().parse().unwrap()
    }

    /// Waits until the master knows that its slave has all.
    fn wait_for_slave(&self) {
        let (master, asked) = (self.master(), request::GET_BROKER_HA_STATUS);
        wait_until("the slave has all", || {
            let answer = self.caller.call(&master, Command::bare_request(asked));
            let status: HaRuntimeInfo = json::from_slice(&answer.body).unwrap();
            let end = status.master_commit_log_max_offset;
            status.ha_connection_info.iter().any(|slave| end > 0 && slave.slave_ack_offset == end)
        });
    }

    /// Leaves the master's log as a power cut may: as it is now, however it goes on. Returns the name of that folder.
    fn cut_power(&self) -> &'static str {
        copy_folder(&self.path("master"), &self.path("cut"));
        "cut"
    }

    fn stop_master(&mut self) {
        self.master.take().unwrap().stop(TIMEOUT).unwrap();
    }
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
}

fn bodies(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(|number| number.to_string()).collect()
}

#[test]
fn a_master_that_lost_its_end_takes_it_back_from_its_slave_before_it_serves() {
    let mut pair = Pair::start();
    pair.send(0..10);
    pair.wait_for_slave();
    let cut = pair.cut_power();
    pair.send(10..30);
    pair.wait_for_slave();
    let end = pair.end(&pair.master());
    pair.stop_master();

    pair.master = Some(Process::start(Role::Broker, pair.of_master(cut)).unwrap());
    assert_eq!(pair.end(&pair.master()), end);
    assert_eq!(pair.caller.read_all(&pair.master(), "orders"), bodies(0..30));
    // The slave follows on, in the next life.
    pair.send(30..40);
    pair.wait_for_slave();
    assert_eq!(pair.caller.read_all(&pair.master(), "orders"), bodies(0..40));
}

#[test]
fn a_master_that_goes_on_without_what_its_slave_has_does_not_feed_it() {
    let mut pair = Pair::start();
    pair.send(0..10);
    pair.wait_for_slave();
    let cut = pair.cut_power();
    pair.send(10..30);
    pair.wait_for_slave();
    let end = pair.end(&pair.master());
    pair.stop_master();
    let slave = pair.slave.take().unwrap();
    slave.stop(TIMEOUT).unwrap();
    let kept = copied_log(&pair.path("slave"));

    let mut alone = pair.of_master(cut);
    alone.broker.replication.sync_back_timeout = std::time::Duration::ZERO;
    pair.master = Some(Process::start(Role::Broker, alone).unwrap());
    pair.send(100..150);
    assert!(pair.end(&pair.master()) > end);
    let slave = Process::start(Role::Broker, pair.of_slave()).unwrap();
    let address = slave.addresses().broker.clone().unwrap();
    let asked = Command::bare_request(request::GET_BROKER_HA_STATUS);
    wait_until("the slave says why it does not follow", || {
        let answer = pair.caller.call(&address, asked.clone());
        let status: serde_json::Value = json::from_slice(&answer.body).unwrap();
        status["notFollowed"].as_str().is_some_and(|cause| cause.contains("the logs part at"))
    });
    assert_eq!(pair.end(&address), end);
    slave.stop(TIMEOUT).unwrap();
    assert_eq!(copied_log(&pair.path("slave")), kept, "nothing was cut, nothing was appended");
}

/// The bytes of all files of a log.
fn copied_log(store: &Path) -> Vec<u8> {
    let mut files: Vec<_> =
        std::fs::read_dir(store.join("commitlog")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().flat_map(|file| std::fs::read(file).unwrap()).collect()
}

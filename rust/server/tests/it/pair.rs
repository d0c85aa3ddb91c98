//! A name server, a master and its slave, as processes of this one.
#![expect(clippy::disallowed_methods, reason = "a test reads and copies its own files")]

use std::path::{Path, PathBuf};

use rocketpy_broker::BrokerRole;
use rocketpy_protocol::body::{HaRuntimeInfo, KvTable};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{ExchangeHaInfoHeader, Header};
use rocketpy_protocol::{Command, json};
use rocketpy_server::config::AuthConfig;
use rocketpy_server::{Process, Role, ServerConfig};
use tempfile::TempDir;

use crate::support::{Caller, TIMEOUT, config, pull, wait_until};

/// A name server, a master and its slave, with a folder.
pub(crate) struct Pair {
    pub(crate) folder: TempDir,
    pub(crate) caller: Caller,
    pub(crate) names: Process,
    pub(crate) master: Option<Process>,
    pub(crate) slave: Option<Process>,
    /// What both know.
    pub(crate) token_file: Option<PathBuf>,
    /// Users of all three.
    pub(crate) auth: AuthConfig,
}

impl Pair {
    /// With a topic that the slave knows.
    pub(crate) fn start() -> Self {
        Self::start_with_token(None)
    }

    /// The same with a token.
    pub(crate) fn start_with_token(token: Option<&str>) -> Self {
        Self::start_with(token, AuthConfig::default())
    }

    /// The same with users, and calls of the first one.
    pub(crate) fn start_with(token: Option<&str>, auth: AuthConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut of_names = config(&folder.path().join("names"));
        let users_file = Some(folder.path().join("names/users.json"));
        of_names.auth = AuthConfig { users_file, ..auth.clone() };
        let names = Process::start(Role::NameServer, of_names).unwrap();
        let caller = auth.first_user.as_ref().map_or_else(Caller::new, Caller::of_user);
        let mut pair = Self { caller, names, master: None, slave: None, token_file: None, auth, folder };
        if let Some(token) = token {
            pair.set_token(token);
        }
        pair.master = Some(Process::start(Role::Broker, pair.of_master("master")).unwrap());
        pair.slave = Some(Process::start(Role::Broker, pair.of_slave()).unwrap());
        pair.caller.create_topic(&pair.master(), "orders");
        let slave = pair.slave();
        wait_until("the slave knows the topic", || {
            pair.caller.call(&slave, pull("orders", 0, 0)).code != response::TOPIC_NOT_EXIST
        });
        pair
    }

    /// What the next process to be configured knows.
    pub(crate) fn set_token(&mut self, token: &str) {
        let path = self.path(token);
        std::fs::write(&path, format!("{token}\n")).unwrap();
        self.token_file = Some(path);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn of(&self, name: &str) -> ServerConfig {
        let mut config = config(&self.path(name));
        config.broker.name_servers = self.names.addresses().name_server.clone().into_iter().collect();
        config.broker.broker_name = "pair".to_owned();
        config.broker.replication.token_file = self.token_file.clone();
        config.auth = self.auth.clone();
        config
    }

    pub(crate) fn of_master(&self, name: &str) -> ServerConfig {
        let mut config = self.of(name);
        config.broker.replication.port = Some(0);
        config.broker.replication.sync_back_timeout = TIMEOUT;
        config
    }

    pub(crate) fn of_slave(&self) -> ServerConfig {
        let mut config = self.of("slave");
        (config.broker.broker_id, config.broker.replication.role) = (1, BrokerRole::Slave);
        config
    }

    pub(crate) fn master(&self) -> String {
        self.master.as_ref().unwrap().addresses().broker.clone().unwrap()
    }

    /// The master's port for slaves.
    pub(crate) fn slave_addr(&self) -> String {
        let asked = ExchangeHaInfoHeader {
            master_ha_address: None,
            master_flush_offset: None,
            master_address: None,
            log_start: None,
        };
        let asked = Command::request(request::EXCHANGE_BROKER_HA_INFO, &asked);
        let answer = self.caller.call(&self.master(), asked);
        ExchangeHaInfoHeader::read(&answer.ext).unwrap().master_ha_address.unwrap().to_owned()
    }

    pub(crate) fn slave(&self) -> String {
        self.slave.as_ref().unwrap().addresses().broker.clone().unwrap()
    }

    /// What a broker says of its role, its log and its slaves; `None` while it does not answer.
    pub(crate) fn try_status(&self, broker: &str) -> Option<HaRuntimeInfo> {
        let answer =
            self.caller.try_call(broker, Command::bare_request(request::GET_BROKER_HA_STATUS)).ok()?;
        json::from_slice(&answer.body).ok()
    }

    pub(crate) fn send(&self, bodies: std::ops::Range<u32>) {
        for body in bodies {
            assert_eq!(self.caller.send(&self.master(), "orders", &body.to_string()).code, 0);
        }
    }

    pub(crate) fn end(&self, broker: &str) -> u64 {
        let answer = self.caller.call(broker, Command::bare_request(request::GET_BROKER_RUNTIME_INFO));
        let mut table = json::from_slice::<KvTable>(&answer.body).unwrap().table;
        table.remove("commitLogMaxOffset").unwrap().parse().unwrap()
    }

    /// Waits until the master knows that its slave has all.
    pub(crate) fn wait_for_slave(&self) {
        let master = self.master();
        wait_until("the slave has all", || {
            let status = self.try_status(&master).unwrap();
            let end = status.master_commit_log_max_offset;
            status.ha_connection_info.iter().any(|slave| end > 0 && slave.slave_ack_offset == end)
        });
    }

    /// The bytes of the log of a folder, up to an offset.
    pub(crate) fn log(&self, name: &str, end: u64) -> Vec<u8> {
        let entries = std::fs::read_dir(self.path(name).join("commitlog")).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let mut log: Vec<_> = files.into_iter().flat_map(|file| std::fs::read(file).unwrap()).collect();
        log.truncate(end as usize);
        log
    }

    /// Leaves the master's log as a power cut may: as it is now, however it goes on. Returns the name of that folder.
    pub(crate) fn cut_power(&self) -> &'static str {
        copy_folder(&self.path("master"), &self.path("cut"));
        "cut"
    }

    pub(crate) fn stop_master(&mut self) {
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
            match std::fs::copy(entry.path(), &target) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {} // renamed meanwhile
                copied => drop(copied.unwrap()),
            }
        }
    }
}

pub(crate) fn bodies(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(|number| number.to_string()).collect()
}

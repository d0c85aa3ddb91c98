//! The slave of the server, in a process and on a file system of its own.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rocketpy_protocol::body::{ConsumerOffsetSerializeWrapper, HaConnectionInfo, HaRuntimeInfo};
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader, Header};
use rocketpy_protocol::{Command, json};
use rocketpy_remoting as remoting;
use rocketpy_store::reader::StoreReader;
use rocketpy_tools::{Relation, diff, verify};
use tempfile::TempDir;

use super::Harness;
use super::mount::Mounted;
use super::server::{Death, Launch, Part, Server, Started};
use super::shape::Shape;

/// How long a slave may take until it follows a master that serves: it waits between two tries, and reads what it lacks.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(40);
/// A slave answers within this time, however slow its disk is.
const ANSWERS_WITHIN: Duration = Duration::from_secs(25);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How a slave ends in a life of its master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlaveEnd {
    /// It goes on.
    Lives,
    /// It is killed after this time of load.
    Killed(Duration),
    /// It ends as its master does, at the same moment.
    WithMaster,
}

/// A slave, and what it is started with again.
#[derive(Debug)]
pub(super) struct Slave {
    server: Option<Server>,
    /// Before the folder: it is unmounted first.
    disk: Option<Mounted>,
    folder: TempDir,
    port: u16,
    settings: Vec<String>,
    planted: Option<String>,
}

impl Slave {
    pub(super) fn new(
        harness: Harness,
        shape: &Shape,
        port: u16,
        planted: Option<String>,
    ) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let disk = match harness {
            Harness::Power => Some(Mounted::make(folder.path(), shape.kind)?),
            Harness::Kill => None,
        };
        Ok(Self { server: None, disk, folder, port, settings: shape.slave_settings(), planted })
    }

    fn store(&self) -> PathBuf {
        self.disk.as_ref().map_or(self.folder.path(), Mounted::dir).join("store")
    }

    /// Starts it unless it runs. One without a log waits for its master, which has to be there.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn start(&mut self, binary: &Path, name_server: &str) -> Result<(), String> {
        if self.server.as_mut().is_some_and(|server| !server.has_ended()) {
            return Ok(());
        }
        let (store, ready) = (self.store(), self.folder.path().join("ready"));
        let launch = Launch {
            binary,
            store: &store,
            ready: &ready,
            part: Part::Broker { port: self.port, name_server },
            settings: &self.settings,
            kill_at: None,
            hang_after: None,
            planted: self.planted.as_deref(),
            kill_after: None,
        };
        match launch.start()? {
            Started::Ready(server) => {
                self.server = Some(server);
                Ok(())
            }
            Started::Ended(death) => {
                Err(format!("the slave ended in its start, {}: {}", death.status, death.log))
            }
        }
    }

    /// Whether it was started before.
    pub(super) fn has_a_log(&self) -> bool {
        self.server.is_some()
    }

    /// A group that continues behind the end of a queue here, in words; `None` also where it does not run.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) async fn group_ahead(&mut self) -> Result<Option<String>, String> {
        let Some(server) = self.server.as_mut() else { return Ok(None) };
        if server.has_ended() {
            return Ok(None);
        }
        let broker = &server.broker;
        let caller = remoting::Client::new(remoting::ClientConfig::default());
        let ask = async |question| {
            let answer = caller.call(broker, question, ANSWERS_WITHIN).await;
            answer.map_err(|error| format!("the slave does not answer: {error}"))
        };
        let offsets = ask(Command::bare_request(request::GET_ALL_CONSUMER_OFFSET)).await?;
        let offsets = json::from_slice::<ConsumerOffsetSerializeWrapper>(&offsets.body);
        let offsets = offsets.map_err(|error| format!("the slave's offsets: {error}"))?.offset_table;
        for (key, queues) in &offsets {
            let (topic, group) = key.split_once('@').unwrap_or((key, ""));
            for (&queue_id, &offset) in queues {
                let header = GetMaxOffsetRequestHeader { topic, queue_id, committed: None };
                let end = ask(Command::request(request::GET_MAX_OFFSET, &header)).await?;
                let end = GetMaxOffsetResponseHeader::read(&end.ext).map_or(0, |header| header.offset);
                if offset > end {
                    return Ok(Some(format!(
                        "{group} continues at {offset} of {topic}/{queue_id} of the slave, where that ends at {end}"
                    )));
                }
            }
        }
        Ok(None)
    }

    /// Kills it, if it runs. It stays one that was started.
    pub(super) fn kill(&mut self) {
        if let Some(server) = &mut self.server {
            server.end();
        }
    }

    /// Stops all of its threads.
    pub(super) fn freeze(&self) -> Result<(), String> {
        self.server.as_ref().map_or(Ok(()), Server::freeze)
    }

    /// Drops what its file system has not flushed.
    pub(super) fn cut(&self) -> Result<(), String> {
        self.disk.as_ref().map_or(Ok(()), Mounted::cut)
    }

    /// Gives it the file system back.
    pub(super) fn restore(&mut self) -> Result<(), String> {
        self.disk.as_mut().map_or(Ok(()), Mounted::restore)
    }

    /// Waits until the master says that its slave is near enough to be waited for, or `has_all`, or until it has ended.
    ///
    /// # Errors
    /// It is not in time: what slave and master say of it.
    pub(super) async fn follows(&mut self, master: &mut Server, has_all: bool) -> Result<(), String> {
        let is_well = |slave: &HaConnectionInfo| slave.in_sync && (!has_all || slave.diff == 0);
        let (began, caller) = (Instant::now(), remoting::Client::new(remoting::ClientConfig::default()));
        let mut said = "nothing".to_owned();
        while began.elapsed() < FOLLOWS_WITHIN && !master.has_ended() {
            let asked = Command::bare_request(request::GET_BROKER_HA_STATUS);
            if let Ok(answer) = caller.call(&master.broker, asked, FOLLOWS_WITHIN).await {
                said = String::from_utf8_lossy(&answer.body).into_owned();
                let status = json::from_slice::<HaRuntimeInfo>(&answer.body).unwrap_or_default();
                if status.ha_connection_info.iter().any(is_well) {
                    return Ok(());
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        if master.has_ended() {
            return Ok(());
        }
        let log = self.server.take().map(|server| server.kill().log).unwrap_or_default();
        Err(format!(
            "no slave follows after {FOLLOWS_WITHIN:?}; the master says {said}; the slave says: {log}"
        ))
    }

    /// Stops it in order, and compares its files with those of its master, which has stopped.
    ///
    /// # Errors
    /// It does not stop, its files are not sound, or its log is another one.
    pub(super) fn finish(&mut self, master: &Path) -> Result<(), String> {
        let Death { status, log } = self.server.take().ok_or("there is no slave")?.stop();
        if !status.success() || log.contains("panicked at") {
            return Err(format!("the slave ended, {status}: {log}"));
        }
        let open = |path: &Path| StoreReader::open(path).map_err(|error| error.to_string());
        let (first, second) = (open(master)?, open(&self.store())?);
        let report = verify(&second, &mut |_| true).map_err(|error| error.to_string())?;
        if !report.is_sound() {
            return Err(format!("the slave's files have problems, the first: {:?}", report.problems.first()));
        }
        let found = diff(&first, &second, &mut |_| true).map_err(|error| error.to_string())?;
        match found.relation {
            Relation::Equal => Ok(()),
            _ => Err(format!("the slave's log is not its master's: {found:?}")),
        }
    }
}

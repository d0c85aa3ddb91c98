//! `config/replication.json`: what a master knows of its own past, kept over its starts.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketpy_env::{Disk, EnvError};
use rocketpy_ha::{Lives, OtherLife};
use rocketpy_model::PhysicalOffset;
use rocketpy_store::Store;
use serde::{Deserialize, Serialize};

use crate::BrokerError;
use crate::config_file::ConfigFile;

/// Name of the file. Apache has none of it.
const FILE: &str = "replication.json";
/// Pause between two writes of how far slaves have come.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// The lives of a master, in memory and in its file.
#[derive(Debug)]
pub(crate) struct Past<D: Disk> {
    file: ConfigFile<D>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    lives: Lives,
    written_at: Instant,
    is_written: bool,
}

/// What the file holds, in bytes of the log.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Content {
    /// Where lives began after a sudden end.
    lives: Vec<u64>,
    /// How far each slave had the log, by its address.
    slaves: BTreeMap<String, u64>,
    /// The folder was a slave's since: what others have behind its end is not this log.
    was_slave: bool,
}

impl<D: Disk> Past<D> {
    /// Begins a life with the log as the store has it; `None` when this never was a master with slaves, and is none now.
    ///
    /// # Durability
    /// On return the life is in the file.
    pub(crate) fn begin(
        store: &Store<D>,
        root: &Path,
        is_listening: bool,
    ) -> Result<Option<Self>, BrokerError> {
        let file = ConfigFile::on(store.disk().clone(), root, FILE);
        if !is_listening && file.is_missing() {
            return Ok(None);
        }
        let found: Content = file.load()?.unwrap_or_default();
        let mut lives = Lives {
            starts: found.lives.into_iter().map(PhysicalOffset).collect(),
            slaves: found.slaves.into_iter().map(|(name, end)| (name, PhysicalOffset(end))).collect(),
        };
        lives.begin(store.recovery().end, !store.recovery().clean_exit || found.was_slave);
        let state = State { lives, written_at: Instant::now(), is_written: false };
        let past = Self { file, state: Mutex::new(state) };
        past.write(&mut past.state.lock())?;
        Ok(Some(past))
    }

    /// Notes that the folder is a slave's: its next life as a master is a new one.
    ///
    /// # Durability
    /// On return that is in the file.
    pub(super) fn of_slave(store: &Store<D>, root: &Path) -> Result<(), BrokerError> {
        let file = ConfigFile::on(store.disk().clone(), root, FILE);
        let found: Content = file.load()?.unwrap_or_default();
        if !found.was_slave {
            file.save(&Content { was_slave: true, ..found })?;
        }
        Ok(())
    }

    /// Says whether a slave that connects has a beginning of this log.
    ///
    /// # Errors
    /// It may have another one.
    pub(super) fn check(&self, slave: IpAddr, reported: PhysicalOffset) -> Result<(), OtherLife> {
        self.state.lock().lives.check(&slave.to_string(), reported)
    }

    /// A slave that passed the check is about to be fed.
    ///
    /// # Durability
    /// On return it is in the file that it got bytes of this life.
    ///
    /// # Errors
    /// The file cannot be written: the slave must not be fed.
    pub(super) fn connected(&self, slave: IpAddr, reported: PhysicalOffset) -> Result<(), EnvError> {
        let mut state = self.state.lock();
        if state.lives.connected(&slave.to_string(), reported) { self.write(&mut state) } else { Ok(()) }
    }

    /// A slave has the log up to `end`. Written at most once a second.
    ///
    /// # Errors
    /// The file cannot be written, which is tried again a second later. What it does not say makes checks stricter.
    pub(super) fn acknowledged(&self, slave: IpAddr, end: PhysicalOffset) -> Result<(), EnvError> {
        let mut state = self.state.lock();
        state.lives.acknowledged(&slave.to_string(), end);
        state.is_written = false;
        if state.written_at.elapsed() < WRITE_EVERY {
            return Ok(());
        }
        state.written_at = Instant::now();
        self.write(&mut state)
    }

    /// Writes what is not in the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn settle(&self) -> Result<(), EnvError> {
        let mut state = self.state.lock();
        if state.is_written { Ok(()) } else { self.write(&mut state) }
    }

    fn write(&self, state: &mut State) -> Result<(), EnvError> {
        let Lives { starts, slaves } = &state.lives;
        self.file.save(&Content {
            lives: starts.iter().map(|start| start.get()).collect(),
            slaves: slaves.iter().map(|(name, end)| (name.clone(), end.get())).collect(),
            was_slave: false,
        })?;
        (state.is_written, state.written_at) = (true, Instant::now());
        Ok(())
    }
}

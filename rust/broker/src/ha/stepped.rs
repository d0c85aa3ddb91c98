//! A master and its slave without sockets and threads, for the simulator: its caller carries the bytes, and says when anything happens.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use rocketpy_env::{Disk, EnvError};
use rocketpy_ha::{
    Diverged, FROM_THE_FIRST_FILE, Feed, FeedConfig, FeedStep, Follow, FollowConfig, FollowStep, FrameHead,
    LogRange, Relation, encode_report,
};
use rocketpy_model::PhysicalOffset;
use rocketpy_store::{FlushMode, Store, whole_records};

use super::past::{NoBeginning, Past};
use super::reportable_end;
use crate::BrokerError;

/// The only slave comes from here.
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// No time passes: nobody is silent for too long, and nothing is sent but the log and reports.
const NOW: Duration = Duration::ZERO;
const LONG: Duration = Duration::from_secs(3600);
const FRAME_BYTES: usize = 4000;

/// A store, and what it knows of the past of its log.
pub struct SteppedReplica<D: Disk> {
    store: Arc<Store<D>>,
    past: Past<D>,
    flush: FlushMode,
}

/// A connection between a slave and its master, with the bytes that are on their way.
#[derive(Debug)]
pub struct SteppedLink {
    feed: Feed,
    follow: Follow,
    to_slave: VecDeque<u8>,
    to_master: VecDeque<u8>,
    /// The slave was found to have a beginning of the log that ends here.
    checked_end: PhysicalOffset,
    /// Where the master's log ended then.
    regains_at: PhysicalOffset,
}

/// Why a slave is not fed, or a connection ended.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{cause}")]
pub struct Refused {
    cause: String,
    /// Offset at which the two logs diverge, if that is the cause.
    pub diverged_at: Option<PhysicalOffset>,
}

impl From<NoBeginning> for Refused {
    fn from(cause: NoBeginning) -> Self {
        let diverged_at = match &cause {
            NoBeginning::Diverged(Diverged { at, .. }) => Some(*at),
            _ => None,
        };
        Self { cause: cause.to_string(), diverged_at }
    }
}

fn refused(cause: impl ToString) -> Refused {
    Refused { cause: cause.to_string(), diverged_at: None }
}

impl<D: Disk> SteppedReplica<D> {
    /// Reads what the last life left. The folder `config` of the store is there.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(disk: D, store: Arc<Store<D>>, broker_id: u64) -> Result<Self, BrokerError> {
        let config = store.config();
        let (root, flush) = (config.root.clone(), config.flush);
        let past = Past::load(disk, &root, ("pair", broker_id), None, true)?.expect("it is wanted");
        Ok(Self { store, past, flush })
    }

    pub fn store(&self) -> &Arc<Store<D>> {
        &self.store
    }

    /// Begins the life of a master. What it lost was taken back before ([`Self::take_back`]).
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn begin_as_master(&self) -> Result<(), EnvError> {
        self.past.begin_life(&self.store, 1)?;
        if self.past.was_slave() { self.past.end_following() } else { Ok(()) }
    }

    /// Begins the life of a slave.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn begin_as_slave(&self) -> Result<(), EnvError> {
        self.past.begin_following(&self.store)
    }

    /// After a sudden end, copies the records of a slave after the end of this log.
    ///
    /// # Errors
    /// The slave refuses.
    pub fn take_back(&self, slave: &Self) -> Result<(), Refused> {
        loop {
            let greeting = self.greeting()?;
            slave.past.check_greeting(&greeting, &slave.store, None)?;
            let bytes =
                slave.store.log_slice(greeting.end, FRAME_BYTES).map_err(refused)?.unwrap_or_default();
            if bytes.is_empty() {
                return Ok(());
            }
            let end = slave.store.max_physical_offset();
            self.past.adopt(&slave.past.epochs().within(end)).map_err(refused)?;
            let whole = whole_records(&bytes);
            self.store.append_replicated(greeting.end, &bytes[..whole]).map_err(refused)?;
        }
    }

    /// Whether a slave that has other bytes than this master from a place on may cut them off, because nobody was promised anything of them.
    pub fn is_unpromised_behind(&self, at: PhysicalOffset, slave: &Self) -> bool {
        slave.past.is_unpromised_behind(at, &self.past.epochs())
    }

    fn greeting(&self) -> Result<rocketpy_ha::Greeting, Refused> {
        self.past.greeting(&self.store, "", self.file_bytes()).map_err(refused)
    }

    fn file_bytes(&self) -> u64 {
        self.store.config().commit_log_file_size
    }

    /// Connects a slave to this master.
    ///
    /// # Errors
    /// The slave's log is not a beginning of this log.
    pub fn connect(&self, slave: &Self) -> Result<SteppedLink, Refused> {
        let (of_slave, of_master) = (slave.greeting()?, self.greeting()?);
        self.past.check_greeting(&of_slave, &self.store, Some(PEER))?;
        self.past.greeted(&of_slave).map_err(refused)?;
        if let Relation::Diverged(diverged) = of_slave.relation(&of_master.epochs, of_master.end) {
            return Err(NoBeginning::from(diverged).into());
        }
        slave.past.adopt_of_master(&of_master.epochs, of_master.end).map_err(refused)?;
        let feed = FeedConfig {
            heartbeat_every: LONG,
            silence_limit: LONG,
            max_body_bytes: FRAME_BYTES,
            max_bytes_per_second: None,
        };
        let follow =
            FollowConfig { report_every: LONG, silence_limit: LONG, max_body_bytes: FRAME_BYTES as u32 };
        let end = slave.store.max_physical_offset();
        let mut follow = Follow::new(follow, end, NOW);
        if end == slave.store.min_physical_offset() {
            follow = follow.asking_for_all();
        }
        Ok(SteppedLink {
            feed: Feed::new(feed, NOW),
            follow,
            to_slave: VecDeque::new(),
            to_master: VecDeque::new(),
            checked_end: of_slave.end,
            regains_at: of_master.end,
        })
    }

    fn log(&self) -> LogRange {
        LogRange {
            start: self.store.min_physical_offset(),
            end: self.store.max_physical_offset(),
            file_bytes: self.file_bytes(),
        }
    }
}

impl SteppedLink {
    /// How far the master knows that the slave has the log.
    pub fn acknowledged(&self) -> Option<PhysicalOffset> {
        self.feed.acknowledged()
    }

    /// The master sends a frame, if there is one to send.
    ///
    /// # Errors
    /// It ends the connection.
    pub fn send<D: Disk>(&mut self, master: &SteppedReplica<D>) -> Result<(), Refused> {
        let FeedStep::Send { at, max_bytes } = self.feed.step(master.log(), NOW).map_err(refused)? else {
            return Ok(());
        };
        let Some(body) = master.store.log_slice(at, max_bytes).map_err(refused)? else { return Ok(()) };
        self.feed.sent(body.len(), NOW);
        self.to_slave.extend(FrameHead { at, body_bytes: body.len() as u32 }.encode());
        self.to_slave.extend(body);
        Ok(())
    }

    /// Up to `count` bytes reach the slave, which appends what is whole.
    ///
    /// # Errors
    /// It ends the connection.
    pub fn arrive<D: Disk>(&mut self, slave: &SteppedReplica<D>, count: usize) -> Result<(), Refused> {
        let count = count.min(self.to_slave.len());
        let bytes: Vec<u8> = self.to_slave.drain(..count).collect();
        self.follow.heard(&bytes, NOW).map_err(refused)?;
        let whole = whole_records(self.follow.pending());
        let (end, bytes) = (self.follow.end(), &self.follow.pending()[..whole]);
        slave.store.append_replicated(end, bytes).map_err(refused)?;
        self.follow.appended(whole);
        Ok(())
    }

    /// The slave says how far it is, if that is news.
    ///
    /// # Errors
    /// It ends the connection.
    pub fn report<D: Disk>(&mut self, slave: &SteppedReplica<D>) -> Result<(), Refused> {
        let end = reportable_end(&slave.store, slave.flush);
        if end >= self.regains_at {
            slave.past.regained();
        }
        match self.follow.step(end, NOW).map_err(refused)? {
            FollowStep::AskForAll => {
                self.to_master.extend(FROM_THE_FIRST_FILE.to_be_bytes());
                self.follow.reported(self.follow.end(), NOW);
            }
            FollowStep::Report { end } => {
                self.to_master.extend(encode_report(end));
                self.follow.reported(end, NOW);
            }
            FollowStep::Wait { .. } => {}
        }
        Ok(())
    }

    /// Up to `count` bytes reach the master.
    ///
    /// # Errors
    /// It ends the connection.
    pub fn hear<D: Disk>(&mut self, master: &SteppedReplica<D>, count: usize) -> Result<(), Refused> {
        let count = count.min(self.to_master.len());
        let bytes: Vec<u8> = self.to_master.drain(..count).collect();
        let is_first = self.feed.next().is_none();
        self.feed.heard(&bytes, master.log(), NOW).map_err(refused)?;
        if let (true, Some(end)) = (is_first, self.feed.acknowledged()) {
            if end != self.checked_end && !self.feed.asked_for_all() {
                master.past.check(PEER, end).map_err(refused)?;
            }
            master.past.connected(PEER, "1", end).map_err(refused)?;
        }
        Ok(())
    }
}

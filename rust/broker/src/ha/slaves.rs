//! The slaves that are connected to a master, and how far their logs reach.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rocketpy_ha::{Feed, Greeting};
use rocketpy_model::system::MAX_SLAVES;
use rocketpy_model::{AtomicPhysicalOffset, PhysicalOffset};
use rocketpy_protocol::body::RefusedSlave;

use super::ReplicationConfig;
use super::past::NoBeginning;
use crate::held_send::HeldSends;

/// A slave that is connected.
#[derive(Debug)]
pub(crate) struct Slave {
    pub(crate) peer: SocketAddr,
    pub(super) feed: Mutex<Feed>,
    /// Notified when the first report has come, and when the connection ends.
    pub(super) begun: Condvar,
    /// End of its log; 0 before its first report.
    acknowledged: AtomicPhysicalOffset,
    has_reported: AtomicBool,
    /// Set under the lock of the feed when nothing more is read from it: nothing more is to be sent.
    pub(super) has_ended: AtomicBool,
    pub(super) sent_bytes: AtomicU64,
    connected_at: Instant,
    /// The broker id that a slave of RocketPy stated, and where it answers requests.
    stated: OnceLock<(u64, String)>,
}

/// Identity of a slave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Identity {
    /// Of one that says who it is.
    BrokerId(u64),
    /// Of Apache's.
    Address(IpAddr),
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BrokerId(id) => write!(f, "{id}"),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

impl Slave {
    pub(super) fn new(peer: SocketAddr, feed: Feed) -> Self {
        Self {
            peer,
            feed: Mutex::new(feed),
            begun: Condvar::new(),
            acknowledged: AtomicPhysicalOffset::default(),
            has_reported: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            sent_bytes: AtomicU64::new(0),
            connected_at: Instant::now(),
            stated: OnceLock::new(),
        }
    }

    /// Identity from the slave's greeting.
    pub(super) fn greeted(&self, broker_id: u64, address: &str) {
        self.stated.get_or_init(|| (broker_id, address.to_owned()));
    }

    /// The id that it stated; `None` for one of Apache's.
    pub(crate) fn broker_id(&self) -> Option<u64> {
        self.stated.get().map(|(broker_id, _)| *broker_id)
    }

    /// Where it answers requests, as it stated; `None` for one of Apache's.
    pub(crate) fn address(&self) -> Option<&str> {
        self.stated.get().map(|(_, address)| address.as_str())
    }

    pub(super) fn identity(&self) -> Identity {
        self.broker_id().map_or_else(|| Identity::Address(self.peer.ip().to_canonical()), Identity::BrokerId)
    }

    /// End of its log.
    pub(crate) fn acknowledged(&self) -> PhysicalOffset {
        self.acknowledged.load(Ordering::Acquire)
    }

    /// Whether it has shown that it is a slave of this log.
    pub(crate) fn has_reported(&self) -> bool {
        self.has_reported.load(Ordering::Acquire)
    }

    /// Where the next bytes for it begin.
    pub(crate) fn next(&self) -> PhysicalOffset {
        self.feed.lock().next().unwrap_or_default()
    }

    /// Send rate since the slave connected, in bytes per second.
    pub(crate) fn bytes_per_second(&self) -> u64 {
        let seconds = self.connected_at.elapsed().as_secs().max(1);
        self.sent_bytes.load(Ordering::Relaxed) / seconds
    }
}

/// Fewer slaves can take a message than a send has to wait for.
#[derive(Debug, thiserror::Error)]
#[error(
    "of the {needed} slaves to wait for (inSyncReplicas), {there} are connected and less than {max_behind_bytes} bytes behind \
     (haSlaveFallbehindMax)"
)]
pub(crate) struct TooFewSlaves {
    there: usize,
    needed: usize,
    max_behind_bytes: u64,
}

/// The slaves that are connected.
#[derive(Debug)]
pub(crate) struct Slaves {
    connected: Mutex<Vec<Arc<Slave>>>,
    /// Notified at each report, and when a connection ends.
    changed: Condvar,
    /// How many a send waits for.
    needed: usize,
    max_behind_bytes: u64,
    held: Arc<HeldSends>,
    /// Rejected slaves, by their broker ids.
    refused: Mutex<BTreeMap<u64, RefusedSlave>>,
}

impl Slaves {
    pub(crate) fn new(config: &ReplicationConfig, held: Arc<HeldSends>) -> Self {
        Self {
            connected: Mutex::default(),
            changed: Condvar::new(),
            needed: config.slaves_waited_for(),
            max_behind_bytes: config.max_behind_bytes,
            held,
            refused: Mutex::default(),
        }
    }

    /// Whether sends wait for slaves.
    pub(crate) fn are_waited_for(&self) -> bool {
        self.needed > 0
    }

    /// How many a send waits for.
    pub(crate) fn needed(&self) -> usize {
        self.needed
    }

    /// All that are connected.
    pub(crate) fn all(&self) -> Vec<Arc<Slave>> {
        self.connected.lock().clone()
    }

    /// Whether a slave is close enough to the end of the log to be waited for.
    pub(crate) fn is_near(&self, slave: &Slave, end: PhysicalOffset) -> bool {
        slave.has_reported() && end.saturating_sub(slave.acknowledged()) < self.max_behind_bytes
    }

    /// Says whether it makes sense to wait until slaves have the log up to `end`.
    ///
    /// # Errors
    /// Too few of them are connected, or near enough.
    pub(crate) fn are_there_for(&self, end: PhysicalOffset) -> Result<(), TooFewSlaves> {
        let connected = self.connected.lock();
        let near: BTreeSet<_> =
            connected.iter().filter(|slave| self.is_near(slave, end)).map(|slave| slave.identity()).collect();
        let there = near.len();
        let (needed, max_behind_bytes) = (self.needed, self.max_behind_bytes);
        if there < needed { Err(TooFewSlaves { there, needed, max_behind_bytes }) } else { Ok(()) }
    }

    /// Notes that a slave is not fed, or that it is.
    pub(super) fn note(&self, slave: &Greeting, refusal: Option<String>) {
        let mut refused = self.refused.lock();
        let Some(why) = refusal else { return drop(refused.remove(&slave.broker_id)) };
        if refused.len() < MAX_SLAVES || refused.contains_key(&slave.broker_id) {
            let (broker_id, addr) = (slave.broker_id, slave.address.clone());
            refused.insert(broker_id, RefusedSlave { addr, broker_id, why });
            assert!(refused.len() <= MAX_SLAVES, "the slaves that are known as refused have a bound");
        }
    }

    /// Rejected slaves.
    pub(crate) fn refused(&self) -> Vec<RefusedSlave> {
        self.refused.lock().values().cloned().collect()
    }

    /// Says whether a slave may have the id that it states: two with one would count as one.
    ///
    /// # Errors
    /// Another one is connected that has it.
    pub(super) fn check_id(&self, greeting: &Greeting) -> Result<(), NoBeginning> {
        let connected = self.connected.lock();
        let is_it =
            |(id, address): &&(u64, String)| *id == greeting.broker_id && *address != greeting.address;
        match connected.iter().filter_map(|slave| slave.stated.get()).find(is_it) {
            Some((id, address)) => Err(NoBeginning::IdTaken { id: *id, address: address.clone() }),
            None => Ok(()),
        }
    }

    pub(super) fn add(&self, slave: Arc<Slave>) {
        let mut connected = self.connected.lock();
        assert!(connected.len() < MAX_SLAVES, "the slaves that are connected have a bound");
        connected.push(slave);
    }

    pub(super) fn remove(&self, slave: &Arc<Slave>) {
        self.connected.lock().retain(|other| !Arc::ptr_eq(other, slave));
        self.changed.notify_all();
    }

    /// Waits at most `within` until the logs of all connected slaves reach `end`.
    pub(super) fn wait_until_all_have(&self, end: PhysicalOffset, within: Duration) {
        let deadline = Instant::now() + within;
        let mut connected = self.connected.lock();
        while connected.iter().any(|slave| slave.acknowledged() < end) {
            if self.changed.wait_until(&mut connected, deadline).timed_out() {
                return;
            }
        }
    }

    /// Waits at most `within` until the log of one slave reaches the end that the own one has then; whether it does.
    pub(crate) fn wait_until_one_has(&self, end: impl Fn() -> PhysicalOffset, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        let mut connected = self.connected.lock();
        while !connected.iter().any(|slave| slave.has_reported() && slave.acknowledged() >= end()) {
            if self.changed.wait_until(&mut connected, deadline).timed_out() {
                return false;
            }
        }
        true
    }

    /// The log of a slave reaches to `end`. Returns the end that as many slaves have as are waited for; `None` where there are fewer, or the
    /// report says nothing new.
    pub(super) fn acknowledge(&self, slave: &Slave, end: PhysicalOffset) -> Option<PhysicalOffset> {
        let had = slave.acknowledged.fetch_max(end, Ordering::AcqRel);
        if slave.has_reported.swap(true, Ordering::AcqRel) && had >= end {
            return None;
        }
        let mut by_slave: BTreeMap<Identity, PhysicalOffset> = BTreeMap::new();
        for slave in self.connected.lock().iter() {
            let best = by_slave.entry(slave.identity()).or_default();
            *best = (*best).max(slave.acknowledged()); // an old connection of the same slave may be there still
        }
        let mut ends: Vec<_> = by_slave.into_values().collect();
        self.changed.notify_all();
        ends.sort_unstable_by(|one, other| other.cmp(one));
        assert!(ends.len() <= MAX_SLAVES, "the slaves that are counted have a bound");
        ends.get(self.needed.checked_sub(1)?).copied()
    }

    /// Answers the sends that waited for slaves to have the log up to here.
    pub(super) fn answer(&self, reached: PhysicalOffset) {
        self.held.reached(reached);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ha::BrokerRole;

    /// Slave that has reported 0.
    fn connected(slaves: &Slaves, peer: &str) -> Arc<Slave> {
        let feed = Feed::new(ReplicationConfig::default().feed(), Duration::ZERO);
        let slave = Arc::new(Slave::new(peer.parse().unwrap(), feed));
        slaves.add(slave.clone());
        assert!(!slaves.is_near(&slave, PhysicalOffset(1)), "it has said nothing yet");
        slaves.acknowledge(&slave, PhysicalOffset::ZERO);
        slave
    }

    #[test]
    fn as_many_slaves_as_are_waited_for_have_to_be_there_and_near() {
        let mut config = ReplicationConfig { role: BrokerRole::SyncMaster, ..ReplicationConfig::default() };
        assert_eq!(config.slaves_waited_for(), 1, "unless the operator says less");
        config.in_sync_replicas = Some(1);
        assert!(!Slaves::new(&config, Arc::new(HeldSends::for_slaves())).are_waited_for());
        config.in_sync_replicas = Some(3);
        let slaves = Slaves::new(&config, Arc::new(HeldSends::for_slaves()));
        let near = PhysicalOffset(1000);
        let first = connected(&slaves, "10.0.0.2:1");
        assert!(slaves.are_there_for(near).is_err());
        let again = connected(&slaves, "10.0.0.2:2");
        assert!(slaves.are_there_for(near).is_err(), "the same slave once more");
        again.greeted(2, "10.0.0.2:10911");
        assert!(slaves.are_there_for(near).is_ok(), "another one behind the same address");
        slaves.remove(&again);
        let second = connected(&slaves, "10.0.0.3:1");
        assert!(slaves.are_there_for(near).is_ok());
        let far = near + config.max_behind_bytes;
        let refused = slaves.are_there_for(far).unwrap_err().to_string();
        assert!(
            refused.contains("of the 2 slaves to wait for (inSyncReplicas), 0 are connected"),
            "{refused}"
        );
        slaves.acknowledge(&first, near + 1);
        slaves.acknowledge(&second, near + 1);
        assert!(slaves.are_there_for(far).is_ok());
        slaves.remove(&first);
        assert!(slaves.are_there_for(near).is_err());
    }
}

//! The tables: the queues of topics on brokers, the addresses of brokers, and which brokers are alive.
//!
//! All functions take the time as an argument. Of sockets only the number of a connection is known here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use rocketpy_model::system::MASTER_ID;
use rocketpy_model::{DataVersion, Permission, TopicConfig, perm};
use rocketpy_remoting::{NoMemory, Reservation, TableMemory};
use tracing::field::display;
use tracing::{info, warn};

use crate::error::{Refusal, head};
use crate::limits::BROKER_BYTES;

mod lookup;
mod owners;
mod taken;
#[cfg(test)]
mod tests;

pub(crate) use lookup::{Cluster, Route};
use owners::Owners;
use taken::Members;
pub(crate) use taken::{AddressTaken, Caller, MemberNotProved, NameTaken};

/// Memory of an entry of the tables beside its name.
const ENTRY_BYTES: usize = 192;
/// Longest silence of a broker that does not say how long it may be silent.
pub(crate) const DEFAULT_HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(120);

/// Who registers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BrokerAddr {
    pub(crate) cluster: String,
    /// `host:port` for clients.
    pub(crate) addr: String,
}

/// A registration, full or of a few topics.
#[derive(Debug, Clone)]
pub(crate) struct Registration {
    pub(crate) broker: BrokerAddr,
    pub(crate) name: String,
    pub(crate) id: u64,
    pub(crate) ha_addr: String,
    pub(crate) heartbeat_timeout: Option<Duration>,
    /// `None` from brokers that are older than the field.
    pub(crate) acting_master: Option<bool>,
    pub(crate) zone: Option<String>,
    pub(crate) data_version: DataVersion,
    /// How many topics the broker stated. Those with bad names are left out of `topics`.
    pub(crate) stated_topics: usize,
    pub(crate) topics: Vec<TopicConfig>,
    /// `None` leaves the filter servers as they are.
    pub(crate) filter_servers: Option<Vec<String>>,
    /// The connection that it came by.
    pub(crate) from: Caller,
    /// Equal for all brokers of a name that know one token.
    pub(crate) member_proof: Option<String>,
}

/// The answer to a registration: tells a slave where its master is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(crate) master_addr: Option<String>,
    pub(crate) ha_addr: Option<String>,
}

/// Refuses a single topic of a broker that has not registered its whole table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("broker {name} with id {id} is not registered: it must register all topics before a single topic")]
pub(crate) struct NotRegistered {
    pub(crate) name: String,
    pub(crate) id: u64,
}

/// The queues of one topic on the brokers of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queues {
    pub(crate) read_queues: u32,
    pub(crate) write_queues: u32,
    pub(crate) perm: Permission,
    pub(crate) sys_flag: i32,
}

/// The brokers of one name: a master and its slaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrokerGroup {
    pub(crate) cluster: String,
    pub(crate) addrs: BTreeMap<u64, String>,
    pub(crate) acting_master: bool,
    pub(crate) zone: Option<String>,
}

/// The queues of a topic on the brokers of one name, and their memory.
#[derive(Debug)]
struct Known {
    queues: Queues,
    _memory: Reservation,
}

/// Memory for what a registration adds, taken before anything changes.
struct Added {
    /// For the topics that the broker name does not have yet, in their order.
    topics: Vec<Reservation>,
    /// For the broker itself, if its address is new.
    broker: Option<Arc<Reservation>>,
}

#[derive(Debug, Clone)]
struct Live {
    name: String,
    id: u64,
    seen_at: Instant,
    timeout: Duration,
    data_version: DataVersion,
    from: Caller,
    member_proof: Option<String>,
    ha_addr: String,
    memory: Option<Arc<Reservation>>,
}

/// The route table of a name server.
#[doc(alias = "RouteInfoManager")]
#[derive(Debug)]
pub(crate) struct RouteTable {
    memory: TableMemory,
    tables: RwLock<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    /// Topic, broker name.
    topics: BTreeMap<String, BTreeMap<String, Known>>,
    brokers: BTreeMap<String, BrokerGroup>,
    clusters: BTreeMap<String, BTreeSet<String>>,
    live: HashMap<BrokerAddr, Live>,
    filter_servers: HashMap<BrokerAddr, Vec<String>>,
    members: Members,
    owners: Owners,
}

impl RouteTable {
    pub(crate) fn new(memory: TableMemory) -> Self {
        Self { memory, tables: RwLock::default() }
    }

    /// Applies a registration.
    ///
    /// # Errors
    /// [`NotRegistered`], [`NameTaken`], [`AddressTaken`], [`MemberNotProved`], or there is no memory for its topics; nothing has changed then.
    ///
    /// # Source
    /// docs/reference/protocol.md 2.2.1, rules 1 to 7.
    pub(crate) fn register(&self, registration: Registration, now: Instant) -> Result<Registered, Refusal> {
        self.tables.write().register(registration, &self.memory, now)
    }

    /// Removes a broker. False when its address is not registered under the name.
    ///
    /// # Errors
    /// The broker lives on another connection.
    pub(crate) fn unregister(
        &self,
        broker: &BrokerAddr,
        name: &str,
        from: Caller,
        now: Instant,
    ) -> Result<bool, AddressTaken> {
        let mut tables = self.tables.write();
        tables.check_own(&broker.addr, from, now)?;
        Ok(tables.unregister(broker, name))
    }

    /// Removes the brokers that registered by a connection which has ended. Returns how many.
    pub(crate) fn connection_closed(&self, connection_id: u64) -> usize {
        let is_of_it = |live: &Live| live.from.connection_id == connection_id;
        // Most connections are of clients: their ends must not hold up the questions for routes.
        if !self.tables.read().live.values().any(is_of_it) {
            return 0;
        }
        let mut tables = self.tables.write();
        let gone = tables.live_where(is_of_it);
        for (broker, live) in &gone {
            tables.unregister(broker, &live.name);
            warn!(
                name = live.name,
                id = live.id,
                addr = broker.addr,
                "broker connection closed, broker unregistered"
            );
        }
        gone.len()
    }

    /// Removes the brokers that were silent for too long. Returns the numbers of their connections.
    pub(crate) fn remove_silent(&self, now: Instant) -> Vec<u64> {
        let is_silent = |live: &Live| now.saturating_duration_since(live.seen_at) > live.timeout;
        if !self.tables.read().live.values().any(is_silent) {
            return Vec::new();
        }
        let mut tables = self.tables.write();
        let silent = tables.live_where(is_silent);
        for (broker, live) in &silent {
            tables.unregister(broker, &live.name);
            warn!(
                name = live.name,
                id = live.id,
                addr = broker.addr,
                "broker timed out, broker unregistered"
            );
        }
        silent.into_iter().map(|(_, live)| live.from.connection_id).collect()
    }

    /// Notes that a broker is alive. False when it is not registered, or somebody else says so.
    pub(crate) fn heartbeat(&self, broker: &BrokerAddr, from: Caller, now: Instant) -> bool {
        let mut tables = self.tables.write();
        let live = tables.live.get_mut(broker).filter(|live| live.is_near(from));
        live.map(|live| live.seen_at = now).is_some()
    }

    /// The version of a broker's topic table that is known here. When it equals `asked`, the question of the broker counts as a heartbeat.
    pub(crate) fn query_version(
        &self,
        broker: &BrokerAddr,
        from: Caller,
        asked: DataVersion,
        now: Instant,
    ) -> Option<DataVersion> {
        let mut tables = self.tables.write();
        let live = tables.live.get_mut(broker)?;
        if live.data_version == asked && live.is_near(from) {
            live.seen_at = now;
        }
        Some(live.data_version)
    }

    /// Removes the write permission from all topics of a broker name, until they register again. Returns how many.
    pub(crate) fn wipe_write_perm(&self, name: &str) -> usize {
        self.change_perm(name, |old| old.without(perm::WRITE))
    }

    /// Gives all topics of a broker name read and write permission. Returns how many.
    pub(crate) fn add_write_perm(&self, name: &str) -> usize {
        self.change_perm(name, |_| Permission::READ_WRITE)
    }

    fn change_perm(&self, name: &str, change: impl Fn(Permission) -> Permission) -> usize {
        let mut tables = self.tables.write();
        let queues = tables.topics.values_mut().filter_map(|brokers| brokers.get_mut(name));
        queues.map(|Known { queues, .. }| queues.perm = change(queues.perm)).count()
    }

    /// Removes a topic from one cluster or from all.
    pub(crate) fn delete_topic(&self, topic: &str, cluster: Option<&str>) {
        let mut tables = self.tables.write();
        match cluster {
            None => drop(tables.topics.remove(topic)),
            Some(cluster) => {
                let names = tables.clusters.get(cluster).cloned().unwrap_or_default();
                tables.retain_queues(topic, |name| !names.contains(name));
            }
        }
        let cluster = cluster.map(|cluster| display(head(cluster)));
        info!(topic = %head(topic), cluster, "topic deleted");
    }

    /// Removes a topic from one broker.
    pub(crate) fn delete_topic_of(&self, topic: &str, broker: &str) {
        self.tables.write().retain_queues(topic, |name| name != broker);
        info!(topic = %head(topic), broker = %head(broker), "topic of a broker deleted");
    }

    /// Adds queues of a topic on known brokers. Returns the names of the unknown ones.
    ///
    /// # Errors
    /// There is no memory for them; nothing has changed then.
    pub(crate) fn register_topic(
        &self,
        topic: &str,
        queues: Vec<(String, Queues)>,
    ) -> Result<Vec<String>, NoMemory> {
        let mut tables = self.tables.write();
        let (known, unknown): (Vec<_>, Vec<_>) =
            queues.into_iter().partition(|(name, _)| tables.brokers.contains_key(name));
        let mut entries = Vec::new();
        for (name, queues) in known {
            let memory = self.memory.reserve(ENTRY_BYTES + topic.len())?;
            entries.push((name, Known { queues, _memory: memory }));
        }
        if !entries.is_empty() {
            tables.topics.entry(topic.to_owned()).or_default().extend(entries);
        }
        Ok(unknown.into_iter().map(|(name, _)| name).collect())
    }
}

impl Tables {
    fn register(
        &mut self,
        new: Registration,
        memory: &TableMemory,
        now: Instant,
    ) -> Result<Registered, Refusal> {
        self.check_newcomer(&new, now)?;
        let known = self.brokers.get(&new.name);
        // Rule 1: one address has one id. An address that changes its id is not registered under the new id yet.
        let old_addr = known.and_then(|group| group.addrs.get(&new.id)).cloned();
        if let Some(old) = old_addr.as_ref().filter(|old| **old != new.broker.addr)
            && self.is_stale(old, &new)
        {
            warn!(name = new.name, id = new.id, addr = new.broker.addr, %old, "registration ignored, older than the current one");
            self.live.remove(&new.broker);
            return Ok(Registered::default());
        }
        if old_addr.is_none() && new.stated_topics == 1 {
            return Err(NotRegistered { name: new.name, id: new.id }.into());
        }
        let mut added = self.reserve_for(&new, memory)?;
        if let Some(other) = self.live.get(&new.broker).filter(|live| live.name != new.name) {
            let other = other.name.clone();
            self.unregister(&new.broker, &other);
        }
        self.place(&new);
        self.note_member(&new, now);
        self.take_topics(&new, old_addr.is_none(), std::mem::take(&mut added.topics));
        if old_addr.is_none() {
            info!(
                name = new.name,
                id = new.id,
                addr = new.broker.addr,
                topics = new.topics.len(),
                "broker registered"
            );
        }
        Ok(self.note_live(new, added.broker, now))
    }

    /// Takes memory for what the registration adds.
    fn reserve_for(&self, new: &Registration, memory: &TableMemory) -> Result<Added, NoMemory> {
        let mut topics = Vec::new();
        for topic in new.topics.iter().filter(|topic| !self.has_topic(&topic.name, &new.name)) {
            topics.push(memory.reserve(ENTRY_BYTES + topic.name.len())?);
        }
        let broker = match self.live.get(&new.broker) {
            Some(live) => live.memory.clone(),
            None => Some(Arc::new(memory.reserve(BROKER_BYTES)?)),
        };
        Ok(Added { topics, broker })
    }

    fn has_topic(&self, topic: &str, broker_name: &str) -> bool {
        self.topics.get(topic).is_some_and(|brokers| brokers.contains_key(broker_name))
    }

    /// Rule 2: another live address has the id, with a later state.
    fn is_stale(&self, old_addr: &str, new: &Registration) -> bool {
        let old = BrokerAddr { cluster: new.broker.cluster.clone(), addr: old_addr.to_owned() };
        self.live
            .get(&old)
            .is_some_and(|live| live.data_version.state_version > new.data_version.state_version)
    }

    /// Adds the address to its group and cluster.
    fn place(&mut self, new: &Registration) {
        let cluster = &new.broker.cluster;
        if self.brokers.get(&new.name).is_none_or(|group| group.cluster != *cluster) {
            self.owners.note(&new.name, cluster);
        }
        self.clusters.entry(cluster.clone()).or_default().insert(new.name.clone());
        let group = self.brokers.entry(new.name.clone()).or_insert_with(|| BrokerGroup {
            cluster: cluster.clone(),
            addrs: BTreeMap::new(),
            acting_master: false,
            zone: None,
        });
        group.acting_master = new.acting_master.unwrap_or(false);
        group.zone.clone_from(&new.zone);
        group.addrs.retain(|id, addr| *id == new.id || *addr != new.broker.addr);
        group.addrs.insert(new.id, new.broker.addr.clone());
    }

    /// Rules 4 to 6: takes over the topics of the master, or of the slave that acts for it.
    fn take_topics(&mut self, new: &Registration, first: bool, memory: Vec<Reservation>) {
        let Some(group) = self.brokers.get(&new.name) else { return };
        let least_id = group.addrs.keys().next().copied();
        let acts_as_master = new.acting_master.is_some() && new.id != MASTER_ID && least_id == Some(new.id);
        if new.id != MASTER_ID && !acts_as_master {
            return;
        }
        let read_only = acts_as_master && group.acting_master;
        let changed = self.live.get(&new.broker).is_none_or(|live| live.data_version != new.data_version);
        let mut memory = memory.into_iter();
        for topic in &new.topics {
            let perm = if read_only { topic.perm.without(perm::WRITE) } else { topic.perm };
            let queues = Queues { perm, ..Queues::from(topic) };
            let brokers = self.topics.entry(topic.name.clone()).or_default();
            match brokers.get_mut(&new.name) {
                Some(known) if first || changed => known.queues = queues,
                Some(_) => {}
                None => {
                    let memory = memory.next().expect("taken for every topic that is new here");
                    brokers.insert(new.name.clone(), Known { queues, _memory: memory });
                }
            }
        }
    }

    /// Rule 7: notes that the broker is alive. Returns the answer.
    fn note_live(&mut self, new: Registration, memory: Option<Arc<Reservation>>, now: Instant) -> Registered {
        let Registration { broker, name, id, .. } = new;
        match new.filter_servers {
            Some(servers) if !servers.is_empty() => drop(self.filter_servers.insert(broker.clone(), servers)),
            Some(_) => drop(self.filter_servers.remove(&broker)),
            None => {}
        }
        let mut answer = Registered::default();
        if id != MASTER_ID
            && let Some(master_addr) = self.brokers.get(&name).and_then(|group| group.addrs.get(&MASTER_ID))
        {
            let master = BrokerAddr { cluster: broker.cluster.clone(), addr: master_addr.clone() };
            if let Some(live) = self.live.get(&master) {
                answer.ha_addr = Some(live.ha_addr.clone());
                answer.master_addr = Some(master.addr);
            }
        }
        let live = Live {
            name,
            id,
            seen_at: now,
            timeout: new.heartbeat_timeout.unwrap_or(DEFAULT_HEARTBEAT_TIMEOUT),
            data_version: new.data_version,
            from: new.from,
            member_proof: new.member_proof,
            ha_addr: new.ha_addr,
            memory,
        };
        self.live.insert(broker, live);
        answer
    }

    fn unregister(&mut self, broker: &BrokerAddr, name: &str) -> bool {
        self.live.remove(broker);
        self.filter_servers.remove(broker);
        let Some(group) = self.brokers.get_mut(name) else { return false };
        let before = group.addrs.len();
        group.addrs.retain(|_, addr| *addr != broker.addr);
        let removed = group.addrs.len() < before;
        if group.addrs.is_empty() {
            self.brokers.remove(name);
            self.remove_name(name);
        } else if group.acting_master && !group.addrs.contains_key(&MASTER_ID) {
            // The remaining slaves serve reads. No broker takes writes.
            for Known { queues, .. } in self.topics.values_mut().filter_map(|brokers| brokers.get_mut(name)) {
                queues.perm = queues.perm.without(perm::WRITE);
            }
        }
        removed
    }

    fn remove_name(&mut self, name: &str) {
        self.members.retire(name);
        self.owners.retire(name);
        self.clusters.retain(|_, names| {
            names.remove(name);
            !names.is_empty()
        });
        self.topics.retain(|_, brokers| {
            brokers.remove(name);
            !brokers.is_empty()
        });
    }

    fn retain_queues(&mut self, topic: &str, keep: impl Fn(&str) -> bool) {
        if let Some(brokers) = self.topics.get_mut(topic) {
            brokers.retain(|name, _| keep(name));
            if brokers.is_empty() {
                self.topics.remove(topic);
            }
        }
    }

    fn live_where(&self, is_wanted: impl Fn(&Live) -> bool) -> Vec<(BrokerAddr, Live)> {
        let wanted = self.live.iter().filter(|(_, live)| is_wanted(live));
        wanted.map(|(broker, live)| (broker.clone(), live.clone())).collect()
    }
}

//! What only a broker itself may change: its address, its routes, and the name and id that it is registered under.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use rocketpy_model::system::{MASTER_ID, MAX_SLAVES};
use tracing::warn;

use super::{BrokerAddr, Live, Registration, Tables};
use crate::error::Refusal;
use crate::limits::{BROKER_BYTES, MAX_ADDRESS_BYTES};

/// A broker that registered within this time is alive: longer than the maximum of `registerNameServerPeriod`, 60 s.
pub(super) const ALIVE: Duration = Duration::from_secs(90);
/// Maximum number of addresses of a broker name that are remembered as slaves: all that a master accepts, and the master itself, which may
/// have been a slave. Their memory is reserved with that of the broker.
const MAX_MEMBERS: usize = MAX_SLAVES + 1;
/// Memory of a remembered address.
const MEMBER_BYTES: usize = size_of::<Member>() + MAX_ADDRESS_BYTES;
const _: () =
    assert!(MAX_MEMBERS * MEMBER_BYTES <= BROKER_BYTES / 4 * 3, "the memory of a broker covers its members");
/// Number of broker names above which slaves of a name without brokers are forgotten.
const MAX_NAMES: usize = 1024;

/// The connection of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) connection_id: u64,
    pub(crate) peer: IpAddr,
}

/// Rejects the name of a broker that is alive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "broker {name} with id {id} is already registered from {live}, refused: {addr}; set another brokerId or brokerName for one of them"
)]
pub(crate) struct NameTaken {
    pub(crate) name: String,
    pub(crate) id: u64,
    pub(crate) live: String,
    pub(crate) addr: String,
}

/// Rejects a request about a broker that is registered by another connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the broker at {addr} is alive and registered by another connection as {name}; stop it, or set another brokerIP1 or listenPort"
)]
pub(crate) struct AddressTaken {
    pub(crate) addr: String,
    pub(crate) name: String,
}

/// Rejects a broker of a name whose master proves a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the master of broker name {name} has a token: set the same haTokenFile for the broker at {addr}, or another brokerName"
)]
pub(crate) struct MemberNotProved {
    pub(crate) name: String,
    pub(crate) addr: String,
}

/// Address and machine of a slave.
type Member = (String, IpAddr);

/// Slaves that registered under a broker name since the name server started: one of them may be promoted.
#[derive(Debug, Default)]
pub(super) struct Members(HashMap<String, VecDeque<Member>>);

impl Members {
    /// Remembers a slave. Beyond the limit the oldest member that is not alive makes room; a slave is not remembered while all are alive.
    pub(super) fn note(&mut self, new: &Registration, is_alive: impl Fn(&Member) -> bool) {
        let members = self.0.entry(new.name.clone()).or_default();
        let member = (new.broker.addr.clone(), new.from.peer);
        if new.id == MASTER_ID || members.contains(&member) {
            return;
        }
        if members.len() >= MAX_MEMBERS {
            let Some(dead) = members.iter().position(|member| !is_alive(member)) else { return };
            members.remove(dead);
        }
        members.push_back(member);
    }

    /// Keeps what is known of a name without brokers: after an outage of all of them, the former master may come back before the
    /// promoted slave.
    pub(super) fn retire(&mut self, name: &str) {
        if self.0.len() > MAX_NAMES || self.0.get(name).is_some_and(VecDeque::is_empty) {
            self.0.remove(name);
        }
    }

    fn has(&self, new: &Registration) -> bool {
        let is_it = |(addr, peer): &Member| *addr == new.broker.addr && *peer == new.from.peer;
        self.0.get(&new.name).is_some_and(|members| members.iter().any(is_it))
    }
}

impl Live {
    /// The connection is open as long as the entry exists.
    fn is_alive(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.seen_at) < ALIVE
    }

    /// Whether a request comes from the connection of the broker, or from its machine.
    pub(super) fn is_near(&self, from: Caller) -> bool {
        self.from.connection_id == from.connection_id || self.from.peer == from.peer
    }

    /// Whether the broker has no token, or the newcomer proves the same one.
    fn is_proved_by(&self, new: &Registration) -> bool {
        self.member_proof.is_none() || self.has_same_proof(new)
    }

    fn has_same_proof(&self, new: &Registration) -> bool {
        self.member_proof.is_some() && self.member_proof == new.member_proof
    }
}

impl Tables {
    /// A broker at an address that lives on another connection.
    fn living_elsewhere(&self, addr: &str, from: Caller, now: Instant) -> Option<(&BrokerAddr, &Live)> {
        let is_it = |(broker, live): &(&BrokerAddr, &Live)| {
            broker.addr == addr && live.from.connection_id != from.connection_id && live.is_alive(now)
        };
        self.live.iter().find(is_it)
    }

    /// Remembers who is a slave of the name.
    pub(super) fn note_member(&mut self, new: &Registration, now: Instant) {
        let (live, cluster) = (&self.live, &new.broker.cluster);
        self.members.note(new, |(addr, peer)| {
            let member = BrokerAddr { cluster: cluster.clone(), addr: addr.clone() };
            let known = live.get(&member).filter(|known| known.name == new.name && known.from.peer == *peer);
            known.is_some_and(|known| known.is_alive(now))
        });
    }

    /// Rejects a change of a broker that lives on another connection.
    pub(super) fn check_own(&self, addr: &str, from: Caller, now: Instant) -> Result<(), AddressTaken> {
        match self.living_elsewhere(addr, from, now) {
            None => Ok(()),
            Some((_, live)) => Err(AddressTaken { addr: addr.to_owned(), name: live.name.clone() }),
        }
    }

    /// Checks whether a registration may take its address, and the name and id.
    ///
    /// # Errors
    /// A broker that lives on another connection has them.
    ///
    /// # Source
    /// docs/decisions/one-broker-of-a-name.md.
    pub(super) fn check_newcomer(&self, new: &Registration, now: Instant) -> Result<(), Refusal> {
        self.check_address(new, now)?;
        self.check_cluster(new, now)?;
        self.check_member(new, now)?;
        self.check_name(new, now)?;
        Ok(())
    }

    /// A broker that restarts registers its address by a new connection. Its machine may have died and left the old connection open.
    fn check_address(&self, new: &Registration, now: Instant) -> Result<(), AddressTaken> {
        let addr = &new.broker.addr;
        let Some((broker, live)) = self.living_elsewhere(addr, new.from, now) else { return Ok(()) };
        let host =
            addr.rsplit_once(':').and_then(|(host, _)| host.trim_matches(['[', ']']).parse::<IpAddr>().ok());
        let is_of_host = live.from.peer == new.from.peer || host == Some(new.from.peer);
        if *broker == new.broker && live.name == new.name && is_of_host && live.is_proved_by(new) {
            return Ok(());
        }
        Err(AddressTaken { addr: addr.clone(), name: live.name.clone() })
    }

    /// A broker name belongs to one cluster as long as one of its brokers is alive.
    fn check_cluster(&self, new: &Registration, now: Instant) -> Result<(), NameTaken> {
        let Some(group) = self.brokers.get(&new.name).filter(|group| group.cluster != new.broker.cluster)
        else {
            return Ok(());
        };
        let living = |id: &u64| {
            self.living_of(&new.name, *id)
                .is_some_and(|live| live.from.connection_id != new.from.connection_id && live.is_alive(now))
        };
        let Some((id, live)) = group.addrs.iter().find(|(id, _)| living(id)) else { return Ok(()) };
        Err(NameTaken {
            name: new.name.clone(),
            id: *id,
            live: format!("{live} of cluster {}", group.cluster),
            addr: format!("{} of cluster {}", new.broker.addr, new.broker.cluster),
        })
    }

    /// The slaves of a master with a token have the same one.
    fn check_member(&self, new: &Registration, now: Instant) -> Result<(), MemberNotProved> {
        let Some(master) = self.living_of(&new.name, MASTER_ID) else { return Ok(()) };
        let is_own = master.from.connection_id == new.from.connection_id;
        if is_own || !master.is_alive(now) || master.is_proved_by(new) {
            return Ok(());
        }
        Err(MemberNotProved { name: new.name.clone(), addr: new.broker.addr.clone() })
    }

    fn living_of(&self, name: &str, id: u64) -> Option<&Live> {
        let group = self.brokers.get(name)?;
        let addr = group.addrs.get(&id)?.clone();
        self.live.get(&BrokerAddr { cluster: group.cluster.clone(), addr })
    }

    /// Rejects a second broker of a name and id while the first is alive. Apache's name server accepts both in turns, and messages split
    /// between them. A broker that restarts elsewhere has closed its former connection, which ended its entry; one whose machine died
    /// leaves it open, and counts as gone after [`ALIVE`]. A slave that was promoted has a later state: it proves the token of the
    /// former master, or was registered as a slave of the name before.
    fn check_name(&self, new: &Registration, now: Instant) -> Result<(), NameTaken> {
        let Some(group) = self.brokers.get(&new.name) else { return Ok(()) };
        let Some(old_addr) = group.addrs.get(&new.id).filter(|addr| **addr != new.broker.addr) else {
            return Ok(());
        };
        let old = self.living_of(&new.name, new.id);
        let Some(live) = old.filter(|live| live.from.connection_id != new.from.connection_id) else {
            return Ok(());
        };
        let (own, other) = (live.data_version.state_version, new.data_version.state_version);
        if own > other {
            return Ok(()); // rule 2 ignores the registration
        }
        let is_promoted = own < other && (live.has_same_proof(new) || self.members.has(new));
        let (name, id, former, addr) = (&new.name, new.id, old_addr, &new.broker.addr);
        if live.is_alive(now) && !is_promoted {
            return Err(NameTaken { name: name.clone(), id, live: former.clone(), addr: addr.clone() });
        }
        warn!(name, id, former, addr, "broker address replaced without an unregistration");
        Ok(())
    }
}

//! Master or slave.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rocketpy_model::{perm, system};
use rocketpy_protocol::code::response;
use tokio::sync::Notify;

/// Role of this broker among the brokers of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "BrokerRole")]
pub(crate) enum Role {
    /// Takes messages.
    Master,
    /// Holds a copy of the master's messages, and serves pulls.
    Slave {
        /// Never 0, which is the master's.
        id: u64,
    },
}

impl Role {
    pub(crate) const fn of_id(broker_id: u64) -> Self {
        match broker_id {
            system::MASTER_ID => Self::Master,
            id => Self::Slave { id },
        }
    }

    /// The broker id of registrations and routes.
    pub(crate) const fn broker_id(self) -> u64 {
        match self {
            Self::Master => system::MASTER_ID,
            Self::Slave { id } => id,
        }
    }

    /// The most that clients may do at a broker of this role.
    pub(crate) const fn permission(self) -> i32 {
        match self {
            Self::Master => perm::READ | perm::WRITE,
            Self::Slave { .. } => perm::READ,
        }
    }
}

/// Operations that only a master performs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfMaster {
    /// Store a message, whoever sends it.
    Message,
    /// End a transaction.
    Transaction,
    /// Take a message back from a consumer.
    SendBack,
    /// Serve pulls, where `slaveReadEnable` is off.
    Pull,
    /// Change topics, consumer groups, or the offsets of a group by request of a person.
    Change,
}

impl OfMaster {
    /// The code by which a slave refuses it, Apache's.
    ///
    /// # Source
    /// docs/reference/protocol.md 2.3.1, 2.3.8, 2.3.12 and 2.6, docs/reference/store-format.md 11.3.
    pub(crate) const fn code(self) -> i32 {
        match self {
            Self::Message => response::SERVICE_NOT_AVAILABLE,
            Self::Transaction => response::SLAVE_NOT_AVAILABLE,
            Self::SendBack | Self::Change => response::SYSTEM_ERROR,
            Self::Pull => response::SYSTEM_BUSY,
        }
    }
}

impl fmt::Display for OfMaster {
    /// The refused operation and the way out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Message => "does not accept messages; send to the master of the same broker name",
            Self::Transaction => "does not end transactions; send the request to the master of the same broker name",
            Self::SendBack => "does not accept returned messages; return them to the master of the same broker name",
            Self::Pull => {
                "serves no pulls; pull from the master of the same broker name, or set slaveReadEnable=true"
            }
            Self::Change => {
                "copies topics, groups and offsets from its master; change them at the master of the same broker name"
            }
        })
    }
}

/// Whether a slave's log is a beginning of its master's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum OwnLog {
    /// No master has said so since the start of the process.
    Unchecked,
    /// The log was a beginning of the master's when the slave last connected.
    Followed,
    /// It is not: what the slave has may not be what was acknowledged.
    Diverged,
}

/// The role of a running broker.
#[derive(Debug)]
pub(crate) struct RoleCell {
    broker_id: AtomicU64,
    changed: Notify,
    log: AtomicU8,
}

impl RoleCell {
    pub(crate) fn new(role: Role) -> Self {
        assert_eq!(Role::of_id(role.broker_id()), role, "a slave does not have the broker id of the master");
        let log = AtomicU8::new(OwnLog::Unchecked as u8);
        Self { broker_id: AtomicU64::new(role.broker_id()), changed: Notify::new(), log }
    }

    pub(crate) fn get(&self) -> Role {
        Role::of_id(self.broker_id.load(Ordering::Acquire))
    }

    pub(crate) fn is_master(&self) -> bool {
        self.get() == Role::Master
    }

    pub(crate) fn log(&self) -> OwnLog {
        match self.log.load(Ordering::Acquire) {
            log if log == OwnLog::Followed as u8 => OwnLog::Followed,
            log if log == OwnLog::Diverged as u8 => OwnLog::Diverged,
            _ => OwnLog::Unchecked,
        }
    }

    /// Whether this is a slave whose log is another one than its master's: nobody is to read it, or to count on what groups did here.
    pub(crate) fn has_diverged(&self) -> bool {
        self.log() == OwnLog::Diverged && !self.is_master()
    }

    pub(crate) fn set_log(&self, log: OwnLog) {
        self.log.store(log as u8, Ordering::Release);
        self.changed.notify_waiters();
    }

    #[cfg(test)]
    pub(crate) fn set(&self, role: Role) {
        self.broker_id.store(role.broker_id(), Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Waits until the broker is a master.
    ///
    /// # Cancel safety
    /// The wait may be dropped at any moment, and begun again.
    pub(crate) async fn wait_for_master(&self) {
        self.wait_for(|role| role == Role::Master).await;
    }

    /// Waits until the broker is a slave; as [`Self::wait_for_master`].
    pub(crate) async fn wait_for_slave(&self) {
        self.wait_for(|role| role != Role::Master).await;
    }

    /// Waits until the broker is a slave that follows its master; as [`Self::wait_for_master`].
    pub(crate) async fn wait_until_followed(&self) {
        self.wait_for(|role| role != Role::Master && self.log() == OwnLog::Followed).await;
    }

    async fn wait_for(&self, is_it: impl Fn(Role) -> bool) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable(); // before the look: a change in between counts
            if is_it(self.get()) {
                return;
            }
            changed.await;
        }
    }
}

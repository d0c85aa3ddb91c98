//! Master or slave.

use std::sync::atomic::{AtomicU64, Ordering};

use rocketpy_model::{perm, system};

/// What this broker is among the brokers of its name. Only masters can be configured today.
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

/// The role of a running broker.
#[derive(Debug)]
pub(crate) struct RoleCell(AtomicU64);

impl RoleCell {
    pub(crate) const fn new(role: Role) -> Self {
        Self(AtomicU64::new(role.broker_id()))
    }

    pub(crate) fn get(&self) -> Role {
        Role::of_id(self.0.load(Ordering::Acquire))
    }

    pub(crate) fn set(&self, role: Role) {
        self.0.store(role.broker_id(), Ordering::Release);
    }
}

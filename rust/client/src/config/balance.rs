//! How the members of a group share queues.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use rocketpy_model::MessageQueue;

use super::allocation::Allocator;
use crate::error::ClientError;
use crate::namespace::Namespace;

/// Largest number of points of a member on the ring of the consistent hash.
const MAX_VIRTUAL_NODES: u32 = 1000;

/// How the queues of a topic are shared among the members of a group.
///
/// Every member computes its share by itself, so all must have the same strategy: otherwise some queues are read twice, others not at
/// all. All strategies but [`Asked`](Self::Asked) compute what those of Apache's Java client do.
///
/// # Source
/// docs/reference/client.md 8.4.
#[derive(Debug, Clone)]
#[doc(alias = "AllocateMessageQueueStrategy")]
pub enum Balance {
    /// One contiguous run of queues each; the first members get one more when they do not divide evenly.
    Average,
    /// The queues in turn: one for each member, then the next for each.
    Circle,
    /// These queues, whatever other members read. Those that the topic does not have are left out.
    Configuration(Vec<MessageQueue>),
    /// These queues, without being a member of the group: nobody else is asked or told.
    Assigned(Vec<MessageQueue>),
    /// The queues of brokers in these rooms; the room is the part of the broker's name before `@`.
    MachineRoom(BTreeSet<String>),
    /// Those of the member's own room, and shares of rooms without a member.
    NearestRoom(NearestRoom),
    /// By a ring of hashes: few queues move when members come and go.
    ConsistentHash {
        /// Points of each member on the ring, from 1 to 1,000. Apache's default is 10.
        virtual_nodes: u32,
    },
    /// The user's own code answers.
    Asked(Allocator),
}

/// The rooms of brokers or of clients, by the beginning of their names; of several the longest counts.
pub type Rooms = BTreeMap<String, String>;

/// Members read the brokers of their own room, and share those of rooms without a member.
///
/// A member is found by the beginning of its client id, which is its address.
#[derive(Debug, Clone)]
#[doc(alias = "AllocateMachineRoomNearby")]
pub struct NearestRoom {
    /// The rooms of brokers, by the beginning of the broker name.
    pub brokers: Rooms,
    /// The rooms of members, by the beginning of the client id.
    pub clients: Rooms,
    /// How the queues of a room are shared: average, circle or consistent hash.
    pub inner: Box<Balance>,
}

impl Balance {
    /// Checks the values of a strategy.
    ///
    /// # Errors
    /// [`ClientError::InvalidConfig`].
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        let illegal = |reason: Cow<'static, str>| {
            Err(ClientError::InvalidConfig { field: "balance", reason: reason.into_owned() })
        };
        match self {
            Self::Average | Self::Circle | Self::Asked(_) => Ok(()),
            Self::Configuration(queues) | Self::Assigned(queues) if queues.is_empty() => {
                illegal("no queue is named".into())
            }
            Self::MachineRoom(rooms) if rooms.is_empty() => illegal("no room is named".into()),
            Self::Configuration(_) | Self::Assigned(_) | Self::MachineRoom(_) => Ok(()),
            Self::ConsistentHash { virtual_nodes } if !(1..=MAX_VIRTUAL_NODES).contains(virtual_nodes) => {
                illegal(format!("virtual nodes from 1 to {MAX_VIRTUAL_NODES}, given: {virtual_nodes}").into())
            }
            Self::ConsistentHash { .. } => Ok(()),
            Self::NearestRoom(nearest) => match &*nearest.inner {
                _ if nearest.brokers.is_empty() || nearest.clients.is_empty() => {
                    illegal("rooms of brokers and of clients are needed".into())
                }
                _ if nearest.brokers.values().chain(nearest.clients.values()).any(String::is_empty) => {
                    illegal("a room has no name".into())
                }
                inner @ (Self::Average | Self::Circle | Self::ConsistentHash { .. }) => inner.check(),
                _ => illegal("a room is shared by average, circle or consistent hash".into()),
            },
        }
    }

    /// Whether the consumer joins its group.
    pub(crate) const fn is_of_members(&self) -> bool {
        !matches!(self, Self::Assigned(_))
    }

    /// Puts the namespace before the topics of the queues that the user names.
    pub(crate) fn wrap(&mut self, namespace: &Namespace) {
        if let Self::Configuration(queues) | Self::Assigned(queues) = self {
            namespace.wrap_queues(queues);
        }
    }

    /// The queues that the user names.
    pub(crate) fn configured(&self) -> Option<&[MessageQueue]> {
        match self {
            Self::Configuration(queues) | Self::Assigned(queues) => Some(queues),
            _ => None,
        }
    }

    /// Configured queues of a topic that it does not have.
    pub(crate) fn missing(&self, topic: &str, queues: &[MessageQueue]) -> Vec<MessageQueue> {
        let Some(configured) = self.configured() else { return Vec::new() };
        let is_missing = |queue: &&MessageQueue| *queue.topic == *topic && !queues.contains(queue);
        configured.iter().filter(is_missing).cloned().collect()
    }

    /// Checks that configured queues are those of topics that are read.
    ///
    /// # Errors
    /// [`ClientError::InvalidConfig`].
    pub(crate) fn check_topics(&self, is_read: impl Fn(&str) -> bool) -> Result<(), ClientError> {
        let Some(configured) = self.configured() else { return Ok(()) };
        match configured.iter().find(|queue| !is_read(&queue.topic)) {
            None => Ok(()),
            Some(queue) => Err(ClientError::InvalidConfig {
                field: "balance",
                reason: format!("a queue of a topic that is not read: {queue}"),
            }),
        }
    }

    /// Ends the questions to the user's own code.
    pub(crate) fn end(&self) {
        if let Self::Asked(allocator) = self {
            allocator.end();
        }
    }
}

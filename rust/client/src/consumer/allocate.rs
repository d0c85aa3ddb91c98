//! Which queues of a topic belong to which member of a group.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rocketpy_model::MessageQueue;

use super::allocation::Allocator;
use super::ring::Ring;
use super::room::{self, NearestRoom};
use crate::error::ClientError;
use crate::namespace::Namespace;
use crate::route::TopicRoute;

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

/// Why a member cannot have its share of a topic. It keeps the queues that it has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoShare {
    #[error("no room is known of {what} {name}")]
    NoRoom { what: &'static str, name: String },
    #[error("the topic has no such queue: {queue}")]
    NoSuchQueue { queue: MessageQueue },
    #[error("the function that shares queues out gave no answer")]
    NotAnswered,
    #[error("the function that shares queues out gave no answer within {} s", timeout.as_secs())]
    Slow { timeout: Duration },
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

    /// The queues of member `me`. A member that is not in the list gets none, except by configuration.
    ///
    /// Both lists must be sorted the same way everywhere: queues by topic, broker and number, client ids by UTF-16 code unit.
    pub(super) async fn share(
        &self,
        namespace: &Namespace,
        group: &Arc<str>,
        queues: &[MessageQueue],
        members: &[String],
        me: &str,
    ) -> Result<Vec<MessageQueue>, NoShare> {
        match self {
            Self::Asked(allocator) => allocator.ask(namespace, group, queues, members, me).await,
            _ => self.of_members(queues, members, me),
        }
    }

    /// As [`share`](Self::share), of a strategy that asks nobody.
    pub(super) fn of_members(
        &self,
        queues: &[MessageQueue],
        members: &[String],
        me: &str,
    ) -> Result<Vec<MessageQueue>, NoShare> {
        if let Some(configured) = self.configured() {
            return Ok(configured.iter().filter(|queue| queues.contains(queue)).cloned().collect());
        }
        let Some(index) = members.iter().position(|member| member == me) else { return Ok(Vec::new()) };
        Ok(match self {
            Self::Average => average(queues, members.len(), index).to_vec(),
            Self::Circle => queues.iter().skip(index).step_by(members.len()).cloned().collect(),
            Self::MachineRoom(rooms) => room::in_rooms(rooms, queues, members.len(), index),
            Self::NearestRoom(nearest) => return nearest.share(queues, members, me),
            Self::ConsistentHash { virtual_nodes } => {
                let ring = Ring::new(members, *virtual_nodes);
                queues.iter().filter(|queue| ring.owner(queue) == Some(me)).cloned().collect()
            }
            Self::Configuration(_) | Self::Assigned(_) | Self::Asked(_) => return Err(NoShare::NotAnswered),
        })
    }

    /// Checks that a topic has the queues that are read without the group.
    ///
    /// # Errors
    /// [`ClientError::InvalidConfig`].
    pub(super) fn check_assigned(&self, route: &TopicRoute) -> Result<(), ClientError> {
        match self.missing(&route.topic, &route.subscribe).into_iter().next() {
            Some(queue) if !self.is_of_members() => Err(ClientError::InvalidConfig {
                field: "queues",
                reason: format!("the topic has no such queue: {queue}"),
            }),
            _ => Ok(()),
        }
    }

    /// Whether the consumer joins its group.
    pub(super) const fn is_of_members(&self) -> bool {
        !matches!(self, Self::Assigned(_))
    }

    /// Puts the namespace before the topics of the queues that the user names.
    pub(super) fn wrap(&mut self, namespace: &Namespace) {
        if let Self::Configuration(queues) | Self::Assigned(queues) = self {
            namespace.wrap_queues(queues);
        }
    }

    /// The queues that the user names.
    fn configured(&self) -> Option<&[MessageQueue]> {
        match self {
            Self::Configuration(queues) | Self::Assigned(queues) => Some(queues),
            _ => None,
        }
    }

    /// Configured queues of a topic that it does not have.
    pub(super) fn missing(&self, topic: &str, queues: &[MessageQueue]) -> Vec<MessageQueue> {
        let Some(configured) = self.configured() else { return Vec::new() };
        let is_missing = |queue: &&MessageQueue| *queue.topic == *topic && !queues.contains(queue);
        configured.iter().filter(is_missing).cloned().collect()
    }

    /// Checks that configured queues are those of topics that are read.
    ///
    /// # Errors
    /// [`ClientError::InvalidConfig`].
    pub(super) fn check_topics(&self, is_read: impl Fn(&str) -> bool) -> Result<(), ClientError> {
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
    pub(super) fn end(&self) {
        if let Self::Asked(allocator) = self {
            allocator.end();
        }
    }
}

/// One contiguous run.
///
/// # Source
/// docs/reference/client.md 8.4 (AVG), worked examples in 8.5.
#[doc(alias = "AllocateMessageQueueAveragely")]
fn average(queues: &[MessageQueue], members: usize, index: usize) -> &[MessageQueue] {
    let (share, rest) = (queues.len() / members, queues.len() % members);
    let start = index * share + index.min(rest);
    let size = share + usize::from(index < rest);
    &queues[start..start + size]
}

/// Sorts client ids as Java does: by UTF-16 code unit.
pub(crate) fn sort_members(members: &mut Vec<String>) {
    members.sort_by(|a, b| a.encode_utf16().cmp(b.encode_utf16()));
    members.dedup();
}

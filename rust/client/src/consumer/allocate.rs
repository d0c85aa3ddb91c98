//! Which queues of a topic belong to which member of a group.

use std::sync::Arc;

use rocketpy_model::MessageQueue;

use super::ring::Ring;
use super::room;
use crate::config::{Balance, NoShare};
use crate::error::ClientError;
use crate::namespace::Namespace;
use crate::route::TopicRoute;

impl Balance {
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
}

/// One contiguous run.
///
/// # Source
/// docs/reference/client.md 8.4 (AVG), worked examples in 8.5.
#[doc(alias = "AllocateMessageQueueAveragely")]
fn average(queues: &[MessageQueue], members: usize, index: usize) -> &[MessageQueue] {
    assert!(index < members, "a member that gets a share is one of the members");
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

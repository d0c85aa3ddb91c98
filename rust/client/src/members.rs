//! The groups that the clients of one instance are members of.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rocketpy_model::{MessageQueue, QueueOffset, name, system};
use rocketpy_protocol::Command;
use rocketpy_protocol::body::{
    ConsumerData, ConsumerRunningInfo, HeartbeatData, OtherSubscription, ProducerData,
};
use rocketpy_remoting::Reply;

use crate::error::ClientError;

/// What the instance asks of a consumer.
pub(crate) trait Consumer: Send + Sync {
    /// What the heartbeat says of it.
    fn heartbeat(&self) -> ConsumerData;
    /// Takes what the answers to a heartbeat said about members of its group with other subscriptions.
    fn heard_of_other(&self, other: Option<OtherSubscription>, all_answered: bool);
    /// Takes the denial of a heartbeat, or that no broker denied it.
    fn heard_of_denial(&self, denial: Option<ClientError>, all_asked: bool);
    fn rebalance_soon(&self);
    /// Goes to the offsets that a broker set the group to, in the background.
    fn reset(&self, offsets: BTreeMap<MessageQueue, QueueOffset>);
    /// The offsets up to which the member is done with its queues of a topic.
    fn settled(&self, topic: &str) -> BTreeMap<MessageQueue, QueueOffset>;
    /// What it says of itself to an administrator.
    fn running_info(&self) -> ConsumerRunningInfo;
    /// Has a handler consume the message of a request, and answers how that ended.
    fn consume_directly(&self, asked: Command, reply: Reply);
    /// A broker was connected to: it may have forgotten what it was told.
    fn broker_connected(&self);
    /// The client closes.
    fn stop(&self);
}

/// One client among those that share an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner(pub(crate) u64);

/// What a client is in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Producer,
    Consumer,
}

/// Registered producer and consumer groups, each at most once.
#[derive(Default)]
pub(crate) struct Members {
    producers: Mutex<BTreeMap<String, Owner>>,
    consumers: Mutex<BTreeMap<String, Member>>,
}

/// A registered consumer.
struct Member {
    owner: Owner,
    consumer: Weak<dyn Consumer>,
}

impl Members {
    /// # Errors
    /// [`ClientError::GroupInUse`].
    pub(crate) fn add_producer(&self, owner: Owner, group: &str) -> Result<(), ClientError> {
        let mut producers = self.producers.lock();
        if producers.contains_key(group) {
            return Err(ClientError::GroupInUse { role: "producer", group: group.to_owned() });
        }
        producers.insert(group.to_owned(), owner);
        Ok(())
    }

    /// # Errors
    /// [`ClientError::GroupInUse`].
    pub(crate) fn add_consumer(
        &self,
        owner: Owner,
        group: &str,
        consumer: Weak<dyn Consumer>,
    ) -> Result<(), ClientError> {
        let mut consumers = self.consumers.lock();
        if consumers.get(group).is_some_and(|member| member.consumer.strong_count() > 0) {
            return Err(ClientError::GroupInUse { role: "consumer", group: group.to_owned() });
        }
        consumers.insert(group.to_owned(), Member { owner, consumer });
        Ok(())
    }

    /// Removes a group of this owner. False when the owner is not a member of it.
    pub(crate) fn remove(&self, owner: Owner, role: Role, group: &str) -> bool {
        match role {
            Role::Producer => {
                let mut producers = self.producers.lock();
                producers.get(group) == Some(&owner) && producers.remove(group).is_some()
            }
            Role::Consumer => {
                let mut consumers = self.consumers.lock();
                consumers.get(group).is_some_and(|member| member.owner == owner)
                    && consumers.remove(group).is_some()
            }
        }
    }

    /// Whether some client is a member of the group.
    pub(crate) fn contains(&self, role: Role, group: &str) -> bool {
        match role {
            Role::Producer => self.producers.lock().contains_key(group),
            Role::Consumer => self.consumers.lock().contains_key(group),
        }
    }

    pub(crate) fn has_consumers(&self) -> bool {
        !self.consumers.lock().is_empty()
    }

    /// The heartbeat's body with the groups of all clients; `None` while there are none.
    pub(crate) fn heartbeat(&self, client_id: &str) -> Option<HeartbeatData> {
        let producers: Vec<ProducerData> =
            self.producers.lock().keys().map(|group| ProducerData { group_name: group.clone() }).collect();
        let consumers: Vec<ConsumerData> = self.live().iter().map(|consumer| consumer.heartbeat()).collect();
        if producers.is_empty() && consumers.is_empty() {
            return None;
        }
        Some(HeartbeatData {
            client_id: client_id.to_owned(),
            producer_data_set: producers,
            consumer_data_set: consumers,
            ..HeartbeatData::default()
        })
    }

    /// Tells each consumer what the answers to a heartbeat said about other members of its group.
    pub(crate) fn heard_of_others(&self, others: &[OtherSubscription], all_answered: bool) {
        let consumers: Vec<_> = {
            let consumers = self.consumers.lock();
            let live =
                |(group, member): (&String, &Member)| Some((group.clone(), member.consumer.upgrade()?));
            consumers.iter().filter_map(live).collect()
        };
        for (group, consumer) in consumers {
            let other = others.iter().find(|other| other.group == group);
            consumer.heard_of_other(other.cloned(), all_answered);
        }
    }

    /// Tells each consumer whether users and policies of a broker denied a heartbeat: it names all groups, and none has joined.
    pub(crate) fn heard_of_denial(&self, denial: Option<ClientError>, all_asked: bool) {
        for consumer in self.live() {
            consumer.heard_of_denial(denial.clone(), all_asked);
        }
    }

    /// The consumer of a group, if there is one here.
    pub(crate) fn consumer(&self, group: &str) -> Option<Arc<dyn Consumer>> {
        self.consumers.lock().get(group)?.consumer.upgrade()
    }

    pub(crate) fn brokers_connected(&self) {
        self.live().iter().for_each(|consumer| consumer.broker_connected());
    }

    /// The consumers that still exist. Used without the lock, because the last owner of one may drop it meanwhile.
    fn live(&self) -> Vec<Arc<dyn Consumer>> {
        self.consumers.lock().values().filter_map(|member| member.consumer.upgrade()).collect()
    }

    /// Stops the consumers of one client and removes all its groups; returns them.
    pub(crate) fn remove_all(&self, owner: Owner) -> Vec<(Role, String)> {
        let (mut removed, mut stopping) = (Vec::new(), Vec::new());
        self.consumers.lock().retain(|group, member| {
            if member.owner == owner {
                removed.push((Role::Consumer, group.clone()));
                stopping.extend(member.consumer.upgrade());
            }
            member.owner != owner
        });
        self.producers.lock().retain(|group, by| {
            if *by == owner {
                removed.push((Role::Producer, group.clone()));
            }
            *by != owner
        });
        stopping.iter().for_each(|consumer| consumer.stop());
        removed
    }
}

/// Checks a group name. The system's own default groups are refused.
pub(crate) fn check_group(group: &str) -> Result<(), ClientError> {
    let invalid = |reason: String| ClientError::InvalidGroup { group: group.to_owned(), reason };
    name::check_group(group).map_err(|error| invalid(error.to_string()))?;
    if [system::DEFAULT_PRODUCER_GROUP, system::DEFAULT_CONSUMER_GROUP, system::CLIENT_INNER_PRODUCER_GROUP]
        .contains(&group)
    {
        return Err(invalid(format!("the group name is reserved: {group:?}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_groups_and_illegal_names_are_refused() {
        assert!(check_group("ingest").is_ok());
        for group in ["", "a b", "DEFAULT_PRODUCER", "DEFAULT_CONSUMER", &"x".repeat(121)] {
            assert!(matches!(check_group(group), Err(ClientError::InvalidGroup { .. })), "{group}");
        }
    }

    #[test]
    fn a_client_removes_only_its_own_groups() {
        let (members, first, second) = (Members::default(), Owner(1), Owner(2));
        members.add_producer(first, "a").unwrap();
        members.add_producer(second, "b").unwrap();
        assert!(matches!(members.add_producer(second, "a"), Err(ClientError::GroupInUse { .. })));
        assert!(!members.remove(second, Role::Producer, "a"));
        assert!(!members.remove(first, Role::Consumer, "a"));
        assert_eq!(members.remove_all(first), [(Role::Producer, "a".to_owned())]);
        assert!(!members.contains(Role::Producer, "a") && members.contains(Role::Producer, "b"));
        members.add_producer(second, "a").unwrap();
        assert!(!members.remove(first, Role::Producer, "a"), "it is the other client's by now");
    }
}

//! The live members of groups.

use std::collections::{BTreeMap, BTreeSet};

use rocketpy_protocol::body::{ClientConnection, ConsumerConnection, ProducerConnection};
use rocketpy_protocol::code::response;

use super::group::check_group;
use super::{Admin, Connection, GroupDescription, GroupMember};
use crate::api::Api;
use crate::error::ClientError;
use crate::{outcome, wire};

const OPERATION: &str = "member query";

impl Admin {
    /// A group with its live members and what each subscribes to.
    ///
    /// # Errors
    /// [`ClientError::InvalidGroup`], [`ClientError::NoBrokers`]; [`ClientError::Refused`] with SUBSCRIPTION_GROUP_NOT_EXIST when no broker has
    /// the group; those of reaching name server and brokers.
    #[doc(alias = "examineConsumerConnectionInfo")]
    pub async fn describe_group(&self, group: &str) -> Result<GroupDescription, ClientError> {
        check_group(group)?;
        let api = self.client.api();
        let mut members = BTreeMap::new();
        for (_, address) in self.masters(None).await? {
            for member in api.consumers_at(&address, group).await? {
                // Every member tells every broker the same.
                members.entry(member.client_id.clone()).or_insert(member);
            }
        }
        if members.is_empty() {
            self.require_group(OPERATION, group).await?;
        }
        Ok(GroupDescription { name: group.to_owned(), members: members.into_values().collect() })
    }

    /// The live members of a producer group, sorted by client id; none for a group that does not exist: brokers know one as long as it
    /// has members.
    ///
    /// # Errors
    /// [`ClientError::InvalidGroup`], [`ClientError::NoBrokers`]; those of reaching name server and brokers.
    #[doc(alias = "examineProducerConnectionInfo")]
    pub async fn producer_connections(&self, group: &str) -> Result<Vec<Connection>, ClientError> {
        check_group(group)?;
        let mut members = BTreeMap::new();
        for (_, address) in self.masters(None).await? {
            for member in self.client.api().producers_at(&address, group).await? {
                members.entry(member.client_id.clone()).or_insert(member);
            }
        }
        Ok(members.into_values().collect())
    }

    /// Refuses a group that no broker has.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with SUBSCRIPTION_GROUP_NOT_EXIST; those of reaching name server and brokers.
    pub(super) async fn require_group(
        &self,
        operation: &'static str,
        group: &str,
    ) -> Result<(), ClientError> {
        let mut asked = String::new();
        for (_, address) in self.masters(None).await? {
            if self.client.api().groups_at(&address).await?.contains_key(group) {
                return Ok(());
            }
            asked = address;
        }
        Err(ClientError::Refused {
            operation,
            address: asked,
            code: response::SUBSCRIPTION_GROUP_NOT_EXIST,
            name: "SUBSCRIPTION_GROUP_NOT_EXIST",
            remark: format!("no such group: {group}"),
        })
    }
}

impl Api {
    /// The live members of a group as one broker knows them.
    async fn consumers_at(&self, address: &str, group: &str) -> Result<Vec<GroupMember>, ClientError> {
        let request = wire::consumer_connections(group);
        let answer = self.call(address, OPERATION, request, self.timeout()).await?;
        if answer.code == response::CONSUMER_NOT_ONLINE {
            return Ok(Vec::new());
        }
        let answer = outcome::success(OPERATION, address, answer)?;
        let body: ConsumerConnection = wire::json(OPERATION, address, &answer.body)?;
        let member = |one: ClientConnection| GroupMember {
            client_id: one.client_id,
            address: one.client_addr,
            language: one.language,
            version: one.version,
            subscriptions: Some(one.subscriptions).filter(|known| !known.is_empty()),
        };
        Ok(body.connection_set.into_iter().map(member).collect())
    }

    /// The live members of a producer group as one broker knows them.
    async fn producers_at(&self, address: &str, group: &str) -> Result<Vec<Connection>, ClientError> {
        const OPERATION: &str = "producer query";
        let request = wire::producer_connections(group);
        let answer = self.call(address, OPERATION, request, self.timeout()).await?;
        // There is no code of its own for a group without members, but the remark names the group.
        let names_the_group = answer.remark.as_deref().is_some_and(|remark| remark.contains(group));
        if answer.code == response::SYSTEM_ERROR && names_the_group {
            return Ok(Vec::new());
        }
        let answer = outcome::success(OPERATION, address, answer)?;
        let body: ProducerConnection = wire::json(OPERATION, address, &answer.body)?;
        let member = |one: ClientConnection| Connection {
            client_id: one.client_id,
            address: one.client_addr,
            language: one.language,
            version: one.version,
        };
        Ok(body.connection_set.into_iter().map(member).collect())
    }
}

impl GroupDescription {
    /// Whether a member subscribes to something else than most members: than more than half of them. Without such a majority every
    /// member does. What a member subscribes to may be unknown; it then differs from nobody.
    pub fn differs(&self, member: &GroupMember) -> bool {
        let known = || self.members.iter().filter_map(|one| one.subscriptions.as_ref());
        let distinct: BTreeSet<_> = known().collect();
        let Some(own) = &member.subscriptions else { return false };
        let alike = known().filter(|other| *other == own).count();
        distinct.len() > 1 && alike * 2 <= known().count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differing(wants: &[Option<&str>]) -> Vec<bool> {
        let member = |tags: &Option<&str>| GroupMember {
            client_id: String::new(),
            address: String::new(),
            language: String::new(),
            version: 0,
            subscriptions: tags.map(|tags| [("t".to_owned(), tags.to_owned())].into()),
        };
        let group = GroupDescription { name: "g".to_owned(), members: wants.iter().map(member).collect() };
        group.members.iter().map(|member| group.differs(member)).collect()
    }

    #[test]
    fn those_that_differ_from_most_are_marked() {
        assert_eq!(differing(&[Some("A"), Some("A"), Some("B"), None]), [false, false, true, false]);
        assert_eq!(differing(&[Some("A"), Some("B")]), [true, true], "there is no majority");
        assert_eq!(differing(&[Some("A"), Some("A")]), [false, false]);
        assert_eq!(differing(&[Some("A"), None]), [false, false]);
    }
}

//! The live members of groups.

use std::collections::{BTreeMap, BTreeSet};

use rocketpy_protocol::body::{ClientConnection, ConsumerConnection, ProducerConnection};
use rocketpy_protocol::code::response;

use super::gather::{Answers, check_complete};
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
    /// As [`Self::known_members`]; that of the first broker that does not answer.
    #[doc(alias = "examineConsumerConnectionInfo")]
    pub async fn describe_group(&self, group: &str) -> Result<GroupDescription, ClientError> {
        let members = self.known_members(group).await?.complete()?;
        Ok(GroupDescription { name: group.to_owned(), members })
    }

    /// The live members of a group, sorted by client id, as the brokers that answer know them.
    ///
    /// # Errors
    /// [`ClientError::InvalidGroup`], [`ClientError::NoBrokers`]; [`ClientError::Refused`] with SUBSCRIPTION_GROUP_NOT_EXIST when no broker has
    /// the group; those of reaching a name server; that of the first broker, if none answers.
    pub async fn known_members(&self, group: &str) -> Result<Answers<GroupMember>, ClientError> {
        check_group(group)?;
        let places = self.readable().await?;
        let answers = self.gather(&places, |api, place| {
            let group = group.to_owned();
            async move { api.consumers_at(&place.address, &group).await }
        });
        let answers = answers.await?;
        if answers.missing.is_empty() && answers.found.iter().all(Vec::is_empty) {
            self.require_group(OPERATION, group).await?;
        }
        Ok(answers.map(|found| {
            // Every member tells every broker the same.
            let mut members = BTreeMap::new();
            for member in found.into_iter().flatten() {
                members.entry(member.client_id.clone()).or_insert(member);
            }
            members.into_values().collect()
        }))
    }

    /// The live members of a producer group, sorted by client id; none for a group that does not exist: brokers know one as long as it
    /// has members.
    ///
    /// # Errors
    /// As [`Self::known_producers`]; that of the first broker that does not answer.
    #[doc(alias = "examineProducerConnectionInfo")]
    pub async fn producer_connections(&self, group: &str) -> Result<Vec<Connection>, ClientError> {
        self.known_producers(group).await?.complete()
    }

    /// As [`Self::producer_connections`], of the brokers that answer.
    ///
    /// # Errors
    /// [`ClientError::InvalidGroup`], [`ClientError::NoBrokers`]; those of reaching a name server; that of the first broker, if none answers.
    pub async fn known_producers(&self, group: &str) -> Result<Answers<Connection>, ClientError> {
        check_group(group)?;
        let places = self.readable().await?;
        let answers = self.gather(&places, |api, place| {
            let group = group.to_owned();
            async move { api.producers_at(&place.address, &group).await }
        });
        Ok(answers.await?.map(|found| {
            let mut members = BTreeMap::new();
            for member in found.into_iter().flatten() {
                members.entry(member.client_id.clone()).or_insert(member);
            }
            members.into_values().collect()
        }))
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
        let places = self.readable().await?;
        let answers = self.gather(&places, |api, place| {
            let group = group.to_owned();
            async move { api.has_group_at(&place.address, &group).await }
        });
        let answers = answers.await?;
        if answers.found.contains(&true) {
            return Ok(());
        }
        check_complete(&answers.missing)?;
        let asked = places.last().map(|place| place.address.clone()).unwrap_or_default();
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
    pub(super) async fn consumers_at(
        &self,
        address: &str,
        group: &str,
    ) -> Result<Vec<GroupMember>, ClientError> {
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

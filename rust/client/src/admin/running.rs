//! States of live members of groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use rocketpy_model::{MessageQueue, QueueOffset};
use rocketpy_protocol::body::{ConsumerRunningInfo, OffsetWrapper};
use rocketpy_protocol::code::response;

use super::gather::{Answers, check_complete, each};
use super::group::check_group;
use super::{Admin, GroupMember, requests};
use crate::api::Api;
use crate::error::ClientError;
use crate::wire;

const OPERATION: &str = "member state query";

/// A live member of a group, with the state that it reports.
#[derive(Debug, Clone, PartialEq)]
pub struct RunningMember {
    pub member: GroupMember,
    /// The error of a member that does not answer, such as an old one.
    pub info: Result<ConsumerRunningInfo, ClientError>,
    /// Ends of the queues for which the group has offsets, at the brokers that answer (exclusive).
    pub ends: Arc<BTreeMap<MessageQueue, QueueOffset>>,
}

impl Admin {
    /// State of one live member, with the stacks of its threads if wanted.
    ///
    /// # Errors
    /// As [`Admin::known_members`]; [`ClientError::Refused`] with CONSUMER_NOT_ONLINE when no broker knows the member; that of the first broker that
    /// does not answer, if no other knows it; that of a member that does not answer.
    #[doc(alias = "getConsumerRunningInfo")]
    pub async fn consumer_running_info(
        &self,
        group: &str,
        client_id: &str,
        stacks: bool,
    ) -> Result<RunningMember, ClientError> {
        let mut answers = self.running(group, Some(client_id), stacks).await?;
        assert!(answers.found.len() <= 1, "a client id names one member: {client_id}");
        if let Some(found) = answers.found.pop() {
            found.info.as_ref().map_err(Clone::clone)?;
            return Ok(found);
        }
        check_complete(&answers.missing)?;
        Err(ClientError::Refused {
            operation: OPERATION,
            address: "every broker".to_owned(),
            code: response::CONSUMER_NOT_ONLINE,
            name: "CONSUMER_NOT_ONLINE",
            remark: format!("group {group} has no live member: {client_id}"),
        })
    }

    /// Live members of a group with their states, sorted by client id, as the brokers that answer know them.
    ///
    /// # Errors
    /// As [`Admin::known_members`].
    pub async fn known_running(
        &self,
        group: &str,
        stacks: bool,
    ) -> Result<Answers<RunningMember>, ClientError> {
        self.running(group, None, stacks).await
    }

    async fn running(
        &self,
        group: &str,
        only: Option<&str>,
        stacks: bool,
    ) -> Result<Answers<RunningMember>, ClientError> {
        check_group(group)?;
        let places = self.readable().await?;
        let answers = self.gather(&places, |api, place| {
            let (address, group) = (place.address, group.to_owned());
            async move {
                let (members, stats) = tokio::try_join!(
                    api.consumers_at(&address, &group),
                    api.stats_at(&address, &group, None)
                )?;
                Ok((address, members, stats))
            }
        });
        let answers = answers.await?;
        if answers.missing.is_empty() && answers.found.iter().all(|(_, members, _)| members.is_empty()) {
            self.require_group(OPERATION, group).await?;
        }
        let (mut members, mut ends) = (BTreeMap::new(), BTreeMap::new());
        for (address, of_broker, stats) in answers.found {
            let end = |(queue, offsets): (MessageQueue, OffsetWrapper)| {
                Some((queue, QueueOffset(u64::try_from(offsets.broker_offset).ok()?)))
            };
            ends.extend(stats.offset_table.into_iter().filter_map(end));
            for member in of_broker {
                members.entry(member.client_id.clone()).or_insert_with(|| (address.clone(), member));
            }
        }
        members.retain(|client_id, _| only.is_none_or(|only| only == client_id));
        let ends = Arc::new(ends);
        let asked = each(members.into_values(), |(address, member)| {
            let (api, group, ends) = (self.client.api().clone(), group.to_owned(), ends.clone());
            async move {
                let info = api.running_at(&address, &group, &member.client_id, stacks).await;
                Ok(RunningMember { member, info, ends })
            }
        });
        Ok(Answers { found: asked.await?, missing: answers.missing })
    }
}

impl Api {
    async fn running_at(
        &self,
        address: &str,
        group: &str,
        client_id: &str,
        stacks: bool,
    ) -> Result<ConsumerRunningInfo, ClientError> {
        let request = requests::running_info(group, client_id, stacks);
        let answer = self.call_ok(address, OPERATION, request).await?;
        wire::json(OPERATION, address, &answer.body)
    }
}

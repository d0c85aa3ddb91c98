//! Progress of one group.

use rocketpy_model::{MessageQueue, QueueOffset, system};
use rocketpy_protocol::body::{ConsumeStats, OffsetWrapper};

use super::gather::{Answers, Place, each};
use super::{Admin, GroupLag, LagRow};
use crate::api::Api;
use crate::error::ClientError;
use crate::wire;

const OPERATION: &str = "group progress query";

impl Admin {
    /// Lag per queue, of one topic or of all topics for which the group has offsets.
    ///
    /// # Errors
    /// As [`Self::known_lag`]; that of the first broker that does not answer.
    pub async fn group_lag(&self, group: &str, topic: Option<&str>) -> Result<GroupLag, ClientError> {
        let rows = self.known_lag(group, topic).await?.complete()?;
        Ok(GroupLag { group: group.to_owned(), rows })
    }

    /// As [`Self::group_lag`], in the queues of the brokers that answer.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`] for a topic that does not exist, [`ClientError::NoBrokers`]; [`ClientError::Refused`] with
    /// SUBSCRIPTION_GROUP_NOT_EXIST when no broker has the group; those of reaching a name server; that of the first broker, if none answers.
    pub async fn known_lag(&self, group: &str, topic: Option<&str>) -> Result<Answers<LagRow>, ClientError> {
        let places = self.places_of_group(group, topic).await?;
        let answers = self.gather(&places, |api, place| {
            let (group, topic) = (group.to_owned(), topic.map(str::to_owned));
            async move { api.lag_at(&place, &group, topic.as_deref()).await }
        });
        let retry = system::retry_topic(group);
        let answers = answers.await?.map(|found| {
            let mut rows: Vec<LagRow> = found.into_iter().flatten().collect();
            rows.retain(|row| {
                topic.is_some() || *row.queue.topic != *retry || row.max_offset > QueueOffset(0)
            });
            rows.sort_by(|a, b| a.queue.cmp(&b.queue));
            rows
        });
        if answers.found.is_empty() && answers.missing.is_empty() {
            self.require_group(OPERATION, group).await?;
        }
        Ok(answers)
    }
}

impl Api {
    /// Progress of a group at one broker.
    async fn lag_at(
        &self,
        place: &Place,
        group: &str,
        topic: Option<&str>,
    ) -> Result<Vec<LagRow>, ClientError> {
        let (stats, members) = tokio::try_join!(
            self.stats_at(&place.address, group, topic),
            self.members_at(&place.address, group)
        )?;
        let is_live = !members.is_empty();
        each(stats.offset_table, |(queue, offsets)| {
            let (api, address, group) = (self.clone(), place.address.clone(), group.to_owned());
            async move { api.lag_row(&address, &group, queue, offsets, is_live).await }
        })
        .await
    }

    pub(super) async fn stats_at(
        &self,
        address: &str,
        group: &str,
        topic: Option<&str>,
    ) -> Result<ConsumeStats, ClientError> {
        let answer = self.call_ok(address, OPERATION, wire::consume_stats(group, topic)).await?;
        wire::json(OPERATION, address, &answer.body)
    }

    /// A row of a group's progress. Only the stored offset distinguishes "no offset is stored" from "stored at 0".
    async fn lag_row(
        &self,
        address: &str,
        group: &str,
        queue: MessageQueue,
        offsets: OffsetWrapper,
        is_live: bool,
    ) -> Result<LagRow, ClientError> {
        let offset = |value: i64| QueueOffset(u64::try_from(value).unwrap_or(0));
        let committed = match offset(offsets.consumer_offset) {
            QueueOffset(0) => self.stored_offset_at(address, group, &queue).await?,
            committed => Some(committed),
        };
        let pulled = if is_live { offsets.pull_offset } else { offsets.consumer_offset };
        Ok(LagRow {
            queue,
            max_offset: offset(offsets.broker_offset),
            committed_offset: committed,
            pulled_offset: offset(pulled),
            last_consumed_at_ms: Some(offsets.last_at_ms).filter(|at_ms| *at_ms > 0),
        })
    }
}

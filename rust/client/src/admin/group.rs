//! Consumer groups.

use std::collections::{BTreeMap, BTreeSet};

use rocketpy_model::{GroupConfig, MessageQueue, NameError, QueueOffset, name, system};
use rocketpy_protocol::body::{ResetOffsetBody, SubscriptionGroupWrapper};
use rocketpy_protocol::code::response;
use rocketpy_protocol::header::GetAllSubscriptionGroupResponseHeader;

use super::gather::{Answers, Place, each};
use super::{Admin, GroupSummary, LagRow, OffsetTarget, requests};
use crate::api::Api;
use crate::error::ClientError;
use crate::{outcome, wire};

impl Admin {
    /// One broker of each name that may have offsets of a group: in one topic's route, else all that are readable.
    ///
    /// # Errors
    /// The name of the group is invalid; the client is closed; the topic does not exist; no name server answers.
    pub(super) async fn places_of_group(
        &self,
        group: &str,
        topic: Option<&str>,
    ) -> Result<Vec<Place>, ClientError> {
        check_group(group)?;
        self.client.check()?;
        match topic {
            Some(topic) => self.places_of(topic).await,
            None => self.readable().await,
        }
    }

    /// All groups except those of the system, sorted by name.
    ///
    /// # Errors
    /// As [`Self::known_groups`]; that of the first broker that does not answer.
    pub async fn groups(&self) -> Result<Vec<GroupSummary>, ClientError> {
        self.known_groups().await?.complete()
    }

    /// As [`Self::groups`], of the brokers that answer.
    ///
    /// # Errors
    /// [`ClientError::NoBrokers`]; those of reaching a name server; that of the first broker, if none answers.
    pub async fn known_groups(&self) -> Result<Answers<GroupSummary>, ClientError> {
        let places = self.readable().await?;
        let answers = self
            .gather(&places, |api, place| async move { api.members_of_all(&place.address).await })
            .await?;
        Ok(answers.map(|found| {
            let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            for (group, members) in found.into_iter().flatten() {
                groups.entry(group).or_default().extend(members);
            }
            let summary = |(name, members): (String, BTreeSet<String>)| GroupSummary {
                name,
                members: members.into_iter().collect(),
            };
            groups.into_iter().map(summary).collect()
        }))
    }

    /// Creates a group at all brokers, with Apache's defaults. An existing group is not changed.
    ///
    /// # Errors
    /// [`ClientError::InvalidGroup`], [`ClientError::NoBrokers`]; the first failure of a broker, where others may have created it. Creating it again is
    /// safe.
    pub async fn create_group(&self, group: &str) -> Result<(), ClientError> {
        name::check_group(group).map_err(|error| invalid(group, &error))?;
        let api = self.client.api();
        for (_, address) in self.masters(None).await? {
            if !api.has_group_at(&address, group).await? {
                let request = wire::put_group(&GroupConfig::new(group));
                api.call_ok(&address, "group creation", request).await?;
            }
        }
        Ok(())
    }

    /// Deletes a group and its stored offsets at all brokers.
    ///
    /// # Errors
    /// [`ClientError::InvalidGroup`], [`ClientError::NoBrokers`], [`ClientError::GroupActive`]; [`ClientError::Refused`] with
    /// SUBSCRIPTION_GROUP_NOT_EXIST when no broker has the group; the first failure of a broker, where others may have deleted it.
    pub async fn delete_group(&self, group: &str) -> Result<(), ClientError> {
        const OPERATION: &str = "group deletion";
        check_group(group)?;
        self.refuse_if_active(group).await?;
        self.require_group(OPERATION, group).await?;
        for (_, address) in self.masters(None).await? {
            self.client.api().call_ok(&address, OPERATION, wire::delete_group(group)).await?;
        }
        Ok(())
    }

    /// Client ids of the live members, sorted. Empty for a group that has none or does not exist.
    ///
    /// # Errors
    /// As [`Self::known_member_ids`]; that of the first broker that does not answer.
    pub async fn group_members(&self, group: &str) -> Result<Vec<String>, ClientError> {
        self.known_member_ids(group).await?.complete()
    }

    /// As [`Self::group_members`], of the brokers that answer.
    ///
    /// # Errors
    /// [`ClientError::NoBrokers`]; those of reaching a name server; that of the first broker, if none answers.
    pub async fn known_member_ids(&self, group: &str) -> Result<Answers<String>, ClientError> {
        check_group(group)?;
        let places = self.readable().await?;
        let answers = self.gather(&places, |api, place| {
            let group = group.to_owned();
            async move { api.members_at(&place.address, &group).await }
        });
        Ok(answers.await?.map(|found| {
            let members: BTreeSet<String> = found.into_iter().flatten().collect();
            members.into_iter().collect()
        }))
    }

    async fn refuse_if_active(&self, group: &str) -> Result<(), ClientError> {
        match self.group_members(group).await?.len() {
            0 => Ok(()),
            members => Err(ClientError::GroupActive { group: group.to_owned(), members }),
        }
    }

    /// Stores new offsets for a group in every queue of a topic, and returns them.
    ///
    /// Live members go there with their next pulls. What they have pulled ahead may be handed out before. A broker that leaves it to them
    /// (`useServerSideResetOffset=false`) stores nothing: then the offsets are those that they were told.
    ///
    /// # Errors
    /// [`ClientError::GroupActive`] while members live, unless `force`; [`ClientError::NoRoute`]; the first failure of a broker,
    /// where other queues may have been reset. Resetting again is safe.
    pub async fn reset_offsets(
        &self,
        group: &str,
        topic: &str,
        target: OffsetTarget,
        force: bool,
    ) -> Result<Vec<(MessageQueue, QueueOffset)>, ClientError> {
        check_group(group)?;
        self.client.check()?;
        let api = self.client.api();
        let queues = self.queues(topic).await?;
        let members = self.group_members(group).await?.len();
        if members > 0 && !force {
            return Err(ClientError::GroupActive { group: group.to_owned(), members });
        }
        let (mut reset, mut told) = (Vec::with_capacity(queues.len()), BTreeSet::new());
        if members > 0 {
            for (broker_name, address) in self.fetch(topic).await?.addresses() {
                if let Some(offsets) = api.reset_running(address, group, topic, target).await? {
                    reset.extend(offsets);
                    told.insert(broker_name.to_owned());
                }
            }
        }
        for queue in queues.into_iter().filter(|queue| !told.contains(&*queue.broker_name)) {
            let offset = match target {
                OffsetTarget::Earliest => api.min_offset(&queue).await?,
                OffsetTarget::Latest => api.max_offset(&queue).await?,
                OffsetTarget::Timestamp(at_ms) => api.search_offset(&queue, at_ms).await?,
            };
            api.reset_offset(group, &queue, offset).await?;
            reset.push((queue, offset));
        }
        reset.sort();
        Ok(reset)
    }
}

impl Admin {
    /// Stores an offset for a group in one queue. `beyond` allows one outside of the queue, which the broker may refuse. With
    /// `is_dry_run` everything is checked, and nothing stored.
    ///
    /// # Errors
    /// [`ClientError::InvalidGroup`] for a group of the system.
    /// [`ClientError::GroupActive`] while members live, unless `force`: their next commit replaces it.
    /// [`ClientError::OffsetOutOfRange`]; those of reaching the broker. Committing again is safe.
    #[doc(alias = "updateConsumeOffset")]
    pub async fn commit_offset(
        &self,
        group: &str,
        queue: &MessageQueue,
        offset: QueueOffset,
        force: bool,
        beyond: bool,
        is_dry_run: bool,
    ) -> Result<(), ClientError> {
        check_group(group)?;
        if system::is_system_group(group) {
            let reason = "its offsets belong to the system".to_owned();
            return Err(ClientError::InvalidGroup { group: group.to_owned(), reason });
        }
        self.client.check()?;
        let api = self.client.api();
        let (min, max) = (api.min_offset(queue).await?, api.max_offset(queue).await?);
        if !beyond && (offset < min || offset > max) {
            return Err(ClientError::OffsetOutOfRange { queue: queue.clone(), offset, min, max });
        }
        if !force {
            self.refuse_if_active(group).await?;
        }
        self.require_group("offset commit", group).await?;
        if is_dry_run { Ok(()) } else { api.reset_offset(group, queue, offset).await }
    }

    /// Gives a group the stored offsets of another one: of one topic, or of all topics that the other one has offsets for. Returns the
    /// topics.
    ///
    /// # Errors
    /// [`ClientError::GroupActive`] while `to` has live members, unless `force`: their next commits replace the offsets.
    /// [`ClientError::Refused`] with SUBSCRIPTION_GROUP_NOT_EXIST for a group that no broker has; the first failure of a broker, where
    /// others may have done it. Cloning again is safe.
    #[doc(alias = "cloneGroupOffset")]
    pub async fn clone_offsets(
        &self,
        from: &str,
        to: &str,
        topic: Option<&str>,
        force: bool,
    ) -> Result<Vec<String>, ClientError> {
        const OPERATION: &str = "offset clone";
        check_group(to)?;
        let lag = self.group_lag(from, topic).await?;
        self.require_group(OPERATION, to).await?;
        if !force {
            self.refuse_if_active(to).await?;
        }
        let retry = system::retry_topic(from);
        let has_offset = |row: &&LagRow| row.committed_offset.is_some() && *row.queue.topic != *retry;
        let topics: BTreeSet<_> =
            lag.rows.iter().filter(has_offset).map(|row| row.queue.topic.to_string()).collect();
        for topic in &topics {
            // One topic at a time: Apache's brokers clone nothing where none is named.
            for (_, address) in self.fetch(topic).await?.addresses() {
                let request = wire::clone_offsets(from, to, topic);
                self.client.api().call_ok(address, OPERATION, request).await?;
            }
        }
        Ok(topics.into_iter().collect())
    }
}

/// Checks the name of a group that may exist: brokers keep longer names than they let clients create.
pub(super) fn check_group(group: &str) -> Result<(), ClientError> {
    name::check_stored_group(group).map_err(|error| invalid(group, &error))
}

fn invalid(group: &str, error: &NameError) -> ClientError {
    ClientError::InvalidGroup { group: group.to_owned(), reason: error.to_string() }
}

impl Api {
    /// Lets a broker set a group to other offsets while its members run. `None`: none is online there.
    async fn reset_running(
        &self,
        address: &str,
        group: &str,
        topic: &str,
        target: OffsetTarget,
    ) -> Result<Option<Vec<(MessageQueue, QueueOffset)>>, ClientError> {
        const OPERATION: &str = "offset reset";
        let at_ms = match target {
            OffsetTarget::Earliest => 0,
            OffsetTarget::Latest => -1,
            OffsetTarget::Timestamp(at_ms) => at_ms.max(0),
        };
        let request = wire::reset_running(group, topic, at_ms);
        let answer = self.call(address, OPERATION, request, self.timeout()).await?;
        if answer.code == response::CONSUMER_NOT_ONLINE {
            return Ok(None);
        }
        let answer = outcome::success(OPERATION, address, answer)?;
        let body: ResetOffsetBody = wire::json(OPERATION, address, &answer.body)?;
        let offset = |(queue, offset)| Ok((queue, wire::offset(OPERATION, address, offset)?));
        body.offset_table.into_iter().map(offset).collect::<Result<_, _>>().map(Some)
    }

    /// The groups of a broker except those of the system, with the client ids of their live members.
    pub(super) async fn members_of_all(
        &self,
        address: &str,
    ) -> Result<Vec<(String, Vec<String>)>, ClientError> {
        let groups = self.groups_at(address).await?.into_keys();
        each(groups.filter(|group| !system::is_system_group(group)), |group| {
            let (api, address) = (self.clone(), address.to_owned());
            async move {
                let members = api.members_at(&address, &group).await?;
                Ok((group, members))
            }
        })
        .await
    }

    /// Whether a broker has a group.
    pub(super) async fn has_group_at(&self, address: &str, group: &str) -> Result<bool, ClientError> {
        Ok(self.group_config_at(address, group).await?.is_some())
    }

    /// Configuration of a group at a broker; `None` where it does not exist. A broker that does not know the request is asked for all of its groups.
    pub(super) async fn group_config_at(
        &self,
        address: &str,
        group: &str,
    ) -> Result<Option<GroupConfig>, ClientError> {
        const OPERATION: &str = "group query";
        let request = requests::group_config(group);
        let answer = self.call(address, OPERATION, request, self.timeout()).await?;
        match answer.code {
            response::SUBSCRIPTION_GROUP_NOT_EXIST => return Ok(None),
            response::REQUEST_CODE_NOT_SUPPORTED => return Ok(self.groups_at(address).await?.remove(group)),
            _ => {}
        }
        let answer = outcome::success(OPERATION, address, answer)?;
        wire::json(OPERATION, address, &answer.body).map(Some)
    }

    /// All groups of a broker, fetched page by page. A broker before 5.4 gives all of them in one.
    pub(super) async fn groups_at(
        &self,
        address: &str,
    ) -> Result<BTreeMap<String, GroupConfig>, ClientError> {
        const OPERATION: &str = "group list query";
        let mut groups = BTreeMap::new();
        let mut version = None;
        loop {
            let answer = self.call_ok(address, OPERATION, wire::group_configs(groups.len())).await?;
            let header: GetAllSubscriptionGroupResponseHeader = wire::header(OPERATION, address, &answer)?;
            let page: SubscriptionGroupWrapper = wire::json(OPERATION, address, &answer.body)?;
            let Some(total) = header.total_group_num else { return Ok(page.subscription_group_table) };
            let is_last = page.subscription_group_table.is_empty();
            if version.replace(page.data_version).is_some_and(|version| version != page.data_version) {
                groups.clear(); // the table has changed: its pages are others now
                continue;
            }
            groups.extend(page.subscription_group_table);
            if is_last || groups.len() >= usize::try_from(total).unwrap_or(0) {
                return Ok(groups);
            }
        }
    }
}

//! Upkeep of single brokers: settings of groups, leftovers, waiting timers, and the notes of operators at the name servers.

use std::collections::BTreeMap;

use rocketpy_model::{GroupConfig, TopicConfig, system};
use rocketpy_protocol::Command;
use rocketpy_protocol::body::{ConsumeMessageDirectlyResult, ConsumerOffsetSerializeWrapper, TimerMetrics};
use rocketpy_protocol::code::response;
use rocketpy_protocol::header::GetKVConfigResponseHeader;

use super::Admin;
use super::gather::Place;
use super::group::check_group;
use crate::error::ClientError;
use crate::outcome;
use crate::wire::{self, Leftover};

/// Group settings at one broker.
#[derive(Debug, Clone)]
pub struct GroupAtBroker {
    pub broker_name: String,
    /// Address of the master.
    pub address: String,
    /// `None` if the broker does not have the group.
    pub config: Result<Option<GroupConfig>, ClientError>,
}

/// Offsets of a group in a topic that the group or the topic has outlived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusedOffsets {
    pub topic: String,
    pub group: String,
    /// Whether the broker does not have the group; else it does not have the topic.
    pub is_group_missing: bool,
}

impl Admin {
    /// Settings of a group at each master, sorted by broker name. All masters are asked at once; one that fails has its error.
    ///
    /// # Errors
    /// [`ClientError::InvalidGroup`], [`ClientError::NoBrokers`]; those of reaching name servers.
    pub async fn group_configs(&self, group: &str) -> Result<Vec<GroupAtBroker>, ClientError> {
        check_group(group)?;
        let masters = self.masters(None).await?.into_iter();
        let places: Vec<Place> =
            masters.map(|(broker, address)| Place { broker_name: broker.broker_name, address }).collect();
        let outcomes = self
            .ask_each(&places, |api, place| {
                let group = group.to_owned();
                async move { api.group_config_at(&place.address, &group).await }
            })
            .await?;
        let found = places.into_iter().zip(outcomes);
        let found = found.map(|(Place { broker_name, address }, (config, _))| GroupAtBroker {
            broker_name,
            address,
            config,
        });
        Ok(found.collect())
    }

    /// Replaces the settings of a group at the broker at an address. Repeating it is safe.
    ///
    /// # Errors
    /// [`ClientError::Refused`]; those of reaching the broker.
    #[doc(alias = "createAndUpdateSubscriptionGroupConfig")]
    pub async fn put_group(&self, address: &str, config: &GroupConfig) -> Result<(), ClientError> {
        self.call_at(address, "group change", wire::put_group(config)).await.map(drop)
    }

    /// Deletes a topic at the broker at an address only, with the offsets stored for it, and takes the broker out of the routes.
    /// Repeating it is safe.
    ///
    /// Apache's name servers forget a topic at all brokers or at none, so the brokers that keep the topic announce it again at once.
    /// Between both, a few milliseconds, such a name server does not know the topic; clients keep the route that they have.
    ///
    /// # Errors
    /// [`ClientError::Refused`]; those of reaching name servers and brokers.
    #[doc(alias = "deleteTopicInBroker")]
    pub async fn delete_topic_at(&self, address: &str, topic: &str) -> Result<(), ClientError> {
        const OPERATION: &str = "topic deletion";
        self.call_at(address, OPERATION, wire::delete_topic(topic)).await?;
        let api = self.client.api();
        let route = api.fetch_route(topic).await?;
        let listed = route.iter().flat_map(|route| route.addresses()).find(|(_, listed)| *listed == address);
        let Some((broker_name, _)) = listed else { return Ok(()) };
        let mut kept = Vec::new();
        for (_, other) in self.masters(None).await? {
            if let Some(config) = self.topic_config(&other, topic).await? {
                kept.push((other, config));
            }
        }
        for name_server in api.name_servers() {
            let request = wire::delete_topic_in_name_server(topic, Some(broker_name));
            api.call_ok(name_server, OPERATION, request).await?;
            for (other, config) in &kept {
                api.call_ok(other, OPERATION, wire::create_topic(config, None)).await?;
            }
        }
        api.forget_route(topic);
        Ok(())
    }

    /// Deletes a group with its offsets at the broker at an address only. Repeating it is safe.
    ///
    /// # Errors
    /// [`ClientError::Refused`]; those of reaching the broker.
    pub async fn delete_group_at(&self, address: &str, group: &str) -> Result<(), ClientError> {
        self.call_at(address, "group deletion", wire::delete_group(group)).await.map(drop)
    }

    /// Removes leftovers at the broker at an address. Repeating it is safe.
    ///
    /// # Errors
    /// [`ClientError::Refused`]; those of reaching the broker.
    pub async fn clean(&self, address: &str, leftover: Leftover) -> Result<(), ClientError> {
        self.call_at(address, "cleaning", wire::clean(leftover)).await.map(drop)
    }

    /// Offsets at the broker at an address whose group or topic it does not have. Groups of the system and groups with live members
    /// are left out.
    ///
    /// # Errors
    /// Those of reaching the broker.
    pub async fn unused_offsets(&self, address: &str) -> Result<Vec<UnusedOffsets>, ClientError> {
        const OPERATION: &str = "offset query";
        let (answer, api) =
            (self.call_at(address, OPERATION, wire::consumer_offsets()).await?, self.client.api());
        let stored: ConsumerOffsetSerializeWrapper = wire::json(OPERATION, address, &answer.body)?;
        let groups = api.groups_at(address).await?;
        let (mut unused, mut live) = (Vec::new(), BTreeMap::new());
        for place in stored.offset_table.into_keys() {
            let Some((topic, group)) = place.split_once('@') else { continue };
            if system::is_system_group(group) {
                continue;
            }
            let is_missing = !groups.contains_key(group);
            let is_unused = is_missing || self.topic_config(address, topic).await?.is_none();
            if !is_unused {
                continue;
            }
            let is_live = match live.get(group) {
                Some(is_live) => *is_live,
                None => !api.members_at(address, group).await?.is_empty(),
            };
            live.insert(group.to_owned(), is_live);
            if !is_live {
                let (topic, group) = (topic.to_owned(), group.to_owned());
                unused.push(UnusedOffsets { topic, group, is_group_missing: is_missing });
            }
        }
        Ok(unused)
    }

    /// Configuration of a topic at the broker at an address, regardless of the routes; `None` if the broker does not have it.
    ///
    /// # Errors
    /// Those of reaching the broker; that of one that does not know the request (Apache's before 5.0).
    #[doc(alias = "examineTopicConfig")]
    pub async fn topic_config(&self, address: &str, topic: &str) -> Result<Option<TopicConfig>, ClientError> {
        const OPERATION: &str = "topic configuration query";
        let address = &self.address_of(address, false).await?;
        let api = self.client.api();
        let answer = api.call(address, OPERATION, wire::topic_config(topic), api.timeout()).await?;
        if answer.code == response::TOPIC_NOT_EXIST {
            return Ok(None);
        }
        let answer = outcome::success(OPERATION, address, answer)?;
        wire::json(OPERATION, address, &answer.body).map(Some)
    }

    /// Number of waiting timer messages by topic, at the broker at an address.
    ///
    /// # Errors
    /// Those of reaching the broker; that of one that does not know the request.
    #[doc(alias = "getTimerMetrics")]
    pub async fn timers(&self, address: &str) -> Result<BTreeMap<String, i64>, ClientError> {
        const OPERATION: &str = "timer query";
        let answer = self.call_at(address, OPERATION, wire::timer_metrics()).await?;
        let counts = wire::json::<TimerMetrics>(OPERATION, address, &answer.body)?.timing_count;
        Ok(counts.into_iter().map(|(topic, count)| (topic, count.count)).collect())
    }

    /// Lets a live member of a group handle one message now. Neither its offsets nor its retries change.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if no such member is live, or does not answer; those of reaching the broker of the message.
    #[doc(alias = "consumeMessageDirectly")]
    pub async fn consume_directly(
        &self,
        address: &str,
        group: &str,
        client_id: &str,
        topic: &str,
        offset_msg_id: &str,
    ) -> Result<ConsumeMessageDirectlyResult, ClientError> {
        const OPERATION: &str = "direct consumption";
        check_group(group)?;
        let request = wire::consume_directly(group, client_id, topic, offset_msg_id);
        let answer = self.call_at(address, OPERATION, request).await?;
        wire::json(OPERATION, address, &answer.body)
    }

    /// Value of a key in the configuration of the name servers, from the first that has it.
    ///
    /// # Errors
    /// The last failure, if no name server answered.
    pub async fn note(&self, namespace: &str, key: &str) -> Result<Option<String>, ClientError> {
        const OPERATION: &str = "configuration query";
        self.client.check()?;
        let api = self.client.api();
        let (mut is_missing, mut failed) = (false, None);
        for address in api.name_servers() {
            let request = wire::kv_config(namespace, key);
            match api.call(address, OPERATION, request, api.timeout()).await {
                Ok(answer) if answer.code == response::QUERY_NOT_FOUND => is_missing = true,
                Ok(answer) => {
                    let answer = outcome::success(OPERATION, address, answer)?;
                    let header: GetKVConfigResponseHeader<'_> = wire::header(OPERATION, address, &answer)?;
                    return Ok(header.value.map(str::to_owned));
                }
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if !is_missing => Err(error),
            _ => Ok(None),
        }
    }

    /// Sets a key in the configuration of every name server that answers, or removes it. Repeating it is safe.
    ///
    /// # Errors
    /// The last failure, if no name server made the change.
    pub async fn set_note(&self, namespace: &str, key: &str, value: Option<&str>) -> Result<(), ClientError> {
        const OPERATION: &str = "configuration change";
        self.client.check()?;
        let api = self.client.api();
        let (mut is_set, mut failed) = (false, None);
        for address in api.name_servers() {
            let request = match value {
                Some(value) => wire::put_kv_config(namespace, key, value),
                None => wire::delete_kv_config(namespace, key),
            };
            let changed = match api.call(address, OPERATION, request, api.timeout()).await {
                Ok(answer) if value.is_none() && answer.code == response::QUERY_NOT_FOUND => Ok(()),
                Ok(answer) => outcome::success(OPERATION, address, answer).map(drop),
                Err(error) => Err(error),
            };
            match changed {
                Ok(()) => is_set = true,
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if !is_set => Err(error),
            _ => Ok(()),
        }
    }

    async fn call_at(
        &self,
        address: &str,
        operation: &'static str,
        request: Command,
    ) -> Result<Command, ClientError> {
        let address = &self.address_of(address, false).await?;
        self.client.api().call_ok(address, operation, request).await
    }
}

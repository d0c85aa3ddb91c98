//! All topics, groups and producers of a cluster: each broker answers for all of its own at once.

use std::collections::{BTreeMap, BTreeSet};

use rocketpy_model::{GroupConfig, TopicConfig, system};
use rocketpy_protocol::body::{ProducerInfo, ProducerTableInfo};

use super::gather::Answers;
use super::{Admin, Connection, TopicBroker, requests};
use crate::api::Api;
use crate::error::ClientError;
use crate::wire;

/// A topic at the brokers that have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicConfigs {
    /// The topic's name.
    pub name: String,
    /// The topic at each broker, sorted by broker name.
    pub brokers: Vec<TopicBroker>,
    /// Whether it is one of the system: retries and dead letters too, and the topics that brokers name after themselves and their clusters.
    pub is_system: bool,
}

/// A consumer group at the brokers that have it.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupConfigs {
    /// The group's name.
    pub name: String,
    /// Its settings at each broker, sorted by broker name.
    pub brokers: Vec<GroupSettings>,
}

/// Settings of a group at one broker.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupSettings {
    pub broker_name: String,
    /// The broker that was asked: the master, or a slave without one.
    pub address: String,
    pub config: GroupConfig,
}

/// A producer group with its live members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerGroup {
    /// The group's name.
    pub name: String,
    /// The live members, sorted by client id.
    pub members: Vec<Connection>,
}

impl Admin {
    /// Every topic with its configuration at the brokers that answer, sorted by name, system topics too.
    ///
    /// # Errors
    /// [`ClientError::NoBrokers`]; those of reaching a name server; that of the first broker, if none answers.
    #[doc(alias = "getAllTopicConfig")]
    pub async fn known_topic_configs(&self) -> Result<Answers<TopicConfigs>, ClientError> {
        let places = self.readable().await?;
        let known = self.cluster().await?.brokers.into_iter();
        let brokers: BTreeMap<_, _> =
            known.map(|one| (one.broker_name, (one.cluster, one.addresses))).collect();
        let answers = self.gather(&places, |api, place| async move {
            Ok((place.broker_name, api.topic_configs_at(&place.address).await?))
        });
        Ok(answers.await?.map(|found| {
            let mut topics = BTreeMap::<String, Vec<TopicBroker>>::new();
            for (broker_name, of_broker) in found {
                let (cluster, addresses) = brokers.get(&broker_name).cloned().unwrap_or_default();
                for (name, config) in of_broker {
                    topics.entry(name).or_default().push(TopicBroker {
                        broker_name: broker_name.clone(),
                        cluster: cluster.clone(),
                        addresses: addresses.clone(),
                        ..at_broker(config)
                    });
                }
            }
            let own: BTreeSet<&str> =
                brokers.iter().flat_map(|(name, (cluster, _))| [name.as_str(), cluster]).collect();
            let topic = |(name, brokers): (String, Vec<TopicBroker>)| TopicConfigs {
                is_system: is_of_system(&name)
                    || own.contains(name.strip_suffix(system::REPLY_TOPIC_SUFFIX).unwrap_or(&name)),
                name,
                brokers,
            };
            topics.into_iter().map(topic).collect()
        }))
    }

    /// Every group except those of the system, with its settings at the brokers that answer; sorted by name.
    ///
    /// # Errors
    /// As [`Self::known_topic_configs`].
    #[doc(alias = "getAllSubscriptionGroup")]
    pub async fn known_group_configs(&self) -> Result<Answers<GroupConfigs>, ClientError> {
        let places = self.readable().await?;
        let answers = self.gather(&places, |api, place| async move {
            let groups = api.groups_at(&place.address).await?;
            Ok((place, groups))
        });
        Ok(answers.await?.map(|found| {
            let mut groups = BTreeMap::<String, Vec<GroupSettings>>::new();
            for (place, of_broker) in found {
                let ordinary = of_broker.into_iter().filter(|(group, _)| !system::is_system_group(group));
                for (name, config) in ordinary {
                    let (broker_name, address) = (place.broker_name.clone(), place.address.clone());
                    groups.entry(name).or_default().push(GroupSettings { broker_name, address, config });
                }
            }
            groups.into_iter().map(|(name, brokers)| GroupConfigs { name, brokers }).collect()
        }))
    }

    /// Every producer group with live members, as the brokers that answer know them; sorted by name.
    ///
    /// # Errors
    /// As [`Self::known_topic_configs`].
    #[doc(alias = "getAllProducerInfo")]
    pub async fn known_producer_groups(&self) -> Result<Answers<ProducerGroup>, ClientError> {
        let places = self.readable().await?;
        let answers = self
            .gather(&places, |api, place| async move { api.producer_groups_at(&place.address).await })
            .await?;
        Ok(answers.map(|found| {
            // Every member tells every broker the same.
            let mut groups = BTreeMap::<String, BTreeMap<String, Connection>>::new();
            for (name, members) in found.into_iter().flatten() {
                let group = groups.entry(name).or_default();
                for member in members {
                    group.entry(member.client_id.clone()).or_insert_with(|| connection(member));
                }
            }
            let group = |(name, members): (String, BTreeMap<String, Connection>)| {
                let members: Vec<Connection> = members.into_values().collect();
                assert!(members.is_sorted(), "members are sorted by client id: {name}");
                ProducerGroup { name, members }
            };
            groups.into_iter().map(group).collect()
        }))
    }
}

impl Api {
    async fn producer_groups_at(
        &self,
        address: &str,
    ) -> Result<BTreeMap<String, Vec<ProducerInfo>>, ClientError> {
        const OPERATION: &str = "producer list query";
        let answer = self.call_ok(address, OPERATION, requests::all_producers()).await?;
        Ok(wire::json::<ProducerTableInfo>(OPERATION, address, &answer.body)?.data)
    }
}

fn is_of_system(topic: &str) -> bool {
    system::is_system_topic(topic)
        || topic.starts_with(system::RETRY_PREFIX)
        || topic.starts_with(system::DLQ_PREFIX)
}

/// The configuration of a topic, without the names of its broker.
fn at_broker(config: TopicConfig) -> TopicBroker {
    TopicBroker {
        broker_name: String::new(),
        cluster: String::new(),
        addresses: BTreeMap::new(),
        read_queues: config.read_queues,
        write_queues: config.write_queues,
        perm: config.perm.bits().cast_unsigned(),
        attributes: config.attributes,
    }
}

fn connection(member: ProducerInfo) -> Connection {
    let ProducerInfo { client_id, language, remote_ip, version, .. } = member;
    // Apache's brokers write an address as Java does.
    let address = remote_ip.strip_prefix('/').map_or_else(|| remote_ip.clone(), str::to_owned);
    Connection { client_id, address, language, version }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_kinds_of_brokers_are_alike() {
        let address = |text: &str| {
            connection(ProducerInfo { remote_ip: text.to_owned(), ..ProducerInfo::default() }).address
        };
        assert_eq!(address("/10.0.0.7:51230"), "10.0.0.7:51230");
        assert_eq!(address("10.0.0.7:51230"), "10.0.0.7:51230");
    }
}

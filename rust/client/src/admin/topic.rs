//! Topics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketpy_model::{MessageQueue, Permission, QueueOffset, TopicConfig, name, system};
use rocketpy_protocol::body::{QueueData, TopicConfigSerializeWrapper, TopicStatsTable};
use rocketpy_protocol::code::response;
use tracing::{debug, warn};

use super::gather::{Answers, Place, check_complete, each};
use super::{Admin, QueueStats, TopicBroker, TopicDescription, TopicSpec, TopicTotals, requests};
use crate::api::Api;
use crate::error::ClientError;
use crate::route::TopicRoute;
use crate::{outcome, wire};

/// How long a topic's creation waits until the name servers know it.
const ROUTE_WAIT: Duration = Duration::from_secs(3);
/// Pause between two questions for the route of a new topic.
const ROUTE_POLL: Duration = Duration::from_millis(10);
/// Number of topics from which a broker is asked first which of them it has.
const MANY_TOPICS: usize = 8;

impl Admin {
    /// Creates or changes a topic at every master that the spec names, and waits until the name servers know it.
    ///
    /// # Errors
    /// [`ClientError::InvalidTopic`], [`ClientError::SystemTopic`], [`ClientError::InvalidConfig`],
    /// [`ClientError::NoBrokers`], [`ClientError::ClusterNotFound`], [`ClientError::BrokerNotFound`]; the first failure of a broker, where others may have
    /// created it. Creating it again is safe.
    pub async fn create_topic(&self, spec: &TopicSpec) -> Result<(), ClientError> {
        let places = (spec.cluster.as_deref(), spec.broker.as_deref());
        self.put_topic(&config_of(spec)?, &spec.attributes, places).await
    }

    /// Creates a topic with all of its settings, or replaces them, at the masters of a cluster and with a name, if one is given. Waits until
    /// name servers know it. Repeating it is safe.
    ///
    /// # Errors
    /// As [`Self::create_topic`].
    pub async fn put_topic(
        &self,
        config: &TopicConfig,
        attributes: &BTreeMap<String, Option<String>>,
        (cluster, broker): (Option<&str>, Option<&str>),
    ) -> Result<(), ClientError> {
        check_name(&config.name)?;
        let attributes = attributes_text(attributes)?;
        let api = self.client.api();
        let mut masters = self.masters(cluster).await?;
        if let Some(wanted) = broker {
            masters.retain(|(broker, _)| broker.broker_name == wanted);
            if masters.is_empty() {
                return Err(ClientError::BrokerNotFound { broker_name: wanted.to_owned() });
            }
        }
        for (_, address) in &masters {
            let request = wire::create_topic(config, attributes.as_deref());
            api.call_ok(address, "topic creation", request).await?;
        }
        let names: Vec<&str> = masters.iter().map(|(broker, _)| broker.broker_name.as_str()).collect();
        api.wait_for_route(config, &names).await;
        Ok(())
    }

    /// Deletes a topic at all brokers and name servers.
    ///
    /// # Errors
    /// [`ClientError::InvalidTopic`], [`ClientError::SystemTopic`], [`ClientError::NoBrokers`], [`ClientError::NoSuchTopic`]; the first
    /// failure, where other brokers may have deleted it. Deleting it again is safe.
    pub async fn delete_topic(&self, topic: &str) -> Result<(), ClientError> {
        check_name(topic)?;
        self.client.check()?;
        let api = self.client.api();
        let route = self.fetch(topic).await.map_err(|error| match error {
            ClientError::NoRoute { topic } => ClientError::NoSuchTopic { topic },
            other => other,
        })?;
        for broker in &route.brokers {
            if let Some(address) = broker.master_address() {
                api.call_ok(address, "topic deletion", wire::delete_topic(topic)).await?;
            }
        }
        for address in api.name_servers() {
            let request = wire::delete_topic_in_name_server(topic, None);
            api.call_ok(address, "topic deletion", request).await?;
        }
        api.forget_route(topic);
        Ok(())
    }

    /// Names of all topics, sorted, system topics too.
    ///
    /// # Errors
    /// [`ClientError::NoBrokers`]; those of reaching a name server.
    pub async fn topics(&self) -> Result<Vec<String>, ClientError> {
        self.client.check()?;
        let api = self.client.api();
        let mut topics = api.topic_names().await?;
        topics.sort();
        topics.dedup();
        if topics.is_empty() {
            api.known_brokers().await?; // every broker has topics of the system
        }
        Ok(topics)
    }

    /// Route, permissions and queues of a topic.
    ///
    /// # Errors
    /// As [`Self::known_topic`]; that of the first broker that does not answer.
    pub async fn describe_topic(&self, topic: &str) -> Result<TopicDescription, ClientError> {
        let described = self.known_topic(topic).await?;
        check_complete(&described.missing)?;
        Ok(described)
    }

    /// As [`Self::describe_topic`], with the queues of the brokers that answer.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`], [`ClientError::NoBrokers`]; those of reaching a name server; that of the first broker, if none answers.
    pub async fn known_topic(&self, topic: &str) -> Result<TopicDescription, ClientError> {
        self.client.check()?;
        let route = self.fetch(topic).await?;
        let places = places(&route);
        let answers = self.gather(&places, |api, place| {
            let topic = topic.to_owned();
            async move {
                let (stats, attributes) = tokio::try_join!(
                    api.topic_stats_at(&place.address, &topic),
                    api.topic_attributes(&place.address, &topic)
                )?;
                Ok((place.broker_name, stats.unwrap_or_default(), attributes))
            }
        });
        let answers = answers.await?;
        let (mut queues, mut put_rate, mut attributes) = (Vec::new(), 0.0, BTreeMap::new());
        for (broker_name, stats, of_broker) in answers.found {
            queues.extend(stats.queues);
            put_rate += stats.put_rate;
            attributes.insert(broker_name, of_broker);
        }
        queues.sort_by(|a, b| a.queue.cmp(&b.queue));
        let broker = |data: &QueueData| TopicBroker {
            attributes: attributes.remove(&data.broker_name).unwrap_or_default(),
            ..topic_broker(&route, &data.broker_name)
        };
        let brokers = route.queue_data.iter().map(broker).collect();
        Ok(TopicDescription { name: topic.to_owned(), brokers, queues, put_rate, missing: answers.missing })
    }

    /// Queues and rates of topics at the brokers that answer, sorted by name. Topics that no broker has are left out.
    ///
    /// # Errors
    /// [`ClientError::NoBrokers`]; those of reaching a name server; that of the first broker, if none answers.
    pub async fn known_totals(&self, topics: Vec<String>) -> Result<Answers<TopicTotals>, ClientError> {
        let places = self.readable().await?;
        let topics = Arc::new(topics);
        let answers = self.gather(&places, |api, place| {
            let topics = topics.clone();
            async move { api.totals_at(&place.address, &topics).await }
        });
        Ok(answers.await?.map(|found| {
            let mut totals = BTreeMap::<String, TopicTotals>::new();
            for one in found.into_iter().flatten() {
                let sum = totals.entry(one.name.clone()).or_default();
                assert!(
                    sum.name.is_empty() || sum.name == one.name,
                    "two topics: {} and {}",
                    sum.name,
                    one.name
                );
                sum.name = one.name;
                sum.queues.extend(one.queues);
                sum.put_rate += one.put_rate;
                sum.error = sum.error.take().or(one.error);
            }
            totals.into_values().collect()
        }))
    }

    /// Readable queues of a topic, sorted.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`], [`ClientError::NoBrokers`]; those of reaching a name server.
    pub async fn queues(&self, topic: &str) -> Result<Vec<MessageQueue>, ClientError> {
        self.client.check()?;
        Ok(self.fetch(topic).await?.subscribe)
    }

    /// One broker of each name in a topic's route.
    pub(super) async fn places_of(&self, topic: &str) -> Result<Vec<Place>, ClientError> {
        Ok(places(&self.fetch(topic).await?))
    }

    /// The topic's route as it is now.
    pub(super) async fn fetch(&self, topic: &str) -> Result<TopicRoute, ClientError> {
        let api = self.client.api();
        match api.fetch_route(topic).await? {
            Some(route) => Ok(route),
            None => Err(api.no_route(topic).await),
        }
    }
}

impl Api {
    /// Waits until the name servers list all of `broker_names` for the topic, each with the new number of queues.
    async fn wait_for_route(&self, config: &TopicConfig, broker_names: &[&str]) {
        let deadline = Instant::now() + ROUTE_WAIT;
        loop {
            // The brokers have the topic, so a name server that does not answer now does not fail its creation.
            let route = self.fetch_route(&config.name).await.unwrap_or_default();
            let is_there = |broker_name: &&str| {
                let data = route.iter().flat_map(|route| &route.queue_data);
                let mut of_broker = data.filter(|data| data.broker_name == **broker_name);
                of_broker.any(|data| {
                    data.write_queues == config.write_queues && data.read_queues == config.read_queues
                })
            };
            if broker_names.iter().all(is_there) {
                self.forget_route(&config.name);
                return;
            }
            if Instant::now() >= deadline {
                warn!(topic = config.name, "new topic missing in the routes of the name servers");
                self.forget_route(&config.name);
                return;
            }
            tokio::time::sleep(ROUTE_POLL).await;
        }
    }

    async fn topic_attributes(
        &self,
        address: &str,
        topic: &str,
    ) -> Result<BTreeMap<String, String>, ClientError> {
        const OPERATION: &str = "topic configuration query";
        let request = wire::topic_config(topic);
        let answer = self.call(address, OPERATION, request, self.timeout()).await?;
        if matches!(answer.code, response::TOPIC_NOT_EXIST | response::REQUEST_CODE_NOT_SUPPORTED) {
            return Ok(BTreeMap::new());
        }
        let answer = outcome::success(OPERATION, address, answer)?;
        wire::json::<TopicConfig>(OPERATION, address, &answer.body).map(|config| config.attributes)
    }

    /// Queues and rates of those of the topics that a broker has.
    async fn totals_at(&self, address: &str, topics: &[String]) -> Result<Vec<TopicTotals>, ClientError> {
        let known = match topics.len() {
            0..MANY_TOPICS => None,
            _ => Some(self.topic_configs_at(address).await?),
        };
        let wanted: Vec<_> = topics
            .iter()
            .filter(|topic| known.as_ref().is_none_or(|known| known.contains_key(*topic)))
            .cloned()
            .collect();
        let totals = each(wanted, |name| {
            let (api, address) = (self.clone(), address.to_owned());
            async move {
                match api.topic_stats_at(&address, &name).await {
                    Ok(stats) => Ok(stats.map(|stats| TopicTotals { name, ..stats })),
                    Err(error @ (ClientError::Refused { .. } | ClientError::BadAnswer { .. })) => {
                        Ok(Some(TopicTotals { name, error: Some(error), ..TopicTotals::default() }))
                    }
                    Err(error) => Err(error),
                }
            }
        });
        Ok(totals.await?.into_iter().flatten().collect())
    }

    /// All topics of a broker.
    pub(super) async fn topic_configs_at(
        &self,
        address: &str,
    ) -> Result<BTreeMap<String, TopicConfig>, ClientError> {
        const OPERATION: &str = "topic configuration query";
        let answer = self.call_ok(address, OPERATION, requests::all_topics()).await?;
        wire::json::<TopicConfigSerializeWrapper>(OPERATION, address, &answer.body)
            .map(|body| body.topic_config_table)
    }

    /// Queues and rate of a topic at a broker; `None` where it does not exist.
    pub(super) async fn topic_stats_at(
        &self,
        address: &str,
        topic: &str,
    ) -> Result<Option<TopicTotals>, ClientError> {
        const OPERATION: &str = "topic statistics query";
        let answer = self.call(address, OPERATION, wire::topic_stats(topic), self.timeout()).await?;
        if answer.code == response::TOPIC_NOT_EXIST {
            debug!(topic, address, "topic missing at a broker of its route");
            return Ok(None);
        }
        let answer = outcome::success(OPERATION, address, answer)?;
        let table: TopicStatsTable = wire::json(OPERATION, address, &answer.body)?;
        let offset = |value: i64| QueueOffset(u64::try_from(value).unwrap_or(0));
        let stats = table.offset_table.into_iter().map(|(queue, offsets)| QueueStats {
            queue,
            min_offset: offset(offsets.min_offset),
            max_offset: offset(offsets.max_offset),
            last_stored_at_ms: Some(offsets.last_update_at_ms).filter(|at_ms| *at_ms > 0),
        });
        let put_rate = Some(table.topic_put_tps).filter(|rate| rate.is_finite()).unwrap_or(0.0);
        Ok(Some(TopicTotals { name: topic.to_owned(), queues: stats.collect(), put_rate, error: None }))
    }
}

/// One broker of each name in a route.
fn places(route: &TopicRoute) -> Vec<Place> {
    let place = |(broker_name, address): (&str, &str)| Place {
        broker_name: broker_name.to_owned(),
        address: address.to_owned(),
    };
    route.addresses().map(place).collect()
}

fn topic_broker(route: &TopicRoute, broker_name: &str) -> TopicBroker {
    let data = route.queue_data.iter().find(|data| data.broker_name == broker_name);
    let broker = route.brokers.iter().find(|broker| broker.broker_name == broker_name);
    TopicBroker {
        broker_name: broker_name.to_owned(),
        cluster: broker.map(|broker| broker.cluster.clone()).unwrap_or_default(),
        addresses: broker.map(|broker| broker.broker_addrs.clone()).unwrap_or_default(),
        read_queues: data.map_or(0, |data| data.read_queues),
        write_queues: data.map_or(0, |data| data.write_queues),
        perm: data.map_or(0, |data| data.perm.cast_unsigned()),
        attributes: BTreeMap::new(),
    }
}

/// Attributes as requests carry them: `+name=value` and `-name`, separated by commas. `None` without any.
///
/// # Source
/// docs/reference/protocol.md 2.6.1.
fn attributes_text(attributes: &BTreeMap<String, Option<String>>) -> Result<Option<String>, ClientError> {
    let is_name = |text: &str| !text.is_empty() && !text.contains([',', '=', '+']) && !text.starts_with('-');
    let is_value = |text: &str| !text.is_empty() && !text.contains([',', '=']);
    let mut parts = Vec::with_capacity(attributes.len());
    for (name, value) in attributes {
        if !is_name(name) || !value.as_deref().is_none_or(is_value) {
            let given = value.as_ref().map_or_else(|| name.clone(), |value| format!("{name}={value}"));
            let reason = format!("a name and a value, without commas and further = in them: {given}");
            return Err(ClientError::InvalidConfig { field: "attributes", reason });
        }
        parts.push(value.as_ref().map_or_else(|| format!("-{name}"), |value| format!("+{name}={value}")));
    }
    Ok((!parts.is_empty()).then(|| parts.join(",")))
}

fn check_name(topic: &str) -> Result<(), ClientError> {
    name::check_topic(topic)
        .map_err(|error| ClientError::InvalidTopic { topic: topic.to_owned(), reason: error.to_string() })?;
    if system::is_system_topic(topic) {
        return Err(ClientError::SystemTopic { topic: topic.to_owned() });
    }
    Ok(())
}

fn config_of(spec: &TopicSpec) -> Result<TopicConfig, ClientError> {
    check_name(&spec.name)?;
    let invalid = |field, reason: &str| ClientError::InvalidConfig { field, reason: reason.to_owned() };
    if spec.read_queues == 0
        || spec.write_queues == 0
        || spec.read_queues.max(spec.write_queues) > i32::MAX as u32
    {
        return Err(invalid("queues", "at least 1"));
    }
    let perm = Permission(spec.perm.cast_signed());
    if !perm.is_valid() {
        return Err(invalid("perm", "bits 4 (read), 2 (write) and 1 (inherit)"));
    }
    Ok(TopicConfig {
        read_queues: spec.read_queues,
        write_queues: spec.write_queues,
        order: spec.order,
        ..TopicConfig::new(&spec.name, spec.read_queues).with_perm(perm)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_spec_is_checked_before_any_broker_is_asked() {
        assert!(config_of(&TopicSpec::new("flights", 8)).is_ok());
        for name in ["", "a/b", &"x".repeat(128)] {
            assert!(matches!(config_of(&TopicSpec::new(name, 8)), Err(ClientError::InvalidTopic { .. })));
        }
        assert!(matches!(config_of(&TopicSpec::new("TBW102", 8)), Err(ClientError::SystemTopic { .. })));
        assert!(matches!(config_of(&TopicSpec::new("t", 0)), Err(ClientError::InvalidConfig { .. })));
        let text = |name: &str, value: Option<&str>| {
            attributes_text(&[(name.to_owned(), value.map(str::to_owned))].into())
        };
        assert_eq!(attributes_text(&BTreeMap::new()).unwrap(), None);
        assert_eq!(text("retention.hours", Some("24")).unwrap().unwrap(), "+retention.hours=24");
        assert_eq!(text("flush.type", None).unwrap().unwrap(), "-flush.type");
        for (name, value) in
            [("", "1"), ("+a", "1"), ("-a", "1"), ("a", ""), ("a", "1,-b"), ("a=b", "1"), ("a", "=")]
        {
            assert!(text(name, Some(value)).is_err(), "{name}={value}");
        }
        let spec = TopicSpec { perm: 64, ..TopicSpec::new("t", 1) };
        assert!(matches!(config_of(&spec), Err(ClientError::InvalidConfig { field: "perm", .. })));
    }
}

//! Who reads a topic and a message, how old what waits for a group is, and how fast messages come and go.

use std::collections::{BTreeMap, BTreeSet};

use rocketpy_model::{MessageQueue, QueueOffset, system};
use rocketpy_protocol::body::{ConsumeTimeSpans, GroupList, Statistics, StatisticsItem};
use rocketpy_protocol::code::response;

use super::gather::{Answers, Place, each};
use super::{Admin, requests};
use crate::api::Api;
use crate::error::ClientError;
use crate::{outcome, wire};

const DELAY_QUERY: &str = "delay query";

/// A group that reads a topic, and its position in one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupPosition {
    pub group: String,
    /// Next offset to read, as the broker has it stored; `None` when the group committed nothing.
    pub committed_offset: Option<QueueOffset>,
}

/// How late a group is in one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueDelay {
    pub queue: MessageQueue,
    /// Age of the next message to consume, by the clock of the broker; 0 when there is none.
    pub behind_ms: u64,
    /// Store time of the last consumed message (milliseconds since 1970); `None` when there is none.
    pub last_consumed_at_ms: Option<i64>,
    /// Store time of the newest message (milliseconds since 1970); `None` without messages.
    pub newest_at_ms: Option<i64>,
}

/// What was counted until now, by windows of time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CountRate {
    /// Over the last minute.
    pub per_second: f64,
    pub last_minute: u64,
    pub last_hour: u64,
    pub last_day: u64,
}

/// Messages that a broker stored or delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TrafficRate {
    pub messages: CountRate,
    pub bytes: CountRate,
}

impl TrafficRate {
    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self { messages: self.messages.plus(other.messages), bytes: self.bytes.plus(other.bytes) }
    }
}

impl CountRate {
    fn plus(self, other: Self) -> Self {
        Self {
            per_second: self.per_second + other.per_second,
            last_minute: self.last_minute.saturating_add(other.last_minute),
            last_hour: self.last_hour.saturating_add(other.last_hour),
            last_day: self.last_day.saturating_add(other.last_day),
        }
    }
}

impl From<Statistics> for CountRate {
    fn from(counted: Statistics) -> Self {
        let sum = |item: StatisticsItem| u64::try_from(item.sum).unwrap_or(0);
        let rate = counted.stats_minute.tps;
        let per_second = if rate.is_finite() { rate.max(0.0) } else { 0.0 };
        assert!(per_second >= 0.0, "a rate is a number, and not below 0: {rate}");
        Self {
            per_second,
            last_minute: sum(counted.stats_minute),
            last_hour: sum(counted.stats_hour),
            last_day: sum(counted.stats_day),
        }
    }
}

impl Admin {
    /// Groups that subscribe to a topic now or have offsets for it, sorted, as the brokers that answer know them.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`], [`ClientError::NoBrokers`]; those of reaching a name server; that of the first broker, if none answers.
    #[doc(alias = "queryTopicConsumeByWho")]
    pub async fn known_topic_groups(&self, topic: &str) -> Result<Answers<String>, ClientError> {
        self.client.check()?;
        let places = self.places_of(topic).await?;
        let answers = self.gather(&places, |api, place| {
            let topic = topic.to_owned();
            async move { api.topic_groups_at(&place.address, &topic).await }
        });
        Ok(answers.await?.map(|found| {
            let groups: BTreeSet<String> = found.into_iter().flatten().collect();
            groups.into_iter().collect()
        }))
    }

    /// Positions in a queue of all groups that read its topic, sorted by group.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`], [`ClientError::BrokerNotFound`], [`ClientError::NoBrokers`]; those of reaching name server and broker.
    pub async fn positions(&self, queue: &MessageQueue) -> Result<Vec<GroupPosition>, ClientError> {
        self.client.check()?;
        let mut places = self.places_of(&queue.topic).await?.into_iter();
        let Some(place) = places.find(|place| *place.broker_name == *queue.broker_name) else {
            return Err(ClientError::broker_not_found(queue));
        };
        let groups = self.client.api().topic_groups_at(&place.address, &queue.topic).await?;
        let groups: BTreeSet<String> = groups.into_iter().collect();
        let count = groups.len();
        let positions = each(groups, |group| {
            let (api, address, queue) = (self.client.api().clone(), place.address.clone(), queue.clone());
            async move {
                let committed_offset = api.stored_offset_at(&address, &group, &queue).await?;
                Ok(GroupPosition { group, committed_offset })
            }
        });
        let positions = positions.await?;
        assert_eq!(positions.len(), count, "each group has one position");
        Ok(positions)
    }

    /// How late a group is in each queue of one topic, or of all topics for which it has offsets; sorted by queue.
    ///
    /// # Errors
    /// As [`Self::known_lag`].
    #[doc(alias = "queryConsumeTimeSpan")]
    pub async fn known_delays(
        &self,
        group: &str,
        topic: Option<&str>,
    ) -> Result<Answers<QueueDelay>, ClientError> {
        let places = self.places_of_group(group, topic).await?;
        let answers = self.gather(&places, |api, place| {
            let (group, topic) = (group.to_owned(), topic.map(str::to_owned));
            async move { api.delays_at(&place, &group, topic.as_deref()).await }
        });
        let answers = answers.await?.map(|found| {
            let mut rows: Vec<QueueDelay> = found.into_iter().flatten().collect();
            rows.sort_by(|a, b| a.queue.cmp(&b.queue));
            rows
        });
        if answers.found.is_empty() && answers.missing.is_empty() {
            self.require_group(DELAY_QUERY, group).await?;
        }
        Ok(answers)
    }

    /// Messages that each broker of a topic stored.
    ///
    /// # Errors
    /// As [`Self::known_topic_groups`].
    #[doc(alias = "viewBrokerStatsData")]
    pub async fn known_topic_rates(&self, topic: &str) -> Result<Answers<TrafficRate>, ClientError> {
        self.client.check()?;
        let places = self.places_of(topic).await?;
        let answers = self.gather(&places, |api, place| {
            let topic = topic.to_owned();
            async move { api.traffic_at(&place.address, ["TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"], &topic).await }
        });
        answers.await
    }

    /// Messages of one topic, or of all topics for which the group has offsets, that each broker delivered to a group.
    ///
    /// # Errors
    /// As [`Self::known_lag`].
    pub async fn known_group_rates(
        &self,
        group: &str,
        topic: Option<&str>,
    ) -> Result<Answers<TrafficRate>, ClientError> {
        let places = self.places_of_group(group, topic).await?;
        let answers = self.gather(&places, |api, place| {
            let (group, topic) = (group.to_owned(), topic.map(str::to_owned));
            async move { api.group_traffic_at(&place.address, &group, topic).await }
        });
        let answers = answers.await?;
        if answers.found.iter().all(|rate| rate.messages.last_day == 0) && answers.missing.is_empty() {
            self.require_group("rate query", group).await?;
        }
        Ok(answers)
    }
}

impl Api {
    async fn topic_groups_at(&self, address: &str, topic: &str) -> Result<Vec<String>, ClientError> {
        const OPERATION: &str = "reader query";
        let answer = self.call_ok(address, OPERATION, requests::topic_groups(topic)).await?;
        Ok(wire::json::<GroupList>(OPERATION, address, &answer.body)?.group_list)
    }

    async fn delays_at(
        &self,
        place: &Place,
        group: &str,
        topic: Option<&str>,
    ) -> Result<Vec<QueueDelay>, ClientError> {
        let mut offsets = self.stats_at(&place.address, group, topic).await?.offset_table;
        let retry = system::retry_topic(group);
        if topic.is_none() {
            offsets.retain(|queue, row| *queue.topic != *retry || row.broker_offset > 0);
        }
        let topics: BTreeSet<String> = offsets.keys().map(|queue| queue.topic.to_string()).collect();
        let spans = each(topics, |topic| {
            let (api, address, group) = (self.clone(), place.address.clone(), group.to_owned());
            async move { api.time_spans_at(&address, &topic, &group).await }
        });
        let spans = spans.await?.into_iter().flat_map(|spans| spans.consume_time_span_set);
        let mut spans: BTreeMap<_, _> = spans.map(|span| (span.message_queue.clone(), span)).collect();
        let most = offsets.len();
        let time = |at_ms: i64| Some(at_ms).filter(|at_ms| *at_ms > 0);
        let row = |(queue, row): (MessageQueue, rocketpy_protocol::body::OffsetWrapper)| {
            let span = spans.remove(&queue)?; // without one, the topic was deleted in between
            Some(QueueDelay {
                queue,
                behind_ms: u64::try_from(span.delay_time).unwrap_or(0),
                last_consumed_at_ms: time(row.last_at_ms),
                newest_at_ms: time(span.max_time_stamp),
            })
        };
        let rows: Vec<QueueDelay> = offsets.into_iter().filter_map(row).collect();
        assert!(
            rows.len() <= most,
            "each queue with progress has at most one delay: {} of {most}",
            rows.len()
        );
        Ok(rows)
    }

    async fn time_spans_at(
        &self,
        address: &str,
        topic: &str,
        group: &str,
    ) -> Result<ConsumeTimeSpans, ClientError> {
        let request = requests::time_spans(topic, group);
        let answer = self.call(address, DELAY_QUERY, request, self.timeout()).await?;
        if answer.code == response::TOPIC_NOT_EXIST {
            return Ok(ConsumeTimeSpans::default());
        }
        let answer = outcome::success(DELAY_QUERY, address, answer)?;
        wire::json(DELAY_QUERY, address, &answer.body)
    }

    async fn group_traffic_at(
        &self,
        address: &str,
        group: &str,
        topic: Option<String>,
    ) -> Result<TrafficRate, ClientError> {
        let topics: BTreeSet<String> = match topic {
            Some(topic) => [topic].into(),
            None => {
                let offsets = self.stats_at(address, group, None).await?.offset_table;
                offsets.into_keys().map(|queue| queue.topic.to_string()).collect()
            }
        };
        let rates = each(topics, |topic| {
            let (api, address, key) = (self.clone(), address.to_owned(), format!("{topic}@{group}"));
            async move { api.traffic_at(&address, ["GROUP_GET_NUMS", "GROUP_GET_SIZE"], &key).await }
        });
        Ok(rates.await?.into_iter().fold(TrafficRate::default(), TrafficRate::plus))
    }

    /// Items of statistics, for messages and bytes.
    async fn traffic_at(
        &self,
        address: &str,
        [messages, bytes]: [&str; 2],
        key: &str,
    ) -> Result<TrafficRate, ClientError> {
        let (messages, bytes) =
            tokio::try_join!(self.counted_at(address, messages, key), self.counted_at(address, bytes, key))?;
        Ok(TrafficRate { messages, bytes })
    }

    /// An item of statistics. A broker refuses one for which it has counted nothing since its start.
    async fn counted_at(&self, address: &str, name: &str, key: &str) -> Result<CountRate, ClientError> {
        const OPERATION: &str = "rate query";
        let request = requests::statistics(name, key);
        let answer = self.call(address, OPERATION, request, self.timeout()).await?;
        if answer.code == response::SYSTEM_ERROR && answer.remark.as_deref().is_some_and(is_without_item) {
            return Ok(CountRate::default());
        }
        let answer = outcome::success(OPERATION, address, answer)?;
        wire::json::<Statistics>(OPERATION, address, &answer.body).map(CountRate::from)
    }
}

/// Whether a broker says that it has not counted an item: of RocketPy, then of Apache.
fn is_without_item(remark: &str) -> bool {
    remark.starts_with("no statistics item ")
        || remark.starts_with("The stats ") && remark.contains("not exist")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_brokers_add_up_and_impossible_ones_count_as_none() {
        let item = |sum, tps| StatisticsItem { avgpt: 0.0, sum, tps };
        let counted =
            Statistics { stats_minute: item(60, 1.0), stats_hour: item(90, 0.0), stats_day: item(-1, 0.0) };
        let rate = CountRate::from(counted);
        let expected = CountRate { per_second: 1.0, last_minute: 60, last_hour: 90, last_day: 0 };
        assert_eq!(rate, expected);
        let odd = CountRate::from(Statistics { stats_minute: item(0, f64::NAN), ..counted });
        let sum = TrafficRate { messages: rate, bytes: odd }.plus(TrafficRate { messages: rate, bytes: odd });
        assert_eq!((sum.messages.per_second, sum.messages.last_hour), (2.0, 180));
        assert_eq!((sum.bytes.per_second, sum.bytes.last_hour), (0.0, 180));
    }
}

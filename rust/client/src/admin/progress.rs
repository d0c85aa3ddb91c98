//! Progress of all groups: each broker answers for all of its groups at once, where it can.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rocketpy_model::system;
use rocketpy_protocol::body::ConsumeStats;
use rocketpy_protocol::code::response;
use serde::Deserialize;

use super::gather::{Answers, each};
use super::{Admin, requests};
use crate::api::Api;
use crate::error::ClientError;
use crate::{outcome, wire};

/// Progress of a group at the brokers that answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupProgress {
    /// The group's name.
    pub name: String,
    /// Client ids of the live members.
    pub members: BTreeSet<String>,
    /// Topics with offsets of the group, without its retry topic.
    pub topics: BTreeSet<String>,
    /// Messages after the stored commits, without those of the retry topic.
    pub lag: u64,
    /// Messages in the retry topic that are due and not committed.
    pub retries: u64,
    /// Stored dead letters.
    pub dead_letters: u64,
    /// Error of a broker for this group, although it answered for others.
    pub error: Option<ClientError>,
}

/// Progress of all groups of a broker (answer of code 317).
///
/// # Source
/// docs/reference/protocol.md 2.6.3.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AllConsumeStats {
    consume_stats_list: Vec<BTreeMap<String, Vec<ConsumeStats>>>,
}

impl Admin {
    /// Progress of every group except those of the system, sorted by name, at the brokers that answer.
    ///
    /// # Errors
    /// [`ClientError::NoBrokers`]; those of reaching a name server; that of the first broker, if none answers.
    pub async fn known_progress(&self) -> Result<Answers<GroupProgress>, ClientError> {
        let places = self.readable().await?;
        let topics: Arc<BTreeSet<String>> = Arc::new(self.topics().await?.into_iter().collect());
        let answers = self.gather(&places, |api, place| {
            let topics = topics.clone();
            async move { api.progress_at(&place.address, &topics).await }
        });
        Ok(answers.await?.map(|found| {
            let mut groups = BTreeMap::<String, GroupProgress>::new();
            for one in found.into_iter().flatten() {
                groups.entry(one.name.clone()).or_default().add(one);
            }
            groups.into_values().collect()
        }))
    }
}

impl GroupProgress {
    /// Adds the progress at another broker.
    fn add(&mut self, other: Self) {
        assert!(
            self.name.is_empty() || self.name == other.name,
            "two groups: {} and {}",
            self.name,
            other.name
        );
        self.name = other.name;
        self.members.extend(other.members);
        self.topics.extend(other.topics);
        self.lag += other.lag;
        self.retries += other.retries;
        self.dead_letters += other.dead_letters;
        self.error = self.error.take().or(other.error);
    }

    /// Adds the queues of topics that the group consumes.
    fn count(&mut self, stats: ConsumeStats) {
        let retry = system::retry_topic(&self.name);
        for (queue, offsets) in stats.offset_table {
            let behind = u64::try_from(offsets.broker_offset - offsets.consumer_offset.max(0)).unwrap_or(0);
            if *queue.topic == *retry {
                self.retries += behind;
            } else {
                self.lag += behind;
                self.topics.insert(queue.topic.to_string());
            }
        }
    }
}

impl Api {
    /// Progress of all groups at one broker. `topics`: those of the cluster.
    async fn progress_at(
        &self,
        address: &str,
        topics: &BTreeSet<String>,
    ) -> Result<Vec<GroupProgress>, ClientError> {
        let (groups, stats) = tokio::try_join!(self.members_of_all(address), self.all_stats_at(address))?;
        let stats = stats.map(Arc::new);
        each(groups, |(name, members)| {
            let (api, address) = (self.clone(), address.to_owned());
            let given = stats.as_ref().map(|all| all.get(&name).cloned().unwrap_or_default());
            let extra =
                [system::retry_topic(&name), system::dlq_topic(&name)].map(|topic| topics.contains(&topic));
            async move {
                let mut progress = GroupProgress {
                    name,
                    members: members.into_iter().collect(),
                    ..GroupProgress::default()
                };
                match api.complete_progress(&address, &mut progress, given, extra).await {
                    Err(error @ (ClientError::Refused { .. } | ClientError::BadAnswer { .. })) => {
                        progress.error = Some(error);
                    }
                    outcome => outcome?,
                }
                Ok(progress)
            }
        })
        .await
    }

    /// Adds the lag of a group, and the messages of its retry topic and of its dead letters, if those exist.
    async fn complete_progress(
        &self,
        address: &str,
        progress: &mut GroupProgress,
        given: Option<Vec<ConsumeStats>>,
        [has_retry, has_dead]: [bool; 2],
    ) -> Result<(), ClientError> {
        let stats = match given {
            Some(given) => given,
            None => vec![self.stats_at(address, &progress.name, None).await?],
        };
        let retry = system::retry_topic(&progress.name);
        let committed =
            stats.iter().flat_map(|one| one.offset_table.keys()).any(|queue| *queue.topic == *retry);
        stats.into_iter().for_each(|stats| progress.count(stats));
        if has_retry && !committed {
            progress.retries += self.stored_at(address, &retry).await?; // its members ended before they committed there
        }
        if has_dead {
            progress.dead_letters = self.stored_at(address, &system::dlq_topic(&progress.name)).await?;
        }
        Ok(())
    }

    /// Number of messages of a topic at a broker; 0 where it does not exist.
    async fn stored_at(&self, address: &str, topic: &str) -> Result<u64, ClientError> {
        let table = self.topic_stats_at(address, topic).await?;
        let held = |queue: &super::QueueStats| queue.max_offset.get().saturating_sub(queue.min_offset.get());
        Ok(table.map_or(0, |stats| stats.queues.iter().map(held).sum()))
    }

    /// Progress of all groups of a broker in one request, ordered topics among the others. `None`: the broker does not support that.
    async fn all_stats_at(
        &self,
        address: &str,
    ) -> Result<Option<BTreeMap<String, Vec<ConsumeStats>>>, ClientError> {
        const OPERATION: &str = "progress query of all groups";
        let answer = self.call(address, OPERATION, requests::all_consume_stats(), self.timeout()).await?;
        if answer.code == response::REQUEST_CODE_NOT_SUPPORTED {
            return Ok(None);
        }
        let answer = outcome::success(OPERATION, address, answer)?;
        let body: AllConsumeStats = wire::json(OPERATION, address, &answer.body)?;
        Ok(Some(body.consume_stats_list.into_iter().flatten().collect()))
    }
}

//! Topics that brokers create because of a send: their names may be misspelt.

use std::collections::HashSet;
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_model::name;
use rocketpy_model::system::{self, DLQ_PREFIX, RETRY_PREFIX};
use tracing::warn;

use crate::api::Api;

/// Maximum number of topics that are remembered, and so of warnings.
const MAX_TOPICS: usize = 1024;
/// Timeout for the names of other topics.
const LIST_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of names that a topic is compared with.
const MAX_NAMES: usize = 10_000;

/// Topics whose creation the log has reported.
#[derive(Debug, Default)]
pub(crate) struct CreatedTopics(Mutex<HashSet<String>>);

impl CreatedTopics {
    /// Notes a topic. True for the first time, when it is to be reported. The topic of traces is not spelt by users.
    pub(crate) fn note(&self, topic: &str) -> bool {
        let mut noted = self.0.lock();
        topic != system::TRACE_TOPIC && noted.len() < MAX_TOPICS && noted.insert(topic.to_owned())
    }
}

/// Warns that brokers create a topic, and suggests topics of similar names.
pub(crate) async fn warn(api: &Api, topic: &str, default_queues: u32) {
    let listed = tokio::time::timeout(LIST_TIMEOUT, api.topic_names()).await;
    let known = listed.ok().and_then(Result::ok).unwrap_or_default();
    let near = near(topic, &known);
    let question =
        if near.is_empty() { String::new() } else { format!("did you mean {}? ", near.join(" or ")) };
    let hint = format!(
        "{question}Create topics before the first send: `rocketpy topic create {topic} --queues N`. With autoCreateTopicEnable=false brokers \
         refuse unknown topics"
    );
    warn!(
        topic,
        default_queues, hint, "topic not found; brokers create it with the default number of queues"
    );
}

/// Names of topics that users may have meant.
fn near<'a>(topic: &str, known: &'a [String]) -> Vec<&'a str> {
    let of_users = |name: &&str| {
        let is_of_group = name.starts_with(RETRY_PREFIX) || name.starts_with(DLQ_PREFIX);
        *name != topic && !is_of_group && !system::is_system_topic(name) && name::check_topic(name).is_ok()
    };
    rocketpy_model::nearest(topic, known.iter().map(String::as_str).filter(of_users).take(MAX_NAMES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_noted_once_up_to_a_bound() {
        let created = CreatedTopics::default();
        assert!(created.note("ordres") && !created.note("ordres"));
        assert!(!created.note(system::TRACE_TOPIC));
        let noted = (0..2 * MAX_TOPICS).filter(|number| created.note(&number.to_string())).count();
        assert_eq!(noted, MAX_TOPICS - 1);
    }

    #[test]
    fn topics_of_groups_and_of_the_system_are_not_suggested() {
        let known = ["%RETRY%ordres", "%DLQ%ordres", "TBW102", "orders", "payments"].map(str::to_owned);
        assert_eq!(near("ordres", &known), ["orders"]);
        assert_eq!(near("TBW103", &known), [""; 0]);
    }
}

//! The topics of a consumer, and the tags it wants from each.

use rocketpy_env::now_ms;
use rocketpy_filter::{TagFilter, Tags, hash_code};
use rocketpy_model::{name, system};
use rocketpy_protocol::body::SubscriptionData;

use crate::config::Subscription;
use crate::error::ClientError;

/// One topic of a consumer.
#[derive(Debug)]
pub(crate) struct TopicSubscription {
    pub(crate) topic: String,
    /// As the user wrote it; `*` for everything.
    pub(crate) expression: String,
    pub(crate) filter: TagFilter,
    /// The group's retry topic, which brokers create when they need it.
    pub(crate) is_retry: bool,
    version: i64,
}

/// Checks subscriptions and adds the group's retry topic if it is wanted.
pub(crate) fn of(
    group: &str,
    subscriptions: &[Subscription],
    retry_topic: bool,
) -> Result<Vec<TopicSubscription>, ClientError> {
    let illegal = |reason: String| ClientError::InvalidConfig { field: "subscriptions", reason };
    if subscriptions.is_empty() {
        return Err(illegal("at least one topic is needed".to_owned()));
    }
    let mut all: Vec<TopicSubscription> = Vec::with_capacity(subscriptions.len() + 1);
    for Subscription { topic, tags } in subscriptions {
        if all.iter().any(|known| known.topic == *topic) {
            return Err(illegal(format!("a topic is given twice: {topic}")));
        }
        all.push(one(topic, tags)?);
    }
    let retry = system::retry_topic(group);
    if retry_topic && all.iter().all(|known| known.topic != retry) {
        all.push(TopicSubscription { is_retry: true, ..one(&retry, &TagFilter::EVERYTHING.into())? });
    }
    Ok(all)
}

fn one(topic: &str, tags: &Tags) -> Result<TopicSubscription, ClientError> {
    name::check_topic(topic)
        .map_err(|error| ClientError::InvalidTopic { topic: topic.to_owned(), reason: error.to_string() })?;
    let (filter, expression) = tags.filter()?;
    Ok(TopicSubscription { topic: topic.to_owned(), expression, filter, is_retry: false, version: now_ms() })
}

impl TopicSubscription {
    /// The subscription as heartbeats carry it.
    pub(crate) fn to_wire(&self) -> SubscriptionData {
        let tags = self.filter.names();
        SubscriptionData {
            class_filter_mode: false,
            code_set: tags.iter().map(|tag| hash_code(tag)).collect(),
            expression_type: Some(SubscriptionData::TAG.to_owned()),
            sub_string: self.expression.clone(),
            sub_version: self.version,
            tags_set: tags.iter().cloned().collect(),
            topic: self.topic.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_form_has_tags_and_their_hashes() {
        let all = of("g", &[Subscription::new("t", " TagA || TagB ")], false).unwrap();
        let wire = all[0].to_wire();
        assert_eq!(wire.sub_string, "TagA || TagB");
        assert_eq!(wire.tags_set, ["TagA".to_owned(), "TagB".to_owned()].into());
        assert_eq!(wire.code_set, [2_598_919, 2_598_920].into());
        let everything = of("g", &[Subscription::new("t", "")], false).unwrap()[0].to_wire();
        assert_eq!((everything.sub_string.as_str(), everything.tags_set.len()), ("*", 0));
    }

    #[test]
    fn the_retry_topic_is_added_only_when_wanted() {
        let topics = |retry| -> Vec<String> {
            let all = of("g", &[Subscription::new("t", "*")], retry).unwrap();
            all.into_iter().map(|one| one.topic).collect()
        };
        assert_eq!(topics(false), ["t"]);
        assert_eq!(topics(true), ["t", "%RETRY%g"]);
    }

    #[test]
    fn what_is_no_tag_list_is_refused_by_name() {
        let error = of("g", &[Subscription::new("t", "UA|AA")], false).unwrap_err();
        assert!(
            matches!(error, ClientError::InvalidExpression(_)) && error.hint().unwrap().contains("UA || AA")
        );
        assert!(of("g", &[], false).is_err());
        assert!(of("g", &[Subscription::new("t", "*"), Subscription::new("t", "a")], false).is_err());
        assert!(of("g", &[Subscription::new("a/b", "*")], false).is_err());
    }
}

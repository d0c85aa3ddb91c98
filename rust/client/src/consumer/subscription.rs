//! The topics of a consumer, and the messages it wants from each.

use rocketpy_env::now_ms;
use rocketpy_filter::{SqlFilter, TagFilter, hash_code};
use rocketpy_model::{name, system};
use rocketpy_protocol::body::SubscriptionData;
use rocketpy_protocol::code::response;
use tracing::debug;

use crate::client::Client;
use crate::config::{Subscription, Wanted};
use crate::error::{ClientError, Grant};
use crate::route::TopicRoute;
use crate::{outcome, wire};

/// How much of a broken expression an error shows.
const SHOWN_CHARACTERS: usize = 400;
/// Maximum number of topics that the hint of a denial names.
const MAX_NAMED: usize = 3;

/// One topic of a consumer.
#[derive(Debug)]
pub(crate) struct TopicSubscription {
    pub(crate) topic: String,
    /// As the user wrote it; `*` for everything.
    pub(crate) expression: String,
    /// `TAG` or `SQL92`.
    pub(crate) expression_type: &'static str,
    /// The tags; everything where the broker evaluates SQL.
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
    for Subscription { topic, wanted } in subscriptions {
        if all.iter().any(|known| known.topic == *topic) {
            return Err(illegal(format!("a topic is given twice: {topic}")));
        }
        all.push(one(topic, wanted)?);
    }
    let retry = system::retry_topic(group);
    if retry_topic && all.iter().all(|known| known.topic != retry) {
        all.push(TopicSubscription {
            is_retry: true,
            ..one(&retry, &Wanted::Tags(TagFilter::EVERYTHING.into()))?
        });
    }
    Ok(all)
}

fn one(topic: &str, wanted: &Wanted) -> Result<TopicSubscription, ClientError> {
    name::check_topic(topic)
        .map_err(|error| ClientError::InvalidTopic { topic: topic.to_owned(), reason: error.to_string() })?;
    let (expression_type, (filter, expression)) = match wanted {
        Wanted::Tags(tags) => (SubscriptionData::TAG, tags.filter()?),
        Wanted::Sql(text) => (SubscriptionData::SQL92, sql(text)?),
    };
    let (topic, version) = (topic.to_owned(), now_ms());
    Ok(TopicSubscription { topic, expression, expression_type, filter, is_retry: false, version })
}

fn sql(text: &str) -> Result<(TagFilter, String), ClientError> {
    if let Err(reason) = SqlFilter::parse(text) {
        let expression = match text.char_indices().nth(SHOWN_CHARACTERS) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text.to_owned(),
        };
        return Err(ClientError::InvalidSql { expression, reason });
    }
    Ok((TagFilter::parse(TagFilter::EVERYTHING), text.to_owned()))
}

/// Asks the brokers of a topic whether they filter by an SQL92 expression.
///
/// A broker that cannot be reached is not asked: what it refuses, a pull tells.
///
/// # Errors
/// [`ClientError::NoSqlFilter`], [`ClientError::Refused`].
///
/// # Source
/// docs/reference/client.md 7.2, step 11.
pub(super) async fn check_at_brokers(
    client: &Client,
    group: &str,
    subscription: &TopicSubscription,
    route: &TopicRoute,
) -> Result<(), ClientError> {
    for (_, address) in route.addresses().filter(|_| subscription.is_sql()) {
        let request = wire::check_subscription(client.client_id(), group, subscription.to_wire());
        match client.api().call_ok(address, "filter check", request).await {
            // A broker from before the request: its pulls say so.
            Err(error) if error.is_refused_with(response::REQUEST_CODE_NOT_SUPPORTED) => {}
            Err(error @ ClientError::Refused { .. }) => return Err(outcome::of_sql(error)),
            Err(error) => debug!(address, %error, "cannot check whether the broker filters by SQL92"),
            Ok(_) => {}
        }
    }
    Ok(())
}

/// What the user of a member has to be allowed.
pub(super) fn needs(group: &str, subscriptions: &[TopicSubscription]) -> Vec<Grant> {
    assert!(!subscriptions.is_empty(), "a member has a subscription");
    let topics = subscriptions.iter().filter(|one| !one.is_retry).take(MAX_NAMED);
    topics.map(|one| Grant::subscribe(&one.topic)).chain([Grant::join(group)]).collect()
}

impl TopicSubscription {
    /// Whether the broker evaluates an expression over properties.
    pub(crate) fn is_sql(&self) -> bool {
        self.expression_type == SubscriptionData::SQL92
    }

    /// The subscription as heartbeats carry it.
    pub(crate) fn to_wire(&self) -> SubscriptionData {
        let tags = self.filter.names();
        SubscriptionData {
            class_filter_mode: false,
            code_set: tags.iter().map(|tag| hash_code(tag)).collect(),
            expression_type: Some(self.expression_type.to_owned()),
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
    fn an_sql_expression_goes_to_the_broker_as_it_is_written() {
        let wire = of("g", &[Subscription::sql("t", "a > 3 AND b IS NOT NULL")], false).unwrap()[0].to_wire();
        assert_eq!(wire.expression_type.as_deref(), Some("SQL92"));
        assert_eq!((&*wire.sub_string, wire.tags_set.len()), ("a > 3 AND b IS NOT NULL", 0));
    }

    #[test]
    fn an_error_of_an_sql_expression_names_it_and_the_place() {
        let error =
            of("g", &[Subscription::sql("t", "a > 3 AND b LIKE 'x'")], false).unwrap_err().to_string();
        assert!(error.contains("at character 13") && error.ends_with("a > 3 AND b LIKE 'x'"), "{error}");
        let long = "a = 1 AND ".repeat(1000);
        let error = of("g", &[Subscription::sql("t", long)], false).unwrap_err().to_string();
        assert!(error.contains("at character 1000") && error.len() < 600, "{error}");
    }

    #[test]
    fn what_is_no_tag_list_is_refused_by_name() {
        let error = of("g", &[Subscription::new("t", "UA|AA")], false).unwrap_err();
        assert!(
            matches!(error, ClientError::InvalidExpression { .. })
                && error.hint().unwrap().contains("UA || AA")
        );
        assert!(of("g", &[], false).is_err());
        assert!(of("g", &[Subscription::new("t", "*"), Subscription::new("t", "a")], false).is_err());
        assert!(of("g", &[Subscription::new("a/b", "*")], false).is_err());
    }
}

//! Subscriptions of one member of a consumer group: all members must have the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use rocketpy_filter::TagFilter;
use rocketpy_model::system;
use rocketpy_protocol::body::{ConsumerData, SubscriptionData};

/// Tags by topic. The group's retry topic is left out: push consumers read it and pull consumers do not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wants(Arc<BTreeMap<String, String>>);

impl Wants {
    pub(crate) fn of(data: &ConsumerData) -> Self {
        let retry = system::retry_topic(&data.group_name);
        let subscriptions = data.subscription_data_set.iter().filter(|one| one.topic != retry);
        Self(Arc::new(subscriptions.map(|one| (one.topic.clone(), tags(one))).collect()))
    }

    /// Whether two members with these subscriptions miss messages. A member that names no topic chooses its queues itself.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        !Arc::ptr_eq(&self.0, &other.0) && !self.0.is_empty() && !other.0.is_empty() && self.0 != other.0
    }

    /// Tags by topic.
    pub(crate) fn by_topic(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

/// The expression in one form, whatever the order of its tags.
fn tags(data: &SubscriptionData) -> String {
    if !data.is_tag_type() {
        return data.sub_string.trim().to_owned();
    }
    match TagFilter::parse(&data.sub_string) {
        TagFilter::All => TagFilter::EVERYTHING.to_owned(),
        TagFilter::Tags { names, .. } => {
            let sorted: BTreeSet<&str> = names.iter().map(String::as_str).collect();
            sorted.into_iter().collect::<Vec<_>>().join(" || ")
        }
    }
}

/// `orders: TagA || TagB; payments: *`.
impl fmt::Display for Wants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (topic, tags)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{topic}: {tags}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(subscriptions: &[(&str, &str)]) -> Wants {
        let one = |(topic, tags): &(&str, &str)| SubscriptionData {
            topic: (*topic).to_owned(),
            sub_string: (*tags).to_owned(),
            ..SubscriptionData::default()
        };
        Wants::of(&ConsumerData {
            group_name: "g".to_owned(),
            subscription_data_set: subscriptions.iter().map(one).collect(),
            ..ConsumerData::default()
        })
    }

    #[test]
    fn order_spaces_and_the_retry_topic_make_no_difference() {
        let first = wants(&[("t", "A||B"), ("u", "*")]);
        assert!(!first.differs(&wants(&[("u", ""), ("t", " B || A"), ("%RETRY%g", "*")])));
        assert_eq!(first.to_string(), "t: A || B; u: *");
    }

    #[test]
    fn other_topics_and_other_tags_differ_and_no_topic_at_all_does_not() {
        let first = wants(&[("t", "A")]);
        for other in [&[("t", "B")][..], &[("u", "A")], &[("t", "A"), ("u", "A")], &[("t", "*")]] {
            assert!(first.differs(&wants(other)), "{other:?}");
        }
        assert!(!first.differs(&wants(&[])));
    }
}

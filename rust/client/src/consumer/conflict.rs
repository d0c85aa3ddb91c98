//! The consumers of this process by group: members of one group with other subscriptions take messages from each other.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::member::Member;
use super::subscription::TopicSubscription;
use crate::error::ClientError;
use crate::per_process::PerProcess;

/// The live members of each group.
static MEMBERS: PerProcess<Mutex<HashMap<Key, Vec<Weak<Member>>>>> = PerProcess::new();

/// A group of a cluster.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    /// Sorted.
    name_servers: Vec<String>,
    group: Arc<str>,
}

/// Adds a member to its group.
///
/// # Errors
/// [`ClientError::OtherSubscriptions`] when a member with other topics or tags is there, unless it allows that.
pub(super) fn join(member: &Arc<Member>) -> Result<(), ClientError> {
    let mut name_servers = member.client.api().name_servers().to_vec();
    name_servers.sort();
    let key = Key { name_servers, group: member.group.clone() };
    let mut groups = MEMBERS.get().lock();
    groups.retain(|_, members| {
        members.retain(|member| live(member).is_some());
        !members.is_empty()
    });
    let members = groups.entry(key).or_default();
    let differs = |other: &Arc<Member>| wanted(&other.subscriptions) != wanted(&member.subscriptions);
    let other = members.iter().filter_map(live).find(differs);
    if let Some(other) = other
        && !member.config.allow_other_subscriptions
    {
        return Err(ClientError::OtherSubscriptions {
            group: member.group.to_string(),
            client_id: other.client.client_id().to_owned(),
            subscriptions: text(&other.subscriptions),
        });
    }
    members.push(Arc::downgrade(member));
    Ok(())
}

fn live(member: &Weak<Member>) -> Option<Arc<Member>> {
    member.upgrade().filter(|member| !member.is_closed())
}

/// What is wanted by topic. Without the retry topic, which push consumers read and others may not.
fn wanted(subscriptions: &[TopicSubscription]) -> BTreeMap<&str, Wanted<'_>> {
    fn of(one: &TopicSubscription) -> Wanted<'_> {
        if one.is_sql() {
            return Wanted::Sql(&one.expression);
        }
        Wanted::Tags(one.filter.names().iter().collect())
    }
    own(subscriptions).map(|one| (one.topic.as_str(), of(one))).collect()
}

#[derive(PartialEq, Eq)]
enum Wanted<'a> {
    /// None for all messages.
    Tags(BTreeSet<&'a String>),
    Sql(&'a str),
}

fn text(subscriptions: &[TopicSubscription]) -> String {
    let of = |one: &TopicSubscription| format!("{}: {}", one.topic, one.expression);
    own(subscriptions).map(of).collect::<Vec<_>>().join("; ")
}

fn own(subscriptions: &[TopicSubscription]) -> impl Iterator<Item = &TopicSubscription> {
    subscriptions.iter().filter(|one| !one.is_retry)
}

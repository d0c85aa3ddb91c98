//! The live clients, by group.

mod counts;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use rocketpy_env::now_ms;
use rocketpy_filter::{MessageFilter, SqlFilter};
use rocketpy_protocol::Language;
use rocketpy_protocol::body::{ConsumeFromWhere, ConsumeType, ConsumerData, MessageModel, SubscriptionData};
use rocketpy_remoting::{Connection, MemoryKind, Reservation};
use tokio::sync::Notify;

use crate::expression::ExpressionKind;
use crate::refusal::{Refusal, check_range};
use crate::table::wants::Wants;

/// Maximum number of groups of one connection.
pub(crate) const MAX_GROUPS: usize = 1024;
/// Memory of an entry without its texts: its slots in the maps, and the member.
const ENTRY_BYTES: usize = 512;
/// Memory of a short text without its characters.
const TEXT_BYTES: usize = 48;

/// The live clients, by the groups that they belong to.
#[doc(alias("ConsumerManager", "ProducerManager"))]
#[derive(Debug, Default)]
pub(crate) struct ClientTable {
    state: RwLock<State>,
    /// Rung when a producer enters or leaves a group.
    producers_changed: Arc<Notify>,
    /// How often it was rung.
    producer_changes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    consumers: HashMap<String, ConsumerGroup>,
    producers: HashMap<String, HashMap<u64, Member>>,
    /// The connections of each client that is in a producer group, the youngest last.
    producer_connections: HashMap<Arc<str>, BTreeMap<u64, ProducerConnection>>,
    /// The groups of each connection: its end must not walk over all groups.
    by_connection: HashMap<u64, Groups>,
}

/// A connection of a client that is in a producer group.
#[derive(Debug)]
struct ProducerConnection {
    connection: Arc<Connection>,
    user: Option<Arc<str>>,
}

/// The groups of one connection, each with the memory that it takes.
#[derive(Debug, Default)]
struct Groups {
    consumer: HashMap<String, Reservation>,
    producer: HashMap<String, Reservation>,
    /// The client, while it is in a producer group.
    producer_id: Option<Arc<str>>,
}

#[derive(Clone, Copy)]
enum Side {
    Consumer,
    Producer,
}

impl Groups {
    /// Enters a group, or renews its memory when that changed.
    ///
    /// # Errors
    /// There are too many groups, or there is no memory for it. What was known of the group stays.
    fn enter(
        &mut self,
        side: Side,
        group: &str,
        bytes: usize,
        connection: &Connection,
    ) -> Result<(), Refusal> {
        let groups = self.consumer.len() + self.producer.len();
        let of_side = match side {
            Side::Consumer => &mut self.consumer,
            Side::Producer => &mut self.producer,
        };
        match of_side.get(group) {
            Some(known) if known.bytes() == bytes => return Ok(()),
            None => check_range("the number of groups of a connection", 0..=MAX_GROUPS, groups + 1)?,
            Some(_) => {}
        }
        let memory = connection.reserve(MemoryKind::Tables, bytes)?;
        of_side.insert(group.to_owned(), memory);
        let groups = self.consumer.len() + self.producer.len();
        assert!(groups <= MAX_GROUPS, "the groups of a connection have a bound: {groups}");
        Ok(())
    }
}

/// Membership of a client in a group.
#[derive(Debug, Clone)]
#[doc(alias = "ClientChannelInfo")]
pub(crate) struct Member {
    pub(crate) connection: Arc<Connection>,
    pub(crate) client_id: Arc<str>,
    /// User of its last heartbeat, while users are on.
    pub(crate) user: Option<Arc<str>>,
    pub(crate) language: Language,
    pub(crate) version: i32,
    /// The last creation of a topic or queue when its heartbeat came.
    last_creation: u64,
    /// Its first heartbeat on this connection.
    entered_at: Instant,
    heard_at: Instant,
}

/// Content of the last heartbeat of a consumer group.
#[derive(Debug, Default)]
#[doc(alias = "ConsumerGroupInfo")]
struct ConsumerGroup {
    members: HashMap<u64, Consumer>,
    subscriptions: BTreeMap<String, Arc<Subscription>>,
    /// For each topic of them, the last creation of a topic or queue when the live members began to subscribe to it.
    subscribed_since: BTreeMap<String, u64>,
    consume_type: ConsumeType,
    message_model: MessageModel,
    consume_from_where: ConsumeFromWhere,
}

/// A member of a consumer group.
#[derive(Debug, Clone)]
pub(crate) struct Consumer {
    pub(crate) member: Member,
    pub(crate) wants: Wants,
}

/// Changes of a heartbeat in a consumer group.
#[derive(Debug)]
pub(crate) struct Entered {
    /// The other members must be notified.
    pub(crate) is_change: bool,
    /// The member came, or wants something else than before.
    pub(crate) is_news: bool,
    /// What it wants.
    pub(crate) wants: Wants,
    /// A live member that wants something else, or has the same client id.
    pub(crate) other: Option<Consumer>,
}

/// A subscription with its filter, parsed once.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) data: SubscriptionData,
    /// `None` when the expression is broken, or of a type that is not served.
    pub(crate) filter: Option<Arc<MessageFilter>>,
}

/// State of a consumer group, for tools.
#[derive(Debug)]
pub(crate) struct GroupView {
    pub(crate) members: Vec<Consumer>,
    pub(crate) subscriptions: BTreeMap<String, Arc<Subscription>>,
    pub(crate) consume_type: ConsumeType,
    pub(crate) message_model: MessageModel,
    pub(crate) consume_from_where: ConsumeFromWhere,
}

impl Subscription {
    fn parse(data: &SubscriptionData) -> Arc<Self> {
        let kind = ExpressionKind::of(data.expression_type.as_deref());
        let filter = kind.and_then(|kind| kind.parse(&data.sub_string)).ok().map(Arc::new);
        Arc::new(Self { data: data.clone(), filter })
    }
}

/// Memory of the subscriptions of a member. It counts for each member, though the group keeps them once.
fn memory_of(data: &ConsumerData) -> usize {
    let text = |text: &String| text.len() + TEXT_BYTES;
    let of_subscription = |it: &SubscriptionData| {
        // The filter keeps every tag once more, and what the member wants is kept apart.
        let tags = it.sub_string.split("||").count();
        let sets = it.code_set.len() * TEXT_BYTES + it.tags_set.iter().map(text).sum::<usize>();
        let sql = if it.is_tag_type() { 0 } else { SqlFilter::HEAP_BYTES_PER_BYTE * it.sub_string.len() };
        ENTRY_BYTES + 3 * it.topic.len() + 3 * it.sub_string.len() + tags * 2 * TEXT_BYTES + sets + sql
    };
    ENTRY_BYTES
        + 2 * data.group_name.len()
        + data.subscription_data_set.iter().map(of_subscription).sum::<usize>()
}

impl Member {
    pub(crate) fn new(
        connection: &Arc<Connection>,
        (client_id, user): (Arc<str>, Option<Arc<str>>),
        language: Language,
        version: i32,
        last_creation: u64,
    ) -> Self {
        let (now, connection) = (Instant::now(), connection.clone());
        let (entered_at, heard_at) = (now, now);
        Self { connection, client_id, user, language, version, last_creation, entered_at, heard_at }
    }

    /// When its last heartbeat came, in Unix milliseconds.
    pub(crate) fn heard_at_ms(&self) -> i64 {
        now_ms().saturating_sub(i64::try_from(self.heard_at.elapsed().as_millis()).unwrap_or(i64::MAX))
    }
}

impl ClientTable {
    /// Adds a producer to its group.
    ///
    /// # Errors
    /// A live connection of another user has this client id, the connection has too many groups, or there is no memory for one more.
    pub(crate) fn enter_producer(&self, group: &str, member: Member) -> Result<(), Refusal> {
        let mut state = self.state.write();
        state.check_user(&member)?;
        let id = member.connection.id();
        let groups = state.by_connection.entry(id).or_default();
        let user_bytes = member.user.as_ref().map_or(0, |user| user.len());
        let bytes = ENTRY_BYTES + group.len() + 2 * member.client_id.len() + user_bytes;
        groups.enter(Side::Producer, group, bytes, &member.connection)?;
        let before = groups.producer_id.replace(member.client_id.clone());
        if let Some(before) = before.filter(|before| *before != member.client_id) {
            state.remove_producer_connection(&before, id);
        }
        let connections = state.producer_connections.entry(member.client_id.clone()).or_default();
        let (connection, user) = (member.connection.clone(), member.user.clone());
        connections.insert(id, ProducerConnection { connection, user });
        let before = state.producers.entry(group.to_owned()).or_default().insert(id, member);
        drop(state);
        if before.is_none() {
            self.producers_have_changed();
        }
        Ok(())
    }

    /// Adds a consumer to its group, or renews it.
    ///
    /// # Errors
    /// The connection has too many groups, or there is no memory for what it subscribes to.
    pub(crate) fn enter_consumer(&self, data: &ConsumerData, member: Member) -> Result<Entered, Refusal> {
        // Nobody waits for the lock while filters are parsed.
        let mut parsed = self.parse_newer(data);
        let wants = Wants::of(data);
        let bytes = memory_of(data);
        let mut state = self.state.write();
        let id = member.connection.id();
        let groups = state.by_connection.entry(id).or_default();
        groups.enter(Side::Consumer, &data.group_name, bytes, &member.connection)?;
        let group = state.consumers.entry(data.group_name.clone()).or_default();
        group.consume_type = data.consume_type;
        group.message_model = data.message_model;
        group.consume_from_where = data.consume_from_where;
        let wants = group.known(wants);
        let last_creation = member.last_creation;
        let mut entered = Consumer { member, wants: wants.clone() };
        if let Some(known) = group.members.get(&id) {
            entered.member.entered_at = known.member.entered_at;
        }
        let other = group.other_than(&entered).cloned();
        let before = group.members.insert(id, entered);
        let is_changed = group.take_subscriptions(&data.subscription_data_set, &mut parsed, last_creation);
        Ok(Entered {
            is_change: before.is_none() || is_changed,
            is_news: before.is_none_or(|before| before.wants != wants),
            wants,
            other,
        })
    }

    /// The subscriptions that the table does not have yet, parsed, by topic.
    fn parse_newer(&self, data: &ConsumerData) -> HashMap<String, Arc<Subscription>> {
        let newer: Vec<&SubscriptionData> = {
            let state = self.state.read();
            let group = state.consumers.get(&data.group_name);
            let is_newer = |it: &&SubscriptionData| group.is_none_or(|group| group.is_newer(it));
            data.subscription_data_set.iter().filter(is_newer).collect()
        };
        newer.into_iter().map(|data| (data.topic.clone(), Subscription::parse(data))).collect()
    }

    /// Removes a client from one group of each kind. True when the consumer group's members must be notified.
    pub(crate) fn leave(
        &self,
        connection_id: u64,
        producer_group: Option<&str>,
        consumer_group: Option<&str>,
    ) -> bool {
        let mut state = self.state.write();
        let mut had_entered = false;
        if let Some(groups) = state.by_connection.get_mut(&connection_id) {
            had_entered = producer_group.is_some_and(|group| groups.producer.remove(group).is_some());
            consumer_group.map(|group| groups.consumer.remove(group));
            if groups.producer.is_empty()
                && let Some(client_id) = groups.producer_id.take()
            {
                state.remove_producer_connection(&client_id, connection_id);
            }
        }
        let has_left = producer_group.is_some_and(|group| state.remove_producer(group, connection_id));
        assert_eq!(
            has_left, had_entered,
            "a producer is a member of the groups that it entered: {producer_group:?}"
        );
        let is_change = consumer_group.is_some_and(|group| state.remove_consumer(group, connection_id));
        drop(state);
        if has_left {
            self.producers_have_changed();
        }
        is_change
    }

    fn producers_have_changed(&self) {
        self.producer_changes.fetch_add(1, Ordering::Release);
        self.producers_changed.notify_one();
    }

    /// Rung when a producer enters or leaves a group. One service waits for it.
    pub(crate) fn producers_changed(&self) -> &Arc<Notify> {
        &self.producers_changed
    }

    /// How often producers entered or left a group.
    pub(crate) fn producer_changes(&self) -> u64 {
        self.producer_changes.load(Ordering::Acquire)
    }

    /// Whether the connection is open and in a producer group.
    pub(crate) fn is_producer(&self, connection_id: u64) -> bool {
        let state = self.state.read();
        state.by_connection.get(&connection_id).is_some_and(|groups| !groups.producer.is_empty())
    }

    /// Removes a connection from all its groups. Returns the consumer groups whose members must be notified.
    pub(crate) fn disconnected(&self, connection_id: u64) -> Vec<String> {
        let mut state = self.state.write();
        let Some(groups) = state.by_connection.remove(&connection_id) else { return Vec::new() };
        for group in groups.producer.keys() {
            let is_member = state.remove_producer(group, connection_id);
            assert!(is_member, "a producer is a member of each group that it entered: {group}");
        }
        if let Some(client_id) = &groups.producer_id {
            state.remove_producer_connection(client_id, connection_id);
        }
        let mut left = Vec::new();
        for group in groups.consumer.into_keys() {
            let members = state.consumers.get(&group).map(|group| &group.members);
            let is_member = members.is_some_and(|members| members.contains_key(&connection_id));
            assert!(is_member, "a consumer is a member of each group that it entered: {group}");
            if state.remove_consumer(&group, connection_id) {
                left.push(group);
            }
        }
        drop(state);
        if !groups.producer.is_empty() {
            self.producers_have_changed();
        }
        left
    }

    /// Connections that have not sent a heartbeat for `expiry`.
    pub(crate) fn silent(&self, expiry: Duration) -> Vec<Arc<Connection>> {
        let state = self.state.read();
        let consumers = state.consumers.values().flat_map(|group| group.members.values());
        let consumers = consumers.map(|consumer| &consumer.member);
        let producers = state.producers.values().flat_map(HashMap::values);
        let silent = consumers.chain(producers).filter(|member| member.heard_at.elapsed() > expiry);
        let by_id: HashMap<u64, Arc<Connection>> =
            silent.map(|member| (member.connection.id(), member.connection.clone())).collect();
        by_id.into_values().collect()
    }

    /// The connections of a consumer group, each once.
    pub(crate) fn connections(&self, group: &str) -> Vec<Arc<Connection>> {
        let state = self.state.read();
        let members = state.consumers.get(group).into_iter().flat_map(|group| group.members.values());
        members.map(|consumer| consumer.member.connection.clone()).collect()
    }

    /// Client ids of a consumer group's members, each once.
    pub(crate) fn client_ids(&self, group: &str) -> Vec<Arc<str>> {
        let state = self.state.read();
        let members = state.consumers.get(group).into_iter().flat_map(|group| group.members.values());
        let mut ids: Vec<Arc<str>> = members.map(|consumer| consumer.member.client_id.clone()).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The last creation of a topic or queue when the live members of the group began to subscribe to a topic; `None` for others than members.
    pub(crate) fn subscribed_since(&self, connection_id: u64, group: &str, topic: &str) -> Option<u64> {
        let state = self.state.read();
        let group = state.consumers.get(group).filter(|group| group.members.contains_key(&connection_id))?;
        group.subscribed_since.get(topic).copied()
    }

    /// Whether the connection is one of a live member of the group.
    pub(crate) fn is_member(&self, connection_id: u64, group: &str) -> bool {
        let state = self.state.read();
        state.consumers.get(group).is_some_and(|group| group.members.contains_key(&connection_id))
    }

    pub(crate) fn is_broadcasting(&self, group: &str) -> bool {
        self.state
            .read()
            .consumers
            .get(group)
            .is_some_and(|group| group.message_model == MessageModel::Broadcasting)
    }

    /// Whether the group has live push consumers that share its messages. They choose where they begin, and commit it only later. Pull
    /// consumers commit their start themselves, or keep their offsets elsewhere.
    pub(crate) fn is_pushed_to(&self, group: &str) -> bool {
        self.state.read().consumers.get(group).is_some_and(|group| {
            group.consume_type == ConsumeType::ConsumePassively
                && group.message_model == MessageModel::Clustering
        })
    }

    /// The group's subscription to a topic, if it has one; `None` when the group has no live member.
    pub(crate) fn for_pull(&self, group: &str, topic: &str) -> Option<Option<Arc<Subscription>>> {
        let state = self.state.read();
        Some(state.consumers.get(group)?.subscriptions.get(topic).cloned())
    }

    /// A consumer group with live members, as tools ask for it.
    pub(crate) fn consumer_group(&self, group: &str) -> Option<GroupView> {
        let state = self.state.read();
        let group = state.consumers.get(group)?;
        assert!(!group.members.is_empty(), "a group in the table has a member");
        Some(GroupView {
            members: group.members.values().cloned().collect(),
            subscriptions: group.subscriptions.clone(),
            consume_type: group.consume_type,
            message_model: group.message_model,
            consume_from_where: group.consume_from_where,
        })
    }

    /// All live producers, by group.
    pub(crate) fn producers(&self) -> Vec<(String, Vec<Member>)> {
        let state = self.state.read();
        let of_group = |(group, members): (&String, &HashMap<u64, Member>)| {
            (group.clone(), members.values().cloned().collect())
        };
        state.producers.iter().map(of_group).collect()
    }

    pub(crate) fn producer_group(&self, group: &str) -> Vec<Member> {
        let state = self.state.read();
        let Some(members) = state.producers.get(group) else { return Vec::new() };
        assert!(!members.is_empty(), "a producer group in the table has a member: {group}");
        members.values().cloned().collect()
    }

    /// The youngest open connection of a client that is in a producer group, and its user.
    #[doc(alias = "findChannel")]
    pub(crate) fn producer_connection(&self, client_id: &str) -> Option<(Arc<Connection>, Option<Arc<str>>)> {
        let state = self.state.read();
        let connections = state.producer_connections.get(client_id)?;
        assert!(!connections.is_empty(), "a producer in the table has a connection: {client_id}");
        let youngest = connections.values().rev().find(|named| named.connection.is_open())?;
        Some((youngest.connection.clone(), youngest.user.clone()))
    }

    /// Groups whose live members subscribe to the topic.
    pub(crate) fn groups_subscribed_to(&self, topic: &str) -> Vec<String> {
        let state = self.state.read();
        let groups = state.consumers.iter().filter(|(_, group)| group.subscriptions.contains_key(topic));
        groups.map(|(name, _)| name.clone()).collect()
    }

    /// Topics that the group's live members subscribe to; `None` when there are none.
    pub(crate) fn subscribed_topics(&self, group: &str) -> Option<Vec<String>> {
        let state = self.state.read();
        state.consumers.get(group).map(|group| group.subscriptions.keys().cloned().collect())
    }
}

impl State {
    /// Removes a member. True when it was there.
    fn remove_producer(&mut self, group: &str, connection_id: u64) -> bool {
        let Some(members) = self.producers.get_mut(group) else { return false };
        let is_member = members.remove(&connection_id).is_some();
        if members.is_empty() {
            self.producers.remove(group);
        }
        is_member
    }

    /// Replies are pushed to the youngest connection of a client id: another user must not take it over.
    ///
    /// # Errors
    /// A live connection of another user has the client id.
    fn check_user(&self, member: &Member) -> Result<(), Refusal> {
        let id = member.connection.id();
        let is_of_another = |(other, named): (&u64, &ProducerConnection)| {
            *other != id && named.user != member.user && named.connection.is_open()
        };
        match self.producer_connections.get(&member.client_id) {
            Some(connections) if connections.iter().any(is_of_another) => {
                Err(Refusal::ClientIdTaken { client_id: member.client_id.to_string() })
            }
            _ => Ok(()),
        }
    }

    fn remove_producer_connection(&mut self, client_id: &str, connection_id: u64) {
        let connections = self.producer_connections.get_mut(client_id);
        let removed = connections.and_then(|connections| {
            let removed = connections.remove(&connection_id)?;
            Some((removed, connections.is_empty()))
        });
        assert!(removed.is_some(), "a producer's connection is found by its client: {connection_id}");
        if removed.is_some_and(|(_, was_last)| was_last) {
            self.producer_connections.remove(client_id);
        }
    }

    /// Removes a member. True when it was there and others stay.
    fn remove_consumer(&mut self, name: &str, connection_id: u64) -> bool {
        let Some(group) = self.consumers.get_mut(name) else { return false };
        let left = group.members.remove(&connection_id).is_some();
        if group.members.is_empty() {
            self.consumers.remove(name);
            return false;
        }
        left
    }
}

impl ConsumerGroup {
    /// The same wants as another member has them, so that members that want the same share them.
    fn known(&self, wants: Wants) -> Wants {
        self.members.values().find(|known| known.wants == wants).map_or(wants, |known| known.wants.clone())
    }

    /// A member that wants something else, or another client with the same id; always the same one of several. Each member of a
    /// broadcasting group gets everything that it wants.
    fn other_than(&self, consumer: &Consumer) -> Option<&Consumer> {
        if self.message_model == MessageModel::Broadcasting {
            return None;
        }
        let member = &consumer.member;
        let is_other = |other: &&Consumer| {
            if other.member.client_id != member.client_id {
                return other.wants.differs(&consumer.wants);
            }
            // A client that has connected again is not heard any more on its earlier connection.
            other.member.connection.id() != member.connection.id()
                && other.member.heard_at > member.entered_at
        };
        let others = self.members.values().filter(is_other);
        // One who misses messages comes before one who gets them twice.
        let is_same = |other: &Consumer| other.member.client_id == member.client_id;
        others.min_by(|a, b| (is_same(a), &a.member.client_id).cmp(&(is_same(b), &b.member.client_id)))
    }

    fn is_newer(&self, data: &SubscriptionData) -> bool {
        self.subscriptions.get(&data.topic).is_none_or(|known| data.sub_version > known.data.sub_version)
    }

    /// Takes over newer subscriptions and drops those that are gone. True when something changed.
    ///
    /// Takes them out of `parsed`; one that is not there was removed from the group a moment ago, and is parsed now.
    fn take_subscriptions(
        &mut self,
        latest: &[SubscriptionData],
        parsed: &mut HashMap<String, Arc<Subscription>>,
        last_creation: u64,
    ) -> bool {
        let mut changed = false;
        for data in latest {
            self.subscribed_since.entry(data.topic.clone()).or_insert(last_creation);
            if self.is_newer(data) {
                let known = self.subscriptions.get(&data.topic);
                changed |= known.is_none_or(|known| {
                    known.data.sub_string != data.sub_string
                        || known.data.expression_type != data.expression_type
                });
                let subscription = match parsed.remove(&data.topic) {
                    Some(parsed) if parsed.data.sub_version == data.sub_version => parsed,
                    _ => Subscription::parse(data),
                };
                self.subscriptions.insert(data.topic.clone(), subscription);
            }
        }
        let before = self.subscriptions.len();
        let wanted: HashSet<&str> = latest.iter().map(|data| data.topic.as_str()).collect();
        self.subscriptions.retain(|topic, _| wanted.contains(topic.as_str()));
        self.subscribed_since.retain(|topic, _| wanted.contains(topic.as_str()));
        let (kept, named) = (self.subscriptions.len(), wanted.len());
        assert_eq!(kept, named, "a group subscribes to the topics of its last heartbeat");
        assert_eq!(self.subscribed_since.len(), kept, "the start of each subscription of a group is known");
        changed || self.subscriptions.len() != before
    }
}

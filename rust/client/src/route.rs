//! Routes: the queues of a topic, their brokers and addresses.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use rocketpy_model::{MessageQueue, system};
use rocketpy_protocol::body::{BrokerData, QueueData, TopicRouteData};
use tokio::sync::MutexGuard;

/// A route made from the template topic is fetched again after this time: a broker may have created the topic by then.
const TEMPLATE_LIFE: Duration = Duration::from_secs(1);
/// A route that was not used during this many refresh rounds is forgotten.
const IDLE_ROUNDS: u32 = 10;
/// Maximum number of queues to send to, and of queues to read, in a route: those of 16 brokers with as many queues as RocketPy's brokers
/// allow. A few bytes of a route stand for any number of queues, and each takes 40 bytes here.
const MAX_QUEUES: u64 = 262_144;
/// Maximum number of broker names that are remembered after their routes.
const MAX_KNOWN_BROKERS: usize = 1024;

/// A route has too many queues.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the route has {queues} queues, at most {} are accepted", MAX_QUEUES)]
pub(crate) struct TooManyQueues {
    queues: u64,
}

/// The route of one topic, and the queue lists that follow from it.
#[derive(Debug)]
#[doc(alias = "TopicRouteData")]
#[doc(alias = "TopicPublishInfo")]
pub(crate) struct TopicRoute {
    pub(crate) topic: Arc<str>,
    /// Queues to send to, in the order that all clients use.
    pub(crate) publish: Vec<MessageQueue>,
    /// Queues to read, sorted.
    pub(crate) subscribe: Vec<MessageQueue>,
    pub(crate) queue_data: Vec<QueueData>,
    pub(crate) brokers: Vec<BrokerData>,
    /// No broker has the topic yet; this is the route that it would get.
    pub(crate) from_template: bool,
    fetched_at: Instant,
    /// Refresh rounds since the route was last used.
    idle_rounds: AtomicU32,
}

impl TopicRoute {
    /// # Errors
    /// More queues than a client accepts.
    ///
    /// # Source
    /// docs/reference/client.md 3.3.
    pub(crate) fn of(topic: &str, data: &TopicRouteData) -> Result<Self, TooManyQueues> {
        let topic: Arc<str> = topic.into();
        let mut queue_data = data.queue_datas.clone();
        queue_data.sort_by(|a, b| a.broker_name.cmp(&b.broker_name));
        let brokers = data.broker_datas.clone();
        let order = data.order_topic_conf.as_deref().filter(|order| !order.trim().is_empty());
        check_sum(queue_data.iter().map(|queues| queues.read_queues))?;
        check_sum(queue_data.iter().map(|queues| queues.write_queues))?;
        let publish = match order {
            Some(order) => {
                check_sum(ordered_parts(order).map(|(_, queues)| queues))?;
                ordered_queues(&topic, order)
            }
            None => writable_queues(&topic, &queue_data, &brokers),
        };
        let mut subscribe = readable_queues(&topic, &queue_data);
        subscribe.sort();
        Ok(Self {
            topic,
            publish,
            subscribe,
            queue_data,
            brokers,
            from_template: false,
            fetched_at: Instant::now(),
            idle_rounds: AtomicU32::new(0),
        })
    }

    /// Turns the route of the template topic into one of `topic`, with at most `default_queues` queues at each broker.
    pub(crate) fn into_template_for(mut self, topic: &str, default_queues: u32) -> Self {
        for queues in &mut self.queue_data {
            let count = queues.read_queues.min(default_queues);
            (queues.read_queues, queues.write_queues) = (count, count);
        }
        self.topic = topic.into();
        self.publish = writable_queues(&self.topic, &self.queue_data, &self.brokers);
        self.subscribe = Vec::new();
        self.from_template = true;
        self
    }

    /// Whether sends may still use it.
    pub(crate) fn may_publish(&self) -> bool {
        let is_fresh = !self.from_template || self.fetched_at.elapsed() < TEMPLATE_LIFE;
        is_fresh && !self.publish.is_empty()
    }

    /// Whether sends fail only because masters are missing: the topic itself is writable.
    pub(crate) fn lacks_masters(&self) -> bool {
        self.publish.is_empty() && self.queue_data.iter().any(|queues| queues.permission().is_writable())
    }

    fn broker(&self, broker_name: &str) -> Option<&BrokerData> {
        self.brokers.iter().find(|broker| broker.broker_name == broker_name)
    }

    /// Address of a broker's master.
    pub(crate) fn master(&self, broker_name: &str) -> Option<&str> {
        self.broker(broker_name).and_then(BrokerData::master_address)
    }

    /// Addresses of all brokers' masters.
    pub(crate) fn masters(&self) -> impl Iterator<Item = &str> {
        self.brokers.iter().filter_map(BrokerData::master_address)
    }

    /// For reading: the master's address, or that of any slave.
    pub(crate) fn any_address(&self, broker_name: &str) -> Option<&str> {
        let broker = self.broker(broker_name)?;
        broker.master_address().or_else(|| broker.any_address())
    }

    /// For reading: the address of the suggested broker id, or of the master, or any.
    pub(crate) fn reading_address(&self, broker_name: &str, broker_id: u64) -> Option<&str> {
        let suggested = self.broker(broker_name)?.broker_addrs.get(&broker_id).map(String::as_str);
        suggested.or_else(|| self.any_address(broker_name))
    }

    /// Name and one address of every broker, the master's if there is one.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (&str, &str)> {
        self.brokers.iter().filter_map(|broker| {
            let name = broker.broker_name.as_str();
            Some((name, self.any_address(name)?))
        })
    }
}

/// Checks the sum of the queues of all brokers, before any of them is listed.
fn check_sum(queues: impl Iterator<Item = u32>) -> Result<(), TooManyQueues> {
    let queues: u64 = queues.map(u64::from).sum();
    if queues > MAX_QUEUES { Err(TooManyQueues { queues }) } else { Ok(()) }
}

fn queues_of(topic: &Arc<str>, broker_name: &str, count: u32) -> impl Iterator<Item = MessageQueue> + use<> {
    let (topic, broker_name): (_, Arc<str>) = (topic.clone(), broker_name.into());
    (0..count).map(move |queue_id| MessageQueue {
        topic: topic.clone(),
        broker_name: broker_name.clone(),
        queue_id,
    })
}

/// `brokerA:4;brokerB:2`: brokers and their numbers of queues. What is not of this form is left out.
fn ordered_parts(order: &str) -> impl Iterator<Item = (&str, u32)> {
    order.split(';').filter_map(|part| {
        let (broker_name, count) = part.split_once(':')?;
        Some((broker_name, count.trim().parse().ok()?))
    })
}

/// Queues in the order of the text. Permissions and masters are not checked.
fn ordered_queues(topic: &Arc<str>, order: &str) -> Vec<MessageQueue> {
    ordered_parts(order).flat_map(|(broker_name, count)| queues_of(topic, broker_name, count)).collect()
}

fn writable_queues(topic: &Arc<str>, queues: &[QueueData], brokers: &[BrokerData]) -> Vec<MessageQueue> {
    let with_master = brokers.iter().filter(|broker| broker.master_address().is_some());
    let with_master: HashSet<&str> = with_master.map(|broker| broker.broker_name.as_str()).collect();
    queues
        .iter()
        .filter(|queues| {
            queues.permission().is_writable() && with_master.contains(queues.broker_name.as_str())
        })
        .flat_map(|queues| queues_of(topic, &queues.broker_name, queues.write_queues))
        .collect()
}

fn readable_queues(topic: &Arc<str>, queues: &[QueueData]) -> Vec<MessageQueue> {
    queues
        .iter()
        .filter(|queues| queues.permission().is_readable())
        .flat_map(|queues| queues_of(topic, &queues.broker_name, queues.read_queues))
        .collect()
}

/// The routes of all topics in use.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    table: RwLock<HashMap<Arc<str>, Arc<TopicRoute>>>,
    /// Brokers that any route has named: one that is missing now may come back.
    known_brokers: RwLock<HashSet<String>>,
    /// Held while a route is fetched, so that callers that need the same route ask once.
    fetching: tokio::sync::Mutex<()>,
}

impl Routes {
    pub(crate) fn get(&self, topic: &str) -> Option<Arc<TopicRoute>> {
        let route = self.table.read().get(topic).cloned()?;
        route.idle_rounds.store(0, Ordering::Relaxed);
        Some(route)
    }

    pub(crate) fn put(&self, route: TopicRoute) -> Arc<TopicRoute> {
        self.remember_brokers(&route);
        let route = Arc::new(route);
        let mut table = self.table.write();
        if let Some(old) = table.get(&route.topic) {
            route.idle_rounds.store(old.idle_rounds.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        table.insert(route.topic.clone(), route.clone());
        route
    }

    fn remember_brokers(&self, route: &TopicRoute) {
        let names = || route.brokers.iter().map(|broker| &broker.broker_name);
        let is_new = |name: &&String| !self.known_brokers.read().contains(*name);
        if names().any(|name| is_new(&name)) {
            let mut known = self.known_brokers.write();
            let room = MAX_KNOWN_BROKERS.saturating_sub(known.len());
            known.extend(names().take(room).cloned());
            assert!(known.len() <= MAX_KNOWN_BROKERS, "broker names that are remembered have a bound");
        }
    }

    /// Whether any route has named the broker.
    pub(crate) fn knew_broker(&self, broker_name: &str) -> bool {
        self.known_brokers.read().contains(broker_name)
    }

    /// Whether any route has named a broker.
    pub(crate) fn knew_brokers(&self) -> bool {
        !self.known_brokers.read().is_empty()
    }

    pub(crate) fn remove(&self, topic: &str) {
        self.table.write().remove(topic);
    }

    pub(crate) async fn fetching(&self) -> MutexGuard<'_, ()> {
        self.fetching.lock().await
    }

    /// As [`Self::fetching`], unless another caller fetches a route at this moment.
    pub(crate) fn try_fetching(&self) -> Option<MutexGuard<'_, ()>> {
        self.fetching.try_lock().ok()
    }

    /// Begins a refresh round: forgets unused routes and returns the topics to refresh.
    pub(crate) fn begin_round(&self) -> Vec<Arc<str>> {
        let mut table = self.table.write();
        table.retain(|_, route| route.idle_rounds.fetch_add(1, Ordering::Relaxed) < IDLE_ROUNDS);
        table.keys().cloned().collect()
    }

    /// Addresses of all brokers of all routes; only their masters unless `slaves`.
    pub(crate) fn broker_addresses(&self, slaves: bool) -> BTreeSet<String> {
        let table = self.table.read();
        let brokers = table.values().flat_map(|route| &route.brokers);
        let addresses = brokers.flat_map(|broker| &broker.broker_addrs);
        addresses
            .filter(|(id, _)| slaves || **id == system::MASTER_ID)
            .map(|(_, address)| address.clone())
            .collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn queue_data(broker_name: &str, queues: u32, perm: i32) -> QueueData {
        let broker_name = broker_name.to_owned();
        QueueData { broker_name, read_queues: queues, write_queues: queues, perm, ..QueueData::default() }
    }

    fn broker(broker_name: &str, ids: &[u64]) -> BrokerData {
        let broker_addrs = ids.iter().map(|id| (*id, format!("{broker_name}:{id}"))).collect();
        BrokerData { broker_name: broker_name.to_owned(), broker_addrs, ..BrokerData::default() }
    }

    /// A topic with `queues` queues at one broker.
    pub(crate) fn route(topic: &str, queues: u32) -> TopicRoute {
        let data = TopicRouteData {
            queue_datas: vec![queue_data("b", queues, 6)],
            broker_datas: vec![broker("b", &[0])],
            ..TopicRouteData::default()
        };
        TopicRoute::of(topic, &data).unwrap()
    }

    fn texts(queues: &[MessageQueue]) -> Vec<String> {
        queues.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn sends_need_a_writable_queue_and_a_master_and_reads_only_a_readable_queue() {
        let data = TopicRouteData {
            queue_datas: vec![
                queue_data("d", 1, 4),
                queue_data("c", 1, 2),
                queue_data("b", 1, 6),
                queue_data("a", 2, 6),
            ],
            broker_datas: vec![broker("a", &[0, 1]), broker("b", &[1]), broker("c", &[0]), broker("d", &[0])],
            ..TopicRouteData::default()
        };
        let route = TopicRoute::of("t", &data).unwrap();
        assert_eq!(texts(&route.publish), ["t@a#0", "t@a#1", "t@c#0"]);
        assert_eq!(texts(&route.subscribe), ["t@a#0", "t@a#1", "t@b#0", "t@d#0"]);
        assert_eq!((route.master("b"), route.any_address("b")), (None, Some("b:1")));
        assert_eq!(route.master("a"), Some("a:0"));
    }

    #[test]
    fn an_order_configuration_names_the_queues_by_itself() {
        let data = TopicRouteData {
            order_topic_conf: Some("y:2;x:1;broken".to_owned()),
            queue_datas: vec![queue_data("x", 8, 4)],
            ..TopicRouteData::default()
        };
        assert_eq!(texts(&TopicRoute::of("t", &data).unwrap().publish), ["t@y#0", "t@y#1", "t@x#0"]);
    }

    #[test]
    fn the_template_lends_at_most_the_default_queues() {
        let template = route("TBW102", 8).into_template_for("new", 4);
        assert_eq!(texts(&template.publish), ["new@b#0", "new@b#1", "new@b#2", "new@b#3"]);
        assert!(template.subscribe.is_empty() && template.from_template);
        assert_eq!(route("TBW102", 2).into_template_for("new", 4).publish.len(), 2);
    }

    #[test]
    fn a_route_with_too_many_queues_is_refused() {
        assert_eq!(route("t", MAX_QUEUES as u32).publish.len() as u64, MAX_QUEUES);
        let of = |queue_datas: Vec<QueueData>, order: Option<String>| {
            let brokers = vec![broker("b", &[0])];
            let data = TopicRouteData {
                queue_datas,
                broker_datas: brokers,
                order_topic_conf: order,
                ..TopicRouteData::default()
            };
            TopicRoute::of("t", &data).map(drop)
        };
        let refused = |queues| Err(TooManyQueues { queues });
        assert_eq!(of(vec![queue_data("b", u32::MAX, 6)], None), refused(u64::from(u32::MAX)));
        assert_eq!(of(vec![queue_data("b", 16_384, 6); 17], None), refused(17 * 16_384));
        let unreadable = QueueData { read_queues: u32::MAX, ..queue_data("b", 1, 2) };
        assert!(of(vec![unreadable], None).is_err(), "the permission may change without a new route");
        let order = "b:4294967295;".repeat(2500);
        assert_eq!(of(Vec::new(), Some(order)), refused(2500 * u64::from(u32::MAX)));
    }

    #[test]
    fn routes_that_nobody_uses_are_forgotten() {
        let routes = Routes::default();
        routes.put(route("used", 1));
        routes.put(route("idle", 1));
        for _ in 0..=IDLE_ROUNDS {
            assert!(routes.get("used").is_some());
            for topic in routes.begin_round() {
                routes.put(route(&topic, 1));
            }
        }
        assert_eq!(routes.begin_round(), ["used".into()]);
    }

    #[test]
    fn heartbeats_of_producers_go_to_masters_only() {
        let routes = Routes::default();
        let data = TopicRouteData {
            queue_datas: vec![queue_data("a", 1, 6)],
            broker_datas: vec![broker("a", &[0, 1])],
            ..TopicRouteData::default()
        };
        routes.put(TopicRoute::of("t", &data).unwrap());
        assert_eq!(routes.broker_addresses(false), ["a:0".to_owned()].into());
        assert_eq!(routes.broker_addresses(true), ["a:0".to_owned(), "a:1".to_owned()].into());
    }
}

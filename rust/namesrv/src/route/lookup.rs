//! Look-ups in the tables.
use std::collections::{BTreeMap, BTreeSet};

use rocketpy_model::{TopicConfig, system};

use super::{BrokerAddr, BrokerGroup, Queues, Registration, RouteTable, Tables};

/// The route of one topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// Broker name and the queues there.
    pub(crate) queues: Vec<(String, Queues)>,
    /// Broker name and its brokers.
    pub(crate) brokers: Vec<(String, BrokerGroup)>,
    /// Address of a broker and its filter servers.
    pub(crate) filter_servers: BTreeMap<String, Vec<String>>,
}

/// All brokers and clusters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cluster {
    pub(crate) brokers: BTreeMap<String, BrokerGroup>,
    pub(crate) clusters: BTreeMap<String, BTreeSet<String>>,
}

impl RouteTable {
    /// The route of a topic. `None` when no registered broker has it.
    pub(crate) fn route(&self, topic: &str) -> Option<Route> {
        let tables = self.tables.read();
        let mut route = Route::default();
        for (name, known) in tables.topics.get(topic)? {
            route.queues.push((name.clone(), known.queues));
            if let Some(group) = tables.brokers.get(name) {
                tables.add_filter_servers(group, &mut route.filter_servers);
                route.brokers.push((name.clone(), group.clone()));
            }
        }
        (!route.brokers.is_empty()).then_some(route)
    }

    pub(crate) fn cluster(&self) -> Cluster {
        let tables = self.tables.read();
        Cluster { brokers: tables.brokers.clone(), clusters: tables.clusters.clone() }
    }

    pub(crate) fn topics(&self) -> Vec<String> {
        self.tables.read().topics.keys().cloned().collect()
    }

    /// The topics whose system flags pass, on the first of their broker names.
    pub(crate) fn topics_with_flags(&self, passes: impl Fn(i32) -> bool) -> Vec<String> {
        let tables = self.tables.read();
        let with_flags = tables.topics.iter().filter(|(_, brokers)| {
            brokers.values().next().is_some_and(|known| passes(known.queues.sys_flag))
        });
        with_flags.map(|(topic, _)| topic.clone()).collect()
    }

    /// The topics of a cluster's brokers.
    pub(crate) fn topics_of_cluster(&self, cluster: &str) -> Vec<String> {
        let tables = self.tables.read();
        let Some(names) = tables.clusters.get(cluster) else { return Vec::new() };
        let of_cluster =
            tables.topics.iter().filter(|(_, brokers)| brokers.keys().any(|name| names.contains(name)));
        of_cluster.map(|(topic, _)| topic.clone()).collect()
    }

    /// The addresses of the brokers of one name, by id; none for a name that nobody registered.
    pub(crate) fn members(&self, broker_name: &str) -> BTreeMap<u64, String> {
        self.tables.read().brokers.get(broker_name).map(|group| group.addrs.clone()).unwrap_or_default()
    }

    /// The names of clusters and brokers, which are topics of the system, and the address of some broker.
    pub(crate) fn system_topics(&self) -> (Vec<String>, Option<String>) {
        let tables = self.tables.read();
        let names = tables.clusters.iter().flat_map(|(cluster, names)| std::iter::once(cluster).chain(names));
        let addr = tables.brokers.values().find_map(|group| group.addrs.values().next().cloned());
        (names.cloned().collect(), addr)
    }
}

impl Tables {
    fn add_filter_servers(&self, group: &BrokerGroup, table: &mut BTreeMap<String, Vec<String>>) {
        for addr in group.addrs.values() {
            let broker = BrokerAddr { cluster: group.cluster.clone(), addr: addr.clone() };
            if let Some(servers) = self.filter_servers.get(&broker) {
                table.insert(addr.clone(), servers.clone());
            }
        }
    }
}

impl From<&TopicConfig> for Queues {
    fn from(topic: &TopicConfig) -> Self {
        Self {
            read_queues: topic.read_queues,
            write_queues: topic.write_queues,
            perm: topic.perm,
            sys_flag: topic.sys_flag,
        }
    }
}

impl RouteTable {
    /// The cluster that a broker name belongs to; `None` for a name that nobody registered, or that is forgotten.
    pub(crate) fn owner(&self, name: &str) -> Option<String> {
        self.tables.read().owners.of(name).cloned()
    }

    /// Topics of a registration that are new at its broker name, and that brokers of other clusters have, with these clusters. Topics that no
    /// client may send to are not foreign, except the template of created topics: every broker has them.
    pub(crate) fn foreign_topics(&self, new: &Registration) -> BTreeMap<String, BTreeSet<String>> {
        let tables = self.tables.read();
        let is_of_all = |name: &str| system::is_send_denied(name) && name != system::TEMPLATE_TOPIC;
        let topics = new.topics.iter().filter(|topic| !is_of_all(&topic.name));
        let topics = topics.filter(|topic| !tables.has_topic(&topic.name, &new.name));
        let foreign = topics.map(|topic| (topic.name.clone(), tables.other_clusters(&topic.name, new)));
        foreign.filter(|(_, clusters)| !clusters.is_empty()).collect()
    }
}

impl Tables {
    fn other_clusters(&self, topic: &str, new: &Registration) -> BTreeSet<String> {
        let names = self.topics.get(topic).into_iter().flat_map(BTreeMap::keys);
        let clusters = names.filter_map(|name| self.brokers.get(name)).map(|group| &group.cluster);
        clusters.filter(|cluster| **cluster != new.broker.cluster).cloned().collect()
    }
}

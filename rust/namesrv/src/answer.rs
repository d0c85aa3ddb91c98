//! The bodies of answers, made from the tables.

use std::collections::BTreeMap;

use rocketpy_protocol::body::{BrokerData, ClusterInfo, QueueData, TopicRouteData};

use crate::route::{BrokerGroup, Cluster, Queues, Route};

pub(crate) fn topic_route(route: Route, order_topic_conf: Option<String>) -> TopicRouteData {
    TopicRouteData {
        queue_datas: route.queues.into_iter().map(|(name, queues)| queue_data(name, queues)).collect(),
        broker_datas: route.brokers.into_iter().map(|(name, group)| broker_data(name, group)).collect(),
        filter_server_table: route.filter_servers,
        order_topic_conf,
    }
}

pub(crate) fn cluster_info(cluster: Cluster) -> ClusterInfo {
    let brokers: BTreeMap<String, BrokerData> =
        cluster.brokers.into_iter().map(|(name, group)| (name.clone(), broker_data(name, group))).collect();
    let clusters =
        cluster.clusters.into_iter().map(|(cluster, names)| (cluster, names.into_iter().collect()));
    ClusterInfo { broker_addr_table: brokers, cluster_addr_table: clusters.collect() }
}

/// The queues that a request states for a broker name.
pub(crate) fn queues_of(data: QueueData) -> (String, Queues) {
    let queues = Queues {
        read_queues: data.read_queues,
        write_queues: data.write_queues,
        perm: data.permission(),
        sys_flag: data.sys_flag,
    };
    (data.broker_name, queues)
}

fn queue_data(broker_name: String, queues: Queues) -> QueueData {
    QueueData {
        broker_name,
        read_queues: queues.read_queues,
        write_queues: queues.write_queues,
        perm: queues.perm.bits(),
        sys_flag: queues.sys_flag,
    }
}

fn broker_data(broker_name: String, group: BrokerGroup) -> BrokerData {
    BrokerData {
        cluster: group.cluster,
        broker_name,
        broker_addrs: group.addrs,
        zone_name: group.zone,
        enable_acting_master: group.acting_master,
    }
}

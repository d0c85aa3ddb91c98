//! The rules of the route table, each by small registrations.

use std::time::{Duration, Instant};

use rocketpy_model::system::MAX_SLAVES;
use rocketpy_model::{DataVersion, Permission, TopicConfig};
use rocketpy_remoting::MemoryBudget;

use super::taken::ALIVE;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn version(state_version: i64, counter: i64) -> DataVersion {
    DataVersion { counter, state_version, changed_at_ms: 1_700_000_000_000 }
}

fn broker(addr: &str) -> BrokerAddr {
    BrokerAddr { cluster: "c1".into(), addr: addr.into() }
}

fn caller(connection_id: u64) -> Caller {
    Caller { connection_id, peer: [10, 0, 0, 1].into() }
}

fn table() -> RouteTable {
    RouteTable::new(MemoryBudget::new(1 << 20).of_table())
}

fn registration(name: &str, id: u64, addr: &str, topics: &[&str]) -> Registration {
    Registration {
        broker: broker(addr),
        name: name.into(),
        id,
        ha_addr: format!("{addr}-ha"),
        heartbeat_timeout: None,
        acting_master: Some(false),
        zone: None,
        data_version: version(0, 1),
        stated_topics: topics.len(),
        topics: topics.iter().map(|name| TopicConfig::new(*name, 4)).collect(),
        filter_servers: None,
        from: caller(1),
        member_proof: None,
    }
}

fn names(route: &Route) -> Vec<&str> {
    route.brokers.iter().map(|(name, _)| name.as_str()).collect()
}

fn perm_of(table: &RouteTable, topic: &str) -> i32 {
    table.route(topic).expect("a route").queues[0].1.perm.bits()
}

#[test]
fn a_single_topic_from_an_unknown_broker_id_is_refused_and_leaves_nothing() {
    let table = table();
    let refused = table.register(registration("a", 0, "h:1", &["t"]), Instant::now());
    let not_registered = NotRegistered { name: "a".into(), id: 0 };
    assert!(matches!(refused, Err(Refusal::NotRegistered(refused)) if refused == not_registered));
    assert_eq!(table.cluster(), Cluster::default());
    table.register(registration("a", 0, "h:1", &["t", "u"]), Instant::now()).expect("two topics");
    table.register(registration("a", 0, "h:1", &["v"]), Instant::now()).expect("an increment");
    assert_eq!(table.topics(), ["t", "u", "v"]);
}

#[test]
fn the_end_of_a_client_does_not_wait_for_readers_of_routes() {
    let table = table();
    std::thread::scope(|scope| {
        let (ended, receiver) = std::sync::mpsc::channel();
        let _reading = table.tables.read();
        let table = &table;
        scope.spawn(move || ended.send(table.connection_closed(7)));
        assert_eq!(receiver.recv_timeout(Duration::from_secs(20)), Ok(0));
    });
}

#[test]
fn a_registration_without_topics_is_taken() {
    let table = table();
    table.register(registration("a", 0, "h:1", &[]), Instant::now()).expect("no topics");
    assert_eq!(table.cluster().brokers["a"].addrs[&0], "h:1");
}

#[test]
fn a_topic_keeps_its_queues_until_the_version_changes() {
    let table = table();
    let now = Instant::now();
    let mut registration = registration("a", 0, "h:1", &["t", "u"]);
    table.register(registration.clone(), now).expect("first");
    registration.topics[0].read_queues = 9;
    table.register(registration.clone(), now).expect("same version");
    assert_eq!(table.route("t").expect("a route").queues[0].1.read_queues, 4);
    registration.data_version = version(0, 2);
    table.register(registration, now).expect("next version");
    assert_eq!(table.route("t").expect("a route").queues[0].1.read_queues, 9);
}

#[test]
fn a_promoted_slave_leaves_its_old_id() {
    let table = table();
    let now = Instant::now();
    table.register(registration("a", 0, "h:1", &["t", "u"]), now).expect("master");
    table.register(registration("a", 1, "h:2", &["t", "u"]), now).expect("slave");
    assert!(table.unregister(&broker("h:1"), "a", caller(1), now).unwrap());
    table.register(registration("a", 0, "h:2", &["t", "u"]), now).expect("promoted");
    let addrs = table.cluster().brokers["a"].addrs.clone();
    assert_eq!(addrs.into_iter().collect::<Vec<_>>(), [(0, "h:2".to_owned())]);
}

#[test]
fn an_older_state_does_not_take_the_id_of_a_live_broker() {
    let table = table();
    let now = Instant::now();
    let mut live = registration("a", 0, "h:1", &["t", "u"]);
    live.data_version = version(2, 1);
    table.register(live, now).expect("live");
    table.register(registration("a", 0, "h:2", &["x", "y"]), now).expect("ignored");
    assert_eq!(table.cluster().brokers["a"].addrs[&0], "h:1");
    assert!(!table.heartbeat(&broker("h:2"), caller(1), now));
    assert_eq!(table.route("x"), None);
    let mut newer = registration("a", 0, "h:2", &["x", "y"]);
    newer.data_version = version(3, 1);
    table.register(newer, now).expect("newer");
    assert_eq!(table.cluster().brokers["a"].addrs[&0], "h:2");
}

#[test]
fn a_second_broker_of_a_name_and_id_is_refused_while_the_first_is_alive() {
    let table = table();
    let start = Instant::now();
    let other = |addr, connection_id| Registration {
        from: caller(connection_id),
        ..registration("a", 0, addr, &["x", "y"])
    };
    let master = || table.cluster().brokers["a"].addrs[&0].clone();
    table.register(registration("a", 0, "h:1", &["t", "u"]), start).expect("the first");
    let refused = table.register(other("h:2", 2), start + ALIVE - SECOND).expect_err("the first is alive");
    let text = refused.to_string();
    assert!(text.contains("h:1") && text.contains("h:2") && text.contains("brokerName"), "{text}");
    assert_eq!((master(), table.route("x")), ("h:1".to_owned(), None));
    let elsewhere =
        Registration { broker: BrokerAddr { cluster: "c2".into(), addr: "h:2".into() }, ..other("h:2", 2) };
    assert!(table.register(elsewhere, start).is_err(), "names of brokers are those of all clusters");
    table.register(Registration { id: 1, ..other("h:3", 3) }, start).expect("a slave");

    table
        .register(registration("a", 0, "h:1b", &["t", "u"]), start)
        .expect("a new address on the same connection");
    table.connection_closed(1);
    table.register(other("h:2", 2), start).expect("it has restarted elsewhere");
    assert_eq!(master(), "h:2");
    table.register(other("h:4", 4), start + ALIVE).expect("the former one is silent");
    assert_eq!(master(), "h:4");
    let later = |addr, number| Registration { data_version: version(1, 1), ..other(addr, number) };
    let stranger = table.register(later("h:5", 5), start + ALIVE);
    assert!(matches!(stranger, Err(Refusal::NameTaken(_))), "it never was a slave: {stranger:?}");
    let elsewhere =
        Registration { from: Caller { peer: [10, 0, 0, 9].into(), ..caller(5) }, ..later("h:3", 5) };
    assert!(
        table.register(elsewhere, start + ALIVE).is_err(),
        "the address of a slave, from another machine"
    );
    table.register(later("h:3", 5), start + ALIVE).expect("the slave was promoted");
    assert_eq!(master(), "h:3");
}

/// A registration by a connection of its own, with the state of a broker that was promoted `promotions` times.
fn member(id: u64, number: u64, promotions: i64) -> Registration {
    Registration {
        from: caller(number),
        data_version: version(promotions, 1),
        ..registration("a", id, &format!("h:{number}"), &["x", "y"])
    }
}

#[test]
fn each_slave_that_a_master_accepts_is_remembered_for_its_promotion() {
    let (table, now) = (table(), Instant::now());
    table.register(member(0, 100, 0), now).expect("the master");
    for slave in 1..=MAX_SLAVES as u64 {
        table.register(member(slave, slave, 0), now).expect("a slave");
    }
    table.register(member(0, 1, 1), now).expect("the first slave was promoted");
    table.register(member(100, 100, 1), now).expect("the former master is a slave now");
    for slave in 2..=MAX_SLAVES as u64 {
        table.register(member(0, slave, slave as i64), now).expect("another slave was promoted");
    }
    table.register(member(0, 100, 100), now).expect("the former master was promoted again");
}

#[test]
fn a_new_slave_replaces_a_dead_one_and_none_that_is_alive() {
    let (table, start) = (table(), Instant::now());
    let (now, most) = (start + ALIVE, MAX_SLAVES as u64);
    table.register(member(0, 100, 0), now).expect("the master");
    table.register(member(1, 1, 0), now).expect("a slave");
    table.register(member(0, 1, 1), now).expect("the slave was promoted");
    table.register(member(2, 2, 0), start).expect("a slave that is silent from then on");
    for slave in 3..=most + 1 {
        table.register(member(slave, slave, 0), now).expect("a slave");
    }
    table.register(member(50, 50, 0), now).expect("a slave in the place of the silent one");
    table.register(member(51, 51, 0), now).expect("a slave without a place");
    for stranger in [2, 51] {
        let refused = table.register(member(0, stranger, 2), now);
        assert!(matches!(refused, Err(Refusal::NameTaken(_))), "{stranger}: {refused:?}");
    }
    table.register(member(0, 50, 2), now).expect("the new slave was promoted");
    table.register(member(0, 1, 3), now).expect("the former master is remembered too");
}

#[test]
fn a_stranger_changes_nothing_of_a_broker_that_lives_on_another_connection() {
    let table = table();
    let start = Instant::now();
    let soon = start + ALIVE - SECOND;
    let stranger = Caller { connection_id: 2, peer: [10, 0, 0, 9].into() };
    table.register(registration("a", 0, "h:1", &["t", "u"]), start).expect("the broker");
    let before = table.cluster();
    for from in [stranger, caller(2)] {
        let theirs = |cluster: &str, name: &str, id| Registration {
            broker: BrokerAddr { cluster: cluster.into(), addr: "h:1".into() },
            from,
            data_version: version(9, 9),
            ..registration(name, id, "h:1", &["x", "y"])
        };
        for (cluster, name) in [("c1", "a"), ("c1", "other"), ("c2", "a"), ("c2", "other")] {
            let broker = BrokerAddr { cluster: cluster.into(), addr: "h:1".into() };
            assert!(table.unregister(&broker, name, from, soon).is_err(), "{cluster} {name}");
            if from == stranger || (cluster, name) != ("c1", "a") {
                let refused = table.register(theirs(cluster, name, 0), soon);
                assert!(matches!(refused, Err(Refusal::AddressTaken(_))), "{cluster} {name} {refused:?}");
            }
        }
    }
    table
        .register(Registration { from: caller(3), ..registration("a", 1, "h:2", &["t", "u"]) }, start)
        .unwrap();
    let stale = Registration {
        data_version: version(-1, 0),
        from: stranger,
        ..registration("a", 0, "h:2", &["x", "y"])
    };
    assert!(table.register(stale, soon).is_err(), "a stale registration removes a slave");
    for (state, id) in [(-1, 0), (0, 0), (5, 0), (0, 7)] {
        let elsewhere = Registration {
            broker: BrokerAddr { cluster: "c2".into(), addr: "h:9".into() },
            data_version: version(state, 0),
            from: stranger,
            ..registration("a", id, "h:9", &["x", "y"])
        };
        let refused = table.register(elsewhere, soon);
        assert!(matches!(refused, Err(Refusal::NameTaken(_))), "{state} {id} {refused:?}");
    }
    assert!(table.heartbeat(&broker("h:2"), caller(3), soon));
    assert!(!table.heartbeat(&broker("h:1"), stranger, soon));
    table.query_version(&broker("h:1"), stranger, version(0, 1), soon);
    assert_eq!(table.route("x"), None);
    assert_eq!(table.cluster().clusters, before.clusters);
    assert_eq!(table.cluster().brokers["a"].addrs[&0], "h:1");
    assert_eq!(table.remove_silent(start + 121 * SECOND), [1], "a stranger's heartbeats do not count");
}

#[test]
fn a_restarted_broker_registers_at_once_also_when_its_old_connection_seems_open() {
    let table = table();
    let now = Instant::now();
    table.register(registration("a", 0, "10.0.0.7:1", &["t", "u"]), now).expect("first");
    let again = |from| Registration { from, ..registration("a", 0, "10.0.0.7:1", &["t", "u"]) };
    table.register(again(caller(2)), now).expect("from the same machine");
    let of_host = Caller { connection_id: 3, peer: [10, 0, 0, 7].into() };
    table.register(again(of_host), now).expect("from the host that it names");
    table.connection_closed(3);
    let elsewhere = Caller { connection_id: 4, peer: [10, 0, 0, 9].into() };
    table.register(again(elsewhere), now).expect("the old connection is closed");
    assert!(table.unregister(&broker("10.0.0.7:1"), "a", elsewhere, now).unwrap());
}

#[test]
fn a_master_with_a_token_has_slaves_and_successors_with_the_same_token_only() {
    let table = table();
    let now = Instant::now();
    let proved = |id, addr, number, proof: Option<&str>| Registration {
        from: caller(number),
        member_proof: proof.map(str::to_owned),
        ..registration("a", id, addr, &["t", "u"])
    };
    table.register(proved(0, "h:1", 1, Some("p")), now).expect("the master");
    for (number, proof) in [(2, None), (3, Some("q"))] {
        let refused = table.register(proved(1, "h:2", number, proof), now);
        assert!(matches!(refused, Err(Refusal::MemberNotProved(_))), "{refused:?}");
        let same_address = table.register(proved(0, "h:1", number, proof), now);
        assert!(matches!(same_address, Err(Refusal::AddressTaken(_))), "{same_address:?}");
    }
    let promoted = |proof| Registration { data_version: version(1, 1), ..proved(0, "h:2", 4, proof) };
    assert!(table.register(promoted(None), now).is_err());
    table.register(promoted(Some("p")), now).expect("promoted, and unknown until now");
    assert_eq!(table.cluster().brokers["a"].addrs[&0], "h:2");
}

#[test]
fn a_slave_learns_where_its_master_is_and_changes_no_route() {
    let table = table();
    let now = Instant::now();
    let answer = table.register(registration("a", 0, "h:1", &["t", "u"]), now).expect("master");
    assert_eq!(answer, Registered::default());
    let answer = table.register(registration("a", 1, "h:2", &["t", "u", "only-slave"]), now).expect("slave");
    assert_eq!(answer, Registered { master_addr: Some("h:1".into()), ha_addr: Some("h:1-ha".into()) });
    assert_eq!(table.topics(), ["t", "u"]);
}

#[test]
fn the_lowest_slave_acts_for_a_missing_master_without_write_permission() {
    let table = table();
    let now = Instant::now();
    let acting = |id, addr| {
        let mut registration = registration("a", id, addr, &["t", "u"]);
        registration.acting_master = Some(true);
        registration
    };
    table.register(acting(2, "h:2"), now).expect("slave");
    assert_eq!(perm_of(&table, "t"), 4);
    let mut old = registration("b", 2, "h:9", &["old", "older"]);
    old.acting_master = None;
    table.register(old, now).expect("old slave");
    assert_eq!(table.route("old"), None);
    table.register(acting(0, "h:1"), now).expect("master");
    assert_eq!(perm_of(&table, "t"), 6);
    table.unregister(&broker("h:1"), "a", caller(1), Instant::now()).unwrap();
    assert_eq!(perm_of(&table, "t"), 4, "the write bit goes with the last master");
}

#[test]
fn the_last_address_takes_the_name_its_topics_and_its_cluster_along() {
    let table = table();
    let now = Instant::now();
    table.register(registration("a", 0, "h:1", &["t", "u"]), now).expect("a");
    table.register(registration("b", 0, "h:2", &["t", "w"]), now).expect("b");
    assert_eq!(names(&table.route("t").expect("a route")), ["a", "b"]);
    table.unregister(&broker("h:1"), "a", caller(1), Instant::now()).unwrap();
    assert_eq!(names(&table.route("t").expect("a route")), ["b"]);
    assert_eq!(table.topics(), ["t", "w"]);
    table.unregister(&broker("h:2"), "b", caller(1), Instant::now()).unwrap();
    assert_eq!(table.cluster(), Cluster::default());
    assert!(!table.unregister(&broker("h:2"), "b", caller(1), now).unwrap());
}

#[test]
fn an_address_that_changes_its_name_leaves_the_old_one() {
    let table = table();
    let now = Instant::now();
    table.register(registration("a", 0, "h:1", &["t", "u"]), now).expect("a");
    table.register(registration("b", 0, "h:1", &["t", "u"]), now).expect("b");
    assert_eq!(table.cluster().brokers.keys().collect::<Vec<_>>(), ["b"]);
}

#[test]
fn silent_brokers_go_after_their_own_timeout() {
    let table = table();
    let start = Instant::now();
    let mut impatient = registration("a", 0, "h:1", &["t", "u"]);
    impatient.heartbeat_timeout = Some(10 * SECOND);
    impatient.from = caller(7);
    table.register(impatient, start).expect("a");
    table.register(registration("b", 0, "h:2", &["t", "u"]), start).expect("b");
    assert_eq!(table.remove_silent(start + 10 * SECOND), Vec::<u64>::new());
    assert!(table.heartbeat(&broker("h:1"), caller(7), start + 9 * SECOND));
    assert_eq!(table.remove_silent(start + 19 * SECOND), Vec::<u64>::new());
    assert_eq!(table.remove_silent(start + 20 * SECOND), [7]);
    assert_eq!(names(&table.route("t").expect("a route")), ["b"]);
    assert_eq!(table.remove_silent(start + 121 * SECOND), [1]);
    assert_eq!(table.route("t"), None);
}

#[test]
fn only_the_connection_of_the_last_registration_counts() {
    let table = table();
    let now = Instant::now();
    let mut registration = registration("a", 0, "h:1", &["t", "u"]);
    table.register(registration.clone(), now).expect("by connection 1");
    registration.from = caller(2);
    table.register(registration, now).expect("by connection 2");
    assert_eq!(table.connection_closed(1), 0);
    assert!(table.route("t").is_some());
    assert_eq!(table.connection_closed(2), 1);
    assert_eq!(table.route("t"), None);
}

#[test]
fn the_same_version_counts_as_a_heartbeat_and_another_does_not() {
    let table = table();
    let start = Instant::now();
    assert_eq!(table.query_version(&broker("h:1"), caller(1), version(0, 1), start), None);
    table.register(registration("a", 0, "h:1", &["t", "u"]), start).expect("a");
    assert_eq!(
        table.query_version(&broker("h:1"), caller(1), version(0, 1), start + 100 * SECOND),
        Some(version(0, 1))
    );
    assert_eq!(table.remove_silent(start + 121 * SECOND), Vec::<u64>::new());
    table.query_version(&broker("h:1"), caller(1), version(0, 5), start + 200 * SECOND);
    assert_eq!(table.remove_silent(start + 221 * SECOND), [1]);
}

#[test]
fn write_permission_is_wiped_and_given_back_on_every_topic_of_a_name() {
    let table = table();
    let now = Instant::now();
    let mut registration = registration("a", 0, "h:1", &["t", "u"]);
    registration.topics[0].perm = Permission::READ_WRITE_INHERIT;
    table.register(registration, now).expect("a");
    assert_eq!(table.wipe_write_perm("a"), 2);
    assert_eq!((perm_of(&table, "t"), perm_of(&table, "u")), (5, 4));
    assert_eq!(table.add_write_perm("a"), 2);
    assert_eq!((perm_of(&table, "t"), perm_of(&table, "u")), (6, 6));
    assert_eq!(table.wipe_write_perm("unknown"), 0);
}

#[test]
fn a_topic_is_deleted_in_one_cluster_at_one_broker_or_in_all() {
    let table = table();
    let now = Instant::now();
    table.register(registration("a", 0, "h:1", &["t", "u"]), now).expect("a");
    let mut other = registration("b", 0, "h:2", &["t", "u"]);
    other.broker.cluster = "c2".into();
    table.register(other, now).expect("b");
    table.delete_topic("t", Some("no such cluster"));
    table.delete_topic("t", Some("c1"));
    assert_eq!(names(&table.route("t").expect("a route")), ["b"]);
    assert_eq!(table.topics_of_cluster("c1"), ["u"]);
    assert_eq!(table.topics_of_cluster("c2"), ["t", "u"]);
    table.delete_topic_of("u", "a");
    assert_eq!(names(&table.route("u").expect("a route")), ["b"]);
    table.delete_topic("u", None);
    assert_eq!(table.route("u"), None);
}

#[test]
fn a_topic_is_registered_on_known_brokers_only() {
    let table = table();
    table.register(registration("a", 0, "h:1", &["t", "u"]), Instant::now()).expect("a");
    let queues = Queues::from(&TopicConfig::new("n", 3));
    let unknown = table.register_topic("n", vec![("a".into(), queues), ("x".into(), queues)]);
    assert_eq!(unknown.expect("there is room"), ["x"]);
    assert_eq!(table.route("n").expect("a route").queues, [("a".to_owned(), queues)]);
    table.register_topic("m", vec![("x".into(), queues)]).expect("there is room");
    assert_eq!(table.topics(), ["n", "t", "u"]);
}

#[test]
fn system_topics_are_the_names_of_clusters_and_brokers() {
    let table = table();
    assert_eq!(table.system_topics(), (Vec::new(), None));
    table.register(registration("a", 0, "h:1", &["t", "u"]), Instant::now()).expect("a");
    assert_eq!(table.system_topics(), (vec!["c1".to_owned(), "a".to_owned()], Some("h:1".to_owned())));
}

#[test]
fn routes_beyond_the_budget_are_refused_whole_and_give_their_memory_back() {
    let budget = MemoryBudget::new(1 << 16);
    let table = RouteTable::new(budget.of_table());
    let now = Instant::now();
    table.register(registration("a", 0, "h:1", &["t", "u"]), now).expect("there is room");
    let before = budget.used_bytes();
    let many: Vec<String> = (0..1000).map(|number| format!("topic-{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let mut later = registration("a", 0, "h:1", &many);
    later.data_version = version(0, 2);
    assert!(matches!(table.register(later, now), Err(Refusal::Memory(_))));
    assert_eq!((table.topics(), budget.used_bytes()), (vec!["t".to_owned(), "u".to_owned()], before));
    table.register(registration("a", 0, "h:1", &["t", "u"]), now).expect("what is known takes nothing");
    assert_eq!(budget.used_bytes(), before);
    table.delete_topic("u", None);
    assert!(budget.used_bytes() < before);
    table.unregister(&broker("h:1"), "a", caller(1), Instant::now()).unwrap();
    assert_eq!(budget.used_bytes(), 0);
}

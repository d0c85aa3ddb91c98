//! Brokers at several name servers: registration, routes, and name servers that die or fall silent.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rocketpy_env::{Disk, RealDisk};
use rocketpy_model::TopicConfig;
use rocketpy_protocol::body::{TopicConfigFile, TopicConfigSerializeWrapper, TopicList};
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{
    GetAllTopicConfigRequestHeader, GetAllTopicConfigResponseHeader, GetRouteInfoRequestHeader, Header,
};
use rocketpy_protocol::{Command, json};
use rocketpy_remoting::{Connection, Handler, Reply, Response, Server};
use rocketpy_server::{Process, Role, ServerConfig};

use crate::binary::{BINARY, Process as BrokerProcess};
use crate::support::{Caller, TIMEOUT, config, topic_with, wait_until};

fn name_server() -> Process {
    name_server_at("127.0.0.1", 0)
}

fn name_server_at(host: &str, port: u16) -> Process {
    let config =
        ServerConfig { host: host.to_owned(), name_server_port: Some(port), ..ServerConfig::default() };
    Process::start(Role::NameServer, config).unwrap()
}

fn address(name_server: &Process) -> String {
    name_server.addresses().name_server.clone().unwrap()
}

fn broker(folder: &tempfile::TempDir, name_servers: &[&str]) -> Process {
    broker_that_waits(folder, name_servers, Duration::from_secs(2))
}

/// A broker whose answer about a new topic waits this long for name servers.
fn broker_that_waits(folder: &tempfile::TempDir, name_servers: &[&str], announce_wait: Duration) -> Process {
    let mut config = config(folder.path());
    config.broker.announce_wait = announce_wait;
    config.set("namesrvAddr", &name_servers.join(";")).unwrap();
    Process::start(Role::Broker, config).unwrap()
}

#[test]
fn a_broker_is_known_to_every_name_server_until_it_stops() {
    let (one, two) = (name_server(), name_server());
    let folder = tempfile::tempdir().unwrap();
    let broker = broker(&folder, &[&address(&one), &address(&two)]);
    let caller = Caller::new();
    caller.create_topic(broker.addresses().broker.as_ref().unwrap(), "orders");
    for name_server in [&one, &two] {
        let route = caller.route(&address(name_server), "orders").unwrap();
        assert_eq!(route.broker_datas[0].master_address(), broker.addresses().broker.as_deref());
    }
    broker.stop(TIMEOUT).unwrap();
    for name_server in [&one, &two] {
        wait_until("the broker is forgotten", || caller.route(&address(name_server), "orders").is_none());
    }
}

#[test]
fn a_name_server_that_starts_anew_hears_of_the_broker_soon() {
    const HOST: &str = "127.0.7.2"; // of this test alone: the port stays free between the two
    let first = name_server_at(HOST, 0);
    let folder = tempfile::tempdir().unwrap();
    let broker = broker(&folder, &[&address(&first)]);
    let caller = Caller::new();
    caller.create_topic(broker.addresses().broker.as_ref().unwrap(), "orders");
    let port = address(&first).rsplit_once(':').unwrap().1.parse().unwrap();
    first.stop(TIMEOUT).unwrap();
    let second = name_server_at(HOST, port);
    wait_until("the broker is known again", || {
        let header = GetRouteInfoRequestHeader { topic: "orders", accept_standard_json_only: Some(true) };
        let ask = Command::request(request::GET_ROUTEINFO_BY_TOPIC, &header);
        caller.try_call(&address(&second), ask).is_ok_and(|answer| answer.code == 0)
    });
}

#[test]
fn a_dead_name_server_delays_neither_the_start_nor_the_others() {
    let alive = name_server();
    let dead = {
        let listener = std::net::TcpListener::bind("127.0.7.3:0").unwrap(); // where no other test listens
        listener.local_addr().unwrap().to_string()
    };
    let folder = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let broker = broker(&folder, &[&dead, &address(&alive)]);
    assert!(started.elapsed() < TIMEOUT, "{:?}", started.elapsed());
    let caller = Caller::new();
    assert_eq!(caller.send(broker.addresses().broker.as_ref().unwrap(), "orders", "x").code, 0);
    wait_until("the live one knows", || caller.route(&address(&alive), "orders").is_some());
}

#[test]
fn a_name_server_alone_takes_listen_port_as_its_own() {
    const HOST: &str = "127.0.7.4"; // of this test alone: the port is still free
    let free = std::net::TcpListener::bind((HOST, 0)).unwrap().local_addr().unwrap();
    let mut config = ServerConfig { host: HOST.to_owned(), ..ServerConfig::default() };
    config.set("listenPort", &free.port().to_string()).unwrap();
    let server = Process::start(Role::NameServer, config).unwrap();
    assert_eq!(address(&server), free.to_string());
    assert_eq!(server.addresses().broker, None);
}

#[test]
fn a_dead_name_server_does_not_delay_new_topics() {
    let (alive, dying) = (name_server(), name_server());
    let folder = tempfile::tempdir().unwrap();
    let broker = broker_that_waits(&folder, &[&address(&alive), &address(&dying)], 2 * TIMEOUT);
    let address_of_broker = broker.addresses().broker.clone().unwrap();
    let caller = Caller::new();
    dying.stop(TIMEOUT).unwrap();
    // A topic that waited for the dead one would not be answered before the caller gives up.
    for topic in ["first", "second", "third"] {
        caller.create_topic(&address_of_broker, topic);
        assert!(caller.route(&address(&alive), topic).is_some());
    }
}

#[test]
fn routes_are_right_after_many_changes_at_once() {
    const TOPICS: usize = 20;
    let name_server = name_server();
    let folder = tempfile::tempdir().unwrap();
    let broker = broker(&folder, &[&address(&name_server)]);
    let broker = broker.addresses().broker.as_deref().unwrap();
    std::thread::scope(|scope| {
        for connection in 0..8 {
            scope.spawn(move || {
                let caller = Caller::new();
                for number in 0..TOPICS {
                    for queues in [3, 5] {
                        let topic = format!("topic-{connection}-{number}");
                        let answer = caller.call(broker, topic_with(&topic, queues));
                        assert_eq!(answer.code, 0, "{:?}", answer.remark);
                    }
                }
            });
        }
    });
    let caller = Caller::new();
    let is_stale = |topic: &String| {
        let route = caller.route(&address(&name_server), topic).unwrap();
        route.queue_datas[0].write_queues != 5
    };
    let topics = (0..8).flat_map(|c| (0..TOPICS).map(move |n| format!("topic-{c}-{n}")));
    assert_eq!(topics.filter(is_stale).collect::<Vec<_>>(), Vec::<String>::new());
}

/// A name server that takes the first registration and never answers again.
#[derive(Default)]
struct FallsSilent {
    unanswered: Mutex<Vec<Reply>>,
    has_answered: AtomicBool,
}

impl Handler for FallsSilent {
    fn handle(&self, _connection: &Arc<Connection>, _request: Command, reply: Reply) {
        if self.has_answered.swap(true, Ordering::AcqRel) {
            self.unanswered.lock().unwrap().push(reply);
        } else {
            reply.send(Response::success());
        }
    }
}

#[test]
fn a_name_server_that_falls_silent_is_waited_for_once_and_not_at_the_stop() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let silent = Arc::new(FallsSilent::default());
    let server = {
        let _entered = runtime.enter();
        Server::bind(rocketpy_remoting::ServerConfig::new("127.0.0.1:0".parse().unwrap()), silent.clone())
            .unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let announce_wait = Duration::from_secs(3);
    let first = broker_that_waits(&folder, &[&server.local_addr().to_string()], announce_wait);
    let caller = Caller::new();
    let address = first.addresses().broker.clone().unwrap();
    caller.create_topic(&address, "waits");
    // One that waits takes this long at least; one that does not is slower only while the disk stalls.
    wait_until("a new topic does not wait", || {
        let started = Instant::now();
        caller.create_topic(&address, &format!("topic-{}", rocketpy_env::random_u64()));
        started.elapsed() < announce_wait
    });
    first.stop(TIMEOUT).unwrap();
    drop(first);

    *silent.unanswered.lock().unwrap() = Vec::new();
    silent.has_answered.store(false, Ordering::Release);
    let second = broker_that_waits(&folder, &[&server.local_addr().to_string()], 2 * TIMEOUT);
    let address = second.addresses().broker.clone().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| caller.call(&address, topic_with("held", 1)).code);
        wait_until("the name server holds the announcement", || {
            !silent.unanswered.lock().unwrap().is_empty()
        });
        second.stop(TIMEOUT).unwrap();
        assert_eq!(waiting.join().unwrap(), 0, "answered by the stop");
    });
}

#[test]
fn as_many_topics_as_a_broker_takes_are_registered_and_listed() {
    const TOPICS: usize = 99_900; // of 100,000, some of which the broker makes itself
    let folder = tempfile::tempdir().unwrap();
    let name = |number: usize| format!("{number:0100}");
    let topic_config_table =
        (0..TOPICS).map(|number| (name(number), TopicConfig::new(name(number), 4))).collect();
    let file = TopicConfigFile { topic_config_table, ..TopicConfigFile::default() };
    RealDisk.create_dir_all(&folder.path().join("config")).unwrap();
    RealDisk.replace(&folder.path().join("config/topics.json"), &json::to_vec(&file)).unwrap();
    let server = Process::start(Role::Standalone, config(folder.path())).unwrap();
    let (name_server, broker) = (address(&server), server.addresses().broker.clone().unwrap());
    let caller = Caller::new();
    for number in [0, TOPICS / 2, TOPICS - 1] {
        wait_until("a topic is known", || caller.route(&name_server, &name(number)).is_some());
    }
    let all = caller.call(&name_server, Command::bare_request(request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER));
    let all: TopicList = json::from_slice(&all.body).unwrap();
    assert!(all.topic_list.len() >= TOPICS, "{}", all.topic_list.len());

    let mut found = BTreeSet::new();
    loop {
        let header = GetAllTopicConfigRequestHeader {
            topic_seq: Some(found.len() as i32),
            data_version: None,
            max_topic_num: Some(50_000),
        };
        let answer = caller.call(&broker, Command::request(request::GET_ALL_TOPIC_CONFIG, &header));
        let total = GetAllTopicConfigResponseHeader::read(&answer.ext).unwrap().total_topic_num.unwrap();
        let page: TopicConfigSerializeWrapper = json::from_slice(&answer.body).unwrap();
        found.extend(page.topic_config_table.into_keys());
        if found.len() >= total as usize {
            break;
        }
    }
    assert!((0..TOPICS).all(|number| found.contains(&name(number))));
}

#[test]
fn a_second_broker_of_a_name_is_told_so_and_gets_the_name_when_the_first_has_stopped() {
    let names = name_server();
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = broker(&one, &[&address(&names)]);
    let caller = Caller::new();
    caller.create_topic(first.addresses().broker.as_ref().unwrap(), "orders");
    let command = || {
        let mut command = std::process::Command::new(BINARY);
        command.arg("broker").arg(two.path().join("store")).args(["--port", "0"]);
        command.args(["--name-server", &address(&names), "--set", "mappedFileSizeCommitLog=1048576"]);
        command
    };
    let second = BrokerProcess::start(command(), &two.path().join("ready"));
    let master = || {
        let route = caller.route(&address(&names), "orders")?;
        route.broker_datas[0].master_address().map(str::to_owned)
    };
    assert_eq!(master(), first.addresses().broker, "the first keeps its name");
    let log = second.stop();
    assert!(
        log.contains("is already registered from") && log.contains("another brokerId or brokerName"),
        "{log}"
    );

    let third = BrokerProcess::start(command(), &two.path().join("ready"));
    first.stop(TIMEOUT).unwrap();
    caller.create_topic(&third.broker, "orders");
    wait_until("the name is free", || master().as_ref() == Some(&third.broker));
}

//! A name server and a broker in one process.

use rocketpy_env::{Disk, RealDisk};
use rocketpy_protocol::Command;
use rocketpy_protocol::code::request;
use rocketpy_server::{Process, Role, ServerConfig, Sources};

use crate::support::{Caller, TIMEOUT, config, wait_until};

#[test]
fn a_server_starts_serves_and_stops_and_starts_again_on_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let caller = Caller::new();
    for cycle in 0..3 {
        let server = Process::start(Role::Standalone, config(folder.path())).unwrap();
        let broker = server.addresses().broker.clone().unwrap();
        let name_server = server.addresses().name_server.clone().unwrap();
        let route = caller.route(&name_server, "TBW102").unwrap();
        assert_eq!(route.broker_datas[0].master_address(), Some(broker.as_str()));
        assert_eq!(caller.send(&broker, "orders", &cycle.to_string()).code, 0);
        wait_until("all messages are readable", || caller.read_all(&broker, "orders").len() == cycle + 1);
        assert_eq!(
            caller.read_all(&broker, "orders"),
            (0..=cycle).map(|n| n.to_string()).collect::<Vec<_>>()
        );
        assert!(!server.has_failed());
        server.stop(TIMEOUT).unwrap();
        server.stop(TIMEOUT).unwrap();
        assert!(caller.try_call(&broker, crate::support::send("orders", "late")).is_err());
    }
}

#[test]
fn every_call_that_stops_the_server_returns_after_the_stop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ready.json");
    let config = ServerConfig { ready_file: Some(path.clone()), ..config(&folder.path().join("store")) };
    let server = Process::start(Role::Standalone, config).unwrap();
    let stop = || {
        server.stop(TIMEOUT).unwrap();
        assert!(RealDisk.read(&path, 1000).is_err(), "the end of the stop removes the file");
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(stop);
        }
    });
}

#[test]
fn the_ready_file_names_process_and_addresses_as_long_as_the_server_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ready.json");
    RealDisk.replace(&path, br#"{"pid":2147483647}"#).unwrap(); // of a process that has ended
    let server = Process::start(
        Role::Standalone,
        ServerConfig { ready_file: Some(path.clone()), ..config(&folder.path().join("store")) },
    )
    .unwrap();
    let ready: serde_json::Value = serde_json::from_slice(&RealDisk.read(&path, 1000).unwrap()).unwrap();
    assert_eq!(ready["pid"], std::process::id());
    assert_eq!(ready["broker"].as_str(), server.addresses().broker.as_deref());
    assert_eq!(ready["name_server"].as_str(), server.addresses().name_server.as_deref());
    server.stop(TIMEOUT).unwrap();
    assert!(RealDisk.read(&path, 1000).is_err());
}

#[test]
fn a_new_topic_has_a_route_at_once_and_an_automatic_one_soon() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(Role::Standalone, config(folder.path())).unwrap();
    let caller = Caller::new();
    let broker = server.addresses().broker.clone().unwrap();
    let name_server = server.addresses().name_server.clone().unwrap();
    assert!(caller.route(&name_server, "created").is_none());
    caller.create_topic(&broker, "created");
    let route = caller.route(&name_server, "created").expect("no route although the creation was answered");
    assert_eq!((route.queue_datas[0].read_queues, route.queue_datas[0].perm), (2, 6));

    assert_eq!(caller.send(&broker, "automatic", "x").code, 0);
    wait_until("the automatic topic has a route", || caller.route(&name_server, "automatic").is_some());
    assert_eq!(caller.route(&name_server, "automatic").unwrap().queue_datas[0].write_queues, 4);
}

#[test]
fn what_the_broker_says_about_its_configuration_can_be_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let mut given = config(&folder.path().join("store"));
    for (key, value) in [("flushDiskType", "SYNC_FLUSH"), ("regionId", "r1"), ("brokerIP1", "127.0.0.1")] {
        given.set(key, value).unwrap();
    }
    let server = Process::start(Role::Standalone, given).unwrap();
    let broker = server.addresses().broker.clone().unwrap();
    let text = Caller::new().call(&broker, Command::bare_request(request::GET_BROKER_CONFIG)).body;
    let file = folder.path().join("broker.conf");
    RealDisk.replace(&file, &text).unwrap();
    let read = ServerConfig::load(&Sources { file: Some(file), ..Sources::default() }).unwrap();
    assert!(!read.ignored.contains(&"regionId"), "{:?}", read.ignored);
    assert_eq!(read.port.unwrap().to_string(), broker.rsplit_once(':').unwrap().1);
    assert_eq!(read.broker.store.root, folder.path().join("store"));
    assert_eq!(read.broker.region_id, "r1");
    assert_eq!(read.broker.store.flush, rocketpy_broker::FlushMode::Sync);
}

#[test]
fn keys_change_while_the_server_runs_all_of_a_request_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(Role::Standalone, config(folder.path())).unwrap();
    let broker = server.addresses().broker.clone().unwrap();
    let caller = Caller::new();
    let update = |text: &str| {
        let request = Command::bare_request(request::UPDATE_BROKER_CONFIG);
        caller.call(&broker, request.with_body(text.as_bytes().to_vec()))
    };
    for (text, code, named) in [
        ("brokerPermission=4\nbrokerName=other\n", 16, "brokerName"),
        ("brokerPermission=4\nsendMessageThreadPoolNums=4\n", 16, "not used"),
        ("brokerPermission=4\nbrokerPermit=4\n", 16, "brokerPermit"),
        ("brokerPermission=4\nbrokerRole=SLAVE\n", 16, "brokerRole"),
        ("brokerPermission=4\norderMessageEnable=true\n", 16, "orderMessageEnable"),
        ("brokerPermission=5\n", 29, "brokerPermission"),
        ("brokerPermission=4\nfileReservedTime=\\u00zz", 29, "key=value"),
    ] {
        let answer = update(text);
        assert_eq!(answer.code, code, "{text}: {answer:?}");
        assert!(answer.remark.as_ref().unwrap().contains(named), "{answer:?}");
    }
    assert_eq!(caller.send(&broker, "orders", "all or none").code, 0);

    assert_eq!(
        update("# by mqadmin\nautoCreateTopicEnable=false\nautoCreateSubscriptionGroup = false\n").code,
        0
    );
    assert_eq!(caller.send(&broker, "unknown", "x").code, 17);
    assert_eq!(caller.send(&broker, "orders", "x").code, 0);
    assert_eq!(update("autoCreateTopicEnable=true\ndefaultTopicQueueNums=2").code, 0);
    assert_eq!(caller.send(&broker, "unknown", "x").code, 0);
    let name_server = server.addresses().name_server.clone().unwrap();
    wait_until("the topic has a route", || caller.route(&name_server, "unknown").is_some());
    assert_eq!(caller.route(&name_server, "unknown").unwrap().queue_datas[0].write_queues, 2);

    assert_eq!(update("brokerPermission=4").code, 0);
    wait_until("the route is read-only", || {
        caller.route(&name_server, "orders").is_some_and(|route| route.queue_datas[0].perm == 4)
    });
    assert_eq!(caller.send(&broker, "orders", "x").code, 0, "until clients have seen the route");
    let text = caller.call(&broker, Command::bare_request(request::GET_BROKER_CONFIG)).body;
    assert!(String::from_utf8_lossy(&text).contains("brokerPermission=4\n"));
}

#[test]
fn rules_of_retention_change_while_the_server_runs() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(Role::Standalone, config(folder.path())).unwrap();
    let broker = server.addresses().broker.clone().unwrap();
    let caller = Caller::new();
    let body = "x".repeat(300 << 10);
    for _ in 0..10 {
        assert_eq!(caller.send(&broker, "orders", &body).code, 0);
    }
    let request = || Command::bare_request(request::UPDATE_BROKER_CONFIG);
    let text = "retentionMaxBytes=1048576\ndeleteCommitLogFilesInterval=0\n";
    let log = folder.path().join("commitlog");
    wait_until("old files are removed", || {
        // Each change brings a round. The first one may come before the messages are flushed.
        assert_eq!(caller.call(&broker, request().with_body(text)).code, 0);
        // The file that is written, the one before it, and one made ahead.
        RealDisk.list(&log).unwrap().len() <= 3
    });
}

#[test]
fn a_stop_closes_what_still_waits() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(Role::Standalone, config(folder.path())).unwrap();
    let broker = server.addresses().broker.clone().unwrap();
    let caller = Caller::new();
    caller.create_topic(&broker, "orders");
    let waiting =
        std::thread::spawn(move || caller.try_call(&broker, crate::support::pull("orders", 0, 60_000)));
    // Whether the pull is held already or not: it must not outlive the server.
    server.stop(TIMEOUT).unwrap();
    match waiting.join().unwrap() {
        Ok(answer) => assert_eq!(answer.code, 19),
        Err(error) => assert!(error.retryable(), "{error}"),
    }
}

#[test]
fn a_store_keeps_the_size_of_its_log_files_unless_another_one_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(Role::Standalone, config(folder.path())).unwrap();
    let caller = Caller::new();
    let broker = server.addresses().broker.clone().unwrap();
    caller.send(&broker, "kept", "body");
    server.stop(TIMEOUT).unwrap();
    drop(server);

    let mut unsaid = ServerConfig { port: Some(0), name_server_port: Some(0), ..ServerConfig::default() };
    unsaid.broker.store.root = folder.path().to_owned();
    let mut other = unsaid.clone();
    let started = Process::start(Role::Standalone, unsaid).unwrap();
    let text = Caller::new()
        .call(started.addresses().broker.as_ref().unwrap(), Command::bare_request(request::GET_BROKER_CONFIG))
        .body;
    let text = String::from_utf8(text.to_vec()).unwrap();
    assert!(text.lines().any(|line| line == "mappedFileSizeCommitLog=1048576"), "{text}");
    started.stop(TIMEOUT).unwrap();
    // Of a broker.conf that does not say it.
    let file = folder.path().with_extension("conf");
    RealDisk.replace(&file, b"listenPort=0\nnameServerPort=0\n").unwrap();
    let mut of_file = ServerConfig::load(&Sources { file: Some(file), ..Sources::default() }).unwrap();
    of_file.broker.store.root = folder.path().to_owned();
    Process::start(Role::Standalone, of_file).unwrap().stop(TIMEOUT).unwrap();

    other.set("mappedFileSizeCommitLog", "67108864").unwrap();
    let error = Process::start(Role::Standalone, other).unwrap_err();
    assert!(error.to_string().contains("1048576") && error.to_string().contains("67108864"), "{error}");
    assert!(error.hint().unwrap().contains("mappedFileSizeCommitLog=1048576"), "{error}");
}

//! What tools change: permissions, topics, key-value configuration.
use std::time::Duration;

use rocketpy_protocol::body::{QueueData, TopicList, TopicRouteData};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::{Command, header, json};
use rocketpy_remoting::MemoryBudget;

use crate::support::*;

async fn perm(bench: &Bench, topic: &str) -> i32 {
    let route: TopicRouteData = json::from_slice(&bench.route(topic).await.body).expect("a route");
    route.queue_datas[0].perm
}

#[tokio::test]
async fn write_permission_is_wiped_and_given_back() {
    let bench = Bench::start().await;
    bench.register(MASTER, &["TopicTest", "TBW102"]).await;
    let wipe = header::WipeWritePermOfBrokerRequestHeader { broker_name: MASTER.name };
    let answer = bench.ask(request::WIPE_WRITE_PERM_OF_BROKER, &wipe).await;
    assert_eq!(answer.ext.get("wipeTopicCount"), Some("2"));
    assert_eq!(perm(&bench, "TopicTest").await, 4);
    bench.register(MASTER, &["TopicTest", "TBW102"]).await;
    assert_eq!(perm(&bench, "TopicTest").await, 4, "the same version changes nothing");
    let add = header::AddWritePermOfBrokerRequestHeader { broker_name: MASTER.name };
    let answer = bench.ask(request::ADD_WRITE_PERM_OF_BROKER, &add).await;
    assert_eq!(answer.ext.get("addTopicCount"), Some("2"));
    assert_eq!(perm(&bench, "TopicTest").await, 6);
    bench.ask(request::WIPE_WRITE_PERM_OF_BROKER, &wipe).await;
    bench.call(registration(MASTER, &["TopicTest", "TBW102"], 2)).await;
    assert_eq!(perm(&bench, "TopicTest").await, 6, "the next version restores it");
}

#[tokio::test]
async fn a_topic_is_deleted_and_registered() {
    let bench = Bench::start().await;
    bench.register(MASTER, &["TopicTest", "TBW102"]).await;
    let delete = |cluster_name| header::DeleteTopicFromNamesrvRequestHeader {
        topic: "TopicTest",
        cluster_name,
        broker_name: None,
    };
    bench.ask(request::DELETE_TOPIC_IN_NAMESRV, &delete(Some("elsewhere"))).await;
    assert_eq!(bench.route("TopicTest").await.code, response::SUCCESS);
    bench.ask(request::DELETE_TOPIC_IN_NAMESRV, &delete(Some("c1"))).await;
    assert_eq!(bench.route("TopicTest").await.code, response::TOPIC_NOT_EXIST);
    let register = |broker_name: &str| {
        let queues = QueueData {
            broker_name: broker_name.into(),
            read_queues: 3,
            write_queues: 3,
            perm: 6,
            sys_flag: 0,
        };
        let route = TopicRouteData { queue_datas: vec![queues], ..TopicRouteData::default() };
        Command::request(
            request::REGISTER_TOPIC_IN_NAMESRV,
            &header::RegisterTopicRequestHeader { topic: "TopicTest" },
        )
        .with_body(json::to_vec(&route))
    };
    let refused = bench.call(register("nobody")).await;
    assert_eq!(refused.code, response::SYSTEM_ERROR);
    assert!(refused.remark.expect("a remark").contains("nobody"));
    assert_eq!(bench.call(register(MASTER.name)).await.code, response::SUCCESS);
    assert!(text(&bench.route("TopicTest").await).contains(r#""readQueueNums":3"#));
    bench.ask(request::DELETE_TOPIC_IN_NAMESRV, &delete(None)).await;
    assert_eq!(bench.route("TopicTest").await.code, response::TOPIC_NOT_EXIST);
}

#[tokio::test]
async fn key_value_configuration_is_put_read_listed_and_deleted() {
    let bench = Bench::start().await;
    let get = header::GetKVConfigRequestHeader { namespace: "n", key: "k" };
    let list = header::GetKVListByNamespaceRequestHeader { namespace: "n" };
    for (code, request) in [
        (request::GET_KV_CONFIG, Command::request(request::GET_KV_CONFIG, &get)),
        (request::GET_KVLIST_BY_NAMESPACE, Command::request(request::GET_KVLIST_BY_NAMESPACE, &list)),
    ] {
        assert_eq!(bench.call(request).await.code, response::QUERY_NOT_FOUND, "{code}");
    }
    let put = header::PutKVConfigRequestHeader { namespace: "n", key: "k", value: "v \u{6807}" };
    bench.ask(request::PUT_KV_CONFIG, &put).await;
    assert_eq!(bench.ask(request::GET_KV_CONFIG, &get).await.ext.get("value"), Some("v \u{6807}"));
    let table: serde_json::Value =
        serde_json::from_slice(&bench.ask(request::GET_KVLIST_BY_NAMESPACE, &list).await.body).expect("JSON");
    assert_eq!(table, serde_json::json!({"table": {"k": "v \u{6807}"}}));
    bench
        .ask(request::DELETE_KV_CONFIG, &header::DeleteKVConfigRequestHeader { namespace: "n", key: "k" })
        .await;
    let answer = bench.call(Command::request(request::GET_KV_CONFIG, &get)).await;
    assert_eq!(answer.code, response::QUERY_NOT_FOUND);
    let nameless = header::PutKVConfigRequestHeader { namespace: "", key: "k", value: "v" };
    assert_eq!(
        bench.call(Command::request(request::PUT_KV_CONFIG, &nameless)).await.code,
        response::INVALID_PARAMETER
    );
}

#[tokio::test]
async fn the_configuration_is_told_under_the_known_names() {
    let bench = Bench::start_with(|config| config.scan_interval = Duration::from_secs(7)).await;
    let config = bench.text_of(request::GET_NAMESRV_CONFIG).await;
    let lines: Vec<&str> = config.lines().collect();
    assert!(lines.contains(&"scanNotActiveBrokerInterval=7000"), "{config}");
    assert!(lines.contains(&"orderMessageEnable=false"), "{config}");
    assert!(
        lines.contains(&format!("listenPort={}", bench.name_server.local_addr().port()).as_str()),
        "{config}"
    );
}

#[tokio::test]
async fn keys_and_values_have_limits_and_no_control_characters() {
    let bench = Bench::start().await;
    let (long_key, long_value) = ("k".repeat(256), "v".repeat(65_537));
    for (namespace, key, value, named) in [
        ("", "k", "v", "namespace"),
        ("n", &long_key, "v", "255"),
        (&long_key, "k", "v", "255"),
        ("n", "k\u{1b}[31m", "v", "control"),
        ("n\0", "k", "v", "control"),
        ("n", "k", &long_value, "65536"),
    ] {
        let put = header::PutKVConfigRequestHeader { namespace, key, value };
        let answer = bench.call(Command::request(request::PUT_KV_CONFIG, &put)).await;
        assert_eq!(answer.code, response::INVALID_PARAMETER, "{named}");
        let remark = answer.remark.expect("a remark");
        assert!(remark.contains(named) && remark.len() < 400 && !remark.contains('\u{1b}'), "{remark}");
    }
}

#[tokio::test]
async fn entries_of_peers_stay_within_the_budget_and_routes_are_served() {
    let budget = MemoryBudget::new(1 << 20);
    let bench = Bench::start_with(|config| config.memory = Some(budget.clone())).await;
    bench.register(MASTER, &["TopicTest", "TBW102"]).await;
    let value = "v".repeat(60_000);
    let mut refused = 0;
    for number in 0..50 {
        let key = number.to_string();
        let put = header::PutKVConfigRequestHeader { namespace: "n", key: &key, value: &value };
        let answer = bench.call(Command::request(request::PUT_KV_CONFIG, &put)).await;
        if answer.code != response::SUCCESS {
            assert_eq!(answer.code, response::SYSTEM_BUSY);
            assert!(answer.remark.expect("a remark").contains("maxPeerBytes"));
            refused += 1;
        }
    }
    assert!(refused > 40, "{refused} of 50 entries were refused");
    assert!(budget.used_bytes() <= 1 << 18, "a quarter of the budget");
    assert_eq!(bench.route("TopicTest").await.code, response::SUCCESS);
    bench.register(MASTER, &["TopicTest", "TBW102"]).await;
}

#[tokio::test]
async fn topics_are_listed_by_their_unit_flags() {
    let bench = Bench::start().await;
    bench.register(MASTER, &["plain", "TBW102"]).await;
    for (topic, sys_flag) in [("unit", 1), ("sub", 2), ("both", 3)] {
        let queues =
            QueueData { broker_name: MASTER.name.into(), read_queues: 1, write_queues: 1, perm: 6, sys_flag };
        let route = TopicRouteData { queue_datas: vec![queues], ..TopicRouteData::default() };
        let header = header::RegisterTopicRequestHeader { topic };
        let register = Command::request(request::REGISTER_TOPIC_IN_NAMESRV, &header);
        let answer = bench.call(register.with_body(json::to_vec(&route))).await;
        assert_eq!(answer.code, response::SUCCESS);
    }
    for (code, expected) in [
        (request::GET_UNIT_TOPIC_LIST, &["both", "unit"][..]),
        (request::GET_HAS_UNIT_SUB_TOPIC_LIST, &["both", "sub"]),
        (request::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, &["sub"]),
    ] {
        let list: TopicList = serde_json::from_str(&bench.text_of(code).await).expect("a list");
        assert_eq!(list.topic_list, expected, "{code}");
    }
}

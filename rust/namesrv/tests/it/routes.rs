//! What clients read: routes and lists, to the letter.
use rocketpy_model::printable::printable;
use rocketpy_namesrv::{NameServer, NameServerConfig};
use rocketpy_protocol::body::TopicRouteData;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::{Command, header, json};

use crate::support::*;

#[tokio::test]
async fn a_route_is_compact_json_with_quoted_ids_and_both_spellings_of_the_system_flag() {
    let bench = Bench::start().await;
    assert_eq!(bench.register(MASTER, &["TopicTest", "TBW102"]).await.code, response::SUCCESS);
    let slave = Broker { addr: "10.0.0.3:10911", id: 1, ..MASTER };
    assert_eq!(bench.register(slave, &["TopicTest", "TBW102"]).await.code, response::SUCCESS);
    let expected = concat!(
        r#"{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.2:10911","1":"10.0.0.3:10911"},"brokerName":"b-a","cluster":"c1","#,
        r#""enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"b-a","perm":6,"#,
        r#""readQueueNums":4,"topicSynFlag":0,"topicSysFlag":0,"writeQueueNums":4}]}"#
    );
    assert_eq!(text(&bench.route("TopicTest").await), expected);
    // Go announces 317, C++ 333: they read the same text.
    let header =
        header::GetRouteInfoRequestHeader { topic: "TopicTest", accept_standard_json_only: Some(true) };
    for version in [0, 317, 333, 479] {
        let request = Command { version, ..Command::request(request::GET_ROUTEINFO_BY_TOPIC, &header) };
        assert_eq!(text(&bench.call(request).await), expected, "version {version}");
    }
}

#[tokio::test]
async fn a_topic_on_two_brokers_has_both_in_its_route() {
    let bench = Bench::start().await;
    bench.register(MASTER, &["shared", "only-a"]).await;
    bench.register(Broker { name: "b-b", addr: "10.0.0.4:10911", ..MASTER }, &["shared", "only-b"]).await;
    let route: TopicRouteData = json::from_slice(&bench.route("shared").await.body).expect("a route");
    let names = |route: &TopicRouteData| {
        route.broker_datas.iter().map(|data| data.broker_name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&route), ["b-a", "b-b"]);
    assert_eq!(route.queue_datas.len(), 2);
    let route: TopicRouteData = json::from_slice(&bench.route("only-b").await.body).expect("a route");
    assert_eq!(names(&route), ["b-b"]);
}

#[tokio::test]
async fn an_unknown_topic_has_no_route_and_the_remark_names_it() {
    let bench = Bench::start().await;
    bench.register(MASTER, &["TopicTest", "TBW102"]).await;
    for topic in ["orders", "", "../etc/passwd", "\u{0}\"}"] {
        let answer = bench.route(topic).await;
        assert_eq!((answer.code, answer.body.len()), (response::TOPIC_NOT_EXIST, 0));
        assert!(
            answer.remark.expect("a remark").contains(&*printable(topic)),
            "control characters are escaped"
        );
    }
}

#[tokio::test]
async fn a_route_query_without_a_topic_names_the_missing_field() {
    let bench = Bench::start().await;
    let answer = bench.call(Command::bare_request(request::GET_ROUTEINFO_BY_TOPIC)).await;
    assert_eq!(answer.code, response::INVALID_PARAMETER);
    assert!(answer.remark.expect("a remark").contains("topic"));
}

#[tokio::test]
async fn names_with_quotes_and_other_letters_stay_json() {
    let bench = Bench::start().await;
    let odd = "t\"op\\ic-\u{6807}";
    let put = header::PutKVConfigRequestHeader { namespace: "n", key: odd, value: odd };
    bench.ask(request::PUT_KV_CONFIG, &put).await;
    let list = header::GetKVListByNamespaceRequestHeader { namespace: "n" };
    let answer = bench.ask(request::GET_KVLIST_BY_NAMESPACE, &list).await;
    let table: serde_json::Value = serde_json::from_slice(&answer.body).expect("standard JSON");
    assert_eq!(table["table"][odd], odd);
}

#[tokio::test]
async fn cluster_info_lists_brokers_and_clusters() {
    let bench = Bench::start().await;
    assert_eq!(
        bench.text_of(request::GET_BROKER_CLUSTER_INFO).await,
        r#"{"brokerAddrTable":{},"clusterAddrTable":{}}"#
    );
    bench.register(MASTER, &["TopicTest", "TBW102"]).await;
    assert_eq!(
        bench.text_of(request::GET_BROKER_CLUSTER_INFO).await,
        concat!(
            r#"{"brokerAddrTable":{"b-a":{"brokerAddrs":{"0":"10.0.0.2:10911"},"brokerName":"b-a","cluster":"c1","#,
            r#""enableActingMaster":false}},"clusterAddrTable":{"c1":["b-a"]}}"#
        )
    );
}

#[tokio::test]
async fn the_brokers_of_a_name_are_told_by_id() {
    let bench = Bench::start().await;
    bench.register(MASTER, &["TopicTest", "TBW102"]).await;
    let group = |broker_name| header::GetBrokerMemberGroupRequestHeader { cluster_name: "c1", broker_name };
    for (name, addrs) in [("b-a", r#"{"0":"10.0.0.2:10911"}"#), ("none", "{}")] {
        let answer = bench.ask(request::GET_BROKER_MEMBER_GROUP, &group(name)).await;
        let body = format!(
            r#"{{"brokerMemberGroup":{{"brokerAddrs":{addrs},"brokerName":"{name}","cluster":"c1"}}}}"#
        );
        assert_eq!(text(&answer), body);
    }
}

#[tokio::test]
async fn topics_are_listed_altogether_by_cluster_and_of_the_system() {
    let bench = Bench::start().await;
    bench.register(MASTER, &["TopicTest", "TBW102"]).await;
    let other = Broker { cluster: "c2", name: "b-b", addr: "10.0.0.4:10911", ..MASTER };
    bench.register(other, &["Other", "TBW102"]).await;
    assert_eq!(
        bench.text_of(request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER).await,
        r#"{"topicList":["Other","TBW102","TopicTest"]}"#
    );
    let by_cluster = |cluster| header::GetTopicsByClusterRequestHeader { cluster };
    let answer = bench.ask(request::GET_TOPICS_BY_CLUSTER, &by_cluster("c2")).await;
    assert_eq!(text(&answer), r#"{"topicList":["Other","TBW102"]}"#);
    let answer = bench.ask(request::GET_TOPICS_BY_CLUSTER, &by_cluster("none")).await;
    assert_eq!(text(&answer), r#"{"topicList":[]}"#);
    let system = bench.text_of(request::GET_SYSTEM_TOPIC_LIST_FROM_NS).await;
    assert_eq!(system, r#"{"brokerAddr":"10.0.0.2:10911","topicList":["c1","b-a","c2","b-b"]}"#);
}

#[tokio::test]
async fn order_configuration_goes_into_the_route_when_it_is_switched_on() {
    for enabled in [false, true] {
        let bench = Bench::start_with(|config| config.order_message_enabled = enabled).await;
        bench.register(MASTER, &["TopicTest", "TBW102"]).await;
        let put = header::PutKVConfigRequestHeader {
            namespace: "ORDER_TOPIC_CONFIG",
            key: "TopicTest",
            value: "b-a:4",
        };
        bench.ask(request::PUT_KV_CONFIG, &put).await;
        let route: TopicRouteData = json::from_slice(&bench.route("TopicTest").await.body).expect("a route");
        assert_eq!(route.order_topic_conf.as_deref(), enabled.then_some("b-a:4"));
    }
}

#[tokio::test]
async fn unknown_codes_are_refused_by_name() {
    let bench = Bench::start().await;
    for code in [request::SEND_MESSAGE, 31_000] {
        let answer = bench.call(Command::bare_request(code)).await;
        assert_eq!(answer.code, response::REQUEST_CODE_NOT_SUPPORTED);
        assert!(answer.remark.expect("a remark").contains(&code.to_string()));
    }
}

#[tokio::test]
async fn a_restart_knows_nothing_until_the_brokers_register_again() {
    let bench = Bench::start().await;
    bench.register(MASTER, &["TopicTest", "TBW102"]).await;
    let listen = bench.name_server.local_addr();
    soon(bench.name_server.shutdown()).await;
    let name_server = NameServer::start(NameServerConfig::new(listen)).await.expect("the address is free");
    let again = Bench { name_server, client: bench.client };
    assert_eq!(again.route("TopicTest").await.code, response::TOPIC_NOT_EXIST);
    again.register(MASTER, &["TopicTest", "TBW102"]).await;
    assert_eq!(again.route("TopicTest").await.code, response::SUCCESS);
}

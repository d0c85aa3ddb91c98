//! Who is alive: connections that end, brokers that fall silent, brokers that leave.
use std::time::Duration;

use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::{Command, header, json};
use rocketpy_remoting::{Client, ClientConfig};

use crate::support::*;

/// Asks until the topic has no route. The name server may close the asking connection as well, for being idle.
async fn until_gone(bench: &Bench, topic: &str) {
    let header = header::GetRouteInfoRequestHeader { topic, accept_standard_json_only: None };
    soon(async {
        loop {
            let request = Command::request(request::GET_ROUTEINFO_BY_TOPIC, &header);
            match bench.client.call(&bench.addr(), request, PATIENCE).await {
                Ok(answer) if answer.code == response::TOPIC_NOT_EXIST => return,
                Ok(answer) => assert_eq!(answer.code, response::SUCCESS),
                Err(error) => assert!(error.retryable(), "{error}"),
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn heartbeat() -> Command {
    let header = header::BrokerHeartbeatRequestHeader {
        cluster_name: MASTER.cluster,
        broker_addr: MASTER.addr,
        broker_name: MASTER.name,
        broker_id: Some(MASTER.id),
        epoch: None,
        max_offset: None,
        confirm_offset: None,
        heartbeat_timeout_mills: None,
        election_priority: None,
    };
    Command::request(request::BROKER_HEARTBEAT, &header)
}

#[tokio::test]
async fn a_closed_connection_unregisters_its_broker_at_once() {
    let bench = Bench::start().await;
    let broker = Client::new(ClientConfig::default());
    broker
        .call(&bench.addr(), registration(MASTER, &["TopicTest", "TBW102"], 1), PATIENCE)
        .await
        .expect("registers");
    bench.register(Broker { name: "b-b", addr: "10.0.0.4:10911", ..MASTER }, &["Other", "TBW102"]).await;
    assert_eq!(bench.route("TopicTest").await.code, response::SUCCESS);
    broker.close();
    until_gone(&bench, "TopicTest").await;
    assert_eq!(bench.route("Other").await.code, response::SUCCESS, "the other broker stays");
}

#[tokio::test]
async fn a_silent_broker_goes_after_its_own_timeout_and_its_connection_is_closed() {
    let bench = Bench::start_with(|config| config.scan_interval = Duration::from_millis(5)).await;
    let broker = Client::new(ClientConfig::default());
    let impatient = Broker { heartbeat_timeout_ms: Some(100), ..MASTER };
    let request = registration(impatient, &["TopicTest", "TBW102"], 1);
    let connection = broker.connection(&bench.addr(), PATIENCE).await.expect("open");
    let answer = broker.call(&bench.addr(), request, PATIENCE).await.expect("registers");
    assert_eq!(answer.code, response::SUCCESS);
    until_gone(&bench, "TopicTest").await;
    soon(async {
        while connection.is_open() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_heartbeat_keeps_a_broker_alive() {
    let bench = Bench::start_with(|config| config.scan_interval = Duration::from_millis(5)).await;
    let impatient = Broker { heartbeat_timeout_ms: Some(1000), ..MASTER };
    let broker = Client::new(ClientConfig::default());
    let request = registration(impatient, &["TopicTest", "TBW102"], 1);
    broker.call(&bench.addr(), request, PATIENCE).await.expect("registers");
    let started = std::time::Instant::now();
    while started.elapsed() < Duration::from_millis(1500) {
        broker.call_oneway(&bench.addr(), heartbeat(), PATIENCE).await.expect("queued");
        assert_eq!(bench.route("TopicTest").await.code, response::SUCCESS);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until_gone(&bench, "TopicTest").await;
    assert_eq!(
        bench.call(heartbeat()).await.code,
        response::SUCCESS,
        "asked without the one-way bit, it is answered"
    );
}

#[tokio::test]
async fn a_broker_takes_its_leave() {
    let bench = Bench::start().await;
    bench.register(MASTER, &["TopicTest", "TBW102"]).await;
    let header = header::UnRegisterBrokerRequestHeader {
        broker_name: MASTER.name,
        broker_addr: MASTER.addr,
        cluster_name: MASTER.cluster,
        broker_id: MASTER.id,
    };
    bench.ask(request::UNREGISTER_BROKER, &header).await;
    assert_eq!(bench.route("TopicTest").await.code, response::TOPIC_NOT_EXIST);
    assert_eq!(
        bench.text_of(request::GET_BROKER_CLUSTER_INFO).await,
        r#"{"brokerAddrTable":{},"clusterAddrTable":{}}"#
    );
    bench.ask(request::UNREGISTER_BROKER, &header).await;
}

#[tokio::test]
async fn another_connection_neither_unregisters_nor_replaces_a_living_broker() {
    let bench = Bench::start().await;
    bench.register(MASTER, &["TopicTest", "TBW102"]).await;
    let stranger = Client::new(ClientConfig::default());
    let ask = async |command| stranger.call(&bench.addr(), command, PATIENCE).await.expect("an answer");
    let header = header::UnRegisterBrokerRequestHeader {
        broker_name: MASTER.name,
        broker_addr: MASTER.addr,
        cluster_name: MASTER.cluster,
        broker_id: MASTER.id,
    };
    let unregistration = || Command::request(request::UNREGISTER_BROKER, &header);
    let refused = ask(unregistration()).await;
    assert_eq!(refused.code, response::SYSTEM_ERROR);
    assert!(refused.remark.expect("a remark").contains("another connection"));
    let mut later = body(&["TopicTest", "Stolen"], 9);
    later.topic_config_serialize_wrapper.data_version.state_version = 7;
    for broker in [
        Broker { addr: "10.0.0.9:10911", ..MASTER },
        Broker { name: "b-b", ..MASTER },
        Broker { cluster: "c2", ..MASTER },
    ] {
        let header = register_header(broker);
        let request = Command::request(request::REGISTER_BROKER, &header).with_body(json::to_vec(&later));
        assert_eq!(ask(request).await.code, response::SYSTEM_ERROR, "{} {}", broker.addr, broker.name);
    }
    assert_eq!(bench.route("Stolen").await.code, response::TOPIC_NOT_EXIST);
    assert!(text(&bench.route("TopicTest").await).contains(MASTER.addr));

    // The broker itself restarts without a word, on the same machine.
    let restarted = Client::new(ClientConfig::default());
    let request = registration(MASTER, &["TopicTest", "TBW102"], 1);
    let answer = restarted.call(&bench.addr(), request, PATIENCE).await.expect("an answer");
    assert_eq!(answer.code, response::SUCCESS);
    let answer = restarted.call(&bench.addr(), unregistration(), PATIENCE).await.expect("an answer");
    assert_eq!(answer.code, response::SUCCESS);
    assert_eq!(bench.route("TopicTest").await.code, response::TOPIC_NOT_EXIST);
}

#[tokio::test]
async fn an_idle_broker_connection_counts_as_closed() {
    let bench = Bench::start_with(|config| config.idle_timeout = Duration::from_millis(150)).await;
    let broker = Client::new(ClientConfig::default());
    broker
        .call(&bench.addr(), registration(MASTER, &["TopicTest", "TBW102"], 1), PATIENCE)
        .await
        .expect("registers");
    until_gone(&bench, "TopicTest").await;
}

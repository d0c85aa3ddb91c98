//! A name server on a free port and the peers that talk to it.
use std::collections::BTreeMap;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use rocketpy_model::{DataVersion, TopicConfig};
use rocketpy_namesrv::{NameServer, NameServerConfig};
use rocketpy_protocol::body::{RegisterBrokerBody, TopicConfigSerializeWrapper};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::{Command, Header, header, json};
use rocketpy_remoting::{Client, ClientConfig};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(PATIENCE, what).await.expect("it did not happen in time")
}

/// A running name server, and one peer's client.
pub(crate) struct Bench {
    pub name_server: NameServer,
    pub client: Client,
}

/// Who registers, with defaults that a test changes.
#[derive(Clone, Copy)]
pub(crate) struct Broker {
    pub cluster: &'static str,
    pub name: &'static str,
    pub addr: &'static str,
    pub id: i64,
    pub heartbeat_timeout_ms: Option<i64>,
}

pub(crate) const MASTER: Broker =
    Broker { cluster: "c1", name: "b-a", addr: "10.0.0.2:10911", id: 0, heartbeat_timeout_ms: None };

impl Bench {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut NameServerConfig)) -> Self {
        let mut config = NameServerConfig::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        change(&mut config);
        let name_server = NameServer::start(config).await.expect("starts");
        Self { name_server, client: Client::new(ClientConfig::default()) }
    }

    pub(crate) fn addr(&self) -> String {
        self.name_server.local_addr().to_string()
    }

    pub(crate) async fn call(&self, command: Command) -> Command {
        self.client.call(&self.addr(), command, PATIENCE).await.expect("an answer")
    }

    /// Calls and expects success.
    pub(crate) async fn ask<'a>(&self, code: i32, header: &impl Header<'a>) -> Command {
        let answer = self.call(Command::request(code, header)).await;
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
        answer
    }

    pub(crate) async fn register(&self, broker: Broker, topics: &[&str]) -> Command {
        self.call(registration(broker, topics, 1)).await
    }

    pub(crate) async fn route(&self, topic: &str) -> Command {
        let header = header::GetRouteInfoRequestHeader { topic, accept_standard_json_only: None };
        self.call(Command::request(request::GET_ROUTEINFO_BY_TOPIC, &header)).await
    }

    /// The body of an answer, as text.
    pub(crate) async fn text_of(&self, code: i32) -> String {
        text(&self.ask(code, &header::NoHeader).await)
    }
}

pub(crate) fn text(answer: &Command) -> String {
    String::from_utf8(answer.body.to_vec()).expect("UTF-8")
}

pub(crate) fn version(counter: i64) -> DataVersion {
    DataVersion { counter, state_version: 0, changed_at_ms: 1_700_000_000_000 }
}

pub(crate) fn body(topics: &[&str], counter: i64) -> RegisterBrokerBody {
    let topics: BTreeMap<_, _> =
        topics.iter().map(|name| ((*name).to_owned(), TopicConfig::new(*name, 4))).collect();
    RegisterBrokerBody {
        topic_config_serialize_wrapper: TopicConfigSerializeWrapper {
            topic_config_table: topics,
            data_version: version(counter),
            ..Default::default()
        },
        ..Default::default()
    }
}

pub(crate) fn register_header(broker: Broker) -> header::RegisterBrokerRequestHeader<'static> {
    header::RegisterBrokerRequestHeader {
        broker_name: broker.name,
        broker_addr: broker.addr,
        cluster_name: broker.cluster,
        ha_server_addr: "10.0.0.2:10912",
        broker_id: broker.id,
        heartbeat_timeout_millis: broker.heartbeat_timeout_ms,
        enable_acting_master: Some(false),
        compressed: Some(false),
        body_crc32: None,
        zone_name: None,
        zone_mode: None,
        member_proof: None,
    }
}

pub(crate) fn registration(broker: Broker, topics: &[&str], counter: i64) -> Command {
    let body = json::to_vec(&body(topics, counter));
    let header = header::RegisterBrokerRequestHeader {
        body_crc32: Some(i32::try_from(RegisterBrokerBody::checksum(&body)).expect("31 bits")),
        ..register_header(broker)
    };
    Command::request(request::REGISTER_BROKER, &header).with_body(body)
}

//! A client that blocks, and configurations on temporary folders.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketpy_protocol::body::TopicRouteData;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{
    CreateTopicRequestHeader, GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader,
    GetRouteInfoRequestHeader, Header, PullMessageRequestHeader, PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader, QueryConsumerOffsetResponseHeader, SendMessageRequestHeader,
    SendMessageRequestHeaderV2, UpdateConsumerOffsetRequestHeader,
};
use rocketpy_protocol::record::records;
use rocketpy_protocol::{Command, json};
use rocketpy_remoting::{
    CallError, Client, ClientConfig, Connection, Credentials, Handler, Reply, Response, Signer,
};
use rocketpy_server::ServerConfig;
use rocketpy_server::config::NamedSecret;

/// Longest time of one call or stop, on a disk that may stall.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// Longest a test waits for something that many calls make so.
const PATIENCE: Duration = Duration::from_secs(120);

/// Small files and free ports, on a folder.
pub(crate) fn config(store: &Path) -> ServerConfig {
    let mut config = ServerConfig { port: Some(0), name_server_port: Some(0), ..ServerConfig::default() };
    config.broker.store.root = store.to_owned();
    config.broker.store.commit_log_file_size = 1 << 20;
    config.broker.store.busy_timeout = TIMEOUT;
    config.broker.sync_flush_timeout = TIMEOUT;
    config
}

/// Hands on each request of a server.
struct Pushes(Mutex<Sender<Command>>);

impl Handler for Pushes {
    fn handle(&self, _connection: &Arc<Connection>, request: Command, reply: Reply) {
        let _ = self.0.lock().send(request);
        reply.send(Response::success());
    }
}

/// Calls commands and waits for their answers.
pub(crate) struct Caller {
    runtime: tokio::runtime::Runtime,
    client: Client,
}

impl Caller {
    pub(crate) fn new() -> Self {
        Self::with(ClientConfig::default())
    }

    /// Signs every call.
    pub(crate) fn of_user(user: &NamedSecret) -> Self {
        let signer = Signer::new(Credentials::new(&user.name, &user.secret));
        Self::with(ClientConfig { hook: Some(Arc::new(signer)), ..ClientConfig::default() })
    }

    fn with(config: ClientConfig) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self { runtime, client: Client::new(config) }
    }

    /// Requests of servers to this client, each answered with success.
    pub(crate) fn pushes(&self) -> Receiver<Command> {
        let (sender, receiver) = channel();
        self.client.set_request_handler(Arc::new(Pushes(Mutex::new(sender))));
        receiver
    }

    pub(crate) fn try_call(&self, address: &str, command: Command) -> Result<Command, CallError> {
        self.runtime.block_on(self.client.call(address, command, TIMEOUT))
    }

    pub(crate) fn call(&self, address: &str, command: Command) -> Command {
        self.try_call(address, command).unwrap()
    }

    /// Two calls at the same time.
    pub(crate) fn call_both(&self, address: &str, [one, other]: [Command; 2]) -> [Command; 2] {
        let call = |command| self.client.call(address, command, TIMEOUT);
        let (one, other) = self.runtime.block_on(async { tokio::join!(call(one), call(other)) });
        [one.unwrap(), other.unwrap()]
    }

    pub(crate) fn send(&self, broker: &str, topic: &str, body: &str) -> Command {
        self.call(broker, send(topic, body))
    }

    /// Whether the broker acknowledges a message. A broker that changes its role closes its port for a moment.
    pub(crate) fn is_acknowledged(&self, broker: &str, topic: &str, body: &str) -> bool {
        self.try_call(broker, send(topic, body)).is_ok_and(|answer| answer.code == response::SUCCESS)
    }

    /// Sends them one behind the other without waiting; returns what became of each.
    pub(crate) fn send_all(
        &self,
        broker: &str,
        topic: &str,
        bodies: impl Iterator<Item = String>,
    ) -> Vec<Result<Command, CallError>> {
        self.runtime.block_on(async {
            let mut calls = Vec::new();
            for body in bodies {
                calls.push(self.client.start_call(broker, send(topic, &body), TIMEOUT).await);
            }
            let mut answers = Vec::new();
            for call in calls {
                answers.push(match call {
                    Ok(call) => call.await,
                    Err(error) => Err(error),
                });
            }
            answers
        })
    }

    pub(crate) fn create_topic(&self, broker: &str, topic: &str) {
        let answer = self.call(broker, create_topic(topic));
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
    }

    /// The route of a topic, `None` when the name server has none.
    pub(crate) fn route(&self, name_server: &str, topic: &str) -> Option<TopicRouteData> {
        let header = GetRouteInfoRequestHeader { topic, accept_standard_json_only: Some(true) };
        let answer = self.call(name_server, Command::request(request::GET_ROUTEINFO_BY_TOPIC, &header));
        (answer.code == 0).then(|| json::from_slice(&answer.body).unwrap())
    }

    /// Commits an offset of queue 0.
    pub(crate) fn commit(&self, broker: &str, consumer_group: &str, topic: &str, commit_offset: i64) {
        let header = UpdateConsumerOffsetRequestHeader {
            consumer_group,
            topic,
            queue_id: 0,
            commit_offset,
            broker_name: None,
        };
        let answer = self.call(broker, Command::request(request::UPDATE_CONSUMER_OFFSET, &header));
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
    }

    /// What a group has committed of queue 0.
    pub(crate) fn committed(&self, broker: &str, consumer_group: &str, topic: &str) -> Option<i64> {
        let header = QueryConsumerOffsetRequestHeader {
            consumer_group,
            topic,
            queue_id: 0,
            set_zero_if_not_found: Some(false),
            broker_name: None,
        };
        let answer = self.call(broker, Command::request(request::QUERY_CONSUMER_OFFSET, &header));
        QueryConsumerOffsetResponseHeader::read(&answer.ext).ok().map(|found| found.offset)
    }

    fn max_offset(&self, broker: &str, topic: &str) -> i64 {
        let header = GetMaxOffsetRequestHeader { topic, queue_id: 0, committed: None };
        let answer = self.call(broker, Command::request(request::GET_MAX_OFFSET, &header));
        GetMaxOffsetResponseHeader::read(&answer.ext).unwrap().offset
    }

    /// All bodies of queue 0 of a topic, also those that dispatch has not reached yet.
    pub(crate) fn read_all(&self, broker: &str, topic: &str) -> Vec<String> {
        let (mut bodies, started) = (Vec::new(), Instant::now());
        loop {
            let answer = self.call(broker, pull(topic, bodies.len() as i64, 0));
            if answer.code != 0 {
                let codes = [response::TOPIC_NOT_EXIST, response::PULL_NOT_FOUND];
                assert!(codes.contains(&answer.code), "{answer:?}");
                if answer.code == response::TOPIC_NOT_EXIST
                    || bodies.len() as i64 >= self.max_offset(broker, topic)
                {
                    return bodies;
                }
                assert!(started.elapsed() < PATIENCE, "messages behind {} stay unread", bodies.len());
                continue;
            }
            for record in records(&answer.body) {
                bodies.push(String::from_utf8(record.unwrap().body.to_vec()).unwrap());
            }
            assert_eq!(
                PullMessageResponseHeader::read(&answer.ext).unwrap().next_begin_offset,
                bodies.len() as i64
            );
        }
    }
}

pub(crate) fn send(topic: &str, body: &str) -> Command {
    send_with(topic, body, None)
}

/// A message with properties, as `NAME\u{1}value\u{2}`.
pub(crate) fn send_with(topic: &str, body: &str, properties: Option<&str>) -> Command {
    let header = SendMessageRequestHeader {
        producer_group: "producers",
        topic,
        default_topic: "TBW102",
        default_topic_queue_nums: 4,
        queue_id: 0,
        sys_flag: 0,
        born_timestamp: 0,
        flag: 0,
        properties,
        reconsume_times: None,
        unit_mode: None,
        max_reconsume_times: None,
        batch: None,
        broker_name: None,
    };
    let command = Command::request(request::SEND_MESSAGE_V2, &SendMessageRequestHeaderV2(header));
    command.with_body(body.as_bytes().to_vec())
}

pub(crate) fn pull(topic: &str, offset: i64, suspend_ms: i64) -> Command {
    pull_as("TOOLS_CONSUMER", topic, offset, suspend_ms)
}

pub(crate) fn pull_as(consumer_group: &str, topic: &str, offset: i64, suspend_ms: i64) -> Command {
    let header = PullMessageRequestHeader {
        consumer_group,
        topic,
        queue_id: 0,
        queue_offset: offset,
        max_msg_nums: 1000,
        sys_flag: if suspend_ms > 0 { 6 } else { 4 },
        commit_offset: 0,
        suspend_timeout_millis: suspend_ms,
        subscription: Some("*"),
        sub_version: 0,
        expression_type: None,
        max_msg_bytes: None,
        request_source: None,
        proxy_froward_client_id: None,
        broker_name: None,
    };
    Command::request(request::PULL_MESSAGE, &header)
}

pub(crate) fn create_topic(topic: &str) -> Command {
    topic_with(topic, 2)
}

/// Creates the topic, or changes its number of queues.
pub(crate) fn topic_with(topic: &str, queues: i32) -> Command {
    let header = CreateTopicRequestHeader {
        topic,
        default_topic: "TBW102",
        read_queue_nums: queues,
        write_queue_nums: queues,
        perm: 6,
        topic_filter_type: "SINGLE_TAG",
        topic_sys_flag: None,
        order: None,
        attributes: None,
        force: None,
    };
    Command::request(request::UPDATE_AND_CREATE_TOPIC, &header)
}

/// Polls a condition; the time-out is a failure, not a pace.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

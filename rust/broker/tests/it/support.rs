//! A broker on a temporary folder, and a client that speaks to it in commands.

use std::time::Duration;

use rocketpy_broker::{Broker, BrokerConfig, StoreConfig};
use rocketpy_model::sys_flag::pull as flag;
use rocketpy_protocol::body::{ConsumerData, HeartbeatData, MessageModel, ProducerData, SubscriptionData};
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{
    CreateTopicRequestHeader, GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader, Header,
    PullMessageRequestHeader, PullMessageResponseHeader, SendMessageRequestHeader,
    SendMessageRequestHeaderV2, SendMessageResponseHeader,
};
use rocketpy_protocol::record::{RecordView, records};
use rocketpy_protocol::{Command, batch, json};
use rocketpy_remoting::{Client, ClientConfig};
use tempfile::TempDir;

/// Longest a test waits for something that must happen, on a disk that may stall.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A running broker and a client.
pub(crate) struct Fixture {
    pub broker: Broker,
    pub client: Client,
    pub address: String,
    pub folder: TempDir,
    pub config: BrokerConfig,
}

pub(crate) fn config(folder: &TempDir) -> BrokerConfig {
    BrokerConfig {
        store: StoreConfig {
            commit_log_file_size: 1 << 20,
            consume_queue_file_size: 2000,
            busy_timeout: TIMEOUT,
            ..StoreConfig::new(folder.path().join("store"))
        },
        listen: "127.0.0.1:0".parse().unwrap(),
        sync_flush_timeout: TIMEOUT,
        ..BrokerConfig::default()
    }
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut BrokerConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(&folder);
        change(&mut config);
        Self::start_on(folder, config).await
    }

    pub(crate) async fn start_on(folder: TempDir, config: BrokerConfig) -> Self {
        let broker = Broker::start(config.clone()).await.unwrap();
        let address = broker.local_addr().to_string();
        Self { broker, client: Client::new(ClientConfig::default()), address, folder, config }
    }

    /// Stops the broker in order and starts another one on the same folder.
    pub(crate) async fn restart(self) -> Self {
        self.restart_with(|_| {}).await
    }

    pub(crate) async fn restart_with(self, change: impl FnOnce(&mut BrokerConfig)) -> Self {
        self.broker.shutdown().await;
        let Self { broker, folder, mut config, .. } = self;
        drop(broker);
        change(&mut config);
        Self::start_on(folder, config).await
    }

    pub(crate) async fn call(&self, request: Command) -> Command {
        self.client.call(&self.address, request, TIMEOUT).await.unwrap()
    }

    /// A client with a connection of its own.
    pub(crate) fn other_client(&self) -> Client {
        Client::new(ClientConfig::default())
    }

    pub(crate) async fn send(&self, send: Send<'_>) -> Command {
        self.call(send.command()).await
    }

    /// Sends a plain message that must be stored; returns its queue offset.
    pub(crate) async fn put(&self, topic: &str, queue_id: i32, body: &str) -> i64 {
        self.put_tagged(topic, queue_id, body, "").await
    }

    pub(crate) async fn put_tagged(&self, topic: &str, queue_id: i32, body: &str, tag: &str) -> i64 {
        let properties = if tag.is_empty() { String::new() } else { format!("TAGS\u{1}{tag}\u{2}") };
        let answer = self.send(Send { queue_id, properties: &properties, ..Send::new(topic, body) }).await;
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
        SendMessageResponseHeader::read(&answer.ext).unwrap().queue_offset
    }

    pub(crate) async fn pull(&self, pull: Pull<'_>) -> Pulled {
        Pulled::of(self.call(pull.command()).await)
    }

    pub(crate) async fn max_offset(&self, topic: &str, queue_id: i32) -> i64 {
        self.end(topic, queue_id, None).await
    }

    pub(crate) async fn next_offset(&self, topic: &str, queue_id: i32) -> i64 {
        self.end(topic, queue_id, Some(false)).await
    }

    async fn end(&self, topic: &str, queue_id: i32, committed: Option<bool>) -> i64 {
        let header = GetMaxOffsetRequestHeader { topic, queue_id, committed };
        let answer = self.call(Command::request(request::GET_MAX_OFFSET, &header)).await;
        GetMaxOffsetResponseHeader::read(&answer.ext).unwrap().offset
    }

    /// Waits until the queue shows `offset` as its end: an append is acknowledged before it can be read.
    pub(crate) async fn wait_for_end(&self, topic: &str, queue_id: i32, offset: i64) {
        wait_until("the queue grows", async || self.max_offset(topic, queue_id).await >= offset).await;
    }

    pub(crate) async fn create_topic(&self, topic: &str, queues: i32) {
        let answer = self.call(create_topic(topic, queues, 6)).await;
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
    }

    pub(crate) async fn heartbeat(&self, client: &Client, data: &HeartbeatData) -> Command {
        let request = Command::bare_request(request::HEART_BEAT).with_body(json::to_vec(data));
        client.call(&self.address, request, TIMEOUT).await.unwrap()
    }
}

/// Polls a condition; the time-out is a failure, not a pace.
pub(crate) async fn wait_until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(TIMEOUT, wait).await.is_ok(), "never came true: {what}");
}

pub(crate) fn create_topic(topic: &str, queues: i32, perm: i32) -> Command {
    let header = CreateTopicRequestHeader {
        topic,
        default_topic: "TBW102",
        read_queue_nums: queues,
        write_queue_nums: queues,
        perm,
        topic_filter_type: "SINGLE_TAG",
        topic_sys_flag: None,
        order: Some(false),
        attributes: None,
        force: None,
    };
    Command::request(request::UPDATE_AND_CREATE_TOPIC, &header)
}

/// Creates a topic with one queue, or changes it.
pub(crate) fn create_topic_with(topic: &str, attributes: &str) -> Command {
    let mut command = create_topic(topic, 1, 6);
    command.ext.push("attributes", attributes);
    command
}

/// A send request with usual values.
#[derive(Clone, Copy)]
pub(crate) struct Send<'a> {
    pub code: i32,
    pub topic: &'a str,
    pub default_topic: &'a str,
    pub default_queues: i32,
    pub queue_id: i32,
    pub sys_flag: i32,
    pub properties: &'a str,
    pub reconsume_times: Option<i32>,
    pub max_reconsume_times: Option<i32>,
    pub batch: bool,
    pub body: &'a [u8],
}

impl<'a> Send<'a> {
    pub(crate) fn new(topic: &'a str, body: &'a str) -> Self {
        Send {
            code: request::SEND_MESSAGE_V2,
            topic,
            default_topic: "TBW102",
            default_queues: 4,
            queue_id: 0,
            sys_flag: 0,
            properties: "",
            reconsume_times: None,
            max_reconsume_times: None,
            batch: false,
            body: body.as_bytes(),
        }
    }

    pub(crate) fn command(&self) -> Command {
        let header = SendMessageRequestHeader {
            producer_group: "producers",
            topic: self.topic,
            default_topic: self.default_topic,
            default_topic_queue_nums: self.default_queues,
            queue_id: self.queue_id,
            sys_flag: self.sys_flag,
            born_timestamp: 1_700_000_000_000,
            flag: 7,
            properties: (!self.properties.is_empty()).then_some(self.properties),
            reconsume_times: self.reconsume_times,
            unit_mode: None,
            max_reconsume_times: self.max_reconsume_times,
            batch: Some(self.batch),
            broker_name: None,
        };
        let command = match self.code {
            request::SEND_MESSAGE => Command::request(self.code, &header),
            code => Command::request(code, &SendMessageRequestHeaderV2(header)),
        };
        command.with_body(self.body.to_vec())
    }
}

/// The body of a batch.
pub(crate) fn batch_body(items: &[(&str, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (text, properties) in items {
        let item = batch::BatchItem { flag: 3, body: text.as_bytes(), properties: properties.as_bytes() };
        item.encode(&mut body).unwrap();
    }
    body
}

/// A pull request with usual values: its own subscription, no wait.
#[derive(Clone, Copy)]
pub(crate) struct Pull<'a> {
    pub code: i32,
    pub group: &'a str,
    pub topic: &'a str,
    pub queue_id: i32,
    pub offset: i64,
    pub max_messages: i32,
    pub max_bytes: Option<i32>,
    pub flags: i32,
    pub commit_offset: i64,
    pub suspend_ms: i64,
    pub subscription: &'a str,
    pub sub_version: i64,
    pub expression_type: Option<&'a str>,
}

impl<'a> Pull<'a> {
    pub(crate) fn new(topic: &'a str, offset: i64) -> Self {
        Pull {
            code: request::PULL_MESSAGE,
            group: "TOOLS_CONSUMER",
            topic,
            queue_id: 0,
            offset,
            max_messages: 32,
            max_bytes: None,
            flags: flag::SUBSCRIPTION,
            commit_offset: 0,
            suspend_ms: 0,
            subscription: "*",
            sub_version: 0,
            expression_type: None,
        }
    }

    /// The same, held for at most `suspend_ms`.
    pub(crate) fn held(self, suspend_ms: i64) -> Self {
        Pull { flags: self.flags | flag::SUSPEND, suspend_ms, ..self }
    }

    pub(crate) fn command(&self) -> Command {
        let header = PullMessageRequestHeader {
            consumer_group: self.group,
            topic: self.topic,
            queue_id: self.queue_id,
            queue_offset: self.offset,
            max_msg_nums: self.max_messages,
            sys_flag: self.flags,
            commit_offset: self.commit_offset,
            suspend_timeout_millis: self.suspend_ms,
            subscription: Some(self.subscription),
            sub_version: self.sub_version,
            expression_type: self.expression_type,
            max_msg_bytes: self.max_bytes,
            request_source: None,
            proxy_froward_client_id: None,
            broker_name: None,
        };
        Command::request(self.code, &header)
    }
}

/// The answer to a pull.
#[derive(Debug)]
pub(crate) struct Pulled {
    pub code: i32,
    pub remark: String,
    pub next: i64,
    pub min: i64,
    pub max: i64,
    pub command: Command,
}

impl Pulled {
    pub(crate) fn of(command: Command) -> Self {
        let remark = command.remark.clone().unwrap_or_default();
        let (next, min, max) = match PullMessageResponseHeader::read(&command.ext) {
            Ok(header) => {
                assert_eq!(header.suggest_which_broker_id, 0);
                (header.next_begin_offset, header.min_offset, header.max_offset)
            }
            Err(_) => (-1, -1, -1),
        };
        Self { code: command.code, remark, next, min, max, command }
    }

    pub(crate) fn records(&self) -> Vec<RecordView<'_>> {
        records(&self.command.body).collect::<Result<_, _>>().unwrap()
    }

    pub(crate) fn bodies(&self) -> Vec<String> {
        self.records().iter().map(|record| String::from_utf8(record.body.to_vec()).unwrap()).collect()
    }
}

/// A heartbeat of one consumer, and of a producer.
pub(crate) fn heartbeat(client_id: &str, group: &str, subscriptions: &[(&str, &str, i64)]) -> HeartbeatData {
    HeartbeatData {
        client_id: client_id.to_owned(),
        consumer_data_set: vec![ConsumerData {
            group_name: group.to_owned(),
            message_model: MessageModel::Clustering,
            subscription_data_set: subscriptions
                .iter()
                .map(|(topic, sub_string, sub_version)| SubscriptionData {
                    topic: (*topic).to_owned(),
                    sub_string: (*sub_string).to_owned(),
                    sub_version: *sub_version,
                    ..SubscriptionData::default()
                })
                .collect(),
            ..ConsumerData::default()
        }],
        producer_data_set: vec![ProducerData { group_name: "producers".to_owned() }],
        ..HeartbeatData::default()
    }
}

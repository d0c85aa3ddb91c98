//! kill -9 while groups read: where each of them goes on.
//!
//! A process that is killed leaves what it wrote, and loses what it had in memory alone: offsets of groups above all.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command as Program;
use std::time::Duration;

use rocketpy_client::{Client, ClientConfig, ConsumerConfig, PullConsumer, Start, Subscription};
use rocketpy_protocol::body::{ConsumeType, ConsumerData, HeartbeatData, MessageModel, SubscriptionData};
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{
    Header, PullMessageRequestHeader, QueryConsumerOffsetRequestHeader, QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
};
use rocketpy_protocol::record::records;
use rocketpy_protocol::{Command, json};

use crate::binary::{BINARY, Process};
use crate::support::{Caller, TIMEOUT, wait_until};

/// An address of these tests alone: no other connection takes the ports of a server that starts again.
const HOST: &str = "127.0.7.9";
/// Messages that are there before the groups begin.
const BEFORE: i64 = 10;
const SENT: usize = 100;

/// A server at these addresses, or at free ones.
fn server(store: &Path, former: Option<&Process>) -> Program {
    let port = |address: &str| address.rsplit_once(':').unwrap().1.to_owned();
    let (broker, names) = match former {
        Some(former) => (port(&former.broker), port(&former.name_server)),
        None => ("0".to_owned(), "0".to_owned()),
    };
    let mut command = Program::new(BINARY);
    command.arg("server").arg(store).args(["--host", HOST, "--port", &broker, "--name-server-port", &names]);
    for (key, value) in [("mappedFileSizeCommitLog", 1 << 20), ("osPageCacheBusyTimeOutMills", 60_000)] {
        command.arg("--set").arg(format!("{key}={value}"));
    }
    // Nothing is written at intervals in the time of the test.
    command.arg("--set").arg("flushConsumerOffsetInterval=3600000");
    command
}

fn stored(caller: &Caller, broker: &str, group: &str) -> Option<i64> {
    let header = QueryConsumerOffsetRequestHeader {
        consumer_group: group,
        topic: "orders",
        queue_id: 0,
        set_zero_if_not_found: Some(false),
        broker_name: None,
    };
    let answer = caller.call(broker, Command::request(request::QUERY_CONSUMER_OFFSET, &header));
    (answer.code == 0).then(|| QueryConsumerOffsetResponseHeader::read(&answer.ext).unwrap().offset)
}

/// What one pull of a push consumer gets.
fn pull(caller: &Caller, broker: &str, offset: i64) -> usize {
    let header = PullMessageRequestHeader {
        consumer_group: "pushed",
        topic: "orders",
        queue_id: 0,
        queue_offset: offset,
        max_msg_nums: 1000,
        sys_flag: 0,
        commit_offset: 0,
        suspend_timeout_millis: 0,
        subscription: None,
        sub_version: 0,
        expression_type: None,
        max_msg_bytes: None,
        request_source: None,
        proxy_froward_client_id: None,
        broker_name: None,
    };
    let answer = caller.call(broker, Command::request(request::PULL_MESSAGE, &header));
    assert!([0, 19].contains(&answer.code), "{answer:?}");
    records(&answer.body).count()
}

/// Joins a group as Apache's push consumers do.
fn join_as_push_consumer(caller: &Caller, broker: &str) {
    let data = HeartbeatData {
        client_id: "push-consumer".to_owned(),
        consumer_data_set: vec![ConsumerData {
            group_name: "pushed".to_owned(),
            consume_type: ConsumeType::ConsumePassively,
            message_model: MessageModel::Clustering,
            subscription_data_set: vec![SubscriptionData {
                topic: "orders".to_owned(),
                sub_string: "*".to_owned(),
                ..SubscriptionData::default()
            }],
            ..ConsumerData::default()
        }],
        ..HeartbeatData::default()
    };
    let heartbeat = Command::bare_request(request::HEART_BEAT).with_body(json::to_vec(&data));
    assert_eq!(caller.call(broker, heartbeat).code, 0);
}

fn commit(caller: &Caller, broker: &str, offset: i64) {
    let header = UpdateConsumerOffsetRequestHeader {
        consumer_group: "TOOLS_CONSUMER",
        topic: "orders",
        queue_id: 0,
        commit_offset: offset,
        broker_name: None,
    };
    let answer = caller.call(broker, Command::request(request::UPDATE_CONSUMER_OFFSET, &header));
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
}

/// A member of a native group that begins at the end and commits nothing by itself.
struct Member {
    runtime: tokio::runtime::Runtime,
    consumer: PullConsumer,
}

impl Member {
    fn join(name_server: &str, group: &str) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let config = ClientConfig { api_timeout: TIMEOUT, ..ClientConfig::new([name_server.to_owned()]) };
        let client = Client::new(config, runtime.handle().clone()).unwrap();
        let config = ConsumerConfig {
            start: Start::Latest,
            auto_commit: None,
            suspend: Duration::from_millis(500),
            ..ConsumerConfig::default()
        };
        let subscriptions = vec![Subscription::new("orders", "*")];
        let consumer = runtime.block_on(PullConsumer::new(&client, group, subscriptions, config)).unwrap();
        Self { runtime, consumer }
    }

    /// The bodies of everything that comes until one of them is there.
    fn read_until(&self, last: &str) -> Vec<String> {
        let mut bodies: Vec<String> = Vec::new();
        wait_until("the last message comes", || {
            // While the server is away a poll may fail.
            let polled = self.runtime.block_on(self.consumer.poll(1000, Duration::from_millis(50)));
            for message in polled.iter().flat_map(|batch| batch.iter()) {
                bodies.push(String::from_utf8(message.record().body.to_vec()).unwrap());
            }
            bodies.iter().any(|body| body == last)
        });
        bodies
    }
}

fn send(caller: &Caller, broker: &str, bodies: impl Iterator<Item = String>) -> Vec<String> {
    let bodies: Vec<String> = bodies.collect();
    for body in &bodies {
        assert_eq!(caller.send(broker, "orders", body).code, 0);
    }
    bodies
}

#[test]
fn a_group_that_began_at_the_end_gets_every_acknowledged_message_after_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let (store, ready) = (folder.path().join("store"), folder.path().join("ready"));
    let first = Process::start(server(&store, None), &ready);
    let caller = Caller::new();
    caller.create_topic(&first.broker, "orders");
    send(&caller, &first.broker, (0..BEFORE).map(|number| format!("before-{number}")));
    wait_until("all are readable", || caller.read_all(&first.broker, "orders").len() as i64 == BEFORE);

    let native = Member::join(&first.name_server, "native");
    let outlives = Member::join(&first.name_server, "outlives");
    for member in [&native, &outlives] {
        wait_until("both queues have their start", || member.consumer.positions().len() == 2);
    }
    join_as_push_consumer(&caller, &first.broker);
    assert_eq!(pull(&caller, &first.broker, BEFORE), 0);
    commit(&caller, &first.broker, BEFORE);

    let sent = send(&caller, &first.broker, (0..SENT).map(|number| format!("sent-{number}")));
    let last = sent.last().unwrap();
    // All of it is handed out, and nothing of it is committed.
    assert_eq!(native.read_until(last), sent);
    assert_eq!(outlives.read_until(last), sent);
    assert_eq!(pull(&caller, &first.broker, BEFORE), SENT);
    drop(native);
    let again = server(&store, Some(&first));
    first.kill();

    let second = Process::start(again, &ready);
    for group in ["native", "pushed", "TOOLS_CONSUMER"] {
        assert_eq!(stored(&caller, &second.broker, group), Some(BEFORE), "{group}");
    }
    let member = Member::join(&second.name_server, "native");
    let got: BTreeSet<String> = member.read_until(last).into_iter().collect();
    assert_eq!(got, sent.into_iter().collect(), "every acknowledged message");

    // Who outlived the server goes on where it was: nothing comes twice, nothing is left out.
    let later = send(&caller, &second.broker, (0..SENT).map(|number| format!("later-{number}")));
    assert_eq!(outlives.read_until(later.last().unwrap()), later);
}

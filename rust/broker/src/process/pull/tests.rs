//! Pulls of messages that are not in memory, on a runtime of one thread: whoever waited for the disk there would hold up all.

use std::io::Write as _;
use std::process::Command as Program;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_filter::MessageFilter;
use rocketpy_model::TopicConfig;
use rocketpy_protocol::body::{ConsumerData, HeartbeatData};
use rocketpy_protocol::record::records;
use rocketpy_protocol::{Command, json};
use rocketpy_remoting::{Client, ClientConfig, Server, ServerConfig};
use rocketpy_store::ReadLimits;
use tempfile::TempDir;

use super::*;
use crate::process::Processor;
use crate::put::{NewMessage, Origin, put};
use crate::role::Role;
use crate::testing::{TestBroker, add_topic, message, send, until};

const TIMEOUT: Duration = Duration::from_secs(60);

struct Fixture {
    server: Server,
    client: Client,
    /// Before the folder: it closes the store.
    broker: TestBroker,
    folder: TempDir,
}

impl Fixture {
    /// On the disk that holds the tests: a folder for temporary files may be in memory.
    fn start() -> Self {
        Self::start_with(|_| {})
    }

    fn start_with(change: impl FnOnce(&mut crate::BrokerConfig)) -> Self {
        let tests = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(tests.parent().unwrap()).unwrap();
        let broker = TestBroker::open(|config| {
            config.store.root = folder.path().join("store");
            change(config);
        });
        for topic in ["old", "new"] {
            broker.ground.topics().create(vec![TopicConfig::new(topic, 1)]).unwrap();
        }
        let processor = Arc::new(Processor(Arc::clone(&broker)));
        let server = Server::bind(ServerConfig::new("127.0.0.1:0".parse().unwrap()), processor).unwrap();
        Self { server, client: Client::new(ClientConfig::default()), broker, folder }
    }

    async fn call(&self, request: Command) -> Command {
        self.client.call(&self.server.local_addr().to_string(), request, TIMEOUT).await.unwrap()
    }

    async fn send(&self, topic: &str, body: &[u8]) {
        assert_eq!(self.call(send(topic, body)).await.code, response::SUCCESS);
    }

    /// The bodies of the messages from an offset on.
    async fn pull(&self, topic: &str, queue_offset: i64) -> Vec<Vec<u8>> {
        let answer = self.call(pull_request(topic, queue_offset)).await;
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
        records(&answer.body).map(|record| record.unwrap().body.to_vec()).collect()
    }

    async fn wait_for_end(&self, topic: &str, end: u64) {
        until("dispatch has come there", || {
            self.broker.ground.store().queue_bounds(topic, 0).max.get() >= end
        })
        .await;
    }

    fn is_in_memory(&self, topic: &str) -> bool {
        let limits = ReadLimits { max_messages: 1, max_bytes: 1, copies: true };
        self.broker.ground.store().get_in_memory(topic, 0, 0, &limits, &MessageFilter::All).unwrap().is_some()
    }

    /// Writes the first bytes of the log to the disk again, past the memory of the system, which forgets them.
    fn forget_first_bytes(&self, bytes: usize) {
        self.broker
            .ground
            .store()
            .wait_flushed(self.broker.ground.store().max_physical_offset(), TIMEOUT)
            .unwrap();
        let log = self.folder.path().join(format!("store/commitlog/{:020}", 0));
        let content = RealDisk.read(&log, 1 << 20).unwrap();
        let mut copy = tempfile::NamedTempFile::new_in(self.folder.path()).unwrap();
        copy.write_all(&content[..bytes]).unwrap();
        let mut program = Program::new("dd");
        program.arg(format!("if={}", copy.path().display())).arg(format!("of={}", log.display()));
        let written = program.args(["bs=4096", "oflag=direct", "conv=notrunc"]).output().unwrap();
        assert!(written.status.success(), "{written:?}");
    }
}

fn pull_request(topic: &str, queue_offset: i64) -> Command {
    pull_request_of("TOOLS_CONSUMER", topic, queue_offset)
}

fn pull_request_of(consumer_group: &str, topic: &str, queue_offset: i64) -> Command {
    let header = PullMessageRequestHeader {
        consumer_group,
        topic,
        queue_id: 0,
        queue_offset,
        max_msg_nums: 1,
        sys_flag: flag::SUBSCRIPTION,
        commit_offset: 0,
        suspend_timeout_millis: 0,
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

#[tokio::test]
async fn while_one_pull_waits_for_the_disk_others_are_answered() {
    let fixture = Fixture::start();
    let old = vec![7; 20_000];
    fixture.send("old", &old).await;
    fixture.send("new", &[8; 20_000]).await;
    fixture.wait_for_end("new", 1).await;
    assert_eq!(fixture.pull("old", 0).await, [&old[..]]);
    assert!(fixture.is_in_memory("old") && fixture.is_in_memory("new"));
    assert_eq!(fixture.broker.reads.cold_pulls.waiting(), 0);
    fixture.forget_first_bytes(16_384);
    assert!(!fixture.is_in_memory("old") && fixture.is_in_memory("new"));
    fixture.broker.reads.cold_pulls.gate.close();
    let others = async {
        until("the pull has gone aside", || fixture.broker.reads.cold_pulls.waiting() == 1).await;
        fixture.send("new", b"second").await;
        fixture.wait_for_end("new", 2).await;
        assert_eq!(fixture.pull("new", 1).await, [b"second"]);
        assert_eq!(fixture.broker.reads.cold_pulls.waiting(), 1, "it still waits");
        fixture.broker.reads.cold_pulls.gate.open();
    };
    let (read, ()) = tokio::join!(fixture.pull("old", 0), others);
    assert_eq!(read, [&old[..]]);
    assert_eq!(fixture.broker.reads.cold_pulls.waiting(), 0);
    assert!(fixture.is_in_memory("old"), "it was read");
}

#[tokio::test]
async fn a_group_over_its_limit_of_cold_reads_reads_what_is_in_memory_only() {
    let fixture = Fixture::start_with(|config| config.intervals.cold_reads = TIMEOUT * 60);
    fixture.send("old", &[7; 20_000]).await;
    fixture.send("new", b"x").await;
    fixture.wait_for_end("new", 1).await;
    let data = HeartbeatData {
        client_id: "c".to_owned(),
        consumer_data_set: vec![ConsumerData { group_name: "pushed".to_owned(), ..ConsumerData::default() }],
        ..HeartbeatData::default()
    };
    let heartbeat = Command::bare_request(request::HEART_BEAT).with_body(json::to_vec(&data));
    assert_eq!(fixture.call(heartbeat).await.code, response::SUCCESS);
    let reads = &fixture.broker.reads.of_groups;
    let written = reads.set_limits("pushed=20000\nTOOLS_CONSUMER=20000").unwrap();
    written.unwrap().done().await.unwrap();
    let pull = async |group, topic| fixture.call(pull_request_of(group, topic, 0)).await;
    for group in ["pushed", "TOOLS_CONSUMER"] {
        fixture.forget_first_bytes(16_384);
        assert!(!fixture.is_in_memory("old"));
        assert_eq!(pull(group, "old").await.code, response::SUCCESS, "its first read of the window");
        assert!(reads.info().runtime_table[group].cold_acc > 20_000);
    }
    fixture.forget_first_bytes(16_384);
    assert!(!fixture.is_in_memory("old"));
    let refused = pull("pushed", "old").await;
    let remark = refused.remark.unwrap();
    assert_eq!(refused.code, response::SYSTEM_BUSY);
    assert!(
        remark.starts_with("This consumer group is reading cold data") && remark.contains("20000 bytes"),
        "{remark}"
    );
    assert_eq!(pull("pushed", "new").await.code, response::SUCCESS, "it is in memory");
    let before = reads.info().runtime_table["TOOLS_CONSUMER"].cold_acc;
    assert_eq!(
        pull("TOOLS_CONSUMER", "old").await.code,
        response::SUCCESS,
        "who does not push waits a second"
    );
    assert!(reads.info().runtime_table["TOOLS_CONSUMER"].cold_acc > before);
    assert!(reads.info().global_acc > 60_000);
}

/// Topic `orders` with messages of 4 KiB, of which the first ones are far from the end.
async fn with_old_messages(change: impl FnOnce(&mut crate::BrokerConfig)) -> TestBroker {
    let broker = TestBroker::with_hot_bytes(10_000, change);
    add_topic(&broker, TopicConfig::new("orders", 1)).await;
    for _ in 0..8 {
        let message = NewMessage { body: &[7; 4096], ..message("orders", "") };
        put(&broker.intake, Origin::Broker, &message).unwrap();
    }
    until("dispatch has come there", || broker.ground.store().queue_bounds("orders", 0).max.get() == 8).await;
    broker
}

/// Code, suggested broker and next offset of a pull.
async fn pulled(broker: &TestBroker, offset: i64) -> (i32, i64, i64) {
    let processor = Arc::new(Processor(Arc::clone(broker)));
    let server = Server::bind(ServerConfig::new("127.0.0.1:0".parse().unwrap()), processor).unwrap();
    let address = server.local_addr().to_string();
    let client = Client::new(ClientConfig::default());
    let answer = client.call(&address, pull_request("orders", offset), TIMEOUT).await.unwrap();
    let header = PullMessageResponseHeader::read(&answer.ext);
    let (broker_id, next) =
        header.map_or((-1, -1), |header| (header.suggest_which_broker_id, header.next_begin_offset));
    (answer.code, broker_id, next)
}

const FOUND: i32 = response::SUCCESS;
const AGAIN: i32 = response::PULL_RETRY_IMMEDIATELY;
const NOT_FOUND: i32 = response::PULL_NOT_FOUND;
const MOVED: i32 = response::PULL_OFFSET_MOVED;

#[tokio::test]
async fn a_master_sends_readers_that_are_far_behind_to_a_slave_where_slaves_may_be_read() {
    let broker = with_old_messages(|config| config.slave_read = true).await;
    assert_eq!(pulled(&broker, 0).await, (FOUND, 1, 1), "whichBrokerWhenConsumeSlowly");
    assert_eq!(pulled(&broker, 7).await, (FOUND, 0, 8));
    assert_eq!(pulled(&broker, 99).await, (MOVED, 0, 8));
    let broker = with_old_messages(|_| {}).await;
    assert_eq!(pulled(&broker, 0).await, (FOUND, 0, 1));
}

#[tokio::test]
async fn a_slave_serves_pulls_only_where_slaves_may_be_read() {
    let broker = with_old_messages(|_| {}).await;
    broker.ground.role().set(Role::Slave { id: 1 });
    assert_eq!(pulled(&broker, 0).await.0, response::SYSTEM_BUSY);
    let broker = with_old_messages(|config| config.slave_read = true).await;
    broker.ground.role().set(Role::Slave { id: 1 });
    assert_eq!(pulled(&broker, 0).await, (FOUND, 1, 1));
}

#[tokio::test]
async fn a_slave_sends_readers_back_to_a_master_that_answers_and_moves_nobody() {
    let broker = with_old_messages(|config| config.slave_read = true).await;
    broker.ground.role().set(Role::Slave { id: 1 });
    let pulls = async || {
        let mut all = Vec::new();
        for offset in [0, 7, 8, 99] {
            all.push(pulled(&broker, offset).await);
        }
        all
    };
    assert_eq!(pulls().await, [(FOUND, 1, 1), (FOUND, 0, 8), (NOT_FOUND, 0, 8), (NOT_FOUND, 0, 99)]);
    broker.peers.master().set(Some("127.0.0.1:1"));
    broker.peers.master().note(&broker.peers.master().get().unwrap(), true);
    assert_eq!(pulls().await, [(FOUND, 1, 1), (FOUND, 0, 8), (AGAIN, 0, 8), (AGAIN, 0, 99)]);
}

//! Pulls of messages that are not in memory, on a runtime of one thread: whoever waited for the disk there would hold up all.

use std::io::Write as _;
use std::process::Command as Program;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_protocol::Command;
use rocketpy_protocol::record::records;
use rocketpy_remoting::{Client, ClientConfig, Server, ServerConfig};
use tempfile::TempDir;

use super::*;
use crate::process::Processor;
use crate::testing::{TestShared, send, until};

const TIMEOUT: Duration = Duration::from_secs(60);

struct Fixture {
    server: Server,
    client: Client,
    /// Before the folder: it closes the store.
    shared: TestShared,
    folder: TempDir,
}

impl Fixture {
    /// On the disk that holds the tests: a folder for temporary files may lie in memory.
    fn start() -> Self {
        let tests = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(tests.parent().unwrap()).unwrap();
        let shared = TestShared::open(|config| config.store.root = folder.path().join("store"));
        for topic in ["old", "new"] {
            shared.topics.create(vec![TopicConfig::new(topic, 1)]).unwrap();
        }
        let processor = Arc::new(Processor(Arc::clone(&shared)));
        let server = Server::bind(ServerConfig::new("127.0.0.1:0".parse().unwrap()), processor).unwrap();
        Self { server, client: Client::new(ClientConfig::default()), shared, folder }
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
        until("dispatch has come there", || self.shared.store.queue_bounds(topic, 0).max.get() >= end).await;
    }

    fn is_in_memory(&self, topic: &str) -> bool {
        let limits = ReadLimits { max_messages: 1, max_bytes: 1 };
        self.shared.store.get_in_memory(topic, 0, 0, &limits, &MessageFilter::All).unwrap().is_some()
    }

    /// Writes the first bytes of the log to the disk again, past the memory of the system, which forgets them.
    fn forget_first_bytes(&self, bytes: usize) {
        self.shared.store.wait_flushed(self.shared.store.max_physical_offset(), TIMEOUT).unwrap();
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
    let header = PullMessageRequestHeader {
        consumer_group: "TOOLS_CONSUMER",
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
    assert_eq!(fixture.shared.cold_pulls.waiting(), 0);
    fixture.forget_first_bytes(16_384);
    assert!(!fixture.is_in_memory("old") && fixture.is_in_memory("new"));
    fixture.shared.cold_pulls.gate.close();
    let others = async {
        until("the pull has gone aside", || fixture.shared.cold_pulls.waiting() == 1).await;
        fixture.send("new", b"second").await;
        fixture.wait_for_end("new", 2).await;
        assert_eq!(fixture.pull("new", 1).await, [b"second"]);
        assert_eq!(fixture.shared.cold_pulls.waiting(), 1, "it still waits");
        fixture.shared.cold_pulls.gate.open();
    };
    let (read, ()) = tokio::join!(fixture.pull("old", 0), others);
    assert_eq!(read, [&old[..]]);
    assert_eq!(fixture.shared.cold_pulls.waiting(), 0);
    assert!(fixture.is_in_memory("old"), "it was read");
}

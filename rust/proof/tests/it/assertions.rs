//! Assertions of store and replication fire when what they guard is broken, and end the process with a code of its own.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rocketpy_client::{Admin, Client, ClientConfig, Producer, ProducerConfig, SendOptions, TopicSpec};
use rocketpy_env::{Disk, RealDisk};
use rocketpy_model::Message;
use rocketpy_proof::assertions::provoke;
use rocketpy_proof::planted::{Bug, Layer, PROOFS, proof_by};
use rocketpy_server::ServerError;
use rocketpy_store::planted::VARIABLE;
use rocketpy_store::{Store, StoreConfig};
use tokio::runtime::Runtime;

/// What [`one_planted_assertion`] prints before the text of the assertion.
const FAILED: &str = "assertion failed: ";

/// A bug is planted in a whole process: each gets one of its own, which runs [`one_planted_assertion`] alone.
#[test]
fn every_planted_assertion_fires_and_names_its_invariant() {
    let proofs: Vec<_> = PROOFS.iter().filter(|proof| proof.layer == Layer::Assertions).collect();
    assert!(proofs.len() >= 10, "{} assertions are tried", proofs.len());
    for proof in proofs {
        let title = proof.bug.title();
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["assertions::one_planted_assertion", "--exact", "--nocapture"])
            .env(VARIABLE, title)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let text = said.lines().find_map(|line| line.split_once(FAILED)).map(|(_, text)| text);
        let text = text.unwrap_or_else(|| panic!("{title}: no assertion fails: {said}"));
        eprintln!("{title}: {text}");
        let words = proof.findings.iter().map(|(_, words)| *words);
        assert!(words.clone().any(|words| text.contains(words)), "{title} fires another assertion: {text}");
    }
}

/// What the process of one bug does; without a bug nothing.
#[test]
fn one_planted_assertion() {
    let Ok(title) = std::env::var(VARIABLE) else { return };
    let bug = Bug::ALL.into_iter().find(|bug| bug.title() == title).expect("a bug of that title");
    if proof_by(bug, Layer::Assertions).is_some()
        && let Some(text) = provoke(bug).unwrap()
    {
        eprintln!("\n{FAILED}{}", text.replace('\n', " "));
    }
}

/// How long a server may take to be ready, and to end itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server of a store in a folder, with a bug planted in it; killed when it is dropped.
struct Planted(Child);

impl Planted {
    fn start(dir: &Path, bug: Bug) -> Self {
        let server = Command::new(env!("CARGO_BIN_EXE_rocketpy-proof-server"))
            .arg("server")
            .arg(dir.join("store"))
            .args(["--port", "0", "--name-server-port", "0"])
            .args(["--set", "onFailedFlush=REFUSE", "--ready-file"])
            .arg(dir.join("ready"))
            .env(VARIABLE, bug.title())
            .stderr(Stdio::piped())
            .spawn();
        Self(server.unwrap())
    }

    /// The address of its name server.
    fn name_server(&self, dir: &Path) -> String {
        let ready = until("the server is ready", || RealDisk.read(&dir.join("ready"), 1 << 16).ok());
        let ready: serde_json::Value = serde_json::from_slice(&ready).unwrap();
        ready["name_server"].as_str().unwrap().to_owned()
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Also where a failed flush only refuses messages: an assertion says that the memory of the process is not to be trusted.
#[test]
fn a_failed_assertion_ends_the_server_with_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Planted::start(dir.path(), Bug::PublishedAhead);
    let runtime = Runtime::new().unwrap();
    let config = ClientConfig::new([server.name_server(dir.path())]);
    let client = Client::new(config, runtime.handle().clone()).unwrap();
    let sent = runtime.block_on(async {
        Admin::new(&client).create_topic(&TopicSpec::new("t", 1)).await.unwrap();
        let config = ProducerConfig { retries: Some(0), ..ProducerConfig::default() };
        let producer = Producer::new(&client, "p", config).await.unwrap();
        producer.send(&Message::new("t", vec![7; 100]), SendOptions::default()).await
    });
    assert!(sent.is_err(), "a message that an assertion kept out is acknowledged: {sent:?}");
    let status = until("the server ends itself", || server.0.try_wait().unwrap());
    let mut said = String::new();
    server.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(ServerError::ASSERTION_EXIT_CODE.into()), "{said}");
    assert!(said.contains("what is published is what was copied"), "{said}");
    // The next start, without the bug, recovers.
    let store = Store::open(StoreConfig::new(dir.path().join("store"))).unwrap();
    assert!(!store.recovery().clean_exit);
}

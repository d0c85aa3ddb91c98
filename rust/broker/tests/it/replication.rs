//! The port for slaves, with slaves made by hand.
#![expect(clippy::disallowed_methods, reason = "a test reads and copies its own files")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use rocketpy_broker::{BrokerConfig, BrokerRole, FlushMode};
use rocketpy_ha::{Epoch, FROM_THE_FIRST_FILE, GREETING, Greeting, Tail};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::body::HaRuntimeInfo;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::{Command, json};
use rocketpy_remoting::PendingCall;
use tokio::net::TcpSocket;

use crate::send_backs::send_back;
use crate::support::{Fixture, Send, TIMEOUT, create_topic, wait_until};

/// A slave that keeps what it is sent and reports when it is told to.
pub(crate) struct Slave {
    socket: TcpStream,
    log: Vec<u8>,
}

impl Slave {
    fn connect(fixture: &Fixture) -> Self {
        Self::of(TcpStream::connect(fixture.broker.slave_addr().unwrap()).unwrap())
    }

    /// From another address of this machine: by it a master knows a slave again.
    async fn connect_from(host: &str, fixture: &Fixture) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(host.parse().unwrap(), 0)).unwrap();
        let socket = socket.connect(fixture.broker.slave_addr().unwrap()).await.unwrap().into_std().unwrap();
        socket.set_nonblocking(false).unwrap();
        Self::of(socket)
    }

    fn of(socket: TcpStream) -> Self {
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self { socket, log: Vec::new() }
    }

    pub(crate) fn report(&mut self, end: u64) {
        self.socket.write_all(&end.to_be_bytes()).unwrap();
    }

    /// Says who it is, and returns what the master says.
    fn greet(&mut self, greeting: &Greeting) -> Greeting {
        self.socket.write_all(&GREETING.to_be_bytes()).unwrap();
        self.socket.write_all(&greeting.encode()).unwrap();
        let mut head = [0; 4];
        self.socket.read_exact(&mut head).unwrap();
        let mut body = vec![0; Greeting::length(head).unwrap()];
        self.socket.read_exact(&mut body).unwrap();
        Greeting::decode(&body).unwrap()
    }

    /// Reads a frame; returns where it begins and how many bytes of the log it brings.
    pub(crate) fn frame(&mut self) -> (u64, usize) {
        let mut head = [0; 12];
        self.socket.read_exact(&mut head).unwrap();
        let at = u64::from_be_bytes(head[..8].try_into().unwrap());
        let mut body = vec![0; u32::from_be_bytes(head[8..].try_into().unwrap()) as usize];
        self.socket.read_exact(&mut body).unwrap();
        self.log.extend_from_slice(&body);
        (at, body.len())
    }

    /// Whether the master sends it anything.
    fn is_fed(&mut self) -> bool {
        self.socket.write_all(&0_u64.to_be_bytes()).is_ok() && self.socket.read_exact(&mut [0; 12]).is_ok()
    }

    pub(crate) fn read_to(&mut self, end: usize) {
        while self.log.len() < end {
            self.frame();
        }
        assert_eq!(self.log.len(), end);
    }

    /// Whether the master ends the connection.
    fn is_let_go(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.socket.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

pub(crate) async fn start(change: impl FnOnce(&mut BrokerConfig)) -> Fixture {
    Fixture::start_with(|config| {
        config.replication.role = BrokerRole::SyncMaster;
        config.replication.slave_timeout = TIMEOUT;
        config.store.commit_log_file_size = 1 << 16;
        change(config);
    })
    .await
}

pub(crate) async fn code_of_send(fixture: &Fixture, body: &str) -> i32 {
    fixture.send(Send::new("orders", body)).await.code
}

/// Stores messages and waits for nobody.
async fn fill(fixture: &Fixture, count: usize, body: &str) {
    for _ in 0..count {
        let send = Send { properties: "WAIT\u{1}false\u{2}", ..Send::new("orders", body) };
        assert_eq!(fixture.send(send).await.code, response::SUCCESS);
    }
}

pub(crate) async fn end_of_log(fixture: &Fixture) -> usize {
    crate::state::runtime_value(fixture, "commitLogMaxOffset").await.parse().unwrap()
}

async fn status(fixture: &Fixture) -> HaRuntimeInfo {
    let answer = fixture.call(Command::bare_request(request::GET_BROKER_HA_STATUS)).await;
    json::from_slice(&answer.body).unwrap()
}

/// A slave that has the whole log, and the master knows it.
pub(crate) async fn synced(fixture: &Fixture) -> Slave {
    synced_from("127.0.0.1", fixture).await
}

async fn synced_from(host: &str, fixture: &Fixture) -> Slave {
    let mut slave = Slave::connect_from(host, fixture).await;
    slave.report(0);
    let end = end_of_log(fixture).await;
    slave.read_to(end);
    slave.report(end as u64);
    let port = slave.socket.local_addr().unwrap().to_string();
    wait_until("the master knows", async || {
        let found = status(fixture).await.ha_connection_info.into_iter().find(|one| one.addr == port);
        found.is_some_and(|one| one.slave_ack_offset == end as i64 && one.diff == 0 && one.in_sync)
    })
    .await;
    slave
}

pub(crate) async fn is_waiting(call: &mut PendingCall) -> bool {
    tokio::time::timeout(Duration::from_millis(20), call).await.is_err()
}

async fn begin_send(fixture: &Fixture, body: &str) -> PendingCall {
    begin_send_with(fixture, Send::new("orders", body)).await
}

pub(crate) async fn begin_send_with(fixture: &Fixture, send: Send<'_>) -> PendingCall {
    fixture.client.start_call(&fixture.address, send.command(), TIMEOUT).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_port_for_slaves_nobody_listens_and_nobody_is_waited_for() {
    let fixture = Fixture::start().await;
    assert_eq!(fixture.broker.slave_addr(), None);
    assert_eq!(code_of_send(&fixture, "x").await, response::SUCCESS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_send_is_answered_once_its_slave_has_it() {
    for flush in [FlushMode::Async, FlushMode::Sync] {
        let fixture = start(|config| config.store.flush = flush).await;
        let alone = fixture.send(Send::new("orders", "alone")).await;
        assert_eq!(alone.code, response::SLAVE_NOT_AVAILABLE, "{:?}", alone.remark);
        let mut slave = synced(&fixture).await;
        let mut call = begin_send(&fixture, "both").await;
        slave.frame();
        assert!(is_waiting(&mut call).await, "the slave has not said that it has it");
        let end = end_of_log(&fixture).await;
        slave.read_to(end);
        slave.report(end as u64 - 1);
        assert!(is_waiting(&mut call).await, "a byte is missing");
        slave.report(end as u64);
        assert_eq!(call.await.unwrap().code, response::SUCCESS);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_slaves_are_waited_for_where_three_brokers_have_to_have_it() {
    let fixture = start(|config| config.replication.in_sync_replicas = Some(3)).await;
    fill(&fixture, 1, "x").await;
    let mut slaves = [synced_from("127.0.0.2", &fixture).await, synced_from("127.0.0.3", &fixture).await];
    let mut call = begin_send(&fixture, "all").await;
    slaves[0].frame();
    let end = end_of_log(&fixture).await;
    slaves[0].report(end as u64);
    assert!(is_waiting(&mut call).await);
    slaves[1].frame();
    slaves[1].report(end as u64);
    assert_eq!(call.await.unwrap().code, response::SUCCESS);
    drop(slaves);
    wait_until("both are let go", async || status(&fixture).await.ha_connection_info.is_empty()).await;
    assert_eq!(code_of_send(&fixture, "alone").await, response::SLAVE_NOT_AVAILABLE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_ends_counts_no_more_and_takes_no_place() {
    let fixture = start(|config| config.replication.silence_limit = Duration::from_secs(3600)).await;
    fill(&fixture, 1, "x").await;
    for _ in 0..40 {
        drop(Slave::connect(&fixture)); // more than may be connected at a time
    }
    // One that connects behind them is fed once all of them are accepted, and there is room.
    wait_until("a slave is fed", async || Slave::connect(&fixture).is_fed()).await;
    wait_until("there is room", async || status(&fixture).await.ha_connection_info.is_empty()).await;
    let slave = synced(&fixture).await;
    drop(slave);
    wait_until("it is let go", async || status(&fixture).await.ha_connection_info.is_empty()).await;
    assert_eq!(code_of_send(&fixture, "alone").await, response::SLAVE_NOT_AVAILABLE, "at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_say_nothing_make_room_for_a_slave() {
    let fixture = start(|config| config.replication.silence_limit = Duration::from_secs(3600)).await;
    fill(&fixture, 1, "x").await;
    let slave = synced(&fixture).await;
    let silent: Vec<_> = (0..40).map(|_| Slave::connect(&fixture)).collect(); // more than may be connected at a time
    let mut second = Slave::connect_from("127.0.0.2", &fixture).await;
    assert!(second.is_fed());
    let connected = || async { status(&fixture).await.ha_connection_info };
    wait_until("some are let go", async || connected().await.len() <= 16).await;
    let of_first = slave.socket.local_addr().unwrap().to_string();
    assert!(connected().await.iter().any(|known| known.addr == of_first), "the one that reports stays");
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slave_that_does_not_report_in_time_is_told_to_the_sender() {
    let soon = Duration::from_millis(50);
    let fixture = start(|config| {
        (config.replication.slave_timeout, config.replication.max_not_caught_up) = (soon, soon);
    })
    .await;
    fill(&fixture, 1, "x").await;
    let _slave = synced(&fixture).await;
    let late = fixture.send(Send::new("orders", "late")).await;
    assert_eq!(late.code, response::FLUSH_SLAVE_TIMEOUT, "{:?}", late.remark);
    fixture.wait_for_end("orders", 0, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_returned_message_is_answered_once_its_slave_has_the_copy_as_a_send_is() {
    let fixture = start(|_| {}).await;
    fill(&fixture, 1, "failed").await;
    let end = end_of_log(&fixture).await;
    let return_it = || send_back(0, -1, None);
    let alone = fixture.call(return_it()).await;
    assert_eq!(alone.code, response::SLAVE_NOT_AVAILABLE, "{:?}", alone.remark);
    assert!(alone.remark.unwrap().contains("of the 1 slaves to wait for (inSyncReplicas), 0 are connected"));
    assert_eq!(end_of_log(&fixture).await, end, "the consumer sends a copy itself, so there is none yet");

    let mut slave = synced(&fixture).await;
    let mut call = fixture.client.start_call(&fixture.address, return_it(), TIMEOUT).await.unwrap();
    slave.frame();
    assert!(is_waiting(&mut call).await, "the slave has not said that it has the copy");
    let end = end_of_log(&fixture).await;
    slave.read_to(end);
    slave.report(end as u64);
    assert_eq!(call.await.unwrap().code, response::SUCCESS);

    let fixture = start(|config| config.replication.slave_timeout = Duration::from_millis(50)).await;
    fill(&fixture, 1, "failed").await;
    let _silent = synced(&fixture).await;
    let end = end_of_log(&fixture).await;
    let late = fixture.call(return_it()).await;
    assert_eq!(late.code, response::FLUSH_SLAVE_TIMEOUT, "{:?}", late.remark);
    assert!(end_of_log(&fixture).await > end, "the copy is stored: the message may come twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slave_gets_the_log_as_it_is_over_the_ends_of_files() {
    let fixture = start(|config| config.replication.frame_bytes = 1000).await;
    let mut slave = Slave::connect(&fixture);
    slave.report(0);
    fill(&fixture, 300, &"y".repeat(700)).await;
    let end = end_of_log(&fixture).await;
    assert!(end > 3 << 16, "over several files");
    while slave.log.len() < end {
        let (at, bytes) = slave.frame();
        assert_eq!(at as usize + bytes, slave.log.len());
        assert!(bytes <= 1000 && (at >> 16 == (at + bytes as u64 - 1) >> 16), "a frame stays in a file");
    }
    for (number, file) in slave.log.chunks(1 << 16).enumerate() {
        let path = fixture.folder.path().join(format!("store/commitlog/{:020}", number << 16));
        assert!(std::fs::read(path).unwrap().starts_with(file));
    }
    // A slave with a log continues at its end; an empty slave starts with the last file.
    let mut second = Slave::connect(&fixture);
    second.report(end as u64 - 10);
    assert_eq!(second.frame(), (end as u64 - 10, 10));
    let mut empty = Slave::connect(&fixture);
    empty.report(0);
    assert_eq!(empty.frame().0, (end as u64 - 1) >> 16 << 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_slave_of_this_log_is_let_go() {
    let fixture = start(|_| {}).await;
    fill(&fixture, 1, "x").await;
    let end = end_of_log(&fixture).await as u64;
    for reports in [vec![end + 1], vec![1 << 63], vec![0, end + 1]] {
        let mut slave = Slave::connect(&fixture);
        for report in &reports {
            slave.report(*report);
        }
        assert!(slave.is_let_go(), "{reports:?}");
    }
    let elsewhere = start(|config| config.replication.allowed = vec!["192.0.2.1".parse().unwrap()]).await;
    assert!(Slave::connect(&elsewhere).is_let_go(), "another address than the allowed one");
    assert_eq!(status(&elsewhere).await.ha_connection_info, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_master_sends_heartbeats_and_lets_a_quiet_slave_go() {
    let fixture = start(|config| {
        config.replication.heartbeat_every = Duration::from_millis(10);
        config.replication.silence_limit = Duration::from_millis(100);
    })
    .await;
    let mut slave = Slave::connect(&fixture);
    slave.report(0);
    for _ in 0..3 {
        assert_eq!(slave.frame(), (0, 0));
        slave.report(0);
    }
    assert!(slave.is_let_go(), "it says nothing any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_stops_lets_its_slaves_have_what_is_written() {
    let fixture = start(|_| {}).await;
    let mut slave = synced(&fixture).await;
    fill(&fixture, 50, &"z".repeat(5000)).await;
    let end = end_of_log(&fixture).await;
    let reading = tokio::task::spawn_blocking(move || {
        slave.read_to(end);
        slave.report(end as u64);
        assert!(slave.is_let_go());
        slave.socket.shutdown(Shutdown::Both).ok();
    });
    fixture.broker.shutdown().await;
    reading.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slave_that_has_what_its_master_lost_is_refused_also_when_the_master_has_written_on() {
    let fixture = start(|_| {}).await;
    fill(&fixture, 3, "kept").await;
    let behind = synced(&fixture).await.log.len() as u64;
    let copy = tempfile::tempdir().unwrap();
    copy_folder(&fixture.folder.path().join("store"), &copy.path().join("store"));
    fill(&fixture, 3, "lost").await;
    let ahead = synced(&fixture).await.log.len() as u64;
    drop(fixture);

    let mut config = crate::support::config(&copy);
    config.replication.role = BrokerRole::SyncMaster;
    config.store.commit_log_file_size = 1 << 16;
    let mut shorter = Fixture::start_on(copy, config).await;
    for _ in 0..2 {
        let mut slave = Slave::connect_from("127.0.0.2", &shorter).await;
        slave.report(ahead);
        assert!(slave.is_let_go(), "its log is longer, or of another life");
        fill(&shorter, 9, "other").await;
        let end = end_of_log(&shorter).await as u64;
        assert!(end > ahead);
        let mut slave = Slave::connect_from("127.0.0.2", &shorter).await;
        slave.report(ahead);
        assert!(slave.is_let_go(), "its last bytes are not this master's");
        // One that has none of the lost bytes goes on.
        let mut good = Slave::connect_from("127.0.0.3", &shorter).await;
        good.report(behind);
        good.read_to((end - behind) as usize);
        good.report(end);
        shorter = shorter.restart().await;
    }
}

/// What a slave says whose log is empty.
fn empty_greeting() -> Greeting {
    Greeting {
        broker_name: crate::support::config(&tempfile::tempdir().unwrap()).broker_name,
        broker_id: 1,
        address: "127.0.0.1:1".to_owned(),
        start: PhysicalOffset(0),
        end: PhysicalOffset(0),
        epochs: rocketpy_ha::Epochs::default(),
        max_body_bytes: 4 << 20,
        file_bytes: 0,
        nonce: "nonce".to_owned(),
        proof: None,
        tail: None,
        refusal: None,
        is_other_log: false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slaves_that_say_who_they_are_get_all_in_long_frames_and_are_told_apart_behind_one_address() {
    let fixture = start(|config| config.replication.in_sync_replicas = Some(3)).await;
    fill(&fixture, 40, &"x".repeat(3000)).await;
    let end = end_of_log(&fixture).await;
    let mut slaves = Vec::new();
    for broker_id in 1..=2 {
        assert_eq!(code_of_send(&fixture, "y").await, response::SLAVE_NOT_AVAILABLE, "{broker_id}");
        let mut slave = Slave::connect(&fixture);
        let master = slave.greet(&Greeting { broker_id, ..empty_greeting() });
        assert_eq!((master.broker_id, master.refusal), (0, None));
        assert_eq!(master.epochs.list().len(), 1, "its first life");
        slave.socket.write_all(&FROM_THE_FIRST_FILE.to_be_bytes()).unwrap();
        assert_eq!(slave.frame(), (0, 1 << 16), "a whole file, which Apache's slaves get in two");
        let end = end_of_log(&fixture).await;
        slave.read_to(end);
        slave.report(end as u64);
        slaves.push(slave);
    }
    // A slave counts as in sync before its report is read.
    let have_reported = async || {
        let slaves = status(&fixture).await.ha_connection_info;
        slaves.len() == 2 && slaves.iter().all(|slave| slave.diff < 1000)
    };
    wait_until("both have reported", have_reported).await;
    let mut call = begin_send(&fixture, "z").await;
    let whole = end_of_log(&fixture).await;
    let mut lags: Vec<_> = status(&fixture).await.ha_connection_info;
    lags.sort_by_key(|slave| slave.broker_id);
    let lags: Vec<_> = lags.iter().map(|slave| (slave.broker_id, slave.lag_records, slave.diff)).collect();
    let behind = |at: usize| (whole - slaves[at].log.len()) as i64;
    let expected = [(Some(1), Some(2), behind(0)), (Some(2), Some(1), behind(1))];
    assert_eq!(lags, expected, "one message, and another that came before the second slave");
    for slave in &mut slaves {
        assert!(is_waiting(&mut call).await);
        slave.read_to(whole);
        slave.report(whole as u64);
    }
    assert_eq!(call.await.unwrap().code, response::SUCCESS);
    assert!(end < whole);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_no_slave_confirms_in_time_is_an_error_that_says_where_it_is() {
    let fixture = start(|config| config.replication.slave_timeout = Duration::from_millis(50)).await;
    fixture.create_topic("alone", 1).await;
    fill(&fixture, 1, "x").await;
    let mut slave = Slave::connect(&fixture);
    slave.greet(&Greeting { broker_id: 1, ..empty_greeting() }); // nobody answers at its address
    slave.socket.write_all(&FROM_THE_FIRST_FILE.to_be_bytes()).unwrap();
    let end = end_of_log(&fixture).await;
    slave.read_to(end);
    slave.report(end as u64);
    wait_until("it is in sync", async || status(&fixture).await.in_sync_slave_nums == 1).await;
    let answer = fixture.call(create_topic("late", 1, 6)).await;
    assert_eq!(answer.code, response::FLUSH_SLAVE_TIMEOUT);
    assert!(answer.remark.unwrap().contains("the change is stored on this broker, but too few slaves"));
    assert!(crate::topics::get(&fixture, "late").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_greeting_of_another_log_is_answered_with_what_is_wrong() {
    let fixture = start(|_| {}).await;
    fill(&fixture, 3, "kept").await;
    let log = synced(&fixture).await.log;
    let end = PhysicalOffset(log.len() as u64);
    let crc = crc32fast::hash(&log[10..]);
    let own = Greeting { end, tail: Some(Tail { from: PhysicalOffset(10), crc }), ..empty_greeting() };
    let master = Slave::connect(&fixture).greet(&own);
    assert_eq!(master.refusal, None);
    let epoch = |start| Epoch { id: 7, start: PhysicalOffset(start), after_loss: false };
    let strange = |change: &dyn Fn(&mut Greeting)| {
        let mut greeting = Greeting { epochs: master.epochs.clone(), ..own.clone() };
        change(&mut greeting);
        let mut slave = Slave::connect(&fixture);
        let refusal = slave.greet(&greeting).refusal.unwrap_or_default();
        assert!(refusal.is_empty() || slave.is_let_go(), "{refusal}");
        refusal
    };
    assert_eq!(strange(&|_| {}), "");
    assert!(
        strange(&|other| other.broker_name = "another".to_owned())
            .contains("brokerName another of the connecting broker")
    );
    assert!(strange(&|other| other.tail.as_mut().unwrap().crc ^= 1).contains("the logs differ before"));
    let unknown = strange(&|other| {
        other.epochs = rocketpy_ha::Epochs::default();
        other.epochs.begin(epoch(0));
    });
    assert!(unknown.contains("the slave has another log"), "{unknown}");
    let diverged = strange(&|other| other.epochs.begin(epoch(10)));
    assert!(diverged.contains("the logs diverge at 10:"), "{diverged}");
    let longer = strange(&|other| (other.end, other.tail) = (end + 1, None));
    assert!(longer.contains(&format!("the logs diverge at {end}:")), "{longer}");

    let later = start(|config| config.store.begin_at = Some(PhysicalOffset(1 << 16))).await;
    fill(&later, 1, "x").await;
    let refusal = Slave::connect(&later).greet(&own).refusal.unwrap_or_default();
    assert!(
        refusal.contains(&format!(
            "the slave needs the log from {end} on, but older files were removed and it now starts at 65536"
        )),
        "{refusal}"
    );

    let mut talker = Slave::connect(&fixture);
    talker.socket.write_all(&GREETING.to_be_bytes()).unwrap();
    talker.socket.write_all(&[1, 0, 0, 0]).unwrap();
    assert!(talker.is_let_go(), "a greeting of 16 MiB");
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            match std::fs::copy(entry.path(), &target) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {} // renamed meanwhile
                copied => drop(copied.unwrap()),
            }
        }
    }
}

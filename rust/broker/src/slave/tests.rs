//! What a master of any version answers, and what becomes of it, with a master of these tests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_auth::{Accounts, Guard, Rules};
use rocketpy_env::{Disk, RealDisk};
use rocketpy_model::{DataVersion, system};
use rocketpy_protocol::Command;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::disk::TimerCheckpoint;
use rocketpy_remoting::{Connection, Credentials, Handler, Reply, Response, Server, ServerConfig};

use super::*;
use crate::put::{Delay, NewMessage, Origin, put};
use crate::refusal::Refusal;
use crate::role::{OwnLog, Role};
use crate::service::{Service, Services};
use crate::table::offset::{Place, Readable};
use crate::testing::{TestBroker, message, until};

const PATIENCE: Duration = Duration::from_secs(60);

/// What Apache 5.5.0 answers, in its own JSON.
const TOPICS: &str = r#"{"dataVersion":{"counter":7,"stateVersion":0,"timestamp":1700000000000},"mappingDataVersion":{"counter":0,
    "stateVersion":0,"timestamp":1},"newMember":{"a":[1]},"topicConfigTable":{"orders":{"attributes":{},"order":false,"perm":6,
    "readQueueNums":3,"topicFilterType":"SINGLE_TAG","topicName":"orders","topicSysFlag":0,"writeQueueNums":3},
    "broker-a.example.org":{"topicName":"broker-a.example.org"}},"topicQueueMappingDetailMap":{}}"#;
const GROUPS: &str = r#"{"dataVersion":{"counter":2,"stateVersion":0,"timestamp":1700000000001},"forbiddenTable":{"readers":{"orders":4}},
    "subscriptionGroupTable":{"readers":{"groupName":"readers","retryMaxTimes":5}}}"#;
/// What Apache 4.9 answers: no versions, keys without quotes.
const OFFSETS: &str = r#"{"offsetTable":{"orders@readers":{0:3,1:0},"orders@readers@c1":{0:2}}}"#;
const DELAYS: &str = r#"{"offsetTable":{1:10,3:2}}"#;

/// Answers as it is told, and counts.
#[derive(Default)]
struct Master {
    answers: Mutex<Vec<(i32, String)>>,
    timers: Mutex<Option<TimerCheckpoint>>,
    /// Answers in pages, one after the other: a body and the total.
    pages: Mutex<VecDeque<(String, i32)>>,
    end: Mutex<u64>,
    asked: Mutex<Vec<Command>>,
}

impl Master {
    fn new() -> Arc<Self> {
        let master = Self::default();
        master.answer(request::GET_ALL_TOPIC_CONFIG, TOPICS);
        master.answer(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GROUPS);
        master.answer(request::GET_ALL_CONSUMER_OFFSET, OFFSETS);
        master.answer(request::GET_ALL_DELAY_OFFSET, DELAYS);
        Arc::new(master)
    }

    fn answer(&self, code: i32, body: &str) {
        let mut answers = self.answers.lock();
        answers.retain(|answer| answer.0 != code);
        answers.push((code, body.to_owned()));
    }

    fn asked(&self, code: i32) -> usize {
        self.asked.lock().iter().filter(|command| command.code == code).count()
    }
}

impl Handler for Master {
    fn handle(&self, _connection: &Arc<Connection>, command: Command, reply: Reply) {
        let code = command.code;
        self.asked.lock().push(command);
        let ok = |body: String| Response::success().with_body(body.into_bytes().into());
        if code == request::GET_ALL_TOPIC_CONFIG
            && let Some((body, total)) = self.pages.lock().pop_front()
        {
            let mut response = ok(body);
            response.command.ext.push("totalTopicNum", &total.to_string());
            return reply.send(response);
        }
        let body = self.answers.lock().iter().find(|answer| answer.0 == code).map(|answer| answer.1.clone());
        reply.send(match (code, body) {
            (request::GET_BROKER_RUNTIME_INFO, None) => {
                ok(format!(r#"{{"table":{{"commitLogMaxOffset":"{}"}}}}"#, self.end.lock()))
            }
            (request::GET_TIMER_CHECK_POINT, None) => match *self.timers.lock() {
                Some(timers) => Response::success().with_body(timers.encode().to_vec().into()),
                None => Response::not_supported(code),
            },
            (request::GET_QUOTAS, None) => Response::not_supported(code),
            (request::COPY_ACCOUNTS, None) => Refusal::UsersOff.response(),
            (_, Some(body)) => ok(body),
            (_, None) => Response::status(response::SYSTEM_ERROR, "not told"),
        });
    }
}

/// A slave, and the master that it asks.
struct Fixture {
    _server: Server,
    master: Arc<Master>,
    service: Arc<MasterMetadata>,
    slave: TestBroker,
}

impl Fixture {
    fn start() -> Self {
        Self::start_with(|_| {})
    }

    fn start_with(change: impl FnOnce(&mut crate::BrokerConfig)) -> Self {
        let master = Master::new();
        let server = Server::bind(ServerConfig::new("127.0.0.1:0".parse().unwrap()), master.clone()).unwrap();
        let slave = TestBroker::open(|config| {
            config.broker_id = 1;
            change(config);
        });
        slave.peers.master().set(Some(&server.local_addr().to_string()));
        slave.ground.role().set_log(OwnLog::Followed);
        Self { _server: server, master, service: slave.role_changes.metadata().clone(), slave }
    }

    async fn round(&self) {
        self.service.round().await;
    }

    /// The slave as the master of its name.
    async fn promoted(self) -> TestBroker {
        drop(self.service);
        self.slave.started_again(|config| config.broker_id = system::MASTER_ID).await
    }

    fn reason(&self, part: &str) -> Option<String> {
        self.service.reason(part)
    }

    fn warnings(&self) -> usize {
        self.service.warnings.load(Ordering::Relaxed)
    }

    fn offset(&self, group: &str, queue_id: u32) -> Option<i64> {
        self.slave.members.offsets().get(group, "orders", queue_id)
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        let path = self.slave.ground.config().store.root.join("config").join(name);
        RealDisk.read(&path, 1 << 20).unwrap_or_default()
    }

    /// Puts messages into the log of the slave, as the copy of the master's would.
    async fn copy(&self, topic: &str, messages: usize) {
        self.slave.ground.role().set(Role::Master);
        for _ in 0..messages {
            put(&self.slave.intake, Origin::Broker, &NewMessage { delay: Delay::Over, ..message(topic, "") })
                .unwrap();
        }
        let end = self.slave.ground.store().max_physical_offset();
        until("dispatch has come there", || self.slave.ground.store().dispatched_offset() >= end).await;
        self.slave.ground.role().set(Role::Slave { id: 1 });
    }
}

#[tokio::test]
async fn topics_and_groups_of_apache_masters_arrive_with_their_versions_and_its_own_system_topics_stay() {
    let fixture = Fixture::start();
    let slave = &fixture.slave;
    let own = slave.ground.topics().all().1.len();
    fixture.round().await;
    let version = |counter, changed_at_ms| DataVersion { counter, state_version: 0, changed_at_ms };
    assert_eq!(slave.ground.topics().version(), version(7, 1_700_000_000_000));
    assert_eq!(slave.ground.topics().get("orders").unwrap().write_queues, 3);
    assert!(
        slave.ground.topics().contains(system::SCHEDULE_TOPIC)
            && !slave.ground.topics().contains("broker-a.example.org")
    );
    assert_eq!(slave.ground.topics().all().1.len(), own + 1);
    assert_eq!(slave.ground.groups().all().data_version, version(2, 1_700_000_000_001));
    assert_eq!(slave.ground.groups().get("readers").unwrap().retry_max_times, 5);
    assert!(slave.ground.groups().is_read_forbidden("readers", "orders"));
    assert!(slave.ground.groups().get(system::TOOLS_GROUP).is_some());

    let writes = || (slave.ground.topics().gate.arrived(), slave.ground.groups().gate.arrived());
    let before = writes();
    fixture.round().await;
    assert_eq!(writes(), before, "equal versions are not written again");
    fixture
        .master
        .answer(request::GET_ALL_TOPIC_CONFIG, &TOPICS.replace("orders", "bills").replace(":7,", ":8,"));
    fixture.round().await;
    assert!(slave.ground.topics().contains("bills") && !slave.ground.topics().contains("orders"));
    assert_eq!(slave.ground.topics().version().counter, 8);
    assert_eq!(
        ["topics", "groups", "offsets", "master"].map(|part| fixture.reason(part)),
        [None, None, None, None]
    );
}

#[tokio::test]
async fn offsets_and_progress_wait_until_the_log_is_there() {
    let fixture = Fixture::start();
    fixture.round().await; // the topics
    fixture.copy("orders", 4).await;
    fixture.copy(system::TIMER_TOPIC, 3).await;
    let read_ms = fixture.slave.ground.store().now_ms() / 1000 * 1000 - 5000;
    *fixture.master.timers.lock() = Some(TimerCheckpoint {
        read_ms,
        log_flushed: 520,
        queue_offset: 2,
        master_queue_offset: 2,
        data_version: [0, 5, 6],
        ..TimerCheckpoint::default()
    });
    let end = fixture.slave.ground.store().max_physical_offset().get();
    *fixture.master.end.lock() = end + 1;
    // The progress of the first round, whose end was 0, is taken before.
    fixture.round().await;
    let before = (fixture.bytes("delayOffset.json"), fixture.bytes("timercheck"));
    fixture.master.answer(request::GET_ALL_CONSUMER_OFFSET, &OFFSETS.replace("0:3", "0:4"));
    fixture.master.answer(
        request::GET_ALL_DELAY_OFFSET,
        r#"{"dataVersion":{"counter":9,"timestamp":5},"offsetTable":{2:0}}"#,
    );
    fixture.round().await;
    let now = (fixture.bytes("delayOffset.json"), fixture.bytes("timercheck"));
    assert_eq!(now, before, "the log is not there");
    assert_ne!(fixture.offset("readers", 0), Some(4));
    assert_ne!(fixture.slave.timers.checkpoint().data_version, [0, 5, 6]);

    fixture.copy("orders", 1).await;
    fixture.round().await;
    assert_eq!(fixture.offset("readers", 0), Some(4));
    assert_eq!((fixture.offset("readers", 1), fixture.offset("readers@c1", 0)), (Some(0), Some(2)));
    assert_eq!(fixture.slave.delays.content().data_version.counter, 9);
    let checkpoint = fixture.slave.timers.checkpoint();
    assert_eq!((checkpoint.read_ms, checkpoint.queue_offset), (read_ms, 2));
    assert_eq!(checkpoint.data_version, [0, 5, 6]);
    assert_eq!(fixture.bytes("timercheck"), checkpoint.encode_file());
    let again = fixture.slave.members.offsets().persist().unwrap();
    again.expect("they are to be written").done().await.unwrap();
    fixture.round().await;
    assert!(fixture.slave.members.offsets().persist().unwrap().is_none(), "the same is not written again");
}

#[tokio::test]
async fn a_masters_offset_goes_before_the_slaves_and_is_never_beyond_the_end_of_the_queue() {
    let fixture = Fixture::start();
    fixture.round().await;
    fixture.copy("orders", 4).await;
    let readable = Readable { min: 0, max: 4 };
    for (group, offset) in [("readers", 1), ("others", 2)] {
        let place = Place { group, topic: "orders", queue_id: 0 };
        drop(fixture.slave.members.offsets().commit(place, offset, readable).unwrap());
    }
    let far = OFFSETS.replace("0:3", &format!("0:{}", i64::MAX));
    fixture.master.answer(request::GET_ALL_CONSUMER_OFFSET, &far);
    fixture.round().await;
    assert_eq!((fixture.offset("readers", 0), fixture.offset("others", 0)), (Some(4), Some(2)));
}

/// All that a slave takes over, but for the timers.
fn tables(slave: &TestBroker) -> impl PartialEq + std::fmt::Debug {
    let (topics, groups) = (slave.ground.topics().all(), slave.ground.groups().all());
    (topics, groups, slave.members.offsets().content(), slave.delays.content())
}

#[tokio::test]
async fn broken_and_hostile_answers_change_nothing_and_are_logged_once() {
    let fixture = Fixture::start_with(|config| config.max_topics = 100);
    fixture.round().await;
    let slave = &fixture.slave;
    let before = || tables(slave);
    let known = before();
    let many: Vec<String> = (0..200).map(|number| format!(r#""t{number}":{{}}"#)).collect();
    let of_version = |table: &str| format!(r#"{{"dataVersion":{{"counter":99,"timestamp":1}},{table}}}"#);
    let topics = [
        "no JSON".to_owned(),
        "{}".to_owned(),
        of_version(r#""topicConfigTable":{"../../etc":{}}"#),
        of_version(r#""topicConfigTable":{"a/b":{}}"#),
        of_version(r#""topicConfigTable":{}"#),
        of_version(&format!(r#""topicConfigTable":{{{}}}"#, many.join(","))),
    ];
    for body in topics {
        fixture.master.answer(request::GET_ALL_TOPIC_CONFIG, &body);
        fixture.round().await;
        assert!(fixture.reason("topics").is_some(), "{body}");
        assert_eq!(before(), known, "{body}");
    }
    fixture.master.answer(request::GET_ALL_TOPIC_CONFIG, TOPICS);
    for body in ["[]", "{}", &of_version(r#""subscriptionGroupTable":{"../g":{}}"#)] {
        // `{}` has the version of a table that never changed.
        fixture.master.answer(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG, body);
        fixture.round().await;
        assert!(fixture.reason("groups").is_some(), "{body}");
        assert_eq!(before(), known, "{body}");
    }
    fixture.master.answer(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GROUPS);
    fixture.master.answer(
        request::GET_ALL_CONSUMER_OFFSET,
        r#"{"offsetTable":{"orders":{0:1},"../x@g":{0:1},"orders@g":{-1:1,99999:1,0:-5}}}"#,
    );
    fixture.round().await;
    assert!(fixture.reason("progress").is_some_and(|reason| reason.starts_with("5 of the master's offsets")));
    assert_eq!(before(), known);
    fixture.master.answer(request::GET_ALL_CONSUMER_OFFSET, OFFSETS);
    let far = TimerCheckpoint { read_ms: i64::MAX, ..TimerCheckpoint::default() };
    *fixture.master.timers.lock() = Some(far);
    let checkpoint = slave.timers.checkpoint();
    fixture.round().await;
    assert!(fixture.reason("offsets").is_some_and(|reason| reason.contains("clock")));
    assert_eq!(slave.timers.checkpoint(), checkpoint);
    assert_eq!(before(), known);

    let said = fixture.warnings();
    fixture.round().await;
    fixture.round().await;
    assert_eq!(fixture.warnings(), said, "the same reason again");
    *fixture.master.timers.lock() = None;
    fixture.round().await;
    assert_eq!(fixture.reason("offsets"), None);
}

#[tokio::test]
async fn a_table_in_pages_is_read_whole_and_begun_again_when_it_changes() {
    let fixture = Fixture::start();
    let page = |counter: i64, names: &[&str]| {
        let table: Vec<String> = names.iter().map(|name| format!(r#""{name}":{{}}"#)).collect();
        let version = format!(r#""dataVersion":{{"counter":{counter},"timestamp":1}}"#);
        format!(r#"{{{version},"topicConfigTable":{{{}}}}}"#, table.join(","))
    };
    let pages = [
        (page(1, &["a"]), 4),
        (page(2, &["b"]), 5),
        (page(2, &["a"]), 5),
        (page(2, &["b", "c"]), 5),
        (page(2, &["d", "e"]), 5),
    ];
    fixture.master.pages.lock().extend(pages);
    fixture.round().await;
    assert_eq!(fixture.reason("topics"), None);
    let has = |name: &&str| fixture.slave.ground.topics().contains(name);
    assert!(["a", "b", "c", "d", "e"].iter().all(has));
    let last = {
        let asked = fixture.master.asked.lock();
        asked.iter().rfind(|command| command.code == request::GET_ALL_TOPIC_CONFIG).unwrap().clone()
    };
    assert_eq!((last.ext.get("topicSeq"), last.ext.get("maxTopicNum")), (Some("3"), Some("2000")));
    assert_eq!(last.ext.get("dataVersion"), Some(r#"{"counter":2,"stateVersion":0,"timestamp":1}"#));

    // A master that says the same page for ever.
    fixture.master.pages.lock().extend([(page(3, &["a"]), 9), (page(3, &["a"]), 9)]);
    let asked = fixture.master.asked(request::GET_ALL_TOPIC_CONFIG);
    fixture.round().await;
    assert!(fixture.reason("topics").is_some());
    assert_eq!(fixture.master.asked(request::GET_ALL_TOPIC_CONFIG), asked + 2);
    assert_eq!(fixture.slave.ground.topics().version().counter, 2);
}

#[tokio::test]
async fn a_service_asks_while_the_broker_is_a_slave_and_its_master_is_known() {
    let fixture = Fixture::start_with(|config| config.intervals.ask_master = Duration::from_millis(1));
    let slave = Arc::clone(&fixture.slave);
    let address = slave.peers.master().get();
    slave.peers.master().set(None);
    let services = Services::default();
    services.start(slave.role_changes.metadata().clone());
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.master.asked(request::GET_ALL_TOPIC_CONFIG), 0);
    slave.peers.master().set(address.as_deref());
    until("the topics are there", || {
        slave.ground.topics().contains("orders") && slave.peers.master().answers()
    })
    .await;
    slave.ground.role().set(Role::Master);
    services.stop_all(PATIENCE).await;
    services.start(slave.role_changes.metadata().clone());
    let asked = fixture.master.asked.lock().len();
    assert!(services.step("metadata of the master").await);
    assert_eq!(fixture.master.asked.lock().len(), asked, "a master asks nobody");
    services.stop_all(PATIENCE).await;
}

#[tokio::test]
async fn a_slave_stores_nothing_and_makes_nothing() {
    let slave = TestBroker::open(|config| config.broker_id = 2);
    for origin in [Origin::Client, Origin::Broker] {
        let refused = put(&slave.intake, origin, &message("orders", "")).unwrap_err();
        let crate::put::NotPut::Refused(refusal) = refused else { panic!("{refused:?}") };
        assert_eq!(refusal.code(), response::SERVICE_NOT_AVAILABLE);
        assert!(!crate::put::is_lasting(&refusal), "whoever delivers late tries again");
        let text = refusal.to_string();
        assert!(text.contains("slave (broker id 2)") && text.contains("send to the master"), "{text}");
    }
    assert!(slave.ground.group("readers").unwrap().written.is_none(), "served, and not made");
    assert!(!slave.ground.topics().contains("orders") && slave.ground.groups().get("readers").is_none());
    assert_eq!(slave.ground.topics().version(), DataVersion::default(), "a start is no change");
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_messages_are_delivered_after_a_promotion_from_where_the_master_was() {
    let fixture = Fixture::start();
    let slave = &fixture.slave;
    fixture.master.answer(request::GET_ALL_DELAY_OFFSET, r#"{"offsetTable":{1:2}}"#);
    fixture.round().await;
    slave.ground.role().set(Role::Master);
    for _ in 0..3 {
        put(&slave.intake, Origin::Client, &message("orders", "DELAY\u{1}1\u{2}")).unwrap();
    }
    slave.ground.role().set(Role::Slave { id: 1 });
    let end = slave.ground.store().max_physical_offset();
    until("dispatch has come there", || slave.ground.store().dispatched_offset() >= end).await;
    let services = Services::default();
    services.start(Arc::new(crate::delay::DelayDelivery::new(slave.delays.clone())));
    fixture.round().await;
    assert_eq!(slave.delays.waiting_from()[0].get(), 2);
    assert!(services.step("delay delivery").await);
    assert_eq!(slave.ground.store().max_physical_offset(), end, "a slave delivers nothing");
    services.stop_all(PATIENCE).await;
    drop(services);

    let master = fixture.promoted().await;
    let services = Services::default();
    services.start(Arc::new(crate::delay::DelayDelivery::new(master.delays.clone())));
    until("the last one is delivered", || master.delays.delivered() == 1).await;
    services.stop_all(PATIENCE).await;
    assert_eq!(master.ground.store().next_queue_offset("orders", 0).get(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn timer_messages_are_delivered_after_a_promotion_but_for_those_that_the_master_delivered() {
    let fixture = Fixture::start();
    let slave = &fixture.slave;
    fixture.round().await;
    slave.ground.role().set(Role::Master);
    let now_ms = slave.ground.store().now_ms();
    for after_ms in [2500, 100, 200] {
        let properties = format!("TIMER_DELIVER_MS\u{1}{}\u{2}", now_ms + after_ms);
        put(&slave.intake, Origin::Client, &message("orders", &properties)).unwrap();
    }
    slave.ground.role().set(Role::Slave { id: 1 });
    let end = slave.ground.store().max_physical_offset();
    until("dispatch has come there", || slave.ground.store().dispatched_offset() >= end).await;
    // The master has delivered the last two, whose seconds are over.
    let read_ms = (now_ms + 200).div_euclid(1000) * 1000 + 1000;
    *fixture.master.timers.lock() = Some(TimerCheckpoint {
        read_ms,
        queue_offset: 3,
        master_queue_offset: 3,
        data_version: [0, 1, 1],
        ..TimerCheckpoint::default()
    });
    fixture.round().await;
    let services = Services::default();
    services.start(Arc::new(crate::timer::TimerDelivery::new(slave.timers.clone())));
    until("two are due", || slave.ground.store().now_ms() > now_ms + 300).await;
    assert!(services.step("timer delivery").await);
    assert_eq!(slave.timers.waiting(), 0, "a slave has no wheel");
    assert_eq!(slave.ground.store().max_physical_offset(), end, "a slave delivers nothing");
    services.stop_all(PATIENCE).await;
    drop(services);

    let master = fixture.promoted().await;
    let services = Services::default();
    services.start(Arc::new(crate::timer::TimerDelivery::new(master.timers.clone())));
    until("the first one is delivered", || master.timers.delivered() > 0).await;
    services.stop_all(PATIENCE).await;
    assert_eq!(
        (master.timers.delivered(), master.ground.store().next_queue_offset("orders", 0).get()),
        (1, 1)
    );
    assert!(master.ground.store().now_ms() >= now_ms + 2500);
}

#[tokio::test]
async fn a_transaction_that_its_master_left_open_can_be_ended_after_a_promotion() {
    let fixture = Fixture::start();
    let slave = &fixture.slave;
    fixture.round().await;
    slave.ground.role().set(Role::Master);
    let half = NewMessage {
        sys_flag: rocketpy_model::sys_flag::TRANSACTION_PREPARED,
        ..message("orders", "TRAN_MSG\u{1}true\u{2}PGROUP\u{1}producers\u{2}")
    };
    for _ in 0..2 {
        put(&slave.intake, Origin::Client, &half).unwrap();
    }
    let mark = NewMessage { body: b"0", ..message(system::OP_HALF_TOPIC, "TAGS\u{1}d\u{2}") };
    put(&slave.intake, Origin::Broker, &mark).unwrap();
    slave.ground.role().set(Role::Slave { id: 1 });
    let end = slave.ground.store().max_physical_offset();
    until("dispatch has come there", || slave.ground.store().dispatched_offset() >= end).await;
    let key = format!("{}@{}", system::HALF_TOPIC, system::TRANSACTION_GROUP);
    fixture
        .master
        .answer(request::GET_ALL_CONSUMER_OFFSET, &format!(r#"{{"offsetTable":{{"{key}":{{0:1}}}}}}"#));
    fixture.round().await;
    let master = fixture.promoted().await;
    let is_open = [0, 1].map(|half| master.transactions.is_open(rocketpy_model::QueueOffset(half)));
    assert_eq!(is_open, [false, true], "the master was done with the first one");
}

#[tokio::test]
async fn a_slave_with_a_token_takes_nothing_from_a_broker_that_does_not_prove_it() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    RealDisk.replace(&token, b"secret").unwrap();
    let fixture = Fixture::start_with(|config| config.replication.token_file = Some(token));
    fixture.round().await;
    assert_eq!(fixture.master.asked(request::GET_BROKER_HA_STATUS), 1);
    assert_eq!(fixture.master.asked(request::GET_ALL_TOPIC_CONFIG), 0);
    assert!(fixture.slave.ground.topics().get("orders").is_none());
    assert!(fixture.reason("master").unwrap().contains("did not prove"));
}

#[tokio::test]
async fn slave_keeps_its_users_when_its_master_has_users_off() {
    let folder = tempfile::tempdir().unwrap();
    let accounts = Accounts::open(folder.path().join("users.json")).unwrap();
    accounts.ensure_super("servers", "secret").unwrap();
    let fixture = Fixture::start_with(|config| {
        config.auth.guard = Some(Guard::new(accounts.clone(), Rules::default(), None));
        config.auth.credentials = Some(Credentials::new("servers", "secret"));
    });
    let address = fixture.slave.peers.master().get().unwrap();
    let master = ask::Master { client: &fixture.slave.ground.config().new_client(), address: &address };
    for _ in 0..2 {
        fixture.service.take_accounts(&master).await.unwrap();
    }
    assert_eq!(fixture.master.asked(request::COPY_ACCOUNTS), 2);
    assert!(fixture.service.has_users_off.load(Ordering::Relaxed), "said once");
    assert_eq!((fixture.warnings(), fixture.reason("users")), (0, None));
    assert!(accounts.user("servers").is_some(), "its own users stay");
}

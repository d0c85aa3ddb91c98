//! Requests that wait for a disk that stands still, and those that do not.

use std::sync::Arc;
use std::time::Duration;

use rocketpy_model::TopicConfig;
use rocketpy_model::sys_flag::pull as flag;
use rocketpy_protocol::body::{ConsumerData, HeartbeatData, ProducerData, SubscriptionData};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{
    CreateTopicRequestHeader, Header, PullMessageRequestHeader, SendMessageResponseHeader,
    UpdateConsumerOffsetRequestHeader,
};
use rocketpy_protocol::{Command, json};
use rocketpy_remoting::{Client, ClientConfig, MemoryBudget, PendingCall, Server, ServerConfig};
use rocketpy_store::{Arrival, StoreListener};

use super::Processor;
use crate::BrokerConfig;
use crate::broker::{Listener, MAX_WAITING_SENDS};
use crate::testing::{Closed, Gate, TestBroker, send, until};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A broker that serves, with topic `known`, and the files of which writes can be held.
struct Fixture {
    address: String,
    client: Client,
    memory: Arc<MemoryBudget>,
    _server: Server,
    /// Dropped last: it closes the store.
    broker: TestBroker,
}

impl Fixture {
    async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    async fn start_with(change: impl FnOnce(&mut BrokerConfig)) -> Self {
        let broker = TestBroker::open(change);
        let created = broker.ground.topics().create(vec![TopicConfig::new("known", 1)]).unwrap();
        created.written.unwrap().done().await.unwrap();
        let processor = Arc::new(Processor(Arc::clone(&broker)));
        let config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        let memory = config.memory.clone();
        let server = Server::bind(config, processor).unwrap();
        let address = server.local_addr().to_string();
        Self { address, client: Client::new(ClientConfig::default()), memory, _server: server, broker }
    }

    async fn begin(&self, client: &Client, request: Command) -> PendingCall {
        client.start_call(&self.address, request, TIMEOUT).await.unwrap()
    }

    async fn call(&self, client: &Client, request: Command) -> Command {
        client.call(&self.address, request, TIMEOUT).await.unwrap()
    }

    /// Puts the first message into `known`, and waits until pulls find it.
    async fn send_first(&self) {
        assert_eq!(self.call(&self.client, send("known", "x")).await.code, 0);
        until("dispatch has come there", || {
            self.broker.ground.store().queue_bounds("known", 0).max.get() == 1
        })
        .await;
    }
}

fn create(topic: &str) -> Command {
    create_with(topic, None)
}

fn create_with(topic: &str, attributes: Option<&str>) -> Command {
    let header = CreateTopicRequestHeader {
        topic,
        default_topic: "TBW102",
        read_queue_nums: 1,
        write_queue_nums: 1,
        perm: 6,
        topic_filter_type: "SINGLE_TAG",
        topic_sys_flag: None,
        order: None,
        attributes,
        force: None,
    };
    Command::request(request::UPDATE_AND_CREATE_TOPIC, &header)
}

fn commit(group: &str, offset: i64) -> Command {
    let header = UpdateConsumerOffsetRequestHeader {
        consumer_group: group,
        topic: "known",
        queue_id: 0,
        commit_offset: offset,
        broker_name: None,
    };
    Command::request(request::UPDATE_CONSUMER_OFFSET, &header)
}

fn pull(group: &str, sys_flag: i32) -> Command {
    pull_with(group, sys_flag, "*")
}

fn pull_with(group: &str, sys_flag: i32, subscription: &str) -> Command {
    let header = PullMessageRequestHeader {
        consumer_group: group,
        topic: "known",
        queue_id: 0,
        queue_offset: 0,
        max_msg_nums: 10,
        sys_flag,
        commit_offset: 0,
        suspend_timeout_millis: 600_000,
        subscription: Some(subscription),
        sub_version: 0,
        expression_type: None,
        max_msg_bytes: None,
        request_source: None,
        proxy_froward_client_id: None,
        broker_name: None,
    };
    Command::request(request::PULL_MESSAGE, &header)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creations_on_a_disk_that_stands_still_hold_up_nobody_else_and_share_its_writes() {
    let fixture = Fixture::start().await;
    let gate = fixture.broker.ground.topics().gate.clone();
    let closed = Closed::new(&gate);
    let before = gate.arrived();
    let (mut waiting, mut clients) = (Vec::new(), Vec::new());
    for connection in 0..20 {
        let client = Client::new(ClientConfig::default());
        for number in 0..15 {
            let topic = format!("created-{connection}-{number}");
            waiting.push(fixture.begin(&client, create(&topic)).await);
            let topic = format!("sent-to-{connection}-{number}");
            waiting.push(fixture.begin(&client, send(&topic, "x")).await);
        }
        // Over the same connection, and over another one.
        for client in [&client, &fixture.client] {
            assert_eq!(fixture.call(client, send("known", "x")).await.code, 0);
        }
        clients.push(client);
    }
    assert_eq!(waiting.len(), 600);
    assert_eq!(gate.arrived(), before + 1, "one write is under way");
    assert!(!fixture.broker.ground.topics().contains("created-0-0"), "it is not on disk");
    drop(closed);
    for call in waiting {
        let answer = call.await.unwrap();
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
    }
    assert!(
        fixture.broker.ground.topics().contains("created-19-14")
            && fixture.broker.ground.topics().contains("sent-to-19-14")
    );
    // The one that stood still, the next one, and a few that began before the last requests were read.
    assert!(gate.arrived() - before < 30, "{} writes for 600 topics", gate.arrived() - before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_attributes_keeps_those_that_are_about_to_be_written() {
    let fixture = Fixture::start().await;
    let gate = fixture.broker.ground.topics().gate.clone();
    let closed = Closed::new(&gate);
    let before = gate.arrived();
    let wanted = [("message.type", "FIFO"), ("flush.type", "SYNC_FLUSH"), ("retention.hours", "5")];
    let mut calls = Vec::new();
    for (name, value) in wanted {
        let request = create_with("known", Some(&format!("+{name}={value}")));
        calls.push(fixture.begin(&fixture.client, request).await);
        until("the first one is being written", || gate.arrived() > before).await;
    }
    // Over the same connection: all of them have come by then.
    assert_eq!(fixture.call(&fixture.client, pull("TOOLS_CONSUMER", 4)).await.code, response::PULL_NOT_FOUND);
    drop(closed);
    for call in calls {
        assert_eq!(call.await.unwrap().code, 0);
    }
    let attributes = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(fixture.broker.ground.topics().get("known").unwrap().attributes, attributes.into());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sends_to_a_topic_that_is_being_made_keep_their_order() {
    let fixture = Fixture::start().await;
    let closed = Closed::new(&fixture.broker.ground.topics().gate);
    let mut calls = Vec::new();
    for number in 0..1000 {
        calls.push(fixture.begin(&fixture.client, send("made", number.to_string())).await);
        if number == 300 {
            fixture.broker.ground.topics().gate.open();
        }
    }
    for (number, call) in calls.into_iter().enumerate() {
        let answer = call.await.unwrap();
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
        let offset = SendMessageResponseHeader::read(&answer.ext).unwrap().queue_offset;
        assert_eq!(offset, number as i64);
    }
    drop(closed);
    assert!(!fixture.broker.rooms.sends_to_new_topics.has("made"), "nothing is left behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sends_that_would_take_too_much_memory_while_they_wait_are_told_that_the_broker_is_busy() {
    let fixture = Fixture::start().await;
    let _closed = Closed::new(&fixture.broker.ground.topics().gate);
    let body = "x".repeat(3 << 20);
    let clients = [(); 3].map(|()| Client::new(ClientConfig::default()));
    let mut waiting = Vec::new();
    for (connection, client) in clients.iter().enumerate() {
        for number in 0..7 {
            let topic = format!("made-{connection}-{number}");
            waiting.push(fixture.begin(client, send(&topic, &body)).await);
        }
        // Over the same connection: all of them have come by then.
        assert_eq!(fixture.call(client, send("known", "x")).await.code, 0);
    }
    let refused = fixture.call(&fixture.client, send("made-too", &body)).await;
    assert_eq!(refused.code, 2, "{:?}", refused.remark);
    assert_eq!(fixture.call(&fixture.client, send("known", "x")).await.code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_offsets_wait_for_the_disk_and_nobody_else_does() {
    let fixture = Fixture::start().await;
    fixture.send_first().await;
    let data = HeartbeatData {
        client_id: "c".to_owned(),
        consumer_data_set: vec![ConsumerData {
            group_name: "pushed".to_owned(),
            subscription_data_set: vec![SubscriptionData {
                topic: "known".to_owned(),
                sub_string: "*".to_owned(),
                ..SubscriptionData::default()
            }],
            ..ConsumerData::default()
        }],
        ..HeartbeatData::default()
    };
    let heartbeat = Command::bare_request(request::HEART_BEAT).with_body(json::to_vec(&data));
    assert_eq!(fixture.call(&fixture.client, heartbeat).await.code, 0);
    assert_eq!(fixture.call(&fixture.client, commit("TOOLS_CONSUMER", 0)).await.code, 0);

    let gate = fixture.broker.members.offsets().gate().clone();
    let closed = Closed::new(&gate);
    let before = gate.arrived();
    let pushed = fixture.begin(&fixture.client, pull("pushed", 0)).await;
    let first = fixture.begin(&fixture.client, commit("DEFAULT_CONSUMER", 0)).await;
    // A reader that depends on what is being written waits as well.
    let reader = fixture.begin(&fixture.client, pull("pushed", 4)).await;
    assert_eq!(fixture.call(&fixture.client, commit("TOOLS_CONSUMER", 0)).await.code, 0, "not its first");
    assert_eq!(fixture.call(&fixture.client, pull("TOOLS_CONSUMER", 4)).await.code, 0);
    assert_eq!(fixture.call(&fixture.client, send("known", "x")).await.code, 0);
    until("the file is being written", || gate.arrived() > before).await;
    let mut waiting = [pushed, first, reader];
    for call in &mut waiting {
        // Later requests of the same connection were answered: an early answer has come before theirs.
        let early = tokio::time::timeout(Duration::ZERO, call).await;
        assert!(early.is_err(), "answered before it is on disk");
    }
    drop(closed);
    for call in waiting {
        assert_eq!(call.await.unwrap().code, 0);
    }
    assert!(gate.arrived() - before <= 2, "all share the next write");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_that_is_refused_waits_for_what_it_created_before() {
    let fixture = Fixture::start_with(|config| config.max_filter_bytes = 100).await;
    let closed = Closed::new(&fixture.broker.ground.topics().gate);
    let member_of = |group: &str, filter: &str| ConsumerData {
        group_name: group.to_owned(),
        subscription_data_set: vec![SubscriptionData {
            topic: "known".to_owned(),
            sub_string: filter.to_owned(),
            ..SubscriptionData::default()
        }],
        ..ConsumerData::default()
    };
    let data = HeartbeatData {
        client_id: "c".to_owned(),
        consumer_data_set: vec![member_of("new", "*"), member_of("refused", &"a||".repeat(100))],
        ..HeartbeatData::default()
    };
    let heartbeat = Command::bare_request(request::HEART_BEAT).with_body(json::to_vec(&data));
    let mut waiting = fixture.begin(&fixture.client, heartbeat).await;
    // Over the same connection: an early answer has come before this one.
    assert_eq!(fixture.call(&fixture.client, send("known", "x")).await.code, 0);
    let early = tokio::time::timeout(Duration::from_millis(50), &mut waiting).await;
    assert!(early.is_err(), "answered before the retry topic is on disk");
    drop(closed);
    assert_eq!(waiting.await.unwrap().code, response::SUBSCRIPTION_PARSE_FAILED);
    assert!(fixture.broker.ground.topics().contains("%RETRY%new"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_of_a_group_that_is_being_made_waits_for_it() {
    let fixture = Fixture::start().await;
    fixture.send_first().await;
    let gate = fixture.broker.ground.groups().gate.clone();
    let closed = Closed::new(&gate);
    let pulled = fixture.begin(&fixture.client, pull("made", 4)).await;
    assert_eq!(fixture.call(&fixture.client, send("known", "x")).await.code, 0);
    assert!(fixture.broker.ground.groups().get("made").is_none(), "it is not on disk");
    drop(closed);
    assert_eq!(pulled.await.unwrap().code, 0);
    assert!(fixture.broker.ground.groups().get("made").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_whose_client_went_while_it_waited_for_the_disk_is_not_held() {
    let fixture = Fixture::start().await;
    let closed = Closed::new(&fixture.broker.ground.groups().gate);
    let client = Client::new(ClientConfig::default());
    let data = HeartbeatData {
        client_id: "c".to_owned(),
        producer_data_set: vec![ProducerData { group_name: "seen".to_owned() }],
        ..HeartbeatData::default()
    };
    let heartbeat = Command::bare_request(request::HEART_BEAT).with_body(json::to_vec(&data));
    assert_eq!(fixture.call(&client, heartbeat.clone()).await.code, 0);
    let is_there = || !fixture.broker.members.clients().producer_group("seen").is_empty();
    assert!(is_there());
    let pulled = fixture.begin(&client, pull("made", flag::SUBSCRIPTION | flag::SUSPEND)).await;
    assert_eq!(fixture.call(&client, heartbeat).await.code, 0, "the pull came before");
    drop((pulled, client));
    until("the broker has noticed", || !is_there()).await;
    drop(closed);
    fixture.broker.ground.tasks().join(TIMEOUT).await;
    assert!(fixture.broker.ground.groups().get("made").is_some(), "the pull went on");
    assert_eq!(fixture.broker.held.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pulls_count_in_the_budget_while_they_wait_for_a_file() {
    const PULLS: usize = 20;
    let fixture = Fixture::start().await;
    let filter = (0..6000).map(|number| format!("tag{number:05}")).collect::<Vec<_>>().join("||");
    let (groups, offsets) =
        (fixture.broker.ground.groups().gate.clone(), fixture.broker.members.offsets().gate().clone());
    for (gate, group, flags) in [(groups, "made", 0), (offsets, "TOOLS_CONSUMER", flag::COMMIT_OFFSET)] {
        let nothing = fixture.memory.used_bytes();
        let closed = Closed::new(&gate);
        let client = Client::new(ClientConfig::default());
        let mut calls = Vec::new();
        for _ in 0..PULLS {
            let request = pull_with(group, flag::SUBSCRIPTION | flags, &filter);
            calls.push(fixture.begin(&client, request).await);
        }
        until("the filters count", || fixture.memory.used_bytes() > nothing + PULLS * filter.len()).await;
        drop(closed);
        for call in calls {
            assert_eq!(call.await.unwrap().code, response::PULL_NOT_FOUND);
        }
        drop(client);
        until("all is given back", || fixture.memory.used_bytes() <= nothing).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_with_a_long_filter_makes_no_group() {
    let fixture = Fixture::start().await;
    let long = "x".repeat(fixture.broker.ground.config().max_filter_bytes + 1);
    let refused = fixture.call(&fixture.client, pull_with("made", flag::SUBSCRIPTION, &long)).await;
    assert_eq!(refused.code, response::SUBSCRIPTION_PARSE_FAILED, "{:?}", refused.remark);
    assert!(fixture.broker.ground.groups().get("made").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_headers_of_sends_count_while_they_wait_for_their_topics() {
    let fixture = Fixture::start().await;
    let _closed = Closed::new(&fixture.broker.ground.topics().gate);
    let field = "x".repeat(3 << 20);
    let with_field = |topic: &str| {
        let mut request = send(topic, "x");
        request.ext.push("unknown", &field);
        request
    };
    let clients = [(); 3].map(|()| Client::new(ClientConfig::default()));
    let mut waiting = Vec::new();
    for (connection, client) in clients.iter().enumerate() {
        for number in 0..7 {
            let request = with_field(&format!("made-{connection}-{number}"));
            waiting.push(fixture.begin(client, request).await);
        }
        // Over the same connection: all of them have come by then.
        assert_eq!(fixture.call(client, send("known", "x")).await.code, 0);
    }
    assert_eq!(fixture.call(&fixture.client, with_field("made-too")).await.code, response::SYSTEM_BUSY);
}

/// Holds up dispatch.
struct SlowDispatch(Arc<Gate>);

impl StoreListener for SlowDispatch {
    fn arrived(&self, _arrivals: &[Arrival]) {
        self.0.pass();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sends_that_wait_for_dispatch_leave_threads_for_everybody_else() {
    let fixture = Fixture::start_with(|config| config.store.max_undispatched_bytes = 1).await;
    let listener = Arc::new(Listener::new(&fixture.broker).0);
    fixture.broker.ground.store().add_listener(listener.clone());
    let gate = Arc::new(Gate::default());
    fixture.broker.ground.store().add_listener(Arc::new(SlowDispatch(gate.clone())));
    let closed = Closed::new(&gate);
    let (mut clients, mut calls) = (Vec::new(), Vec::new());
    calls.push(fixture.begin(&fixture.client, send("known", "x")).await);
    until("dispatch stands still", || gate.arrived() > 0).await;
    for _ in 0..MAX_WAITING_SENDS + 32 {
        let client = Client::new(ClientConfig::default());
        calls.push(fixture.begin(&client, send("known", "x")).await);
        clients.push(client);
    }
    until("as many wait as may", || listener.wait_permits.available_permits() == 0).await;
    let refused = fixture.call(&fixture.client, send("known", "x")).await;
    assert_eq!(refused.code, response::SYSTEM_BUSY, "{:?}", refused.remark);
    // What these answers need runs on the threads that are left.
    let pulled = fixture.call(&fixture.client, pull("DEFAULT_CONSUMER", 4)).await;
    assert!(matches!(pulled.code, response::SUCCESS | response::PULL_NOT_FOUND), "{:?}", pulled.remark);
    assert_eq!(fixture.call(&fixture.client, create("made")).await.code, 0);
    drop(closed);
    let mut stored = 0;
    for call in calls {
        let answer = call.await.unwrap();
        assert!(matches!(answer.code, response::SUCCESS | response::SYSTEM_BUSY), "{:?}", answer.remark);
        stored += usize::from(answer.code == response::SUCCESS);
    }
    assert!(stored >= MAX_WAITING_SENDS, "{stored} of those that waited");
}

//! Topics that are deleted and created again, and stores that are lost, under members that remember their places.

use rocketpy_model::GroupConfig;
use rocketpy_protocol::body::{ConsumerOffsetSerializeWrapper, LockBatchRequestBody, LockBatchResponseBody};
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{
    Header, QueryConsumerOffsetResponseHeader, UpdateConsumerOffsetRequestHeader,
};
use rocketpy_protocol::{Command, json};
use rocketpy_remoting::Client;

use crate::offsets::{commit, query, stored};
use crate::support::{Fixture, Pull, Pulled, Send, TIMEOUT, config, heartbeat, wait_until};
use crate::topics::delete;

const GROUP: &str = "readers";

/// A member of the group with a connection of its own. It remembers where it stands.
struct MemberOf {
    client: Client,
    id: &'static str,
    offset: i64,
    read: Vec<String>,
}

impl MemberOf {
    async fn enter(fixture: &Fixture, id: &'static str) -> Self {
        let member = Self { client: fixture.other_client(), id, offset: 0, read: Vec::new() };
        member.beat(fixture).await;
        member
    }

    async fn beat(&self, fixture: &Fixture) {
        let data = heartbeat(self.id, GROUP, &[("orders", "*", 1)]);
        assert_eq!(fixture.heartbeat(&self.client, &data).await.code, 0);
    }

    /// Asks where the group stands, as a member does that gets a queue.
    async fn ask(&mut self, fixture: &Fixture) {
        let header = rocketpy_protocol::header::QueryConsumerOffsetRequestHeader {
            consumer_group: GROUP,
            topic: "orders",
            queue_id: 0,
            set_zero_if_not_found: None,
            broker_name: None,
        };
        let answer = self.call(fixture, Command::request(request::QUERY_CONSUMER_OFFSET, &header)).await;
        self.offset = match answer.code {
            0 => QueryConsumerOffsetResponseHeader::read(&answer.ext).unwrap().offset,
            _ => fixture.max_offset("orders", 0).await, // CONSUME_FROM_LAST_OFFSET
        };
    }

    async fn call(&self, fixture: &Fixture, request: Command) -> Command {
        self.client.call(&fixture.address, request, TIMEOUT).await.unwrap()
    }

    async fn pull(&mut self, fixture: &Fixture) -> Pulled {
        let pull = Pull { group: GROUP, flags: 0, sub_version: 1, ..Pull::new("orders", self.offset) };
        let pulled = Pulled::of(self.call(fixture, pull.command()).await);
        if matches!(pulled.code, 0 | 19 | 20 | 21) {
            self.read.extend(pulled.bodies());
            self.offset = pulled.next;
        }
        pulled
    }

    /// Pulls until it has read so many messages.
    async fn read(&mut self, fixture: &Fixture, count: usize) {
        let wait = async {
            while self.read.len() < count {
                let pulled = self.pull(fixture).await;
                assert!(matches!(pulled.code, 0 | 19 | 20 | 21), "{} {}", pulled.code, pulled.remark);
            }
        };
        let in_time = tokio::time::timeout(TIMEOUT, wait).await;
        assert!(in_time.is_ok(), "{} of {count} messages came", self.read.len());
    }

    async fn commit(&self, fixture: &Fixture, offset: i64) -> Command {
        let header = UpdateConsumerOffsetRequestHeader {
            consumer_group: GROUP,
            topic: "orders",
            queue_id: 0,
            commit_offset: offset,
            broker_name: None,
        };
        self.call(fixture, Command::request(request::UPDATE_CONSUMER_OFFSET, &header)).await
    }
}

fn bodies(creation: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{creation} {number}")).collect()
}

async fn fill(fixture: &Fixture, creation: &str, count: usize) {
    for body in bodies(creation, count) {
        assert_eq!(fixture.send(Send::new("orders", &body)).await.code, 0);
    }
    fixture.wait_for_end("orders", 0, count as i64).await;
}

async fn create_again(fixture: &Fixture) {
    assert_eq!(delete(fixture, "orders").await.code, 0);
    fixture.create_topic("orders", 1).await;
}

/// A topic with 500 messages, and a member that has read and committed all of them.
async fn with_a_member() -> (Fixture, MemberOf) {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    fill(&fixture, "old", 500).await;
    let mut member = MemberOf::enter(&fixture, "one").await;
    member.read(&fixture, 500).await;
    assert_eq!(member.commit(&fixture, 500).await.code, 0);
    member.read.clear();
    (fixture, member)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_member_reads_all_of_a_topic_that_is_created_again_however_long_it_is() {
    for count in [100, 500, 600] {
        let (fixture, mut member) = with_a_member().await;
        create_again(&fixture).await;
        fill(&fixture, "new", count).await;
        let moved = member.pull(&fixture).await;
        assert_eq!((moved.code, moved.next, moved.min), (21, 0, 0), "{count}: {}", moved.remark);
        member.read(&fixture, count).await;
        assert_eq!(member.read, bodies("new", count));
        assert_eq!(member.commit(&fixture, count as i64).await.code, 0);
        assert_eq!(stored(&fixture, GROUP, "orders", 0).await, Some(count as i64));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_pull_does_not_go_on_in_the_later_topic() {
    let (fixture, mut member) = with_a_member().await;
    let held = Pull { group: GROUP, flags: 0, sub_version: 1, ..Pull::new("orders", 500) }.held(60_000);
    let (client, address) = (fixture.other_client(), fixture.address.clone());
    let data = heartbeat("two", GROUP, &[("orders", "*", 1)]);
    fixture.heartbeat(&client, &data).await;
    let call = tokio::spawn(async move { client.call(&address, held.command(), TIMEOUT).await.unwrap() });
    wait_until("the pull is held", async || crate::state::runtime_value(&fixture, "heldPulls").await == "1")
        .await;
    create_again(&fixture).await;
    let answer = Pulled::of(call.await.unwrap());
    assert!(answer.code == 17 || (answer.code, answer.next) == (21, 0), "{} {}", answer.code, answer.remark);
    fill(&fixture, "new", 600).await;
    member.read(&fixture, 600).await;
    assert_eq!(member.read, bodies("new", 600));
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_outlive_a_restart_read_all_as_well() {
    for restarts_between in [false, true] {
        let (fixture, mut member) = with_a_member().await;
        assert_eq!(delete(&fixture, "orders").await.code, 0);
        let fixture = if restarts_between { fixture.restart().await } else { fixture };
        fixture.create_topic("orders", 1).await;
        fill(&fixture, "new", 600).await;
        let fixture = fixture.restart().await;
        member.beat(&fixture).await;
        let refused = member.commit(&fixture, 500).await;
        assert!(refused.code == 29 && refused.remark.as_ref().unwrap().contains("exceeds 0,"), "{refused:?}");
        member.read(&fixture, 600).await;
        assert_eq!(member.read, bodies("new", 600));
        assert_eq!(member.commit(&fixture, 600).await.code, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_asks_begins_at_the_first_message_wherever_others_begin() {
    let (fixture, mut member) = with_a_member().await;
    create_again(&fixture).await;
    fill(&fixture, "new", 100).await;
    member.ask(&fixture).await;
    assert_eq!(member.offset, 0);
    member.read(&fixture, 100).await;
    assert_eq!(member.read, bodies("new", 100));
    // A tool sees that nothing is stored, until something is.
    create_again(&fixture).await;
    assert_eq!(query(&fixture, GROUP, "orders", 0, Some(false)).await.code, 22);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_from_before_the_deletion_does_not_count_after_it() {
    let (fixture, late) = with_a_member().await;
    create_again(&fixture).await;
    fill(&fixture, "new", 600).await;
    let refused = late.commit(&fixture, 500).await;
    assert_eq!(refused.code, 29, "{:?}", refused.remark);
    assert_eq!(stored(&fixture, GROUP, "orders", 0).await, None);
    // Another member has begun, and is not as far.
    let mut other = MemberOf::enter(&fixture, "other").await;
    other.ask(&fixture).await;
    other.read(&fixture, 32).await;
    assert_eq!(other.commit(&fixture, 32).await.code, 0);
    let refused = late.commit(&fixture, 500).await;
    let remark = refused.remark.unwrap();
    assert!(refused.code == 29 && remark.contains("exceeds"), "{remark}");
    assert_eq!(stored(&fixture, GROUP, "orders", 0).await, Some(32));
    // Nor by a pull, which sends the late one to where the group stands.
    let pull =
        Pull { group: GROUP, flags: 1, commit_offset: 500, sub_version: 1, ..Pull::new("orders", 500) };
    let moved = Pulled::of(late.call(&fixture, pull.command()).await);
    assert_eq!((moved.code, moved.next), (21, 32), "{}", moved.remark);
    assert_eq!(stored(&fixture, GROUP, "orders", 0).await, Some(32));
    other.read(&fixture, 600).await;
    assert_eq!(other.read, bodies("new", 600));
    // What a person sets counts.
    let header = UpdateConsumerOffsetRequestHeader {
        consumer_group: GROUP,
        topic: "orders",
        queue_id: 0,
        commit_offset: 550,
        broker_name: None,
    };
    let mut reset = Command::request(request::UPDATE_CONSUMER_OFFSET, &header);
    reset.ext.push("isReset", "true");
    assert_eq!(fixture.call(reset).await.code, 0);
    assert_eq!(stored(&fixture, GROUP, "orders", 0).await, Some(550));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_store_sends_positions_beyond_its_end_to_the_first_message() {
    let (fixture, mut member) = with_a_member().await;
    fixture.broker.shutdown().await;
    drop(fixture);
    let folder = tempfile::tempdir().unwrap();
    let empty = config(&folder);
    let fixture = Fixture::start_on(folder, empty).await;
    fixture.create_topic("orders", 1).await;
    fill(&fixture, "new", 100).await;
    member.beat(&fixture).await;
    assert_eq!(member.commit(&fixture, 500).await.code, 29);
    assert_eq!(member.commit(&fixture, 60).await.code, 29, "it did not ask, and has read nothing here");
    let moved = member.pull(&fixture).await;
    assert_eq!((moved.code, moved.next), (21, 0), "{}", moved.remark);
    member.read(&fixture, 100).await;
    assert_eq!(member.read, bodies("new", 100));
    assert_eq!(member.commit(&fixture, 100).await.code, 0);
    // Tools look where they want, and are told the end.
    let beyond = fixture.pull(Pull::new("orders", 500)).await;
    assert_eq!((beyond.code, beyond.next), (21, 100));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_removed_and_grown_again_goes_on_where_it_was() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 2).await;
    let put = async |body: String| {
        assert_eq!(fixture.send(Send { queue_id: 1, ..Send::new("orders", &body) }).await.code, 0);
    };
    for body in bodies("old", 50) {
        put(body).await;
    }
    fixture.wait_for_end("orders", 1, 50).await;
    let pull = |offset| Pull { queue_id: 1, group: GROUP, max_messages: 1000, ..Pull::new("orders", offset) };
    assert_eq!(fixture.pull(pull(0)).await.next, 50);
    assert_eq!(commit(&fixture, GROUP, "orders", 1, 50).await.code, 0);
    let (client, address, held) = (fixture.other_client(), fixture.address.clone(), pull(50).held(60_000));
    let call = tokio::spawn(async move { client.call(&address, held.command(), TIMEOUT).await.unwrap() });
    wait_until("the pull is held", async || crate::state::runtime_value(&fixture, "heldPulls").await == "1")
        .await;
    let creation = async || {
        let answer = fixture.call(Command::bare_request(request::GET_ALL_CONSUMER_OFFSET)).await;
        let offsets: ConsumerOffsetSerializeWrapper = json::from_slice(&answer.body).unwrap();
        let topic = &offsets.creation_table["orders"];
        topic.queues.get(&1).map_or(topic.number, |queue| queue.number)
    };
    let before = creation().await;
    fixture.create_topic("orders", 1).await;
    assert_eq!(Pulled::of(call.await.unwrap()).code, 29, "its queue is gone");
    fixture.create_topic("orders", 2).await;
    assert!(creation().await > before);
    for body in bodies("new", 20) {
        put(body).await;
    }
    fixture.wait_for_end("orders", 1, 70).await;
    assert_eq!(fixture.pull(pull(50)).await.bodies(), bodies("new", 20));
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_stay_with_their_clients_when_the_topic_is_created_again() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    let lock = async |client_id: &str| {
        let queue = rocketpy_model::MessageQueue {
            topic: "orders".into(),
            broker_name: fixture.config.broker_name.as_str().into(),
            queue_id: 0,
        };
        let body = LockBatchRequestBody {
            consumer_group: GROUP.to_owned(),
            client_id: client_id.to_owned(),
            mq_set: vec![queue],
            ..LockBatchRequestBody::default()
        };
        let request = Command::bare_request(request::LOCK_BATCH_MQ).with_body(json::to_vec(&body));
        let answer: LockBatchResponseBody = json::from_slice(&fixture.call(request).await.body).unwrap();
        answer.lock_ok_mq_set.len()
    };
    assert_eq!((lock("one").await, lock("two").await), (1, 0));
    create_again(&fixture).await;
    assert_eq!((lock("two").await, lock("one").await), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_wait_for_an_earlier_topic_do_not_come_to_the_later_one() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    crate::groups::put(&fixture, &GroupConfig::new(GROUP)).await;
    let soon = format!("TIMER_DELIVER_MS\u{1}{}\u{2}", rocketpy_env::now_ms() + 1500);
    for properties in ["DELAY\u{1}1\u{2}", &soon] {
        assert_eq!(fixture.send(Send { properties, ..Send::new("orders", "old") }).await.code, 0);
    }
    let half = crate::transactions::prepare(&fixture, "old half").await;
    create_again(&fixture).await;
    let refused = fixture.call(crate::transactions::end(half, crate::transactions::COMMIT, false)).await;
    assert_eq!(refused.code, 17, "{:?}", refused.remark);
    assert!(refused.remark.unwrap().contains("created again"));
    let half = crate::transactions::prepare(&fixture, "new half").await;
    assert_eq!(
        fixture.call(crate::transactions::end(half, crate::transactions::COMMIT, false)).await.code,
        0
    );
    fixture.send(Send { properties: "DELAY\u{1}1\u{2}", ..Send::new("orders", "new") }).await;
    let value = async |name| crate::state::runtime_value(&fixture, name).await;
    wait_until("both are dropped", async || {
        value("delayedDropped").await == "1" && value("timersDropped").await == "1"
    })
    .await;
    fixture.wait_for_end("orders", 0, 2).await;
    assert_eq!(fixture.pull(Pull::new("orders", 0)).await.bodies(), ["new half", "new"]);
}

/// Where a client of the group begins in a queue: at an offset of the broker, or where its own rule says.
async fn start_of(
    fixture: &Fixture,
    client: &Client,
    group: &str,
    topic: &str,
    queue_id: i32,
) -> Option<i64> {
    let header = rocketpy_protocol::header::QueryConsumerOffsetRequestHeader {
        consumer_group: group,
        topic,
        queue_id,
        set_zero_if_not_found: Some(false),
        broker_name: None,
    };
    let asked = Command::request(request::QUERY_CONSUMER_OFFSET, &header);
    let answer = client.call(&fixture.address, asked, TIMEOUT).await.unwrap();
    (answer.code == 0).then(|| QueryConsumerOffsetResponseHeader::read(&answer.ext).unwrap().offset)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_begins_with_the_first_message_of_a_queue_that_is_younger_than_its_subscription() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    let first = fixture.other_client();
    let subscriptions = [("orders", "*", 1), ("made-by-a-send", "*", 1)];
    assert_eq!(fixture.heartbeat(&first, &heartbeat("one", GROUP, &subscriptions)).await.code, 0);
    fixture.create_topic("orders", 4).await;
    fixture.create_topic("made-by-a-send", 1).await;
    for (topic, queue_id) in [("orders", 0), ("orders", 3), ("made-by-a-send", 0)] {
        for body in bodies("early", 10) {
            fixture.put(topic, queue_id, &body).await;
        }
        fixture.wait_for_end(topic, queue_id, 10).await;
    }
    let second = fixture.other_client();
    assert_eq!(fixture.heartbeat(&second, &heartbeat("two", GROUP, &subscriptions)).await.code, 0);
    let late = fixture.other_client();
    assert_eq!(start_of(&fixture, &late, GROUP, "orders", 3).await, None, "a tool begins nowhere");
    for member in [&first, &second] {
        assert_eq!(start_of(&fixture, member, GROUP, "orders", 3).await, Some(0), "it was added since");
        assert_eq!(start_of(&fixture, member, GROUP, "made-by-a-send", 0).await, Some(0));
        assert_eq!(start_of(&fixture, member, GROUP, "orders", 0).await, None, "it was there before");
    }
    assert_eq!(
        start_of(&fixture, &late, GROUP, "orders", 3).await,
        Some(0),
        "the start of a member is stored"
    );
    assert_eq!(fixture.heartbeat(&late, &heartbeat("late", "later", &subscriptions)).await.code, 0);
    for queue_id in 0..4 {
        assert_eq!(
            start_of(&fixture, &late, "later", "orders", queue_id).await,
            None,
            "a group that begins at the end"
        );
    }
}

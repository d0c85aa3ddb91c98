//! Offsets that a person sets while members run.

use std::sync::Arc;

use parking_lot::Mutex;
use rocketpy_broker::BrokerConfig;
use rocketpy_model::{GroupConfig, MessageQueue};
use rocketpy_protocol::body::{GetConsumerStatusBody, ResetOffsetBody};
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{
    CloneGroupOffsetRequestHeader, GetConsumerStatusRequestHeader, ResetOffsetRequestHeader,
};
use rocketpy_protocol::{Command, Language, json};
use rocketpy_remoting::{Connection, Handler, Reply, Response};

use crate::offsets::{commit, stored};
use crate::support::{Fixture, Pull, TIMEOUT, heartbeat};

async fn with_messages(count: i64) -> Fixture {
    with_messages_and(count, |_| {}).await
}

async fn with_messages_and(count: i64, change: impl FnOnce(&mut BrokerConfig)) -> Fixture {
    let fixture = Fixture::start_with(change).await;
    fixture.create_topic("orders", 2).await;
    crate::groups::put(&fixture, &GroupConfig::new("group")).await;
    for number in 0..count {
        fixture.put("orders", 0, &number.to_string()).await;
    }
    fixture.wait_for_end("orders", 0, count).await;
    fixture
}

fn reset(timestamp: i64) -> ResetOffsetRequestHeader<'static> {
    let (topic, group) = ("orders", "group");
    ResetOffsetRequestHeader { topic, group, timestamp, is_force: Some(true), queue_id: None, offset: None }
}

async fn invoke(fixture: &Fixture, header: &ResetOffsetRequestHeader<'_>) -> Command {
    fixture.call(Command::request(request::INVOKE_BROKER_TO_RESET_OFFSET, header)).await
}

fn offsets(answer: &Command) -> Vec<(u32, i64)> {
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
    let body: ResetOffsetBody = json::from_slice(&answer.body).unwrap();
    body.offset_table.into_iter().map(|(queue, offset)| (queue.queue_id, offset)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_group_goes_where_it_is_set_and_its_commits_on_the_way_do_not_count() {
    let fixture = with_messages(5).await;
    let pull = |offset| Pull { group: "group", ..Pull::new("orders", offset) };
    commit(&fixture, "group", "orders", 0, 5).await;
    assert_eq!(offsets(&invoke(&fixture, &reset(0)).await), [(0, 0), (1, 0)]);
    assert_eq!(stored(&fixture, "group", "orders", 0).await, Some(0));
    assert_eq!(commit(&fixture, "group", "orders", 0, 5).await.code, 0);
    assert_eq!(stored(&fixture, "group", "orders", 0).await, Some(0), "a member of before");
    let sent_back = fixture.pull(pull(5)).await;
    assert_eq!((sent_back.code, sent_back.next), (21, 0));
    assert!(sent_back.command.remark.as_ref().unwrap().contains("reset"));
    assert_eq!(fixture.pull(pull(0)).await.bodies(), ["0", "1", "2", "3", "4"]);
    commit(&fixture, "group", "orders", 0, 3).await;
    assert_eq!(stored(&fixture, "group", "orders", 0).await, Some(3));

    let at = ResetOffsetRequestHeader { queue_id: Some(0), offset: Some(4), ..reset(0) };
    assert_eq!(offsets(&invoke(&fixture, &at).await), [(0, 4)]);
    assert_eq!(fixture.pull(pull(4)).await.bodies(), ["4"], "it stands there already");
    commit(&fixture, "group", "orders", 0, 5).await;
    assert_eq!(stored(&fixture, "group", "orders", 0).await, Some(5));
    assert_eq!(offsets(&invoke(&fixture, &reset(-1)).await), [(0, 5), (1, 0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_waits_for_messages_is_answered() {
    let fixture = with_messages(1).await;
    let held = Pull { group: "group", ..Pull::new("orders", 1) }.held(TIMEOUT.as_millis() as i64);
    let (pulled, answer) = tokio::join!(fixture.pull(held), async {
        crate::support::wait_until("the pull is held", async || {
            crate::state::runtime_value(&fixture, "heldPulls").await == "1"
        })
        .await;
        invoke(&fixture, &reset(0)).await
    });
    assert_eq!(offsets(&answer), [(0, 0), (1, 0)]);
    assert_eq!((pulled.code, pulled.next), (19, 1));
    let again = fixture.pull(Pull { group: "group", ..Pull::new("orders", 1) }).await;
    assert_eq!((again.code, again.next), (21, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offset_that_a_person_has_set_ends_with_its_topic_and_with_its_group() {
    for is_topic in [true, false] {
        let fixture = with_messages(5).await;
        let at = ResetOffsetRequestHeader { queue_id: Some(0), offset: Some(4), ..reset(0) };
        assert_eq!(offsets(&invoke(&fixture, &at).await), [(0, 4)]);
        if is_topic {
            assert_eq!(crate::topics::delete(&fixture, "orders").await.code, 0);
            fixture.create_topic("orders", 2).await;
            fixture.put("orders", 0, "later").await;
            fixture.wait_for_end("orders", 0, 1).await;
        } else {
            assert_eq!(crate::groups::delete(&fixture, "group").await.code, 0);
            crate::groups::put(&fixture, &GroupConfig::new("group")).await;
        }
        assert_eq!(stored(&fixture, "group", "orders", 0).await, None);
        let pulled = fixture.pull(Pull { group: "group", ..Pull::new("orders", 0) }).await;
        assert_eq!(pulled.code, 0, "{is_topic}: sent to {}", pulled.next);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_set_is_refused() {
    let fixture = with_messages(2).await;
    for (header, code, named) in [
        (ResetOffsetRequestHeader { topic: "none", ..reset(0) }, 17, "none"),
        (ResetOffsetRequestHeader { group: "nobody", ..reset(0) }, 26, "nobody"),
        (ResetOffsetRequestHeader { queue_id: Some(9), ..reset(0) }, 29, "queue id 9"),
        (
            ResetOffsetRequestHeader { queue_id: Some(0), offset: Some(3), ..reset(0) },
            1,
            "outside of queue 0: 0 to 2",
        ),
    ] {
        let answer = invoke(&fixture, &header).await;
        let remark = answer.remark.unwrap();
        assert!(answer.code == code && remark.contains(named), "{} {remark}", answer.code);
    }
}

/// Says where it stands.
struct Standing;

impl Handler for Standing {
    fn handle(&self, _connection: &Arc<Connection>, request: Command, reply: Reply) {
        assert_eq!(request.code, request::GET_CONSUMER_STATUS_FROM_CLIENT);
        assert_eq!(request.ext.get("topic"), Some("orders"));
        let queue = MessageQueue { topic: "orders".into(), broker_name: "broker-a".into(), queue_id: 0 };
        let body = GetConsumerStatusBody {
            message_queue_table: [(queue, 7)].into(),
            ..GetConsumerStatusBody::default()
        };
        reply.send(Response::success().with_body(json::to_vec(&body).into()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_say_where_they_stand() {
    let fixture = with_messages(0).await;
    let client = fixture.other_client();
    client.set_request_handler(Arc::new(Standing));
    fixture.heartbeat(&client, &heartbeat("one", "group", &[("orders", "*", 1)])).await;
    let ask = async |group, client_addr| {
        let header = GetConsumerStatusRequestHeader { topic: "orders", group, client_addr };
        fixture.call(Command::request(request::INVOKE_BROKER_TO_GET_CONSUMER_STATUS, &header)).await
    };
    for client_addr in [None, Some("one")] {
        let answer = ask("group", client_addr).await;
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
        let body: GetConsumerStatusBody = json::from_slice(&answer.body).unwrap();
        assert_eq!(body.consumer_table["one"].values().collect::<Vec<_>>(), [&7]);
    }
    assert_eq!(ask("group", Some("two")).await.code, 1);
    assert_eq!(ask("nobody", None).await.code, 1);
}

/// Notes what it is told.
#[derive(Default)]
struct Told(Mutex<Vec<Command>>);

impl Handler for Told {
    fn handle(&self, _connection: &Arc<Connection>, request: Command, reply: Reply) {
        assert!(reply.is_oneway());
        self.0.lock().push(request);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_server_side_reset_members_are_told() {
    let fixture = with_messages_and(5, |config| config.server_side_reset = false).await;
    commit(&fixture, "group", "orders", 0, 3).await;
    let no_offset = invoke(&fixture, &reset(0)).await;
    assert!(no_offset.code == 1 && no_offset.remark.unwrap().contains("no offset for queue 1"));
    commit(&fixture, "group", "orders", 1, 0).await;
    assert_eq!(invoke(&fixture, &reset(0)).await.code, 206, "nobody is online");

    let (client, told) = (fixture.other_client(), Arc::<Told>::default());
    client.set_request_handler(told.clone());
    fixture.heartbeat(&client, &heartbeat("one", "group", &[("orders", "*", 1)])).await;
    assert_eq!(offsets(&invoke(&fixture, &reset(-1)).await), [(0, 5), (1, 0)]);
    let mut other = Command::bare_request(request::HEART_BEAT).with_body(json::to_vec(&heartbeat(
        "one",
        "group",
        &[("orders", "*", 1)],
    )));
    other.language = Language::Cpp;
    assert_eq!(client.call(&fixture.address, other, TIMEOUT).await.unwrap().code, 0);
    let kept = ResetOffsetRequestHeader { is_force: Some(false), ..reset(-1) };
    assert_eq!(offsets(&invoke(&fixture, &kept).await), [(0, 3), (1, 0)], "none goes forward");
    crate::support::wait_until("the member is told", async || {
        let pushes =
            told.0.lock().iter().filter(|it| it.code == request::RESET_CONSUMER_CLIENT_OFFSET).count();
        pushes == 2
    })
    .await;
    assert_eq!(stored(&fixture, "group", "orders", 0).await, Some(3), "the member stores it");
    let pushes = told.0.lock().clone();
    let bodies: Vec<_> =
        pushes.iter().filter(|it| it.code == request::RESET_CONSUMER_CLIENT_OFFSET).collect();
    assert_eq!((bodies[0].ext.get("group"), bodies[0].ext.get("topic")), (Some("group"), Some("orders")));
    assert!(bodies[0].body.starts_with(br#"{"offsetTable":{{"brokerName""#), "{:?}", bodies[0].body);
    assert!(bodies[1].body.starts_with(br#"{"offsetTable":[{"brokerName""#), "{:?}", bodies[1].body);
    for (push, offset) in [(bodies[0], 5), (bodies[1], 3)] {
        let table: ResetOffsetBody = json::from_slice(&push.body).unwrap();
        assert_eq!(table.offset_table.values().copied().collect::<Vec<_>>(), [offset, 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_begins_where_another_is() {
    let fixture = with_messages(4).await;
    crate::groups::put(&fixture, &GroupConfig::new("copy")).await;
    commit(&fixture, "group", "orders", 0, 3).await;
    let copy = async |src_group, dest_group, topic| {
        let header = CloneGroupOffsetRequestHeader { src_group, dest_group, topic, offline: None };
        fixture.call(Command::request(request::CLONE_GROUP_OFFSET, &header)).await.code
    };
    assert_eq!(copy("group", "copy", None).await, 0);
    assert_eq!(stored(&fixture, "copy", "orders", 0).await, Some(3));
    assert_eq!(stored(&fixture, "copy", "orders", 1).await, None);
    assert_eq!((copy("none", "copy", None).await, copy("group", "none", Some("orders")).await), (26, 26));
}

use std::sync::Arc;

use rocketpy_model::{GroupConfig, MessageQueue, system};
use rocketpy_protocol::body::{
    CheckClientRequestBody, ConsumerConnection, GetConsumerListByGroupResponseBody, LockBatchRequestBody,
    LockBatchResponseBody, OtherSubscription, ProducerConnection, SubscriptionData,
};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{
    GetConsumerConnectionListRequestHeader, GetConsumerListByGroupRequestHeader,
    GetConsumerRunningInfoRequestHeader, GetProducerConnectionListRequestHeader,
    UnregisterClientRequestHeader, key,
};
use rocketpy_protocol::{Command, json};
use rocketpy_remoting::{Client, Connection, Handler, Reply, Response};
use tokio::sync::mpsc;

use crate::support::{Fixture, TIMEOUT, heartbeat, wait_until};

/// Hands on the group of every notice that comes.
struct Notices(mpsc::UnboundedSender<String>);

impl Handler for Notices {
    fn handle(&self, _connection: &Arc<Connection>, request: Command, reply: Reply) {
        assert_eq!(request.code, request::NOTIFY_CONSUMER_IDS_CHANGED);
        assert!(reply.is_oneway());
        let _ = self.0.send(request.ext.get("consumerGroup").unwrap().to_owned());
    }
}

fn listening_client(fixture: &Fixture) -> (Client, mpsc::UnboundedReceiver<String>) {
    let client = fixture.other_client();
    let (sender, receiver) = mpsc::unbounded_channel();
    client.set_request_handler(Arc::new(Notices(sender)));
    (client, receiver)
}

async fn next(notices: &mut mpsc::UnboundedReceiver<String>) -> String {
    tokio::time::timeout(TIMEOUT, notices.recv()).await.expect("no notice came").unwrap()
}

async fn members(fixture: &Fixture, group: &str) -> Result<Vec<String>, Command> {
    let header = GetConsumerListByGroupRequestHeader { consumer_group: group };
    let answer = fixture.call(Command::request(request::GET_CONSUMER_LIST_BY_GROUP, &header)).await;
    if answer.code != 0 {
        return Err(answer);
    }
    Ok(json::from_slice::<GetConsumerListByGroupResponseBody>(&answer.body).unwrap().consumer_id_list)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_id_with_control_characters_is_refused() {
    let fixture = Fixture::start().await;
    let client = fixture.other_client();
    for hostile in ["a\0b", "a\nb", "a\u{1b}[2J", "a\u{9b}2J", "a\u{202e}b"] {
        let answer = fixture.heartbeat(&client, &heartbeat(hostile, "group", &[("orders", "*", 1)])).await;
        assert_eq!(answer.code, response::INVALID_PARAMETER, "{hostile:?}");
        let remark = answer.remark.unwrap();
        assert!(remark.contains("control characters") && !remark.contains(char::is_control), "{remark:?}");
        let wanted = LockBatchRequestBody {
            consumer_group: "group".to_owned(),
            client_id: hostile.to_owned(),
            ..LockBatchRequestBody::default()
        };
        let lock = Command::bare_request(request::LOCK_BATCH_MQ).with_body(json::to_vec(&wanted));
        assert_eq!(fixture.call(lock).await.code, response::INVALID_PARAMETER, "{hostile:?}");
    }
    let known = members(&fixture, "group").await;
    assert!(known.is_err(), "{known:?}");
    let answer = fixture.heartbeat(&client, &heartbeat("\u{6807}@1", "group", &[("orders", "*", 1)])).await;
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remark_that_quotes_a_request_has_no_control_characters() {
    let fixture = Fixture::start().await;
    let header = GetConsumerListByGroupRequestHeader { consumer_group: "none\n\u{1b}[2J" };
    let answer = fixture.call(Command::request(request::GET_CONSUMER_LIST_BY_GROUP, &header)).await;
    let remark = answer.remark.unwrap();
    assert!(remark.contains(r"none\n\u{1b}[2J"), "{remark:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_group_that_is_not_to_be_told_hear_nothing() {
    let fixture = Fixture::start().await;
    let silent = GroupConfig { notify_consumer_ids_changed_enable: false, ..GroupConfig::new("group") };
    assert_eq!(crate::groups::put(&fixture, &silent).await.code, 0);
    let (member, mut notices) = listening_client(&fixture);
    fixture.heartbeat(&member, &heartbeat("one", "group", &[("orders", "*", 1)])).await;
    assert!(notices.try_recv().is_err(), "a notice would come before the answer");
    assert_eq!(crate::groups::put(&fixture, &GroupConfig::new("group")).await.code, 0);
    fixture.heartbeat(&member, &heartbeat("one", "group", &[("other", "*", 1)])).await;
    assert_eq!(notices.try_recv().as_deref(), Ok("group"), "it comes before the answer");
    assert!(notices.try_recv().is_err(), "one notice for one change");
}

/// Keeps what it is asked, and answers nothing.
struct Silent(mpsc::UnboundedSender<Reply>);

impl Handler for Silent {
    fn handle(&self, _connection: &Arc<Connection>, request: Command, reply: Reply) {
        if request.code == request::GET_CONSUMER_RUNNING_INFO {
            let _ = self.0.send(reply);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_to_a_silent_member_are_bounded_in_number_and_time() {
    let fixture = Fixture::start().await;
    let member = fixture.other_client();
    let (sender, mut asked) = mpsc::unbounded_channel();
    member.set_request_handler(Arc::new(Silent(sender)));
    fixture.heartbeat(&member, &heartbeat("one", "group", &[("orders", "*", 1)])).await;
    let question = || {
        let header = GetConsumerRunningInfoRequestHeader {
            consumer_group: "group",
            client_id: "one",
            jstack_enable: None,
        };
        Command::request(request::GET_CONSUMER_RUNNING_INFO, &header)
    };
    let mut calls = Vec::new();
    for _ in 0..8 {
        calls.push(fixture.client.start_call(&fixture.address, question(), TIMEOUT).await.unwrap());
    }
    let mut held = Vec::new();
    while held.len() < 8 {
        held.push(asked.recv().await.unwrap());
    }
    let refused = fixture.call(question()).await;
    assert_eq!(refused.code, 2);
    assert!(refused.remark.as_ref().unwrap().contains("8 requests already wait"), "{refused:?}");
    for call in calls {
        let answer = call.await.unwrap();
        assert_eq!(answer.code, 207, "{answer:?}");
    }
    let again = fixture.client.start_call(&fixture.address, question(), TIMEOUT).await.unwrap();
    asked.recv().await.unwrap().send(Response::success().with_body(b"{}".to_vec().into()));
    assert_eq!(again.await.unwrap().code, 0, "there is room again");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_come_and_go_and_all_are_told() {
    let fixture = Fixture::start().await;
    let nobody = members(&fixture, "group").await.unwrap_err();
    assert_eq!(nobody.code, 1);
    assert!(nobody.remark.unwrap().contains("group"));

    let (first, mut first_notices) = listening_client(&fixture);
    let (second, mut second_notices) = listening_client(&fixture);
    let answer = fixture.heartbeat(&first, &heartbeat("one", "group", &[("orders", "*", 1)])).await;
    assert_eq!((answer.code, answer.version), (0, system::VERSION));
    assert_eq!(answer.ext.get("IS_SUPPORT_HEART_BEAT_V2"), Some("false"));
    assert_eq!(members(&fixture, "group").await.unwrap(), ["one"]);
    assert_eq!(next(&mut first_notices).await, "group", "the one that enters is told as well");

    fixture.heartbeat(&second, &heartbeat("two", "group", &[("orders", "*", 1)])).await;
    assert_eq!(next(&mut first_notices).await, "group");
    assert_eq!(next(&mut second_notices).await, "group");
    assert_eq!(members(&fixture, "group").await.unwrap(), ["one", "two"]);

    // The same heartbeat again changes nothing; another topic does.
    fixture.heartbeat(&second, &heartbeat("two", "group", &[("orders", "*", 1)])).await;
    fixture.heartbeat(&second, &heartbeat("two", "group", &[("orders", "*", 1), ("other", "*", 1)])).await;
    assert_eq!(next(&mut first_notices).await, "group");
    assert_eq!(next(&mut second_notices).await, "group");
    assert!(first_notices.try_recv().is_err(), "one notice for one change");

    let header = UnregisterClientRequestHeader {
        client_id: "one",
        producer_group: None,
        consumer_group: Some("group"),
    };
    let leave = Command::request(request::UNREGISTER_CLIENT, &header);
    assert_eq!(first.call(&fixture.address, leave, TIMEOUT).await.unwrap().code, 0);
    assert_eq!(next(&mut second_notices).await, "group");
    assert_eq!(members(&fixture, "group").await.unwrap(), ["two"]);

    fixture.heartbeat(&first, &heartbeat("one", "group", &[("orders", "*", 1)])).await;
    next(&mut second_notices).await;
    first.close();
    assert_eq!(next(&mut second_notices).await, "group");
    assert_eq!(members(&fixture, "group").await.unwrap(), ["two"]);
}

/// What the answer to a heartbeat says about other members.
fn others(answer: &Command) -> Vec<OtherSubscription> {
    let text = answer.ext.get(key::OTHER_SUBSCRIPTIONS);
    text.map_or_else(Vec::new, |text| json::from_slice(text.as_bytes()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_hears_of_another_one_with_other_subscriptions_while_that_one_lives() {
    let fixture = Fixture::start().await;
    let (first, second) = (fixture.other_client(), fixture.other_client());
    let one = heartbeat("one", "group", &[("orders", "A || B", 1), ("%RETRY%group", "*", 1)]);
    assert!(others(&fixture.heartbeat(&first, &one).await).is_empty());
    let alike = heartbeat("two", "group", &[("orders", "B||A", 1)]);
    assert!(
        others(&fixture.heartbeat(&second, &alike).await).is_empty(),
        "the order of tags does not matter"
    );

    let unlike = heartbeat("two", "group", &[("orders", "C", 2)]);
    let of = |client_id: &str, subscriptions: &str| OtherSubscription {
        group: "group".to_owned(),
        client_id: client_id.to_owned(),
        subscriptions: subscriptions.to_owned(),
    };
    assert_eq!(others(&fixture.heartbeat(&second, &unlike).await), [of("one", "orders: A || B")]);
    assert_eq!(others(&fixture.heartbeat(&first, &one).await), [of("two", "orders: C")]);

    // The same client on another connection: the broker has not noticed yet that the former one is gone.
    let again = fixture.other_client();
    second.close();
    wait_until("one is left", async || members(&fixture, "group").await.unwrap() == ["one"]).await;
    let changed = heartbeat("one", "group", &[("orders", "C", 3)]);
    for _ in 0..2 {
        assert!(others(&fixture.heartbeat(&again, &changed).await).is_empty());
    }

    // It still speaks: it is another client with the same id.
    assert_eq!(others(&fixture.heartbeat(&first, &one).await), [of("one", "orders: C")]);
    assert_eq!(others(&fixture.heartbeat(&again, &changed).await), [of("one", "orders: A || B")]);

    // One who misses messages is told of first.
    let third = fixture.other_client();
    fixture.heartbeat(&third, &heartbeat("two", "group", &[("orders", "D", 4)])).await;
    assert_eq!(others(&fixture.heartbeat(&first, &one).await), [of("two", "orders: D")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_see_what_each_member_subscribes_to() {
    let fixture = Fixture::start().await;
    let (first, second) = (fixture.other_client(), fixture.other_client());
    fixture.heartbeat(&first, &heartbeat("one", "group", &[("orders", "A", 1)])).await;
    fixture.heartbeat(&second, &heartbeat("two", "group", &[("payments", "", 1)])).await;
    let header = GetConsumerConnectionListRequestHeader { consumer_group: "group" };
    let answer = fixture.call(Command::request(request::GET_CONSUMER_CONNECTION_LIST, &header)).await;
    let seen: ConsumerConnection = json::from_slice(&answer.body).unwrap();
    let seen: Vec<_> =
        seen.connection_set.into_iter().map(|one| (one.client_id, one.subscriptions)).collect();
    let wants = |topic: &str, tags: &str| [(topic.to_owned(), tags.to_owned())].into();
    let (one, two) = (("one".to_owned(), wants("orders", "A")), ("two".to_owned(), wants("payments", "*")));
    assert!(seen == [one.clone(), two.clone()] || seen == [two, one], "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_no_heartbeat_is_taken_out() {
    let fixture = Fixture::start_with(|config| {
        config.client_expiry = std::time::Duration::from_millis(10);
        config.intervals.expire_clients = std::time::Duration::from_millis(20);
    })
    .await;
    let silent = fixture.other_client();
    fixture.heartbeat(&silent, &heartbeat("silent", "group", &[])).await;
    wait_until("the client is gone", async || members(&fixture, "group").await.is_err()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_makes_the_group_and_its_retry_topic() {
    let fixture = Fixture::start().await;
    fixture.heartbeat(&fixture.client, &heartbeat("one", "group", &[("orders", "*", 1)])).await;
    let retry = system::retry_topic("group");
    assert_eq!(crate::topics::get(&fixture, &retry).await.unwrap().read_queues, 1);
    assert!(crate::groups::all(&fixture).await.subscription_group_table.contains_key("group"));

    let closed = Fixture::start_with(|config| config.auto_create_group = false).await;
    let answer = closed.heartbeat(&closed.client, &heartbeat("one", "group", &[("orders", "*", 1)])).await;
    assert_eq!(answer.code, 0, "skipped in silence");
    assert!(members(&closed, "group").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_heartbeats_are_refused_and_named() {
    let fixture = Fixture::start().await;
    let request = Command::bare_request(request::HEART_BEAT);
    for (body, named) in [("no json", "HEART_BEAT"), ("{}", "clientID")] {
        let answer = fixture.call(request.clone().with_body(body.as_bytes().to_vec())).await;
        let remark = answer.remark.unwrap_or_default();
        assert_eq!(answer.code, 29, "{remark}");
        assert!(remark.contains(named), "{remark}");
    }
    let many = (0..2000).map(|n| format!(r#"{{"groupName":"g{n}"}}"#)).collect::<Vec<_>>().join(",");
    let body = format!(r#"{{"clientID":"c","producerDataSet":[{many}]}}"#);
    assert_eq!(fixture.call(request.with_body(body.into_bytes())).await.code, 29);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_passes_bad_groups_over_and_enters_the_others() {
    let fixture = Fixture::start().await;
    let mut data = heartbeat("one", "good", &[("orders", "*", 1)]);
    data.consumer_data_set.insert(0, heartbeat("one", "a/b", &[]).consumer_data_set.remove(0));
    data.producer_data_set[0].group_name = "a/b".to_owned();
    assert_eq!(fixture.heartbeat(&fixture.client, &data).await.code, 0);
    assert_eq!(members(&fixture, "good").await.unwrap(), ["one"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_enters_though_its_retry_topic_cannot_be_created() {
    let fixture = Fixture::start_with(|config| config.max_topics = 1).await;
    fixture.heartbeat(&fixture.client, &heartbeat("one", "group", &[("orders", "*", 1)])).await;
    assert_eq!(members(&fixture, "group").await.unwrap(), ["one"]);
}

fn body(client: &str, queues: &[u32]) -> Vec<u8> {
    let queue = |id| MessageQueue { topic: "orders".into(), broker_name: "broker-a".into(), queue_id: id };
    json::to_vec(&LockBatchRequestBody {
        client_id: client.to_owned(),
        consumer_group: "group".to_owned(),
        mq_set: queues.iter().map(|id| queue(*id)).collect(),
        only_this_broker: false,
    })
}

/// The queues that the client holds of these.
async fn locked(fixture: &Fixture, client: &str, queues: &[u32]) -> Vec<u32> {
    let request = Command::bare_request(request::LOCK_BATCH_MQ).with_body(body(client, queues));
    let answer = fixture.call(request).await;
    let mut locked = json::from_slice::<LockBatchResponseBody>(&answer.body).unwrap().lock_ok_mq_set;
    locked.sort();
    locked.iter().map(|queue| queue.queue_id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_stay_locked_over_a_restart() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 3).await;
    assert_eq!(locked(&fixture, "one", &[0, 1]).await, [0, 1]);
    let unlock = Command::bare_request(request::UNLOCK_BATCH_MQ).with_body(body("one", &[1]));
    assert_eq!(fixture.call(unlock).await.code, 0);
    assert_eq!(locked(&fixture, "one", &[2]).await, [2], "the file is written, and that after the release");
    let fixture = fixture.restart().await;
    assert_eq!(locked(&fixture, "two", &[0, 1, 2]).await, [1]);
    assert_eq!(locked(&fixture, "one", &[0, 1, 2]).await, [0, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_locked_by_one_client_at_a_time() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 3).await;
    let lock = async |client, queues: &[u32]| locked(&fixture, client, queues).await;
    assert_eq!(lock("one", &[0, 1]).await, [0, 1]);
    assert_eq!(lock("two", &[1, 2]).await, [2]);
    assert!(lock("two", &[3, 4_000_000]).await.is_empty(), "no such queues");
    let many = Command::bare_request(request::LOCK_BATCH_MQ).with_body(body("two", &[0; 16_385]));
    assert_eq!(fixture.call(many).await.code, 29);
    let unlock = Command::bare_request(request::UNLOCK_BATCH_MQ).with_body(body("one", &[1]));
    assert_eq!(fixture.call(unlock).await.code, 0);
    assert_eq!(lock("two", &[0, 1]).await, [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connections_of_groups_are_listed() {
    let fixture = Fixture::start().await;
    fixture.heartbeat(&fixture.client, &heartbeat("one", "group", &[("orders", "a || b", 3)])).await;
    let consumers = async |group: &str| {
        let header = GetConsumerConnectionListRequestHeader { consumer_group: group };
        fixture.call(Command::request(request::GET_CONSUMER_CONNECTION_LIST, &header)).await
    };
    let answer = consumers("group").await;
    let group: ConsumerConnection = json::from_slice(&answer.body).unwrap();
    assert_eq!(group.connection_set.len(), 1);
    assert_eq!(group.connection_set[0].client_id, "one");
    assert_eq!(group.connection_set[0].language, "RUST");
    assert_eq!(group.subscription_table["orders"].sub_string, "a || b");
    assert_eq!(consumers("nobody").await.code, 206);

    let producers = async |group: &str| {
        let header = GetProducerConnectionListRequestHeader { producer_group: group };
        fixture.call(Command::request(request::GET_PRODUCER_CONNECTION_LIST, &header)).await
    };
    let answer = producers("producers").await;
    let group: ProducerConnection = json::from_slice(&answer.body).unwrap();
    assert_eq!(group.connection_set[0].client_id, "one");
    assert_eq!(producers("nobody").await.code, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_cannot_be_served_is_told_before_the_first_pull() {
    let fixture = Fixture::start().await;
    let check = async |expression_type: &str, expression: &str| {
        let body = CheckClientRequestBody {
            subscription_data: SubscriptionData {
                expression_type: Some(expression_type.to_owned()),
                sub_string: expression.to_owned(),
                ..SubscriptionData::default()
            },
            ..CheckClientRequestBody::default()
        };
        let request = Command::bare_request(request::CHECK_CLIENT_CONFIG).with_body(json::to_vec(&body));
        fixture.call(request).await
    };
    assert_eq!(check("TAG", "a || b").await.code, 0);
    assert_eq!(check("SQL92", "price > 10").await.code, 0);
    for (expression_type, expression, code, named) in [
        ("SQL92", "price > 'x'", 23, "character 9"),
        ("SQL92", "", 23, "character 1"),
        ("XPATH", "a", 1, "XPATH"),
    ] {
        let refused = check(expression_type, expression).await;
        assert_eq!(refused.code, code);
        assert!(refused.remark.unwrap().contains(named));
    }
}

//! Users and the clients that the broker sends messages to by itself: producers of half messages, requesters of replies, held pulls.

use std::time::Duration;

use rocketpy_protocol::body::{HeartbeatData, ProducerData};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::{Command, json};

use crate::auth::{Secured, allow, create_user, user};
use crate::support::{Caller, TIMEOUT, send_with};

/// A producer that a client says to be.
fn heartbeat(client_id: &str, group: &str) -> Command {
    let data = HeartbeatData {
        client_id: client_id.to_owned(),
        producer_data_set: vec![ProducerData { group_name: group.to_owned() }],
        ..HeartbeatData::default()
    };
    Command::bare_request(request::HEART_BEAT).with_body(json::to_vec(&data))
}

/// Adds `bob`, who may do something.
fn add_bob(server: &Secured, resource: &str, actions: &[&str]) {
    for command in [create_user("bob"), allow("bob", resource, actions)] {
        let answer = server.admin.call(&server.broker, command);
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
    }
}

/// Row 22: the question holds the half message.
#[test]
fn half_messages_are_shown_to_producers_with_pub_alone() {
    let server = Secured::start_with(|config| {
        config.broker.transaction_timeout = Duration::ZERO;
        config.broker.transaction_check_interval = Duration::from_millis(100);
    });
    add_bob(&server, "Topic:orders", &["Pub"]);
    let (alice, bob) = (Caller::of_user(&user("alice")), Caller::of_user(&user("bob")));
    let (of_alice, of_bob) = (alice.pushes(), bob.pushes());
    for (caller, client_id) in [(&alice, "eve"), (&bob, "shop-1")] {
        let answer = caller.call(&server.broker, heartbeat(client_id, "shop"));
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
    }
    let mut half = send_with("orders", "half", Some("TRAN_MSG\u{1}true\u{2}PGROUP\u{1}shop\u{2}"));
    half.ext.push("f", "4");
    assert_eq!(server.admin.call(&server.broker, half).code, 0);
    for _ in 0..4 {
        let question = of_bob.recv_timeout(TIMEOUT).unwrap();
        assert_eq!(question.code, request::CHECK_TRANSACTION_STATE);
    }
    assert!(of_alice.try_recv().is_err(), "the members of a group take turns");
}

/// Row 22: replies go to the youngest connection of a client id.
#[test]
fn client_id_of_another_user_takes_no_replies() {
    let server = Secured::start();
    add_bob(&server, "Topic:orders", &["Pub"]);
    let (alice, bob) = (Caller::of_user(&user("alice")), Caller::of_user(&user("bob")));
    let (of_alice, of_bob) = (alice.pushes(), bob.pushes());
    assert_eq!(bob.call(&server.broker, heartbeat("asks", "askers")).code, 0);
    let refused = alice.call(&server.broker, heartbeat("asks", "others"));
    assert_eq!(refused.code, response::NO_PERMISSION, "{:?}", refused.remark);
    assert!(refused.remark.unwrap().contains("another user"));
    let reply = |topic| {
        let mut reply = send_with(topic, "a reply", Some("REPLY_TO_CLIENT\u{1}asks\u{2}"));
        reply.code = request::SEND_REPLY_MESSAGE_V2;
        server.admin.call(&server.broker, reply)
    };
    let answer = reply("DefaultCluster_REPLY_TOPIC");
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
    let pushed = of_bob.recv_timeout(TIMEOUT).unwrap();
    assert_eq!((pushed.code, &pushed.body[..]), (request::PUSH_REPLY_MESSAGE_TO_CLIENT, &b"a reply"[..]));
    assert!(of_alice.try_recv().is_err());
    let refused = reply("orders");
    assert_eq!(refused.code, response::NO_PERMISSION, "{:?}", refused.remark);
    assert!(of_bob.try_recv().is_err(), "Pub on a topic does not reach clients");
}

//! Replies over real connections: they are pushed to the client that asked, and stored.

use std::sync::Arc;

use parking_lot::Mutex;
use rocketpy_model::sys_flag;
use rocketpy_protocol::body::{HeartbeatData, ProducerData};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{
    Header, ReplyMessageRequestHeader, SendMessageRequestHeader, SendMessageResponseHeader,
    UnregisterClientRequestHeader,
};
use rocketpy_protocol::{Command, properties_text};
use rocketpy_remoting::{Client, Connection, Handler, Reply, Response};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::support::{Fixture, Pull, Send, TIMEOUT};

const TOPIC: &str = "DefaultCluster_REPLY_TOPIC";
const REQUESTER: &str = "10.0.0.1@asks";
const GROUP: &str = "askers";

/// Hands on every reply, and answers with a code.
struct Replies(mpsc::UnboundedSender<Command>, i32);

impl Handler for Replies {
    fn handle(&self, _connection: &Arc<Connection>, request: Command, reply: Reply) {
        assert_eq!(request.code, request::PUSH_REPLY_MESSAGE_TO_CLIENT);
        let _ = self.0.send(request);
        reply.send(Response::status(self.1, ""));
    }
}

/// A live producer that takes replies, and answers each with `code`.
async fn requester(fixture: &Fixture, code: i32) -> (Client, mpsc::UnboundedReceiver<Command>) {
    let client = fixture.other_client();
    let (sender, receiver) = mpsc::unbounded_channel();
    client.set_request_handler(Arc::new(Replies(sender, code)));
    introduce(fixture, &client, REQUESTER).await;
    (client, receiver)
}

async fn introduce(fixture: &Fixture, client: &Client, client_id: &str) {
    let data = HeartbeatData {
        client_id: client_id.to_owned(),
        producer_data_set: vec![ProducerData { group_name: GROUP.to_owned() }],
        ..HeartbeatData::default()
    };
    fixture.heartbeat(client, &data).await;
}

/// Keeps every reply, and answers none.
#[derive(Default)]
struct Silent(Mutex<Vec<Reply>>);

impl Handler for Silent {
    fn handle(&self, _connection: &Arc<Connection>, _request: Command, reply: Reply) {
        self.0.lock().push(reply);
    }
}

fn properties(client_id: &str) -> String {
    format!("CORRELATION_ID\u{1}c-1\u{2}REPLY_TO_CLIENT\u{1}{client_id}\u{2}MSG_TYPE\u{1}reply\u{2}")
}

/// The answer to a reply that is sent to a client.
async fn reply_to(fixture: &Fixture, client_id: &str, body: &str) -> Command {
    let properties = properties(client_id);
    let code = request::SEND_REPLY_MESSAGE_V2;
    fixture.send(Send { code, properties: &properties, ..Send::new(TOPIC, body) }).await
}

async fn next(replies: &mut mpsc::UnboundedReceiver<Command>) -> Command {
    tokio::time::timeout(TIMEOUT, replies.recv()).await.expect("no reply came").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_goes_to_the_client_that_it_names_and_into_the_topic_of_replies() {
    let fixture = Fixture::start().await;
    let (_client, mut replies) = requester(&fixture, response::SUCCESS).await;
    let answer = reply_to(&fixture, REQUESTER, "yes").await;
    assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
    let place = SendMessageResponseHeader::read(&answer.ext).unwrap();
    assert_eq!((place.queue_id, place.queue_offset), (0, 0));
    assert_eq!(place.msg_id.len(), 32, "it was stored: {}", place.msg_id);
    let pushed = next(&mut replies).await;
    assert_eq!(&pushed.body[..], b"yes");
    let header = ReplyMessageRequestHeader::read(&pushed.ext).unwrap();
    assert_eq!((header.topic, header.flag), (TOPIC, 7));
    assert!(header.born_host.starts_with("127.0.0.1:"), "{}", header.born_host);
    assert_eq!(header.store_host, fixture.address);
    let text = header.properties.unwrap().as_bytes();
    assert_eq!(properties_text::get(text, "CORRELATION_ID"), Some("c-1"));
    let pushed_at_ms = properties_text::get(text, "PUSH_REPLY_TIME").unwrap();
    assert_eq!(pushed_at_ms, header.store_timestamp.to_string());
    fixture.wait_for_end(TOPIC, 0, 1).await;
    assert_eq!(fixture.pull(Pull::new(TOPIC, 0)).await.bodies(), ["yes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_form_with_names_and_a_compressed_body_pass_as_they_are() {
    let fixture = Fixture::start_with(|config| config.store_replies = false).await;
    let (_client, mut replies) = requester(&fixture, response::SUCCESS).await;
    let text = format!("CORRELATION_ID\u{1}c-2\u{2}REPLY_TO_CLIENT\u{1}{REQUESTER}");
    let header = SendMessageRequestHeader {
        producer_group: "repliers",
        topic: TOPIC,
        default_topic: "TBW102",
        default_topic_queue_nums: 4,
        queue_id: -1,
        sys_flag: sys_flag::COMPRESSED,
        born_timestamp: 1,
        flag: 0,
        properties: Some(&text),
        reconsume_times: None,
        unit_mode: None,
        max_reconsume_times: None,
        batch: None,
        broker_name: None,
    };
    let command = Command::request(request::SEND_REPLY_MESSAGE, &header).with_body(&b"\x78\x9c"[..]);
    let answer = fixture.call(command).await;
    assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
    let place = SendMessageResponseHeader::read(&answer.ext).unwrap();
    assert_eq!((place.msg_id, place.queue_id, place.queue_offset), ("0", 0, 0), "it is not stored");
    let pushed = next(&mut replies).await;
    let header = ReplyMessageRequestHeader::read(&pushed.ext).unwrap();
    assert_eq!((header.sys_flag, &pushed.body[..]), (sys_flag::COMPRESSED, &b"\x78\x9c"[..]));
    let text = header.properties.unwrap().as_bytes();
    assert_eq!(properties_text::get(text, "REPLY_TO_CLIENT"), Some(REQUESTER));
    assert!(properties_text::get(text, "PUSH_REPLY_TIME").is_some());
    assert_eq!(fixture.next_offset(TOPIC, 0).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_nobody_takes_is_answered_with_why_and_stored_all_the_same() {
    let fixture = Fixture::start().await;
    let unnamed = fixture.send(Send { code: request::SEND_REPLY_MESSAGE_V2, ..Send::new(TOPIC, "a") }).await;
    assert_eq!(unnamed.code, response::SYSTEM_ERROR);
    assert!(unnamed.remark.as_ref().unwrap().contains("REPLY_TO_CLIENT"), "{:?}", unnamed.remark);
    let (client, mut replies) = requester(&fixture, response::SYSTEM_ERROR).await;
    let refused = reply_to(&fixture, REQUESTER, "b").await;
    assert_eq!(refused.code, response::SYSTEM_ERROR);
    assert!(refused.remark.unwrap().contains("answered with code 1"));
    assert_eq!(SendMessageResponseHeader::read(&refused.ext).unwrap().queue_offset, 1);
    next(&mut replies).await;
    let header = UnregisterClientRequestHeader {
        client_id: REQUESTER,
        producer_group: Some(GROUP),
        consumer_group: None,
    };
    let leave = Command::request(request::UNREGISTER_CLIENT, &header);
    assert_eq!(client.call(&fixture.address, leave, TIMEOUT).await.unwrap().code, 0);
    let gone = reply_to(&fixture, REQUESTER, "c").await;
    assert_eq!(gone.code, response::SYSTEM_ERROR);
    assert!(gone.remark.unwrap().contains("no live producer has this client id"));
    assert!(replies.try_recv().is_err());
    fixture.wait_for_end(TOPIC, 0, 3).await;
    assert_eq!(fixture.pull(Pull::new(TOPIC, 0)).await.bodies(), ["a", "b", "c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_answer_leaves_room_for_the_replies_of_others() {
    let fixture = Arc::new(Fixture::start().await);
    let (client, kept) = (fixture.other_client(), Arc::<Silent>::default());
    client.set_request_handler(kept.clone());
    introduce(&fixture, &client, "silent").await;
    let (_other, mut replies) = requester(&fixture, response::SUCCESS).await;
    let mut waiting = JoinSet::new();
    for _ in 0..256 {
        let fixture = fixture.clone();
        waiting.spawn(async move { reply_to(&fixture, "silent", "a").await.code });
    }
    crate::support::wait_until("all are pushed", async || kept.0.lock().len() == 256).await;
    let refused = reply_to(&fixture, "silent", "b").await;
    assert_eq!(refused.code, response::SYSTEM_ERROR);
    assert!(refused.remark.unwrap().contains("256 replies already wait"));
    assert_eq!(reply_to(&fixture, REQUESTER, "yes").await.code, response::SUCCESS);
    assert_eq!(&next(&mut replies).await.body[..], b"yes");
    kept.0.lock().drain(..).for_each(|reply| reply.send(Response::success()));
    assert_eq!(waiting.join_all().await, [response::SUCCESS; 256]);
}

#[tokio::test(flavor = "multi_thread")]
async fn seventeen_clients_that_do_not_answer_leave_room_for_the_replies_of_others() {
    let fixture = Arc::new(Fixture::start_with(|config| config.store_replies = false).await);
    let kept = Arc::<Silent>::default();
    let silent: Vec<(Client, String)> =
        (0..17).map(|number| (fixture.other_client(), format!("silent-{number}"))).collect();
    for (client, client_id) in &silent {
        client.set_request_handler(kept.clone());
        introduce(&fixture, client, client_id).await;
    }
    let (_other, mut replies) = requester(&fixture, response::SUCCESS).await;
    let mut waiting = JoinSet::new();
    for (_, client_id) in &silent {
        let mut ended = 0;
        while ended == 0 {
            let before = kept.0.lock().len();
            for _ in 0..32 {
                let (fixture, client_id) = (fixture.clone(), client_id.clone());
                waiting.spawn(async move { reply_to(&fixture, &client_id, "a").await.code });
            }
            crate::support::wait_until("each reply is pushed or refused", async || {
                while waiting.try_join_next().is_some() {
                    ended += 1;
                }
                kept.0.lock().len() - before + ended >= 32
            })
            .await;
            assert!(waiting.len() < 4096, "the silent clients have all places");
        }
    }
    assert_eq!(reply_to(&fixture, REQUESTER, "yes").await.code, response::SUCCESS);
    assert_eq!(&next(&mut replies).await.body[..], b"yes");
    waiting.abort_all();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_came_back_gets_replies_by_its_new_connection() {
    let fixture = Fixture::start().await;
    let (_half_open, mut missed) = requester(&fixture, response::SUCCESS).await;
    let (back, mut replies) = requester(&fixture, response::SUCCESS).await;
    assert_eq!(reply_to(&fixture, REQUESTER, "yes").await.code, response::SUCCESS);
    assert_eq!(&next(&mut replies).await.body[..], b"yes");
    assert!(missed.try_recv().is_err());
    back.close();
    crate::support::wait_until("the older connection is the only one", async || {
        reply_to(&fixture, REQUESTER, "no").await.code == response::SUCCESS
    })
    .await;
    assert_eq!(&next(&mut missed).await.body[..], b"no");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_topic_is_made_for_a_reply_and_nothing_is_pushed_that_may_not_be_sent() {
    let fixture = Fixture::start().await;
    let (_client, mut replies) = requester(&fixture, response::SUCCESS).await;
    let properties = properties(REQUESTER);
    for (topic, code) in
        [("other_REPLY_TOPIC", response::TOPIC_NOT_EXIST), ("TBW102", response::NO_PERMISSION)]
    {
        let send =
            Send { code: request::SEND_REPLY_MESSAGE_V2, properties: &properties, ..Send::new(topic, "yes") };
        assert_eq!(fixture.send(send).await.code, code, "{topic}");
    }
    assert!(replies.try_recv().is_err());
}

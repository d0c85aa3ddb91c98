//! Half messages over real connections: ends, questions of the broker, restarts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use rocketpy_model::system;
use rocketpy_protocol::Command;
use rocketpy_protocol::body::{HeartbeatData, ProducerData};
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{
    CheckTransactionStateRequestHeader, EndTransactionRequestHeader, Header,
    ResumeCheckHalfMessageRequestHeader, SendMessageResponseHeader,
};
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_protocol::record::RecordView;
use rocketpy_remoting::{Client, Connection, Handler, Reply};
use tokio::sync::mpsc;

use crate::support::{Fixture, Pull, Send, TIMEOUT};

const GROUP: &str = "payers";
pub(crate) const COMMIT: i32 = 8;
pub(crate) const ROLLBACK: i32 = 12;

/// Hands on every question for the end of a transaction, with the number of the producer that was asked.
struct Questions(usize, mpsc::UnboundedSender<(usize, Command)>);

impl Handler for Questions {
    fn handle(&self, _connection: &Arc<Connection>, request: Command, reply: Reply) {
        assert_eq!(request.code, request::CHECK_TRANSACTION_STATE);
        assert!(reply.is_oneway());
        let _ = self.1.send((self.0, request));
    }
}

/// A live producer of the group.
pub(crate) async fn producer(fixture: &Fixture) -> (Client, Asked) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (numbered_producer(fixture, 0, &sender).await, receiver)
}

/// Questions, each with the number of the producer that was asked.
pub(crate) type Asked = mpsc::UnboundedReceiver<(usize, Command)>;

async fn numbered_producer(
    fixture: &Fixture,
    number: usize,
    asked: &mpsc::UnboundedSender<(usize, Command)>,
) -> Client {
    let client = fixture.other_client();
    client.set_request_handler(Arc::new(Questions(number, asked.clone())));
    let data = HeartbeatData {
        client_id: format!("payer {number}"),
        producer_data_set: vec![ProducerData { group_name: GROUP.to_owned() }],
        ..HeartbeatData::default()
    };
    fixture.heartbeat(&client, &data).await;
    client
}

/// Sends a half message; returns where it lies: in the half queue, and in the log.
pub(crate) async fn prepare(fixture: &Fixture, body: &str) -> (i64, i64) {
    prepare_by(fixture, &fixture.client, body).await
}

async fn prepare_by(fixture: &Fixture, client: &Client, body: &str) -> (i64, i64) {
    let properties = format!("TRAN_MSG\u{1}true\u{2}PGROUP\u{1}{GROUP}\u{2}UNIQ_KEY\u{1}{body}\u{2}");
    let half = Send { sys_flag: 0x4, properties: &properties, ..Send::new("orders", body) };
    let answer = client.call(&fixture.address, half.command(), TIMEOUT).await.unwrap();
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
    let header = SendMessageResponseHeader::read(&answer.ext).unwrap();
    assert_eq!(header.transaction_id, Some(body));
    let place: OffsetMessageId = header.msg_id.parse().unwrap();
    (header.queue_offset, place.physical_offset.to_wire())
}

/// The end of a half message.
pub(crate) fn end((queue_offset, physical_offset): (i64, i64), state: i32, is_answer: bool) -> Command {
    let header = EndTransactionRequestHeader {
        topic: Some("orders"),
        producer_group: GROUP,
        tran_state_table_offset: queue_offset,
        commit_log_offset: physical_offset,
        commit_or_rollback: state,
        from_transaction_check: Some(is_answer),
        msg_id: "",
        transaction_id: None,
        broker_name: None,
    };
    Command::request(request::END_TRANSACTION, &header)
}

pub(crate) async fn next(questions: &mut Asked) -> Command {
    next_of(questions).await.1
}

async fn next_of(questions: &mut Asked) -> (usize, Command) {
    tokio::time::timeout(TIMEOUT, questions.recv()).await.expect("no question came").unwrap()
}

pub(crate) async fn start() -> Fixture {
    let fixture = Fixture::start_with(|config| {
        config.transaction_timeout = Duration::from_millis(10);
        config.transaction_check_interval = Duration::from_millis(100);
    });
    let fixture = fixture.await;
    fixture.create_topic("orders", 1).await;
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_is_asked_until_it_answers_and_the_answer_counts_once() {
    let fixture = start().await;
    let place = prepare(&fixture, "order").await;
    let (_client, mut questions) = producer(&fixture).await;
    next(&mut questions).await;
    let question = next(&mut questions).await;
    let header = CheckTransactionStateRequestHeader::read(&question.ext).unwrap();
    assert_eq!((header.tran_state_table_offset, header.commit_log_offset), place, "it stays where it is");
    assert_eq!(
        (header.topic, header.msg_id, header.transaction_id),
        (Some("orders"), Some("order"), Some("order"))
    );
    let half = RecordView::parse(&question.body).unwrap();
    assert_eq!((half.topic, half.queue_id, half.body), ("orders", 0, b"order".as_slice()));
    assert_eq!(half.property("PGROUP"), Some(GROUP));
    for _ in 0..3 {
        assert_eq!(fixture.call(end(place, COMMIT, true)).await.code, 0);
    }
    fixture.put("orders", 0, "after").await;
    fixture.wait_for_end("orders", 0, 2).await;
    assert_eq!(fixture.pull(Pull::new("orders", 0)).await.bodies(), ["order", "after"]);
    assert_eq!(crate::state::runtime_value(&fixture, "transactionsCommitted").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_open_is_asked_for_after_a_restart_and_what_is_over_is_not() {
    let fixture = start().await;
    let places = [
        prepare(&fixture, "committed").await,
        prepare(&fixture, "gone").await,
        prepare(&fixture, "open").await,
    ];
    assert_eq!(fixture.call(end(places[0], COMMIT, false)).await.code, 0);
    assert_eq!(fixture.call(end(places[1], ROLLBACK, false)).await.code, 0);
    let fixture = fixture.restart().await;
    let (_client, mut questions) = producer(&fixture).await;
    for _ in 0..3 {
        let question = next(&mut questions).await;
        let header = CheckTransactionStateRequestHeader::read(&question.ext).unwrap();
        assert_eq!(header.msg_id, Some("open"));
    }
    for (place, code) in places.into_iter().zip([0, 604, 0]) {
        let answer = fixture.call(end(place, COMMIT, true)).await;
        assert_eq!(answer.code, code, "{:?}", answer.remark);
    }
    fixture.wait_for_end("orders", 0, 2).await;
    assert_eq!(fixture.pull(Pull::new("orders", 0)).await.bodies(), ["committed", "open"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_state_has_no_answer_and_what_names_no_half_message_is_refused() {
    let fixture = start().await;
    let place = prepare(&fixture, "order").await;
    let unanswered =
        fixture.client.call(&fixture.address, end(place, 0, false), Duration::from_millis(200)).await;
    assert!(unanswered.is_err(), "{unanswered:?}");
    let answer = fixture.call(end((place.0 + 1, place.1), COMMIT, false)).await;
    assert_eq!(answer.code, 1, "{:?}", answer.remark);
    assert!(answer.remark.unwrap().contains("half queue"));
    assert_eq!(fixture.max_offset(system::HALF_TOPIC, 0).await, 1);
    assert_eq!(fixture.next_offset("orders", 0).await, 0);
    let fixture = fixture.restart_with(|config| config.reject_transactions = true).await;
    let properties = format!("TRAN_MSG\u{1}true\u{2}PGROUP\u{1}{GROUP}\u{2}");
    let answer =
        fixture.send(Send { sys_flag: 0x4, properties: &properties, ..Send::new("orders", "x") }).await;
    assert_eq!(answer.code, 16, "{:?}", answer.remark);
    assert!(answer.remark.unwrap().contains("rejectTransactionMessage"));
    let fixture = fixture.restart_with(|config| config.broker_permission = 4).await;
    assert_eq!(fixture.call(end(place, COMMIT, false)).await.code, 0, "what was begun may be ended");
    fixture.wait_for_end("orders", 0, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_before_a_restart_count() {
    let fixture = Fixture::start_with(|config| {
        config.transaction_timeout = Duration::ZERO;
        config.transaction_check_interval = Duration::from_millis(300);
        config.transaction_check_max = 3;
    });
    let fixture = fixture.await;
    fixture.create_topic("orders", 1).await;
    let (client, mut questions) = producer(&fixture).await;
    prepare(&fixture, "half").await;
    next(&mut questions).await;
    let fixture = fixture.restart().await;
    drop(client);
    let mut asked = 1;
    while questions.try_recv().is_ok() {
        asked += 1;
    }
    let (_client, mut questions) = producer(&fixture).await;
    fixture.wait_for_end(system::TRANSACTION_CHECK_MAX_TIME_TOPIC, 0, 1).await;
    while questions.try_recv().is_ok() {
        asked += 1;
    }
    assert_eq!(asked, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_message_that_was_given_up_is_asked_for_again() {
    let fixture = Fixture::start_with(|config| {
        config.transaction_timeout = Duration::ZERO;
        config.transaction_check_interval = Duration::from_millis(100);
        config.transaction_check_max = 1;
    })
    .await;
    fixture.create_topic("orders", 1).await;
    let (_client, mut questions) = producer(&fixture).await;
    prepare(&fixture, "half").await;
    next(&mut questions).await;
    fixture.wait_for_end(system::TRANSACTION_CHECK_MAX_TIME_TOPIC, 0, 1).await;
    let pulled = fixture.pull(Pull::new(system::TRANSACTION_CHECK_MAX_TIME_TOPIC, 0)).await;
    let record = pulled.records()[0];
    let id = OffsetMessageId { host: record.store_host, physical_offset: record.physical_offset }.to_string();
    let resume = async |msg_id: &str| {
        let header = ResumeCheckHalfMessageRequestHeader { topic: None, msg_id };
        fixture.call(Command::request(request::RESUME_CHECK_HALF_MESSAGE, &header)).await
    };
    assert_eq!(resume("no id").await.code, 29);
    let answer = resume(&id).await;
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
    let question = next(&mut questions).await;
    assert_eq!(RecordView::parse(&question.body).unwrap().body, b"half");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_producer_that_sent_a_half_message_is_asked_first_and_then_each_other_one() {
    let fixture = start().await;
    let (sender, mut asked) = mpsc::unbounded_channel();
    let mut producers = Vec::new();
    for number in 0..3 {
        producers.push(numbered_producer(&fixture, number, &sender).await);
    }
    let mut halves = HashMap::new();
    for round in 0..4 {
        for (number, client) in producers.iter().enumerate() {
            let half = prepare_by(&fixture, client, &format!("{round} {number}")).await;
            halves.insert(half.0, (number, Vec::new()));
        }
    }
    while halves.values().any(|(_, members)| members.len() < 3) {
        let (number, question) = next_of(&mut asked).await;
        let header = CheckTransactionStateRequestHeader::read(&question.ext).unwrap();
        halves.get_mut(&header.tran_state_table_offset).unwrap().1.push(number);
    }
    for (half, (sender, members)) in halves {
        assert_eq!(members[0], sender, "the sender of {half} is asked first: {members:?}");
        let different: HashSet<_> = members[..3].iter().collect();
        assert_eq!(different.len(), 3, "each producer is asked for {half}: {members:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_whose_connection_was_cut_is_asked_again_once_it_is_back() {
    let fixture = Fixture::start_with(|config| {
        config.transaction_timeout = Duration::from_millis(10);
        config.transaction_check_interval = Duration::from_secs(3600);
        config.transaction_check_max = 1;
    })
    .await;
    fixture.create_topic("orders", 1).await;
    let (client, mut questions) = producer(&fixture).await;
    let place = prepare_by(&fixture, &client, "order").await;
    next(&mut questions).await;
    drop(client); // before it has answered
    let (_client, mut questions) = producer(&fixture).await;
    let question = next(&mut questions).await;
    let header = CheckTransactionStateRequestHeader::read(&question.ext).unwrap();
    assert_eq!((header.tran_state_table_offset, header.commit_log_offset), place);
    assert_eq!(fixture.call(end(place, COMMIT, true)).await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_comes_after_the_first_look_is_asked_at_once() {
    let fixture = Fixture::start_with(|config| {
        config.transaction_timeout = Duration::ZERO;
        config.transaction_check_interval = Duration::from_secs(3600);
    })
    .await;
    fixture.create_topic("orders", 1).await;
    prepare(&fixture, "order").await;
    assert!(fixture.broker.step("transaction check").await);
    let (_client, mut questions) = producer(&fixture).await;
    next(&mut questions).await;
}

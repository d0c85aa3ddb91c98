use rocketpy_protocol::Command;
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{Header, SendMessageResponseHeader, ViewMessageRequestHeader};
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_protocol::record::RecordView;

use crate::support::{Fixture, Pull, Send, TIMEOUT};

/// The shortest level, 1 s.
const DELAYED: &str = "DELAY\u{1}1\u{2}";

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_message_is_answered_at_once_and_comes_after_its_time() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 2).await;
    let sent = fixture.send(Send { queue_id: 1, properties: DELAYED, ..Send::new("orders", "later") }).await;
    let header = SendMessageResponseHeader::read(&sent.ext).unwrap();
    assert_eq!((sent.code, header.queue_id, header.queue_offset), (0, 1, 0));
    let pull = Pull { queue_id: 1, ..Pull::new("orders", 0) };
    let pulled = fixture.pull(pull.held(TIMEOUT.as_millis() as i64)).await;
    assert_eq!(pulled.bodies(), ["later"]);
    let record = pulled.records()[0];
    let id: OffsetMessageId = header.msg_id.parse().unwrap();
    let view = ViewMessageRequestHeader { topic: None, offset: id.physical_offset.get() as i64 };
    let answer = fixture.call(Command::request(request::VIEW_MESSAGE_BY_ID, &view)).await;
    let waited_from = RecordView::parse(&answer.body).unwrap().stored_at_ms;
    assert!(record.stored_at_ms >= waited_from + 1000, "{} ms", record.stored_at_ms - waited_from);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_waits_through_a_restart_and_is_delivered_once() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    let send = Send { properties: DELAYED, ..Send::new("orders", "one") };
    assert_eq!(fixture.send(send).await.code, 0);
    let fixture = fixture.restart().await;
    let held = Pull::new("orders", 0).held(TIMEOUT.as_millis() as i64);
    assert_eq!(fixture.pull(held).await.bodies(), ["one"]);
    let fixture = fixture.restart().await;
    assert!(fixture.broker.step("delay delivery").await);
    assert_eq!(fixture.send(Send { properties: DELAYED, ..Send::new("orders", "two") }).await.code, 0);
    let next = Pull::new("orders", 1).held(TIMEOUT.as_millis() as i64);
    assert_eq!(fixture.pull(next).await.bodies(), ["two"], "the first is not delivered again");
}

use std::time::Duration;

use rocketpy_broker::FlushMode;
use rocketpy_protocol::header::{Header, SendMessageResponseHeader};

use crate::support::{Fixture, Pull, Pulled, Send, TIMEOUT};

async fn sync_broker() -> Fixture {
    Fixture::start_with(|config| config.store.flush = FlushMode::Sync).await
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_sends_share_flushes_and_are_all_answered() {
    let fixture = sync_broker().await;
    let mut calls = Vec::new();
    for _ in 0..300 {
        let send = Send::new("orders", "x").command();
        calls.push(fixture.client.start_call(&fixture.address, send, TIMEOUT).await.unwrap());
    }
    for (number, call) in calls.into_iter().enumerate() {
        let answer = call.await.unwrap();
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
        assert_eq!(SendMessageResponseHeader::read(&answer.ext).unwrap().queue_offset, number as i64);
    }
    let behind: u64 =
        crate::state::runtime_value(&fixture, "remainHowManyDataToFlush").await.parse().unwrap();
    assert_eq!(behind, 0, "answered means flushed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_need_not_wait_for_the_flush_comes_as_well() {
    let fixture = sync_broker().await;
    let answer = fixture.send(Send { properties: "WAIT\u{1}false\u{2}", ..Send::new("orders", "x") }).await;
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
    fixture.wait_for_end("orders", 0, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_pull_sees_a_message_once_it_is_durable() {
    let fixture = sync_broker().await;
    fixture.create_topic("orders", 1).await;
    let pull = Pull::new("orders", 0).held(60_000).command();
    let call = fixture.client.start_call(&fixture.address, pull, TIMEOUT).await.unwrap();
    fixture.put("orders", 0, "x").await;
    assert_eq!(Pulled::of(call.await.unwrap()).bodies(), ["x"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_that_comes_too_late_leaves_the_message_stored_and_says_so() {
    let fixture = Fixture::start_with(|config| {
        config.store.flush = FlushMode::Sync;
        config.sync_flush_timeout = Duration::ZERO;
    })
    .await;
    fixture.create_topic("orders", 1).await;
    // The time is up at once; the flush still wins now and then.
    let mut late = 0;
    for stored in 0..50 {
        let answer = fixture.send(Send::new("orders", "x")).await;
        assert!([0, 10].contains(&answer.code), "{:?}", answer.remark);
        let header = SendMessageResponseHeader::read(&answer.ext).unwrap();
        assert_eq!(header.queue_offset, stored, "the header is filled also in code 10");
        late += usize::from(answer.code == 10);
    }
    assert!(late > 0, "no flush was late");
    fixture.wait_for_end("orders", 0, 50).await;
}

//! Readers of a SYNC_MASTER see what its slaves have.

use std::time::Duration;

use rocketpy_broker::FlushMode;
use rocketpy_protocol::Command;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{
    GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader, Header, QueryMessageRequestHeader,
};

use crate::replication::{begin_send_with, code_of_send, end_of_log, is_waiting, start, synced};
use crate::support::{Fixture, Pull, Send};

/// Answered once dispatch has reached what readers may see.
async fn max_offset(fixture: &Fixture) -> i64 {
    let header = GetMaxOffsetRequestHeader { topic: "orders", queue_id: 0, committed: None };
    let answer = fixture.call(Command::request(request::GET_MAX_OFFSET, &header)).await;
    GetMaxOffsetResponseHeader::read(&answer.ext).unwrap().offset
}

async fn has_key(fixture: &Fixture, key: &str) -> bool {
    let header = QueryMessageRequestHeader {
        topic: "orders",
        key,
        max_num: 10,
        begin_timestamp: 0,
        end_timestamp: i64::MAX,
        index_type: None,
        last_key: None,
        is_unique_key: None,
    };
    fixture.call(Command::request(request::QUERY_MESSAGE, &header)).await.code == response::SUCCESS
}

#[tokio::test(flavor = "multi_thread")]
async fn pulls_offsets_and_keys_show_a_message_once_its_slave_has_it() {
    for flush in [FlushMode::Async, FlushMode::Sync] {
        let fixture = start(|config| {
            config.store.flush = flush;
            config.replication.max_not_caught_up = crate::support::TIMEOUT;
        })
        .await;
        fixture.create_topic("orders", 1).await;
        let mut slave = synced(&fixture).await;
        let of_key = Send { properties: "KEYS\u{1}k1\u{2}", ..Send::new("orders", "x") };
        let mut call = begin_send_with(&fixture, of_key).await;
        slave.frame();
        assert_eq!((max_offset(&fixture).await, has_key(&fixture, "k1").await), (0, false));
        assert_eq!(fixture.pull(Pull::new("orders", 0)).await.code, response::PULL_NOT_FOUND);
        assert!(is_waiting(&mut call).await);

        let end = end_of_log(&fixture).await;
        slave.read_to(end);
        slave.report(end as u64);
        assert_eq!(call.await.unwrap().code, response::SUCCESS);
        assert_eq!((max_offset(&fixture).await, has_key(&fixture, "k1").await), (1, true));
        assert_eq!(fixture.pull(Pull::new("orders", 0)).await.records().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_slaves_readers_and_the_broker_itself_go_on_after_a_while() {
    let fixture = start(|config| {
        config.replication.max_not_caught_up = Duration::from_millis(50);
        config.replication.slave_timeout = Duration::from_millis(50);
    })
    .await;
    fixture.create_topic("orders", 1).await;
    assert_eq!(code_of_send(&fixture, "alone").await, response::SLAVE_NOT_AVAILABLE);
    fixture.wait_for_end("orders", 0, 1).await;
    // One that is connected, and reports nothing new.
    let _silent = synced(&fixture).await;
    let delayed = Send { properties: "DELAY\u{1}1\u{2}", ..Send::new("orders", "delayed") };
    assert_eq!(fixture.send(delayed).await.code, response::FLUSH_SLAVE_TIMEOUT);
    fixture.wait_for_end("orders", 0, 2).await;
}

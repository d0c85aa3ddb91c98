//! Look-ups while the disk gives nothing, on a runtime of one thread: whoever waited there would hold up all.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rocketpy_model::TopicConfig;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{
    GetEarliestMsgStoretimeRequestHeader, QueryConsumerOffsetRequestHeader, QueryMessageRequestHeader,
    SearchOffsetRequestHeader, ViewMessageRequestHeader,
};
use rocketpy_remoting::{Client, ClientConfig, Server, ServerConfig};

use super::*;
use crate::call::read_aside;
use crate::testing::{Closed, TestBroker, send, until};

const TIMEOUT: Duration = Duration::from_secs(60);

fn look_ups() -> [Command; 5] {
    let view = ViewMessageRequestHeader { topic: None, offset: 0 };
    let search = SearchOffsetRequestHeader {
        topic: "known",
        queue_id: 0,
        timestamp: 0,
        boundary_type: None,
        broker_name: None,
    };
    let earliest = GetEarliestMsgStoretimeRequestHeader { topic: "known", queue_id: 0 };
    let key = QueryMessageRequestHeader {
        topic: "known",
        key: "none",
        max_num: 1,
        begin_timestamp: 0,
        end_timestamp: i64::MAX,
        index_type: None,
        last_key: None,
        is_unique_key: None,
    };
    let start = QueryConsumerOffsetRequestHeader {
        consumer_group: "new",
        topic: "known",
        queue_id: 0,
        set_zero_if_not_found: None,
        broker_name: None,
    };
    [
        Command::request(request::VIEW_MESSAGE_BY_ID, &view),
        Command::request(request::SEARCH_OFFSET_BY_TIMESTAMP, &search),
        Command::request(request::GET_EARLIEST_MSG_STORETIME, &earliest),
        Command::request(request::QUERY_MESSAGE, &key),
        Command::request(request::QUERY_CONSUMER_OFFSET, &start),
    ]
}

#[tokio::test]
async fn look_ups_that_wait_for_the_disk_hold_up_nobody_and_take_few_threads() {
    let broker = TestBroker::open(|_| {});
    broker
        .ground
        .topics()
        .create(vec![TopicConfig::new("known", 1)])
        .unwrap()
        .written
        .unwrap()
        .done()
        .await
        .unwrap();
    let processor = Arc::new(Processor(Arc::clone(&broker)));
    let server = Server::bind(ServerConfig::new("127.0.0.1:0".parse().unwrap()), processor).unwrap();
    let (address, client) = (server.local_addr().to_string(), Client::new(ClientConfig::default()));
    assert_eq!(client.call(&address, send("known", "x"), TIMEOUT).await.unwrap().code, response::SUCCESS);
    until("dispatch has come there", || broker.ground.store().queue_bounds("known", 0).max.get() == 1).await;
    let gate = broker.reads.look_ups.gate.clone();
    let closed = Closed::new(&gate);
    let mut waiting = Vec::new();
    for _ in 0..20 {
        for look_up in look_ups() {
            waiting.push(client.start_call(&address, look_up, TIMEOUT).await.unwrap());
        }
    }
    until("all look-ups have gone aside", || broker.reads.look_ups.waiting() == 100).await;
    until("some have their turn", || gate.arrived() == crate::disk_read::MAX_RUNNING).await;
    assert_eq!(client.call(&address, send("known", "y"), TIMEOUT).await.unwrap().code, response::SUCCESS);
    assert_eq!(gate.arrived(), crate::disk_read::MAX_RUNNING, "the others wait without a thread");
    drop(closed);
    for call in waiting {
        let answer = call.await.unwrap();
        let is_answered = [response::SUCCESS, response::QUERY_NOT_FOUND].contains(&answer.code);
        assert!(is_answered, "{:?}", answer.remark);
    }
    assert_eq!(broker.reads.look_ups.waiting(), 0);
}

/// Counts the reads that were done for its requests.
struct Counts {
    broker: Arc<Desk>,
    reads: Arc<AtomicUsize>,
}

impl Handler for Counts {
    fn handle(&self, _connection: &Arc<Connection>, _request: Command, reply: Reply) {
        let reads = self.reads.clone();
        let read = move || reads.fetch_add(1, Ordering::SeqCst);
        read_aside(self.broker.ground.tasks(), &self.broker.reads.look_ups, reply, 0, read, |_, reply| {
            reply.send(rocketpy_remoting::Response::success());
        });
    }
}

#[tokio::test]
async fn nothing_is_read_for_a_connection_that_has_ended() {
    let broker = TestBroker::open(|_| {});
    let reads = Arc::new(AtomicUsize::new(0));
    let counts = Arc::new(Counts { broker: Arc::clone(&broker), reads: reads.clone() });
    let server = Server::bind(ServerConfig::new("127.0.0.1:0".parse().unwrap()), counts).unwrap();
    let (address, client) = (server.local_addr().to_string(), Client::new(ClientConfig::default()));
    let closed = Closed::new(&broker.reads.look_ups.gate);
    let mut waiting = Vec::new();
    for _ in 0..40 {
        let request = look_ups().into_iter().next().unwrap();
        waiting.push(client.start_call(&address, request, TIMEOUT).await.unwrap());
    }
    until("all are there", || broker.reads.look_ups.waiting() == 40).await;
    client.shutdown().await;
    until("the server has noticed", || server.connections().is_empty()).await;
    drop(closed);
    until("all are done", || broker.reads.look_ups.waiting() == 0).await;
    assert_eq!(reads.load(Ordering::SeqCst), 0);
    for call in waiting {
        assert!(call.await.is_err());
    }
}

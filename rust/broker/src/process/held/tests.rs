//! Questions that come while dispatch stands still. No watch runs here: only dispatch can end their wait.

use parking_lot::{Condvar, Mutex};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::Command;
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader, Header};
use rocketpy_remoting::{Client, ClientConfig, Server, ServerConfig};
use rocketpy_store::{Arrival, NewRecord, StoreListener};

use super::*;
use crate::BrokerConfig;
use crate::broker::Listener;
use crate::process::Processor;
use crate::testing::{TestBroker, until};

const PRODUCER: &str = "10.0.0.7:50123";
const TIMEOUT: Duration = Duration::from_secs(60);

/// Keeps dispatch from going on until it is opened.
struct Gate {
    listener: Listener,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
    }
}

impl StoreListener for Gate {
    fn arrived(&self, arrivals: &[Arrival]) {
        let mut is_open = self.is_open.lock();
        while !*is_open {
            self.opened.wait(&mut is_open);
        }
        drop(is_open);
        self.listener.arrived(arrivals);
    }

    fn dispatched(&self, offset: PhysicalOffset) {
        self.listener.dispatched(offset);
    }
}

/// A broker of which dispatch waits at the gate, with one record in its log.
struct Fixture {
    gate: Arc<Gate>,
    server: Server,
    client: Client,
    /// Dropped last: it closes the store.
    broker: TestBroker,
}

impl Fixture {
    fn start(change: impl FnOnce(&mut BrokerConfig)) -> Self {
        let broker = TestBroker::open(change);
        let listener = Listener::new(&broker).0;
        let gate = Gate { listener, is_open: Mutex::new(false), opened: Condvar::new() };
        let gate = Arc::new(gate);
        broker.ground.store().add_listener(gate.clone());
        let processor = Arc::new(Processor(Arc::clone(&broker)));
        let server = Server::bind(ServerConfig::new("127.0.0.1:0".parse().unwrap()), processor).unwrap();
        let record = NewRecord {
            topic: "orders",
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_at_ms: 1,
            born_host: PRODUCER.parse().unwrap(),
            reconsume_times: 0,
            prepared_transaction_offset: PhysicalOffset(0),
            body: b"x",
            properties: b"",
            may_have_crc: true,
        };
        broker.ground.store().append(&record).unwrap();
        Self { broker, gate, server, client: Client::new(ClientConfig::default()) }
    }

    async fn wait_for_held(&self) {
        until("the question is held", || self.broker.held.len() > 0).await;
    }

    async fn max_offset(&self, committed: bool) -> Command {
        let header = GetMaxOffsetRequestHeader { topic: "orders", queue_id: 0, committed: Some(committed) };
        let request = Command::request(request::GET_MAX_OFFSET, &header);
        self.client.call(&self.server.local_addr().to_string(), request, TIMEOUT).await.unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.gate.open();
    }
}

fn offset(answer: &Command) -> i64 {
    GetMaxOffsetResponseHeader::read(&answer.ext).unwrap().offset
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_waits_until_dispatch_knows_what_was_stored_before() {
    let fixture = Fixture::start(|_| {});
    assert_eq!(offset(&fixture.max_offset(false).await), 1, "the next offset does not come from dispatch");
    let (answer, ()) = tokio::join!(fixture.max_offset(true), async {
        fixture.wait_for_held().await;
        assert_eq!(fixture.broker.held.count_for_messages(), 0);
        fixture.gate.open();
    });
    assert_eq!(offset(&answer), 1);
    assert_eq!(fixture.broker.held.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_was_given_up_is_answered_from_what_is_there() {
    let fixture = Fixture::start(|_| {});
    let (answer, ()) = tokio::join!(fixture.max_offset(true), async {
        fixture.wait_for_held().await;
        let is_readable = || fixture.broker.ground.store().queue_bounds("orders", 0).max.get() == 1;
        until("dispatch stands at the gate", is_readable).await;
        resume_due(&fixture.broker, Instant::now() + DISPATCH_PATIENCE, false).await;
    });
    assert_eq!(offset(&answer), 1, "the entry is readable, only the listener has not returned");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_without_room_is_told_that_the_broker_is_busy() {
    let fixture = Fixture::start(|config| config.max_held_bytes = 1);
    let answer = fixture.max_offset(true).await;
    assert_eq!(answer.code, 2);
    assert!(answer.remark.unwrap().contains("maxHeldBytes"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_panics_harms_no_other_held_request() {
    let fixture = Fixture::start(|_| {});
    let (answer, ()) = tokio::join!(fixture.max_offset(true), async {
        fixture.wait_for_held().await;
        let mut held = fixture.broker.held.all();
        if let Waiting::Question(question) = &mut held[0].waiter {
            question.function = Function::AtOnce(|_| panic!("on purpose"));
        }
        held[0].deadline = Instant::now();
        assert!(fixture.broker.held.hold(held.remove(0), |_| false).unwrap().is_none());
        resume_due(&fixture.broker, Instant::now(), false).await;
    });
    assert_eq!(answer.code, 1, "the panic ends the question alone: its sender gets SYSTEM_ERROR");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_request_that_panics_harms_none_that_is_resumed_with_it() {
    let fixture = Fixture::start(|_| {});
    let (first, second, ()) = tokio::join!(fixture.max_offset(true), fixture.max_offset(true), async {
        until("both are held", || fixture.broker.held.len() == 2).await;
        let mut held = fixture.broker.held.all();
        if let Waiting::Question(question) = &mut held[0].waiter {
            question.function = Function::AtOnce(|_| panic!("on purpose"));
        }
        resume(&fixture.broker, held);
    });
    let mut codes = [first.code, second.code];
    codes.sort_unstable();
    assert_eq!(codes, [0, 1], "one gets SYSTEM_ERROR");
}

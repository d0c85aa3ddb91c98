//! Held requests over replies of a real connection.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rocketpy_protocol::Command;
use rocketpy_remoting::{
    Client, ClientConfig, Connection, Handler, PendingCall, Response, Server, ServerConfig,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);
const ANY_NUMBER: HeldLimits = HeldLimits { requests: usize::MAX, bytes: usize::MAX };

/// Waits for a message of a queue, or for dispatch.
#[derive(Debug)]
struct Test {
    queue: QueueKey,
    offset: i64,
    codes: Option<Vec<i64>>,
    end: Option<PhysicalOffset>,
    held_bytes: usize,
    /// How often anybody asked what it waits for.
    looks: Arc<AtomicUsize>,
}

impl Default for Test {
    fn default() -> Self {
        let (queue, looks) = (queue("orders", 0), Arc::default());
        Self { queue, offset: 0, codes: None, end: None, held_bytes: 0, looks }
    }
}

impl Waiter for Test {
    fn waits_for(&self) -> WaitsFor<'_> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        match self.end {
            Some(end) => WaitsFor::Dispatch(end),
            None => WaitsFor::Message(Awaited {
                queue: &self.queue,
                offset: self.offset,
                codes: self.codes.as_deref(),
            }),
        }
    }

    fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}

/// Passes on the right to answer.
struct Answers(UnboundedSender<Reply>);

impl Handler for Answers {
    fn handle(&self, _connection: &Arc<Connection>, _request: Command, reply: Reply) {
        self.0.send(reply).unwrap();
    }
}

/// A server with two clients, which call in turns.
struct Fixture {
    server: Server,
    clients: Vec<Client>,
    replies: UnboundedReceiver<Reply>,
    calls: Vec<PendingCall>,
}

impl Fixture {
    async fn start() -> Self {
        let (sender, replies) = unbounded_channel();
        let config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        let server = Server::bind(config, Arc::new(Answers(sender))).unwrap();
        let clients = [(); 2].map(|()| Client::new(ClientConfig::default())).into();
        Self { server, clients, replies, calls: Vec::new() }
    }

    /// The reply to a new call.
    async fn reply(&mut self) -> Reply {
        let client = &self.clients[self.calls.len() % self.clients.len()];
        let address = self.server.local_addr().to_string();
        let call = client.start_call(&address, Command::bare_request(11), PATIENCE).await.unwrap();
        self.calls.push(call);
        self.replies.recv().await.unwrap()
    }

    async fn held(&mut self, waiter: Test) -> Held<Test> {
        Held { waiter, reply: self.reply().await, deadline: Instant::now() + PATIENCE }
    }
}

fn queue(topic: &str, queue_id: u32) -> QueueKey {
    QueueKey { topic: topic.into(), queue_id }
}

fn arrival(queue_id: u32, tags_code: i64) -> Arrival {
    let next_offset = QueueOffset(1);
    Arrival { topic: "orders".into(), queue_id, next_offset, tags_code, stored_at_ms: 0 }
}

fn hold(requests: &HeldRequests<Test>, held: Held<Test>) {
    assert!(requests.hold(held, |_| false).unwrap().is_none());
}

fn is_empty(requests: &HeldRequests<Test>) -> bool {
    requests.state.with(|state| {
        let sets = state.by_topic.len() + state.by_dispatch.len() + state.by_connection.len();
        let usage = [state.for_messages, state.for_dispatch];
        sets + state.by_deadline.len() + state.requests.len() == 0 && usage == [Usage::default(); 2]
    })
}

/// The offsets of the requests that these messages wake, when they are no more than can be taken out together.
fn woken(requests: &HeldRequests<Test>, arrivals: &[Arrival]) -> Vec<i64> {
    let (released, rest) = requests.arrived(arrivals);
    assert!(rest.is_empty());
    released.held.iter().map(|held| held.waiter.offset).collect()
}

#[tokio::test]
async fn a_message_looks_only_at_the_requests_that_it_wakes() {
    const REQUESTS: i64 = 900;
    /// Each is asked as it leaves the sets.
    const LOOKS_A_REQUEST: usize = 2;
    let mut fixture = Fixture::start().await;
    let (requests, looks) = (HeldRequests::new(ANY_NUMBER), Arc::new(AtomicUsize::new(0)));
    for number in 0..REQUESTS {
        let codes = Some(vec![7, 1000 + number]);
        hold(&requests, fixture.held(Test { codes, looks: looks.clone(), ..Test::default() }).await);
    }
    let later = Test { offset: 1, looks: looks.clone(), ..Test::default() };
    hold(&requests, fixture.held(later).await);
    looks.store(0, Ordering::Relaxed);
    assert!(woken(&requests, &vec![arrival(0, 6); 1000]).is_empty());
    assert!(woken(&requests, &vec![arrival(1, 7); 1000]).is_empty());
    assert_eq!(looks.load(Ordering::Relaxed), 0);
    assert_eq!(woken(&requests, &vec![arrival(0, 1500); 1000]), [0]);
    assert_eq!(looks.load(Ordering::Relaxed), LOOKS_A_REQUEST);
    assert_eq!(woken(&requests, &vec![arrival(0, 7); 1000]), vec![0; REQUESTS as usize - 1]);
    assert_eq!(looks.load(Ordering::Relaxed), REQUESTS as usize * LOOKS_A_REQUEST);
    assert_eq!(woken(&requests, &[Arrival { next_offset: QueueOffset(2), ..arrival(0, 6) }]), [1]);
    assert!(is_empty(&requests));
}

#[tokio::test]
async fn requests_of_one_kind_leave_the_places_of_the_other_kind_to_their_connection() {
    let mut fixture = Fixture::start().await;
    fixture.clients.truncate(1);
    let requests = HeldRequests::new(HeldLimits { requests: 100, bytes: usize::MAX });
    for end in 0..50 {
        hold(&requests, fixture.held(Test { end: Some(PhysicalOffset(end)), ..Test::default() }).await);
    }
    for offset in 0..50 {
        hold(&requests, fixture.held(Test { offset, ..Test::default() }).await);
    }
    let more = fixture.held(Test::default()).await;
    let connection_id = more.reply.connection().id();
    assert!(requests.hold(more, |_| false).is_err(), "half of the places of its kind");
    requests.disconnected(connection_id);
    assert!(is_empty(&requests));
}

#[tokio::test]
async fn it_is_told_which_queues_are_waited_for() {
    let mut fixture = Fixture::start().await;
    let told = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let notes = Arc::clone(&told);
    let requests = HeldRequests::new(ANY_NUMBER)
        .telling(move |queue, is_awaited| notes.lock().push((queue.queue_id, is_awaited)));
    for offset in [0, 1] {
        hold(&requests, fixture.held(Test { offset, ..Test::default() }).await);
    }
    assert_eq!(*told.lock(), [(0, true)]);
    assert_eq!(woken(&requests, &[arrival(0, 7)]), [0]);
    assert_eq!(*told.lock(), [(0, true)], "one still waits");
    assert_eq!(requests.all().len(), 1);
    assert_eq!(*told.lock(), [(0, true), (0, false)]);
    let over = requests.hold(fixture.held(Test::default()).await, |_| true).unwrap();
    assert!(over.is_some());
    assert_eq!(told.lock()[2..], [(0, true), (0, false)]);
}

#[tokio::test]
async fn a_message_whose_tag_stands_elsewhere_wakes_every_filter() {
    let mut fixture = Fixture::start().await;
    let requests = HeldRequests::new(ANY_NUMBER);
    for codes in [None, Some(vec![7]), Some(vec![8, 9])] {
        hold(&requests, fixture.held(Test { codes, ..Test::default() }).await);
    }
    hold(&requests, fixture.held(Test { offset: 1, ..Test::default() }).await);
    assert_eq!(woken(&requests, &[arrival(0, i64::MIN)]), [0; 3]);
    assert_eq!(requests.all().len(), 1);
    assert!(is_empty(&requests));
}

#[tokio::test]
async fn a_filter_keeps_a_request_until_all_are_checked() {
    let mut fixture = Fixture::start().await;
    let requests = HeldRequests::new(ANY_NUMBER);
    hold(&requests, fixture.held(Test { codes: Some(vec![7]), ..Test::default() }).await);
    assert!(woken(&requests, &[arrival(0, 8)]).is_empty());
    assert_eq!(requests.queues(), [queue("orders", 0)]);
    assert!(requests.behind(&[(queue("orders", 0), QueueOffset(0))]).held.is_empty());
    assert_eq!(requests.behind(&[(queue("orders", 0), QueueOffset(1))]).held.len(), 1);
    assert!(is_empty(&requests));
}

#[tokio::test]
async fn requests_are_released_by_topic() {
    let mut fixture = Fixture::start().await;
    let requests = HeldRequests::new(ANY_NUMBER);
    for queue in [queue("orders", 0), queue("orders", 1), queue("other", 0)] {
        hold(&requests, fixture.held(Test { queue, ..Test::default() }).await);
    }
    assert_eq!((requests.count_for_messages(), requests.queues().len()), (3, 3));
    assert!(requests.of_topic("nothing").held.is_empty());
    assert_eq!(requests.of_topic("orders").held.len(), 2);
    assert_eq!(requests.queues(), [queue("other", 0)]);
    assert_eq!(requests.for_messages().held.len(), 1);
    assert!(is_empty(&requests));
}

#[tokio::test]
async fn a_thousand_requests_are_taken_out_together_and_no_more() {
    const REQUESTS: usize = 2 * STEP_REQUESTS + 100;
    let mut fixture = Fixture::start().await;
    let requests = HeldRequests::new(ANY_NUMBER);
    let mut held = Vec::new();
    for _ in 0..REQUESTS {
        held.push(fixture.held(Test::default()).await);
    }
    held.into_iter().for_each(|held| hold(&requests, held));
    let arrivals = [arrival(0, 8), arrival(0, 9), arrival(1, 9)];
    let (mut again, mut rest) = requests.arrived(&arrivals);
    assert!(again.is_full() && again.held.len() == STEP_REQUESTS && rest.len() == arrivals.len());
    again.held.extend(requests.overdue(Instant::now() + 2 * PATIENCE).held);
    assert_eq!(again.held.len(), 2 * STEP_REQUESTS);
    again.held.into_iter().for_each(|held| hold(&requests, held));
    let mut counts = Vec::new();
    while !rest.is_empty() {
        let released;
        (released, rest) = requests.arrived(rest);
        counts.push(released.held.len());
    }
    assert_eq!(counts, [STEP_REQUESTS, STEP_REQUESTS, 100]);
    assert!(is_empty(&requests));
}

#[tokio::test]
async fn a_filter_counts_as_much_memory_as_it_has_tags() {
    const CODES: i64 = 1000;
    let mut fixture = Fixture::start().await;
    let requests = HeldRequests::new(ANY_NUMBER);
    let wide = || Test { codes: Some((0..CODES).collect()), ..Test::default() };
    let narrow = bytes_of(&fixture.held(Test::default()).await);
    assert_eq!(bytes_of(&fixture.held(wide()).await), narrow + CODES as usize * CODE_BYTES);
    let together = STEP_BYTES / (CODES as usize * CODE_BYTES) + 1;
    for _ in 0..2 * together {
        hold(&requests, fixture.held(wide()).await);
    }
    let arrivals = [arrival(0, 7)];
    let (released, rest) = requests.arrived(&arrivals);
    assert!(released.held.len() <= together && !rest.is_empty());
    assert_eq!(requests.count_for_messages() + released.held.len(), 2 * together);
    assert!(!requests.all().is_empty() && is_empty(&requests));
}

#[tokio::test]
async fn dispatch_releases_the_requests_that_it_has_reached() {
    let mut fixture = Fixture::start().await;
    let requests = HeldRequests::new(ANY_NUMBER);
    for end in [300, 100, 200] {
        let waiter = Test { end: Some(PhysicalOffset(end)), ..Test::default() };
        hold(&requests, fixture.held(waiter).await);
    }
    assert_eq!(requests.count_for_messages(), 0);
    assert!(requests.dispatched(PhysicalOffset(99)).held.is_empty());
    let ends: Vec<_> =
        requests.dispatched(PhysicalOffset(200)).held.iter().map(|held| held.waiter.end).collect();
    assert_eq!(ends, [Some(PhysicalOffset(100)), Some(PhysicalOffset(200))]);
    assert!(requests.dispatched(PhysicalOffset(299)).held.is_empty());
    assert_eq!(requests.dispatched(PhysicalOffset(300)).held.len(), 1);
    assert!(is_empty(&requests));
}

#[tokio::test]
async fn what_happened_just_before_the_hold_ends_it() {
    let mut fixture = Fixture::start().await;
    let requests = HeldRequests::new(ANY_NUMBER);
    let waiter = || Test { end: Some(PhysicalOffset(100)), ..Test::default() };
    assert!(requests.hold(fixture.held(waiter()).await, |_| false).unwrap().is_none());
    let held = fixture.held(waiter()).await;
    let over = requests.hold(held, |waiter| waiter.end == Some(PhysicalOffset(100))).unwrap();
    assert!(over.is_some());
    assert_eq!(requests.dispatched(PhysicalOffset(100)).held.len(), 1, "it is gone");
    assert!(is_empty(&requests));
}

#[tokio::test]
async fn requests_are_bounded_in_number_and_in_bytes() {
    let mut fixture = Fixture::start().await;
    let waiter = || Test { held_bytes: 1000, ..Test::default() };
    let two = 2 * bytes_of(&fixture.held(waiter()).await);
    let limits = [
        (HeldLimits { requests: 2, bytes: usize::MAX }, NoRoom::Requests { limit: 2 }),
        (HeldLimits { requests: usize::MAX, bytes: two }, NoRoom::Bytes { limit: two }),
    ];
    for (limits, expected) in limits {
        let requests = HeldRequests::new(limits);
        hold(&requests, fixture.held(waiter()).await);
        let over = requests.hold(fixture.held(waiter()).await, |_| true).unwrap();
        assert!(over.is_some(), "it leaves its room");
        hold(&requests, fixture.held(waiter()).await);
        let (refused, no_room) = *requests.hold(fixture.held(waiter()).await, |_| false).unwrap_err();
        assert_eq!(no_room, expected);
        assert_eq!(requests.all().len(), 2);
        hold(&requests, refused);
        assert_eq!(requests.all().len(), 1);
        assert!(is_empty(&requests));
    }
}

#[tokio::test]
async fn requests_for_messages_leave_the_room_of_those_for_dispatch() {
    let mut fixture = Fixture::start().await;
    let pull = || Test::default();
    let one = bytes_of(&fixture.held(pull()).await);
    for limits in
        [HeldLimits { requests: 1, bytes: usize::MAX }, HeldLimits { requests: usize::MAX, bytes: one }]
    {
        let requests = HeldRequests::new(limits);
        hold(&requests, fixture.held(pull()).await);
        assert!(requests.hold(fixture.held(pull()).await, |_| false).is_err());
        let question = || Test { end: Some(PhysicalOffset(100)), ..Test::default() };
        hold(&requests, fixture.held(question()).await); // pulls take no room of questions
        assert!(requests.hold(fixture.held(question()).await, |_| false).is_err());
        assert_eq!(requests.for_messages().held.len(), 1);
        assert_eq!(requests.all().len(), 1, "the question waits on");
        assert!(is_empty(&requests));
    }
}

#[tokio::test]
async fn an_ended_connection_takes_its_requests_along() {
    let mut fixture = Fixture::start().await;
    let requests = HeldRequests::new(ANY_NUMBER);
    let mut connections = Vec::new();
    for _ in 0..4 {
        let held = fixture.held(Test::default()).await;
        connections.push(held.reply.connection().id());
        hold(&requests, held);
    }
    requests.disconnected(connections[0]);
    let left: Vec<_> = requests.all().into_iter().map(|held| held.reply.connection().id()).collect();
    assert_eq!(left, [connections[1]; 2]);
    assert!(is_empty(&requests));
}

#[tokio::test]
async fn the_earliest_deadline_ends_the_wait_for_it() {
    let mut fixture = Fixture::start().await;
    let requests = Arc::new(HeldRequests::new(ANY_NUMBER));
    let far = Instant::now() + Duration::from_secs(3600);
    let waiting = requests.clone();
    let waiting = tokio::spawn(async move { waiting.wait_for_deadline(far).await });
    tokio::task::yield_now().await;
    let now = Instant::now();
    let waiter = Test::default();
    let reply = fixture.reply().await;
    hold(&requests, Held { waiter, reply, deadline: now });
    tokio::time::timeout(PATIENCE, waiting).await.expect("the deadline ends the wait").unwrap();
    assert!(requests.overdue(now - Duration::from_millis(1)).held.is_empty());
    for held in requests.overdue(now).held {
        held.reply.send(Response::success());
    }
    assert_eq!(fixture.calls.pop().unwrap().await.unwrap().code, 0);
}

#[tokio::test]
async fn a_connection_with_many_requests_leaves_room_for_another() {
    let mut fixture = Fixture::start().await;
    fixture.clients.truncate(1);
    let requests = HeldRequests::new(HeldLimits { requests: 100, bytes: usize::MAX });
    for _ in 0..50 {
        hold(&requests, fixture.held(Test::default()).await);
    }
    let refused =
        requests.hold(fixture.held(Test::default()).await, |_| false).expect_err("half is its share");
    assert_eq!(refused.1, NoRoom::Requests { limit: 100 });
    let _first = std::mem::replace(&mut fixture.clients, vec![Client::new(ClientConfig::default())]);
    for _ in 0..25 {
        hold(&requests, fixture.held(Test::default()).await);
    }
}

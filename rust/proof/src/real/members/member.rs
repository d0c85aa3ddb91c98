//! The process of a member: a push consumer whose handlers write what they do to standard output, as lines of the history.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use rocketpy_client::{
    Client, ClientConfig, ClientError, ConsumerConfig, PushConfig, PushConsumer, PushTopic, Start,
    Subscription, Verdict, Work,
};
use rocketpy_env::now_ms;
use rocketpy_model::MessageQueue;
use rocketpy_protocol::record::RecordView;
use serde::{Deserialize, Serialize};

use super::super::load::RETRY_PAUSE;
use super::super::message;
use crate::history::{self, Call, Delivery, Event, HandlerEnd, Reply};

/// How long a handler waits for messages before it looks whether its consumer is still there.
const TAKE_WITHIN: Duration = Duration::from_millis(200);
/// How long a stop waits for handlers; none takes longer.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// How often the queues of the member are looked at. Two rebalances are further apart.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
const RETRY_LEVEL: i32 = 1;
/// How often the members ask for the queues.
const REFRESH_INTERVAL: Duration = Duration::from_secs(2);
/// Bodies of this length are never tried again: such messages show that members have come to a new store.
pub(super) const FIRST_BODY_BYTES: usize = 8;
const HANDLERS: usize = 4;
/// Calls of a process have numbers of their own above those of the harness and of other processes.
const CALLS_BITS: u32 = 32;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Member {
    pub(super) name_server: String,
    pub(super) group: String,
    pub(super) topics: Vec<String>,
    /// Its number in the group; a process that follows another one has the same.
    pub(super) number: u32,
    pub(super) process: u64,
    pub(super) instance_name: String,
    pub(super) ordered: bool,
    pub(super) latest: bool,
    pub(super) max_retries: u32,
    /// In broadcasting, the folder of its offsets.
    pub(super) offsets: Option<PathBuf>,
    pub(super) seed: u64,
}

impl Member {
    /// Works until standard input ends, then stops in order.
    ///
    /// # Errors
    /// What kept it from working.
    pub fn work(self) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let worked = runtime.block_on(self.run());
        runtime.shutdown_background();
        worked.map_err(|error| error.to_string())
    }

    async fn run(self) -> Result<(), ClientError> {
        let config = ClientConfig {
            instance_name: Some(self.instance_name.clone()),
            route_refresh_interval: REFRESH_INTERVAL,
            ..ClientConfig::new([self.name_server.clone()])
        };
        let client = Client::new(config, tokio::runtime::Handle::current())?;
        let mut ended = tokio::task::spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new()));
        let consumer = tokio::select! {
            consumer = self.join(&client) => consumer,
            _ = &mut ended => return Ok(()), // stopped while there was no server
        };
        say(&[Event::Joined { group: self.group.clone(), member: self.number }]);
        let mut rng = Rng::with_seed(self.seed);
        let shared =
            Arc::new(Shared { member: self, consumer, known: Mutex::default(), calls: AtomicU64::new(0) });
        let mut handlers = tokio::task::JoinSet::new();
        for _ in 0..HANDLERS {
            handlers.spawn(shared.clone().handle(rng.fork()));
        }
        let watch = tokio::spawn(shared.clone().watch());
        let _ = ended.await;
        shared.consumer.stop(STOP_WITHIN).await?;
        while handlers.join_next().await.is_some() {}
        watch.abort();
        client.close().await;
        Ok(())
    }

    /// Joins the group, as soon as there is a server.
    async fn join(&self, client: &Client) -> PushConsumer {
        let topic =
            |topic: &String| PushTopic { subscription: Subscription::new(topic, "*"), lane: 0, batch: 1 };
        let config = PushConfig {
            consumer: ConsumerConfig {
                handover_timeout: Duration::from_secs(2),
                rebalance_interval: Duration::from_secs(2),
                suspend: Duration::from_secs(2),
                pull_timeout: Duration::from_secs(5),
                // Small, so that what is pulled ahead does not cover all there is.
                pull_messages: 32,
                prefetch_messages: 64,
                allow_missing_topic: true,
                start: if self.latest { Start::Latest } else { Start::Earliest },
                ..ConsumerConfig::default()
            },
            max_retries: self.max_retries,
            ordered: self.ordered,
            retry_pause: Duration::from_millis(30),
            broadcast: self.offsets.is_some(),
            offsets_folder: self.offsets.clone(),
            ..PushConfig::default()
        };
        loop {
            let topics = self.topics.iter().map(topic).collect();
            match PushConsumer::new(client, &self.group, topics, config.clone()).await {
                Ok(consumer) => return consumer,
                Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
            }
        }
    }
}

struct Shared {
    member: Member,
    consumer: PushConsumer,
    /// Queues of which something was delivered since they were assigned.
    known: Mutex<HashSet<MessageQueue>>,
    calls: AtomicU64,
}

impl Shared {
    /// Forgets queues that go to other members.
    async fn watch(self: Arc<Self>) {
        loop {
            self.look_at_queues();
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    fn look_at_queues(&self) {
        let assigned = self.consumer.state().assigned;
        self.known.lock().retain(|queue| assigned.contains(queue));
    }

    async fn handle(self: Arc<Self>, mut rng: Rng) {
        loop {
            match self.consumer.take(0, TAKE_WITHIN).await {
                Ok(Some(work)) => self.handle_all(&work, &mut rng).await,
                Ok(None) => {}
                Err(ClientError::Closed { .. }) => return,
                Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
            }
        }
    }

    async fn handle_all(&self, work: &Work, rng: &mut Rng) {
        while let Some(bytes) = work.next() {
            let Ok(view) = RecordView::parse(&bytes) else { std::process::abort() };
            let times = view.reconsume_times.cast_unsigned();
            let delivery = Delivery { times, ..message::delivery(&view) };
            self.began(&work.queue(), &delivery);
            tokio::time::sleep(draw_work(rng)).await;
            let tries = if self.member.ordered { work.tries() } else { times };
            let is_first = view.body.len() == FIRST_BODY_BYTES;
            let end = if is_first { HandlerEnd::Done } else { self.draw_end(rng, tries) };
            self.returned(&delivery, end);
            let _ = match end {
                HandlerEnd::Done => None,
                HandlerEnd::Failed => work.fail(Verdict::RetryAtLevel(RETRY_LEVEL), None),
                HandlerEnd::Rejected => work.fail(Verdict::Reject, None),
            };
        }
    }

    fn draw_end(&self, rng: &mut Rng, tries: u32) -> HandlerEnd {
        match rng.u8(0..40) {
            0 => HandlerEnd::Rejected,
            1..=3 if tries >= self.member.max_retries => HandlerEnd::Rejected,
            1..=3 => HandlerEnd::Failed,
            _ => HandlerEnd::Done,
        }
    }

    fn began(&self, queue: &MessageQueue, delivery: &Delivery) {
        self.look_at_queues();
        let (group, member) = (self.member.group.clone(), self.member.number);
        let mut events = Vec::new();
        if self.known.lock().insert(queue.clone()) {
            events.push(Event::Rebalance { group: group.clone() });
        }
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let op = (self.member.process << CALLS_BITS) + number;
        events.push(Event::Invoke { op, call: Call::Receive { group, member } });
        let reply = Reply::Received { at_ms: now_ms(), deliveries: vec![delivery.clone()] };
        events.push(Event::Ok { op, reply });
        say(&events);
    }

    fn returned(&self, delivery: &Delivery, end: HandlerEnd) {
        say(&[Event::Returned {
            group: self.member.group.clone(),
            member: self.member.number,
            queue: delivery.queue.clone(),
            offset: delivery.offset,
            message: delivery.message,
            end,
        }]);
    }
}

/// Most handlers are quick; some take longer than a rebalance.
fn draw_work(rng: &mut Rng) -> Duration {
    match rng.u8(0..128) {
        0 => Duration::from_millis(rng.u64(100..600)),
        1..=16 => Duration::from_millis(rng.u64(0..5)),
        _ => Duration::ZERO,
    }
}

/// Writes lines in one go: all members have the same pipe, which keeps the order in which they write.
fn say(events: &[Event]) {
    let mut lines = Vec::new();
    let _ = history::write(events, &mut lines);
    let mut out = io::stdout().lock();
    if out.write_all(&lines).and_then(|()| out.flush()).is_err() {
        std::process::exit(1); // the harness is gone
    }
}

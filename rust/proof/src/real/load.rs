//! The load: producers, consumers and administration in the harness's own process. Each notes a call before it makes it, and
//! then the answer.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use parking_lot::Mutex;
use rocketpy_client::{
    Admin, Client, ClientError, ConsumerConfig, Producer, ProducerConfig, PullConsumer, Receipt, SendOptions,
    SendStatus, Start, Subscription, TopicSpec,
};
use rocketpy_env::now_ms;
use rocketpy_model::{Message, MessageQueue};
use rocketpy_protocol::message_id::OffsetMessageId;
use tokio::task::JoinSet;

use super::journal::Journal;
use super::message::{self, queue_name};
use crate::history::{Call, Event, LogRange, Reply, Send};

/// Producers; each waits for an answer before its next send.
const PRODUCERS: u32 = 4;
/// Groups and the tags that they want.
pub(super) const GROUPS: [(&str, &str); 2] = [("all", "*"), ("red", "red")];
/// The group whose consumer outlives the server.
pub(super) const LASTING: &str = "lasting";
/// Pause after a refused call.
const RETRY_PAUSE: Duration = Duration::from_millis(5);
/// A consumer that got nothing for this long has everything.
const DRAINED_AFTER: Duration = Duration::from_millis(600);
const DRAIN_WITHIN: Duration = Duration::from_secs(20);
/// Topics that are made during the load and stay.
const MOST_LATE_TOPICS: u64 = 40;

/// Topics that were made and deleted during the load, where both were acknowledged.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    pub there: BTreeSet<String>,
    pub gone: BTreeSet<String>,
    made: u64,
}

/// What all tasks share, over all lives of the server.
#[derive(Debug, Clone)]
pub(super) struct Load {
    pub journal: Arc<Mutex<Journal>>,
    pub topics: Arc<[String]>,
    pub body_max: usize,
    pub metadata: Arc<Mutex<Metadata>>,
    /// When sends were acknowledged, and where their records begin.
    pub acknowledged: Arc<Mutex<VecDeque<(Instant, u64)>>>,
    numbers: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    draining: Arc<AtomicBool>,
}

impl Load {
    pub(super) fn new(journal: Journal, topics: u32, body_max: usize) -> Self {
        Self {
            journal: Arc::new(Mutex::new(journal)),
            topics: (0..topics).map(|topic| format!("topic{topic}")).collect(),
            body_max,
            metadata: Arc::default(),
            acknowledged: Arc::default(),
            numbers: Arc::new(AtomicU64::new(1)),
            stop: Arc::default(),
            draining: Arc::default(),
        }
    }

    /// Starts the tasks of one life of the server.
    pub(super) fn begin(&self, client: &Client, rng: &mut Rng, has_administration: bool) -> JoinSet<()> {
        self.stop.store(false, Ordering::SeqCst);
        self.draining.store(false, Ordering::SeqCst);
        self.acknowledged.lock().clear();
        let mut tasks = JoinSet::new();
        let runtime = client.runtime();
        for producer in 0..PRODUCERS {
            tasks.spawn_on(self.clone().produce(client.clone(), producer, rng.fork()), runtime);
        }
        for (group, tags) in GROUPS {
            tasks.spawn_on(self.clone().consume(client.clone(), group, tags, rng.fork(), false), runtime);
        }
        if has_administration {
            tasks.spawn_on(self.clone().administrate(client.clone(), rng.fork()), runtime);
        }
        tasks
    }

    /// Starts the consumer that lives until everything is drained, whatever becomes of the server.
    pub(super) fn begin_lasting(&self, client: &Client, rng: &mut Rng) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let task = self.clone().consume(client.clone(), LASTING, "*", rng.fork(), true);
        tasks.spawn_on(task, client.runtime());
        tasks
    }

    /// Ends each task after its next answer.
    pub(super) fn end(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Ends all but the consumers, which read until nothing is left.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn sends_no_more(&self) -> bool {
        self.is_over() || self.draining.load(Ordering::SeqCst)
    }

    async fn produce(self, client: Client, number: u32, mut rng: Rng) {
        let config = ProducerConfig { retries: 0, compression: None, ..ProducerConfig::default() };
        let Ok(producer) = Producer::new(&client, &format!("producers{number}"), config).await else {
            return;
        };
        while !self.sends_no_more() {
            let topic = &self.topics[rng.usize(..self.topics.len())];
            let queue = match producer.queues(topic).await {
                Ok(queues) if rng.bool() => Some(queues[rng.usize(..queues.len())].clone()),
                Ok(_) => None,
                Err(_) => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                    continue;
                }
            };
            let is_batch = rng.u8(0..6) == 0;
            let count = if is_batch { rng.usize(2..9) } else { 1 };
            let longest = if is_batch { self.body_max.min(1000) } else { self.body_max };
            let built: Vec<_> = (0..count)
                .map(|_| {
                    let next = self.numbers.fetch_add(1, Ordering::SeqCst);
                    message::build(next, number, topic, rng.usize(8..=longest))
                })
                .collect();
            let all_well = self.send(&producer, built, queue).await;
            let pause = if all_well { Duration::from_millis(rng.u64(0..3)) } else { RETRY_PAUSE };
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends one message, or several at once; returns whether all were acknowledged.
    async fn send(
        &self,
        producer: &Producer,
        built: Vec<(Message, Send)>,
        queue: Option<MessageQueue>,
    ) -> bool {
        let options = SendOptions { queue, ..SendOptions::default() };
        let (messages, calls): (Vec<Message>, Vec<Send>) = built.into_iter().unzip();
        let ops: Vec<u64> = {
            let mut journal = self.journal.lock();
            calls.into_iter().map(|call| journal.invoke(Call::Send(call))).collect()
        };
        let outcomes: Vec<Result<Receipt, ClientError>> = match messages.as_slice() {
            [message] => vec![producer.send(message, options).await],
            _ => match producer.send_many(messages, options).await {
                Ok(sent) => sent.receipts().collect(),
                Err(error) => ops.iter().map(|_| Err(error.clone())).collect(),
            },
        };
        let mut journal = self.journal.lock();
        let mut all_well = true;
        for (op, outcome) in ops.into_iter().zip(outcomes) {
            all_well &= self.note(&mut journal, op, outcome);
        }
        all_well
    }

    fn note(&self, journal: &mut Journal, op: u64, outcome: Result<Receipt, ClientError>) -> bool {
        match outcome {
            Ok(receipt) if receipt.status == SendStatus::SendOk => {
                // An acknowledgement names the start of the record, not its end: note its first byte alone.
                let start = receipt.offset_msg_id.parse::<OffsetMessageId>().ok();
                let start = start.map(|id| id.physical_offset.get());
                if let Some(start) = start {
                    self.acknowledged.lock().push_back((Instant::now(), start));
                }
                let log = start.map(|start| LogRange { start, end: start + 1 });
                let (queue, offset) = (queue_name(&receipt.queue), receipt.queue_offset.get());
                journal.ok(op, Reply::Sent { queue, offset, log });
                true
            }
            Ok(receipt) => {
                journal.push(Event::Unknown { op, reason: format!("{:?}", receipt.status) });
                false
            }
            Err(error) if error.may_have_been_applied() => {
                journal.push(Event::Unknown { op, reason: error.to_string() });
                false
            }
            Err(error) => {
                journal.push(Event::Fail { op, reason: error.to_string() });
                false
            }
        }
    }

    /// Reads and commits until the load ends, or if it `lasts` until everything is drained.
    async fn consume(
        self,
        client: Client,
        group: &'static str,
        tags: &'static str,
        mut rng: Rng,
        lasts: bool,
    ) {
        self.journal.lock().push(Event::Rebalance { group: group.to_owned() });
        let subscriptions: Vec<_> = self.topics.iter().map(|topic| Subscription::new(topic, tags)).collect();
        let config =
            ConsumerConfig { start: Start::Earliest, allow_missing_topic: true, ..ConsumerConfig::default() };
        let consumer = loop {
            match PullConsumer::new(&client, group, subscriptions.clone(), config.clone()).await {
                Ok(consumer) => break consumer,
                Err(_) if lasts => tokio::time::sleep(RETRY_PAUSE).await,
                Err(_) => return,
            }
        };
        let (mut got_at, mut draining_since) = (Instant::now(), None);
        let has_queues =
            || !consumer.positions().is_empty() && consumer.positions().len() == consumer.assignment().len();
        while lasts || !self.is_over() {
            match consumer.poll(rng.usize(1..200), Duration::from_millis(20)).await {
                Ok(batch) if batch.is_empty() => {}
                Ok(batch) => {
                    got_at = Instant::now();
                    self.note_batch(&consumer, &batch, rng.bool()).await;
                }
                Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
            }
            if self.draining.load(Ordering::SeqCst) {
                let since = *draining_since.get_or_insert_with(Instant::now);
                if !has_queues() {
                    got_at = Instant::now(); // a stalled disk delays the first assignment of a group
                }
                let is_quiet = got_at.max(since).elapsed() > DRAINED_AFTER;
                let has_all = is_quiet && (!lasts || has_read_all(&client, &consumer).await);
                if has_all || since.elapsed() > DRAIN_WITHIN {
                    return;
                }
            }
        }
    }

    async fn note_batch(&self, consumer: &PullConsumer, batch: &rocketpy_client::PulledBatch, commits: bool) {
        let deliveries = batch.iter().map(|message| message::delivery(&message.record())).collect();
        let group = consumer.group().to_owned();
        let reply = Reply::Received { at_ms: now_ms(), deliveries };
        self.journal.lock().done(Call::Receive { group: group.clone(), member: 0 }, reply);
        if !commits {
            return;
        }
        for part in batch.parts().iter().filter(|part| !part.is_empty()) {
            let queue = part.queue();
            let next = part.spans()[part.len() - 1].queue_offset + 1;
            let call = Call::Commit { group: group.clone(), queue: queue_name(queue), offset: next.get() };
            let op = self.journal.lock().invoke(call);
            let committed = consumer.commit_offsets(&[((**queue).clone(), next)]).await;
            match committed {
                Ok(()) => self.journal.lock().ok(op, Reply::Committed),
                Err(error) => self.journal.lock().push(Event::Unknown { op, reason: error.to_string() }),
            }
        }
    }

    /// Makes and deletes topics, with messages that are not checked.
    async fn administrate(self, client: Client, mut rng: Rng) {
        let config = ProducerConfig { retries: 0, ..ProducerConfig::default() };
        let Ok(producer) = Producer::new(&client, "scrap", config).await else { return };
        while !self.sends_no_more() {
            if rng.u8(0..3) == 0 {
                self.make_topic(&client).await;
            } else {
                self.scrap(&client, &producer, rng.usize(0..4)).await;
            }
            tokio::time::sleep(Duration::from_millis(rng.u64(5..40))).await;
        }
    }

    /// Makes a topic that must stay. Returns whether that was acknowledged.
    pub(super) async fn make_topic(&self, client: &Client) -> bool {
        let name = {
            let mut metadata = self.metadata.lock();
            metadata.made += 1;
            format!("late{}", metadata.made % MOST_LATE_TOPICS)
        };
        let made = Admin::new(client).create_topic(&TopicSpec::new(&name, 1)).await.is_ok();
        if made {
            self.metadata.lock().there.insert(name);
        }
        made
    }

    async fn scrap(&self, client: &Client, producer: &Producer, messages: usize) {
        let name = {
            let mut metadata = self.metadata.lock();
            metadata.made += 1;
            format!("scrap{}", metadata.made)
        };
        let admin = Admin::new(client);
        if admin.create_topic(&TopicSpec::new(&name, 2)).await.is_err() {
            return;
        }
        for number in 0..messages {
            let _ = producer.send(&Message::new(&name, vec![1; 10 + number]), SendOptions::default()).await;
        }
        if admin.delete_topic(&name).await.is_ok() {
            self.metadata.lock().gone.insert(name);
        }
    }
}

/// Whether a consumer has handed out everything of its queues. One that lost its server may need a while to find the next.
async fn has_read_all(client: &Client, consumer: &PullConsumer) -> bool {
    let admin = Admin::new(client);
    for (queue, position) in consumer.positions() {
        if !admin.max_offset(&queue).await.is_ok_and(|end| position >= end) {
            return false;
        }
    }
    true
}

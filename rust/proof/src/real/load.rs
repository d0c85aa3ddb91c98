//! The load: producers, consumers and administration in the harness's own process. Each notes a call before it makes it, and
//! then the answer.

use std::collections::{BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use parking_lot::Mutex;
use rocketpy_client::{
    Admin, Client, ConsumerConfig, Producer, ProducerConfig, PullConsumer, Receipt, SendError, SendOptions,
    SendStatus, Start, Subscription, TopicSpec,
};
use rocketpy_env::now_ms;
use rocketpy_model::{Message, MessageQueue};
use rocketpy_protocol::Command;
use rocketpy_protocol::code::{request, response};
use rocketpy_remoting as remoting;
use tokio::task::JoinSet;

use super::journal::Journal;
use super::later::Came;
use super::message::{self, queue_name};
use super::orderly::{self, Member};
use super::shape::{BATCH_BODY_BYTES, BATCH_MESSAGES, Shape, topic_name};
use super::{question, sql};
use crate::history::{Call, Event, LogRange, Reply, Send};
use crate::later::Half;

/// Producers, unless it is said how many; each waits for an answer before its next send.
pub const PRODUCERS: u32 = 4;
/// Groups and the tags that they want.
pub(super) const GROUPS: [(&str, &str); 2] = [("all", "*"), ("red", "red")];
/// The group whose consumer outlives the server.
pub(super) const LASTING: &str = "lasting";
/// Pause after a refused call.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(5);
/// A consumer that got nothing for this long has everything.
pub(super) const DRAINED_AFTER: Duration = Duration::from_millis(600);
/// A consumer that received nothing for this long, although its queues hold more, gives up. While messages arrive it continues: how long
/// they take depends on the load and the machine.
pub(super) const DRAIN_WITHIN: Duration = Duration::from_secs(20);
/// A consumer without queues gives up after this long: a stalled disk delays the first assignment of a group.
const ASSIGNED_WITHIN: Duration = Duration::from_secs(180);
/// How long a round of retention may take: it pauses between files, and each of its flushes may take long on a busy machine.
const ASK_WITHIN: Duration = Duration::from_secs(20);
/// A load that fills `maxUnflushedBytes` ends when the log has passed this, even if no send was refused.
const FULL_BYTES: u64 = 1 << 30;
/// Topics that are made during the load and stay.
const MOST_LATE_TOPICS: u64 = 40;

/// Topics that were made and deleted during the load, where both were acknowledged.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    pub there: BTreeSet<String>,
    pub gone: BTreeSet<String>,
    made: u64,
}

/// Messages that had to wait.
#[derive(Debug, Default)]
pub(super) struct Waited {
    /// What had come at the last start and may be given back.
    pub came: Vec<Came>,
    /// What was given back, each once: number, and whether as a retry.
    pub given_back: BTreeSet<(u64, bool)>,
    /// Half messages; each may be ended again and again.
    pub halves: Vec<Half>,
    /// Of those, the ones that are to be ended next: they are new, or the last end had no answer, or was the first.
    pub to_end: Vec<Half>,
}

impl Waited {
    /// A power cut may take half messages, and what comes later then lies in their places.
    pub(super) fn forget_halves(&mut self) {
        self.halves.clear();
        self.to_end.clear();
    }
}

/// What all tasks share, over all lives of the server.
#[derive(Debug, Clone)]
pub(super) struct Load {
    pub journal: Arc<Mutex<Journal>>,
    pub topics: Arc<[String]>,
    /// Lengths of bodies. In a batch they are shorter; where all are longer than those, there is none.
    bodies: RangeInclusive<usize>,
    producers: u32,
    has_consumers: bool,
    /// Whether retention is asked to remove what it may.
    asks_retention: bool,
    pub metadata: Arc<Mutex<Metadata>>,
    pub later: Arc<Mutex<Waited>>,
    /// Whether messages are sent that have to wait.
    has_later: bool,
    /// When sends were acknowledged, and where their records begin.
    pub acknowledged: Arc<Mutex<VecDeque<(Instant, u64)>>>,
    /// Sends that the server refused.
    refused: Arc<AtomicU64>,
    numbers: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    draining: Arc<AtomicBool>,
}

impl Load {
    pub(super) fn new(journal: Journal, shape: &Shape) -> Self {
        Self {
            journal: Arc::new(Mutex::new(journal)),
            topics: (0..shape.topics.len()).map(topic_name).collect(),
            bodies: shape.body_min..=shape.body_max,
            producers: shape.producers,
            has_consumers: shape.has_consumers,
            asks_retention: shape.retention.is_asked(),
            metadata: Arc::default(),
            later: Arc::default(),
            has_later: shape.has_later,
            acknowledged: Arc::default(),
            refused: Arc::default(),
            numbers: Arc::new(AtomicU64::new(1)),
            stop: Arc::default(),
            draining: Arc::default(),
        }
    }

    /// Starts the tasks of one life of the server at `broker`.
    pub(super) fn begin(
        &self,
        client: &Client,
        broker: &str,
        rng: &mut Rng,
        has_administration: bool,
    ) -> JoinSet<()> {
        self.stop.store(false, Ordering::SeqCst);
        self.draining.store(false, Ordering::SeqCst);
        self.acknowledged.lock().clear();
        let mut tasks = JoinSet::new();
        let runtime = client.runtime();
        for producer in 0..self.producers {
            tasks.spawn_on(self.clone().produce(client.clone(), producer, rng.fork()), runtime);
        }
        for (group, tags) in GROUPS.into_iter().filter(|_| self.has_consumers) {
            tasks.spawn_on(self.clone().consume(client.clone(), group, tags, rng.fork(), false), runtime);
        }
        if self.has_consumers {
            tasks.spawn_on(sql::read(self.clone(), client.clone(), broker.to_owned()), runtime);
        }
        if self.has_later {
            tasks.spawn_on(self.clone().send_later(broker.to_owned(), rng.fork()), runtime);
            tasks.spawn_on(question::answer(self.clone(), broker.to_owned(), rng.fork(), false), runtime);
            tasks.spawn_on(question::stand_by(self.clone(), broker.to_owned(), false), runtime);
        }
        if has_administration {
            let task = self.clone().administrate(client.clone(), broker.to_owned(), rng.fork());
            tasks.spawn_on(task, runtime);
        }
        tasks
    }

    /// Starts the consumers that live until everything is drained, whatever becomes of the server at `broker`.
    pub(super) fn begin_lasting(&self, client: &Client, broker: &str, rng: &mut Rng) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let task = self.clone().consume(client.clone(), LASTING, "*", rng.fork(), true);
        tasks.spawn_on(task, client.runtime());
        let positions = orderly::Positions::default();
        for number in 0..orderly::MEMBERS {
            let (broker, positions) = (broker.to_owned(), positions.clone());
            let member = Member::new(self.clone(), number, broker, positions, rng.fork());
            tasks.spawn_on(member.work(client.clone()), client.runtime());
        }
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

    /// Whether the server has refused a send, or the log has passed [`FULL_BYTES`].
    pub(super) fn has_filled(&self) -> bool {
        self.refused.load(Ordering::SeqCst) > 0 || self.journal.lock().kept.log_end > FULL_BYTES
    }

    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn sends_no_more(&self) -> bool {
        self.is_over() || self.is_draining()
    }

    async fn produce(self, client: Client, number: u32, mut rng: Rng) {
        let config = ProducerConfig { compression: None, ..one_attempt() };
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
            let (shortest, longest) = (*self.bodies.start(), *self.bodies.end());
            let is_batch = rng.u8(0..6) == 0 && shortest <= BATCH_BODY_BYTES;
            let count = if is_batch { rng.usize(2..=BATCH_MESSAGES) } else { 1 };
            let longest = if is_batch { longest.min(BATCH_BODY_BYTES) } else { longest };
            let built: Vec<_> = (0..count)
                .map(|_| message::build(self.next_number(), number, topic, rng.usize(shortest..=longest)))
                .collect();
            let all_well = self.send(&producer, built, queue).await;
            let pause = if all_well { Duration::from_millis(rng.u64(0..3)) } else { RETRY_PAUSE };
            tokio::time::sleep(pause).await;
        }
        if !self.is_over() {
            self.settle(&producer).await;
        }
    }

    /// Makes durable what was sent before, under SYNC_FLUSH: only then consumers see what a topic with ASYNC_FLUSH acknowledged.
    async fn settle(&self, producer: &Producer) {
        let message = Message::new("settled", vec![1]);
        if let Ok(receipt) = producer.send(&message, SendOptions::default()).await {
            self.journal.lock().note_end(&receipt);
        }
    }

    /// Sends one message, or several at once; returns whether all were acknowledged.
    pub(super) async fn send(
        &self,
        producer: &Producer,
        built: Vec<(Message, Send)>,
        queue: Option<MessageQueue>,
    ) -> bool {
        let options = SendOptions { queue, ..SendOptions::default() };
        let (messages, calls): (Vec<Message>, Vec<Send>) = built.into_iter().unzip();
        let ops: Vec<u64> = {
            let mut journal = self.journal.lock();
            let batch = calls.first().filter(|_| calls.len() > 1).map(|call| call.message);
            calls.into_iter().map(|call| journal.invoke(Call::Send(Send { batch, ..call }))).collect()
        };
        let outcomes: Vec<Result<Receipt, SendError>> = match messages.as_slice() {
            [message] => vec![producer.send(message, options).await],
            _ => match producer.send_many(messages, options).await {
                Ok(sent) => sent.receipts().collect(),
                Err(error) => ops.iter().map(|_| Err(error.clone().into())).collect(),
            },
        };
        let mut journal = self.journal.lock();
        let mut all_well = true;
        for (op, outcome) in ops.into_iter().zip(outcomes) {
            all_well &= self.note(&mut journal, op, outcome);
        }
        all_well
    }

    fn note(&self, journal: &mut Journal, op: u64, outcome: Result<Receipt, SendError>) -> bool {
        match outcome {
            Ok(receipt) if receipt.status == SendStatus::SendOk => {
                // An acknowledgement names the start of the record, not its end: note its first byte alone.
                let start = journal.note_end(&receipt);
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
                self.refused.fetch_add(1, Ordering::SeqCst);
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
        let (mut got_at, mut draining_since, mut had_queues) = (Instant::now(), None, false);
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
            if self.is_draining() {
                let since = *draining_since.get_or_insert_with(Instant::now);
                if has_queues() != had_queues {
                    (got_at, had_queues) = (Instant::now(), !had_queues); // the first pull is yet to come
                }
                let quiet = got_at.max(since).elapsed();
                let patience = if had_queues { DRAIN_WITHIN } else { ASSIGNED_WITHIN };
                let is_drained = had_queues && quiet > DRAINED_AFTER;
                let has_all = is_drained && (!lasts || has_read_all(&client, &consumer).await);
                if has_all || quiet > patience {
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

    /// Makes and deletes topics, with messages that are not checked, and asks for rounds of retention.
    async fn administrate(self, client: Client, broker: String, mut rng: Rng) {
        let Ok(producer) = Producer::new(&client, "scrap", one_attempt()).await else { return };
        while !self.sends_no_more() {
            match rng.u8(0..6) {
                0 | 1 => drop(self.make_topic(&client).await),
                2 if self.asks_retention => drop(ask(&broker, request::DELETE_EXPIRED_COMMITLOG).await),
                3 if self.asks_retention => drop(ask(&broker, request::CLEAN_EXPIRED_CONSUMEQUEUE).await),
                _ => self.scrap(&client, &producer, rng.usize(0..4)).await,
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
            let message = Message::new(&name, vec![1; 10 + number]);
            if let Ok(receipt) = producer.send(&message, SendOptions::default()).await {
                self.journal.lock().note_end(&receipt);
            }
        }
        if admin.delete_topic(&name).await.is_ok() {
            self.metadata.lock().gone.insert(name);
        }
    }
}

/// Settings of producers that report each failure, for the history.
fn one_attempt() -> ProducerConfig {
    ProducerConfig { retries: Some(0), send_timeout: Duration::from_secs(3), ..ProducerConfig::default() }
}

/// Asks a broker for something that needs no header. Returns whether it was answered with success.
pub(super) async fn ask(broker: &str, code: i32) -> bool {
    let caller = remoting::Client::new(remoting::ClientConfig::default());
    let answer = caller.call(broker, Command::bare_request(code), ASK_WITHIN).await;
    answer.is_ok_and(|answer| answer.code == response::SUCCESS)
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

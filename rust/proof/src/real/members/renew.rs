//! Queues that begin anew under members that live on: a topic is deleted and created again, a topic gets more queues, a store is lost.

use rocketpy_client::{Admin, ClientError, Producer, ProducerConfig, TopicSpec};
use rocketpy_env::{Disk, RealDisk};
use rocketpy_model::{MessageQueue, system};
use tokio::task::JoinSet;

use super::super::load::{Load, RETRY_PAUSE};
use super::super::message;
use super::super::shape::Shape;
use super::member::FIRST_BODY_BYTES;
use super::{PRODUCERS, Round, SETTLES_WITHIN, is_interrupted, queues_of};
use crate::history::{Call, Event, Reply};

/// Ends of processes between two renewals.
const ENDS: u64 = 4;
const MOST_QUEUES: u32 = 8;
/// The kinds: a topic is created again, a topic grows, a store is lost.
pub(super) const KINDS: usize = 3;

/// What begins anew in the course of a store, one kind after the other.
#[derive(Debug)]
pub(super) struct Renewals {
    done: u64,
    /// Of each topic.
    pub(super) queues: Vec<u32>,
}

impl Renewals {
    pub(super) fn new(load: &Load, shape: &Shape) -> Self {
        Self { done: 0, queues: vec![shape.queues; load.topics.len()] }
    }
}

impl Round<'_> {
    /// Lets queues begin anew if it is time, while nobody sends.
    pub(super) fn renew(&mut self, ends: u64, tasks: &mut JoinSet<()>) -> Result<(), String> {
        let Some(renewals) = self.renewals.as_mut().filter(|renewals| ends / ENDS > renewals.done) else {
            return Ok(());
        };
        let kind = renewals.done as usize % KINDS;
        renewals.done += 1;
        self.totals.renewed[kind] += 1;
        self.end_load(tasks)?;
        let number = self.rng.usize(..self.load.topics.len());
        match kind {
            0 => self.create_again(number),
            1 => self.grow(number),
            _ => self.lose_store()?,
        }
        *tasks = self.begin_load();
        Ok(())
    }

    fn create_again(&self, number: usize) {
        let topic = &self.load.topics[number];
        let op = self.begin_deletion(topic);
        let admin = Admin::new(&self.client);
        let deleted = self.runtime.block_on(admin.delete_topic(topic));
        self.expect(deleted);
        self.end_deletion(op);
        let made = self.runtime.block_on(self.make_topics());
        self.expect(made);
    }

    fn grow(&mut self, number: usize) {
        let more = self.rng.u32(1..=2);
        let Some(renewals) = &mut self.renewals else { return };
        let queues = (renewals.queues[number] + more).min(MOST_QUEUES.max(renewals.queues[number]));
        let before = std::mem::replace(&mut renewals.queues[number], queues);
        assert!(before <= queues, "a topic keeps its queues while it grows: {queues} of {before}");
        let spec = TopicSpec::new(&self.load.topics[number], queues);
        let grown = self.runtime.block_on(Admin::new(&self.client).create_topic(&spec));
        self.expect(grown);
    }

    /// Replaces the store by an empty one. The broker cannot tell a reader of the lost store from one of the new store once a queue is longer
    /// than the reader's offset, so each queue gets one message first.
    fn lose_store(&mut self) -> Result<(), String> {
        self.kill_server();
        let retries: Vec<String> = self.groups().map(|kind| system::retry_topic(kind.name)).collect();
        for topic in self.load.topics.iter().chain(&retries) {
            let op = self.begin_deletion(topic);
            self.end_deletion(op);
        }
        self.dead.clear();
        RealDisk.remove_dir_all(&self.folder.path().join("store")).map_err(|error| error.to_string())?;
        self.start_server()?;
        let made = self.runtime.block_on(self.make_topics());
        self.expect(made);
        self.start_all()?;
        let sent = self.runtime.block_on(self.send_first());
        self.expect(sent);
        self.wait_until_handled();
        Ok(())
    }

    /// Sends one message to each queue.
    async fn send_first(&self) -> Result<(), ClientError> {
        let admin = Admin::new(&self.client);
        let producer = Producer::new(&self.client, "first", ProducerConfig::default()).await?;
        for topic in self.load.topics.iter() {
            for queue in queues_of(&admin, topic).await? {
                while !self.send_one(&producer, &queue).await && !is_interrupted() {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
        Ok(())
    }

    async fn send_one(&self, producer: &Producer, queue: &MessageQueue) -> bool {
        let number = self.load.next_number();
        let built = message::build(number, PRODUCERS, &queue.topic, FIRST_BODY_BYTES);
        self.load.send(producer, vec![built], Some(queue.clone())).await
    }

    /// Notes that a topic is about to be deleted, behind everything that was said before.
    fn begin_deletion(&self, topic: &str) -> u64 {
        let op = self.load.journal.lock().next_op();
        self.pipe.say(&Event::Invoke { op, call: Call::Delete { topic: topic.to_owned() } });
        self.wait_for_call(op, true);
        op
    }

    fn end_deletion(&self, op: u64) {
        self.pipe.say(&Event::Ok { op, reply: Reply::Deleted });
        self.wait_for_call(op, false);
    }

    fn wait_for_call(&self, op: u64, is_pending: bool) {
        while self.load.journal.lock().checker.is_pending(op) != is_pending && !is_interrupted() {
            std::thread::sleep(SETTLES_WITHIN);
        }
    }
}

//! A group that consumes in order: a member locks a queue at the broker before it works on a message of it. Its members outlive the server,
//! and what one of them works on while the server is gone is still its own when the next server is there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use parking_lot::Mutex;
use rocketpy_client::{Admin, Client};
use rocketpy_model::MessageQueue;
use rocketpy_protocol::body::{LockBatchRequestBody, LockBatchResponseBody};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::{Command, json};
use rocketpy_remoting as remoting;

use super::load::{Load, RETRY_PAUSE};
use super::message::queue_name;
use super::pull::{ANSWERED_WITHIN, Pull};
use crate::history::Event;

pub(super) const GROUP: &str = "in-order";
pub(super) const MEMBERS: u32 = 2;
/// Queues that the members take turns on: one more than nobody waits for.
const QUEUES: usize = 2;
/// A lock holds for a minute from when it was asked for: work that would begin later than this does not begin.
const BEGINS_WITHIN: Duration = Duration::from_secs(30);

/// Where the group continues in each queue. Its members keep that themselves.
pub(super) type Positions = Arc<Mutex<BTreeMap<u32, i64>>>;

#[derive(Debug)]
pub(super) struct Member {
    load: Load,
    number: u32,
    broker: String,
    caller: remoting::Client,
    positions: Positions,
    rng: Rng,
}

impl Member {
    pub(super) fn new(load: Load, number: u32, broker: String, positions: Positions, rng: Rng) -> Self {
        Self { load, number, broker, caller: new_caller(), positions, rng }
    }

    /// Works until everything is drained.
    pub(super) async fn work(mut self, client: Client) {
        let mut queues = Vec::new();
        while !self.load.is_draining() {
            if queues.is_empty() {
                queues = Admin::new(&client).queues(&self.load.topics[0]).await.unwrap_or_default();
                queues.truncate(QUEUES);
            }
            if let Some(queue) = self.rng.choice(&queues).cloned() {
                self.work_on(&queue).await;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Works on the next message of a queue, if it gets the lock.
    async fn work_on(&mut self, queue: &MessageQueue) {
        let asked_at = Instant::now();
        if !self.lock(queue).await {
            return;
        }
        if let Some(message) = self.next_of(queue).await
            && asked_at.elapsed() < BEGINS_WITHIN
        {
            let (group, member, queue) = (GROUP.to_owned(), self.number, queue_name(queue));
            let began = Event::Handling { group: group.clone(), member, queue: queue.clone(), message };
            self.load.journal.lock().push(began);
            if self.rng.u8(0..8) == 0 {
                self.caller = new_caller(); // its connection ends, its work does not
            }
            tokio::time::sleep(self.draw_work()).await;
            self.load.journal.lock().push(Event::Handled { group, member, queue, message });
        }
        // A lock that is kept is renewed by the next work. Each new one is a write of the broker's file.
        if self.rng.u8(0..8) == 0 {
            let _ = self.call(request::UNLOCK_BATCH_MQ, queue).await;
        }
    }

    /// Often longer than a server takes to start.
    fn draw_work(&mut self) -> Duration {
        Duration::from_millis(if self.rng.u8(0..4) == 0 {
            self.rng.u64(200..800)
        } else {
            self.rng.u64(0..20)
        })
    }

    async fn lock(&self, queue: &MessageQueue) -> bool {
        let answer = self.call(request::LOCK_BATCH_MQ, queue).await;
        let locked = answer.and_then(|answer| json::from_slice::<LockBatchResponseBody>(&answer.body).ok());
        locked.is_some_and(|locked| locked.lock_ok_mq_set.contains(queue))
    }

    async fn call(&self, code: i32, queue: &MessageQueue) -> Option<Command> {
        let body = LockBatchRequestBody {
            client_id: format!("member{}", self.number),
            consumer_group: GROUP.to_owned(),
            mq_set: vec![queue.clone()],
            only_this_broker: true,
        };
        let command = Command::bare_request(code).with_body(json::to_vec(&body));
        let answer = self.caller.call(&self.broker, command, ANSWERED_WITHIN).await.ok()?;
        (answer.code == response::SUCCESS).then_some(answer)
    }

    /// The message at the group's position. At the end of the queue it begins anew, so that there is always work.
    async fn next_of(&self, queue: &MessageQueue) -> Option<u64> {
        let offset = self.positions.lock().get(&queue.queue_id).copied().unwrap_or(0);
        let pull = Pull { group: GROUP, queue, offset, most: 1, sql: None };
        let pulled = pull.from(&self.caller, &self.broker).await?;
        let next = if pulled.is_end { 0 } else { pulled.next };
        self.positions.lock().insert(queue.queue_id, next);
        pulled.deliveries.first().map(|delivery| delivery.message)
    }
}

fn new_caller() -> remoting::Client {
    remoting::Client::new(remoting::ClientConfig::default())
}

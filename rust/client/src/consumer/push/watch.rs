//! What became of messages, and handlers that take long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::{error, warn};

use super::concurrent::Engine;
use super::work::{Reason, Verdict};
use crate::consumer::stats::QueueProgress;
use crate::latency::{Latency, LatencyStats};

/// How often handlers are looked at that take long.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);
/// The delay level of a message whose handler did not return in time.
///
/// # Source
/// docs/reference/client.md 11.
const TIMED_OUT_LEVEL: i32 = 3;

/// What became of messages, since the consumer started.
#[derive(Debug, Clone)]
pub struct PushStats {
    /// Finished by handlers.
    pub consumed: u64,
    /// Not finished by handlers, each time counted.
    pub failed: u64,
    /// Of those, what handlers had for too long.
    pub timed_out: u64,
    /// Sent back to come again.
    pub sent_back: u64,
    /// Sent to the dead letters.
    pub dead: u64,
    /// In the hands of handlers, or being sent back.
    pub unfinished: u64,
    /// Times of calls of handlers that ended. A call that timed out ends there.
    pub handling: LatencyStats,
    /// Queues assigned to this member now, sorted.
    pub queues: Vec<QueueProgress>,
}

#[derive(Debug)]
pub(super) struct Counts {
    consumed: AtomicU64,
    failed: AtomicU64,
    timed_out: AtomicU64,
    pub(super) sent_back: AtomicU64,
    pub(super) dead: AtomicU64,
    handling: Mutex<Latency>,
}

impl Counts {
    pub(super) fn new() -> Self {
        let (consumed, failed, timed_out, sent_back, dead) = Default::default();
        Self { consumed, failed, timed_out, sent_back, dead, handling: Mutex::new(Latency::new()) }
    }

    pub(super) fn consumed(&self, messages: usize) {
        self.consumed.fetch_add(messages as u64, Ordering::Relaxed);
    }

    pub(super) fn failed(&self, messages: usize) {
        self.failed.fetch_add(messages as u64, Ordering::Relaxed);
    }
}

impl Engine {
    pub(super) fn stats(&self, queues: Vec<QueueProgress>) -> PushStats {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        PushStats {
            consumed: of(&self.counts.consumed),
            failed: of(&self.counts.failed),
            timed_out: of(&self.counts.timed_out),
            sent_back: of(&self.counts.sent_back),
            dead: of(&self.counts.dead),
            unfinished: self.member.state.lock().unfinished() as u64,
            handling: self.counts.handling.lock().stats(Instant::now()),
            queues,
        }
    }

    /// Notes the end, now, of a call of the handler of a topic, with the messages that it consumed or failed to.
    pub(super) fn note_call(
        &self,
        topic: usize,
        (consumed, failed): (usize, usize),
        took: Duration,
        now: Instant,
    ) {
        // A topic with a handler has the index of its subscription.
        self.member.activity.paces[topic].note(consumed, failed, took);
        self.counts.handling.lock().record(took, now);
    }

    /// Looks at handlers that take long, and tells of failures to pull.
    pub(super) async fn watch(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(WATCH_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.look_at_handlers();
            self.member.activity.paces.iter().for_each(|pace| pace.sample(Instant::now()));
            let silence = self.member.config.unreachable_timeout;
            let failure = self.member.take_failure();
            let failure = failure.or_else(|| self.member.state.lock().contacts.tell_if_due(silence));
            if let Some(error) = failure
                && self.failure.lock().failed(Instant::now())
            {
                let hint = error.hint();
                error!(group = %self.member.group, %error, hint, "push consumer is degraded");
            }
        }
    }

    fn look_at_handlers(self: &Arc<Self>) {
        for held in self.held() {
            held.note_finished(self);
            if self.config.ordered {
                continue;
            }
            let Some(piece) = held.take_over(self, self.config.handler_timeout) else { continue };
            let (messages, topic) = (piece.part.len(), &self.topics[piece.topic].name);
            let (queue, queue_offset) = (piece.part.queue().clone(), piece.part.spans()[0].queue_offset);
            self.counts.timed_out.fetch_add(messages as u64, Ordering::Relaxed);
            self.note_call(held.topic, (0, messages), self.config.handler_timeout, Instant::now());
            let timeout_s = self.config.handler_timeout.as_secs_f64();
            let error = format!("handler_timeout: the handler did not return within {timeout_s} s");
            let fate = self.fail(piece, Verdict::RetryAtLevel(TIMED_OUT_LEVEL), Some(Reason::Raised(&error)));
            warn!(
                group = %self.member.group,
                %topic,
                %queue,
                queue_offset = queue_offset.get(),
                messages,
                timeout_s,
                fate = fate.text(),
                "handler timed out"
            );
        }
    }
}

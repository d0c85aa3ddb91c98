//! What a handler has: messages of one queue, of which it gets one or a batch at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use rocketpy_model::MessageQueue;

use super::concurrent::{Engine, Piece};
use super::direct::DirectRequest;
use crate::consumer::batch::PulledPart;
use crate::consumer::epoch::Epoch;
use crate::trace::{ConsumeResult, Consumption};

/// Ends of messages are noted together, at most this long after the first of them.
const NOTE_INTERVAL: Duration = Duration::from_millis(10);
/// A handler that has run for this long may keep others waiting: they get the messages behind its own.
pub(super) const STEAL_AFTER: Duration = Duration::from_millis(5);

/// What becomes of messages that a handler did not finish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// They come again: after a time that grows with each retry, or in order after the pause of the consumer.
    Retry,
    /// They come again after this time, or at the next longer delay of the default table of brokers.
    RetryAfter(Duration),
    /// They come again after the delay of this level, from 1.
    RetryAtLevel(i32),
    /// They go to the dead letters.
    Reject,
}

/// Why a handler did not finish messages: type and text of its error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason<'a> {
    /// The handler chose a later delivery.
    Chosen(&'a str),
    /// The handler raised another error.
    Raised(&'a str),
}

impl<'a> Reason<'a> {
    /// Type and text.
    pub(super) fn text(self) -> &'a str {
        match self {
            Self::Chosen(text) | Self::Raised(text) => text,
        }
    }
}

/// What becomes of messages that a handler did not finish, as far as this member knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// They come again.
    ComesAgain,
    /// They go to the dead letters.
    Dead,
    /// Some of a batch go to the dead letters; the others were delivered less often, and come again.
    PartlyDead,
    /// They count as done: their member is one of those that get all messages.
    PassedOver,
    /// What it was: an administrator had a handler consume them.
    Unchanged,
}

impl Fate {
    /// What to say of a message.
    pub fn text(self) -> &'static str {
        match self {
            Self::ComesAgain => "is redelivered",
            Self::Dead => "becomes a dead letter",
            Self::PartlyDead => "is redelivered, or becomes a dead letter after its last retry",
            Self::PassedOver => "is skipped",
            Self::Unchanged => "was consumed only on request of an administrator",
        }
    }

    /// Whether all of them are delivered again.
    pub fn is_redelivered(self) -> bool {
        self == Self::ComesAgain
    }
}

/// Messages of one queue and one topic that were taken for a handler.
///
/// [`next`](Self::next) hands out the first, and finishes it when it is called again. What was not handed out goes to other callers
/// of [`take`](super::PushConsumer::take) when this is dropped, or when its handler takes long.
pub struct Work {
    engine: Arc<Engine>,
    held: Arc<Held>,
}

/// What the engine knows of a [`Work`].
pub(super) struct Held {
    pub(super) id: u64,
    /// Index of the topic that the messages were sent to.
    pub(super) topic: usize,
    life: Epoch,
    over: Arc<AtomicBool>,
    asked: Option<Arc<DirectRequest>>,
    began: Instant,
    progress: Mutex<Progress>,
}

/// How far a handler is. Indexes are those of the part.
struct Progress {
    part: PulledPart,
    /// Messages before this one are finished, or not this handler's any more.
    noted: usize,
    /// What the handler has.
    running: std::ops::Range<usize>,
    since: Instant,
    /// What the handler has is not its own any more.
    is_taken_over: bool,
    /// It was taken over because the handler did not return.
    is_stuck: bool,
    /// Nothing is handed out any more.
    is_ended: bool,
    /// How many times the first messages were tried in their place.
    tries: u32,
    /// What the handler has, where that is traced.
    traced: Vec<Consumption>,
}

impl Work {
    pub(super) fn new(engine: Arc<Engine>, held: Arc<Held>) -> Self {
        Self { engine, held }
    }

    /// The topic that the messages were sent to. They may come from the group's retry topic.
    pub fn topic(&self) -> &Arc<str> {
        &self.engine.topics[self.held.topic].name
    }

    /// The queue that they come from.
    pub fn queue(&self) -> Arc<MessageQueue> {
        self.held.progress.lock().part.queue().clone()
    }

    /// How many times the first messages were tried in their place.
    pub fn tries(&self) -> u32 {
        self.held.progress.lock().tries
    }

    /// The bytes of the next message; what was handed out before is finished. `None` at the end.
    pub fn next(&self) -> Option<Bytes> {
        let mut progress = self.held.progress.lock();
        if let Some(running) = self.advance(&mut progress, 1) {
            return Some(progress.part.record_bytes(running.start));
        }
        drop(progress);
        self.end();
        None
    }

    /// As [`next`](Self::next), for up to as many messages as the topic's handler gets at a time.
    pub fn next_batch(&self) -> Option<PulledPart> {
        let mut progress = self.held.progress.lock();
        if let Some(running) = self.advance(&mut progress, self.engine.topics[self.held.topic].batch) {
            return Some(progress.part.slice(running));
        }
        drop(progress);
        self.end();
        None
    }

    fn advance(&self, progress: &mut Progress, count: usize) -> Option<std::ops::Range<usize>> {
        let now = Instant::now();
        progress.check();
        let at = progress.running.end;
        if progress.is_taken_over {
            (progress.is_taken_over, progress.is_stuck, progress.noted) = (false, false, at);
        } else {
            let consumed = progress.running.len();
            self.engine.counts.consumed(consumed);
            self.engine.trace_end(&std::mem::take(&mut progress.traced), ConsumeResult::Success);
            if consumed > 0 {
                let took = now.duration_since(progress.since);
                self.engine.note_call(self.held.topic, (consumed, 0), took, now);
                self.held.asked.iter().for_each(|asked| asked.returned());
            }
        }
        if at > 0 {
            progress.tries = 0;
        }
        let end = progress.part.len().min(at + count);
        progress.running = at..end;
        let is_over = self.engine.is_over() || self.held.over.load(Ordering::Acquire);
        if at == end || is_over {
            progress.running = at..at;
            self.held.note(&self.engine, progress);
            return None;
        }
        if now.duration_since(progress.since) >= NOTE_INTERVAL {
            self.held.note(&self.engine, progress);
        }
        progress.since = now;
        progress.traced = self.engine.trace_begin(&progress.part, at..end);
        Some(at..end)
    }

    /// Says that the handler did not finish what it has, and its error if it raised one. `None` when that was taken from it before.
    pub fn fail(&self, verdict: Verdict, reason: Option<Reason<'_>>) -> Option<Fate> {
        let mut progress = self.held.progress.lock();
        if progress.is_taken_over || progress.running.is_empty() {
            return None;
        }
        progress.check();
        self.held.note(&self.engine, &mut progress);
        progress.is_taken_over = true;
        self.engine.trace_end(&std::mem::take(&mut progress.traced), ConsumeResult::Failed);
        let now = Instant::now();
        let busy = now.duration_since(progress.since);
        self.engine.note_call(self.held.topic, (0, progress.running.len()), busy, now);
        let (failed, tries) = (progress.part.slice(progress.running.clone()), progress.tries);
        let behind = progress.running.end..progress.part.len();
        let failed = self.held.piece(failed, tries);
        if failed.asked.is_none() && self.engine.comes_again_in_place(verdict, tries) {
            // Nothing may overtake it.
            let (count, rest) = (failed.part.len(), progress.running.start..progress.part.len());
            let failed = self.held.piece(progress.part.slice(rest), tries + 1);
            progress.cut(behind.start);
            drop(progress);
            self.engine.suspend(failed, count, verdict);
            Some(Fate::ComesAgain)
        } else {
            drop(progress);
            Some(self.engine.fail(failed, verdict, reason))
        }
    }
}

impl Work {
    /// Gives back what was not handed out. Whoever keeps the work, as a traceback may, keeps nothing from others.
    fn end(&self) {
        let (unstarted, finished) = {
            let mut progress = self.held.progress.lock();
            if std::mem::replace(&mut progress.is_ended, true) {
                return;
            }
            self.held.note(&self.engine, &mut progress);
            // What a handler has and does not end is as if it had not been handed out.
            let from = if progress.is_taken_over { progress.running.end } else { progress.running.start };
            let rest = from..progress.part.len();
            let tries = if from == 0 { progress.tries } else { 0 };
            let unstarted = self.held.piece(progress.part.slice(rest), tries);
            progress.cut(from);
            progress.running = from..from;
            (unstarted, from)
        };
        self.engine.end(&self.held, finished, unstarted);
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.end();
    }
}

impl Held {
    pub(super) fn new(id: u64, piece: Piece) -> Arc<Self> {
        let (Piece { part, topic, life, over, tries, asked }, now) = (piece, Instant::now());
        let progress = Progress {
            part,
            noted: 0,
            running: 0..0,
            since: now,
            is_taken_over: false,
            is_stuck: false,
            is_ended: false,
            tries,
            traced: Vec::new(),
        };
        Arc::new(Self { id, topic, life, over, asked, began: now, progress: Mutex::new(progress) })
    }

    fn piece(&self, part: PulledPart, tries: u32) -> Piece {
        let (over, asked) = (self.over.clone(), self.asked.clone());
        Piece { part, topic: self.topic, life: self.life, over, tries, asked }
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Tells the queue what is finished.
    fn note(&self, engine: &Engine, progress: &mut Progress) {
        let finished = progress.noted..progress.running.start;
        if !finished.is_empty() {
            engine.finish(&progress.part.slice(finished), self.life);
            progress.noted = progress.running.start;
        }
    }

    /// How long it has been here.
    pub(super) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Whether messages wait behind those that the handler has.
    pub(super) fn has_waiting(&self) -> bool {
        let progress = self.progress.lock();
        progress.running.end < progress.part.len()
    }

    /// Takes half of the messages that wait behind those of a handler that takes long.
    pub(super) fn steal(&self) -> Option<Piece> {
        let mut progress = self.progress.lock();
        let waiting = progress.part.len() - progress.running.end;
        if waiting == 0 || progress.since.elapsed() < STEAL_AFTER {
            return None;
        }
        let from = progress.running.end + waiting / 2;
        let stolen = progress.part.slice(from..progress.part.len());
        progress.cut(from);
        Some(self.piece(stolen, 0))
    }

    /// Takes what a handler has had for longer than `timeout` from it.
    pub(super) fn take_over(&self, engine: &Engine, timeout: Duration) -> Option<Piece> {
        let mut progress = self.progress.lock();
        if progress.is_taken_over || progress.running.is_empty() || progress.since.elapsed() < timeout {
            return None;
        }
        progress.check();
        self.note(engine, &mut progress);
        (progress.is_taken_over, progress.is_stuck) = (true, true);
        engine.trace_end(&std::mem::take(&mut progress.traced), ConsumeResult::TimedOut);
        Some(self.piece(progress.part.slice(progress.running.clone()), 0))
    }

    /// Tells the queue what is finished, for a handler that takes long.
    pub(super) fn note_finished(&self, engine: &Engine) {
        self.note(engine, &mut self.progress.lock());
    }

    /// Whether what a handler has was taken from it, and it has not returned.
    pub(super) fn is_stuck(&self) -> bool {
        self.progress.lock().is_stuck
    }

    /// How long a handler has had what it has; `None` when it has nothing.
    pub(super) fn running_for(&self) -> Option<Duration> {
        let progress = self.progress.lock();
        (!progress.running.is_empty() && !progress.is_taken_over).then(|| progress.since.elapsed())
    }
}

impl Progress {
    fn check(&self) {
        assert!(
            self.noted <= self.running.start,
            "only messages before those of the handler are noted as finished"
        );
        assert!(self.running.end <= self.part.len(), "what a handler has is part of its work");
    }

    /// Gives up the messages from an index on.
    fn cut(&mut self, to: usize) {
        self.part = self.part.slice(0..to);
    }
}

//! Records the history, also what the store reports by calling back.

use std::sync::Arc;

use parking_lot::Mutex;
use rocketpy_env::sim::SimDisk;
use rocketpy_model::PhysicalOffset;
use rocketpy_store::StoreListener;

use crate::history::{CrashKind, Event, Reply};
use crate::journal::Sink;

/// The history of a simulated run.
pub(super) type Journal = crate::journal::Journal<Simulated>;

/// What a simulated run keeps of its history.
pub(super) struct Simulated {
    pub events: Vec<Event>,
    /// Calls that wait for the flush of what lies before an offset.
    waiting: Vec<(u64, u64, Reply)>,
    disk: SimDisk,
    /// Failed flushes of the disk when the process began.
    failures_before: u64,
    has_failed: bool,
}

impl Sink for Simulated {
    fn take(&mut self, event: Event) {
        self.events.push(event);
    }
}

impl Journal {
    pub(super) fn new(disk: SimDisk) -> Self {
        Self::keeping(Simulated {
            events: Vec::new(),
            waiting: Vec::new(),
            disk,
            failures_before: 0,
            has_failed: false,
        })
    }

    pub(super) fn ok(&mut self, op: u64, reply: Reply) {
        self.note_failures();
        self.push(Event::Ok { op, reply });
    }

    /// The answer follows when the log is durable before `end`.
    pub(super) fn wait(&mut self, op: u64, end: u64, reply: Reply) {
        self.kept.waiting.push((op, end, reply));
    }

    pub(super) fn waiting(&self) -> usize {
        self.kept.waiting.len()
    }

    fn note_failures(&mut self) {
        if !self.kept.has_failed && self.kept.disk.failed_flushes() > self.kept.failures_before {
            self.kept.has_failed = true;
            self.push(Event::FlushFailed);
        }
    }

    fn flushed(&mut self, offset: u64) {
        let (done, waiting) =
            std::mem::take(&mut self.kept.waiting).into_iter().partition(|(_, end, _)| *end <= offset);
        self.kept.waiting = waiting;
        let done: Vec<(u64, u64, Reply)> = done;
        for (op, _, reply) in done {
            self.ok(op, reply);
        }
    }

    /// A process starts, with `disk` as its own.
    pub(super) fn boot(&mut self, disk: SimDisk) {
        self.kept.failures_before = disk.failed_flushes();
        self.kept.has_failed = false;
        self.kept.disk = disk;
    }

    /// The process is gone: the outcome of the open calls is unknown.
    pub(super) fn crash(&mut self, kind: CrashKind, in_flight: Vec<u64>) {
        let waiting = std::mem::take(&mut self.kept.waiting).into_iter().map(|(op, _, _)| op);
        for op in waiting.chain(in_flight).collect::<Vec<_>>() {
            self.push(Event::Unknown { op, reason: "the process ended".to_owned() });
        }
        self.push(Event::Crash { kind });
    }
}

/// Tells the journal what was flushed, as the store tells a broker.
pub(super) struct FlushListener(pub Arc<Mutex<Journal>>);

impl StoreListener for FlushListener {
    fn flushed(&self, offset: PhysicalOffset) {
        self.0.lock().flushed(offset.get());
    }
}

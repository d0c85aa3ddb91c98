//! Counts what a producer sends, request by request.

use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use rocketpy_env::now_ms;
use rocketpy_model::Message;

use super::pack::Outgoing;
use crate::error::ClientError;
use crate::latency::Latency;
use crate::send_error::SendError;
use crate::traffic::Traffic;

/// Counts for one producer. The lock is taken once or twice for each request, and for no message.
#[derive(Debug)]
pub(crate) struct Recorder(Mutex<Counts>);

#[derive(Debug)]
pub(super) struct Counts {
    pub(super) sent: Traffic,
    pub(super) failed: Traffic,
    pub(super) retried: Traffic,
    pub(super) unknown: Traffic,
    pub(super) oneway: Traffic,
    pub(super) latency: Latency,
    /// When a send first failed for a reason that may pass, since the last acknowledgement.
    pub(super) failing_since_ms: Option<i64>,
}

/// A request under way. Dropped before its end, its outcome is unknown.
pub(crate) struct UnderWay<'a> {
    recorder: &'a Recorder,
    traffic: Traffic,
    started: Instant,
    has_ended: bool,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        let (sent, failed, retried, unknown, oneway) = Default::default();
        let latency = Latency::new();
        Self(Mutex::new(Counts { sent, failed, retried, unknown, oneway, latency, failing_since_ms: None }))
    }

    pub(super) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock()
    }

    pub(crate) fn begin(&self, outgoing: &Outgoing) -> UnderWay<'_> {
        let traffic = Traffic::request(outgoing.keys.len(), outgoing.message_bytes);
        UnderWay { recorder: self, traffic, started: Instant::now(), has_ended: false }
    }

    pub(crate) fn oneway(&self, outgoing: &Outgoing) {
        self.0.lock().oneway += Traffic::request(outgoing.keys.len(), outgoing.message_bytes);
    }

    /// Notes a failed attempt, or a missing route. A send that waits for its broker counts only at its end.
    pub(super) fn note_failure(&self, error: &ClientError) {
        self.0.lock().note_failure(error);
    }

    /// Counts messages that are not sent because of a failure.
    pub(crate) fn unsent<'a>(&self, messages: impl IntoIterator<Item = &'a Message>) {
        let (mut count, mut bytes) = (0, 0);
        for message in messages {
            (count, bytes) = (count + 1, bytes + message.body.len());
        }
        if count > 0 {
            self.0.lock().failed += Traffic::unsent(count, bytes);
        }
    }
}

impl Counts {
    fn note_failure(&mut self, error: &ClientError) {
        // A topic that does not exist says nothing of the brokers.
        if error.retryable() && !matches!(error, ClientError::NoRoute { .. }) {
            self.failing_since_ms.get_or_insert_with(now_ms);
        }
    }
}

impl UnderWay<'_> {
    /// Another attempt follows.
    pub(crate) fn retried(&self) {
        self.recorder.0.lock().retried += self.traffic;
    }

    pub(crate) fn end<T>(mut self, result: &Result<T, SendError>) {
        self.has_ended = true;
        let now = Instant::now();
        let mut counts = self.recorder.0.lock();
        if let Err(error) = result {
            counts.failed += self.traffic;
            counts.note_failure(error);
            return;
        }
        counts.sent += self.traffic;
        counts.latency.record(now.saturating_duration_since(self.started), now);
        counts.failing_since_ms = None;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.recorder.0.lock().unknown += self.traffic;
        }
    }
}

//! What a producer sent.

use std::time::Instant;

use super::Producer;
use crate::latency::LatencyStats;
use crate::traffic::Traffic;

/// What a producer sent, and how full its window is.
///
/// # Units
/// Bytes are those of bodies before compression.
#[derive(Debug, Clone)]
pub struct ProducerStats {
    /// Acknowledged.
    pub sent: Traffic,
    /// Ended with an error, or not sent because of one.
    pub failed: Traffic,
    /// Sent again after a failed attempt. Every further attempt counts.
    pub retried: Traffic,
    /// The caller gave up before there was an outcome.
    pub unknown: Traffic,
    /// Sent without a wait for an answer.
    pub oneway: Traffic,
    /// Times of the acknowledged requests.
    pub latency: LatencyStats,
    /// When a send first failed for a reason that may pass, since the last acknowledgement, in milliseconds since 1970.
    pub failing_since_ms: Option<i64>,
    /// Submitted messages without an outcome.
    pub in_flight_messages: usize,
    /// Their bytes, as the window counts them.
    pub in_flight_bytes: usize,
    /// Most of those messages.
    pub window_messages: usize,
    /// Most of those bytes.
    pub window_bytes: usize,
}

impl Producer {
    /// What was sent so far. Asks no broker, and works after a close too.
    pub fn stats(&self) -> ProducerStats {
        let window = self.shared.window.use_now();
        let mut counts = self.shared.sender.recorder.counts();
        ProducerStats {
            sent: counts.sent,
            failed: counts.failed,
            retried: counts.retried,
            unknown: counts.unknown,
            oneway: counts.oneway,
            latency: counts.latency.stats(Instant::now()),
            failing_since_ms: counts.failing_since_ms,
            in_flight_messages: window.messages,
            in_flight_bytes: window.bytes,
            window_messages: window.most_messages,
            window_bytes: window.most_bytes,
        }
    }
}

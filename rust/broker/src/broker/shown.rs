//! What a broker shows of itself: health and metrics.

use super::Broker;
use crate::exposition::MetricSink;
use crate::health::{self, FailedCheck};

impl Broker {
    /// When the broker started, in Unix milliseconds.
    pub fn started_at_ms(&self) -> i64 {
        self.desk.ground.started_at_ms()
    }

    /// Whether clients should use the broker now: its store takes messages, a name server knows it, and a slave is close to its master.
    ///
    /// # Errors
    /// All checks that failed.
    pub fn ready(&self) -> Result<(), Vec<FailedCheck>> {
        health::ready(&self.desk)
    }

    /// Whether the broker makes progress: it looks for new connections and flushes.
    ///
    /// # Errors
    /// All checks that failed.
    pub fn alive(&self) -> Result<(), Vec<FailedCheck>> {
        health::alive(&self.desk, self.server.accept_silence())
    }

    /// Gives all metrics to an exporter. May block.
    pub fn show_metrics(&self, sink: &mut dyn MetricSink) {
        self.exposition.show(sink);
    }
}

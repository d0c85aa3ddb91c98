//! What clients count, as the dataclasses of `rocketpy.stats` ([`crate::named`]).

use rocketpy_client::{LatencyStats, QueueProgress};
use rocketpy_model::QueueOffset;
use serde::Serialize;

use crate::rows::Queue;

#[derive(Serialize)]
struct Traffic {
    requests: u64,
    messages: u64,
    bytes: u64,
}

impl From<&rocketpy_client::Traffic> for Traffic {
    fn from(traffic: &rocketpy_client::Traffic) -> Self {
        Self { requests: traffic.requests, messages: traffic.messages, bytes: traffic.bytes }
    }
}

/// Seconds.
#[derive(Serialize)]
struct Latency {
    count: u64,
    total: f64,
    p50: Option<f64>,
    p90: Option<f64>,
    p99: Option<f64>,
    p999: Option<f64>,
    max: Option<f64>,
}

impl From<&LatencyStats> for Latency {
    fn from(latency: &LatencyStats) -> Self {
        let recent = &latency.recent_us;
        let at = |part| (!recent.is_empty()).then(|| recent.value_at_quantile(part) as f64 / 1e6);
        Self {
            count: latency.count,
            total: latency.total.as_secs_f64(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: at(1.0),
        }
    }
}

#[derive(Serialize)]
pub(crate) struct ProducerStats {
    sent: Traffic,
    failed: Traffic,
    retried: Traffic,
    unknown: Traffic,
    oneway: Traffic,
    latency: Latency,
    in_flight_messages: usize,
    in_flight_bytes: usize,
    window_messages: usize,
    window_bytes: usize,
    failing_since_ms: Option<i64>,
}

impl From<&rocketpy_client::ProducerStats> for ProducerStats {
    fn from(stats: &rocketpy_client::ProducerStats) -> Self {
        Self {
            sent: (&stats.sent).into(),
            failed: (&stats.failed).into(),
            retried: (&stats.retried).into(),
            unknown: (&stats.unknown).into(),
            oneway: (&stats.oneway).into(),
            latency: (&stats.latency).into(),
            in_flight_messages: stats.in_flight_messages,
            in_flight_bytes: stats.in_flight_bytes,
            window_messages: stats.window_messages,
            window_bytes: stats.window_bytes,
            failing_since_ms: stats.failing_since_ms,
        }
    }
}

#[derive(Serialize)]
struct QueueStats {
    queue: Queue,
    position: Option<u64>,
    end: Option<u64>,
    prefetched_messages: usize,
    prefetched_bytes: usize,
    paused: bool,
}

impl From<QueueProgress> for QueueStats {
    fn from(progress: QueueProgress) -> Self {
        Self {
            queue: Queue(progress.queue),
            position: progress.position.map(QueueOffset::get),
            end: progress.end.map(QueueOffset::get),
            prefetched_messages: progress.prefetched_messages,
            prefetched_bytes: progress.prefetched_bytes,
            paused: progress.is_paused,
        }
    }
}

#[derive(Serialize)]
pub(crate) struct ConsumerStats {
    received: Traffic,
    pulled: Traffic,
    failed_pulls: u64,
    queues: Vec<QueueStats>,
    failed_callbacks: u64,
}

impl ConsumerStats {
    /// `failed_callbacks`: calls of the user's functions that raised, which Python counts.
    pub(crate) fn new(stats: rocketpy_client::ConsumerStats, failed_callbacks: u64) -> Self {
        Self {
            received: (&stats.received).into(),
            pulled: (&stats.pulled).into(),
            failed_pulls: stats.failed_pulls,
            queues: stats.queues.into_iter().map(QueueStats::from).collect(),
            failed_callbacks,
        }
    }
}

#[derive(Serialize)]
pub(crate) struct PushStats {
    consumed: u64,
    failed: u64,
    timed_out: u64,
    sent_back: u64,
    dead: u64,
    unfinished: u64,
    failed_callbacks: u64,
    handling: Latency,
    queues: Vec<QueueStats>,
}

impl PushStats {
    /// `failed_callbacks`: calls of the user's functions that raised, which Python counts.
    pub(crate) fn new(stats: rocketpy_client::PushStats, failed_callbacks: u64) -> Self {
        Self {
            consumed: stats.consumed,
            failed: stats.failed,
            timed_out: stats.timed_out,
            sent_back: stats.sent_back,
            dead: stats.dead,
            unfinished: stats.unfinished,
            failed_callbacks,
            handling: (&stats.handling).into(),
            queues: stats.queues.into_iter().map(QueueStats::from).collect(),
        }
    }
}

//! What clients count, as plain tuples in the order of the fields of `rocketpy.stats`.

use pyo3::prelude::*;
use rocketpy_client::{ConsumerStats, LatencyStats, ProducerStats, QueueProgress, Traffic};
use rocketpy_model::QueueOffset;

use crate::convert::ToPython;

/// Requests, messages, bytes.
type Counted = (u64, u64, u64);

/// Seconds: the sum of all times, then 50 %, 90 %, 99 %, 99.9 % and the largest of the recent ones, if there are any.
type Latency = (f64, Option<[f64; 5]>);

/// Messages and bytes in the window, then the most of each.
type Window = (usize, usize, usize, usize);

/// The counts sent, failed, retried, unknown and one-way; the latency; the window.
pub(crate) type OfProducer = ([Counted; 5], Latency, Window);

/// Queue, position, end, messages and bytes pulled ahead, whether it is paused.
type OfQueue<'py> = (Bound<'py, PyAny>, Option<u64>, Option<u64>, usize, usize, bool);

/// The counts received and pulled; failed pulls; queues.
pub(crate) type OfConsumer<'py> = ([Counted; 2], u64, Vec<OfQueue<'py>>);

pub(crate) fn of_producer(stats: &ProducerStats) -> OfProducer {
    let ProducerStats { sent, failed, retried, unknown, oneway, latency, .. } = stats;
    let window = (stats.in_flight_messages, stats.in_flight_bytes, stats.window_messages, stats.window_bytes);
    ([sent, failed, retried, unknown, oneway].map(counted), of_latency(latency), window)
}

pub(crate) fn of_consumer<'py>(py: Python<'py>, stats: &ConsumerStats) -> PyResult<OfConsumer<'py>> {
    let of_queue = |progress: &QueueProgress| -> PyResult<OfQueue<'py>> {
        let offset = |offset: Option<QueueOffset>| offset.map(QueueOffset::get);
        let (position, end) = (offset(progress.position), offset(progress.end));
        let (messages, bytes) = (progress.prefetched_messages, progress.prefetched_bytes);
        Ok((progress.queue.to_python(py)?, position, end, messages, bytes, progress.is_paused))
    };
    let queues = stats.queues.iter().map(of_queue).collect::<PyResult<_>>()?;
    Ok(([&stats.received, &stats.pulled].map(counted), stats.failed_pulls, queues))
}

fn counted(traffic: &Traffic) -> Counted {
    (traffic.requests, traffic.messages, traffic.bytes)
}

fn of_latency(latency: &LatencyStats) -> Latency {
    let seconds = |us: u64| us as f64 / 1e6;
    let recent = &latency.recent_us;
    let percentiles = [0.5, 0.9, 0.99, 0.999, 1.0].map(|part| seconds(recent.value_at_quantile(part)));
    (latency.total.as_secs_f64(), (!recent.is_empty()).then_some(percentiles))
}

//! Metrics as OTLP: sent to a collector by gRPC, or written to the log as JSON.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use rocketpy_broker::{AddSeries, Broker, Declared, Kind, MetricSink, Sample, Unit};
use rocketpy_env::now_ms;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tonic::codec::CompressionEncoding;
use tonic::metadata::{AsciiMetadataKey, MetadataMap, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tracing::{info, warn};

use super::{Watched, labels, of_store};
use crate::config::{ExporterConfig, ExporterType};

/// Name of the meter, as in Apache's brokers.
const SCOPE: &str = "broker-meter";
/// Units as OpenTelemetry's instruments of Apache's brokers name them.
const MILLISECONDS: &str = "milliseconds";

/// Sends or writes the metrics at each interval, until `stopped` resolves.
pub(super) async fn export(config: ExporterConfig, watched: Watched, mut stopped: oneshot::Receiver<()>) {
    let every = match config.kind {
        ExporterType::Log => config.log_interval,
        _ => config.grpc_interval,
    };
    let mut client = (config.kind == ExporterType::Otlp).then(|| Client::new(&config)).flatten();
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = &mut stopped => return,
            _ = ticks.tick() => {}
        }
        let Some(broker) = watched.broker() else { continue };
        let most = config.batch_points;
        let Ok(requests) = spawn_blocking(move || requests(&broker, most)).await else {
            warn!("metrics not read");
            continue;
        };
        match &mut client {
            Some(client) => tokio::select! {
                _ = &mut stopped => return,
                () = client.send(requests) => {}
            },
            None => requests.iter().for_each(write),
        }
    }
}

/// Writes metrics to the log.
fn write(request: &ExportMetricsServiceRequest) {
    match serde_json::to_string(request) {
        Ok(metrics) => info!(target: "rocketpy_server::metrics", metrics, "metrics"),
        Err(error) => warn!(%error, "metrics not written"),
    }
}

/// Sends metrics to a collector.
struct Client {
    service: MetricsServiceClient<Channel>,
    headers: MetadataMap,
    timeout: Duration,
    /// The last send failed: the log says so once.
    has_failed: bool,
}

impl Client {
    /// `None` where the configuration is not of a collector; it was checked before.
    fn new(config: &ExporterConfig) -> Option<Self> {
        let target = config.grpc_target.clone()?;
        let endpoint = Endpoint::from_shared(target).ok()?;
        // Connects with the first send, and again after each failure.
        let channel =
            endpoint.connect_timeout(config.grpc_timeout).timeout(config.grpc_timeout).connect_lazy();
        let service = MetricsServiceClient::new(channel).send_compressed(CompressionEncoding::Gzip);
        let mut headers = MetadataMap::new();
        for (name, value) in &config.grpc_headers {
            let name = name.parse::<AsciiMetadataKey>().ok()?;
            headers.insert(name, MetadataValue::try_from(value.as_str()).ok()?);
        }
        Some(Self { service, headers, timeout: config.grpc_timeout, has_failed: false })
    }

    async fn send(&mut self, requests: Vec<ExportMetricsServiceRequest>) {
        for message in requests {
            let mut request = tonic::Request::new(message);
            *request.metadata_mut() = self.headers.clone();
            request.set_timeout(self.timeout);
            let sent = tokio::time::timeout(self.timeout, self.service.export(request)).await;
            let failure = match sent {
                Ok(Ok(_)) => None,
                Ok(Err(status)) => Some(status.to_string()),
                Err(_) => Some(format!("no answer within {} ms", self.timeout.as_millis())),
            };
            let had_failed = std::mem::replace(&mut self.has_failed, failure.is_some());
            if let Some(cause) = failure {
                if !had_failed {
                    warn!(cause, "metrics not sent to the collector, trying again at the next interval");
                }
                return;
            }
            if had_failed {
                info!("metrics sent to the collector again");
            }
        }
    }
}

/// All metrics of a broker, in messages of at most `most` data points. May block.
fn requests(broker: &Arc<Broker>, most: usize) -> Vec<ExportMetricsServiceRequest> {
    let nanos = |ms: i64| u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000);
    let common = labels(broker).into_iter().filter(|(name, _)| name != "otel_scope_name");
    let common = common.map(|(name, value)| attribute(&name, &value)).collect();
    let times = (nanos(broker.started_at_ms()), nanos(now_ms()));
    let mut sink = Sink { common, times, metrics: Vec::new() };
    broker.show_metrics(&mut sink);
    divided(sink.metrics, most).into_iter().map(request).collect()
}

fn request(metrics: Vec<Metric>) -> ExportMetricsServiceRequest {
    let attributes =
        vec![attribute("service.name", "rocketpy"), attribute("service.version", env!("CARGO_PKG_VERSION"))];
    let scope = Some(InstrumentationScope { name: SCOPE.to_owned(), ..InstrumentationScope::default() });
    let scope_metrics = vec![ScopeMetrics { scope, metrics, ..ScopeMetrics::default() }];
    let resource = Some(Resource { attributes, ..Resource::default() });
    let of_process = ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() };
    ExportMetricsServiceRequest { resource_metrics: vec![of_process] }
}

/// Metrics in parts of at most `most` data points. A metric with more is in several parts.
fn divided(metrics: Vec<Metric>, most: usize) -> Vec<Vec<Metric>> {
    let (mut parts, mut part, mut points) = (Vec::new(), Vec::new(), 0);
    for mut metric in metrics {
        loop {
            let room = most - points;
            let rest = split_off(&mut metric, room);
            points += count(&metric);
            part.push(metric);
            if points >= most {
                parts.push(std::mem::take(&mut part));
                points = 0;
            }
            match rest {
                Some(rest) => metric = rest,
                None => break,
            }
        }
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

fn count(metric: &Metric) -> usize {
    match &metric.data {
        Some(metric::Data::Gauge(gauge)) => gauge.data_points.len(),
        Some(metric::Data::Sum(sum)) => sum.data_points.len(),
        Some(metric::Data::Histogram(histogram)) => histogram.data_points.len(),
        _ => 0,
    }
}

/// Leaves the first data points in a metric, and returns one with the others, if there are any.
fn split_off(metric: &mut Metric, at: usize) -> Option<Metric> {
    if count(metric) <= at {
        return None;
    }
    let mut rest = metric.clone();
    match (&mut metric.data, &mut rest.data) {
        (Some(metric::Data::Gauge(first)), Some(metric::Data::Gauge(rest))) => {
            rest.data_points.drain(..at);
            first.data_points.truncate(at);
        }
        (Some(metric::Data::Sum(first)), Some(metric::Data::Sum(rest))) => {
            rest.data_points.drain(..at);
            first.data_points.truncate(at);
        }
        (Some(metric::Data::Histogram(first)), Some(metric::Data::Histogram(rest))) => {
            rest.data_points.drain(..at);
            first.data_points.truncate(at);
        }
        _ => return None,
    }
    Some(rest)
}

fn attribute(name: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) };
    KeyValue { key: name.to_owned(), value: Some(value), ..KeyValue::default() }
}

struct Sink {
    /// Attributes of all data points.
    common: Vec<KeyValue>,
    /// Start of the broker and now, in nanoseconds since 1970.
    times: (u64, u64),
    metrics: Vec<Metric>,
}

/// Name and unit of the instrument: its name in Prometheus text has the unit as well.
fn instrument(declared: &Declared) -> (&'static str, &'static str) {
    let without = |suffix| declared.name.strip_suffix(suffix).unwrap_or(declared.name);
    match declared.unit {
        Unit::Milliseconds => (without("_milliseconds"), MILLISECONDS),
        Unit::Seconds => (without("_seconds"), "seconds"),
        Unit::Bytes => (declared.name, "bytes"),
        _ => (declared.name, ""),
    }
}

impl MetricSink for Sink {
    fn metric(&mut self, declared: &Declared, series: &mut dyn FnMut(&mut AddSeries<'_>)) {
        let (start_time_unix_nano, time_unix_nano) = self.times;
        let (mut numbers, mut histograms) = (Vec::new(), Vec::new());
        series(&mut |values, sample| {
            let own = declared.labels.iter().copied().zip(values.iter().copied());
            let own = own.chain(of_store(declared).iter().copied());
            let mut attributes: Vec<KeyValue> = own.map(|(name, value)| attribute(name, value)).collect();
            attributes.extend_from_slice(&self.common);
            let value = match sample {
                Sample::Count(count) => {
                    number_data_point::Value::AsInt(i64::try_from(count).unwrap_or(i64::MAX))
                }
                Sample::Real(number) => number_data_point::Value::AsDouble(number),
                Sample::Histogram { bounds, counts, sum } => {
                    return histograms.push(HistogramDataPoint {
                        attributes,
                        start_time_unix_nano,
                        time_unix_nano,
                        count: counts.iter().sum(),
                        sum: Some(sum),
                        bucket_counts: counts.to_vec(),
                        explicit_bounds: bounds.to_vec(),
                        ..HistogramDataPoint::default()
                    });
                }
            };
            let value = Some(value);
            numbers.push(NumberDataPoint {
                attributes,
                start_time_unix_nano,
                time_unix_nano,
                value,
                ..NumberDataPoint::default()
            });
        });
        if numbers.is_empty() && histograms.is_empty() {
            return;
        }
        let aggregation_temporality = AggregationTemporality::Cumulative.into();
        let data = match declared.kind {
            Kind::Gauge => metric::Data::Gauge(Gauge { data_points: numbers }),
            Kind::Counter => {
                metric::Data::Sum(Sum { data_points: numbers, aggregation_temporality, is_monotonic: true })
            }
            Kind::Histogram(_) => {
                metric::Data::Histogram(Histogram { data_points: histograms, aggregation_temporality })
            }
        };
        let (name, unit) = instrument(declared);
        self.metrics.push(Metric {
            name: name.to_owned(),
            description: declared.help.to_owned(),
            unit: unit.to_owned(),
            data: Some(data),
            ..Metric::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge(points: usize) -> Metric {
        let data_points = vec![NumberDataPoint::default(); points];
        Metric { data: Some(metric::Data::Gauge(Gauge { data_points })), ..Metric::default() }
    }

    #[test]
    fn messages_have_at_most_as_many_data_points_as_they_may() {
        for (metrics, expected) in [
            (vec![3, 4], vec![vec![3, 2], vec![2]]),
            (vec![12], vec![vec![5], vec![5], vec![2]]),
            (vec![5, 5], vec![vec![5], vec![5]]),
            (vec![], vec![]),
        ] {
            let parts = divided(metrics.into_iter().map(gauge).collect(), 5);
            let counts: Vec<Vec<usize>> = parts.iter().map(|part| part.iter().map(count).collect()).collect();
            assert_eq!(counts, expected);
        }
    }
}

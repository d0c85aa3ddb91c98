//! Metrics as Prometheus text.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, LabelSetEncoder, MetricEncoder, NoLabelSet, prometheus_text, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use rocketpy_broker::{AddSeries, Broker, Declared, Kind, MetricSink, Sample};

use super::name_server::NameServerFigures;
use super::{labels, of_store};

/// The format that a scraper reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// OpenMetrics 1.0, which Prometheus asks for first.
    OpenMetrics,
    /// Prometheus text 0.0.4, for all others.
    Text,
}

impl Format {
    /// The format for the header `Accept`.
    pub(super) fn of(accept: &str) -> Self {
        match accept.contains("application/openmetrics-text") {
            true => Self::OpenMetrics,
            false => Self::Text,
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Reads all metrics of a broker. May block.
pub(super) fn text(broker: &Arc<Broker>, format: Format) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Target));
    let of_broker = registry.sub_registry_with_labels(labels(broker).into_iter());
    of_broker.register_collector(Box::new(OfBroker(broker.clone())));
    written(&registry, format)
}

/// Reads the metrics of a name server without a broker.
pub(super) fn text_of_name_server(figures: &NameServerFigures, format: Format) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Target));
    let node = [("node_type", "nameserver")].map(|(name, value)| (name.into(), value.into()));
    registry.sub_registry_with_labels(node.into_iter()).register_collector(Box::new(figures.clone()));
    written(&registry, format)
}

fn written(registry: &Registry, format: Format) -> String {
    let mut out = String::new();
    let written = match format {
        Format::OpenMetrics => text::encode(&mut out, registry),
        Format::Text => prometheus_text::encode(&mut out, registry),
    };
    // Writing to a text does not fail.
    debug_assert!(written.is_ok(), "metrics were written: {written:?}");
    out
}

/// `target_info`, which Apache's exporter has too.
#[derive(Debug)]
struct Target;

impl Collector for Target {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut info =
            encoder.encode_descriptor("target", "Process that has the metrics", None, MetricType::Info)?;
        info.encode_info(&[
            ("service_name", "rocketpy"),
            ("service_version", env!("CARGO_PKG_VERSION")),
            ("telemetry_sdk_language", "rust"),
        ])
    }
}

#[derive(Debug)]
struct OfBroker(Arc<Broker>);

impl Collector for OfBroker {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.show_metrics(&mut Sink(encoder));
        Ok(())
    }
}

struct Sink<'a>(DescriptorEncoder<'a>);

impl MetricSink for Sink<'_> {
    fn metric(&mut self, declared: &Declared, series: &mut dyn FnMut(&mut AddSeries<'_>)) {
        let help = declared.help.trim_end_matches('.');
        let (name, kind) = match declared.kind {
            // The format adds it again.
            Kind::Counter => (declared.name.trim_end_matches("_total"), MetricType::Counter),
            Kind::Gauge => (declared.name, MetricType::Gauge),
            Kind::Histogram(_) => (declared.name, MetricType::Histogram),
        };
        let mut descriptors = Some(&mut self.0);
        let mut encoder: Option<MetricEncoder<'_>> = None;
        series(&mut |values, sample| {
            // Only now: a metric without series is left out.
            if let Some(descriptors) = descriptors.take() {
                encoder = descriptors.encode_descriptor(name, help, None, kind).ok();
            }
            if let Some(encoder) = &mut encoder {
                // Writing to a text does not fail.
                let _ = encode(encoder, &Labels { declared, values }, declared.kind, sample);
            }
        });
    }
}

fn encode(
    encoder: &mut MetricEncoder<'_>,
    labels: &Labels<'_>,
    kind: Kind,
    sample: Sample<'_>,
) -> Result<(), fmt::Error> {
    let mut encoder = encoder.encode_family(labels)?;
    match (kind, sample) {
        (Kind::Counter, Sample::Count(count)) => encoder.encode_counter::<NoLabelSet, _, f64>(&count, None),
        (Kind::Counter, Sample::Real(number)) => encoder.encode_counter::<NoLabelSet, _, f64>(&number, None),
        (_, Sample::Count(count)) => encoder.encode_gauge(&count),
        (_, Sample::Real(number)) => encoder.encode_gauge(&number),
        (_, Sample::Histogram { bounds, counts, sum }) => {
            let bounds = bounds.iter().copied().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(counts.iter().copied()).collect();
            encoder.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)
        }
    }
}

/// Labels of one series.
struct Labels<'a> {
    declared: &'a Declared,
    values: &'a [&'a str],
}

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        let own = self.declared.labels.iter().copied().zip(self.values.iter().copied());
        for label in own.chain(of_store(self.declared).iter().copied()) {
            prometheus_client::encoding::EncodeLabel::encode(&label, encoder.encode_label())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_follows_from_the_accept_header() {
        let of_prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        assert_eq!(Format::of(of_prometheus), Format::OpenMetrics);
        for accept in ["", "*/*", "text/plain"] {
            assert_eq!(Format::of(accept), Format::Text, "{accept}");
        }
    }
}

//! Settings of the exporter of metrics, and the kinds of values that only it has.

use std::time::Duration;

use super::kind::{Holds, Kind, Shape, Value, Wanted, is_address};

/// How the metrics of the broker leave the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExporterType {
    /// They do not.
    #[default]
    Disabled,
    /// They are sent to a collector by OTLP over gRPC.
    Otlp,
    /// Prometheus reads them over HTTP.
    Prometheus,
    /// They are written to the log.
    Log,
}

/// Settings of the exporter.
#[derive(Clone, Debug)]
pub struct ExporterConfig {
    /// `metricsExporterType`, default `DISABLE`.
    pub kind: ExporterType,
    /// Address or host of the HTTP server (`metricsPromExporterHost`), default `127.0.0.1` (Apache: `brokerIP1`).
    pub host: String,
    /// Port of the HTTP server (`metricsPromExporterPort`), default 5557; 0 selects a free one.
    pub port: u16,
    /// URL of the collector (`metricsGrpcExporterTarget`).
    pub grpc_target: Option<String>,
    /// Headers for the collector (`metricsGrpcExporterHeader`).
    pub grpc_headers: Vec<(String, String)>,
    /// `metricGrpcExporterTimeOutInMills`, default 3 s.
    pub grpc_timeout: Duration,
    /// `metricGrpcExporterIntervalInMills`, default 60 s.
    pub grpc_interval: Duration,
    /// `metricLoggingExporterIntervalInMills`, default 10 s.
    pub log_interval: Duration,
    /// Maximum number of data points of one message (`metricsExportBatchMaxDataPoints`), default 1000.
    pub batch_points: usize,
}

impl Default for ExporterConfig {
    fn default() -> Self {
        Self {
            kind: ExporterType::default(),
            host: "127.0.0.1".to_owned(),
            port: 5557,
            grpc_target: None,
            grpc_headers: Vec::new(),
            grpc_timeout: Duration::from_secs(3),
            grpc_interval: Duration::from_secs(60),
            log_interval: Duration::from_secs(10),
            batch_points: 1000,
        }
    }
}

/// `metricsExporterType`: a word, or the number that Apache's brokers read.
///
/// # Source
/// docs/reference/metrics.md 1.
pub(super) struct Exporter;

/// Word, number and value.
const EXPORTERS: &[(&str, &str, ExporterType)] = &[
    ("DISABLE", "0", ExporterType::Disabled),
    ("OTLP_GRPC", "1", ExporterType::Otlp),
    ("PROM", "2", ExporterType::Prometheus),
    ("LOG", "3", ExporterType::Log),
];

impl Kind for Exporter {
    fn shape(&self) -> Shape {
        Shape { choices: EXPORTERS.iter().map(|(word, ..)| *word).collect(), ..Shape::of("choice") }
    }
}

impl Holds<ExporterType> for Exporter {
    fn parse(&self, text: &str) -> Result<ExporterType, Wanted> {
        let is_it = |word: &str, number: &str| word.eq_ignore_ascii_case(text) || number == text;
        let found = EXPORTERS.iter().find(|(word, number, _)| is_it(word, number));
        found.map(|(.., value)| *value).ok_or_else(|| self.shape().choices.join(" or "))
    }

    fn value(&self, held: &ExporterType) -> Value {
        let word = EXPORTERS.iter().find(|(.., value)| value == held).map_or("", |(word, ..)| word);
        Value::Text(word.to_owned())
    }
}

/// URL of a collector. TLS is not there yet.
pub(super) struct Collector;

impl Kind for Collector {
    fn shape(&self) -> Shape {
        Shape::of("http://host:port")
    }
}

impl Holds<Option<String>> for Collector {
    fn parse(&self, text: &str) -> Result<Option<String>, Wanted> {
        let address = text.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
        match address.filter(|address| is_address(address)) {
            Some(address) => Ok(Some(format!("http://{address}"))),
            None => Err("http://host:port; TLS to a collector is not supported yet".to_owned()),
        }
    }

    fn value(&self, held: &Option<String>) -> Value {
        held.clone().map_or(Value::Nothing, Value::Text)
    }
}

/// Headers of requests to a collector, as `api-key:secret,tenant:a`.
pub(super) struct Headers;

impl Kind for Headers {
    fn shape(&self) -> Shape {
        Shape { is_secret: true, ..Shape::of("name:value,...") }
    }
}

impl Holds<Vec<(String, String)>> for Headers {
    fn parse(&self, text: &str) -> Result<Vec<(String, String)>, Wanted> {
        let mut headers = Vec::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once(':').unwrap_or((pair, ""));
            let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
            let is_name =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
            let is_plain = name.chars().all(is_name) && !name.is_empty() && !name.ends_with("-bin");
            let is_text = !value.is_empty() && value.chars().all(|c| c.is_ascii_graphic() || c == ' ');
            if !is_plain || !is_text {
                return Err("name:value pairs of printable ASCII, separated by commas".to_owned());
            }
            headers.push((name, value.to_owned()));
        }
        Ok(headers)
    }

    fn value(&self, held: &Vec<(String, String)>) -> Value {
        // Values are secrets: GET_BROKER_CONFIG shows the names.
        Value::List(held.iter().map(|(name, _)| format!("{name}:***")).collect(), ',')
    }
}

/// Names and values, as `region:north,rack:12`. The names are names of labels.
pub(super) struct Labels;

/// Labels that the exporter sets itself.
const TAKEN: &[&str] = &["aggregation", "cluster", "le", "node_id", "node_type", "otel_scope_name"];

impl Kind for Labels {
    fn shape(&self) -> Shape {
        Shape::of("name:value,...")
    }
}

fn is_label_name(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

impl Holds<Vec<(String, String)>> for Labels {
    fn parse(&self, text: &str) -> Result<Vec<(String, String)>, Wanted> {
        let mut labels: Vec<(String, String)> = Vec::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once(':').unwrap_or((pair, ""));
            let (name, value) = (name.trim(), value.trim());
            let is_new = labels.iter().all(|(known, _)| known != name) && !TAKEN.contains(&name);
            if !is_label_name(name) || value.is_empty() || !is_new {
                let taken = TAKEN.join(", ");
                return Err(format!(
                    "name:value pairs separated by commas; a name has letters, digits and _, and is none of {taken}"
                ));
            }
            labels.push((name.to_owned(), value.to_owned()));
        }
        Ok(labels)
    }

    fn value(&self, held: &Vec<(String, String)>) -> Value {
        Value::List(held.iter().map(|(name, value)| format!("{name}:{value}")).collect(), ',')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collector_and_its_headers_are_checked() {
        assert_eq!(Collector.parse("http://otel:4317/").unwrap().as_deref(), Some("http://otel:4317"));
        for bad in ["otel:4317", "https://otel:4317", "http://otel", "http://a b:1"] {
            assert!(Collector.parse(bad).is_err(), "{bad}");
        }
        let headers = Headers.parse("Api-Key:a b, tenant:x:y").unwrap();
        assert_eq!(
            headers,
            [("api-key".to_owned(), "a b".to_owned()), ("tenant".to_owned(), "x:y".to_owned())]
        );
        assert_eq!(Headers.value(&headers).to_string(), "api-key:***,tenant:***");
        for bad in ["a", ":b", "a:", "a-bin:b", "a b:c", "a:\u{1}"] {
            assert!(Headers.parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn labels_are_split_and_checked() {
        let labels = Labels.parse("region:north, rack:a:12,").unwrap();
        assert_eq!(
            labels,
            [("region".to_owned(), "north".to_owned()), ("rack".to_owned(), "a:12".to_owned())]
        );
        for bad in ["region", "region:", "1a:b", "a-b:c", "cluster:x", "a:b,a:c", "le:1"] {
            assert!(Labels.parse(bad).is_err(), "{bad}");
        }
    }
}

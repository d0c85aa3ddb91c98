//! Settings of the exporter of metrics, and the kinds of values that only it has.

use super::kind::{Holds, Kind, Shape, Value, Wanted};

/// How the metrics of the broker leave the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExporterType {
    /// They do not.
    #[default]
    Disabled,
    /// Prometheus reads them over HTTP.
    Prometheus,
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
}

impl Default for ExporterConfig {
    fn default() -> Self {
        Self { kind: ExporterType::default(), host: "127.0.0.1".to_owned(), port: 5557 }
    }
}

/// `metricsExporterType`: a word, or the number that Apache's brokers read.
///
/// # Source
/// docs/reference/metrics.md 1.
pub(super) struct Exporter;

/// Word, number and value.
const EXPORTERS: &[(&str, &str, ExporterType)] =
    &[("DISABLE", "0", ExporterType::Disabled), ("PROM", "2", ExporterType::Prometheus)];

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

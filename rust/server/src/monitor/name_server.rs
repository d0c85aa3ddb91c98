//! Metrics of a name server without a broker: its certificate, handshakes, users and denials.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use rocketpy_auth::Guard;
use rocketpy_broker::ServerTls;

/// Parts of a name server that have metrics.
#[derive(Clone, Debug)]
pub(crate) struct NameServerFigures {
    pub(crate) tls: Option<Arc<ServerTls>>,
    pub(crate) guard: Option<Arc<Guard>>,
}

impl Collector for NameServerFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut gauge = |name: &str, help: &str, value: f64| {
            let name = format!("rocketpy_nameserver_{name}");
            encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?.encode_gauge(&value)
        };
        if let Some(tls) = &self.tls {
            let expiry = tls.expires_at_ms() as f64 / 1000.0;
            gauge(
                "tls_certificate_expiry_timestamp_seconds",
                "Earliest end of a certificate in use",
                expiry,
            )?;
            gauge("tls_half_open_handshakes", "Handshakes that have not ended", tls.half_open() as f64)?;
        }
        let figures = self.guard.as_ref().map(|guard| guard.figures());
        if let Some(figures) = figures {
            gauge("users", "Users of this name server", figures.users as f64)?;
        }
        let mut counter = |name: &str, help: &str, value: u64| {
            // The format adds `_total`.
            let name = format!("rocketpy_nameserver_{name}");
            let mut encoder = encoder.encode_descriptor(&name, help, None, MetricType::Counter)?;
            encoder.encode_counter::<NoLabelSet, _, f64>(&value, None)
        };
        if let Some(tls) = &self.tls {
            counter(
                "tls_refused_connections",
                "Failed handshakes, and plain connections where TLS is enforced",
                tls.refused(),
            )?;
        }
        if let Some(figures) = figures {
            counter("denied_requests", "Requests denied by users and policies", figures.denied)?;
            counter("audit_lines_left_out", "Lines left out of the audit log", figures.audit_lines_left_out)?;
        }
        Ok(())
    }
}

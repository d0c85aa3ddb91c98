//! Which metrics a broker shows, and how many series.

use std::time::Duration;

use super::Group;

/// Settings of the metrics of a broker.
#[derive(Clone, Debug)]
pub struct MetricsConfig {
    /// Whether an exporter shows the metrics. Without one, requests are not timed.
    pub are_exported: bool,
    /// Maximum number of series of one metric (`metricsOtelCardinalityLimit`), default 50,000. The rest is counted.
    pub series_limit: usize,
    /// Labels of every series, with their values (`metricsLabel`).
    pub labels: Vec<(String, String)>,
    /// `enableDetailStat`, default true: whether queues have statistics of their own.
    pub detail: bool,
    /// Idle time after which statistics of a topic, a group or a queue are dropped (`maxStatsIdleTimeInMinutes`); `None`, the default: never.
    pub idle: Option<Duration>,
    /// `enableStatsMetrics`, default true.
    pub stats: bool,
    /// `enableRequestMetrics`, default true.
    pub requests: bool,
    /// `enableConnectionMetrics`, default true.
    pub connections: bool,
    /// `enableLagAndDlqMetrics`, default true.
    pub lag: bool,
    /// `enableTransactionMetrics`, default true.
    pub transactions: bool,
    /// `enableRemotingMetrics`, default true.
    pub remoting: bool,
    /// `enableMessageStoreMetrics`, default true.
    pub store: bool,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self {
            are_exported: false,
            series_limit: 50_000,
            labels: Vec::new(),
            detail: true,
            idle: None,
            stats: true,
            requests: true,
            connections: true,
            lag: true,
            transactions: true,
            remoting: true,
            store: true,
        }
    }
}

impl MetricsConfig {
    /// Whether the metrics of a group are shown.
    pub(crate) fn shows(&self, group: Group) -> bool {
        match group {
            Group::Stats => self.stats,
            Group::Request => self.requests,
            Group::Connection => self.connections,
            Group::LagAndDlq => self.lag,
            Group::Transaction => self.transactions,
            Group::Remoting => self.remoting,
            Group::MessageStore => self.store,
            Group::Own => true,
        }
    }
}

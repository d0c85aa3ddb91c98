//! Bodies of statistics.

use std::collections::BTreeMap;

use rocketpy_model::MessageQueue;
use serde::{Deserialize, Serialize};

use super::ConsumeStats;

/// An item of statistics over a span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[doc(alias = "BrokerStatsItem")]
pub struct StatisticsItem {
    /// Sum for each event.
    pub avgpt: f64,
    /// What was counted.
    pub sum: i64,
    /// Sum for each second.
    pub tps: f64,
}

/// An item of statistics (answer of code 315).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[doc(alias = "BrokerStatsData")]
pub struct Statistics {
    /// The last 24 hours.
    pub stats_day: StatisticsItem,
    /// The last hour.
    pub stats_hour: StatisticsItem,
    /// The last minute.
    pub stats_minute: StatisticsItem,
}

/// How far all groups of a broker are (answer of code 317).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[doc(alias = "ConsumeStatsList")]
pub struct BrokerConsumeStats {
    /// Address of the broker.
    pub broker_addr: String,
    /// One map for each group, of its name and one element for each topic in which it has offsets.
    pub consume_stats_list: Vec<BTreeMap<String, Vec<ConsumeStats>>>,
    /// Messages after the committed offsets of all groups.
    pub total_diff: i64,
    /// Messages that were pulled and not committed.
    pub total_inflight_diff: i64,
}

/// Times of the messages of a queue, and how far a group is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueTimeSpan {
    /// Store time of the last consumed message; of the first message where nothing is committed.
    pub consume_time_stamp: i64,
    /// Age of the next message to be consumed; 0 when there is none.
    pub delay_time: i64,
    /// Store time of the last message, -1 without one.
    pub max_time_stamp: i64,
    /// The queue.
    pub message_queue: MessageQueue,
    /// Store time of the first message, -1 without one.
    pub min_time_stamp: i64,
}

/// Spans of the queues of a topic (answer of code 303).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[doc(alias = "QueryConsumeTimeSpanBody")]
pub struct ConsumeTimeSpans {
    /// One element for each write queue.
    pub consume_time_span_set: Vec<QueueTimeSpan>,
}

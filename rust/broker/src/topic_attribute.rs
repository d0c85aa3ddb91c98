//! Attributes of a topic that change what this broker does with its messages.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rocketpy_model::TopicConfig;
use rocketpy_protocol::body::TopicConfigFile;

use crate::config_file::ConfigFile;
use crate::{BrokerError, FlushMode};

/// Hours for which the messages of the topic stay readable; 0 or none: as long as the log has them.
const RETENTION_HOURS: &str = "retention.hours";
/// When a send to the topic is acknowledged, in place of the broker's `flushDiskType`.
const FLUSH_TYPE: &str = "flush.type";

/// What a value must be, for a person.
pub(crate) const WANTED: &str = "+queue.type=SimpleCQ, +cleanup.policy=DELETE, +message.type=NORMAL, FIFO or UNSPECIFIED, \
     +retention.hours=HOURS, +flush.type=ASYNC_FLUSH or SYNC_FLUSH";

/// Whether this broker does what the attribute says. Others ask for queues, clean-up or messages of kinds that are not
/// there yet.
pub(crate) fn is_served(name: &str, value: &str) -> bool {
    match name {
        "queue.type" => value == "SimpleCQ",
        "cleanup.policy" => value == "DELETE",
        "message.type" => matches!(value, "NORMAL" | "FIFO" | "UNSPECIFIED"),
        RETENTION_HOURS => hours(value).is_some(),
        FLUSH_TYPE => flush(value).is_some(),
        _ => false,
    }
}

fn hours(value: &str) -> Option<u32> {
    // At most seven digits: a number with ten million zeros before it would be one too.
    (value.len() <= 7).then(|| value.parse().ok()).flatten().filter(|hours| *hours <= 1_000_000)
}

fn flush(value: &str) -> Option<FlushMode> {
    [FlushMode::Async, FlushMode::Sync].into_iter().find(|kind| kind.apache_name() == value)
}

/// When sends to the topic are acknowledged, if it says so.
pub(crate) fn flush_type(topic: &TopicConfig) -> Option<FlushMode> {
    topic.attributes.get(FLUSH_TYPE).and_then(|value| flush(value))
}

/// Retention time of the topic, if it has one of its own.
fn retention(topic: &TopicConfig) -> Option<Duration> {
    let hours = topic.attributes.get(RETENTION_HOURS).and_then(|value| hours(value))?;
    (hours > 0).then(|| Duration::from_secs(u64::from(hours) * 3600))
}

/// Whether the topic says how long its messages stay readable.
pub(crate) fn is_aged(topic: &TopicConfig) -> bool {
    retention(topic).is_some()
}

/// Retention times of the topics that have one of their own.
pub(crate) fn retention_of(topics: &BTreeMap<String, TopicConfig>) -> HashMap<Arc<str>, Duration> {
    topics.iter().filter_map(|(name, topic)| Some((Arc::from(name.as_str()), retention(topic)?))).collect()
}

/// Retention times of the topics that have one of their own, from the topic table of a store folder.
/// Changes nothing; the broker may run.
///
/// # Errors
/// [`BrokerError::Env`], [`BrokerError::ConfigFile`].
pub fn topic_retention(store_root: &Path) -> Result<HashMap<Arc<str>, Duration>, BrokerError> {
    let loaded = ConfigFile::new(store_root, "topics.json").look::<TopicConfigFile>()?;
    Ok(loaded.map(|file| retention_of(&file.topic_config_table)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_says_how_long_and_when_and_nonsense_says_nothing() {
        let topic = |name: &str, value: &str| {
            let mut topic = TopicConfig::new("t", 1);
            topic.attributes.insert(name.to_owned(), value.to_owned());
            topic
        };
        assert_eq!(retention(&topic(RETENTION_HOURS, "2")), Some(Duration::from_secs(7200)));
        assert_eq!(retention(&topic(RETENTION_HOURS, "0")), None);
        assert_eq!(retention(&topic(RETENTION_HOURS, "-2")), None, "whoever wrote the file");
        assert_eq!(flush_type(&topic(FLUSH_TYPE, "SYNC_FLUSH")), Some(FlushMode::Sync));
        assert_eq!(flush_type(&topic(FLUSH_TYPE, "sync")), None);
        for (name, value) in [
            (RETENTION_HOURS, "x"),
            (RETENTION_HOURS, "1000001"),
            (RETENTION_HOURS, "00000002"),
            (FLUSH_TYPE, ""),
            ("queue.type", "BatchCQ"),
            ("x", "y"),
        ] {
            assert!(!is_served(name, value), "{name}={value}");
        }
        assert!(is_served(RETENTION_HOURS, "0") && is_served(FLUSH_TYPE, "ASYNC_FLUSH"));
    }
}

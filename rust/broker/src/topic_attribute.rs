//! Attributes of a topic that change what this broker does with its messages.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rocketpy_model::TopicConfig;
use rocketpy_protocol::body::TopicConfigFile;

use crate::config_file::ConfigFile;
use crate::{BrokerError, FlushMode, TopicRules};

/// Hours for which the messages of the topic stay readable; 0 or none: as long as the log has them.
const RETENTION_HOURS: &str = "retention.hours";
/// When a send to the topic is acknowledged, in place of the broker's `flushDiskType`.
const FLUSH_TYPE: &str = "flush.type";

/// What a value must be, for a person.
const WANTED: &str = "use +queue.type=SimpleCQ, +cleanup.policy=DELETE, +message.type=NORMAL, FIFO, DELAY, TRANSACTION or UNSPECIFIED (MIXED \
     with enableMixedMessageType=true), +retention.hours=HOURS, +flush.type=ASYNC_FLUSH or SYNC_FLUSH";

/// Checks that this broker does what the attribute says. The type of a topic's messages is a label: the broker serves messages of each
/// type in each topic, as Apache's does for clients of the remoting protocol.
///
/// # Errors
/// What the broker lacks, for a person.
pub(crate) fn check(name: &str, value: &str, rules: TopicRules) -> Result<(), &'static str> {
    match (name, value) {
        ("queue.type", "SimpleCQ") | ("cleanup.policy", "DELETE") => Ok(()),
        ("queue.type", "BatchCQ") => Err("batch consume queues are not supported"),
        ("cleanup.policy", "COMPACTION") => Err("compaction is not supported, use +retention.hours=HOURS"),
        ("message.type", "NORMAL" | "FIFO" | "DELAY" | "TRANSACTION" | "UNSPECIFIED") => Ok(()),
        ("message.type", "MIXED") if rules.mixed => Ok(()),
        ("message.type", "MIXED") => Err("MIXED requires enableMixedMessageType=true"),
        ("message.type", "PRIORITY") => Err("queues with priorities are not supported"),
        ("message.type", "LITE") => Err("lite topics are not supported"),
        (RETENTION_HOURS, _) if hours(value).is_some() => Ok(()),
        (FLUSH_TYPE, _) if flush(value).is_some() => Ok(()),
        _ => Err(WANTED),
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
        let rules = TopicRules::default();
        for (name, value) in [
            (RETENTION_HOURS, "x"),
            (RETENTION_HOURS, "1000001"),
            (RETENTION_HOURS, "00000002"),
            (FLUSH_TYPE, ""),
            ("queue.type", "BatchCQ"),
            ("x", "y"),
        ] {
            assert!(check(name, value, rules).is_err(), "{name}={value}");
        }
        let is_known = |name, value| check(name, value, rules).is_ok();
        assert!(is_known(RETENTION_HOURS, "0") && is_known(FLUSH_TYPE, "ASYNC_FLUSH"));
    }
}

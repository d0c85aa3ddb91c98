//! One queue of a topic on one broker.

use std::fmt;
use std::sync::Arc;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One queue of a topic on one broker.
///
/// The order is the one that Java clients sort by before they share queues out: topic, broker name, queue id. Every
/// member of a group computes the same assignment only when all sort alike.
///
/// # Source
/// docs/reference/protocol.md 2.0 (members `brokerName`, `queueId`, `topic` in this order as JSON).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageQueue {
    /// The topic.
    pub topic: Arc<str>,
    /// The broker that has the queue.
    pub broker_name: Arc<str>,
    /// Number of the queue in its topic on that broker.
    pub queue_id: u32,
}

impl MessageQueue {
    /// Names a queue.
    pub fn new(topic: impl Into<Arc<str>>, broker_name: impl Into<Arc<str>>, queue_id: u32) -> Self {
        Self { topic: topic.into(), broker_name: broker_name.into(), queue_id }
    }
}

impl fmt::Display for MessageQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}#{}", self.topic, self.broker_name, self.queue_id)
    }
}

impl Serialize for MessageQueue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("MessageQueue", 3)?;
        object.serialize_field("brokerName", &*self.broker_name)?;
        object.serialize_field("queueId", &self.queue_id)?;
        object.serialize_field("topic", &*self.topic)?;
        object.end()
    }
}

impl<'de> Deserialize<'de> for MessageQueue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename = "MessageQueue", rename_all = "camelCase")]
        struct Members {
            #[serde(default)]
            broker_name: String,
            #[serde(default)]
            queue_id: u32,
            #[serde(default)]
            topic: String,
        }
        let members = Members::deserialize(deserializer)?;
        Ok(Self::new(members.topic, members.broker_name, members.queue_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_sort_by_topic_then_broker_then_number() {
        let mut queues = [
            MessageQueue::new("b", "a", 0),
            MessageQueue::new("a", "b", 0),
            MessageQueue::new("a", "a", 10),
            MessageQueue::new("a", "a", 9),
        ];
        queues.sort();
        let text: Vec<String> = queues.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["a@a#9", "a@a#10", "a@b#0", "b@a#0"]);
    }
}

//! Messages of the load, each with a number in its body.

use fastrand::Rng;
use rocketpy_model::{Message, MessageQueue};
use rocketpy_protocol::record::RecordView;

use crate::history::{Delivery, QueueName, Send};
use crate::sim::message;

pub(super) const TAGS: [&str; 3] = ["red", "green", "blue"];
/// A property that says by a number what the tag says: for SQL filters.
const PART: &str = "part";

/// The key of a message; four messages share it.
pub(super) fn key_of(number: u64) -> String {
    format!("k{}", number / 4)
}

/// The message of a number: everything but its length follows from the number.
pub(super) fn build(number: u64, producer: u32, topic: &str, body_bytes: usize) -> (Message, Send) {
    let mut body = vec![0; body_bytes.max(8)];
    Rng::with_seed(number).fill(&mut body);
    body[..8].copy_from_slice(&number.to_be_bytes());
    let (tag, key) = (TAGS[(number % 3) as usize], key_of(number));
    let call = Send {
        message: number,
        producer,
        topic: topic.to_owned(),
        digest: message::digest(&body, Some((tag, &key))),
        tag: Some(tag.to_owned()),
        keys: vec![key.clone()],
        ..Send::default()
    };
    let mut message = Message::new(topic, body);
    message.set_tag(tag).expect("a tag without separators");
    message.set_keys([key.as_str()]).expect("a key without separators");
    message.properties.set(PART, (number % 3).to_string()).expect("a property without separators");
    (message, call)
}

/// A record as a consumer got it.
pub(super) fn delivery(view: &RecordView<'_>) -> Delivery {
    message::delivery(view, true)
}

pub(super) fn queue_name(queue: &MessageQueue) -> QueueName {
    QueueName { topic: queue.topic.to_string(), queue_id: queue.queue_id }
}

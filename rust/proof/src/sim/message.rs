//! Messages whose bodies say which they are.

use rocketpy_protocol::record::RecordView;

use crate::history::{Delivery, LogRange, QueueName, Send};

/// The key of a message; several messages share it.
pub(crate) fn key_of(number: u64) -> String {
    format!("key{}", number % 50)
}

/// What is sent.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub number: u64,
    pub queue: QueueName,
    pub body: Vec<u8>,
    pub properties: Vec<u8>,
    tag: String,
    key: String,
}

const TAGS: [&str; 3] = ["red", "green", "blue"];

impl Message {
    /// The message of a number: everything but its length follows from the number.
    pub(crate) fn new(number: u64, queue: QueueName, body_bytes: usize) -> Self {
        let mut rng = fastrand::Rng::with_seed(number);
        let mut body = vec![0; body_bytes.max(8)];
        rng.fill(&mut body);
        body[..8].copy_from_slice(&number.to_be_bytes());
        let tag = TAGS[(number % 3) as usize].to_owned();
        let key = key_of(number);
        let properties = format!("TAGS\x01{tag}\x02KEYS\x01{key}\x02").into_bytes();
        Self { number, queue, body, properties, tag, key }
    }

    /// The call that sends it. Without the record check only the body is covered by a checksum.
    pub(crate) fn call(&self, record_check: bool) -> Send {
        Send {
            message: self.number,
            producer: 0,
            topic: self.queue.topic.clone(),
            digest: digest(&self.body, record_check.then_some((&self.tag, &self.key))),
            tag: Some(self.tag.clone()),
            keys: vec![self.key.clone()],
            ..Send::default()
        }
    }
}

pub(crate) fn digest(body: &[u8], properties: Option<(&str, &str)>) -> u64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(body);
    if let Some((tag, key)) = properties {
        hasher.update(tag.as_bytes());
        hasher.update(b"\0");
        hasher.update(key.as_bytes());
    }
    (body.len() as u64) << 32 | u64::from(hasher.finalize())
}

/// Turns a record into a delivery of the message that its body names.
pub(crate) fn delivery(view: &RecordView<'_>, record_check: bool) -> Delivery {
    let properties = record_check.then(|| (view.tag().unwrap_or_default(), view.keys().unwrap_or_default()));
    let start = view.physical_offset.get();
    Delivery {
        message: view.body.first_chunk().map_or(u64::MAX, |number| u64::from_be_bytes(*number)),
        queue: QueueName { topic: view.topic.to_owned(), queue_id: view.queue_id },
        offset: view.queue_offset.get(),
        digest: digest(view.body, properties),
        log: Some(LogRange { start, end: start + view.size() as u64 }),
        times: 0,
    }
}

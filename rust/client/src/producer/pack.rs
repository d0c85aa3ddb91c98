//! Packs messages into send requests: one message, or a wire batch.

use bytes::Bytes;
use rocketpy_model::{Message, property, sys_flag};
use rocketpy_protocol::batch::BatchItem;
use rocketpy_protocol::{compression, properties_text};
use tracing::debug;

use crate::config::{ProducerConfig, SendOptions};
use crate::identity::{Moment, UniqueIds};

/// The message type of a reply.
pub(crate) const REPLY: &str = "reply";

/// What one send request carries.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) topic: String,
    pub(crate) body: Bytes,
    /// Property text of the request.
    pub(crate) properties: String,
    pub(crate) flag: i32,
    pub(crate) sys_flag: i32,
    /// Unique key of each message.
    pub(crate) keys: KeyList,
    /// Bytes of the bodies before compression.
    pub(crate) message_bytes: usize,
    pub(crate) batch: bool,
    /// It answers a request.
    pub(crate) is_reply: bool,
    pub(crate) born_at_ms: i64,
    /// It is the copy of a message that a consumer could not handle.
    pub(crate) retried: Option<Retried>,
}

/// What the copy of a message that a consumer could not handle says of its retries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retried {
    /// How many times the message was sent back, with this one.
    pub(crate) times: i32,
    /// A message that was sent back more often is dead.
    pub(crate) limit: i32,
}

impl Outgoing {
    /// Whether it begins a transaction.
    pub(crate) fn is_half(&self) -> bool {
        sys_flag::transaction(self.sys_flag) == sys_flag::TRANSACTION_PREPARED
    }
}

/// The unique keys of the messages of one request, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeyList {
    text: String,
    ends: Vec<u32>,
}

impl KeyList {
    pub(crate) fn push(&mut self, key: &str) {
        self.text.push_str(key);
        self.ends.push(self.text.len() as u32);
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// # Panics
    /// When `index` is not below `len()`.
    pub(crate) fn get(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start as usize..self.ends[index] as usize]
    }
}

/// What the options of a send add to a message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Given<'a> {
    pub(crate) order_key: Option<&'a str>,
    pub(crate) msg_id: Option<&'a str>,
}

impl SendOptions {
    /// What the options add to a message.
    pub(crate) fn given(&self) -> Given<'_> {
        Given { order_key: self.order_key.as_deref(), msg_id: self.msg_id.as_deref() }
    }
}

/// Packs a single message: compresses a large body, completes the properties.
pub(crate) fn single(
    message: &Message,
    given: Given<'_>,
    config: &ProducerConfig,
    ids: &UniqueIds,
    moment: Moment,
) -> Outgoing {
    let (mut text, mut keys) = (Vec::with_capacity(128), KeyList::default());
    complete(message, given, ids, moment, &mut text, &mut keys);
    if message.properties.get(property::WAIT).is_none() {
        properties_text::push(&mut text, property::WAIT, "true");
    }
    assert!(keys.len() == 1, "a message has one unique key");
    let (body, sys_flag) = compressed(message, config);
    Outgoing {
        topic: message.topic.clone(),
        body,
        properties: text_of(text),
        flag: message.flag,
        sys_flag,
        keys,
        message_bytes: message.body.len(),
        batch: false,
        is_reply: message.properties.get(property::MESSAGE_TYPE) == Some(REPLY),
        born_at_ms: moment.now_ms,
        retried: None,
    }
}

fn text_of(text: Vec<u8>) -> String {
    String::from_utf8(text).expect("the text was made of strings")
}

/// Writes the properties of `message` and adds a missing unique key or order key.
fn complete(
    message: &Message,
    given: Given<'_>,
    ids: &UniqueIds,
    moment: Moment,
    text: &mut Vec<u8>,
    keys: &mut KeyList,
) {
    properties_text::encode(&message.properties, text);
    if let Some(key) = given.order_key
        && message.order_key().is_none()
    {
        properties_text::push(text, property::SHARDING_KEY, key);
    }
    match (message.properties.get(property::UNIQUE_KEY), given.msg_id) {
        (Some(key), _) => keys.push(key),
        (None, Some(key)) => {
            keys.push(key);
            properties_text::push(text, property::UNIQUE_KEY, key);
        }
        (None, None) => {
            ids.next(moment).write(&mut keys.text);
            keys.ends.push(keys.text.len() as u32);
            properties_text::push(text, property::UNIQUE_KEY, keys.get(keys.len() - 1));
        }
    }
}

/// The body and flag to send. A body that compression does not shrink is sent as it is.
fn compressed(message: &Message, config: &ProducerConfig) -> (Bytes, i32) {
    let raw = (message.body.clone(), 0);
    let Some(kind) = config.compression.filter(|_| message.body.len() >= config.compress_over) else {
        return raw;
    };
    match compression::compress(kind, config.compression_level, &message.body) {
        Ok(body) if body.len() < message.body.len() => (body.into(), kind.mark(0)),
        Ok(_) => raw,
        Err(error) => {
            debug!(%error, "cannot compress body, sending it uncompressed");
            raw
        }
    }
}

/// Builds a wire batch.
#[derive(Debug)]
pub(crate) struct Packer {
    limit_bytes: usize,
    limit_messages: usize,
    body: Vec<u8>,
    keys: KeyList,
    message_bytes: usize,
    /// Value of `WAIT` that all messages share.
    wait: Option<bool>,
    /// Its message goes alone: brokers refuse a batch with a delayed one.
    is_alone: bool,
    scratch: Vec<u8>,
}

/// Whether a message fitted into the batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Packed {
    Added,
    /// The batch must be sent first.
    Full,
}

impl Packer {
    pub(crate) fn new(config: &ProducerConfig) -> Self {
        Self {
            limit_bytes: config.batch_bytes.min(config.max_message_size),
            limit_messages: config.batch_messages,
            body: Vec::new(),
            keys: KeyList::default(),
            message_bytes: 0,
            wait: None,
            is_alone: false,
            scratch: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Appends a validated message. The first message of a batch always fits, whatever its size.
    pub(crate) fn push(
        &mut self,
        message: &Message,
        given: Given<'_>,
        ids: &UniqueIds,
        moment: Moment,
    ) -> Packed {
        let wait = message.properties.get(property::WAIT) != Some("false");
        if self.len() >= self.limit_messages || self.wait.is_some_and(|shared| shared != wait) {
            return Packed::Full;
        }
        let is_alone = message.asks_for_later();
        if self.is_alone || (is_alone && self.len() > 0) {
            return Packed::Full;
        }
        self.scratch.clear();
        let keys_before = (self.keys.text.len(), self.keys.ends.len());
        complete(message, given, ids, moment, &mut self.scratch, &mut self.keys);
        let item = BatchItem { flag: message.flag, body: &message.body, properties: &self.scratch };
        if !self.body.is_empty() && self.body.len() + item.size() > self.limit_bytes {
            self.keys.text.truncate(keys_before.0);
            self.keys.ends.truncate(keys_before.1);
            return Packed::Full;
        }
        assert_eq!(self.len(), keys_before.1 + 1, "each message of a batch has one unique key");
        item.encode(&mut self.body).expect("body and properties were checked against tighter limits");
        assert!(
            self.body.len() <= self.limit_bytes || self.len() == 1,
            "only a message that goes alone is longer than a batch: {} bytes",
            self.body.len()
        );
        self.message_bytes += message.body.len();
        self.wait = Some(wait);
        self.is_alone = is_alone;
        Packed::Added
    }

    /// Takes the batch and starts an empty one. The request has its own unique key.
    pub(crate) fn finish(&mut self, topic: &str, ids: &UniqueIds, moment: Moment) -> Outgoing {
        assert!(self.len() > 0, "a batch that is sent has a message");
        let wait = self.wait.take().unwrap_or(true);
        self.is_alone = false;
        let mut text = Vec::with_capacity(64);
        properties_text::push(&mut text, property::WAIT, if wait { "true" } else { "false" });
        properties_text::push(&mut text, property::UNIQUE_KEY, &ids.next(moment).to_string());
        let next = Vec::with_capacity(self.body.len());
        Outgoing {
            topic: topic.to_owned(),
            body: std::mem::replace(&mut self.body, next).into(),
            properties: text_of(text),
            flag: 0,
            sys_flag: 0,
            keys: std::mem::take(&mut self.keys),
            message_bytes: std::mem::take(&mut self.message_bytes),
            batch: true,
            is_reply: false,
            born_at_ms: moment.now_ms,
            retried: None,
        }
    }

    /// Drops the batch.
    pub(crate) fn clear(&mut self) {
        self.body.clear();
        self.keys = KeyList::default();
        self.message_bytes = 0;
        self.wait = None;
        self.is_alone = false;
    }
}

//! Sends, made once. What differs from message to message is written into their bytes.

use bytes::{Bytes, BytesMut};
use rocketpy_env::{now_ms, random_u64};
use rocketpy_model::{MessageQueue, property};
use rocketpy_protocol::batch::BatchItem;
use rocketpy_protocol::{SerializeType, properties_text};

use super::LoadOptions;
use crate::wire;

/// Where the opaque stands in a frame whose header has the binary form: behind 8 bytes of the frame, and code, language and version.
const OPAQUE_AT: usize = 8 + 2 + 1 + 2;
/// Digits of a unique key.
const KEY_BYTES: usize = 32;
/// Those that differ from message to message.
const NUMBER_BYTES: usize = 16;

/// The requests that go to one queue.
#[derive(Debug, Clone)]
pub(super) struct QueueRequests {
    single: SendRequest,
    batch: Option<SendRequest>,
}

impl QueueRequests {
    pub(super) fn new(queue: &MessageQueue, options: &LoadOptions) -> Self {
        let of = |messages| SendRequest::new(queue, &options.group, options.body_bytes, messages);
        Self { single: of(1), batch: (options.batch > 1).then(|| of(options.batch)) }
    }

    /// What is sent next of `left` messages.
    pub(super) fn next(&self, left: u64) -> &SendRequest {
        self.batch.as_ref().filter(|batch| batch.messages() as u64 <= left).unwrap_or(&self.single)
    }
}

/// The frame of a send to one queue.
#[derive(Debug, Clone)]
pub(super) struct SendRequest {
    frame: Vec<u8>,
    /// Where the unique key of each message stands.
    keys_at: Vec<usize>,
}

impl SendRequest {
    fn new(queue: &MessageQueue, group: &str, body_bytes: usize, messages: usize) -> Self {
        let key = format!("{:016X}{:016X}", random_u64(), 0);
        let properties_with = |key: &str| {
            let mut properties = Vec::new();
            properties_text::push(&mut properties, property::UNIQUE_KEY, key);
            properties_text::push(&mut properties, property::WAIT, "true");
            properties
        };
        let (batch, mut properties) = (messages > 1, properties_with(&key));
        let mut body = vec![b'x'; body_bytes];
        if batch {
            let item = BatchItem { flag: 0, body: &body, properties: &properties };
            let mut items = Vec::with_capacity(item.size() * messages);
            for _ in 0..messages {
                item.encode(&mut items).expect("bodies are bounded");
            }
            body = items;
            properties = properties_with(&format!("{:032X}", random_u64()));
        }
        let body = Bytes::from(body);
        let mut command = wire::send(&wire::Send {
            group,
            queue,
            sys_flag: 0,
            born_at_ms: now_ms(),
            flag: 0,
            properties: &String::from_utf8_lossy(&properties),
            batch,
            is_reply: false,
            reconsume_times: 0,
            max_reconsume_times: None,
            body: &body,
            default_queues: 0,
        });
        command.serialize = SerializeType::Binary;
        let mut frame = BytesMut::new();
        command.encode(&mut frame).expect("names and body are bounded");
        let parts = frame.windows(KEY_BYTES).enumerate();
        let keys_at: Vec<_> = parts.filter(|(_, part)| *part == key.as_bytes()).map(|(at, _)| at).collect();
        assert_eq!(keys_at.len(), messages, "each message has its key");
        Self { frame: frame.to_vec(), keys_at }
    }

    pub(super) fn frame_bytes(&self) -> usize {
        self.frame.len()
    }

    pub(super) fn messages(&self) -> usize {
        self.keys_at.len()
    }

    /// Appends the frame with a number for its answer. The messages get numbers from `number` on, which no others have.
    pub(super) fn write(&self, opaque: u32, number: u64, out: &mut BytesMut) {
        let start = out.len();
        out.extend_from_slice(&self.frame);
        out[start + OPAQUE_AT..start + OPAQUE_AT + 4].copy_from_slice(&opaque.to_be_bytes());
        for (number, key_at) in (number..).zip(&self.keys_at) {
            let number_at = start + key_at + KEY_BYTES - NUMBER_BYTES;
            let digits = &mut out[number_at..number_at + NUMBER_BYTES];
            for (place, digit) in digits.iter_mut().rev().enumerate() {
                *digit = b"0123456789ABCDEF"[(number >> (4 * place)) as usize & 15];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rocketpy_protocol::frame::decode_frame;
    use rocketpy_protocol::header::{Header, SendMessageRequestHeaderV2};
    use rocketpy_protocol::{Command, batch, code};

    use super::*;

    #[test]
    fn a_frame_has_its_number_and_its_key() {
        let queue = MessageQueue { topic: "t".into(), broker_name: "b".into(), queue_id: 3 };
        let request = SendRequest::new(&queue, "g", 128, 1);
        let mut bytes = BytesMut::new();
        request.write(7, 0xA5, &mut bytes);
        request.write(8, 0xA6, &mut bytes);
        for (opaque, end) in [(7, "A5"), (8, "A6")] {
            let command = Command::decode(decode_frame(&mut bytes, 1 << 20).unwrap().unwrap()).unwrap();
            assert_eq!((command.code, command.opaque), (code::request::SEND_MESSAGE_V2, opaque));
            assert_eq!(command.body.len(), 128);
            let header = SendMessageRequestHeaderV2::read(&command.ext).unwrap().0;
            assert_eq!((header.topic, header.queue_id, header.producer_group), ("t", 3, "g"));
            let key =
                header.properties.unwrap().split('\u{1}').nth(1).unwrap().split('\u{2}').next().unwrap();
            assert!(key.len() == 32 && key.ends_with(end), "{key}");
        }
    }

    #[test]
    fn a_batch_has_a_key_for_each_message_and_what_is_left_over_goes_alone() {
        let queue = MessageQueue { topic: "t".into(), broker_name: "b".into(), queue_id: 3 };
        let options = LoadOptions {
            group: "g".to_owned(),
            body_bytes: 128,
            batch: 3,
            messages: 5,
            connections: 1,
            threads: 1,
            window: 1,
            rate: None,
            credentials: None,
            tls: None,
        };
        let requests = QueueRequests::new(&queue, &options);
        assert_eq!((requests.next(3).messages(), requests.next(2).messages()), (3, 1));
        let mut bytes = BytesMut::new();
        requests.next(5).write(7, 0xA5, &mut bytes);
        let command = Command::decode(decode_frame(&mut bytes, 1 << 20).unwrap().unwrap()).unwrap();
        assert_eq!(command.code, code::request::SEND_BATCH_MESSAGE);
        assert!(SendMessageRequestHeaderV2::read(&command.ext).unwrap().0.is_batch());
        let items: Vec<_> = batch::items(&command.body).map(Result::unwrap).collect();
        for (item, end) in items.iter().zip(["A5", "A6", "A7"]) {
            let key = properties_text::get(item.properties, property::UNIQUE_KEY).unwrap();
            assert!(item.body.len() == 128 && key.ends_with(end), "{key}");
        }
        assert_eq!(items.len(), 3);
    }
}

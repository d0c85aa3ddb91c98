//! One send, made once. What differs from message to message is written into its bytes.

use bytes::{Bytes, BytesMut};
use rocketpy_env::{now_ms, random_u64};
use rocketpy_model::{MessageQueue, property};
use rocketpy_protocol::{SerializeType, properties_text};

use crate::wire;

/// Where the opaque stands in a frame whose header has the binary form: behind 8 bytes of the frame, and code, language and version.
const OPAQUE_AT: usize = 8 + 2 + 1 + 2;
/// Digits of a unique key.
const KEY_BYTES: usize = 32;
/// Those that differ from message to message.
const NUMBER_BYTES: usize = 16;

/// The frame of a send to one queue.
#[derive(Debug, Clone)]
pub(super) struct SendRequest {
    frame: Vec<u8>,
    key_at: usize,
}

impl SendRequest {
    pub(super) fn new(queue: &MessageQueue, group: &str, body_bytes: usize) -> Self {
        let key = format!("{:016X}{:016X}", random_u64(), 0);
        let mut properties = Vec::new();
        properties_text::push(&mut properties, property::UNIQUE_KEY, &key);
        properties_text::push(&mut properties, property::WAIT, "true");
        let body = Bytes::from(vec![b'x'; body_bytes]);
        let mut command = wire::send(&wire::Send {
            group,
            queue,
            sys_flag: 0,
            born_at_ms: now_ms(),
            flag: 0,
            properties: &String::from_utf8_lossy(&properties),
            batch: false,
            is_reply: false,
            reconsume_times: 0,
            max_reconsume_times: None,
            body: &body,
            default_queues: 0,
        });
        command.serialize = SerializeType::Binary;
        let mut frame = BytesMut::new();
        command.encode(&mut frame).expect("names and body are bounded");
        let key_at = find(&frame, key.as_bytes());
        Self { frame: frame.to_vec(), key_at }
    }

    /// Appends the frame with a number for its answer, and one that no other message has.
    pub(super) fn write(&self, opaque: u32, number: u64, out: &mut BytesMut) {
        let start = out.len();
        out.extend_from_slice(&self.frame);
        out[start + OPAQUE_AT..start + OPAQUE_AT + 4].copy_from_slice(&opaque.to_be_bytes());
        let number_at = start + self.key_at + KEY_BYTES - NUMBER_BYTES;
        let digits = &mut out[number_at..number_at + NUMBER_BYTES];
        for (place, digit) in digits.iter_mut().rev().enumerate() {
            *digit = b"0123456789ABCDEF"[(number >> (4 * place)) as usize & 15];
        }
    }
}

fn find(bytes: &[u8], text: &[u8]) -> usize {
    bytes.windows(text.len()).position(|window| window == text).expect("the frame has the key")
}

#[cfg(test)]
mod tests {
    use rocketpy_protocol::frame::decode_frame;
    use rocketpy_protocol::header::{Header, SendMessageRequestHeaderV2};
    use rocketpy_protocol::{Command, code};

    use super::*;

    #[test]
    fn a_frame_has_its_number_and_its_key() {
        let queue = MessageQueue { topic: "t".into(), broker_name: "b".into(), queue_id: 3 };
        let request = SendRequest::new(&queue, "g", 128);
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
}

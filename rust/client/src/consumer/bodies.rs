//! The bodies of a poll, decompressed before a message is handed out.

use bytes::Bytes;
use rocketpy_model::{MessageQueue, QueueOffset};
use rocketpy_protocol::compression::{CompressionError, DecompressLimits};
use rocketpy_protocol::record::RecordView;

use super::batch::{PulledBatch, PulledPart};
use super::pull_consumer::PullConsumer;
use crate::error::ClientError;

/// Most bytes of decompressed bodies that are kept for one poll. Those beyond are decompressed again when they are asked for.
const MAX_KEPT_BYTES: usize = 64 << 20;

impl PullConsumer {
    /// Decompresses the bodies that [`poll`](Self::poll) returned, and stops in each queue before a message whose body does not
    /// decompress within the limits. It works on the caller's thread.
    ///
    /// Messages before it and those of other queues are returned. Its queue goes back: the error repeats until a
    /// [`seek`](Self::seek) skips the message, or another consumer with a greater limit reads it.
    ///
    /// # Errors
    /// [`ClientError::UnreadableBody`].
    pub fn read_bodies(&self, batch: PulledBatch) -> Result<PulledBatch, ClientError> {
        let Readable { batch, left, first } = readable(batch, &self.body_limits(), MAX_KEPT_BYTES);
        self.take_back(&left);
        match first {
            Some(error) if batch.is_empty() => Err(error),
            Some(error) => {
                self.member().state.lock().fail(error);
                Ok(batch)
            }
            None => Ok(batch),
        }
    }

    /// Limits for decompressed bodies. See [`ConsumerConfig::max_body_bytes`](crate::ConsumerConfig::max_body_bytes).
    pub fn body_limits(&self) -> DecompressLimits {
        self.member().config.max_body_bytes.map_or(DecompressLimits::MESSAGE, DecompressLimits::up_to)
    }
}

struct Readable {
    batch: PulledBatch,
    /// Queues with an unreadable body, and its offset.
    left: Vec<(MessageQueue, QueueOffset)>,
    first: Option<ClientError>,
}

/// Cuts each queue's messages before the first unreadable body, and keeps up to `room` bytes of decompressed ones.
fn readable(pulled: PulledBatch, limits: &DecompressLimits, mut room: usize) -> Readable {
    let messages = pulled.len();
    let mut all = Readable { batch: PulledBatch::default(), left: Vec::new(), first: None };
    for mut part in pulled.into_parts() {
        if all.left.iter().any(|(queue, _)| *queue == **part.queue()) {
            continue;
        }
        let Decompressed { kept, unreadable } = decompress(&part, limits, &mut room);
        part.keep_bodies(kept);
        let Some((index, reason)) = unreadable else {
            all.batch.push(part);
            continue;
        };
        let (queue, at) = ((**part.queue()).clone(), part.spans()[index].queue_offset);
        all.first.get_or_insert_with(|| error_of(&queue, at, &part.record(index), &reason));
        all.left.push((queue, at));
        all.batch.push(part.split_front(index));
    }
    let kept = all.batch.len();
    assert!(kept <= messages, "no message is added by reading its body: {kept} of {messages}");
    assert_eq!(
        all.left.is_empty(),
        all.first.is_none(),
        "a queue is left at its first unreadable body, with the reason"
    );
    all
}

struct Decompressed {
    /// Bodies with the index of their message.
    kept: Vec<(usize, Bytes)>,
    /// The first message whose body cannot be read.
    unreadable: Option<(usize, CompressionError)>,
}

fn decompress(part: &PulledPart, limits: &DecompressLimits, room: &mut usize) -> Decompressed {
    let mut kept = Vec::new();
    for (index, _) in part.spans().iter().enumerate().filter(|(_, span)| span.is_compressed) {
        match part.record(index).plain_body(limits) {
            Ok(body) if body.len() <= *room => {
                *room -= body.len();
                kept.push((index, body.into_owned().into()));
            }
            Ok(_) => {}
            Err(reason) => return Decompressed { kept, unreadable: Some((index, reason)) },
        }
    }
    Decompressed { kept, unreadable: None }
}

fn error_of(
    queue: &MessageQueue,
    queue_offset: QueueOffset,
    record: &RecordView<'_>,
    reason: &CompressionError,
) -> ClientError {
    let limit_bytes = match reason {
        CompressionError::TooLarge { limit, .. } => Some(*limit),
        _ => None,
    };
    ClientError::UnreadableBody {
        queue: queue.clone(),
        queue_offset,
        physical_offset: record.physical_offset,
        reason: reason.to_string(),
        limit_bytes,
    }
}

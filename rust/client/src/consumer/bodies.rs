//! A poll that checks every body before it hands out a message.

use std::time::Duration;

use rocketpy_model::{MessageQueue, QueueOffset};
use rocketpy_protocol::compression::{CompressionError, DecompressLimits};
use rocketpy_protocol::record::RecordView;

use super::batch::{PulledBatch, PulledPart};
use super::pull_consumer::PullConsumer;
use crate::error::ClientError;

impl PullConsumer {
    /// As [`poll`](Self::poll), but stops in each queue before a message whose body does not decompress within the limits.
    ///
    /// Messages before it and those of other queues are handed out. Its queue does not advance: the error repeats until a
    /// [`seek`](Self::seek) skips the message, or another consumer with a greater limit reads it.
    ///
    /// # Errors
    /// [`ClientError::UnreadableBody`]; those of [`poll`](Self::poll).
    ///
    /// # Cancel safety
    /// Nothing is handed out when the future is dropped before it is ready.
    pub async fn poll_bodies(
        &self,
        max_messages: usize,
        max_wait: Duration,
    ) -> Result<PulledBatch, ClientError> {
        let batch = self.poll(max_messages, max_wait).await?;
        // No await between the poll and `take_back`: if the future were dropped there, messages would be lost.
        let Readable { batch, left, first } = readable(batch, &self.body_limits());
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

/// Cuts each queue's messages before the first unreadable body.
fn readable(pulled: PulledBatch, limits: &DecompressLimits) -> Readable {
    let mut all = Readable { batch: PulledBatch::default(), left: Vec::new(), first: None };
    for mut part in pulled.into_parts() {
        if all.left.iter().any(|(queue, _)| *queue == **part.queue()) {
            continue;
        }
        let Some((index, reason)) = first_unreadable(&part, limits) else {
            all.batch.push(part);
            continue;
        };
        let (queue, at) = ((**part.queue()).clone(), part.spans()[index].queue_offset);
        all.first.get_or_insert_with(|| error_of(&queue, at, &part.record(index), &reason));
        all.left.push((queue, at));
        all.batch.push(part.split_front(index));
    }
    all
}

fn first_unreadable(part: &PulledPart, limits: &DecompressLimits) -> Option<(usize, CompressionError)> {
    let unreadable =
        |(index, record): (usize, RecordView<'_>)| Some((index, record.plain_body(limits).err()?));
    part.iter().enumerate().find_map(unreadable)
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

//! Decodes the answer of a pull into messages that can be handed out.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use rocketpy_filter::TagFilter;
use rocketpy_model::{MessageQueue, QueueOffset, sys_flag};
use rocketpy_protocol::Command;
use rocketpy_protocol::code::response;
use rocketpy_protocol::header::PullMessageResponseHeader;
use rocketpy_protocol::record::{RecordView, records};

use super::batch::{PulledPart, RecordSpan};
use super::pulled::Pulled;
use crate::damage::Damaged;
use crate::error::ClientError;
use crate::{outcome, wire};

/// A decoded answer, and which broker to ask next.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) kind: Kind,
    pub(crate) pulled: Pulled,
    pub(crate) suggested_broker_id: u64,
    /// Whether the queue has the offset that was asked for.
    pub(crate) exists: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Messages, but perhaps none that passes the filter.
    Found,
    /// No message at the offset yet.
    NothingNew,
    /// No match as far as the broker scanned.
    NoMatch,
    /// The requested offset does not exist, or is not that of the group any longer.
    Moved,
}

/// Reads the answer to a pull of `queue` at `asked`.
///
/// # Errors
/// [`ClientError::Refused`], [`ClientError::BadAnswer`], [`ClientError::Unsupported`] for inner batches;
/// [`ClientError::DamagedMessage`] when the answer begins with one. Messages before a damaged one are returned, and the next pull
/// starts at it.
///
/// # Source
/// docs/reference/client.md 9.3, docs/reference/protocol.md 5.3.
pub(crate) fn read_answer(
    operation: &'static str,
    address: &str,
    queue: &Arc<MessageQueue>,
    asked: QueueOffset,
    filter: &TagFilter,
    answer: Command,
) -> Result<Answer, ClientError> {
    let kind = match answer.code {
        response::SUCCESS => Kind::Found,
        response::PULL_NOT_FOUND => Kind::NothingNew,
        response::PULL_RETRY_IMMEDIATELY => Kind::NoMatch,
        response::PULL_OFFSET_MOVED => Kind::Moved,
        _ => return Err(outcome::refused(operation, address, &answer)),
    };
    let header: PullMessageResponseHeader<'_> = wire::header(operation, address, &answer)?;
    let mut next = wire::offset(operation, address, header.next_begin_offset)?;
    let max_offset = QueueOffset(u64::try_from(header.max_offset).unwrap_or(0));
    let min_offset = QueueOffset(u64::try_from(header.min_offset).unwrap_or(0));
    let suggested_broker_id = u64::try_from(header.suggest_which_broker_id).unwrap_or(0);
    let part = if kind == Kind::Found {
        let delta = header.offset_delta.unwrap_or(0);
        let numbers = Numbers { delta, range: asked..next };
        let Spans { spans, damaged } =
            spans(&answer.body, &numbers, filter).map_err(|error| error.into_error(operation, address))?;
        if let Some(damaged) = damaged {
            if spans.is_empty() {
                return Err(damaged.into_error(queue));
            }
            next = damaged.queue_offset;
        }
        Some(PulledPart::new(queue.clone(), answer.body, spans.into(), max_offset))
    } else {
        None
    };
    let moved = (kind == Kind::Moved).then_some(asked);
    let exists = (min_offset..=max_offset).contains(&asked);
    Ok(Answer { kind, pulled: Pulled { part, next, end: max_offset, moved }, suggested_broker_id, exists })
}

/// Reads one stored record, which no filter chose.
///
/// # Errors
/// [`ClientError::BadAnswer`] for what is not one record, [`ClientError::DamagedMessage`], [`ClientError::Unsupported`] for an inner
/// batch.
pub(crate) fn read_one(broker_name: &str, body: Bytes) -> Result<PulledPart, ClientError> {
    let failed = |error: Undecodable| error.into_error("direct consumption", broker_name);
    let undecodable = |reason: String| failed(Undecodable::Record(reason));
    let record = RecordView::parse(&body).map_err(|error| undecodable(error.to_string()))?;
    if record.size() != body.len() {
        return Err(undecodable("more than one record".to_owned()));
    }
    let (queue, at) = (MessageQueue::new(record.topic, broker_name, record.queue_id), record.queue_offset);
    let (queue, numbers) = (Arc::new(queue), Numbers { delta: 0, range: at..at });
    let Spans { spans, damaged } =
        spans(&body, &numbers, &TagFilter::parse(TagFilter::EVERYTHING)).map_err(failed)?;
    match damaged {
        Some(damaged) => Err(damaged.into_error(&queue)),
        None => Ok(PulledPart::new(queue, body, spans.into(), at)),
    }
}

enum Undecodable {
    Record(String),
    InnerBatch,
}

impl Undecodable {
    fn into_error(self, operation: &'static str, address: &str) -> ClientError {
        match self {
            Self::Record(reason) => outcome::bad_answer(operation, address, reason),
            Self::InnerBatch => {
                ClientError::Unsupported { feature: "inner batch", property: "INNER_NUM".to_owned() }
            }
        }
    }
}

/// The numbers that the records of an answer may have.
struct Numbers {
    /// What is added to the number in a record.
    delta: i64,
    /// From the number that was asked for up to where the next pull begins.
    range: Range<QueueOffset>,
}

impl Numbers {
    /// The number of a record that follows on `spans`, damaged or not: its own where that is possible, else the first that is.
    fn of_damaged(&self, stated: Option<QueueOffset>, spans: &[RecordSpan]) -> QueueOffset {
        let least = spans.last().map_or(self.range.start, |last| last.queue_offset + 1);
        stated.filter(|stated| (least..self.range.end).contains(stated)).unwrap_or(least)
    }

    fn of(&self, record: &RecordView<'_>) -> QueueOffset {
        QueueOffset(record.queue_offset.get().wrapping_add_signed(self.delta))
    }
}

/// The positions of the records of an answer.
struct Spans {
    spans: Vec<RecordSpan>,
    /// The first record that is not what was stored; `spans` end before it.
    damaged: Option<Damaged>,
}

/// Finds the records that pass the filter. Parses every record, so that handing it out cannot fail, and compares it with its
/// checksum first: its tag may be what is damaged.
fn spans(body: &[u8], numbers: &Numbers, filter: &TagFilter) -> Result<Spans, Undecodable> {
    const INNER_BATCH: i32 = sys_flag::NEED_UNWRAP | sys_flag::INNER_BATCH;
    let mut spans = Vec::with_capacity((body.len() / 128).min(4096));
    let mut start = 0;
    for record in records(body) {
        let record: RecordView<'_> = match record {
            Ok(record) => record,
            Err(error) => {
                let queue_offset = numbers.of_damaged(None, &spans);
                return match Damaged::find_undecodable(&body[start..], &error, queue_offset) {
                    Some(damaged) => Ok(Spans { spans, damaged: Some(damaged) }),
                    None => Err(Undecodable::Record(error.to_string())),
                };
            }
        };
        let queue_offset = numbers.of(&record);
        if let Some(damaged) = Damaged::find(&record, numbers.of_damaged(Some(queue_offset), &spans)) {
            return Ok(Spans { spans, damaged: Some(damaged) });
        }
        if record.sys_flag & INNER_BATCH == INNER_BATCH {
            return Err(Undecodable::InnerBatch);
        }
        // The broker compared only the hashes of tags.
        if filter.is_all() || filter.accepts_tag(record.tag()) {
            spans.push(RecordSpan {
                queue_offset,
                start: start as u32,
                size_bytes: record.size() as u32,
                is_compressed: !matches!(record.compression(), Ok(None)),
            });
        }
        start += record.size();
    }
    Ok(Spans { spans, damaged: None })
}

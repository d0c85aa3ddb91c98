//! Decodes the answer of a pull into messages that can be handed out.

use std::sync::Arc;

use rocketpy_filter::TagFilter;
use rocketpy_model::{MessageQueue, QueueOffset, sys_flag};
use rocketpy_protocol::Command;
use rocketpy_protocol::code::response;
use rocketpy_protocol::header::PullMessageResponseHeader;
use rocketpy_protocol::record::{RecordView, records};

use super::batch::{PulledPart, RecordSpan};
use super::state::Pulled;
use crate::damage::Damaged;
use crate::error::ClientError;
use crate::{outcome, wire};

/// A decoded answer, and which broker to ask next.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) kind: Kind,
    pub(crate) pulled: Pulled,
    pub(crate) suggested_broker_id: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Messages, but perhaps none that passes the filter.
    Found,
    /// No message at the offset yet.
    NothingNew,
    /// No match as far as the broker scanned.
    NoMatch,
    /// The requested offset does not exist.
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
    let suggested_broker_id = u64::try_from(header.suggest_which_broker_id).unwrap_or(0);
    let part = if kind == Kind::Found {
        let delta = header.offset_delta.unwrap_or(0);
        let Spans { spans, damaged } = spans(&answer.body, delta, filter).map_err(|error| match error {
            Undecodable::Record(reason) => outcome::bad_answer(operation, address, reason),
            Undecodable::InnerBatch => {
                ClientError::Unsupported { feature: "inner batch", property: "INNER_NUM".to_owned() }
            }
        })?;
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
    let moved_from = (kind == Kind::Moved).then_some(asked);
    Ok(Answer { kind, pulled: Pulled { part, next, moved_from }, suggested_broker_id })
}

enum Undecodable {
    Record(String),
    InnerBatch,
}

/// The positions of the records of an answer.
struct Spans {
    spans: Vec<RecordSpan>,
    /// The first record whose body does not match its checksum; `spans` end before it.
    damaged: Option<Damaged>,
}

/// Finds the records that pass the filter. Parses every record, so that handing it out cannot fail, and compares the bodies with
/// their checksums.
fn spans(body: &[u8], delta: i64, filter: &TagFilter) -> Result<Spans, Undecodable> {
    const INNER_BATCH: i32 = sys_flag::NEED_UNWRAP | sys_flag::INNER_BATCH;
    let mut spans = Vec::with_capacity((body.len() / 128).min(4096));
    let mut start = 0;
    for record in records(body) {
        let record: RecordView<'_> = record.map_err(|error| Undecodable::Record(error.to_string()))?;
        if record.sys_flag & INNER_BATCH == INNER_BATCH {
            return Err(Undecodable::InnerBatch);
        }
        // The broker compared only the hashes of tags.
        if filter.is_all() || filter.accepts_tag(record.tag()) {
            let queue_offset = QueueOffset(record.queue_offset.get().wrapping_add_signed(delta));
            if let Some(damaged) = Damaged::find(&record, queue_offset) {
                return Ok(Spans { spans, damaged: Some(damaged) });
            }
            spans.push(RecordSpan { queue_offset, start: start as u32, size_bytes: record.size() as u32 });
        }
        start += record.size();
    }
    Ok(Spans { spans, damaged: None })
}

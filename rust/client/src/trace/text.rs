//! The text of trace records.
//!
//! # Source
//! docs/reference/client.md 6.2.

use std::fmt::{self, Display, Write};

use super::record::{
    ConsumeResult, TraceRecord, TracedBegin, TracedEnd, TracedKind, TracedRecall, TracedSend,
    TracedTransaction,
};

const FIELD_SEPARATOR: char = '\u{1}';
const RECORD_SEPARATOR: char = '\u{2}';
/// What a missing text is written as.
const MISSING: &str = "null";

impl<'a> TraceRecord<'a> {
    /// Reads the records of one trace message. Records that are not known or cannot be read are passed over: traces are written by
    /// clients of any version.
    pub fn read_all(text: &'a str) -> impl Iterator<Item = Self> {
        text.split(RECORD_SEPARATOR).filter_map(Self::read)
    }

    fn read(text: &'a str) -> Option<Self> {
        // Those of the cloud end with a separator.
        let fields: Vec<&str> = text.trim_end_matches(FIELD_SEPARATOR).split(FIELD_SEPARATOR).collect();
        Some(match fields[..] {
            [
                "Pub",
                at,
                region,
                group,
                topic,
                msg_id,
                tag,
                keys,
                store_host,
                bytes,
                cost,
                kind,
                ref rest @ ..,
            ] => {
                let (offset_msg_id, success, client_host) = match rest {
                    [success] => (None, *success, None),
                    [id, success] => (given(id), *success, None),
                    [id, success, host, ..] => (given(id), *success, given(host)),
                    [] => return None,
                };
                Self::Sent(TracedSend {
                    at_ms: at.parse().ok()?,
                    region,
                    group,
                    topic,
                    msg_id,
                    tag: given(tag),
                    keys: given(keys),
                    store_host,
                    body_bytes: bytes.parse().ok()?,
                    cost_ms: cost.parse().ok()?,
                    kind: nth(&TracedKind::ALL, kind),
                    offset_msg_id,
                    success: is_true(success),
                    client_host,
                })
            }
            ["SubBefore", at, region, group, request_id, msg_id, retries, ref rest @ ..] => {
                Self::Began(TracedBegin {
                    at_ms: at.parse().ok()?,
                    region,
                    group,
                    request_id,
                    msg_id,
                    retries: retries.parse().ok()?,
                    keys: rest.first().and_then(|keys| given(keys)),
                })
            }
            ["SubAfter", request_id, msg_id, cost, success, ref rest @ ..] => Self::Ended(TracedEnd {
                request_id,
                msg_id,
                cost_ms: cost.parse().ok()?,
                success: is_true(success),
                keys: rest.first().and_then(|keys| given(keys)),
                result: rest.get(1).and_then(|code| nth(&ConsumeResult::ALL, code)),
                at_ms: rest.get(2).and_then(|at| at.parse().ok()),
                group: rest.get(3).and_then(|group| given(group)),
            }),
            [
                "EndTransaction",
                at,
                region,
                group,
                topic,
                msg_id,
                tag,
                keys,
                store_host,
                _,
                id,
                state,
                from_check,
                ..,
            ] => Self::TransactionEnded(TracedTransaction {
                at_ms: at.parse().ok()?,
                region,
                group,
                topic,
                msg_id,
                tag: given(tag),
                keys: given(keys),
                store_host,
                transaction_id: given(id),
                state,
                from_check: is_true(from_check),
            }),
            ["Recall", at, region, group, topic, msg_id, success, ..] => Self::Recalled(TracedRecall {
                at_ms: at.parse().ok()?,
                region,
                group,
                topic,
                msg_id,
                success: is_true(success),
            }),
            _ => return None,
        })
    }
}

/// Writes the record as it stands in a trace message.
impl Display for TraceRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent(record) => {
                let kind = record.kind.unwrap_or(TracedKind::Normal) as u8;
                let offset_msg_id = Text(record.offset_msg_id);
                write(
                    f,
                    "Pub",
                    &[
                        &record.at_ms,
                        &text(record.region),
                        &text(record.group),
                        &text(record.topic),
                        &text(record.msg_id),
                        &Text(record.tag),
                        &Text(record.keys),
                        &text(record.store_host),
                        &record.body_bytes,
                        &record.cost_ms,
                        &kind,
                        &offset_msg_id,
                        &record.success,
                        &Text(record.client_host),
                    ],
                )
            }
            Self::Began(record) => write(
                f,
                "SubBefore",
                &[
                    &record.at_ms,
                    &text(record.region),
                    &text(record.group),
                    &text(record.request_id),
                    &text(record.msg_id),
                    &record.retries,
                    &Text(record.keys),
                ],
            ),
            Self::Ended(record) => {
                let result = record.result.unwrap_or(if record.success {
                    ConsumeResult::Success
                } else {
                    ConsumeResult::Failed
                });
                write(
                    f,
                    "SubAfter",
                    &[
                        &text(record.request_id),
                        &text(record.msg_id),
                        &record.cost_ms,
                        &record.success,
                        &Text(record.keys),
                        &(result as u8),
                        &record.at_ms.unwrap_or(0),
                        &Text(record.group),
                    ],
                )
            }
            Self::TransactionEnded(record) => write(
                f,
                "EndTransaction",
                &[
                    &record.at_ms,
                    &text(record.region),
                    &text(record.group),
                    &text(record.topic),
                    &text(record.msg_id),
                    &Text(record.tag),
                    &Text(record.keys),
                    &text(record.store_host),
                    &(TracedKind::Commit as u8),
                    &Text(record.transaction_id),
                    &text(record.state),
                    &record.from_check,
                ],
            ),
            Self::Recalled(record) => write(
                f,
                "Recall",
                &[
                    &record.at_ms,
                    &text(record.region),
                    &text(record.group),
                    &text(record.topic),
                    &text(record.msg_id),
                    &record.success,
                ],
            ),
        }
    }
}

fn write(f: &mut fmt::Formatter<'_>, kind: &str, fields: &[&dyn Display]) -> fmt::Result {
    f.write_str(kind)?;
    for field in fields {
        write!(f, "{FIELD_SEPARATOR}{field}")?;
    }
    f.write_char(RECORD_SEPARATOR)
}

/// A text without separators.
struct Text<'a>(Option<&'a str>);

fn text(text: &str) -> Text<'_> {
    Text(Some(text))
}

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut pieces = self.0.unwrap_or(MISSING).split([FIELD_SEPARATOR, RECORD_SEPARATOR]);
        f.write_str(pieces.next().unwrap_or_default())?;
        pieces.try_for_each(|piece| write!(f, "?{piece}"))
    }
}

fn given(text: &str) -> Option<&str> {
    (!text.is_empty() && text != MISSING).then_some(text)
}

/// Anything else is false, as for Java.
fn is_true(text: &str) -> bool {
    text.eq_ignore_ascii_case("true")
}

fn nth<T: Copy>(all: &[T], number: &str) -> Option<T> {
    all.get(number.parse::<usize>().ok()?).copied()
}

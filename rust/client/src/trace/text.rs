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
/// First fields of the records.
const SENT: &str = "Pub";
const BEGAN: &str = "SubBefore";
const ENDED: &str = "SubAfter";
const TRANSACTION_ENDED: &str = "EndTransaction";
const RECALLED: &str = "Recall";
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
        let (kind, fields) = fields.split_first()?;
        match *kind {
            SENT => TracedSend::read(fields).map(Self::Sent),
            BEGAN => TracedBegin::read(fields).map(Self::Began),
            ENDED => TracedEnd::read(fields).map(Self::Ended),
            TRANSACTION_ENDED => TracedTransaction::read(fields).map(Self::TransactionEnded),
            RECALLED => TracedRecall::read(fields).map(Self::Recalled),
            _ => None,
        }
    }
}

/// Writes the record as it stands in a trace message.
impl Display for TraceRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent(record) => record.write(f),
            Self::Began(record) => record.write(f),
            Self::Ended(record) => record.write(f),
            Self::TransactionEnded(record) => record.write(f),
            Self::Recalled(record) => record.write(f),
        }
    }
}

impl<'a> TracedSend<'a> {
    fn read(fields: &[&'a str]) -> Option<Self> {
        let [at, region, group, topic, msg_id, tag, keys, store_host, bytes, cost, kind, ref rest @ ..] =
            *fields
        else {
            return None;
        };
        let (offset_msg_id, success, client_host) = match rest {
            [success] => (None, *success, None),
            [id, success] => (given(id), *success, None),
            [id, success, host, ..] => (given(id), *success, given(host)),
            [] => return None,
        };
        Some(Self {
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

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.unwrap_or(TracedKind::Normal) as u8;
        let fields: [&dyn Display; 14] = [
            &self.at_ms,
            &text(self.region),
            &text(self.group),
            &text(self.topic),
            &text(self.msg_id),
            &Text(self.tag),
            &Text(self.keys),
            &text(self.store_host),
            &self.body_bytes,
            &self.cost_ms,
            &kind,
            &Text(self.offset_msg_id),
            &self.success,
            &Text(self.client_host),
        ];
        write(f, SENT, &fields)
    }
}

impl<'a> TracedBegin<'a> {
    fn read(fields: &[&'a str]) -> Option<Self> {
        let [at, region, group, request_id, msg_id, retries, ref rest @ ..] = *fields else { return None };
        Some(Self {
            at_ms: at.parse().ok()?,
            region,
            group,
            request_id,
            msg_id,
            retries: retries.parse().ok()?,
            keys: rest.first().and_then(|keys| given(keys)),
        })
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: [&dyn Display; 7] = [
            &self.at_ms,
            &text(self.region),
            &text(self.group),
            &text(self.request_id),
            &text(self.msg_id),
            &self.retries,
            &Text(self.keys),
        ];
        write(f, BEGAN, &fields)
    }
}

impl<'a> TracedEnd<'a> {
    fn read(fields: &[&'a str]) -> Option<Self> {
        let [request_id, msg_id, cost, success, ref rest @ ..] = *fields else { return None };
        Some(Self {
            request_id,
            msg_id,
            cost_ms: cost.parse().ok()?,
            success: is_true(success),
            keys: rest.first().and_then(|keys| given(keys)),
            result: rest.get(1).and_then(|code| nth(&ConsumeResult::ALL, code)),
            at_ms: rest.get(2).and_then(|at| at.parse().ok()),
            group: rest.get(3).and_then(|group| given(group)),
        })
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unstated = if self.success { ConsumeResult::Success } else { ConsumeResult::Failed };
        let result = self.result.unwrap_or(unstated) as u8;
        let fields: [&dyn Display; 8] = [
            &text(self.request_id),
            &text(self.msg_id),
            &self.cost_ms,
            &self.success,
            &Text(self.keys),
            &result,
            &self.at_ms.unwrap_or(0),
            &Text(self.group),
        ];
        write(f, ENDED, &fields)
    }
}

impl<'a> TracedTransaction<'a> {
    fn read(fields: &[&'a str]) -> Option<Self> {
        let [at, region, group, topic, msg_id, tag, keys, store_host, _kind, id, state, from_check, ..] =
            *fields
        else {
            return None;
        };
        Some(Self {
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
        })
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: [&dyn Display; 12] = [
            &self.at_ms,
            &text(self.region),
            &text(self.group),
            &text(self.topic),
            &text(self.msg_id),
            &Text(self.tag),
            &Text(self.keys),
            &text(self.store_host),
            &(TracedKind::Commit as u8),
            &Text(self.transaction_id),
            &text(self.state),
            &self.from_check,
        ];
        write(f, TRANSACTION_ENDED, &fields)
    }
}

impl<'a> TracedRecall<'a> {
    fn read(fields: &[&'a str]) -> Option<Self> {
        let [at, region, group, topic, msg_id, success, ..] = *fields else { return None };
        Some(Self { at_ms: at.parse().ok()?, region, group, topic, msg_id, success: is_true(success) })
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: [&dyn Display; 6] = [
            &self.at_ms,
            &text(self.region),
            &text(self.group),
            &text(self.topic),
            &text(self.msg_id),
            &self.success,
        ];
        write(f, RECALLED, &fields)
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

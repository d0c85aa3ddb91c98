//! Requests for messages by physical offset and by key.

use bytes::Bytes;
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::code::response;
use rocketpy_protocol::header::{
    Header, QueryMessageRequestHeader, QueryMessageResponseHeader, ViewMessageRequestHeader,
};
use rocketpy_remoting::Response;
use rocketpy_store::{KeyKind, ReadLimits};

use crate::call::{Answer, Call, response as response_with};
use crate::refusal::Refusal;

/// VIEW_MESSAGE_BY_ID: the record that starts at a physical offset.
pub(super) fn view(Call { shared, request, .. }: Call<'_>) -> Answer {
    let header = ViewMessageRequestHeader::read(&request.ext)?;
    let offset = u64::try_from(header.offset).ok().map(PhysicalOffset);
    let record: Option<Bytes> = match offset {
        Some(offset) => shared.store.record_at(offset)?,
        None => None,
    };
    match record {
        Some(record) => Ok(Response::success().with_body(record)),
        None => Err(Refusal::NoMessageAt { offset: header.offset }),
    }
}

/// Most bytes of the records of one answer: a client takes frames of 16 MiB.
const QUERY_BYTES: u64 = 15 << 20;

/// QUERY_MESSAGE: the records of a key that were stored in a range of time.
///
/// # Source
/// docs/reference/protocol.md 2.3.6, docs/reference/store-format.md 4.5; the index types are those of Apache 5.5.0.
pub(super) fn query(Call { shared, request, .. }: Call<'_>) -> Answer {
    let header = QueryMessageRequestHeader::read(&request.ext)?;
    let is_unique = header.is_unique_key.unwrap_or(false);
    let kind = match header.index_type.unwrap_or("") {
        _ if is_unique => KeyKind::Unique,
        "" | "K" => KeyKind::Any,
        "U" => KeyKind::Unique,
        "T" => KeyKind::Tag,
        other => {
            let (field, wanted) = ("indexType", "K, U or T");
            return Err(Refusal::Value { field, wanted, value: other.to_owned() });
        }
    };
    let config = &shared.config();
    let wanted =
        if is_unique { config.default_query_max } else { u32::try_from(header.max_num).unwrap_or(0) };
    let limits =
        ReadLimits { max_messages: wanted.min(config.query_max), max_bytes: QUERY_BYTES, copies: false };
    let (begin, end) = (header.begin_timestamp, header.end_timestamp);
    let found = shared.store.query_by_key(header.topic, header.key, kind, &limits, begin, end)?;
    let is_empty = found.records.is_empty();
    let mut command = response_with(if is_empty { response::QUERY_NOT_FOUND } else { response::SUCCESS })
        .with_header(&QueryMessageResponseHeader {
            index_last_update_timestamp: found.last_stored_at_ms,
            index_last_update_phyoffset: found.last_physical_offset.to_wire(),
        });
    if is_empty {
        let (topic, key) = (header.topic, header.key);
        command.remark = Some(format!("no message of topic {topic} with key {key} was stored in that time"));
    }
    Ok(found.records.into_iter().fold(Response::from(command), Response::with_body))
}

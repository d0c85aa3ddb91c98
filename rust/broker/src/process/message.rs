//! Requests for messages by physical offset and by key.

use rocketpy_protocol::code::response;
use rocketpy_protocol::header::{
    Header, QueryMessageRequestHeader, QueryMessageResponseHeader, ViewMessageRequestHeader,
};
use rocketpy_remoting::Response;
use rocketpy_store::KeyKind;

use super::quota;
use crate::call::{Answer, Call, response as response_with};
use crate::operation::look_up::{self, KeyQuery};
use crate::refusal::Refusal;

/// VIEW_MESSAGE_BY_ID: the record that starts at a physical offset.
pub(super) fn view(Call { desk, connection, request }: Call<'_>) -> Answer {
    let header = ViewMessageRequestHeader::read(&request.ext)?;
    let record = look_up::record_at(desk.ground.store(), header.offset)?;
    quota::charge(desk, connection, (None, None), 1, record.len());
    Ok(Response::success().with_body(record))
}

/// QUERY_MESSAGE: the records of a key that were stored in a range of time.
pub(super) fn query(Call { desk, connection, request }: Call<'_>) -> Answer {
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
    let asked = KeyQuery {
        topic: header.topic,
        key: header.key,
        kind,
        max_messages: (!is_unique).then(|| u32::try_from(header.max_num).unwrap_or(0)),
        begin_ms: header.begin_timestamp,
        end_ms: header.end_timestamp,
    };
    let found = look_up::by_key(&desk.ground, &asked)?;
    let is_empty = found.records.is_empty();
    let bytes = found.records.iter().map(|record| record.len()).sum();
    quota::charge(desk, connection, (Some(header.topic), None), found.records.len(), bytes);
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

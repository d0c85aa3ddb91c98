//! Single messages by their place in the log.

use bytes::Bytes;
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::Command;
use rocketpy_protocol::header::{Header, ViewMessageRequestHeader};
use rocketpy_remoting::Response;

use super::Answer;
use crate::refusal::Refusal;
use crate::shared::Shared;

/// VIEW_MESSAGE_BY_ID: the record that starts at a physical offset.
pub(super) fn view(shared: &Shared, request: &Command) -> Answer {
    let header = ViewMessageRequestHeader::read(&request.ext)?;
    let offset = u64::try_from(header.offset).ok().map(PhysicalOffset);
    let record: Option<Bytes> = offset.and_then(|offset| shared.store.record_at(offset));
    match record {
        Some(record) => Ok(Response::success().with_body(record)),
        None => Err(Refusal::NoMessageAt { offset: header.offset }),
    }
}

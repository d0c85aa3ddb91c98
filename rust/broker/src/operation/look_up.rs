//! Messages by their places in the log, and by their keys.
//!
//! # Source
//! docs/reference/protocol.md 2.3.6, docs/reference/store-format.md 4.5; the index types are those of Apache 5.5.0.

use bytes::Bytes;
use rocketpy_env::Disk;
use rocketpy_model::PhysicalOffset;
use rocketpy_store::{KeyKind, QueryResult, ReadLimits, Store};

use crate::ground::Ground;
use crate::refusal::Refusal;

/// Maximum number of bytes of the records of one answer: a client takes frames of 16 MiB.
const QUERY_BYTES: u64 = 15 << 20;

/// The record that starts at an offset of the log.
///
/// # Errors
/// None does.
pub(crate) fn record_at(store: &Store<impl Disk>, offset: i64) -> Result<Bytes, Refusal> {
    let missing = Refusal::NoMessageAt { offset };
    let Ok(at) = u64::try_from(offset) else { return Err(missing) };
    store.record_at(PhysicalOffset(at))?.ok_or(missing)
}

/// A key of messages, and when they were stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyQuery<'a> {
    pub(crate) topic: &'a str,
    pub(crate) key: &'a str,
    pub(crate) kind: KeyKind,
    /// `None`: as many as the broker gives for a unique key.
    pub(crate) max_messages: Option<u32>,
    pub(crate) begin_ms: i64,
    pub(crate) end_ms: i64,
}

/// The records of a key that were stored in a range of time.
///
/// # Errors
/// The index cannot be read, or there is none.
pub(crate) fn by_key(ground: &Ground, asked: &KeyQuery<'_>) -> Result<QueryResult, Refusal> {
    let KeyQuery { topic, key, kind, max_messages, begin_ms, end_ms } = *asked;
    let config = ground.config();
    let wanted = max_messages.unwrap_or(config.look_ups.by_unique_key);
    let limits = ReadLimits {
        max_messages: wanted.min(config.look_ups.by_key),
        max_bytes: QUERY_BYTES,
        copies: false,
    };
    Ok(ground.store().query_by_key(topic, key, kind, &limits, begin_ms, end_ms)?)
}

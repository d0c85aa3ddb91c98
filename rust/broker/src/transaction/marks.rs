//! The marks of half messages that are over: records in `RMQ_SYS_TRANS_OP_HALF_TOPIC`.
//!
//! # Source
//! docs/reference/store-format.md 9.4.

use std::fmt::Write;

use rocketpy_env::Disk;
use rocketpy_model::{PhysicalOffset, QueueOffset, property, system};
use rocketpy_protocol::properties_text;
use rocketpy_protocol::record::{MARK_TAG, RecordView, marked_halves};
use rocketpy_store::{NewRecord, Store, StoreError};
use tracing::{error, warn};

use super::QUEUE;
use crate::put::Intake;

/// Half messages of one mark: its text stays below the 4 KiB of Apache's.
const MAX_HALVES: usize = 128;
/// Entries that are read at once.
const PAGE: usize = 1024;

/// Marks half messages as over. Returns whether that was written; otherwise some of them may be.
///
/// A mark of one message has no comma: readers of Apache's 4.x take no other.
pub(super) fn write(intake: &Intake<impl Disk>, halves: &[QueueOffset]) -> bool {
    halves.chunks(MAX_HALVES).all(|halves| {
        let mut body = halves[0].to_string();
        for half in &halves[1..] {
            let _ = write!(body, ",{half}");
        }
        let mut properties = Vec::new();
        properties_text::push(&mut properties, property::TAGS, MARK_TAG);
        properties_text::push(&mut properties, property::UNIQUE_KEY, &intake.ground().next_unique_key());
        let mark = NewRecord {
            topic: system::OP_HALF_TOPIC,
            queue_id: QUEUE,
            flag: 0,
            sys_flag: 0,
            born_at_ms: intake.store().now_ms(),
            born_host: intake.ground().store_host(),
            reconsume_times: 0,
            prepared_transaction_offset: PhysicalOffset::ZERO,
            body: body.as_bytes(),
            properties: &properties,
            may_have_crc: false,
        };
        let written = intake.store().append(&mark);
        if let Err(error) = &written {
            warn!(%error, "op message of a transaction not written, retrying");
        }
        written.is_ok()
    })
}

/// Reads all marks from an offset on.
///
/// # Errors
/// The queue or the log cannot be read.
pub(super) fn read(
    store: &Store<impl Disk>,
    from: QueueOffset,
    mut note: impl FnMut(QueueOffset),
) -> Result<(), StoreError> {
    let mut from = from;
    let end = store.queue_bounds(system::OP_HALF_TOPIC, QUEUE).max;
    while from < end {
        let entries = store.entries(system::OP_HALF_TOPIC, QUEUE, from, PAGE)?;
        let Some(last) = entries.last() else { break };
        assert!(from <= last.queue_offset, "op messages are read in their order: {from}");
        from = last.queue_offset + 1;
        for entry in &entries {
            let bytes = match store.record_at(entry.physical_offset) {
                Err(error @ StoreError::Env(_)) => return Err(error),
                Err(error) => {
                    error!(%error, "op message of a transaction damaged, its producer may receive one more check-back");
                    continue;
                }
                Ok(bytes) => bytes,
            };
            if let Some(record) = bytes.as_deref().and_then(|bytes| RecordView::parse(bytes).ok()) {
                marked_halves(&record).for_each(&mut note);
            }
        }
    }
    Ok(())
}

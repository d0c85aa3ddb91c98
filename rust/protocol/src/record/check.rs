//! Whether bytes are a whole and sound record.

use super::{MAGIC_BLANK, RecordError, RecordView, crc};
use crate::wire::Reader;

/// Which checksum a check compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckMode {
    /// None: the layout only.
    Layout,
    /// The body's.
    Body,
    /// The record's own where it has one, else the body's.
    Record,
    /// The record's own; a record without one is bad.
    #[doc(alias = "forceVerifyPropCRC")]
    RecordRequired,
}

/// What stands at a place of the commit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordCheck<'a> {
    /// A sound record.
    Record(RecordView<'a>),
    /// The filler at the end of a file; the log goes on at the next file.
    Blank {
        /// Bytes that the filler says it covers.
        remaining: u32,
    },
}

/// Checks what stands at the start of `bytes`, which reach to the end of the file's readable area.
///
/// # Errors
/// When it is neither a sound record nor the filler.
///
/// # Source
/// docs/reference/store-format.md 2.8.
#[doc(alias = "checkMessageAndReturnSize")]
#[inline]
pub fn check_record(bytes: &[u8], mode: CheckMode) -> Result<RecordCheck<'_>, RecordError> {
    let truncated = |field| RecordError::Truncated { field, available: bytes.len() };
    let mut reader = Reader::new(bytes);
    let size = reader.u32().ok_or(truncated("total_size"))?;
    let magic = reader.u32().ok_or(truncated("magic"))?;
    if magic == MAGIC_BLANK {
        if size as usize > bytes.len() {
            return Err(truncated("total_size"));
        }
        return Ok(RecordCheck::Blank { remaining: size });
    }
    let view = RecordView::parse(bytes)?;
    match mode {
        CheckMode::Layout => {}
        CheckMode::Body => check_body(&view)?,
        CheckMode::Record => match stated_crc(&view) {
            Some(stated) => check_whole(&view, stated)?,
            None => check_body(&view)?,
        },
        CheckMode::RecordRequired => {
            check_whole(&view, stated_crc(&view).ok_or(RecordError::NoRecordCrc)?)?;
        }
    }
    Ok(RecordCheck::Record(view))
}

/// Whether the bytes of one record end in a checksum that is theirs: what nearly every sound record of a store that writes them
/// does. Only the checksum is looked at, not the layout that it was made over; for a record that fails, [`check_record`] says
/// what it is.
#[must_use]
pub fn ends_in_its_crc(record: &[u8]) -> bool {
    let Some((before, property)) = record.split_last_chunk::<{ crc::CRC_PROPERTY_BYTES }>() else {
        return false;
    };
    crc::stated(property).is_some_and(|stated| stated == crc::crc31(before))
}

/// The record's own checksum, when its properties end in one.
fn stated_crc(view: &RecordView<'_>) -> Option<u32> {
    crc::stated(view.properties)
}

fn check_body(view: &RecordView<'_>) -> Result<(), RecordError> {
    let computed = crc::body_crc(view.body);
    if computed == view.body_crc {
        return Ok(());
    }
    Err(RecordError::BodyCrc { stored: view.body_crc, computed })
}

fn check_whole(view: &RecordView<'_>, stored: u32) -> Result<(), RecordError> {
    let computed = crc::crc31(&view.bytes[..view.size() - crc::CRC_PROPERTY_BYTES]);
    if computed == stored {
        return Ok(());
    }
    Err(RecordError::RecordCrc { stored, computed })
}

//! What a consume queue entry says, on top of its bytes.

pub(crate) use rocketpy_protocol::disk::ConsumeQueueEntry as Entry;

/// Length of an entry.
pub(crate) const ENTRY_BYTES: u64 = Entry::BYTES as u64;

/// Reads the entry at the start of `bytes`; `None` when they are none: an entry that was not written is all zero.
///
/// # Source
/// spec/store.md 3.1.
pub(crate) fn decode(bytes: &[u8]) -> Option<Entry> {
    let entry = Entry::decode(bytes.first_chunk()?);
    let size = entry.size_bytes as i32;
    (entry.physical_offset.to_wire() >= 0 && size > 0).then_some(entry)
}

/// Whether the entry only fills a place: before the first one of a queue that does not start at 0.
pub(crate) fn is_preblank(entry: &Entry) -> bool {
    entry.physical_offset.get() == 0 && entry.size_bytes == Entry::PRE_BLANK.size_bytes
}

/// Offset behind the record; 0 for a filler.
pub(crate) fn record_end(entry: &Entry) -> u64 {
    if is_preblank(entry) { 0 } else { entry.physical_offset.get() + u64::from(entry.size_bytes) }
}

/// First number in `low..high` whose entry is not before what is looked for; those before it come first. For an entry that
/// says nothing the nearest one to its left speaks, so that a hole hides nothing but itself.
pub(crate) fn partition_point<E>(
    mut low: u64,
    mut high: u64,
    mut is_before: impl FnMut(u64) -> Result<Option<bool>, E>,
) -> Result<u64, E> {
    while low < high {
        let middle = low + (high - low) / 2;
        let mut probe = middle;
        let mut answer = is_before(probe)?;
        while answer.is_none() && probe > low {
            probe -= 1;
            answer = is_before(probe)?;
        }
        match answer {
            Some(false) => high = probe,
            Some(true) | None => low = middle + 1,
        }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_entry_are_told() {
        assert_eq!(decode(&[0; 20]), None);
        assert_eq!(decode(&[0xff; 20]), None, "a negative offset");
        assert_eq!(decode(&[1; 19]), None);
        assert!(decode(&Entry::PRE_BLANK.encode()).is_some_and(|entry| is_preblank(&entry)));
    }
}

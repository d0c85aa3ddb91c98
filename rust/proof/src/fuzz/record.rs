//! Stored records and batches.

use rocketpy_protocol::batch::{self as wire, BatchItem};
use rocketpy_protocol::compression::DecompressLimits;
use rocketpy_protocol::properties_text;
use rocketpy_protocol::record::{CheckMode, check_record, records};

/// Records that follow each other.
pub(super) fn record(bytes: &[u8]) {
    let limits = DecompressLimits { max_bytes: 1 << 20, ..DecompressLimits::default() };
    for view in records(bytes).map_while(Result::ok) {
        assert!(view.size() <= bytes.len(), "a record ends where its bytes end");
        let _ = (view.tag(), view.keys(), view.unique_key(), view.offset_message_id().to_string());
        let _ = (view.compression(), view.plain_body(&limits));
        properties(view.properties);
    }
    for mode in [CheckMode::Layout, CheckMode::Body, CheckMode::Record, CheckMode::RecordRequired] {
        let _ = check_record(bytes, mode);
    }
    properties(bytes);
}

fn properties(text: &[u8]) {
    for (name, _) in properties_text::iter(text) {
        let mut rest = Vec::new();
        properties_text::copy_without(text, name, &mut rest);
        assert!(rest.len() <= text.len(), "less is left when one is taken out");
        assert_eq!(properties_text::get_bytes(&rest, name), None, "{name} is taken out");
    }
}

/// The body of a batch. Items that are read write to themselves.
pub(super) fn batch(bytes: &[u8]) {
    let items: Vec<BatchItem<'_>> = wire::items(bytes).map_while(Result::ok).collect();
    let mut written = Vec::new();
    for item in &items {
        item.encode(&mut written).expect("an item that was read can be written");
    }
    assert!(wire::items(&written).eq(items.iter().map(|item| Ok(*item))), "items write to themselves");
}

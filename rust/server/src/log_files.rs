//! The size of the log files that a store has already.

use rocketpy_broker::StoreConfig;
use rocketpy_env::{Disk, EntryKind, RealDisk};
use tracing::info;

use crate::ServerConfig;
use crate::config::{APACHE_LOG_FILE_BYTES, LOG_FILE_BYTES, Origin};

/// A file whose length is not a multiple of this was cut off, not allocated with that size.
const PAGE: u64 = 4096;

/// Takes over the size of the log files that the store has, unless the configuration sets one.
pub(crate) fn adopt_size(config: &mut ServerConfig) {
    let default_bytes = match config.origin(LOG_FILE_BYTES) {
        Origin::Default => StoreConfig::new("").commit_log_file_size,
        Origin::ApacheDefault(_) => APACHE_LOG_FILE_BYTES,
        _ => return,
    };
    if config.broker.store.commit_log_file_size != default_bytes {
        return;
    }
    let Some(found_bytes) = size_found(&config.broker.store) else { return };
    if found_bytes != default_bytes {
        info!(
            mappedFileSizeCommitLog = found_bytes,
            default_bytes, "existing log files differ from the default size, keeping their size"
        );
        config.broker.store.commit_log_file_size = found_bytes;
    }
}

/// The size that all log files share; `None` without a file, or when the sizes differ: the start then names what is wrong.
fn size_found(store: &StoreConfig) -> Option<u64> {
    let mut size = None;
    for dir in store.commit_log_dirs() {
        for entry in RealDisk.list(&dir).unwrap_or_default() {
            if entry.kind != EntryKind::File
                || !is_log_file(entry.name.as_encoded_bytes())
                || entry.size_bytes == 0
            {
                continue;
            }
            if *size.get_or_insert(entry.size_bytes) != entry.size_bytes {
                return None;
            }
        }
    }
    size.filter(|size| (16_384..1 << 31).contains(size) && size.is_multiple_of(PAGE))
}

/// Log files are named by twenty digits, the first physical offset.
fn is_log_file(name: &[u8]) -> bool {
    name.len() == 20 && name.iter().all(u8::is_ascii_digit)
}

//! From which broker of the same name a reader pulls next: the master, or a slave while it is far behind.
//!
//! # Source
//! docs/reference/store-format.md 11.1 and 11.3.

use rocketpy_model::{GroupConfig, system};
use rocketpy_protocol::code::response;
use rocketpy_protocol::record::records;
use rocketpy_store::{Fetch, FetchStatus};

use crate::shared::Shared;

/// The brokers that a group wants to read from, by their ids.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sources {
    usual: u64,
    /// For readers that are far behind.
    slow: u64,
}

impl Sources {
    pub(crate) fn of(group: &GroupConfig) -> Self {
        Self { usual: group.broker_id, slow: group.which_broker_when_consume_slowly }
    }
}

/// The next pull of a reader: where it goes, with which offset, and the code that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) code: i32,
    pub(super) broker_id: u64,
    pub(super) offset: i64,
}

impl Next {
    /// After a read at `asked` that ended with a code.
    pub(super) fn after(shared: &Shared, sources: Sources, code: i32, asked: i64, fetch: &Fetch) -> Self {
        let offset = fetch.next_offset.to_wire();
        if !shared.config().slave_read {
            return Self { code, broker_id: system::MASTER_ID, offset };
        }
        let is_far_behind = is_far_behind(shared, fetch);
        let broker_id = if is_far_behind { sources.slow } else { sources.usual };
        if shared.role.is_master() {
            return Self { code, broker_id, offset };
        }
        // The queue may go on at the master: a slave moves nobody.
        let is_read = matches!(
            fetch.status,
            FetchStatus::Found | FetchStatus::NoMatchedMessage | FetchStatus::MessageWasRemoving
        );
        let offset = if is_read { offset } else { asked };
        if !is_far_behind && shared.master.answers() {
            let code =
                if fetch.status == FetchStatus::Found { code } else { response::PULL_RETRY_IMMEDIATELY };
            return Self { code, broker_id: system::MASTER_ID, offset };
        }
        match fetch.status {
            // The reader was further at the master than the copy is. Other than Apache's, this slave holds the pull: without a master the
            // reader would come back at once, again and again.
            FetchStatus::OffsetOverflowBadly => Self { code: response::PULL_NOT_FOUND, broker_id, offset },
            _ if code == response::PULL_OFFSET_MOVED => Self::elsewhere(sources, asked),
            _ => Self { code, broker_id, offset },
        }
    }

    /// After the reader was told to go to `to`, which only a master does.
    pub(super) fn moved(shared: &Shared, sources: Sources, asked: i64, to: i64) -> Self {
        if shared.role.is_master() {
            Self { code: response::PULL_OFFSET_MOVED, broker_id: system::MASTER_ID, offset: to }
        } else {
            Self::elsewhere(sources, asked)
        }
    }

    fn elsewhere(sources: Sources, asked: i64) -> Self {
        Self { code: response::PULL_RETRY_IMMEDIATELY, broker_id: sources.usual, offset: asked }
    }
}

/// Whether what was read lies so far from the end of the log that a master would read it from the disk.
fn is_far_behind(shared: &Shared, fetch: &Fetch) -> bool {
    let first = fetch.records.first().and_then(|bytes| records(bytes).next()?.ok());
    let end = shared.store.max_physical_offset();
    first.is_some_and(|record| end.saturating_sub(record.physical_offset) > shared.hot_bytes)
}

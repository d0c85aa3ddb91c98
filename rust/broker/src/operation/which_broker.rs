//! From which broker of the same name a reader pulls next: the master, or a slave while it is far behind.
//!
//! # Source
//! docs/reference/store-format.md 11.1 and 11.3.

use rocketpy_model::{GroupConfig, system};
use rocketpy_protocol::record::records;
use rocketpy_store::{Fetch, FetchStatus};

use crate::ground::Ground;
use crate::slave::MasterAddress;

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

/// Result of a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PullStatus {
    Found,
    /// Nothing here; a further pull may find something at once.
    RetryNow,
    /// Nothing yet.
    NotFound,
    /// The reader is at an offset that the queue does not have, or is moved to another one.
    Moved,
}

/// The next pull of a reader: where it goes, and with which offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) status: PullStatus,
    pub(crate) broker_id: u64,
    pub(crate) offset: i64,
}

impl Next {
    /// After a read at `asked` that ended with a status.
    pub(crate) fn after(
        ground: &Ground,
        master: &MasterAddress,
        sources: Sources,
        status: PullStatus,
        asked: i64,
        fetch: &Fetch,
    ) -> Self {
        let offset = fetch.next_offset.to_wire();
        if !ground.config().slave_read {
            return Self { status, broker_id: system::MASTER_ID, offset };
        }
        let is_far_behind = is_far_behind(ground, fetch);
        let broker_id = if is_far_behind { sources.slow } else { sources.usual };
        if ground.role().is_master() {
            return Self { status, broker_id, offset };
        }
        // The queue may continue at the master: a slave moves nobody.
        let is_read = matches!(
            fetch.status,
            FetchStatus::Found | FetchStatus::NoMatchedMessage | FetchStatus::MessageWasRemoving
        );
        let offset = if is_read { offset } else { asked };
        if !is_far_behind && master.answers() {
            let status = if fetch.status == FetchStatus::Found { status } else { PullStatus::RetryNow };
            return Self { status, broker_id: system::MASTER_ID, offset };
        }
        match fetch.status {
            // The reader was further at the master than the copy is. Other than Apache's, this slave holds the pull: without a master the
            // reader would come back at once, again and again.
            FetchStatus::OffsetOverflowBadly => Self { status: PullStatus::NotFound, broker_id, offset },
            _ if status == PullStatus::Moved => Self::elsewhere(sources, asked),
            _ => Self { status, broker_id, offset },
        }
    }

    /// After the reader was told to go to `to`, which only a master does.
    pub(crate) fn moved(ground: &Ground, sources: Sources, asked: i64, to: i64) -> Self {
        if ground.role().is_master() {
            Self { status: PullStatus::Moved, broker_id: system::MASTER_ID, offset: to }
        } else {
            Self::elsewhere(sources, asked)
        }
    }

    fn elsewhere(sources: Sources, asked: i64) -> Self {
        Self { status: PullStatus::RetryNow, broker_id: sources.usual, offset: asked }
    }
}

/// Whether the messages are so far from the end of the log that a master would read them from disk.
fn is_far_behind(ground: &Ground, fetch: &Fetch) -> bool {
    let first = fetch.records.first().and_then(|bytes| records(bytes).next()?.ok());
    let end = ground.store().max_physical_offset();
    first.is_some_and(|record| end.saturating_sub(record.physical_offset) > ground.hot_bytes())
}

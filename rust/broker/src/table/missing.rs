//! A start that does not find what an earlier process wrote.

use std::collections::BTreeSet;
use std::path::Path;

use rocketpy_env::Disk;
use rocketpy_protocol::body::{ConsumerOffsetSerializeWrapper, TopicConfigFile};
use rocketpy_store::Store;
use serde::Serialize;
use tracing::warn;

use super::topic::TopicTable;
use crate::config_file::ConfigFile;

/// Maximum number of topics that a warning names.
const MAX_NAMED: usize = 10;

/// Which tables a start did not find, neither the file nor its backup.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MissingTables {
    topics: bool,
    offsets: bool,
}

impl MissingTables {
    /// Looks for the tables, and writes an empty one for each that is missing: the next start can tell a table that was lost from one that
    /// never was.
    pub(crate) fn replace(disk: &impl Disk, store_root: &Path) -> Self {
        Self {
            topics: replace(disk, store_root, "topics.json", &TopicConfigFile::default()),
            offsets: replace(
                disk,
                store_root,
                "consumerOffset.json",
                &ConsumerOffsetSerializeWrapper::default(),
            ),
        }
    }

    /// Warns of what a store with messages lacks, and says the way out.
    pub(crate) fn warn(self, store: &Store<impl Disk>, topics: &TopicTable) {
        let has_messages = store.max_physical_offset() > store.min_physical_offset();
        if self.offsets && has_messages {
            warn!(
                "config/consumerOffset.json is missing on a store with messages: every group starts again where its consumers choose, by \
                 default at the end of a queue, and then skips unread messages; stop the server and copy the file from a snapshot, or set \
                 each group with `rocketpy group reset`"
            );
        }
        if self.topics && has_messages {
            warn!(
                "config/topics.json is missing on a store with messages: its topics cannot be read; stop the server and copy the file \
                 from a snapshot, or create each topic again with as many queues as it had"
            );
        }
        warn_of_unknown_topics(store, topics);
    }
}

/// Whether the table is missing; an empty one is then written.
fn replace(disk: &impl Disk, store_root: &Path, name: &str, empty: &impl Serialize) -> bool {
    let file = ConfigFile::on(disk.clone(), store_root, name);
    let is_missing = file.is_missing();
    // A start on a full disk serves what is there.
    if is_missing && let Err(error) = file.save(empty) {
        warn!(%error, "empty table not written");
    }
    is_missing
}

fn warn_of_unknown_topics(store: &Store<impl Disk>, topics: &TopicTable) {
    let queues = store.queues().into_iter().filter(|queue| queue.bounds.max > queue.bounds.min);
    let unknown: BTreeSet<_> =
        queues.map(|queue| queue.topic).filter(|topic| !topics.contains(topic)).collect();
    if !unknown.is_empty() {
        let first: Vec<&str> = unknown.iter().take(MAX_NAMED).map(|topic| &**topic).collect();
        warn!(
            topics = unknown.len(),
            first = first.join(", "),
            "store holds messages of topics that are missing from config/topics.json: create a topic again to read its messages, or create \
             and delete it to remove them"
        );
    }
}

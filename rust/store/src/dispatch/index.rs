//! From the log to the key index, where the consume queues are further.

use rocketpy_env::{Disk, EnvError};
use rocketpy_protocol::record::{CheckMode, RecordCheck, RecordView, check_record};

use super::{ROUND_KEYS, ROUND_RECORDS};
use crate::core::Core;
use crate::index::{Key, push_hashes};

impl<D: Disk> Core<D> {
    /// Adds the keys of a record, when an index is kept.
    pub(super) fn add_keys(&self, view: &RecordView<'_>, at: u64, keys: &mut Vec<Key>) {
        if self.index.is_none() {
            return;
        }
        let mut hashes = Vec::new();
        push_hashes(view.topic, view.sys_flag, view.properties, &mut hashes);
        let key = |hash| Key { hash, physical_offset: at, stored_at_ms: view.stored_at_ms };
        keys.extend(hashes.into_iter().map(key));
    }

    /// Puts the keys of what the consume queues have and the index has not.
    pub fn catch_up_index(&self) -> Result<(), EnvError> {
        use rocketpy_env::Region as _;
        let Some(index) = &self.index else { return Ok(()) };
        let limit = self.dispatched();
        let mut at = index.next();
        let mut keys = Vec::new();
        while at < limit {
            keys.clear();
            for _ in 0..ROUND_RECORDS {
                if at >= limit || keys.len() >= ROUND_KEYS {
                    break;
                }
                let file = self.log.find(at).ok_or_else(|| self.broken(at, "the file is not there"))?;
                let bytes = file.region.view(at - file.start..file.region.written());
                match check_record(bytes, CheckMode::Layout) {
                    Ok(RecordCheck::Record(view)) => {
                        self.add_keys(&view, at, &mut keys);
                        at += view.size() as u64;
                    }
                    Ok(RecordCheck::Blank { .. }) => at = file.end(),
                    Err(_) if bytes.len() < 8 => at = file.end(),
                    Err(error) => return Err(self.broken(at, &error.to_string())),
                }
            }
            index.put(&keys, at)?;
        }
        Ok(())
    }

    /// Lets the index files say by themselves what was put, while there is nothing else to do.
    pub(super) fn settle_index(&self) {
        if let Some(index) = &self.index
            && let Err(error) = index.settle()
        {
            tracing::warn!(%error, "the slots of an index file are written later");
        }
    }
}

//! Number of check-backs per half message, stored across restarts in a file of RocketPy's own.

use std::collections::BTreeMap;
use std::time::Duration;

use rocketpy_env::Disk;
use rocketpy_model::QueueOffset;
use rocketpy_store::Store;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::Checked;
use crate::config_file::ConfigFile;

const FILE: &str = "transactionChecks.json";
/// Minimum time between two writes: after a kill the questions since the last one do not count.
pub(super) const WRITE_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of half messages that the file holds; the questions for later ones count from the start on.
const MAX_COUNTS: usize = 1 << 16;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CheckCounts {
    checks: Vec<CheckCount>,
}

/// The questions for one half message. The stored time names it: a power cut may take it, and another gets its number.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CheckCount {
    queue_offset: u64,
    stored_at_ms: i64,
    times: u32,
}

impl CheckCounts {
    pub(super) fn of(checks: &BTreeMap<QueueOffset, Checked>) -> Self {
        let asked = checks.iter().filter(|(_, checked)| checked.times > 0).take(MAX_COUNTS);
        let of = |(half, checked): (&QueueOffset, &Checked)| CheckCount {
            queue_offset: half.get(),
            stored_at_ms: checked.stored_at_ms,
            times: checked.times,
        };
        Self { checks: asked.map(of).collect() }
    }

    /// Reads those of the last run. Without a readable file the questions count anew.
    pub(super) fn read(store: &Store<impl Disk>) -> BTreeMap<QueueOffset, Checked> {
        let counts = file(store).load::<Self>().unwrap_or_else(|error| {
            warn!(%error, "number of check-backs of open transactions not readable, counting from 0");
            None
        });
        let of = |count: CheckCount| {
            let (times, stored_at_ms) = (count.times, count.stored_at_ms);
            let checked = Checked { times, stored_at_ms, ..Checked::default() };
            (QueueOffset(count.queue_offset), checked)
        };
        counts.unwrap_or_default().checks.into_iter().map(of).collect()
    }

    /// Writes the file. Returns whether that succeeded.
    pub(super) fn write(&self, store: &Store<impl Disk>) -> bool {
        let saved = file(store).save(self);
        if let Err(error) = &saved {
            warn!(%error, "number of check-backs of open transactions not written, retrying");
        }
        saved.is_ok()
    }
}

fn file<D: Disk>(store: &Store<D>) -> ConfigFile<D> {
    ConfigFile::on(store.disk().clone(), &store.config().root, FILE)
}

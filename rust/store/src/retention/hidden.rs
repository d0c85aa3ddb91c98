//! What topics with an age of their own have hidden, kept over a start.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, EnvError};
use rocketpy_model::PhysicalOffset;

use crate::error::StoreError;
use crate::folder::{folder_of, make_folder};

/// Longest file that is read: a hundred bytes for each of some hundred thousand queues.
const LONGEST_FILE: u64 = 64 << 20;

/// The minimum offsets that ages of topics have moved, in the file `config/hiddenOffset.json`. Without it, a start under a clock
/// that was set back would show again what was hidden.
#[derive(Debug)]
pub(super) struct Hidden {
    path: PathBuf,
    /// By topic and queue id: records before this place of the log are hidden. A place, not a queue offset: it stays right when
    /// the topic is deleted and made again.
    places: BTreeMap<String, BTreeMap<u32, PhysicalOffset>>,
    /// The file has other places.
    is_changed: bool,
}

impl Hidden {
    /// Nothing, before the file was read.
    pub(super) fn nothing(root: &Path) -> Self {
        let path = root.join("config").join("hiddenOffset.json");
        Self { path, places: BTreeMap::new(), is_changed: false }
    }

    /// Reads the file. One that holds something else counts as empty, and stays as `.bak` when another is written.
    ///
    /// Places behind `log_end` are moved there: what is stored from now on is not hidden.
    pub(super) fn read<D: Disk>(&mut self, disk: &D, log_end: PhysicalOffset) -> Result<(), EnvError> {
        let bytes = match disk.read(&self.path, LONGEST_FILE) {
            Err(error) if error.is_not_found() => return Ok(()),
            other => other?,
        };
        self.places = serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            tracing::warn!(%error, path = %self.path.display(), "what topics have hidden is not known, it may come back");
            BTreeMap::new()
        });
        for place in self.places.values_mut().flat_map(BTreeMap::values_mut).filter(|place| **place > log_end)
        {
            *place = log_end;
            self.is_changed = true;
        }
        Ok(())
    }

    /// Topic and queue id of each queue, and before which place of the log it hides its records.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, u32, PhysicalOffset)> {
        self.places.iter().flat_map(|(topic, queues)| {
            queues.iter().map(move |(&queue_id, &place)| (topic.as_str(), queue_id, place))
        })
    }

    /// Notes that records of a queue before a place of the log are hidden.
    pub(super) fn note(&mut self, topic: &str, queue_id: u32, before: PhysicalOffset) {
        let place = self.places.entry(topic.to_owned()).or_default().entry(queue_id).or_default();
        self.is_changed |= before > *place;
        *place = before.max(*place);
    }

    /// Writes the file if it has other places. Leaves out what the log does not have any more.
    ///
    /// # Durability
    /// On return the file survives a power loss. After an error the next call tries again.
    pub(super) fn write<D: Disk>(&mut self, disk: &D, log_start: PhysicalOffset) -> Result<(), StoreError> {
        if !self.is_changed {
            return Ok(());
        }
        for queues in self.places.values_mut() {
            queues.retain(|_, place| *place > log_start);
        }
        self.places.retain(|_, queues| !queues.is_empty());
        let text = serde_json::to_vec(&self.places).expect("names and numbers become JSON");
        make_folder(disk, folder_of(&self.path))?;
        disk.replace_keeping_backup(&self.path, &text)?;
        self.is_changed = false;
        Ok(())
    }
}

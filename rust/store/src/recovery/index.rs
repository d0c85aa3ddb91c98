//! Opens the key index of a store that is recovered.

use rocketpy_env::{Disk, EnvError};
use rocketpy_model::PhysicalOffset;

use super::Recovery;
use crate::checkpoint::MarkWriter;
use crate::index::{Geometry, Index, Known, Log};
use crate::mapped::MappedFile;

impl<D: Disk> Recovery<'_, D> {
    /// The index, as far as it is known to be right, and whether it must be rebuilt; `None` when none is kept. `again`
    /// says that keys were added since the mark was written.
    ///
    /// A rebuild is noted in the checkpoint before it begins.
    pub(super) fn index(
        &self,
        files: &[MappedFile<D::Region>],
        end: PhysicalOffset,
        again: bool,
        mark_writer: &mut MarkWriter<D>,
    ) -> Result<Option<(Index<D>, bool)>, EnvError> {
        let Some(dir) = &self.folder.index else { return Ok(None) };
        let geometry = Geometry { slots: self.config.index_slots, entries: self.config.index_entries };
        let mark = self.checkpoint.mark.as_ref();
        let known = Known {
            mark: mark.and_then(|mark| mark.index),
            is_clean: !self.dirty && !again,
            full_to_ms: self.checkpoint.timestamps.index_msg_at_ms,
        };
        Index::open(self.disk, dir.clone(), geometry, known, Log { files, end }, || {
            mark_writer.distrust_index()
        })
        .map(Some)
    }
}

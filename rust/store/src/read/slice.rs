//! Bytes of the log as they are, for a slave that copies it.

use bytes::Bytes;
use rocketpy_env::{Disk, Region};
use rocketpy_model::PhysicalOffset;

use super::Reads;
use crate::error::StoreError;

impl<D: Disk> Reads<D> {
    /// What is written of the log from `from` on, at most `max_bytes` and no further than the end of the file; `None` outside of
    /// the log.
    ///
    /// # Errors
    /// [`StoreError::DamagedLog`] when a page of it cannot be read.
    ///
    /// # Source
    /// docs/reference/store-format.md 12.3: not only what is durable, and the rest of a file behind its blank record too.
    pub(crate) fn log_slice(
        &self,
        from: PhysicalOffset,
        max_bytes: usize,
    ) -> Result<Option<Bytes>, StoreError> {
        let end = self.log.end();
        if from == end {
            return Ok(Some(Bytes::new()));
        }
        let Some(file) = self.log.find(from).filter(|_| from < end) else { return Ok(None) };
        let most = file.region.len().min(max_bytes as u64);
        let to = end.min(file.end()).min(from + most);
        if from == to {
            return Ok(Some(Bytes::new()));
        }
        file.check(from, to)?;
        Ok(Some(file.region.slice(from - file.start..to - file.start)))
    }
}

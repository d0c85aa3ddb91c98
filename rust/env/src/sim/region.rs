//! Simulated mapped files.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::SimDisk;
use super::memory::Memory;
use super::world::InodeId;
use crate::disk::Region;
use crate::error::EnvError;

/// A simulated mapped file.
pub struct SimRegion {
    pub(super) disk: SimDisk,
    pub(super) path: PathBuf,
    pub(super) id: InodeId,
    pub(super) memory: Arc<Memory>,
    pub(super) written: AtomicU64,
}

impl SimRegion {
    fn check(&self, range: &Range<u64>) {
        let written = self.written();
        assert!(
            range.start <= range.end && range.end <= written,
            "range {range:?} passes the written {written}"
        );
    }
}

impl Region for SimRegion {
    fn len(&self) -> u64 {
        self.memory.len() as u64
    }

    fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Counts as one operation, and as two when the process ends during it: the second is the rest of the copy.
    fn append_parts(&self, parts: &[&[u8]], advance: u64) {
        let at = self.written();
        let bytes = parts.concat();
        assert!(advance >= bytes.len() as u64 && advance <= self.len() - at, "an append must fit");
        let Ok(mut world) = self.disk.begin("write", &self.path) else { return };
        let is_torn = world.process.stop_at == Some(world.process.operations + 1);
        let copied = if is_torn { world.rng.usize(0..=bytes.len()) } else { bytes.len() };
        world.write(self.id, at as usize, &bytes[..copied]);
        drop(world);
        if is_torn {
            drop(self.disk.begin("write", &self.path)); // ends the process
        }
        self.written.store(at + advance, Ordering::Release);
    }

    fn view(&self, range: Range<u64>) -> &[u8] {
        self.check(&range);
        self.memory.slice(range.start as usize..range.end as usize)
    }

    fn slice(&self, range: Range<u64>) -> Bytes {
        self.check(&range);
        let range = range.start as usize..range.end as usize;
        Bytes::from_owner(SimSlice { memory: Arc::clone(&self.memory), range })
    }

    fn rewind(&mut self, end: u64) {
        assert!(end <= self.written(), "rewind to {end} passes the written bytes");
        *self.written.get_mut() = end;
    }

    fn flush(&self, range: Range<u64>) -> Result<(), EnvError> {
        assert!(range.start <= range.end && range.end <= self.len(), "flush of {range:?} passes the file");
        let mut world = self.disk.begin_flush("flush", &self.path)?;
        world.flush(self.id, range.start as usize, range.end as usize, &self.path)
    }

    fn fault_in(&self, _range: Range<u64>) {}

    fn fault_in_written(&self, range: Range<u64>) -> Result<(), EnvError> {
        let mut world = self.disk.begin_flush("flush ahead in", &self.path)?;
        world.write_out(self.id, range.start as usize, range.end as usize, &self.path)
    }
}

struct SimSlice {
    memory: Arc<Memory>,
    range: Range<usize>,
}

impl AsRef<[u8]> for SimSlice {
    fn as_ref(&self) -> &[u8] {
        self.memory.slice(self.range.clone())
    }
}

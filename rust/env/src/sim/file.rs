//! Simulated files that are read and written by position.

use std::ops::Range;
use std::path::PathBuf;

use super::world::{Fault, InodeId};
use super::{SimDisk, no_space};
use crate::disk::DiskFile;
use crate::error::EnvError;

/// A simulated file.
pub struct SimFile {
    pub(super) disk: SimDisk,
    pub(super) path: PathBuf,
    pub(super) id: InodeId,
}

impl DiskFile for SimFile {
    fn len(&self) -> Result<u64, EnvError> {
        Ok(self.disk.begin("look at", &self.path)?.len_of(self.id))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, EnvError> {
        let mut world = self.disk.begin("read", &self.path)?;
        world.check_readable(&self.path)?;
        let bytes = world.inode(self.id).bytes();
        let from = (offset as usize).min(bytes.len());
        let to = (from + buffer.len()).min(bytes.len());
        buffer[..to - from].copy_from_slice(&bytes[from..to]);
        Ok(to - from)
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), EnvError> {
        let wanted_end = offset + buffer.len() as u64;
        match self.read_at(offset, buffer)? == buffer.len() {
            true => Ok(()),
            false => Err(EnvError::UnexpectedEnd { path: self.path.clone(), wanted_end }),
        }
    }

    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> Result<(), EnvError> {
        let mut world = self.disk.begin("write", &self.path)?;
        let at = offset as usize;
        let holes = world.inode(self.id).holes(at, at + bytes.len());
        if !holes.is_empty() && world.strikes(Fault::NoSpace) {
            let hole = world.rng.usize(0..holes.len());
            world.write(self.id, at, &bytes[..holes[hole] - at]);
            return Err(no_space("write", &self.path));
        }
        world.write(self.id, at, bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), EnvError> {
        self.disk.begin("set the length of", &self.path)?.set_len(self.id, len as usize);
        Ok(())
    }

    fn sync(&self) -> Result<(), EnvError> {
        let mut world = self.disk.begin_flush("flush", &self.path)?;
        let len = world.len_of(self.id) as usize;
        world.flush(self.id, 0, len, &self.path)
    }

    fn zero_range(&self, range: Range<u64>, keep_allocated: bool) -> Result<(), EnvError> {
        let mut world = self.disk.begin("write zeros into", &self.path)?;
        let to = range.end.min(world.len_of(self.id)) as usize;
        let from = (range.start as usize).min(to);
        world.zero(self.id, from, to);
        if !keep_allocated {
            world.inode(self.id).punch(from, to);
        }
        Ok(())
    }

    fn allocate(&self, range: Range<u64>) -> Result<(), EnvError> {
        let mut world = self.disk.begin("allocate", &self.path)?;
        let (from, to) = (range.start as usize, range.end as usize);
        if !world.inode(self.id).holes(from, to).is_empty() && world.strikes(Fault::NoSpace) {
            return Err(no_space("allocate", &self.path));
        }
        world.inode(self.id).allocate(from, to);
        Ok(())
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>, EnvError> {
        let mut world = self.disk.begin("seek in", &self.path)?;
        let bytes = world.inode(self.id).bytes();
        let behind = &bytes[(offset as usize).min(bytes.len())..];
        Ok(behind.iter().position(|&byte| byte != 0).map(|at| offset + at as u64))
    }
}

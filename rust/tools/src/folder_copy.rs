//! Copies of files of a store into a new folder.

use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, DiskFile, EntryKind, EnvError, OpenMode};

use crate::ToolError;
use crate::manifest::copy_range;

/// Largest metadata file that is copied.
pub(crate) const METADATA_BYTES: u64 = 1 << 30;

/// Metadata with secrets.
const USERS: &str = "users.json";

/// A folder that a tool makes. Dropping it removes what was made, unless it was kept.
pub(crate) struct NewFolder<'a, D: Disk> {
    pub disk: &'a D,
    pub path: PathBuf,
    was_there: bool,
    is_kept: bool,
}

impl<'a, D: Disk> NewFolder<'a, D> {
    /// Makes a folder, or takes an empty one.
    ///
    /// # Errors
    /// [`ToolError::TargetNotEmpty`], [`ToolError::TargetInside`].
    pub(crate) fn make(disk: &'a D, path: &Path, source: &Path) -> Result<Self, ToolError> {
        if path.starts_with(source) {
            return Err(ToolError::TargetInside { path: path.to_path_buf() });
        }
        let was_there = match disk.list(path) {
            Ok(entries) if !entries.is_empty() => {
                return Err(ToolError::TargetNotEmpty { path: path.to_path_buf() });
            }
            Ok(_) => true,
            Err(error) if error.is_not_found() => false,
            Err(error) => return Err(error.into()),
        };
        disk.create_dir_all(path)?;
        Ok(Self { disk, path: path.to_path_buf(), was_there, is_kept: false })
    }

    /// Makes the names in the folder durable, and keeps it.
    pub(crate) fn keep(mut self) -> Result<(), EnvError> {
        sync_folders(self.disk, &self.path)?;
        if let Some(above) = self.path.parent().filter(|above| !above.as_os_str().is_empty()) {
            match self.disk.sync_dir(above) {
                Err(EnvError::PermissionDenied { .. }) => {}
                other => other?,
            }
        }
        self.is_kept = true;
        Ok(())
    }

    /// Copies one file up to `size_bytes` and fills the rest of its length with zeros. Returns the bytes that were
    /// copied.
    pub(crate) fn copy_file(
        &self,
        from: &Path,
        to: &Path,
        size_bytes: u64,
        allocate: bool,
    ) -> Result<(), EnvError> {
        let source = self.disk.open_file(from, OpenMode::Read)?;
        let length = source.len()?;
        let copy = self.disk.open_file(to, OpenMode::CreateOrWrite)?;
        copy.set_len(length)?;
        if allocate {
            copy.allocate(0..length)?;
        }
        copy_range(&source, 0, &copy, 0, size_bytes.min(length))?;
        copy.sync()
    }

    /// Copies the JSON files of a metadata folder that `wanted` selects. A missing folder holds none.
    pub(crate) fn copy_metadata(
        &self,
        from: &Path,
        to: &Path,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<u64, EnvError> {
        let entries = match self.disk.list(from) {
            Err(error) if error.is_not_found() => return Ok(0),
            other => other?,
        };
        let mut copied = 0;
        for entry in entries.into_iter().filter(|entry| entry.kind == EntryKind::File) {
            let is_table = |name: &str| name.ends_with(".json") || name == "timercheck";
            let Some(name) = entry.name.to_str().filter(|name| is_table(name) && wanted(name)) else {
                continue;
            };
            let bytes = match self.disk.read(&from.join(name), METADATA_BYTES) {
                Err(error) if error.is_not_found() => continue, // replaced meanwhile, or removed
                other => other?,
            };
            self.disk.create_dir_all(to)?;
            if name == USERS {
                self.disk.replace_privately(&to.join(name), &bytes)?;
            } else {
                self.disk.replace(&to.join(name), &bytes)?;
            }
            copied += 1;
        }
        Ok(copied)
    }
}

impl<D: Disk> Drop for NewFolder<'_, D> {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let removed = self.disk.remove_dir_all(&self.path);
        let made = if self.was_there { self.disk.create_dir_all(&self.path) } else { Ok(()) };
        if let Err(error) = removed.and(made) {
            tracing::warn!(%error, "a folder that was not finished could not be removed");
        }
    }
}

/// Makes the names in a folder and in those below it durable.
fn sync_folders<D: Disk>(disk: &D, dir: &Path) -> Result<(), EnvError> {
    for entry in disk.list(dir)?.iter().filter(|entry| entry.kind == EntryKind::Folder) {
        sync_folders(disk, &dir.join(&entry.name))?;
    }
    disk.sync_dir(dir)
}

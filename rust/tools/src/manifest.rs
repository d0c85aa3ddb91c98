//! The side folder of a repair: the bytes that it takes away, and a list of its steps.

use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, DiskFile, EnvError, OpenMode};
use serde::Serialize;

use crate::action::RepairAction;

/// Bytes that are copied at once.
const COPY_BYTES: u64 = 1 << 20;

/// What `manifest.json` of a side folder says.
#[derive(Debug, Serialize)]
struct Manifest<'a> {
    store: &'a Path,
    begun_at_ms: i64,
    /// Set once everything was done.
    done: bool,
    actions: &'a [RepairAction],
    kept: &'a [Kept],
}

/// Bytes that were taken away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Kept {
    /// Where they were.
    path: PathBuf,
    file_offset: u64,
    size_bytes: u64,
    /// The file or folder of the side folder that holds them.
    kept_in: PathBuf,
}

/// The side folder of one repair.
pub(crate) struct SideFolder<'a, D: Disk> {
    disk: &'a D,
    root: &'a Path,
    pub dir: PathBuf,
    begun_at_ms: i64,
    actions: &'a [RepairAction],
    kept: Vec<Kept>,
}

impl<'a, D: Disk> SideFolder<'a, D> {
    /// Makes the folder and writes the list of steps.
    pub(crate) fn make(disk: &'a D, root: &'a Path, actions: &'a [RepairAction]) -> Result<Self, EnvError> {
        let begun_at_ms = disk.now_ms();
        let mut dir = root.join(format!("repair-{begun_at_ms}"));
        let mut number = 1;
        while disk.list(&dir).is_ok() {
            dir = root.join(format!("repair-{begun_at_ms}-{number}"));
            number += 1;
        }
        disk.create_dir_all(&dir)?;
        let side = Self { disk, root, dir, begun_at_ms, actions, kept: Vec::new() };
        side.write(false)?;
        disk.sync_dir(root)?;
        Ok(side)
    }

    /// Writes the list. `done` says that all steps are done.
    pub(crate) fn write(&self, done: bool) -> Result<(), EnvError> {
        let manifest = Manifest {
            store: self.root,
            begun_at_ms: self.begun_at_ms,
            done,
            actions: self.actions,
            kept: &self.kept,
        };
        let text = serde_json::to_vec_pretty(&manifest).expect("paths and numbers become JSON");
        self.disk.replace(&self.dir.join("manifest.json"), &text)
    }

    /// Makes a durable copy of a part of a file, before that part is overwritten.
    pub(crate) fn keep_bytes(
        &mut self,
        path: &Path,
        file_offset: u64,
        size_bytes: u64,
    ) -> Result<(), EnvError> {
        let name =
            path.strip_prefix(self.root).unwrap_or_else(|_| Path::new(path.file_name().unwrap_or_default()));
        let kept_in = self.dir.join(name).join(format!("{file_offset}-{size_bytes}"));
        let folder = kept_in.parent().unwrap_or(&self.dir);
        self.disk.create_dir_all(folder)?;
        let from = self.disk.open_file(path, OpenMode::Read)?;
        let to = self.disk.open_file(&kept_in, OpenMode::CreateOrWrite)?;
        copy_range(&from, file_offset, &to, 0, size_bytes)?;
        to.sync()?;
        for folder in folder.ancestors().take_while(|folder| folder.starts_with(&self.dir)) {
            self.disk.sync_dir(folder)?;
        }
        self.note(path, file_offset, size_bytes, kept_in)
    }

    /// Moves a file or a folder of the store's root into the side folder.
    pub(crate) fn take(&mut self, path: &Path) -> Result<(), EnvError> {
        let kept_in = self.dir.join(path.file_name().unwrap_or_default());
        self.note(path, 0, 0, kept_in.clone())?;
        self.disk.rename(path, &kept_in)?;
        self.disk.sync_dir(&self.dir)?;
        self.disk.sync_dir(self.root)
    }

    fn note(
        &mut self,
        path: &Path,
        file_offset: u64,
        size_bytes: u64,
        kept_in: PathBuf,
    ) -> Result<(), EnvError> {
        self.kept.push(Kept { path: path.to_path_buf(), file_offset, size_bytes, kept_in });
        self.write(false)
    }

    /// Gives a file bytes of its own if it has other names too, as in a snapshot. The other names keep the old bytes.
    pub(crate) fn unshare(&self, path: &Path) -> Result<(), EnvError> {
        let file = self.disk.open_file(path, OpenMode::Read)?;
        if file.link_count()? == 1 {
            return Ok(());
        }
        let size_bytes = file.len()?;
        let copy_path = self.dir.join("copy");
        let copy = self.disk.open_file(&copy_path, OpenMode::CreateOrWrite)?;
        copy.set_len(size_bytes)?;
        copy.allocate(0..size_bytes)?;
        copy_range(&file, 0, &copy, 0, size_bytes)?;
        copy.sync()?;
        self.disk.rename(&copy_path, path)?;
        self.disk.sync_dir(path.parent().unwrap_or(self.root))
    }
}

/// Copies bytes from file to file. Holes stay holes.
///
/// # Errors
/// A file operation failed, or the first file is too short.
pub(crate) fn copy_range<F: DiskFile>(
    from: &F,
    from_offset: u64,
    to: &F,
    to_offset: u64,
    size_bytes: u64,
) -> Result<(), EnvError> {
    let mut buffer = Vec::new();
    let mut at = 0;
    while at < size_bytes {
        let Some(data) = from.next_data(from_offset + at)? else { break };
        at = data - from_offset;
        if at >= size_bytes {
            break;
        }
        buffer.resize(COPY_BYTES.min(size_bytes - at) as usize, 0);
        from.read_exact_at(from_offset + at, &mut buffer)?;
        to.write_all_at(to_offset + at, &buffer)?;
        at += buffer.len() as u64;
    }
    Ok(())
}

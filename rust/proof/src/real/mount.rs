//! A file system on a loop device, whose power can be cut.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rocketpy_env::{Disk, RealDisk, cut_power};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// ext4 of 256 MiB.
    Ext4,
    /// ext4 of 2 GiB.
    LargeExt4,
    /// XFS of 512 MiB: it needs at least 300.
    Xfs,
}

impl Kind {
    fn size(self) -> &'static str {
        match self {
            Self::Ext4 => "256M",
            Self::LargeExt4 => "2G",
            Self::Xfs => "512M",
        }
    }

    fn make(self) -> (&'static str, &'static str) {
        match self {
            Self::Ext4 | Self::LargeExt4 => ("mkfs.ext4", "-q"),
            Self::Xfs => ("mkfs.xfs", "-q"),
        }
    }
}

/// A mounted file system; unmounted, with its loop device given back, when it is dropped.
#[derive(Debug)]
pub struct Mounted {
    image: PathBuf,
    dir: PathBuf,
    is_mounted: bool,
}

fn run(program: &str, arguments: &[&Path]) -> Result<(), String> {
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

impl Mounted {
    /// Makes an image in a folder, and mounts it there.
    ///
    /// # Errors
    /// Not root, no loop devices, no such `mkfs`: what is missing, in words.
    pub fn make(root: &Path, kind: Kind) -> Result<Self, String> {
        let (image, dir) = (root.join("image"), root.join("mounted"));
        RealDisk.create_dir_all(&dir).map_err(|error| error.to_string())?;
        run("truncate", &[Path::new("-s"), Path::new(kind.size()), &image])?;
        let (make, quiet) = kind.make();
        run(make, &[Path::new(quiet), &image])?;
        let mut mounted = Self { image, dir, is_mounted: false };
        mounted.mount()?;
        Ok(mounted)
    }

    /// Whether power can be cut here.
    ///
    /// # Errors
    /// What is missing, in words.
    pub fn can_be_cut() -> Result<(), String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        Self::make(folder.path(), Kind::Ext4)?.cut()
    }

    /// Whether XFS can be made here.
    pub fn has_xfs() -> bool {
        Command::new("mkfs.xfs").arg("-V").output().is_ok_and(|output| output.status.success())
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn mount(&mut self) -> Result<(), String> {
        run("mount", &[Path::new("-o"), Path::new("loop"), &self.image, &self.dir])?;
        self.is_mounted = true;
        Ok(())
    }

    /// Drops what was not flushed. Nothing can be done on it until [`Mounted::restore`].
    ///
    /// # Errors
    /// Not root.
    pub fn cut(&self) -> Result<(), String> {
        cut_power(&self.dir).map_err(|error| error.to_string())
    }

    /// Unmounts and mounts again, as a machine does when its power is back. No process may use the file system meanwhile.
    ///
    /// # Errors
    /// What `umount` or `mount` says.
    pub fn restore(&mut self) -> Result<(), String> {
        self.unmount()?;
        self.mount()
    }

    fn unmount(&mut self) -> Result<(), String> {
        let mut result = Ok(());
        for _ in 0..50 {
            result = run("umount", &[&self.dir]);
            if result.is_ok() {
                self.is_mounted = false;
                return result;
            }
            std::thread::sleep(Duration::from_millis(100)); // a process that has just ended may still hold it
        }
        result
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_mounted && self.unmount().is_err() {
            let _ = run("umount", &[Path::new("-l"), &self.dir]); // detached now, unmounted once nobody uses it
        }
        let _ = RealDisk.remove_file(&self.image);
    }
}

//! How a file operation can fail.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::LockHolder;

/// A file operation that failed: which operation, on which path, and why.
#[derive(Debug, Clone, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum EnvError {
    /// The disk or the quota is full.
    #[error("no space left on the disk, cannot {operation}: {}", path.display())]
    NoSpace { operation: &'static str, path: PathBuf },
    /// The user of this process may not do it.
    #[error("permission denied, cannot {operation}: {}", path.display())]
    PermissionDenied { operation: &'static str, path: PathBuf },
    /// The file system is mounted read-only.
    #[error("the file system is read-only, cannot {operation}: {}", path.display())]
    ReadOnly { operation: &'static str, path: PathBuf },
    /// There is no such file or folder.
    #[error("no such file or folder, cannot {operation}: {}", path.display())]
    NotFound { operation: &'static str, path: PathBuf },
    /// The name is taken.
    #[error("file or folder exists already, cannot {operation}: {}", path.display())]
    AlreadyExists { operation: &'static str, path: PathBuf },
    /// A part of the path that must be a folder is a file.
    #[error("not a folder, cannot {operation}: {}", path.display())]
    NotAFolder { operation: &'static str, path: PathBuf },
    /// The process or the machine has no file handle left.
    #[error("too many open files, cannot {operation}: {}", path.display())]
    TooManyOpenFiles { operation: &'static str, path: PathBuf },
    /// Somebody holds the lock.
    #[error("locked by {holder}: {}", path.display())]
    Locked { path: PathBuf, holder: LockHolder },
    /// A file is longer than the reader allows.
    #[error("file exceeds {limit_bytes} bytes: {}", path.display())]
    TooLong { path: PathBuf, limit_bytes: u64 },
    /// A file ended before the bytes that were asked for.
    #[error("file ends before byte {wanted_end}: {}", path.display())]
    UnexpectedEnd { path: PathBuf, wanted_end: u64 },
    /// Bytes of a mapped file cannot be read: the sector is bad, or the file was cut short after it was mapped.
    #[error("cannot read byte {offset} of a mapped file: {} ({source})", path.display())]
    Unreadable { path: PathBuf, offset: u64, source: Arc<io::Error> },
    /// The operating system has no such call.
    #[error("this operating system cannot {operation}: {}", path.display())]
    Unsupported { operation: &'static str, path: PathBuf },
    /// A flush was tried and failed. A second one may succeed although what was written is lost: nobody may believe it.
    #[error("cannot {operation}: {} ({source})", path.display())]
    FlushFailed { operation: &'static str, path: PathBuf, source: Arc<io::Error> },
    /// Anything else, for example a fault of the device.
    #[error("cannot {operation}: {} ({source})", path.display())]
    Io { operation: &'static str, path: PathBuf, source: Arc<io::Error> },
}

impl EnvError {
    /// The operation of an error that comes before anything is written or flushed.
    pub(crate) const OPEN: &'static str = "open";

    /// Whether a file or folder could not even be opened: nothing was tried on it, and nothing of it is lost.
    pub fn is_of_opening(&self) -> bool {
        self.operation() == Some(Self::OPEN)
    }

    /// Whether a flush was tried and failed.
    pub fn is_failed_flush(&self) -> bool {
        matches!(self, Self::FlushFailed { .. })
    }

    fn operation(&self) -> Option<&'static str> {
        match self {
            Self::NoSpace { operation, .. }
            | Self::PermissionDenied { operation, .. }
            | Self::ReadOnly { operation, .. }
            | Self::NotFound { operation, .. }
            | Self::AlreadyExists { operation, .. }
            | Self::NotAFolder { operation, .. }
            | Self::TooManyOpenFiles { operation, .. }
            | Self::Unsupported { operation, .. }
            | Self::FlushFailed { operation, .. }
            | Self::Io { operation, .. } => Some(operation),
            Self::Locked { .. }
            | Self::TooLong { .. }
            | Self::UnexpectedEnd { .. }
            | Self::Unreadable { .. } => None,
        }
    }

    /// Maps an error of the operating system to the case that callers tell apart.
    pub fn from_io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Self::NoSpace { operation, path },
            Some(libc::EACCES | libc::EPERM) => Self::PermissionDenied { operation, path },
            Some(libc::EROFS) => Self::ReadOnly { operation, path },
            Some(libc::ENOENT) => Self::NotFound { operation, path },
            Some(libc::EEXIST) => Self::AlreadyExists { operation, path },
            Some(libc::ENOTDIR) => Self::NotAFolder { operation, path },
            Some(libc::EMFILE | libc::ENFILE) => Self::TooManyOpenFiles { operation, path },
            _ => Self::Io { operation, path, source: Arc::new(source) },
        }
    }

    /// The path the error is about.
    pub fn path(&self) -> &Path {
        match self {
            Self::NoSpace { path, .. }
            | Self::PermissionDenied { path, .. }
            | Self::ReadOnly { path, .. }
            | Self::NotFound { path, .. }
            | Self::AlreadyExists { path, .. }
            | Self::NotAFolder { path, .. }
            | Self::TooManyOpenFiles { path, .. }
            | Self::Locked { path, .. }
            | Self::TooLong { path, .. }
            | Self::UnexpectedEnd { path, .. }
            | Self::Unreadable { path, .. }
            | Self::Unsupported { path, .. }
            | Self::FlushFailed { path, .. }
            | Self::Io { path, .. } => path,
        }
    }

    /// Maps an error of a flush.
    ///
    /// A full disk is [`EnvError::NoSpace`]: bytes that found no space are kept, or their file is new and is removed as a
    /// whole. So a later flush may be believed.
    pub fn from_flush(operation: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Self::NoSpace { operation, path },
            _ => Self::FlushFailed { operation, path, source: Arc::new(source) },
        }
    }

    /// Whether the same call may succeed later without a change of the folder.
    pub fn retryable(&self) -> bool {
        matches!(self, Self::NoSpace { .. } | Self::TooManyOpenFiles { .. } | Self::Locked { .. })
    }

    /// Whether the file or folder is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// What a person can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoSpace { .. } => Some("free disk space or name a folder on another disk"),
            Self::PermissionDenied { .. } => Some("give this user read and write permission on the folder"),
            Self::ReadOnly { .. } => Some("name a folder on a file system that is mounted for writing"),
            Self::NotAFolder { .. } => Some("name a folder, not a file"),
            Self::TooManyOpenFiles { .. } => Some("raise the limit of open files (ulimit -n)"),
            Self::Locked { .. } => Some("stop the other process first, or name another folder"),
            Self::Unreadable { .. } => Some(
                "check the disk and the length of the file; restore the file from a copy, or see what `rocketpy store repair` would \
                change",
            ),
            Self::Io { .. } | Self::FlushFailed { .. } => {
                Some("check the disk and the system log for the cause")
            }
            Self::NotFound { .. }
            | Self::AlreadyExists { .. }
            | Self::TooLong { .. }
            | Self::UnexpectedEnd { .. }
            | Self::Unsupported { .. } => None,
        }
    }
}

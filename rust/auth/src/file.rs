//! The file of users and policies, `users.json`, which only its owner may read.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, EnvError, RealDisk, RealLock};
use rocketpy_model::DataVersion;
use rocketpy_protocol::json;
use serde::Deserialize;
use tracing::warn;

use crate::AccountsError;
use crate::content::{Content, StoredUser};

/// Largest file that is read, and written: what is written can be read back.
const MAX_BYTES: u64 = 64 << 20;

/// The right to write a users file, against other processes and other servers of this one. Dropped, it ends.
#[derive(Debug)]
pub struct UsersLock(#[expect(dead_code, reason = "held, not read")] Option<RealLock>);

impl UsersLock {
    /// Locks the users file at a path, by `PATH.lock`. A read-only folder needs no lock.
    ///
    /// # Errors
    /// Another process has it; the lock file cannot be made.
    pub fn take(path: &Path) -> Result<Self, AccountsError> {
        let mut name = OsString::from(path);
        name.push(".lock");
        let made = RealDisk.create_dir_all(folder(path)).and_then(|()| RealDisk.lock(name.as_ref()));
        match made {
            Ok(lock) => Ok(Self(Some(lock))),
            Err(EnvError::ReadOnly { .. } | EnvError::PermissionDenied { .. }) => Ok(Self(None)),
            Err(EnvError::Unsupported { .. }) => {
                warn!(path = %path.display(), "file system does not support locks, another server could use this users file too");
                Ok(Self(None))
            }
            Err(EnvError::Locked { holder, .. }) => {
                Err(AccountsError::InUse { path: path.to_owned(), holder })
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// `users.json` with its `.bak`.
#[derive(Debug)]
pub(crate) struct UsersFile {
    path: PathBuf,
}

impl UsersFile {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Reads the file; `None` when there never was one.
    ///
    /// # Errors
    /// The file cannot be read or decoded, or others may read it. It is missing, and its backup is not. The backup is not taken: a user that was
    /// deleted or a secret that was replaced by the last change would be valid again.
    pub(crate) fn load(&self) -> Result<Option<Content>, AccountsError> {
        let content = self.load_alone()?;
        if content.is_none() && exists(&self.backup())? {
            return Err(AccountsError::Missing { path: self.path.clone() });
        }
        Ok(content)
    }

    /// Reads the file, whether or not there is a backup.
    ///
    /// # Errors
    /// The file cannot be read or decoded, or others may read it.
    pub(crate) fn load_alone(&self) -> Result<Option<Content>, AccountsError> {
        let content = read(&self.path)?;
        if content.is_some() {
            // The last process may have ended between the rename and the flush of the folder.
            RealDisk.sync_dir(folder(&self.path))?;
        }
        Ok(content)
    }

    /// Replaces the file; the former content becomes the backup.
    ///
    /// # Durability
    /// On return the new content survives a power loss; at every moment a complete file is there.
    pub(crate) fn save(&self, content: &Content) -> Result<(), AccountsError> {
        let bytes = json::to_config_vec(content);
        if bytes.len() as u64 > MAX_BYTES {
            return Err(EnvError::TooLong { path: self.path.clone(), limit_bytes: MAX_BYTES }.into());
        }
        let folder = folder(&self.path);
        RealDisk.create_dir_all(folder)?;
        Ok(RealDisk.replace_private(&self.path, &bytes)?)
    }

    fn backup(&self) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(".bak");
        name.into()
    }
}

fn read(path: &Path) -> Result<Option<Content>, AccountsError> {
    let bytes = match RealDisk.read(path, MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if !RealDisk.is_private(path)? {
        return Err(AccountsError::OpenToOthers { path: path.to_owned() });
    }
    let damaged = |reason: String| AccountsError::Damaged { path: path.to_owned(), reason };
    let Stored { data_version, users } =
        json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    // A table without users is a valid one; a file without a table is another file, or a part of one.
    let users = users.ok_or_else(|| damaged("it has no member users".to_owned()))?;
    Ok(Some(Content { data_version, users }))
}

/// Content of the file as it is read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Stored {
    data_version: DataVersion,
    users: Option<BTreeMap<String, StoredUser>>,
}

fn exists(path: &Path) -> Result<bool, AccountsError> {
    match RealDisk.read(path, MAX_BYTES) {
        Err(error) if error.is_not_found() => Ok(false),
        Err(EnvError::TooLong { .. }) | Ok(_) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// The folder of a file; `.` for a bare name.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

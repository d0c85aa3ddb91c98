//! The file of users and policies, `users.json`, which only its owner may read.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, EnvError, RealDisk};
use rocketpy_protocol::json;
use tracing::warn;

use crate::AccountsError;
use crate::content::Content;

/// Largest file that is read, and written: what is written can be read back.
const MAX_BYTES: u64 = 64 << 20;

/// `users.json` with its `.bak`.
#[derive(Debug)]
pub(crate) struct UsersFile {
    path: PathBuf,
}

impl UsersFile {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Reads the file, or its backup when the file is missing; nothing when both are.
    ///
    /// # Errors
    /// The file cannot be read or decoded, or others may read it. Its backup is not taken then: a user that was deleted or a secret that was
    /// replaced by the last change would be valid again.
    pub(crate) fn load(&self) -> Result<Content, AccountsError> {
        if let Some(content) = read(&self.path)? {
            // The last process may have ended between the rename and the flush of the folder.
            RealDisk.sync_dir(folder(&self.path))?;
            return Ok(content);
        }
        let Some(content) = read(&self.backup())? else { return Ok(Content::default()) };
        warn!(path = %self.path.display(), "users file is missing, using its backup: it lacks the last change");
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
    let decoded = json::from_slice(&bytes);
    decoded
        .map(Some)
        .map_err(|error| AccountsError::Damaged { path: path.to_owned(), reason: error.to_string() })
}

/// The folder of a file; `.` for a bare name.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

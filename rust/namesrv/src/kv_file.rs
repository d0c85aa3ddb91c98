//! The file of the key-value configuration.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, EnvError, RealDisk};
use rocketpy_protocol::json;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::error::NameServerError;

/// Largest file that is read. What is written stays far below (`MAX_ENTRY_BYTES`).
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Values by namespace and key.
pub(crate) type Values<T = String> = BTreeMap<String, BTreeMap<String, T>>;

/// What the file holds, in Apache's layout.
#[doc(alias = "KVConfigSerializeWrapper")]
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Content<T> {
    config_table: T,
}

/// `kvConfig.json` with its `.bak`.
#[derive(Debug)]
pub(crate) struct KvFile {
    path: PathBuf,
}

impl KvFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file, or its backup when the file is missing; nothing when both are.
    ///
    /// # Errors
    /// The file cannot be read or decoded. Its backup is not taken then: it lacks a change that was answered.
    pub(crate) fn load(&self) -> Result<Values, NameServerError> {
        let Some(bytes) = read(&self.path)? else {
            let backup = self.backup();
            let Some(bytes) = read(&backup)? else { return Ok(Values::new()) };
            let values = decode(&backup, &bytes)?;
            warn!(path = %self.path.display(), "key-value configuration is missing, using its backup");
            return Ok(values);
        };
        let values = decode(&self.path, &bytes)?;
        // The last process may have ended between the rename and the flush of the folder.
        RealDisk.sync_dir(folder(&self.path))?;
        Ok(values)
    }

    /// Replaces the file; the former content becomes the backup.
    ///
    /// # Durability
    /// On return the new content survives a power loss; at every moment a complete file is there.
    pub(crate) fn save<T: Serialize>(&self, values: &Values<T>) -> Result<(), EnvError> {
        make_folder(folder(&self.path))?;
        let bytes = json::to_vec(&Content { config_table: values });
        RealDisk.replace_keeping_backup(&self.path, &bytes)
    }

    fn backup(&self) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(".bak");
        name.into()
    }
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, EnvError> {
    match RealDisk.read(path, MAX_FILE_BYTES) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

fn decode(path: &Path, bytes: &[u8]) -> Result<Values, NameServerError> {
    json::from_slice::<Content<Values>>(bytes)
        .map(|content| content.config_table)
        .map_err(|error| NameServerError::KvConfig { path: path.to_owned(), reason: error.to_string() })
}

/// The folder of a file; `.` for a bare name.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes a folder that survives a power loss, with its parents.
fn make_folder(path: &Path) -> Result<(), EnvError> {
    match RealDisk.list(path) {
        Err(error) if error.is_not_found() => {
            let parent = folder(path);
            make_folder(parent)?;
            RealDisk.create_dir_all(path)?;
            RealDisk.sync_dir(parent)
        }
        listed => listed.map(drop),
    }
}

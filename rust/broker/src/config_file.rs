//! The JSON files of the store's `config` folder.
#![cfg_attr(
    not(feature = "sim"),
    expect(unreachable_pub, reason = "the simulator makes the folder from outside")
)]

use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, EnvError, RealDisk};
use rocketpy_protocol::json;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::warn;

use crate::BrokerError;

/// Largest configuration file that is read, and written: what is written can be read back. 100,000 topics take some 30 MiB.
const MAX_BYTES: u64 = 256 << 20;
/// Maximum number of bytes that the entries of a file may take: 7/8 of the largest file. The rest is for what stands around them.
pub(crate) const MAX_ENTRY_BYTES: usize = MAX_BYTES as usize / 8 * 7;

/// Makes the folder of a store's configuration files.
///
/// # Durability
/// On return the folder survives a power loss, so that the files in it can.
pub fn make_config_folder(disk: &impl Disk, store_root: &Path) -> Result<(), EnvError> {
    disk.create_dir_all(&store_root.join("config"))?;
    disk.sync_dir(store_root)
}

/// JSON file of the store's `config` folder, with its `.bak`.
///
/// # Source
/// docs/reference/store-format.md 1.3, docs/durability.md R9.
#[doc(alias = "ConfigManager")]
#[derive(Debug)]
pub(crate) struct ConfigFile<D: Disk = RealDisk> {
    disk: D,
    path: PathBuf,
    #[cfg(test)]
    pub(crate) gate: std::sync::Arc<crate::testing::Gate>,
}

impl ConfigFile {
    pub(crate) fn new(store_root: &Path, name: &str) -> Self {
        Self::on(RealDisk, store_root, name)
    }
}

impl<D: Disk> ConfigFile<D> {
    /// [`ConfigFile::new`] on a given disk.
    pub(crate) fn on(disk: D, store_root: &Path, name: &str) -> Self {
        Self {
            disk,
            path: store_root.join("config").join(name),
            #[cfg(test)]
            gate: std::sync::Arc::default(),
        }
    }

    pub(crate) fn disk(&self) -> &D {
        &self.disk
    }

    /// Reads the file, or its backup when the file is missing, empty or cannot be decoded; `None` when neither is there.
    ///
    /// What cannot be decoded is kept next to it as `NAME.damaged`; the backup takes its place.
    ///
    /// # Durability
    /// What this returns survives a power loss: others are about to rely on it.
    ///
    /// # Errors
    /// The file cannot be read, or holds something that cannot be decoded while there is no good backup.
    pub(crate) fn load<T: DeserializeOwned>(&self) -> Result<Option<T>, BrokerError> {
        self.find(true)
    }

    /// Same result as [`ConfigFile::load`], without changing a file.
    ///
    /// # Errors
    /// Those of [`ConfigFile::load`].
    pub(crate) fn look<T: DeserializeOwned>(&self) -> Result<Option<T>, BrokerError> {
        self.find(false)
    }

    /// Whether neither the file nor its backup holds anything. What cannot be read is there.
    pub(crate) fn is_missing(&self) -> bool {
        let is_nothing = |path: &Path| matches!(self.read(path), Ok(None));
        is_nothing(&self.path) && is_nothing(&self.beside(".bak"))
    }

    /// Removes the file and its backup.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub(crate) fn remove(&self) -> Result<(), EnvError> {
        for path in [&self.beside(".bak"), &self.path] {
            match self.disk.remove_file(path) {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn find<T: DeserializeOwned>(&self, mends: bool) -> Result<Option<T>, BrokerError> {
        let reason = match self.read(&self.path)? {
            Some(bytes) => match json::from_slice(&bytes) {
                Ok(value) => {
                    if mends {
                        // The last process may have ended between the rename and the flush of the folder.
                        self.disk.sync_dir(self.path.parent().unwrap_or(&self.path))?;
                    }
                    return Ok(Some(value));
                }
                Err(error) => {
                    if mends {
                        self.keep_damaged(&bytes)?;
                    }
                    Some(error.to_string())
                }
            },
            None => None,
        };
        let backup = self.beside(".bak");
        let from_backup = match self.read(&backup) {
            Err(error) if reason.is_none() => return Err(error),
            Err(error) => Err(error.to_string()),
            Ok(Some(bytes)) => match json::from_slice(&bytes) {
                Ok(value) => {
                    if mends {
                        // Else the next save would make the damaged file the backup.
                        self.disk.replace(&self.path, &bytes)?;
                    }
                    Ok(Some(value))
                }
                Err(error) => Err(error.to_string()),
            },
            Ok(None) => Ok(None),
        };
        match (reason, from_backup) {
            (None, Ok(value)) => Ok(value),
            (Some(reason), Ok(Some(value))) => {
                warn!(path = %self.path.display(), reason, "configuration file not decodable, using its backup");
                Ok(Some(value))
            }
            (Some(reason), Ok(None)) => Err(BrokerError::ConfigFile { path: self.path.clone(), reason }),
            (Some(reason), Err(of_backup)) => {
                let reason = format!("{reason}; its backup: {of_backup}");
                Err(BrokerError::ConfigFile { path: self.path.clone(), reason })
            }
            (None, Err(reason)) => Err(BrokerError::ConfigFile { path: backup, reason }),
        }
    }

    /// Replaces the file; the former content becomes the backup.
    ///
    /// # Durability
    /// On return the new content survives a power loss; at every moment a complete file is there.
    ///
    /// # Errors
    /// The file cannot be written, or would be longer than [`ConfigFile::load`] reads: then it stays as it is.
    pub(crate) fn save<T: Serialize>(&self, value: &T) -> Result<(), EnvError> {
        #[cfg(test)]
        self.gate.pass();
        let bytes = json::to_config_vec(value);
        if bytes.len() as u64 > MAX_BYTES {
            return Err(EnvError::TooLong { path: self.path.clone(), limit_bytes: MAX_BYTES });
        }
        self.disk.replace_keeping_backup(&self.path, &bytes)
    }

    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, BrokerError> {
        match self.disk.read(path, MAX_BYTES) {
            Ok(bytes) if bytes.iter().all(u8::is_ascii_whitespace) => Ok(None),
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn keep_damaged(&self, bytes: &[u8]) -> Result<(), BrokerError> {
        Ok(self.disk.replace(&self.beside(".damaged"), bytes)?)
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_os_string();
        name.push(ending);
        self.path.with_file_name(name)
    }
}

//! JSON files of a store's `config` folder, read as the broker reads them: a missing or blank file holds nothing, and a damaged one is
//! replaced by its backup. Nothing is mended: a server may have the store open.

use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, EnvError};
use rocketpy_protocol::json;
use serde::de::DeserializeOwned;
use tracing::warn;

use crate::ToolError;

/// Content of a file, or of its backup.
#[derive(Debug)]
pub(crate) struct ConfigFile<T> {
    /// `None`: both are missing or blank.
    pub(crate) content: Option<T>,
    pub(crate) main: Main,
}

/// The file itself, without its backup.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Main {
    Good,
    /// Missing or blank.
    Empty,
    Damaged(Vec<u8>),
}

impl<T> ConfigFile<T> {
    /// Reads a file of at most `limit_bytes`.
    ///
    /// # Errors
    /// `bad`, if the file is damaged and has no good backup; those of reading either.
    pub(crate) fn read(
        disk: &impl Disk,
        path: &Path,
        limit_bytes: u64,
        parse: impl Fn(&[u8]) -> Result<T, String>,
        bad: impl Fn(PathBuf, String) -> ToolError,
    ) -> Result<Self, ToolError> {
        let main = read(disk, path, limit_bytes)?;
        let (main, damage) = match main.map(|bytes| (parse(&bytes), bytes)) {
            Some((Ok(content), _)) => return Ok(Self { content: Some(content), main: Main::Good }),
            Some((Err(reason), bytes)) => (Main::Damaged(bytes), Some(reason)),
            None => (Main::Empty, None),
        };
        let backup = beside(path, "bak");
        let found = match read(disk, &backup, limit_bytes) {
            Err(error) if damage.is_none() => return Err(error.into()),
            Err(error) => Err(error.to_string()),
            Ok(bytes) => bytes.map(|bytes| parse(&bytes)).transpose(),
        };
        match (damage, found) {
            (None, Err(reason)) => Err(bad(backup, reason)),
            (Some(reason), Err(of_backup)) => {
                Err(bad(path.to_owned(), format!("{reason}; its backup: {of_backup}")))
            }
            (Some(reason), Ok(Some(content))) => {
                warn!(path = %path.display(), reason, "configuration file not decodable, using its backup");
                Ok(Self { content: Some(content), main })
            }
            (Some(reason), Ok(None)) => Err(bad(path.to_owned(), reason)),
            (None, Ok(content)) => Ok(Self { content, main }),
        }
    }
}

/// Path of a file beside another one: `topics.json` and `topics.json.bak`.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// # Errors
/// Why it cannot be decoded.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    json::from_slice(bytes).map_err(|error| error.to_string())
}

pub(crate) fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_whitespace)
}

/// `None` for a file that is missing or blank.
fn read(disk: &impl Disk, path: &Path, limit_bytes: u64) -> Result<Option<Vec<u8>>, EnvError> {
    match disk.read(path, limit_bytes) {
        Ok(bytes) if is_blank(&bytes) => Ok(None),
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

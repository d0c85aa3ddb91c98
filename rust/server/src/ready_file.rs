//! Ready file: exists while a server accepts connections, and contains its addresses.

use std::path::Path;

use rocketpy_env::{Disk, EntryKind, RealDisk, is_process_alive};
use serde::{Deserialize, Serialize};

use crate::{Addresses, ServerError};

/// Maximum size of a ready file that is read.
const MAX_BYTES: u64 = 1 << 16;

#[derive(Serialize, Deserialize)]
struct Ready {
    pid: u32,
    name_server: Option<String>,
    broker: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metrics: Option<String>,
}

/// Removes the file of a process that has ended. The file of a running process stays.
///
/// # Errors
/// The path is a device, a pipe, a link, or a file that no server wrote.
pub(crate) fn remove_stale(path: &Path) -> Result<(), ServerError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = RealDisk.list(folder).unwrap_or_default(); // a missing folder is found by the write
    let entry = entries.into_iter().find(|entry| path.file_name() == Some(entry.name.as_ref()));
    let Some(entry) = entry else { return Ok(()) };
    let foreign = || ServerError::NotAReadyFile { path: path.to_owned() };
    if entry.kind != EntryKind::File {
        return Err(foreign());
    }
    let bytes = RealDisk.read(path, MAX_BYTES).map_err(|_| foreign())?;
    if bytes.is_empty() {
        return Ok(()); // made in advance
    }
    let ready: Ready = serde_json::from_slice(&bytes).map_err(|_| foreign())?;
    if is_process_alive(ready.pid) { Ok(()) } else { remove(path) }
}

/// Writes the addresses of this process.
///
/// # Errors
/// The folder is missing, or not writable.
pub(crate) fn write(path: &Path, addresses: &Addresses) -> Result<(), ServerError> {
    let Addresses { name_server, broker, metrics } = addresses.clone();
    let ready = Ready { pid: std::process::id(), name_server, broker, metrics };
    let mut json = serde_json::to_vec(&ready).unwrap_or_default();
    json.push(b'\n');
    RealDisk.replace(path, &json).map_err(ServerError::ReadyFile)
}

/// Removes the file, if it is there.
///
/// # Errors
/// The folder is not writable.
pub(crate) fn remove(path: &Path) -> Result<(), ServerError> {
    match RealDisk.remove_file(path) {
        Err(error) if !error.is_not_found() => Err(ServerError::ReadyFile(error)),
        _ => Ok(()),
    }
}

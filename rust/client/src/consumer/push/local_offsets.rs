//! Offsets of a member that gets all messages: a file that Apache's clients read and write too.
//!
//! # Source
//! docs/reference/client.md 7.6.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rocketpy_env::{Disk, EnvError, RealDisk};
use rocketpy_model::{MessageQueue, QueueOffset};
use rocketpy_protocol::body::ResetOffsetBody;
use rocketpy_protocol::json;
use tokio::runtime::Handle;
use tracing::warn;

use crate::error::ClientError;

const FILE: &str = "offsets.json";
/// Largest file that is read: some 100,000 queues.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The offsets of one client and group, and their file.
pub(crate) struct LocalOffsets {
    file: Arc<File>,
    offsets: Mutex<BTreeMap<MessageQueue, i64>>,
}

struct File {
    path: PathBuf,
    /// What was written last.
    written: Mutex<BTreeMap<MessageQueue, i64>>,
    /// Two members that share a file would each pass over what only the other got. `None` once this one is closed.
    lock: Mutex<Option<<RealDisk as Disk>::Lock>>,
}

impl LocalOffsets {
    /// Reads the file in a folder, which is made when it is missing.
    ///
    /// # Errors
    /// [`ClientError::OffsetsFile`].
    pub(super) async fn open(folder: &Path) -> Result<Self, ClientError> {
        let folder = folder.to_owned();
        let opened = tokio::task::spawn_blocking(move || Self::open_now(&folder)).await;
        opened.unwrap_or(Err(ClientError::Closed { what: "runtime" }))
    }

    fn open_now(folder: &Path) -> Result<Self, ClientError> {
        let path = folder.join(FILE);
        let failed = |error: EnvError| ClientError::OffsetsFile {
            path: path.display().to_string(),
            reason: error.to_string(),
            is_shared: matches!(error, EnvError::Locked { .. }),
        };
        RealDisk.create_dir_all(folder).map_err(failed)?;
        let lock = RealDisk.lock(&folder.join("lock")).map_err(failed)?;
        let offsets = load(&path)?;
        let written = Mutex::new(offsets.clone());
        let lock = Mutex::new(Some(lock));
        Ok(Self { file: Arc::new(File { path, written, lock }), offsets: Mutex::new(offsets) })
    }

    pub(crate) fn get(&self, queue: &MessageQueue) -> Option<QueueOffset> {
        u64::try_from(*self.offsets.lock().get(queue)?).ok().map(QueueOffset)
    }

    pub(crate) fn put(&self, queue: &MessageQueue, offset: QueueOffset) {
        self.offsets.lock().insert(queue.clone(), offset.to_wire());
    }

    /// Lets another member have the file.
    pub(crate) fn close(&self) {
        *self.file.lock.lock() = None;
    }

    /// Writes the offsets, if they changed since they were written.
    ///
    /// # Errors
    /// [`ClientError::OffsetsFile`]. Writing again is safe.
    pub(crate) async fn persist(&self, runtime: &Handle) -> Result<(), ClientError> {
        let (file, offsets) = (self.file.clone(), self.offsets.lock().clone());
        let written = runtime.spawn_blocking(move || file.write(offsets)).await;
        written.unwrap_or(Err(ClientError::Closed { what: "runtime" }))
    }
}

impl File {
    fn write(&self, offsets: BTreeMap<MessageQueue, i64>) -> Result<(), ClientError> {
        let lock = self.lock.lock();
        let mut written = self.written.lock();
        if *written == offsets || lock.is_none() {
            return Ok(());
        }
        let body = ResetOffsetBody { offset_table: offsets };
        RealDisk
            .replace_keeping_backup(&self.path, &json::to_vec(&body))
            .map_err(|error| not_usable(&self.path, error.to_string()))?;
        *written = body.offset_table;
        Ok(())
    }
}

/// The offsets of the file, or of its backup when the file is missing or cannot be read; none when neither is there.
///
/// A damaged file is kept as `NAME.damaged` and its backup takes its place; otherwise the next write would make it the backup.
fn load(path: &Path) -> Result<BTreeMap<MessageQueue, i64>, ClientError> {
    let backup = beside(path, "bak");
    let broken = match read(path) {
        Ok(Some(offsets)) => return Ok(offsets),
        Ok(None) => None,
        Err(reason) => Some(reason),
    };
    let offsets = match (read(&backup), &broken) {
        (Ok(Some(offsets)), _) => offsets,
        (Ok(None), None) => return Ok(BTreeMap::new()),
        // Starting anew could pass over messages, or hand all of them out again.
        (Ok(None), Some(reason)) => return Err(not_usable(path, reason.clone())),
        (Err(reason), None) => return Err(not_usable(&backup, reason)),
        (Err(of_backup), Some(reason)) => {
            return Err(not_usable(path, format!("{reason}; its backup {}: {of_backup}", backup.display())));
        }
    };
    let failed = |error: EnvError| not_usable(path, error.to_string());
    if let Some(reason) = broken {
        warn!(path = %path.display(), reason, "offsets file damaged, using its backup");
        RealDisk.rename(path, &beside(path, "damaged")).map_err(failed)?;
    }
    let body = ResetOffsetBody { offset_table: offsets };
    RealDisk.replace(path, &json::to_vec(&body)).map_err(failed)?;
    Ok(body.offset_table)
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    PathBuf::from(format!("{}.{ending}", path.display()))
}

fn not_usable(path: &Path, reason: String) -> ClientError {
    ClientError::OffsetsFile { path: path.display().to_string(), reason, is_shared: false }
}

/// # Errors
/// Why the file cannot be used.
fn read(path: &Path) -> Result<Option<BTreeMap<MessageQueue, i64>>, String> {
    match RealDisk.read(path, MAX_FILE_BYTES) {
        Ok(bytes) => {
            let body: ResetOffsetBody = json::from_slice(&bytes).map_err(|error| error.to_string())?;
            Ok(Some(body.offset_table))
        }
        Err(EnvError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(id: u32) -> MessageQueue {
        MessageQueue::new("t", "b", id)
    }

    #[tokio::test]
    async fn offsets_outlive_their_member_and_have_one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let offsets = LocalOffsets::open(folder.path()).await.unwrap();
        assert_eq!(offsets.get(&queue(0)), None);
        for offset in [7, 8] {
            offsets.put(&queue(0), QueueOffset(offset));
            offsets.persist(&Handle::current()).await.unwrap();
        }
        let error = LocalOffsets::open(folder.path()).await.err().unwrap();
        assert!(matches!(error, ClientError::OffsetsFile { is_shared: true, .. }), "{error}");
        drop(offsets);
        let text = RealDisk.read(&folder.path().join(FILE), 1 << 10).unwrap();
        let wanted = r#"{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:8}}"#;
        assert_eq!(String::from_utf8(text).unwrap(), wanted, "the form of Apache's clients");
        let again = LocalOffsets::open(folder.path()).await.unwrap();
        assert_eq!((again.get(&queue(0)), again.get(&queue(1))), (Some(QueueOffset(8)), None));
    }

    #[tokio::test]
    async fn a_broken_file_is_read_from_its_backup() {
        let folder = tempfile::tempdir().unwrap();
        let offsets = LocalOffsets::open(folder.path()).await.unwrap();
        for offset in [7, 8] {
            offsets.put(&queue(0), QueueOffset(offset));
            offsets.persist(&Handle::current()).await.unwrap();
        }
        drop(offsets);
        let (path, damaged) = (folder.path().join(FILE), b"{\"offsetTable\":{{");
        let backup = folder.path().join("offsets.json.bak");
        RealDisk.replace(&path, damaged).unwrap();
        let again = LocalOffsets::open(folder.path()).await.unwrap();
        assert_eq!(again.get(&queue(0)), Some(QueueOffset(7)));
        again.put(&queue(0), QueueOffset(9));
        again.persist(&Handle::current()).await.unwrap();
        drop(again);
        assert_eq!(read(&backup).unwrap().unwrap()[&queue(0)], 7, "the damaged file is not the backup");
        assert_eq!(RealDisk.read(&folder.path().join("offsets.json.damaged"), 100).unwrap(), damaged);
        RealDisk.remove_file(&path).unwrap();
        let again = LocalOffsets::open(folder.path()).await.unwrap();
        assert_eq!(again.get(&queue(0)), Some(QueueOffset(7)), "a missing file too");
    }

    #[tokio::test]
    async fn a_broken_file_without_a_backup_is_an_error_and_stays() {
        for backup in [None, Some(b"{")] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(FILE);
            RealDisk.replace(&path, b"{\"offsetTable\":{{").unwrap();
            if let Some(backup) = backup {
                RealDisk.replace(&folder.path().join("offsets.json.bak"), backup).unwrap();
            }
            let error = LocalOffsets::open(folder.path()).await.err().unwrap();
            assert!(matches!(error, ClientError::OffsetsFile { is_shared: false, .. }), "{error}");
            let text = error.to_string();
            assert_eq!(text.contains("offsets.json.bak: "), backup.is_some(), "{text}");
            assert_eq!(
                text.matches("byte").count(),
                1 + usize::from(backup.is_some()),
                "both reasons: {text}"
            );
            assert!(error.hint().unwrap().contains("start without"), "{:?}", error.hint());
            assert!(RealDisk.read(&path, 100).is_ok());
        }
    }
}

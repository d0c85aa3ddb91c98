//! The key-value configuration: namespaces of keys.
//!
//! With a file, a change is seen and answered once it is on disk. One writer at a time writes, on a thread for blocking work; changes
//! that come meanwhile share the next write.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rocketpy_protocol::json;
use rocketpy_remoting::{NoMemory, Reservation, TableMemory};
use serde::{Serialize, Serializer};
use tokio::runtime::Handle;

use crate::error::{NameServerError, Refusal};
use crate::kv_file::{KvFile, Values};

/// Namespace of the order configuration of topics.
pub(crate) const ORDER_TOPIC_CONFIG: &str = "ORDER_TOPIC_CONFIG";
/// Most bytes that the entries take in the file. Every change writes the whole file.
pub(crate) const MAX_ENTRY_BYTES: usize = 16 << 20;
/// Memory of an entry beside its texts.
const ENTRY_BYTES: usize = 256;
/// Most bytes of an entry in the file beyond its texts as a JSON array: colons and braces.
const FRAME_BYTES: usize = 8;
/// Most changes that may wait for the next write.
const MAX_WAITING: usize = 10_000;

/// Told once how a change ended.
pub(crate) type Done = Box<dyn FnOnce(Result<(), Refusal>) + Send>;

/// The key-value configuration.
#[doc(alias = "KVConfigManager")]
#[derive(Debug)]
pub(crate) struct KvConfig {
    memory: TableMemory,
    /// What is on disk.
    seen: RwLock<Table>,
    /// `None`: in memory alone.
    file: Option<Writer>,
}

/// The file, and what waits for it.
#[derive(Debug)]
struct Writer {
    file: KvFile,
    runtime: Handle,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<(Change, Done)>,
    is_running: bool,
}

#[derive(Debug)]
enum Change {
    Put { namespace: String, key: String, entry: Entry },
    Delete { namespace: String, key: String },
}

#[derive(Debug, Clone)]
struct Entry {
    value: Arc<str>,
    /// At most this many bytes of the file.
    file_bytes: usize,
    _memory: Arc<Reservation>,
}

#[derive(Debug, Clone, Default)]
struct Table {
    namespaces: Values<Entry>,
    file_bytes: usize,
}

impl KvConfig {
    /// An empty one, in memory alone.
    #[cfg(test)]
    pub(crate) fn new(memory: TableMemory) -> Self {
        Self { memory, seen: RwLock::default(), file: None }
    }

    /// Reads the file, if there is one to be used. Called on a tokio runtime.
    ///
    /// # Errors
    /// It cannot be read or decoded, or takes too much memory.
    pub(crate) fn open(memory: TableMemory, path: Option<PathBuf>) -> Result<Arc<Self>, NameServerError> {
        let mut table = Table::default();
        let file = path.map(KvFile::new);
        if let Some(file) = &file {
            for (namespace, values) in file.load()? {
                for (key, value) in values {
                    let entry = Entry::new(&memory, &namespace, &key, value).map_err(|reason| {
                        NameServerError::KvTooLarge { path: file.path().to_owned(), reason }
                    })?;
                    table.insert(namespace.clone(), key, entry);
                }
            }
        }
        let writer = |file| Writer { file, runtime: Handle::current(), queue: Mutex::default() };
        Ok(Arc::new(Self { memory, seen: RwLock::new(table), file: file.map(writer) }))
    }

    /// Sets the value of a key.
    ///
    /// `done` is told a refusal when all entries together take as much as they may. Nothing has changed then.
    pub(crate) fn put(self: &Arc<Self>, namespace: String, key: String, value: String, done: Done) {
        match Entry::new(&self.memory, &namespace, &key, value) {
            Ok(entry) => self.change(Change::Put { namespace, key, entry }, done),
            Err(error) => done(Err(error.into())),
        }
    }

    /// Removes a key, and a namespace with its last key.
    pub(crate) fn delete(self: &Arc<Self>, namespace: String, key: String, done: Done) {
        self.change(Change::Delete { namespace, key }, done);
    }

    pub(crate) fn get(&self, namespace: &str, key: &str) -> Option<String> {
        self.seen.read().namespaces.get(namespace)?.get(key).map(|entry| entry.value.to_string())
    }

    /// All keys of a namespace. `None` when it has none.
    pub(crate) fn namespace(&self, namespace: &str) -> Option<std::collections::BTreeMap<String, String>> {
        let seen = self.seen.read();
        let table = seen.namespaces.get(namespace)?;
        Some(table.iter().map(|(key, entry)| (key.clone(), entry.value.to_string())).collect())
    }

    fn change(self: &Arc<Self>, change: Change, done: Done) {
        let Some(writer) = &self.file else {
            let result = self.seen.write().apply(change);
            return done(result);
        };
        let mut queue = writer.queue.lock();
        if queue.waiting.len() >= MAX_WAITING {
            drop(queue);
            return done(Err(Refusal::KvBusy { limit: MAX_WAITING }));
        }
        queue.waiting.push((change, done));
        if !std::mem::replace(&mut queue.is_running, true) {
            let this = Arc::clone(self);
            drop(writer.runtime.spawn_blocking(move || this.run()));
        }
    }

    /// Writes until nothing waits.
    fn run(&self) {
        let Some(writer) = &self.file else { return };
        let _ends = EndsAfterPanic(writer);
        while let Some(batch) = writer.next_batch() {
            self.write(writer, batch);
        }
    }

    /// Applies the changes in their order and tells how each of them ended.
    fn write(&self, writer: &Writer, batch: Vec<(Change, Done)>) {
        let mut table = self.seen.read().clone();
        let applied: Vec<_> = batch.into_iter().map(|(change, done)| (table.apply(change), done)).collect();
        let written = writer.file.save(&table.namespaces);
        if written.is_ok() {
            *self.seen.write() = table;
        }
        for (result, done) in applied {
            done(result.and_then(|()| written.clone().map_err(Refusal::from)));
        }
    }
}

impl Writer {
    fn next_batch(&self) -> Option<Vec<(Change, Done)>> {
        let mut queue = self.queue.lock();
        let batch = std::mem::take(&mut queue.waiting);
        queue.is_running = !batch.is_empty();
        queue.is_running.then_some(batch)
    }
}

/// After a panic of the writer drops what waited, which answers it with an error, and lets the next change start another writer.
struct EndsAfterPanic<'a>(&'a Writer);

impl Drop for EndsAfterPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            drop(std::mem::take(&mut *self.0.queue.lock()));
        }
    }
}

impl Table {
    fn apply(&mut self, change: Change) -> Result<(), Refusal> {
        match change {
            Change::Put { namespace, key, entry } => {
                let former = self.namespaces.get(&namespace).and_then(|table| table.get(&key));
                let kept = self.file_bytes - former.map_or(0, |entry| entry.file_bytes);
                if kept + entry.file_bytes > MAX_ENTRY_BYTES {
                    return Err(Refusal::KvFull { limit_bytes: MAX_ENTRY_BYTES });
                }
                self.insert(namespace, key, entry);
            }
            Change::Delete { namespace, key } => self.remove(&namespace, &key),
        }
        Ok(())
    }

    fn insert(&mut self, namespace: String, key: String, entry: Entry) {
        self.file_bytes += entry.file_bytes;
        if let Some(former) = self.namespaces.entry(namespace).or_default().insert(key, entry) {
            self.file_bytes -= former.file_bytes;
        }
    }

    fn remove(&mut self, namespace: &str, key: &str) {
        let Some(table) = self.namespaces.get_mut(namespace) else { return };
        if let Some(former) = table.remove(key) {
            self.file_bytes -= former.file_bytes;
        }
        if table.is_empty() {
            self.namespaces.remove(namespace);
        }
    }
}

impl Entry {
    fn new(memory: &TableMemory, namespace: &str, key: &str, value: String) -> Result<Self, NoMemory> {
        let reservation = memory.reserve(ENTRY_BYTES + namespace.len() + key.len() + value.len())?;
        let file_bytes = json::to_vec([namespace, key, &value].as_slice()).len() + FRAME_BYTES;
        Ok(Self { value: value.into(), file_bytes, _memory: Arc::new(reservation) })
    }
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.value)
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

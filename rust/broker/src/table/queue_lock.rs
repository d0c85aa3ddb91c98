//! Locks of queues for consumers that keep an order.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, EnvError, RealDisk};
use rocketpy_model::MessageQueue;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use crate::BrokerError;
use crate::config_file::ConfigFile;
use crate::refusal::Refusal;
use crate::table::group_commit::{GroupCommit, Kept, NoRoomToWait, Wait, Written};

/// A lock that was not renewed for this long is free.
const EXPIRY: Duration = Duration::from_secs(60);

/// Maximum number of locks of all groups together; beyond it no queue is locked until some are free. Locks expire after a minute and are no
/// part of the memory budget: their number bounds their memory.
const MAX_LOCKS: usize = 1 << 18;

/// Which client holds which queue, for groups that consume in order. A lock outlives its queue: when a topic is created again, the client
/// continues in the later one and renews its lock too late to keep other clients out. Time is that of a clock that nobody sets: a step would free queues that
/// are held, or keep those of a dead client.
///
/// A lock counts for its client once it is in the file: after a start it is held for another minute, else another client would get a queue
/// that is still worked on.
///
/// # Source
/// docs/reference/protocol.md 2.3.11. The file is not Apache's, which forgets its locks.
#[doc(alias = "RebalanceLockManager")]
#[derive(Debug)]
pub(crate) struct QueueLocks<D: Disk = RealDisk> {
    table: Arc<GroupCommit<File<D>>>,
    max_locks: usize,
}

/// `config/queueLocks.json`.
#[derive(Debug)]
struct File<D: Disk>(ConfigFile<D>);

#[derive(Debug, Default)]
struct State {
    groups: HashMap<String, HashMap<MessageQueue, Lock>>,
    /// Number of the write that began last.
    begun: u64,
}

#[derive(Debug)]
struct Lock {
    client_id: Arc<str>,
    renewed_at: Instant,
    /// The write that has it; the file holds it once that has ended. `None`: the next one.
    write: Option<u64>,
    is_written: bool,
}

/// Content of the file: by group, its queues with their clients.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Content {
    groups: BTreeMap<String, Vec<HeldQueue>>,
    #[serde(skip)]
    number: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeldQueue {
    client_id: String,
    queue: MessageQueue,
}

impl<D: Disk> Kept for File<D> {
    type State = State;
    type Content = Content;

    fn begin(&self, state: &mut State) -> Content {
        state.begun += 1;
        let mut content = Content { number: state.begun, ..Content::default() };
        for (group, locks) in &mut state.groups {
            let held = locks.iter_mut().map(|(queue, lock)| {
                lock.write = Some(state.begun);
                HeldQueue { client_id: lock.client_id.to_string(), queue: queue.clone() }
            });
            content.groups.insert(group.clone(), held.collect());
        }
        content
    }

    fn write(&self, content: &Content) -> Result<(), EnvError> {
        self.0.save(content)
    }

    fn end(&self, state: &mut State, content: &Content, is_written: bool) {
        for lock in state.groups.values_mut().flat_map(HashMap::values_mut) {
            lock.is_written |= is_written && lock.write == Some(content.number);
        }
    }
}

impl Lock {
    fn is_held_by_other(&self, client_id: &str, now: Instant) -> bool {
        *self.client_id != *client_id && !self.is_expired(now)
    }

    fn is_expired(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.renewed_at) > EXPIRY
    }
}

/// The queues of a client, and the write after which they are its own.
#[derive(Debug)]
pub(crate) struct Locked {
    pub(crate) held: Vec<MessageQueue>,
    /// `None`: they are in the file.
    pub(crate) written: Option<Written>,
}

impl<D: Disk> QueueLocks<D> {
    /// Reads the locks of the last run, which are held from now on. The file is written on threads of this runtime.
    ///
    /// # Errors
    /// The file cannot be read, or not be decoded while it has no good backup.
    pub(crate) fn open(
        disk: D,
        store_root: &Path,
        now: Instant,
        runtime: Option<Handle>,
    ) -> Result<Self, BrokerError> {
        let file = ConfigFile::on(disk, store_root, "queueLocks.json");
        let content =
            file.load::<Content>()?.filter(|_| !planted::has(Bug::LocksForgotten)).unwrap_or_default();
        let lock = |HeldQueue { client_id, queue }: HeldQueue| {
            let client_id = client_id.into();
            (queue, Lock { client_id, renewed_at: now, write: None, is_written: true })
        };
        let groups =
            content.groups.into_iter().map(|(group, held)| (group, held.into_iter().map(lock).collect()));
        let state = State { groups: groups.collect(), begun: 0 };
        Ok(Self { table: GroupCommit::new(File(file), state, runtime), max_locks: MAX_LOCKS })
    }

    /// Locks the queues that are free and renews the client's own. Returns those of `queues` that the client holds now.
    ///
    /// # Errors
    /// Too many wait for the file.
    pub(crate) fn lock(
        &self,
        group: &str,
        client_id: &str,
        queues: Vec<MessageQueue>,
        now: Instant,
    ) -> Result<Locked, Refusal> {
        let (held, written) = self.table.change(|state, room| {
            let (held, is_new) = state.lock(group, client_id, queues, now, self.max_locks);
            match (is_new, room) {
                (true, Err(no_room)) => {
                    state.give_back(group, client_id, &held);
                    Err(no_room)
                }
                (true, Ok(())) => Ok((held, Wait::Next)),
                (false, _) => Ok((held, Wait::No)),
            }
        })?;
        Ok(Locked { held, written })
    }

    /// Takes back locks that could not be written. Those that were in the file before stay.
    pub(crate) fn not_written(&self, group: &str, client_id: &str, queues: &[MessageQueue]) {
        self.table.with(|state| state.give_back(group, client_id, queues));
    }

    /// Frees queues of the client. The file follows; until then a start holds them for a minute.
    pub(crate) fn unlock(&self, group: &str, client_id: &str, queues: &[MessageQueue]) {
        self.forget(|state| state.unlock(group, client_id, queues));
    }

    /// Removes expired locks.
    pub(crate) fn sweep(&self, now: Instant) {
        self.forget(|state| state.sweep(now));
    }

    /// Removes locks. Nobody waits for the file: what it holds too much expires.
    fn forget(&self, remove: impl FnOnce(&mut State) -> bool) {
        let removed = self.table.change(|state, room| {
            let writes = remove(state) && room.is_ok();
            Ok::<_, NoRoomToWait>(((), if writes { Wait::Next } else { Wait::No }))
        });
        drop(removed);
    }

    /// Whether a queue of the group is locked, which means that the group consumes in order.
    pub(crate) fn is_any_held(&self, group: &str, now: Instant) -> bool {
        self.table.with(|state| {
            state.groups.get(group).is_some_and(|locks| locks.values().any(|lock| !lock.is_expired(now)))
        })
    }
}

impl State {
    /// The queues that the client holds now, and whether one of them is not in the file.
    fn lock(
        &mut self,
        group: &str,
        client_id: &str,
        queues: Vec<MessageQueue>,
        now: Instant,
        max_locks: usize,
    ) -> (Vec<MessageQueue>, bool) {
        let others: usize =
            self.groups.iter().filter(|(name, _)| *name != group).map(|(_, locks)| locks.len()).sum();
        let client_id: Arc<str> = client_id.into();
        let locks = self.groups.entry(group.to_owned()).or_default();
        locks.retain(|_, lock| !lock.is_expired(now));
        let before = others + locks.len();
        let (mut held, mut is_new) = (Vec::with_capacity(queues.len()), false);
        for queue in queues {
            let count = others + locks.len();
            match locks.get_mut(&queue) {
                Some(lock) if lock.is_held_by_other(&client_id, now) => continue,
                Some(lock) => {
                    lock.renewed_at = now;
                    is_new |= !lock.is_written;
                }
                None if count >= max_locks => continue,
                None => {
                    let client_id = client_id.clone();
                    let lock = Lock { client_id, renewed_at: now, write: None, is_written: false };
                    locks.insert(queue.clone(), lock);
                    is_new = true;
                }
            }
            held.push(queue);
        }
        assert!(
            held.iter().all(|queue| locks.get(queue).is_some_and(|lock| lock.client_id == client_id)),
            "a queue is given to the client that holds its lock"
        );
        // A file from before, with more locks, is kept.
        let (count, most) = (others + locks.len(), max_locks.max(before));
        assert!(count <= most, "the locks of queues have a bound: {count} of {most}");
        if locks.is_empty() {
            self.groups.remove(group);
        }
        (held, is_new)
    }

    fn give_back(&mut self, group: &str, client_id: &str, queues: &[MessageQueue]) {
        self.remove(group, queues, |lock| *lock.client_id == *client_id && !lock.is_written);
    }

    fn unlock(&mut self, group: &str, client_id: &str, queues: &[MessageQueue]) -> bool {
        self.remove(group, queues, |lock| *lock.client_id == *client_id)
    }

    fn remove(&mut self, group: &str, queues: &[MessageQueue], goes: impl Fn(&Lock) -> bool) -> bool {
        let Some(locks) = self.groups.get_mut(group) else { return false };
        let before = locks.len();
        for queue in queues {
            if locks.get(queue).is_some_and(&goes) {
                locks.remove(queue);
            }
        }
        let is_change = locks.len() != before;
        if locks.is_empty() {
            self.groups.remove(group);
        }
        is_change
    }

    fn sweep(&mut self, now: Instant) -> bool {
        let mut is_change = false;
        self.groups.retain(|_, locks| {
            let before = locks.len();
            locks.retain(|_, lock| !lock.is_expired(now));
            is_change |= locks.len() != before;
            !locks.is_empty()
        });
        is_change
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn queue(id: u32) -> MessageQueue {
        MessageQueue { topic: "t".into(), broker_name: "b".into(), queue_id: id }
    }

    /// Gives instants by their milliseconds since this call.
    fn clock() -> impl Fn(u64) -> Instant {
        let start = Instant::now();
        move |ms| start + Duration::from_millis(ms)
    }

    fn folder() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        RealDisk.create_dir_all(&folder.path().join("config")).unwrap();
        folder
    }

    /// Without a runtime whoever changes something writes the file at once.
    fn open(folder: &TempDir, now: Instant) -> QueueLocks {
        QueueLocks::open(RealDisk, folder.path(), now, None).unwrap()
    }

    fn lock(locks: &QueueLocks, group: &str, client_id: &str, ids: &[u32], now: Instant) -> Vec<u32> {
        let queues = ids.iter().copied().map(queue).collect();
        let Locked { held, written } = locks.lock(group, client_id, queues, now).unwrap();
        if let Some(written) = written {
            written.now().unwrap();
        }
        held.into_iter().map(|queue| queue.queue_id).collect()
    }

    #[test]
    fn locks_beyond_the_bound_are_not_given_until_some_are_free() {
        let (at, folder) = (clock(), folder());
        let locks = QueueLocks { max_locks: 3, ..open(&folder, at(0)) };
        assert_eq!(lock(&locks, "g", "one", &[0, 1], at(0)), [0, 1]);
        assert_eq!(lock(&locks, "h", "two", &[0, 1], at(0)), [0]);
        assert_eq!(lock(&locks, "g", "one", &[0, 1], at(0)), [0, 1], "the own ones are renewed");
        assert!(lock(&locks, "i", "three", &[0], at(0)).is_empty());
        locks.unlock("g", "one", &[queue(0)]);
        assert_eq!(lock(&locks, "i", "three", &[0], at(0)), [0]);
    }

    #[test]
    fn a_queue_belongs_to_one_client_until_it_is_released_or_expires() {
        let (at, folder) = (clock(), folder());
        let locks = open(&folder, at(0));
        assert_eq!(lock(&locks, "g", "one", &[0, 1], at(0)), [0, 1]);
        assert!(lock(&locks, "g", "two", &[0], at(1_000)).is_empty());
        assert_eq!(lock(&locks, "other-group", "two", &[0], at(1_000)), [0]);

        locks.unlock("g", "two", &[queue(0)]);
        assert!(lock(&locks, "g", "two", &[0], at(2_000)).is_empty(), "only the holder releases");
        locks.unlock("g", "one", &[queue(0)]);
        assert_eq!(lock(&locks, "g", "two", &[0, 1], at(3_000)), [0]);

        assert!(locks.is_any_held("g", at(60_000)));
        assert_eq!(lock(&locks, "g", "two", &[1], at(60_001)), [1], "expired after a minute");
        assert!(!locks.is_any_held("g", at(180_000)));

        assert!(lock(&locks, "empty", "one", &[], at(0)).is_empty());
        locks.sweep(at(180_000));
        assert!(locks.table.with(|state| state.groups.is_empty()), "nothing is kept of what expired");
    }

    #[test]
    fn a_start_holds_the_locks_of_the_last_run_for_a_minute() {
        let (at, folder) = (clock(), folder());
        let locks = open(&folder, at(0));
        lock(&locks, "g", "one", &[0, 1, 2], at(0));
        lock(&locks, "gone", "three", &[0], at(0));
        locks.unlock("g", "one", &[queue(2)]);
        locks.unlock("gone", "three", &[queue(0)]);
        let again = open(&folder, at(1_000_000));
        assert_eq!(lock(&again, "g", "two", &[0, 1, 2], at(1_060_000)), [2], "held, whenever it was renewed");
        assert_eq!(lock(&again, "gone", "two", &[0], at(1_000_000)), [0]);
        assert_eq!(lock(&again, "g", "one", &[0], at(1_060_000)), [0]);
        assert_eq!(lock(&again, "g", "two", &[0, 1], at(1_060_001)), [1]);
        again.sweep(at(2_000_000));
        let last = open(&folder, at(2_000_000));
        assert_eq!(
            lock(&last, "g", "three", &[0, 1, 2], at(2_000_000)),
            [0, 1, 2],
            "what expired is not in the file"
        );
    }

    #[test]
    fn a_renewal_writes_nothing_and_a_lock_that_is_not_written_is_not_given() {
        let (at, folder) = (clock(), folder());
        let locks = open(&folder, at(0));
        lock(&locks, "g", "one", &[0], at(0));
        assert!(locks.lock("g", "one", vec![queue(0)], at(1)).unwrap().written.is_none());
        RealDisk.remove_dir_all(&folder.path().join("config")).unwrap();
        assert_eq!(lock(&locks, "g", "one", &[0], at(2)), [0]);
        let Locked { held, written } = locks.lock("g", "one", vec![queue(0), queue(1)], at(3)).unwrap();
        written.unwrap().now().unwrap_err();
        locks.not_written("g", "one", &held);
        RealDisk.create_dir_all(&folder.path().join("config")).unwrap();
        assert_eq!(lock(&locks, "g", "two", &[0, 1], at(4)), [1], "the first is in the file");
    }
}

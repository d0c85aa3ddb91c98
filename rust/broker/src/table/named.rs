//! A table of values by name, kept in one JSON file. Topics and consumer groups are such tables.

mod adopt;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use rocketpy_env::{EnvError, now_ms};
use rocketpy_model::DataVersion;
use rocketpy_protocol::json;
use serde::Serialize;
use tokio::runtime::Handle;

use crate::config_file::MAX_ENTRY_BYTES;
use crate::refusal::Refusal;
use crate::table::group_commit::{GroupCommit, Kept, NoRoomToWait, Wait, Written};

/// Maximum number of bytes that an entry takes in the table beyond what it takes alone: tabs, quotes, a comma.
const FRAME_BYTES: usize = 64;

/// A value of a table.
pub(crate) trait Named: fmt::Debug + Clone + PartialEq + Serialize + Send + Sync + 'static {
    fn name(&self) -> &str;
}

/// A copy of a table, for files and answers.
pub(crate) type ByName<V> = BTreeMap<String, V>;
type Entries<V> = HashMap<Arc<str>, Arc<V>>;
/// New values by name; `None` removes.
type Changes<V> = HashMap<Arc<str>, Option<Arc<V>>>;
type Save<V> = dyn Fn(DataVersion, ByName<V>) -> Result<(), EnvError> + Send + Sync;

/// A table of values by name.
///
/// Reads take a short shared lock. A change is checked against the newest state and seen once it is on disk; changes that come
/// while one is written share the next write.
#[derive(Debug)]
pub(crate) struct NamedTable<V: Named> {
    table: Arc<GroupCommit<File<V>>>,
    limits: Limits,
}

/// How many entries may be there, and the refusal of one more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) entries: usize,
    pub(crate) refusal: fn(usize) -> Refusal,
}

/// Result of a change.
#[derive(Debug)]
pub(crate) struct Changed<V> {
    /// Entries that the change created or replaced; empty if all existed.
    pub(crate) values: Vec<Arc<V>>,
    /// Previous entry, written or about to be written.
    pub(crate) replaced: Vec<Arc<V>>,
    /// Ends when that, and what others did to the same names before, is on disk and seen.
    pub(crate) written: Option<Written>,
}

impl<V> Changed<V> {
    /// Result of a change that has been made already.
    pub(crate) const fn nothing() -> Self {
        Self { values: Vec::new(), replaced: Vec::new(), written: None }
    }
}

struct File<V> {
    /// What is on disk.
    seen: RwLock<Entries<V>>,
    save: Box<Save<V>>,
}

impl<V> fmt::Debug for File<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("entries", &self.seen.read().len()).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct State<V> {
    /// Of what is seen.
    version: DataVersion,
    written: Totals,
    /// Of what is seen with all changes.
    newest: Totals,
    /// In the write that is under way.
    in_flight: Changes<V>,
    /// For the next one.
    changes: Changes<V>,
    /// The version that the next one writes, where the changes make the table another broker's.
    adopts: Option<DataVersion>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    entries: usize,
    bytes: usize,
}

struct Content<V> {
    before: DataVersion,
    version: DataVersion,
    /// The version is another broker's.
    is_adopted: bool,
    totals: Totals,
    changes: Changes<V>,
}

impl<V: Named> Kept for File<V> {
    type State = State<V>;
    type Content = Content<V>;

    fn begin(&self, state: &mut State<V>) -> Content<V> {
        state.in_flight = std::mem::take(&mut state.changes);
        let adopted = state.adopts.take();
        let version = match adopted {
            Some(version) => version,
            None if state.in_flight.is_empty() => state.version,
            None => state.version.next(now_ms()),
        };
        Content {
            before: state.version,
            version,
            is_adopted: adopted.is_some(),
            totals: state.newest,
            changes: state.in_flight.clone(),
        }
    }

    fn write(&self, content: &Content<V>) -> Result<(), EnvError> {
        let mut table = by_name(&self.seen.read());
        for (name, value) in &content.changes {
            match value {
                Some(value) => table.insert(name.to_string(), (**value).clone()),
                None => table.remove(&**name),
            };
        }
        (self.save)(content.version, table)
    }

    fn end(&self, state: &mut State<V>, content: &Content<V>, is_written: bool) {
        state.in_flight.clear();
        if !is_written {
            // What came meanwhile was checked against what is not there now. Its callers get the error as well.
            state.changes.clear();
            state.adopts = None;
            state.newest = state.written;
            return;
        }
        state.written = content.totals;
        if content.is_adopted {
            state.version = content.version;
        } else if !content.changes.is_empty() {
            // A registration may have moved the version meanwhile.
            let is_next = state.version == content.before;
            state.version = if is_next { content.version } else { state.version.next(now_ms()) };
        }
        let mut seen = self.seen.write();
        for (name, value) in &content.changes {
            match value {
                Some(value) => seen.insert(name.clone(), value.clone()),
                None => seen.remove(name),
            };
        }
    }
}

impl<V: Named> NamedTable<V> {
    /// A table of what was read, which `save` writes.
    pub(crate) fn new(
        version: DataVersion,
        entries: Entries<V>,
        limits: Limits,
        save: impl Fn(DataVersion, ByName<V>) -> Result<(), EnvError> + Send + Sync + 'static,
    ) -> Self {
        assert!(are_named(&entries), "each entry of a table is kept under its own name");
        let bytes = entries.values().map(|value| size_bytes(&**value)).sum();
        let totals = Totals { entries: entries.len(), bytes };
        let (in_flight, changes) = (Changes::new(), Changes::new());
        let state = State { version, written: totals, newest: totals, in_flight, changes, adopts: None };
        let file = File { seen: RwLock::new(entries), save: Box::new(save) };
        Self { table: GroupCommit::new(file, state, Handle::try_current().ok()), limits }
    }

    fn seen(&self) -> &RwLock<Entries<V>> {
        &self.table.kept().seen
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<V>> {
        self.seen().read().get(name).cloned()
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.seen().read().contains_key(name)
    }

    pub(crate) fn len(&self) -> usize {
        self.seen().read().len()
    }

    pub(crate) fn version(&self) -> DataVersion {
        self.table.with(|state| state.version)
    }

    /// Looks at what is seen together with its version.
    pub(crate) fn view<T>(&self, look: impl FnOnce(&mut DataVersion, &Entries<V>) -> T) -> T {
        self.table.with(|state| look(&mut state.version, &self.seen().read()))
    }

    /// Everything that is seen, with its version.
    pub(crate) fn all(&self) -> (DataVersion, ByName<V>) {
        self.view(|version, entries| (*version, by_name(entries)))
    }

    /// Adds those of the values whose names are free. Of two callers with the same name the first wins.
    ///
    /// # Errors
    /// There are too many, or their file would be too long: nothing is added.
    pub(crate) fn create(&self, wanted: Vec<V>) -> Result<Changed<V>, Refusal> {
        self.change_each(wanted, V::name, |known, value| Ok(known.is_none().then_some(value)))
    }

    /// Adds the value or replaces the one of its name.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub(crate) fn put(&self, value: V) -> Result<Changed<V>, Refusal> {
        let name = value.name().to_owned();
        self.update(&name, |_| Ok(value))
    }

    /// Puts what `make` makes of the newest value of this name, written or about to be. Of two callers at once the second one
    /// sees what the first one made.
    ///
    /// # Errors
    /// As [`Self::create`], and those of `make`.
    pub(crate) fn update(
        &self,
        name: &str,
        make: impl FnOnce(Option<&V>) -> Result<V, Refusal>,
    ) -> Result<Changed<V>, Refusal> {
        self.update_all(vec![(name, make)])
    }

    /// [`Self::update`] of several names, each named once: all or none.
    ///
    /// # Errors
    /// As [`Self::update`].
    pub(crate) fn update_all<N: AsRef<str>>(
        &self,
        items: Vec<(N, impl FnOnce(Option<&V>) -> Result<V, Refusal>)>,
    ) -> Result<Changed<V>, Refusal> {
        self.change_each(
            items,
            |item| item.0.as_ref(),
            |known, (_, make)| {
                let value = make(known)?;
                Ok(known.is_none_or(|known| *known != value).then_some(value))
            },
        )
    }

    /// Whether there is a value of this name, written or about to be.
    pub(crate) fn is_known(&self, name: &str) -> bool {
        self.table.with(|state| state.newest(&self.seen().read(), name).is_some())
    }

    /// Changes the value of each item's name: `change` is given the newest one, and returns the next one unless it stays.
    fn change_each<T>(
        &self,
        items: Vec<T>,
        name_of: impl Fn(&T) -> &str,
        change: impl Fn(Option<&V>, T) -> Result<Option<V>, Refusal>,
    ) -> Result<Changed<V>, Refusal> {
        let ((values, replaced), written) = self.table.change(|state, room| {
            let seen = self.seen().read();
            state.check(&seen);
            let mut wait = Wait::No;
            let (mut totals, mut values, mut replaced) = (state.newest, Vec::new(), Vec::new());
            for item in items {
                let name = name_of(&item);
                let known = state.newest(&seen, name);
                let wait_for_known = state.wait_for(name);
                let Some(value) = change(known.as_deref(), item)? else {
                    wait = later(wait, wait_for_known);
                    continue;
                };
                assert!(
                    known.as_ref().is_none_or(|known| known.name() == value.name()),
                    "a changed entry keeps its name: {}",
                    value.name()
                );
                let known_bytes = known.as_ref().map_or(0, |known| size_bytes(&**known));
                assert!(
                    known_bytes <= totals.bytes,
                    "the bytes of a changed entry were counted: {known_bytes}"
                );
                totals.bytes = totals.bytes - known_bytes + size_bytes(&value);
                totals.entries += usize::from(known.is_none());
                self.check(&state.newest, &totals)?;
                values.push(Arc::new(value));
                replaced.extend(known);
            }
            if !values.is_empty() {
                wait = Wait::Next;
            }
            if wait != Wait::No {
                room?;
            }
            state.newest = totals;
            let changes = values.iter().map(|value| (value.name().into(), Some(value.clone())));
            state.changes.extend(changes);
            Ok::<_, Refusal>(((values, replaced), wait))
        })?;
        Ok(Changed { values, replaced, written })
    }

    fn check(&self, before: &Totals, after: &Totals) -> Result<(), Refusal> {
        if after.entries > before.entries && after.entries > self.limits.entries {
            return Err((self.limits.refusal)(self.limits.entries));
        }
        if after.bytes > before.bytes && after.bytes > MAX_ENTRY_BYTES {
            return Err(Refusal::TableFull { limit_bytes: MAX_ENTRY_BYTES });
        }
        Ok(())
    }

    /// Removes the value of this name. What is returned ends when it is gone from the disk; `None` when there was none.
    pub(crate) fn remove(&self, name: &str) -> Result<Option<Written>, Refusal> {
        let removed = self.table.change(|state, room| {
            let seen = self.seen().read();
            state.check(&seen);
            let Some(known) = state.newest(&seen, name) else {
                let wait = state.wait_for(name);
                if wait != Wait::No {
                    room?;
                }
                return Ok::<_, Refusal>(((), wait));
            };
            room?;
            let known_bytes = size_bytes(&*known);
            assert!(state.newest.entries > 0, "an entry that is removed was counted: {name}");
            assert!(
                known_bytes <= state.newest.bytes,
                "the bytes of a removed entry were counted: {known_bytes}"
            );
            state.newest.entries -= 1;
            state.newest.bytes -= known_bytes;
            state.changes.insert(name.into(), None);
            Ok(((), Wait::Next))
        });
        Ok(removed?.1)
    }

    /// Writes the file, even if nothing changed.
    pub(crate) fn persist(&self) -> Result<Option<Written>, Refusal> {
        let written = self.table.change(|_, room| room.map(|()| ((), Wait::Next)));
        Ok(written.map_err(Refusal::from)?.1)
    }
}

impl<V: Named> State<V> {
    fn check(&self, seen: &Entries<V>) {
        let is_at_rest = self.changes.is_empty() && self.in_flight.is_empty();
        let (counted, seen) = (self.newest.entries, seen.len());
        assert!(!is_at_rest || counted == seen, "each entry is counted once: {counted}, {seen} are seen");
    }

    fn newest(&self, seen: &Entries<V>, name: &str) -> Option<Arc<V>> {
        match self.changes.get(name).or_else(|| self.in_flight.get(name)) {
            Some(changed) => changed.clone(),
            None => seen.get(name).cloned(),
        }
    }

    /// When the newest state of this name is on disk.
    fn wait_for(&self, name: &str) -> Wait {
        if self.changes.contains_key(name) {
            Wait::Next
        } else if self.in_flight.contains_key(name) {
            Wait::Current
        } else {
            Wait::No
        }
    }
}

fn later(one: Wait, other: Wait) -> Wait {
    match (one, other) {
        (Wait::Next, _) | (_, Wait::Next) => Wait::Next,
        (Wait::Current, _) | (_, Wait::Current) => Wait::Current,
        (Wait::No, Wait::No) => Wait::No,
    }
}

impl From<NoRoomToWait> for Refusal {
    fn from(NoRoomToWait { limit }: NoRoomToWait) -> Self {
        Self::TooManyWait { limit }
    }
}

fn are_named<V: Named>(entries: &Entries<V>) -> bool {
    entries.iter().all(|(name, value)| **name == *value.name())
}

/// Bytes that a value takes of its file, at most.
fn size_bytes<V: Named>(value: &V) -> usize {
    let alone = json::to_config_vec(value);
    // Every line is indented by two more tabs.
    let lines = alone.iter().filter(|byte| **byte == b'\n').count() + 1;
    alone.len() + 2 * lines + value.name().len() + FRAME_BYTES
}

pub(crate) fn by_name<V: Clone>(entries: &Entries<V>) -> ByName<V> {
    entries.iter().map(|(name, value)| (name.to_string(), (**value).clone())).collect()
}

#[cfg(test)]
mod tests {
    use rocketpy_model::TopicConfig;

    use super::*;
    use crate::testing::{Gate, until};

    struct Fixture {
        table: NamedTable<TopicConfig>,
        gate: Arc<Gate>,
        fails: Arc<parking_lot::Mutex<bool>>,
    }

    fn fixture(entries: usize) -> Fixture {
        let (gate, fails) = (Arc::new(Gate::default()), Arc::new(parking_lot::Mutex::new(false)));
        let (gate_of_file, fails_of_file) = (gate.clone(), fails.clone());
        let save = move |_, _| {
            gate_of_file.pass();
            match *fails_of_file.lock() {
                true => Err(EnvError::NoSpace { operation: "write", path: "topics.json".into() }),
                false => Ok(()),
            }
        };
        let limits = Limits { entries, refusal: |limit| Refusal::TooManyTopics { limit } };
        let table = NamedTable::new(DataVersion::default(), Entries::new(), limits, save);
        Fixture { table, gate, fails }
    }

    #[tokio::test]
    async fn a_value_is_seen_once_it_is_on_disk_and_the_first_of_a_name_wins() {
        let Fixture { table, gate, .. } = fixture(10);
        gate.close();
        let first = table.create(vec![TopicConfig::new("orders", 3)]).unwrap();
        until("the write is under way", || gate.arrived() == 1).await;
        let second = table.create(vec![TopicConfig::new("orders", 5)]).unwrap();
        assert!(second.values.is_empty(), "another one made it");
        assert!(!table.contains("orders"), "it is not on disk");
        let other = table.create(vec![TopicConfig::new("other", 1), TopicConfig::new("orders", 7)]).unwrap();
        assert_eq!(other.values.len(), 1);
        gate.open();
        second.written.unwrap().done().await.unwrap();
        assert_eq!(table.get("orders").unwrap().read_queues, 3);
        first.written.unwrap().done().await.unwrap();
        other.written.unwrap().done().await.unwrap();
        assert_eq!(gate.arrived(), 2, "writes");
        assert_eq!(table.version().counter, 2);
        assert!(table.create(vec![TopicConfig::new("other", 1)]).unwrap().written.is_none());
    }

    #[tokio::test]
    async fn what_a_failed_write_would_have_made_is_not_there() {
        let Fixture { table, gate, fails } = fixture(1);
        *fails.lock() = true;
        gate.close();
        let lost = table.create(vec![TopicConfig::new("orders", 3)]).unwrap();
        until("the write is under way", || gate.arrived() == 1).await;
        let full = table.create(vec![TopicConfig::new("other", 3)]).unwrap_err();
        assert!(full.to_string().contains("maxTopics"), "{full}");
        let removed = table.remove("orders").unwrap().unwrap();
        gate.open();
        assert!(lost.written.unwrap().done().await.is_err());
        assert!(removed.done().await.is_err(), "it was never there");
        assert!(!table.contains("orders"));
        *fails.lock() = false;
        let made = table.create(vec![TopicConfig::new("other", 3)]).unwrap();
        made.written.unwrap().done().await.unwrap();
        assert!(table.contains("other"));
        assert!(table.remove("orders").unwrap().is_none());
        table.remove("other").unwrap().unwrap().done().await.unwrap();
        assert!(!table.contains("other"));
    }

    #[tokio::test]
    async fn what_a_write_that_panicked_would_have_made_is_not_there() {
        let panics = parking_lot::Mutex::new(true);
        let save = move |_, _| {
            assert!(!std::mem::take(&mut *panics.lock()), "on purpose");
            Ok(())
        };
        let limits = Limits { entries: 1, refusal: |limit| Refusal::TooManyTopics { limit } };
        let table = NamedTable::new(DataVersion::default(), Entries::new(), limits, save);
        let lost = table.create(vec![TopicConfig::new("orders", 3)]).unwrap();
        assert!(lost.written.unwrap().done().await.is_err());
        assert!(table.remove("orders").unwrap().is_none(), "nothing was made");
        let made = table.create(vec![TopicConfig::new("other", 3)]).expect("its place is free");
        made.written.unwrap().done().await.unwrap();
        assert!(table.contains("other") && !table.contains("orders"));
    }

    #[tokio::test]
    async fn no_more_is_taken_than_a_start_reads() {
        let Fixture { table, .. } = fixture(100);
        let long = |name: &str| {
            let mut topic = TopicConfig::new(name, 1);
            topic.attributes.insert("key".to_owned(), "x".repeat(MAX_ENTRY_BYTES / 2));
            topic
        };
        let first = table.create(vec![long("one")]).unwrap();
        first.written.unwrap().done().await.unwrap();
        let refused = table.create(vec![long("two")]).unwrap_err();
        assert!(refused.to_string().contains("bytes"), "{refused}");
        table.put(TopicConfig::new("one", 1)).unwrap().written.unwrap().done().await.unwrap();
        table.create(vec![long("two")]).unwrap().written.unwrap().done().await.unwrap();
    }
}

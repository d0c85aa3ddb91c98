//! The table of another broker in place of one's own.

use std::sync::Arc;

use rocketpy_env::now_ms;
use rocketpy_model::DataVersion;

use super::{Entries, Named, NamedTable, Totals, are_named, size_bytes};
use crate::refusal::Refusal;
use crate::table::group_commit::{Wait, Written};

impl<V: Named> NamedTable<V> {
    /// Makes the table the one of another broker, with its version. Does nothing where it has that version already. Returns the names
    /// that are not there any more.
    ///
    /// Concurrent changes are replaced too.
    ///
    /// # Errors
    /// As [`Self::create`]: the table stays as it is.
    pub(crate) fn adopt(
        &self,
        version: DataVersion,
        entries: Entries<V>,
    ) -> Result<(Vec<Arc<str>>, Option<Written>), Refusal> {
        assert!(are_named(&entries), "each entry that is taken over is kept under its own name");
        let bytes = entries.values().map(|value| size_bytes(&**value)).sum();
        let totals = Totals { entries: entries.len(), bytes };
        self.check(&Totals::default(), &totals)?;
        self.table.change(|state, room| {
            if state.version == version {
                return Ok((Vec::new(), Wait::No));
            }
            room?;
            let seen = self.seen().read();
            let known = seen.keys().chain(state.in_flight.keys());
            let removed: Vec<Arc<str>> =
                known.filter(|name| !entries.contains_key(*name)).map(Arc::clone).collect();
            let is_new = |(name, value): &(Arc<str>, Arc<V>)| {
                seen.get(name) != Some(value) || state.in_flight.contains_key(name)
            };
            let changed = entries.into_iter().filter(is_new).map(|(name, value)| (name, Some(value)));
            state.changes = removed.iter().map(|name| (Arc::clone(name), None)).chain(changed).collect();
            state.newest = totals;
            state.adopts = Some(version);
            Ok((removed, Wait::Next))
        })
    }

    /// Notes a change that the entries do not show.
    pub(crate) fn move_version(&self) {
        self.view(|version, _| *version = version.next(now_ms()));
    }

    /// The table is another master's from now on.
    pub(crate) fn begin_as_master(&self) {
        self.view(|version, _| *version = version.of_next_master(now_ms()));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use parking_lot::Mutex;
    use rocketpy_env::EnvError;
    use rocketpy_model::TopicConfig;

    use super::super::Limits;
    use super::*;

    type Saved = Vec<(DataVersion, BTreeMap<String, TopicConfig>)>;

    /// A table whose writes end up in a list, or fail.
    #[derive(Clone, Default)]
    struct Disk {
        saved: Arc<Mutex<Saved>>,
        fails: Arc<Mutex<bool>>,
    }

    fn table(disk: &Disk, entries: usize) -> NamedTable<TopicConfig> {
        let Disk { saved, fails } = disk.clone();
        let limits = Limits { entries, refusal: |limit| Refusal::TooManyTopics { limit } };
        let start = version(1);
        NamedTable::new(start, of(&["own", "common"]), limits, move |version, table| {
            if *fails.lock() {
                return Err(EnvError::NoSpace { operation: "write", path: "topics.json".into() });
            }
            saved.lock().push((version, table));
            Ok(())
        })
    }

    fn version(counter: i64) -> DataVersion {
        DataVersion { counter, state_version: 0, changed_at_ms: counter }
    }

    fn of(names: &[&str]) -> Entries<TopicConfig> {
        names.iter().map(|name| ((*name).into(), Arc::new(TopicConfig::new(*name, 1)))).collect()
    }

    fn names(table: &NamedTable<TopicConfig>) -> Vec<String> {
        table.all().1.into_keys().collect()
    }

    #[test]
    fn an_adopted_table_replaces_all_and_keeps_its_version_through_later_writes() {
        let disk = Disk::default();
        let table = table(&disk, 10);
        let (removed, written) = table.adopt(version(7), of(&["common", "new"])).unwrap();
        written.unwrap().now().unwrap();
        assert_eq!((removed, table.version()), (vec!["own".into()], version(7)));
        assert_eq!(names(&table), ["common", "new"]);
        let (removed, written) = table.adopt(version(7), of(&["other"])).unwrap();
        assert!(removed.is_empty() && written.is_none(), "the same version is the same table");
        table.persist().unwrap().unwrap().now().unwrap();
        let saved: Vec<_> =
            disk.saved.lock().iter().map(|(version, table)| (*version, table.len())).collect();
        assert_eq!(saved, [(version(7), 2), (version(7), 2)]);
        table.create(vec![TopicConfig::new("later", 1)]).unwrap().written.unwrap().now().unwrap();
        assert_eq!((table.version().counter, table.all().1.len()), (8, 3));
    }

    #[test]
    fn a_table_that_is_too_large_or_cannot_be_written_is_not_adopted() {
        let disk = Disk::default();
        let table = table(&disk, 2);
        let refused = table.adopt(version(7), of(&["a", "b", "c"])).unwrap_err();
        assert!(matches!(refused, Refusal::TooManyTopics { limit: 2 }));
        *disk.fails.lock() = true;
        let (_, written) = table.adopt(version(7), of(&["a", "b"])).unwrap();
        assert!(written.unwrap().now().is_err());
        assert_eq!(
            (names(&table), table.version()),
            (vec!["common".to_owned(), "own".to_owned()], version(1))
        );
        *disk.fails.lock() = false;
        table.put(TopicConfig::new("own", 3)).unwrap().written.unwrap().now().unwrap();
        assert_eq!((names(&table).len(), table.version().counter), (2, 2), "it is not taken later");
        table.adopt(version(7), of(&["a"])).unwrap().1.unwrap().now().unwrap();
        assert_eq!(names(&table), ["a"]);
    }
}

//! The broker's tables of topics and groups, and what their files may hold after a start.

use std::collections::BTreeMap;
use std::path::Path;

use rocketpy_broker::{BrokerError, NamedTables};
use rocketpy_model::{GroupConfig, TopicConfig};

use super::plan::ROOT;
use super::run::Run;
use crate::checker::Rule;

/// How many names of each table are made, changed and deleted.
const NAMES: u8 = 3;
/// Queues of a topic, or retry queues of a group: what changes.
const QUEUES: u32 = 4;

/// What a table holds: for each name its number of queues.
type Content = BTreeMap<String, u32>;

/// The tables of a broker.
#[derive(Default)]
pub(super) struct Tables {
    /// Those of this life.
    pub(super) open: Option<NamedTables>,
    known: [Known; 2],
}

/// The tables, as places in [`Tables`].
#[derive(Debug, Clone, Copy)]
enum Kind {
    Topics,
    Groups,
}

/// What is known of one table.
#[derive(Debug, Default)]
struct Known {
    /// What readers see: every answer is in it.
    seen: Content,
    /// What a start may find instead: changes whose writes did not end well. Any of them may be on disk.
    others: Vec<Content>,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Topics, Self::Groups];

    fn name(self, number: u8) -> String {
        format!("{}{number}", if matches!(self, Self::Topics) { "made" } else { "group" })
    }

    /// What readers see in the table.
    fn content(self, tables: &NamedTables) -> Content {
        let queues = |name: &str| match self {
            Self::Topics => tables.topic(name).map(|topic| topic.read_queues),
            Self::Groups => tables.group(name).map(|group| group.retry_queues as u32),
        };
        (0..NAMES).filter_map(|number| queues(&self.name(number)).map(|of| (self.name(number), of))).collect()
    }

    fn put(self, tables: &NamedTables, name: &str, queues: u32) -> Result<(), String> {
        match self {
            Self::Topics => tables.put_topic(TopicConfig::new(name, queues)),
            Self::Groups => {
                tables.put_group(GroupConfig { retry_queues: queues as i32, ..GroupConfig::new(name) })
            }
        }
    }

    fn remove(self, tables: &NamedTables, name: &str) -> Result<(), String> {
        match self {
            Self::Topics => tables.remove_topic(name),
            Self::Groups => tables.remove_group(name),
        }
    }
}

impl Run {
    /// Opens the tables, and checks that everything that was answered is in them.
    pub(super) fn open_tables(&mut self) -> Result<(), BrokerError> {
        if !self.plan.tables {
            return Ok(());
        }
        let tables = NamedTables::open(&self.disk, Path::new(ROOT))?;
        for kind in Kind::ALL {
            let found = kind.content(&tables);
            let known = &mut self.tables.known[kind as usize];
            let seen = std::mem::replace(&mut known.seen, found.clone());
            // What a start shows is durable.
            let others = std::mem::take(&mut known.others);
            if found != seen && !others.contains(&found) {
                let text = format!("{kind:?} {seen:?} was answered, and after a start it is {found:?}");
                self.wrong(Rule::R9, text);
            }
        }
        self.tables.open = Some(tables);
        Ok(())
    }

    /// Makes, changes or deletes a topic or a group. The process may end meanwhile.
    pub(super) fn change_table(&mut self) {
        let kind = *self.rng.choice(&Kind::ALL).unwrap_or(&Kind::Topics);
        let name = kind.name(self.rng.u8(0..NAMES));
        let queues = (self.rng.u8(0..3) > 0).then(|| self.rng.u32(1..=QUEUES));
        self.may_end_soon();
        let Tables { open: Some(tables), known } = &mut self.tables else { return };
        let known = &mut known[kind as usize];
        let mut wanted = known.seen.clone();
        match queues {
            Some(queues) => wanted.insert(name.clone(), queues),
            None => wanted.remove(&name),
        };
        let is_change = wanted != known.seen;
        known.others.push(wanted.clone());
        let answer = match queues {
            Some(queues) => kind.put(tables, &name, queues),
            None => kind.remove(tables, &name),
        };
        match &answer {
            Ok(()) if is_change => *known = Known { seen: wanted, others: Vec::new() },
            Ok(()) => drop(known.others.pop()),
            Err(_) => {} // the new file may be there all the same
        }
        let (found, seen) = (kind.content(tables), known.seen.clone());
        if found != seen {
            self.wrong(Rule::R9, format!("{kind:?} shows {found:?}, not {seen:?}, after {answer:?}"));
        }
        if let Err(error) = answer
            && !self.has_faults()
        {
            self.wrong(Rule::R9, format!("{kind:?} cannot be written on a sound disk: {error}"));
        }
    }
}

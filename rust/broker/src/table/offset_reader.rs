//! Members that remember places in a topic that has been deleted and created again since.
//!
//! A group that had offsets in the deleted topic is noted as a former reader of it. Of such a group, each connection has to show that it
//! knows the new topic, before it may pull or commit beyond what the group has done there: it asks for the offset, or pulls at or
//! before it. Until then it is sent to the group's offset, or to the first message.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::offset_content::bound_formers;
use super::offset_state::{CommitError, Place, Readable, State, find};

/// Maximum number of queues that are noted, those of all connections together.
const MAX_KNOWN: usize = 1 << 16;

/// Client that pulls or commits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader {
    pub(crate) connection_id: u64,
    /// A live member of the group.
    pub(crate) is_member: bool,
    /// Whether an offset past the end belongs to another store or topic.
    pub(crate) is_foreign_beyond_end: bool,
}

/// Queues of groups whose offset a connection knows, by connection. In memory: no connection outlives the process.
#[derive(Debug, Default)]
pub(super) struct KnownReaders {
    by_connection: HashMap<u64, HashSet<Key>>,
    /// Queues of all connections.
    count: usize,
}

/// Group, topic and queue.
type Key = (Arc<str>, Arc<str>, u32);

impl KnownReaders {
    fn has(&self, place: Place<'_>, connection_id: u64) -> bool {
        self.by_connection.get(&connection_id).is_some_and(|queues| queues.contains(&key(place)))
    }

    fn add(&mut self, place: Place<'_>, connection_id: u64) {
        if self.count >= MAX_KNOWN {
            self.remove_largest();
        }
        let is_new = self.by_connection.entry(connection_id).or_default().insert(key(place));
        self.count += usize::from(is_new);
        assert!(self.count <= MAX_KNOWN, "the places that connections know have a bound: {}", self.count);
    }

    /// Forgets the connection that knows most. It is sent to the offsets of its groups once more.
    fn remove_largest(&mut self) {
        let largest = self.by_connection.iter().max_by_key(|(_, queues)| queues.len());
        if let Some(connection_id) = largest.map(|(id, _)| *id) {
            self.remove(connection_id);
        }
    }

    fn remove(&mut self, connection_id: u64) {
        let forgotten = self.by_connection.remove(&connection_id).map_or(0, |queues| queues.len());
        assert!(forgotten <= self.count, "the places that a connection knew were counted: {forgotten}");
        self.count -= forgotten;
    }

    fn remove_topic(&mut self, topic: &str) {
        self.by_connection.retain(|_, queues| {
            queues.retain(|(_, known, _)| **known != *topic);
            !queues.is_empty()
        });
        let left = self.by_connection.values().map(HashSet::len).sum();
        assert!(
            left <= self.count,
            "the places that connections know were counted: {left} of {}",
            self.count
        );
        self.count = left;
    }
}

fn key(Place { group, topic, queue_id }: Place<'_>) -> Key {
    (group.into(), topic.into(), queue_id)
}

impl State {
    /// Whether the group had offsets in an earlier topic of this name.
    fn is_former(&self, place: Place<'_>) -> bool {
        !self.formers.is_empty()
            && self.formers.get(place.group).is_some_and(|topics| topics.contains_key(place.topic))
    }

    /// Offset of the group in the current topic of this name.
    fn reached(&self, place: Place<'_>, readable: Readable) -> i64 {
        let offset = find(&self.offsets, place).map(|entry| entry.offset);
        let pulled = find(&self.pulled, place).copied();
        offset.into_iter().chain(pulled).max().unwrap_or(readable.min).max(readable.min)
    }

    /// New offset for a reader that does not know the topic.
    pub(super) fn sent_back(
        &mut self,
        place: Place<'_>,
        offset: i64,
        readable: Readable,
        reader: Option<Reader>,
    ) -> Option<i64> {
        let Reader { connection_id, is_foreign_beyond_end, .. } = reader?;
        if self.is_former(place) && !self.readers.has(place, connection_id) {
            if offset > self.reached(place, readable) {
                let start = self.start(place, readable);
                assert!(start < offset, "a reader of an earlier topic is sent back: {start} from {offset}");
                return Some(start);
            }
            self.readers.add(place, connection_id);
        }
        (offset > readable.max && is_foreign_beyond_end).then(|| self.start(place, readable))
    }

    /// Offset of the group, or of the first message.
    fn start(&self, place: Place<'_>, readable: Readable) -> i64 {
        find(&self.offsets, place).map_or(readable.min, |entry| entry.offset.max(readable.min))
    }

    /// Whether an offset may be committed by a reader.
    ///
    /// # Errors
    /// [`CommitError::BeforeCreation`]: the reader does not know the topic.
    pub(super) fn check_reader(
        &self,
        place: Place<'_>,
        offset: i64,
        readable: Readable,
        reader: Option<Reader>,
    ) -> Result<(), CommitError> {
        let Some(Reader { connection_id, is_member, .. }) = reader else { return Ok(()) };
        let is_first_of_member = || is_member && find(&self.offsets, place).is_none();
        if !self.is_former(place) && !is_first_of_member() || self.readers.has(place, connection_id) {
            return Ok(());
        }
        match self.reached(place, readable) {
            max_offset if offset > max_offset => Err(CommitError::BeforeCreation { offset, max_offset }),
            _ => Ok(()),
        }
    }

    /// Notes that a reader asks for the offset of its group. Returns where the group begins, if it has read an earlier topic of this
    /// name and nothing of this one.
    pub(super) fn asked(&mut self, place: Place<'_>, readable: Readable, reader: Reader) -> Option<i64> {
        let (is_former, is_new) = (self.is_former(place), find(&self.offsets, place).is_none());
        if is_former || is_new && reader.is_member {
            self.readers.add(place, reader.connection_id);
        }
        (is_former && is_new).then_some(readable.min)
    }

    /// A connection has ended.
    pub(super) fn disconnected(&mut self, connection_id: u64) {
        self.readers.remove(connection_id);
    }

    /// Notes the groups that have offsets in a topic as former readers of it, before they are removed.
    pub(super) fn note_formers(&mut self, topic: &str, creation: u64) {
        self.readers.remove_topic(topic);
        let groups = self.offsets.iter().filter(|(_, topics)| topics.contains_key(topic));
        let groups: Vec<Arc<str>> = groups.map(|(group, _)| Arc::clone(group)).collect();
        if groups.is_empty() {
            return;
        }
        let formers = Arc::make_mut(&mut self.formers);
        for group in groups {
            formers.entry(group).or_default().insert(topic.into(), creation);
        }
        bound_formers(formers);
    }

    /// Removes what is noted of a group.
    pub(super) fn forget_former(&mut self, group: &str) {
        if self.formers.contains_key(group) {
            Arc::make_mut(&mut self.formers).remove(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_knows_too_many_queues_makes_no_other_forget() {
        let mut known = KnownReaders::default();
        let place = |queue_id| Place { group: "g", topic: "t", queue_id };
        known.add(place(0), 1);
        for queue_id in 0..MAX_KNOWN as u32 + 10 {
            known.add(place(queue_id), 2);
        }
        assert!(known.has(place(0), 1));
        assert!(known.count <= MAX_KNOWN);
    }
}

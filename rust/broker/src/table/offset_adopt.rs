//! The offsets of a master, as its slave takes them over.

use std::collections::BTreeMap;
use std::sync::Arc;

use rocketpy_env::planted::{self, Bug};
use rocketpy_model::{DataVersion, name};
use rocketpy_protocol::body::{ConsumerOffsetSerializeWrapper, TopicCreation};

use super::offset_content::{Formers, by_group, formers_of};
use super::offset_state::{ByQueue, CommitError, Entry, NO_GUARD, Place, State, find, put, size_bytes};
use super::topic::MAX_QUEUES;
use crate::config_file::MAX_ENTRY_BYTES;

#[derive(Debug)]
pub(crate) struct MasterOffsets {
    version: DataVersion,
    offsets: ByQueue<i64>,
    guards: ByQueue<i64>,
    formers: Formers,
    /// The numbers of the topics that these offsets are of; empty for a master of Apache's.
    pub(crate) creations: BTreeMap<String, TopicCreation>,
    /// Offsets that name no queue of a topic.
    pub(crate) left_out: usize,
}

impl MasterOffsets {
    /// Takes what names a group and a queue of a topic, and leaves out the rest.
    pub(crate) fn new(content: ConsumerOffsetSerializeWrapper) -> Self {
        let ConsumerOffsetSerializeWrapper {
            data_version,
            mut offset_table,
            mut guard_table,
            mut former_table,
            mut creation_table,
            ..
        } = content;
        former_table.retain(|group, topics| {
            topics.retain(|topic, _| name::check_topic(topic).is_ok());
            name::check_stored_group(group).is_ok() && !topics.is_empty()
        });
        creation_table.retain(|topic, _| name::check_topic(topic).is_ok());
        let before: usize = offset_table.values().map(|queues| queues.len()).sum();
        for table in [&mut offset_table, &mut guard_table] {
            table.retain(|key, queues| {
                queues.retain(|id, offset| (0..MAX_QUEUES as i32).contains(id) && *offset >= 0);
                is_key(key) && !queues.is_empty()
            });
        }
        let after: usize = offset_table.values().map(|queues| queues.len()).sum();
        Self {
            version: data_version,
            offsets: by_group(offset_table, |offset| offset),
            guards: by_group(guard_table, |guard| guard),
            formers: formers_of(former_table),
            creations: creation_table,
            left_out: before - after,
        }
    }

    /// Committed offset of a group.
    pub(crate) fn get(&self, place: Place<'_>) -> Option<i64> {
        find(&self.offsets, place).copied()
    }

    /// Merges them into a table: theirs count where both have one. None is beyond the end of its queue here. Whether something changed.
    /// Those of topics for which `is_earlier` is true, given the master's number, are left out: the topic was created again since.
    ///
    /// The guards are the master's too: where the log of a slave ended at its own start says nothing, because it grows again by the same
    /// bytes.
    ///
    /// # Errors
    /// [`CommitError::Full`]: the table is as it was.
    pub(super) fn merge_into(
        &self,
        state: &mut State,
        max_offset: impl Fn(&str, u32) -> i64,
        is_earlier: impl Fn(&str, u64) -> bool,
    ) -> Result<bool, CommitError> {
        let mut merged = state.offsets.clone();
        for (group, topics) in &self.offsets {
            for (topic, queues) in &**topics {
                let creation = self.creations.get(&**topic);
                if creation.is_some_and(|creation| is_earlier(topic, creation.number)) {
                    continue;
                }
                for (&queue_id, &offset) in &**queues {
                    let place = Place { group, topic, queue_id };
                    let guard = find(&self.guards, place).copied().unwrap_or(NO_GUARD);
                    let offset = match planted::has(Bug::MetadataAheadOfLog) {
                        true => offset,
                        false => offset.min(max_offset(topic, queue_id)),
                    };
                    let known = find(&merged, place).copied();
                    if known.is_some_and(|known| (known.offset, known.guard) == (offset, guard)) {
                        continue;
                    }
                    // A new one is on disk with the next write that begins.
                    let since = known.map_or(state.begun + 1, |known| known.since);
                    put(&mut merged, place, Entry { offset, since, guard });
                }
            }
        }
        let bytes = size_bytes(&merged) + size_bytes(&state.pulled);
        if bytes > MAX_ENTRY_BYTES && bytes > state.bytes {
            return Err(CommitError::Full { limit_bytes: MAX_ENTRY_BYTES });
        }
        // A master of version 4.9 has no version.
        let is_new_version = self.version != state.version && self.version != DataVersion::default();
        let has_creations = !self.creations.is_empty();
        let is_changed = is_new_version
            || !is_same(&state.offsets, &merged)
            || has_creations && *state.formers != self.formers;
        if has_creations {
            state.formers = Arc::new(self.formers.clone());
        }
        if is_new_version {
            state.version = self.version;
        }
        state.is_changed |= is_changed;
        (state.offsets, state.bytes) = (merged, bytes);
        Ok(is_changed)
    }
}

/// Whether one table is an unchanged copy of the other: a change makes what holds it anew.
fn is_same<E>(one: &ByQueue<E>, other: &ByQueue<E>) -> bool {
    one.len() == other.len()
        && one.iter().all(|(group, topics)| other.get(group).is_some_and(|found| Arc::ptr_eq(topics, found)))
}

/// Whether it is `topic@group`, or `topic@group@broadcast`.
fn is_key(key: &str) -> bool {
    let mut parts = key.split('@');
    let topic = parts.next().unwrap_or_default();
    let group = parts.next().unwrap_or_default();
    name::check_topic(topic).is_ok()
        && name::check_stored_group(group).is_ok()
        && parts.all(|part| name::check_stored_group(part).is_ok())
}

//! The offsets of consumer groups in memory: what is stored, which write of the file has it, and which groups have to pull again
//! before they may commit.
#![cfg_attr(
    not(feature = "sim"),
    expect(unreachable_pub, reason = "the simulator uses the table from outside")
)]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rocketpy_env::planted::{self, Bug};
use rocketpy_model::DataVersion;
use rocketpy_protocol::body::ConsumerOffsetSerializeWrapper;
use tracing::warn;

use crate::config_file::MAX_ENTRY_BYTES;
use crate::table::group_commit::{NoRoomToWait, Wait};
use crate::table::offset_content::{Formers, Snapshot, by_group, formers_of};
use crate::table::offset_reader::{KnownReaders, Reader};

/// The version moves once in this many commits (`consumerOffsetUpdateVersionStep`).
const COMMITS_PER_VERSION: u64 = 500;
/// Bytes that one queue takes in the file: its number, its offset, tabs and signs, and the same again for its guard.
const QUEUE_BYTES: usize = 80;
/// Bytes around the names of a topic and a group, which occur four times in the file.
const PAIR_BYTES: usize = 32;
/// The guard of an entry that has none.
pub(super) const NO_GUARD: i64 = i64::MAX;

/// By group, then topic, then queue. Of a longer key (`topic@group@broadcast`) everything after the first `@` counts as group.
///
/// A write shares all of it. A change then copies what it touches: the queues of its topic, and the list of its group's topics.
pub(super) type ByQueue<E> = HashMap<Arc<str>, Arc<ByTopic<E>>>;
pub(super) type ByTopic<E> = HashMap<Arc<str>, Arc<BTreeMap<u32, E>>>;

/// A queue, as a group sees it.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub group: &'a str,
    pub topic: &'a str,
    pub queue_id: u32,
}

/// Readable offsets of a queue: from `min` to before `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readable {
    /// The first offset.
    pub min: i64,
    /// The offset that the next message gets.
    pub max: i64,
}

/// Why an offset is not stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// The queue ends before it: the group would skip messages that are still to come.
    #[error("offset {offset} exceeds the end of the queue, {max_offset}; commit at most that offset")]
    AboveEnd {
        /// Refused offset.
        offset: i64,
        /// The end.
        max_offset: i64,
    },
    /// A start may have taken the queue back to `max_offset`, and numbers above it name other messages now.
    #[error(
        "offset {offset} exceeds {max_offset}, the end of the queue at a start of the broker that may have lost messages; let a member of \
         the group pull from there first, commit at most that offset, or stop the group and reset it with `rocketpy group reset`"
    )]
    BeforeStart {
        /// Refused offset.
        offset: i64,
        /// Where the queue ended at that start.
        max_offset: i64,
    },
    /// The reader may have its offset from an earlier topic of this name.
    #[error(
        "offset {offset} exceeds {max_offset}, the offset of the group since the topic was created; query the offset of the group first \
         (QUERY_CONSUMER_OFFSET), or reset it with `rocketpy group reset`"
    )]
    BeforeCreation {
        /// Refused offset.
        offset: i64,
        /// The highest offset of this group that is known here.
        max_offset: i64,
    },
    /// The file would be longer than a start reads.
    #[error("offsets of all groups have reached {limit_bytes} bytes; delete unused groups")]
    Full {
        /// The bound.
        limit_bytes: usize,
    },
    /// Too many wait for the file.
    #[error("{limit} requests already wait until the offsets are written; try again later")]
    TooManyWait {
        /// The bound.
        limit: usize,
    },
}

impl From<NoRoomToWait> for CommitError {
    fn from(NoRoomToWait { limit }: NoRoomToWait) -> Self {
        Self::TooManyWait { limit }
    }
}

/// A pull, as far as offsets are concerned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PullAt<'a> {
    pub(crate) place: Place<'a>,
    pub(crate) offset: i64,
    /// The offset to store first, when the pull brings one.
    pub(crate) commit: Option<i64>,
    pub(crate) readable: Readable,
    /// `None`: the reader knows its offset.
    pub(crate) reader: Option<Reader>,
}

/// Decision about a pull.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pulling {
    /// It reads, once what it depends on is on disk. A commit that it brought may have been refused.
    Reads { refused: Option<CommitError> },
    /// Its offset is from before the last start: the reader has to go back to this one.
    Moved { to: i64 },
    /// A person has set the group to this one.
    Reset { to: i64 },
    /// Its offset is from an earlier topic of this name, or from another store.
    Foreign { to: i64 },
}

/// Change of the state by a pull.
#[derive(Debug)]
pub(super) struct Pulled {
    pub(super) pulling: Pulling,
    /// The write that comes before the pull reads.
    pub(super) wait: Wait,
    /// The pull showed that the group's offset is not past the end of the queue at a start.
    pub(super) ends_doubt: bool,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) offsets: ByQueue<Entry>,
    /// Where the last pull ended, for consumption statistics only.
    pub(super) pulled: ByQueue<i64>,
    /// Offsets that an operator has set while members may be at other offsets, by group. In memory only.
    resets: HashMap<Arc<str>, Vec<Reset>>,
    /// Groups that had offsets in topics that were deleted.
    pub(super) formers: Arc<Formers>,
    pub(super) readers: KnownReaders,
    pub(super) version: DataVersion,
    commits: u64,
    pub(super) is_changed: bool,
    /// Bytes that all of it takes in the file, at most.
    pub(super) bytes: usize,
    /// The number of the last write that began, and of the last one that succeeded.
    pub(super) begun: u64,
    written: u64,
    in_flight: Option<u64>,
}

/// Where the next pull of a queue is sent; until then no commit of a member counts.
#[derive(Debug)]
struct Reset {
    topic: Arc<str>,
    queue_id: u32,
    to: i64,
}

impl Reset {
    fn is_at(&self, place: Place<'_>) -> bool {
        self.queue_id == place.queue_id && *self.topic == *place.topic
    }
}

/// Change made at a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SetBack {
    Nothing,
    Guards,
    Offsets,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) offset: i64,
    /// The first write that has an offset of this group for this queue. Once it, or a later one, is on disk, a kill sets the group
    /// back, but not to nothing.
    pub(super) since: u64,
    /// The lowest end that the queue had at any start since the group last pulled there or before. Stored, because a member may stay
    /// away over several starts.
    pub(super) guard: i64,
}

impl State {
    pub(super) fn new(loaded: ConsumerOffsetSerializeWrapper) -> Self {
        let entry = |offset| Entry { offset, since: 0, guard: NO_GUARD };
        let mut offsets = by_group(loaded.offset_table, entry);
        for (group, topics) in by_group(loaded.guard_table, |guard| guard) {
            for (topic, queues) in &*topics {
                for (&queue_id, &guard) in &**queues {
                    let place = Place { group: &group, topic, queue_id };
                    if let Some(entry) = find_mut(&mut offsets, place) {
                        entry.guard = guard;
                    }
                }
            }
        }
        let pulled = by_group(loaded.pull_offset_table, |offset| offset);
        let formers = Arc::new(formers_of(loaded.former_table));
        let mut state = Self { offsets, pulled, formers, version: loaded.data_version, ..Self::default() };
        state.count_bytes();
        state
    }

    /// Begins a write. Every pull waits for the lock meanwhile: the content is made later, without it.
    pub(super) fn begin(&mut self) -> Snapshot {
        self.begun += 1;
        self.in_flight = Some(self.begun);
        self.is_changed = false;
        self.look()
    }

    /// Everything as it is. Cheap: what it holds is shared.
    pub(super) fn look(&self) -> Snapshot {
        let (offsets, pulled, formers) = (self.offsets.clone(), self.pulled.clone(), self.formers.clone());
        Snapshot { number: self.begun, version: self.version, offsets, pulled, formers }
    }

    pub(super) fn end(&mut self, number: u64, is_written: bool) {
        self.in_flight = None;
        if is_written {
            self.written = number;
        } else {
            self.is_changed = true;
        }
    }

    /// Sets offsets beyond the end of their queue back to it. With `is_suspect`, members of every group may stand beyond what
    /// survived, though what is stored does not show it.
    pub(super) fn set_back(&mut self, max_offset: impl Fn(&str, u32) -> i64, is_suspect: bool) -> SetBack {
        let mut changed = SetBack::Nothing;
        for (group, topics) in &mut self.offsets {
            for (topic, queues) in Arc::make_mut(topics) {
                for (queue_id, entry) in Arc::make_mut(queues) {
                    let max = max_offset(topic, *queue_id);
                    let guard = entry.guard;
                    if is_suspect || entry.offset > max || guard != NO_GUARD {
                        // The lowest of several starts: a member may have been away since before the first.
                        entry.guard = guard.min(max);
                    }
                    if entry.guard != guard {
                        changed = changed.max(SetBack::Guards);
                    }
                    if entry.offset > max {
                        let stored = entry.offset;
                        warn!(
                            group = &**group,
                            topic = &**topic,
                            queue_id,
                            stored,
                            max_offset = max,
                            "consumer offset past the end of its queue, reset to the end"
                        );
                        entry.offset = max;
                        changed = SetBack::Offsets;
                    }
                }
            }
        }
        for topics in self.pulled.values_mut() {
            for (topic, queues) in Arc::make_mut(topics) {
                for (queue_id, offset) in Arc::make_mut(queues) {
                    let max = max_offset(topic, *queue_id);
                    if *offset > max {
                        changed = SetBack::Offsets;
                    }
                    *offset = max.min(*offset);
                }
            }
        }
        self.is_changed |= changed != SetBack::Nothing;
        changed
    }

    pub(super) fn get(&self, group: &str, topic: &str, queue_id: u32) -> Option<i64> {
        Some(find(&self.offsets, Place { group, topic, queue_id })?.offset)
    }

    /// Stores an offset, and says which write it waits for: the first one of a group for a queue.
    pub(super) fn commit(
        &mut self,
        place: Place<'_>,
        offset: i64,
        readable: Readable,
        reader: Option<Reader>,
        room: Result<(), NoRoomToWait>,
    ) -> Result<Wait, CommitError> {
        if self.has_reset(place) {
            return Ok(Wait::No);
        }
        self.check_reader(place, offset, readable, reader)?;
        let is_checked = !planted::has(Bug::CommitAboveEnd);
        if is_checked && offset > readable.max {
            return Err(CommitError::AboveEnd { offset, max_offset: readable.max });
        }
        let Some(&entry) = find(&self.offsets, place) else { return self.begin_at(place, offset, room) };
        let max_offset = entry.guard.max(readable.min);
        if is_checked && offset > max_offset {
            return Err(CommitError::BeforeStart { offset, max_offset });
        }
        let wait = self.wait_for(entry.since);
        if wait != Wait::No {
            room?;
        }
        let changed = entry.offset != offset;
        if changed {
            put(&mut self.offsets, place, Entry { offset, ..entry });
        }
        self.count_commit(changed);
        Ok(wait)
    }

    /// Sends the next pull of the group to an offset.
    pub(super) fn note_reset(&mut self, place: Place<'_>, to: i64) {
        self.take_reset(place);
        assert!(!self.has_reset(place), "a queue of a group is reset to one offset at a time: {place:?}");
        let reset = Reset { topic: place.topic.into(), queue_id: place.queue_id, to };
        self.resets.entry(place.group.into()).or_default().push(reset);
    }

    fn has_reset(&self, place: Place<'_>) -> bool {
        !self.resets.is_empty()
            && self
                .resets
                .get(place.group)
                .is_some_and(|resets| resets.iter().any(|reset| reset.is_at(place)))
    }

    /// The offset that a person has set, once.
    pub(super) fn take_reset(&mut self, place: Place<'_>) -> Option<i64> {
        if self.resets.is_empty() {
            return None;
        }
        let resets = self.resets.get_mut(place.group)?;
        let index = resets.iter().position(|reset| reset.is_at(place))?;
        let Reset { to, .. } = resets.swap_remove(index);
        if resets.is_empty() {
            self.resets.remove(place.group);
        }
        Some(to)
    }

    /// No member of the group is past the stored offset.
    pub(super) fn trust(&mut self, place: Place<'_>) {
        if let Some(&entry) = find(&self.offsets, place)
            && entry.guard != NO_GUARD
        {
            self.is_changed = true;
            put(&mut self.offsets, place, Entry { guard: NO_GUARD, ..entry });
        }
    }

    /// Stores the first offset of a group for a queue.
    fn begin_at(
        &mut self,
        place: Place<'_>,
        offset: i64,
        room: Result<(), NoRoomToWait>,
    ) -> Result<Wait, CommitError> {
        assert!(find(&self.offsets, place).is_none(), "a group begins in a queue once: {place:?}");
        room?;
        self.take_room(place)?;
        let entry = Entry { offset, since: self.begun + 1, guard: NO_GUARD };
        put(&mut self.offsets, place, entry);
        self.count_commit(true);
        Ok(Wait::Next)
    }

    fn count_commit(&mut self, changed: bool) {
        self.is_changed |= changed;
        self.commits += 1;
    }

    /// Whether the version is to move now.
    pub(super) fn is_version_due(&self) -> bool {
        self.commits > 0 && self.commits.is_multiple_of(COMMITS_PER_VERSION)
    }

    pub(super) fn move_version(&mut self, now_ms: i64) {
        self.version = self.version.next(now_ms);
    }

    fn wait_for(&self, since: u64) -> Wait {
        let Self { begun, written, .. } = *self;
        assert!(written <= begun, "no write of the offsets ends before it begins: {written} of {begun}");
        assert!(
            since <= begun + 1,
            "an offset is in the next write or in an earlier one: {since} of {begun}"
        );
        if since <= self.written {
            Wait::No
        } else if self.in_flight.is_some_and(|number| since <= number) {
            Wait::Current
        } else {
            Wait::Next
        }
    }

    /// What a pull may do. The write that comes before it is one that has an offset of its group for the queue.
    pub(super) fn pull(
        &mut self,
        pull: &PullAt<'_>,
        starts_here: impl FnOnce() -> bool,
        room: Result<(), NoRoomToWait>,
    ) -> Result<Pulled, CommitError> {
        let PullAt { place, offset, commit, readable, reader } = *pull;
        if let Some(to) = self.take_reset(place).filter(|to| *to != offset) {
            return Ok(Pulled { pulling: Pulling::Reset { to }, wait: Wait::No, ends_doubt: false });
        }
        let guard = find(&self.offsets, place).map_or(NO_GUARD, |entry| entry.guard);
        let ends_doubt = guard != NO_GUARD;
        if ends_doubt {
            let to = guard.max(readable.min);
            if offset > to {
                return Ok(Pulled { pulling: Pulling::Moved { to }, wait: Wait::No, ends_doubt: false });
            }
            self.trust(place);
        }
        if let Some(to) = self.sent_back(place, offset, readable, reader) {
            return Ok(Pulled { pulling: Pulling::Foreign { to }, wait: Wait::No, ends_doubt });
        }
        let mut refused = None;
        if let Some(commit) = commit {
            match self.commit(place, commit, readable, reader, room) {
                Ok(Wait::No) => {}
                Ok(wait) => return Ok(Pulled { pulling: Pulling::Reads { refused }, wait, ends_doubt }),
                Err(error @ (CommitError::Full { .. } | CommitError::TooManyWait { .. })) => {
                    return Err(error);
                }
                Err(error) => refused = Some(error),
            }
        }
        let since = find(&self.offsets, place).map(|entry| entry.since);
        let wait = match since {
            Some(since) => {
                let wait = self.wait_for(since);
                if wait != Wait::No {
                    room?;
                }
                wait
            }
            None if starts_here() => {
                let start = offset.clamp(readable.min, readable.max.max(readable.min));
                self.begin_at(place, start, room)?
            }
            None => Wait::No,
        };
        Ok(Pulled { pulling: Pulling::Reads { refused }, wait, ends_doubt })
    }

    /// Notes where a pull ended. Without room for it nothing is noted: it is for statistics only.
    pub(super) fn pulled(&mut self, place: Place<'_>, offset: i64) {
        let is_new = match find(&self.pulled, place) {
            Some(known) => *known != offset,
            None => self.take_room(place).is_ok(),
        };
        if is_new {
            put(&mut self.pulled, place, offset);
        }
    }

    pub(super) fn last_pulled(&self, group: &str, topic: &str, queue_id: u32) -> Option<i64> {
        find(&self.pulled, Place { group, topic, queue_id }).copied()
    }

    /// Counts an entry that is about to be added.
    fn take_room(&mut self, place: Place<'_>) -> Result<(), CommitError> {
        let has_pair =
            |known: bool| if known { 0 } else { 3 * (place.topic.len() + place.group.len() + PAIR_BYTES) };
        let in_offsets = self.offsets.get(place.group).is_some_and(|topics| topics.contains_key(place.topic));
        let in_pulled = self.pulled.get(place.group).is_some_and(|topics| topics.contains_key(place.topic));
        let bytes = self.bytes + QUEUE_BYTES + has_pair(in_offsets) + has_pair(in_pulled);
        if bytes > MAX_ENTRY_BYTES {
            return Err(CommitError::Full { limit_bytes: MAX_ENTRY_BYTES });
        }
        self.bytes = bytes;
        Ok(())
    }

    fn count_bytes(&mut self) {
        self.bytes = size_bytes(&self.offsets) + size_bytes(&self.pulled);
    }

    pub(super) fn topics_of(&self, group: &str) -> Vec<String> {
        let topics = self.offsets.get(group).map(|topics| topics.keys().map(ToString::to_string));
        let mut topics: Vec<String> = topics.into_iter().flatten().collect();
        topics.sort_unstable();
        topics
    }

    pub(super) fn groups_of(&self, topic: &str) -> Vec<String> {
        let with_topic = self.offsets.iter().filter(|(_, topics)| topics.contains_key(topic));
        let mut groups: Vec<String> = with_topic.map(|(group, _)| group.to_string()).collect();
        groups.sort_unstable();
        groups
    }

    /// Removes the offsets of a topic; `creation` is its number.
    pub(super) fn remove_topic(&mut self, topic: &str, creation: u64) {
        self.note_formers(topic, creation);
        remove_topic(&mut self.offsets, topic);
        remove_topic(&mut self.pulled, topic);
        self.resets.retain(|_, resets| {
            resets.retain(|reset| *reset.topic != *topic);
            !resets.is_empty()
        });
        self.removed();
    }

    pub(super) fn remove_group(&mut self, group: &str) {
        self.offsets.remove(group);
        self.pulled.remove(group);
        self.resets.remove(group);
        self.forget_former(group);
        self.removed();
    }

    fn removed(&mut self) {
        self.is_changed = true;
        let counted = self.bytes;
        self.count_bytes();
        assert!(self.bytes <= counted, "every stored offset was counted: {} of {counted}", self.bytes);
    }
}

fn remove_topic<E>(table: &mut ByQueue<E>, topic: &str) {
    for topics in table.values_mut().filter(|topics| topics.contains_key(topic)) {
        Arc::make_mut(topics).remove(topic);
    }
    table.retain(|_, topics| !topics.is_empty());
}

pub(super) fn find<'t, E>(table: &'t ByQueue<E>, place: Place<'_>) -> Option<&'t E> {
    table.get(place.group)?.get(place.topic)?.get(&place.queue_id)
}

fn find_mut<'t, E: Copy>(table: &'t mut ByQueue<E>, place: Place<'_>) -> Option<&'t mut E> {
    let topics = Arc::make_mut(table.get_mut(place.group)?);
    Arc::make_mut(topics.get_mut(place.topic)?).get_mut(&place.queue_id)
}

pub(super) fn put<E: Copy>(table: &mut ByQueue<E>, place: Place<'_>, entry: E) {
    if let Some(known) = find_mut(table, place) {
        *known = entry;
        return;
    }
    let topics = Arc::make_mut(table.entry(place.group.into()).or_default());
    Arc::make_mut(topics.entry(place.topic.into()).or_default()).insert(place.queue_id, entry);
}

pub(super) fn size_bytes<E>(table: &ByQueue<E>) -> usize {
    let pairs = table.iter().flat_map(|(group, topics)| topics.iter().map(move |pair| (group, pair)));
    pairs
        .map(|(group, (topic, queues))| {
            3 * (topic.len() + group.len() + PAIR_BYTES) + queues.len() * QUEUE_BYTES
        })
        .sum()
}

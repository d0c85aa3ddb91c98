//! Offsets of queues and groups.

use rocketpy_model::system;
use rocketpy_store::{Boundary, Store, StoreError};

use super::queue_id;
use crate::ground::Ground;
use crate::members::Members;
use crate::refusal::{Refusal, check_offset_of_clients};
use crate::table::group_commit::Written;
use crate::table::offset::{Place, Readable, Reader};

/// The offset of a group for a queue; 0 for a group without one that begins at the first message, unless only a stored one is wanted.
/// A member continues from this offset: a group that has read an earlier topic of this name begins at the first message, and so does a
/// member whose group subscribed before the queue was created.
///
/// # Errors
/// There is none, or groups may not continue here.
pub(crate) fn offset_of(
    ground: &Ground,
    members: &Members,
    connection_id: u64,
    place: Place<'_>,
    is_stored_wanted: bool,
) -> Result<i64, Refusal> {
    ground.check_log()?;
    let Place { group, topic, queue_id } = place;
    let bounds = readable(ground.store(), topic, queue_id);
    // Tools ask for what is stored, and begin nowhere.
    let begins = |reader: &Reader| reader.is_member || !is_stored_wanted;
    let is_queue = ground.topics().get(topic).is_some_and(|topic| queue_id < topic.queues());
    let reader = reader((ground, members), connection_id, place, 0, bounds);
    let reader = reader.filter(|reader| is_queue && begins(reader));
    let start = reader.and_then(|reader| members.offsets().asked(place, bounds, reader));
    if let Some(offset) = members.offsets().get(group, topic, queue_id).or(start) {
        return Ok(offset);
    }
    if reader.is_some_and(|reader| reader.is_member) && is_younger(ground, members, connection_id, place) {
        // Stored, so that the next member continues here although this one ends before its first commit.
        let _soon = members.offsets().commit(place, bounds.min, bounds)?;
        return Ok(bounds.min);
    }
    if is_queue && !is_stored_wanted && starts_hot(ground, topic, queue_id)? {
        return Ok(0);
    }
    Err(Refusal::NoOffset { group: group.to_owned(), topic: topic.to_owned(), queue_id })
}

/// Whether a queue was created after the group of a member had subscribed to its topic: what it received before the group noticed it would be
/// missed from its end.
fn is_younger(ground: &Ground, members: &Members, connection_id: u64, place: Place<'_>) -> bool {
    let Place { group, topic, queue_id } = place;
    let since = members.clients().subscribed_since(connection_id, group, topic);
    since.is_some_and(|since| ground.creations().of(topic, queue_id).number > since)
}

/// Whether [`offset_of`] reads nothing from the log.
pub(crate) fn is_known(ground: &Ground, members: &Members, place: Place<'_>) -> bool {
    let Place { group, topic, queue_id } = place;
    let bounds = ground.store().queue_bounds(topic, queue_id);
    members.offsets().get(group, topic, queue_id).is_some() || bounds.min.get() > 0 || bounds.max.get() == 0
}

/// Whether the queue was never trimmed, and is empty or has its first message near the end of the log. Then a group without an
/// offset begins at the first message, whatever start it asks for. Otherwise it would ask for the end next, and messages that came
/// in between would be skipped.
fn starts_hot(ground: &Ground, topic: &str, queue_id: u32) -> Result<bool, Refusal> {
    let store = ground.store();
    let bounds = store.queue_bounds(topic, queue_id);
    if bounds.min.get() > 0 || bounds.max.get() == 0 {
        return Ok(bounds.min.get() == 0);
    }
    let first = store.entries(topic, queue_id, bounds.min, 1)?;
    let end = store.max_physical_offset();
    Ok(first.iter().any(|entry| end.saturating_sub(entry.physical_offset) <= ground.hot_bytes()))
}

/// An offset that a group commits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Commit<'a> {
    pub(crate) group: &'a str,
    pub(crate) topic: &'a str,
    pub(crate) queue_id: i32,
    pub(crate) offset: i64,
    pub(crate) connection_id: u64,
    /// Whether it may go back.
    pub(crate) is_reset: bool,
}

/// Stores an offset. The first one of a group for a queue has to be written before the answer.
///
/// # Errors
/// There is no such group, topic, queue or offset, it is one of the broker's own, or groups may not continue here.
pub(crate) fn commit(
    ground: &Ground,
    members: &Members,
    commit: &Commit<'_>,
) -> Result<Option<Written>, Refusal> {
    ground.check_log()?;
    let Commit { group, topic, offset, connection_id, .. } = *commit;
    check_offset_of_clients(group, topic)?;
    if ground.groups().get(group).is_none() {
        let missing = Refusal::NoGroup { group: group.to_owned() };
        if ground.role().is_master() || ground.group(group).is_err() {
            return Err(missing);
        }
    }
    let Some(config) = ground.topics().get(topic) else {
        return Err(Refusal::NoTopic { topic: topic.to_owned() });
    };
    let queue = queue_id(commit.queue_id)?;
    if queue >= config.queues() {
        let (queue_id, queues) = (commit.queue_id, config.queues());
        return Err(Refusal::QueueId { topic: topic.to_owned(), queue_id, queues });
    }
    if offset < 0 {
        let value = offset.to_string();
        return Err(Refusal::Value { field: "commitOffset", wanted: "0 or more", value });
    }
    let place = Place { group, topic, queue_id: queue };
    let readable = readable(ground.store(), topic, queue);
    let stored = if commit.is_reset {
        members.offsets().reset(place, offset, readable)
    } else {
        let reader = reader((ground, members), connection_id, place, offset, readable);
        members.offsets().commit_of(reader, place, offset, readable)
    };
    let written = stored?;
    if !ground.role().is_master() {
        members.own_commits().note(place, offset);
    }
    Ok(written)
}

/// Who pulls or commits at an offset; `None` at a slave, which moves nobody.
pub(super) fn reader(
    (ground, members): (&Ground, &Members),
    connection_id: u64,
    place: Place<'_>,
    offset: i64,
    readable: Readable,
) -> Option<Reader> {
    if !ground.role().is_master() {
        return None;
    }
    let Place { group, topic, queue_id } = place;
    // A start that lost the end of the log explains an offset beyond the end of a queue that was there before.
    let is_explained = || members.may_have_become_shorter(ground.creations().of(topic, queue_id));
    Some(Reader {
        connection_id,
        is_member: members.clients().is_member(connection_id, group),
        is_foreign_beyond_end: offset > readable.max && !system::is_system_group(group) && !is_explained(),
    })
}

/// What can be read of a queue.
pub(crate) fn readable(store: &Store, topic: &str, queue_id: u32) -> Readable {
    let bounds = store.queue_bounds(topic, queue_id);
    Readable { min: bounds.min.to_wire(), max: bounds.max.to_wire() }
}

/// The end of what can be read of a queue, or the offset that its next message gets. 0 for a queue that does not exist.
///
/// # Errors
/// The queue id is none.
pub(crate) fn max(store: &Store, topic: &str, queue: i32, is_next_wanted: bool) -> Result<i64, Refusal> {
    let queue = queue_id(queue)?;
    let max = match is_next_wanted {
        true => store.next_queue_offset(topic, queue),
        false => store.queue_bounds(topic, queue).max,
    };
    Ok(max.to_wire())
}

/// The first offset of a queue.
///
/// # Errors
/// The queue id is none.
pub(crate) fn min(store: &Store, topic: &str, queue: i32) -> Result<i64, Refusal> {
    Ok(store.queue_bounds(topic, queue_id(queue)?).min.to_wire())
}

/// The offset of a time, in Unix milliseconds.
///
/// # Errors
/// The queue id is none, or the queue cannot be read.
pub(crate) fn at_time(
    store: &Store,
    topic: &str,
    queue: i32,
    at_ms: i64,
    boundary: Boundary,
) -> Result<i64, Refusal> {
    Ok(store.offset_by_time(topic, queue_id(queue)?, at_ms, boundary)?.to_wire())
}

/// When the first message of a queue was stored; `None` when the queue holds nothing.
///
/// # Errors
/// The queue id is none, or the queue cannot be read.
pub(crate) fn earliest_stored_at(store: &Store, topic: &str, queue: i32) -> Result<Option<i64>, Refusal> {
    let earliest: Result<_, StoreError> = store.earliest_stored_at(topic, queue_id(queue)?);
    Ok(earliest?)
}

//! The requests that wait for messages of one queue, by what wakes them.

use std::collections::BTreeSet;

use rocketpy_filter::is_extension_address;
use rocketpy_model::QueueOffset;
use rocketpy_store::Arrival;

use super::{Awaited, HeldId};

/// Memory for each tags code of a request: a key in a tree whose nodes may be half empty.
pub(super) const CODE_BYTES: usize = 96;

/// Requests in the order of the offset for which they wait. A message costs what it wakes, however many wait for another one.
#[derive(Debug, Default)]
pub(super) struct HeldAtQueue {
    /// Each request once.
    by_offset: BTreeSet<(i64, HeldId)>,
    /// Each request under each of its tags codes, or under `None` when it takes any.
    by_code: BTreeSet<(Option<i64>, i64, HeldId)>,
}

impl HeldAtQueue {
    pub(super) fn insert(&mut self, id: HeldId, awaited: &Awaited<'_>) {
        self.by_offset.insert((awaited.offset, id));
        self.by_code.extend(keys(id, awaited));
    }

    pub(super) fn remove(&mut self, id: HeldId, awaited: &Awaited<'_>) {
        let was_there = self.by_offset.remove(&(awaited.offset, id));
        assert!(was_there, "a request is found by the offset for which it waits: {}", awaited.offset);
        for key in keys(id, awaited) {
            self.by_code.remove(&key);
        }
        assert!(
            !self.by_offset.is_empty() || self.by_code.is_empty(),
            "a queue without held requests wakes none"
        );
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_offset.is_empty()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = HeldId> {
        self.by_offset.iter().map(|(_, id)| *id)
    }

    /// Those that wait for a message before this end, whatever its tags code.
    pub(super) fn before(&self, end: QueueOffset) -> impl Iterator<Item = HeldId> {
        self.by_offset.range(..(end.to_wire(), HeldId::FIRST)).map(|(_, id)| *id)
    }

    /// Those that this message wakes.
    pub(super) fn woken_by(&self, arrival: &Arrival) -> impl Iterator<Item = HeldId> {
        let end = arrival.next_offset;
        let may_have_any_tag = is_extension_address(arrival.tags_code);
        let by_code = [None, Some(arrival.tags_code)].into_iter().filter(move |_| !may_have_any_tag);
        let by_code = by_code.flat_map(move |code| {
            self.by_code.range((code, i64::MIN, HeldId::FIRST)..(code, end.to_wire(), HeldId::FIRST))
        });
        let whatever = may_have_any_tag.then(|| self.before(end)).into_iter().flatten();
        by_code.map(|(_, _, id)| *id).chain(whatever)
    }
}

/// The keys of a request in [`HeldAtQueue::by_code`].
fn keys(id: HeldId, awaited: &Awaited<'_>) -> impl Iterator<Item = (Option<i64>, i64, HeldId)> {
    let offset = awaited.offset;
    let any = awaited.codes.is_none().then_some(None);
    let codes = awaited.codes.into_iter().flatten().map(|code| Some(*code));
    any.into_iter().chain(codes).map(move |code| (code, offset, id))
}

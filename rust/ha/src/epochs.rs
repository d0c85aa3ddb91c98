//! Which lives wrote a log, by which two logs find how far they are the same.

use rocketpy_env::planted::{self, Bug};
use rocketpy_model::PhysicalOffset;
use serde::{Deserialize, Serialize};

/// Maximum number of epochs that are kept; the oldest ones are forgotten. Two logs that share a later one need them no more.
const MAX_EPOCHS: usize = 256;

/// One life of a master: nobody else wrote the bytes from its start to the next epoch's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Epoch {
    /// Drawn by chance.
    pub id: u64,
    /// Where the log ended when it began, in bytes.
    pub start: PhysicalOffset,
    /// Its writer may have lost bytes that it had reported to a master, and may have begun too early for this reason.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after_loss: bool,
}

/// The epochs of a log, in order.
///
/// A master opens one whenever bytes after its end may exist elsewhere: after a sudden end, after a cut, when a slave becomes a master.
/// A slave takes over the list of its master before it takes bytes of it. So two logs that have an epoch in common have the same bytes
/// before its start, and in it as far as both have any: how long they are tells nothing.
///
/// # Source
/// docs/decisions/epochs-of-a-log.md.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Epoch>")]
pub struct Epochs(Vec<Epoch>);

/// List of epochs in which one does not start after the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("epoch {id} must start after the previous epoch: {start}")]
pub struct UnorderedEpochs {
    /// The epoch.
    pub id: u64,
    /// Where it begins.
    pub start: PhysicalOffset,
}

impl TryFrom<Vec<Epoch>> for Epochs {
    type Error = UnorderedEpochs;

    fn try_from(list: Vec<Epoch>) -> Result<Self, UnorderedEpochs> {
        match list.windows(2).find(|pair| pair[0].start >= pair[1].start) {
            Some(&[_, Epoch { id, start, .. }]) => Err(UnorderedEpochs { id, start }),
            _ => Ok(Self(list)),
        }
    }
}

impl Epochs {
    /// The list, oldest first.
    #[must_use]
    pub fn list(&self) -> &[Epoch] {
        &self.0
    }

    /// The list as it goes over the wire.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() // numbers have a form in JSON
    }

    /// A list that another broker sent, oldest first; `None` when it is out of order.
    #[must_use]
    pub fn of(list: Vec<Epoch>) -> Option<Self> {
        Self::try_from(list).ok()
    }

    /// Reads such a list; `None` when it is none.
    #[must_use]
    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Opens an epoch. Those of which a log that reaches to its start has no byte are forgotten, but not that their writer may have lost some.
    pub fn begin(&mut self, epoch: Epoch) {
        let after_loss =
            epoch.after_loss || self.0.iter().any(|old| old.start >= epoch.start && old.after_loss);
        if !planted::has(Bug::EpochsNotCutBack) {
            *self = self.within(epoch.start);
        }
        self.0.push(Epoch { after_loss, ..epoch });
        if self.0.len() > MAX_EPOCHS {
            self.0.remove(0);
        }
        assert!(
            self.0.is_sorted_by(|former, next| former.start < next.start),
            "epochs are monotonic: one begins at {}",
            epoch.start
        );
    }

    /// The epochs of which a log that reaches to `end` has bytes.
    #[must_use]
    pub fn within(&self, end: PhysicalOffset) -> Self {
        Self(self.0.iter().filter(|epoch| epoch.start < end).copied().collect())
    }

    /// Offset at which another log diverges from this one, if it continues with an epoch that this one does not have.
    #[must_use]
    pub fn continued_at(&self, other: &Self) -> Option<PhysicalOffset> {
        let common = other.0.iter().rposition(|epoch| self.0.contains(epoch))?;
        let next = other.0.get(common + 1)?.start;
        let own_next = self.0.iter().skip_while(|epoch| **epoch != other.0[common]).nth(1);
        Some(own_next.map_or(next, |own| own.start.min(next)))
    }

    /// Whether this log has no epoch after the offset at which another one continues it.
    #[must_use]
    pub fn end_with_one_of(&self, other: &Self) -> bool {
        self.0.last().is_some_and(|last| other.0.contains(last))
    }

    /// Whether the epoch that begins at a place is of a writer that may have lost bytes.
    #[must_use]
    pub fn are_after_loss_at(&self, start: PhysicalOffset) -> bool {
        self.0.iter().any(|epoch| epoch.start == start && epoch.after_loss)
    }

    /// How far a log that reaches to `end` is the same as another one; `None` when no epoch of theirs is common.
    #[must_use]
    pub fn common_end(
        &self,
        end: PhysicalOffset,
        other: &Self,
        other_end: PhysicalOffset,
    ) -> Option<PhysicalOffset> {
        let (own_at, other_at) = self.0.iter().enumerate().rev().find_map(|(own_at, epoch)| {
            let other_at = other.0.iter().position(|found| found == epoch)?;
            Some((own_at, other_at))
        })?;
        let common = self.end_of(own_at, end).min(other.end_of(other_at, other_end));
        assert!(common <= end.min(other_end), "what two logs have in common lies in both: {common}");
        Some(common)
    }

    /// Where an epoch ends in a log that reaches to `end`.
    fn end_of(&self, at: usize, end: PhysicalOffset) -> PhysicalOffset {
        self.0.get(at + 1).map_or(end, |next| next.start.min(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(id: u64, start: u64) -> Epoch {
        Epoch { id, start: PhysicalOffset(start), after_loss: false }
    }

    fn epochs(list: &[(u64, u64)]) -> Epochs {
        Epochs(list.iter().map(|&(id, start)| epoch(id, start)).collect())
    }

    /// How far two logs are the same, which is so whichever of them is asked.
    fn common(one: &[(u64, u64)], one_end: u64, other: &[(u64, u64)], other_end: u64) -> Option<u64> {
        let (one, other) = (epochs(one), epochs(other));
        let (one_end, other_end) = (PhysicalOffset(one_end), PhysicalOffset(other_end));
        let found = one.common_end(one_end, &other, other_end);
        assert_eq!(found, other.common_end(other_end, &one, one_end));
        found.map(PhysicalOffset::get)
    }

    #[test]
    fn logs_are_the_same_to_the_end_of_their_last_common_epoch() {
        // A slave that is behind, and one that has all.
        assert_eq!(common(&[(7, 0)], 100, &[(7, 0)], 300), Some(100));
        assert_eq!(common(&[(7, 0)], 100, &[(7, 0), (8, 200)], 300), Some(100));
        assert_eq!(common(&[(7, 0), (8, 200)], 300, &[(7, 0), (8, 200)], 300), Some(300));
        // The master lost its end and wrote on: the slave's bytes behind 200 are its own.
        assert_eq!(common(&[(7, 0)], 250, &[(7, 0), (8, 200)], 300), Some(200));
        // Both became masters at different places.
        assert_eq!(common(&[(7, 0), (9, 150)], 400, &[(7, 0), (8, 200)], 300), Some(150));
        // The oldest ones were forgotten by one of them.
        assert_eq!(common(&[(8, 200), (9, 300)], 400, &[(7, 0), (8, 200), (9, 300)], 350), Some(350));
    }

    #[test]
    fn a_log_is_continued_by_who_has_an_epoch_of_it_and_a_later_one() {
        let own = epochs(&[(7, 0), (8, 200)]);
        let at = |other: &[(u64, u64)]| own.continued_at(&epochs(other)).map(PhysicalOffset::get);
        assert_eq!(at(&[(7, 0), (8, 200), (9, 300)]), Some(300));
        assert_eq!(at(&[(8, 200), (9, 300), (10, 400)]), Some(300), "it forgot the oldest");
        assert_eq!(at(&[(7, 0), (9, 150)]), Some(150), "both went on");
        assert_eq!(at(&[(7, 0), (9, 250)]), Some(200), "and this one did so first");
        assert_eq!(at(&[(7, 0), (8, 200)]), None, "a slave of it, or itself");
        assert_eq!((at(&[(7, 0)]), at(&[(9, 0)]), at(&[])), (None, None, None));
        assert!(own.end_with_one_of(&epochs(&[(7, 0), (8, 200), (9, 300)])));
        assert!(!own.end_with_one_of(&epochs(&[(7, 0), (9, 150)])));
    }

    #[test]
    fn an_unordered_list_of_epochs_is_refused() {
        let list = |starts: [u64; 2]| starts.map(|start| epoch(7, start)).to_vec();
        assert!(Epochs::of(list([0, 200])).is_some());
        assert_eq!((Epochs::of(list([200, 0])), Epochs::of(list([5, 5]))), (None, None));
        assert_eq!(Epochs::from_json(r#"[{"id":1,"start":9},{"id":2,"start":8}]"#), None);
        let read = Epochs::from_json(r#"[{"id":1,"start":8},{"id":2,"start":9}]"#).unwrap();
        assert_eq!(Epochs::from_json(&read.to_json()), Some(read));
    }

    #[test]
    fn logs_without_a_common_epoch_have_nothing_in_common() {
        assert_eq!(common(&[(7, 0)], 100, &[(8, 0)], 100), None);
        assert_eq!(common(&[], 100, &[(8, 0)], 100), None);
        assert_eq!(common(&[(7, 0)], 100, &[(7, 10)], 100), None, "the same number by chance");
    }

    #[test]
    fn an_epoch_without_a_byte_goes_when_the_next_one_begins() {
        let mut slave = epochs(&[(7, 0), (8, 200)]);
        slave.begin(epoch(9, 200));
        assert_eq!(slave, epochs(&[(7, 0), (9, 200)]));
        assert_eq!(slave.within(PhysicalOffset(200)), epochs(&[(7, 0)]));
        slave.begin(Epoch { after_loss: true, ..epoch(10, 200) });
        slave.begin(epoch(11, 200));
        assert!(
            slave.are_after_loss_at(PhysicalOffset(200)),
            "it begins no later than the one that may have lost bytes"
        );
        slave.begin(epoch(12, 250));
        assert!(!slave.are_after_loss_at(PhysicalOffset(250)));
        for id in 20..20 + MAX_EPOCHS as u64 {
            slave.begin(epoch(id, id * 100));
        }
        assert_eq!(slave.list().len(), MAX_EPOCHS);
    }
}

//! Which slaves have what a master acknowledged.

use std::collections::BTreeSet;

use rocketpy_model::PhysicalOffset;
use serde::{Deserialize, Serialize};

/// The slaves that a master fed while it acknowledged nothing without them.
///
/// As long as it fed no more slaves than each send waits for, all of them have everything that it acknowledged meanwhile. What it has behind the
/// place where one of them became the master was promised to nobody.
///
/// # Source
/// docs/durability.md R8, docs/decisions/epochs-of-a-log.md.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Witnesses {
    from: PhysicalOffset,
    needed: usize,
    slaves: BTreeSet<String>,
}

impl Witnesses {
    /// For a life of a master that begins with a log that reaches to `end`, and in which sends wait for `needed` slaves. `None` when they wait for none.
    #[must_use]
    pub fn begin(former: Option<Self>, end: PhysicalOffset, needed: usize) -> Option<Self> {
        let goes_on = |former: &Self| former.needed == needed && former.have_all() && former.from <= end;
        let fresh = || Self { from: end, needed, slaves: BTreeSet::new() };
        (needed > 0).then(|| former.filter(goes_on).unwrap_or_else(fresh))
    }

    /// A slave is about to be fed, and to count for sends. Returns whether that is news, and has to be durable before it does.
    pub fn add(&mut self, slave: &str) -> bool {
        let is_new = self.have_all() && self.slaves.insert(slave.to_owned());
        assert!(!is_new || self.slaves.len() <= self.needed + 1, "witnesses end with the first one too many");
        is_new
    }

    /// Whether nothing behind `at` was acknowledged, if a slave became the master with a log that reached to `at`, of which it had lost nothing.
    #[must_use]
    pub fn vouch_for(&self, at: PhysicalOffset) -> bool {
        self.have_all() && self.from <= at
    }

    fn have_all(&self) -> bool {
        self.slaves.len() <= self.needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(former: Option<Witnesses>, end: u64, needed: usize) -> Witnesses {
        Witnesses::begin(former, PhysicalOffset(end), needed).expect("sends wait for slaves")
    }

    #[test]
    fn one_slave_of_a_master_that_waits_for_one_has_all() {
        let mut witnesses = begin(None, 1000, 1);
        assert!(witnesses.add("1") && !witnesses.add("1"));
        assert!(witnesses.vouch_for(PhysicalOffset(1000)) && witnesses.vouch_for(PhysicalOffset(1500)));
        assert!(
            !witnesses.vouch_for(PhysicalOffset(999)),
            "an earlier life may have acknowledged that alone"
        );
        // The master is killed, and begins another life.
        let mut witnesses = begin(Some(witnesses), 1600, 1);
        assert!(!witnesses.add("1"), "it is known");
        assert!(witnesses.vouch_for(PhysicalOffset(1500)));
        assert!(witnesses.add("2"), "either of two may have what the other has not");
        assert!(!witnesses.vouch_for(PhysicalOffset(1500)));
        assert!(!witnesses.add("3"), "they are not counted further");
        assert!(!begin(Some(witnesses), 1700, 1).vouch_for(PhysicalOffset(1650)));
    }

    #[test]
    fn a_life_with_other_promises_begins_anew() {
        assert_eq!(Witnesses::begin(None, PhysicalOffset(1000), 0), None, "it acknowledges alone");
        let mut witnesses = begin(None, 1000, 1);
        witnesses.add("1");
        let mut both = begin(Some(witnesses.clone()), 2000, 2);
        assert!(both.add("1") && both.add("2"));
        assert!(both.vouch_for(PhysicalOffset(2000)) && !both.vouch_for(PhysicalOffset(1999)));
        assert!(begin(Some(witnesses), 900, 1).vouch_for(PhysicalOffset(900)), "a log that became shorter");
    }
}

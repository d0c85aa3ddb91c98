//! The restarts of a master after a sudden end. They tell whether a slave that reports only the length of its log may have diverged.

use std::collections::BTreeMap;

use rocketpy_env::planted::{self, Bug};
use rocketpy_model::PhysicalOffset;

/// Maximum number of restarts that are kept. The first ones are forgotten as if they were one.
const MAX_RESTARTS: usize = 64;
/// Maximum number of slaves that are remembered.
const MAX_SLAVES: usize = 64;

/// The restarts of a master after a sudden end, and how far each slave is known to have its log.
///
/// A master that lost power may have lost the end of its log, which a slave still has. It continues writing, and from there on both have
/// other bytes at the same offsets: to compare how long the logs are tells nothing. So a master notes where each of its lives began that
/// followed a sudden end, and how far each slave had the log. A slave that reports more than the master had at the beginning of a
/// life, and was not seen to have grown during that life, got those bytes in an earlier one.
///
/// # Source
/// docs/durability.md R8, docs/decisions/lives-of-a-master.md.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MasterRestarts {
    /// Where lives began after a sudden end, in order.
    pub starts: Vec<PhysicalOffset>,
    /// By the address of a slave, without its port: it has this master's log up to here.
    pub slaves: BTreeMap<String, PhysicalOffset>,
}

/// A slave has bytes that this master may never have had, or has lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "slave's log ends at {reported}; this master started at {start} after a sudden end, and cannot tell whether both have the same bytes \
     after that. Give the slave an empty folder, or make it the master if it has more"
)]
pub struct TwoHistories {
    /// End of the slave's log.
    pub reported: PhysicalOffset,
    /// Where the life began that may have written other bytes.
    pub start: PhysicalOffset,
}

impl MasterRestarts {
    /// A life begins with a log that reaches to `end`. Only one that follows a sudden end is noted; returns whether it is.
    pub fn begin(&mut self, end: PhysicalOffset, is_after_sudden_end: bool) -> bool {
        // What slaves have after the end is not this master's log any more.
        let is_shorter = self.slaves.values().any(|had| *had > end);
        if !planted::has(Bug::RestartKeepsAcknowledged) {
            self.slaves.values_mut().for_each(|had| *had = (*had).min(end));
        }
        assert!(
            self.slaves.values().all(|had| *had <= end),
            "no slave has more of the log than a restart left: {end}"
        );
        if !is_after_sudden_end && !is_shorter {
            return false;
        }
        self.starts.retain(|start| *start < end);
        self.starts.push(end);
        if self.starts.len() > MAX_RESTARTS {
            self.starts.remove(0);
        }
        assert!(
            self.starts.iter().all(|start| *start <= end),
            "no restart lies behind the end of the log: {end}"
        );
        true
    }

    /// Says whether a slave that connects has a beginning of this log.
    ///
    /// # Errors
    /// The slave may have another log.
    pub fn check(&self, slave: &str, reported: PhysicalOffset) -> Result<(), TwoHistories> {
        let known = self.had(slave);
        let unseen = |start: &&PhysicalOffset| known <= **start && **start < reported;
        match self.starts.iter().find(unseen) {
            Some(start) => Err(TwoHistories { reported, start: *start }),
            None => Ok(()),
        }
    }

    /// A slave that passed [`Self::check`] is about to be fed. Returns whether that has to be durable before it is: from now on it may get
    /// bytes of this life, and say so only in the next one.
    pub fn connected(&mut self, slave: &str, reported: PhysicalOffset) -> bool {
        let Some(start) = self.starts.last().copied() else { return false };
        let is_new = self.had(slave) <= start;
        if is_new {
            self.note(slave, reported.max(start + 1));
        }
        is_new
    }

    /// A slave has the log up to `end`. Returns whether that is news.
    pub fn acknowledged(&mut self, slave: &str, end: PhysicalOffset) -> bool {
        let is_news = self.slaves.get(slave).is_none_or(|had| *had < end);
        if is_news {
            self.note(slave, end);
        }
        is_news
    }

    fn had(&self, slave: &str) -> PhysicalOffset {
        self.slaves.get(slave).copied().unwrap_or_default()
    }

    fn note(&mut self, slave: &str, end: PhysicalOffset) {
        if !self.slaves.contains_key(slave) && self.slaves.len() >= MAX_SLAVES {
            let least = self.slaves.iter().min_by_key(|(_, had)| **had).map(|(name, _)| name.clone());
            least.map(|name| self.slaves.remove(&name));
        }
        let had = self.slaves.entry(slave.to_owned()).or_default();
        *had = (*had).max(end);
        assert!(*had >= end, "an acknowledged offset never goes back: {end}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "10.0.0.2";

    #[test]
    fn a_slave_with_the_end_that_a_master_lost_is_refused_in_every_later_life() {
        let mut restarts = MasterRestarts::default();
        assert!(!restarts.begin(PhysicalOffset(0), false));
        restarts.acknowledged(A, PhysicalOffset(1000));
        assert!(restarts.begin(PhysicalOffset(900), true), "100 bytes were lost");
        assert_eq!(restarts.check(A, PhysicalOffset(900)), Ok(()), "it has none of them");
        let lost = TwoHistories { reported: PhysicalOffset(1000), start: PhysicalOffset(900) };
        assert_eq!(restarts.check(A, PhysicalOffset(1000)), Err(lost));
        // The master writes on, is stopped in order, and started again.
        assert!(!restarts.begin(PhysicalOffset(5000), false));
        assert_eq!(restarts.check(A, PhysicalOffset(1000)), Err(lost));
        // Another slave that nobody has seen.
        assert_eq!(restarts.check("10.0.0.3", PhysicalOffset(1000)), Err(lost));
        assert_eq!(restarts.check("10.0.0.3", PhysicalOffset(800)), Ok(()));
    }

    #[test]
    fn a_slave_that_grew_in_a_life_goes_on_in_it_and_in_later_ones() {
        let mut restarts = MasterRestarts::default();
        restarts.begin(PhysicalOffset(900), true);
        assert_eq!(restarts.check(A, PhysicalOffset(900)), Ok(()));
        assert!(restarts.connected(A, PhysicalOffset(900)), "the first time in this life");
        assert!(!restarts.connected(A, PhysicalOffset(950)));
        restarts.acknowledged(A, PhysicalOffset(1200));
        assert_eq!(restarts.check(A, PhysicalOffset(1300)), Ok(()), "it may have got more than it said");
        // Killed: nothing was lost.
        assert!(restarts.begin(PhysicalOffset(1500), true));
        assert_eq!(restarts.check(A, PhysicalOffset(1300)), Ok(()));
        assert_eq!(restarts.check(A, PhysicalOffset(1500)), Ok(()));
    }

    #[test]
    fn a_slave_whose_master_died_before_it_heard_of_what_it_sent_goes_on() {
        let mut restarts = MasterRestarts::default();
        restarts.begin(PhysicalOffset(900), true);
        assert!(restarts.connected(A, PhysicalOffset(900)));
        // It gets 950, and the master is killed before the report comes: nothing is lost.
        restarts.begin(PhysicalOffset(950), true);
        assert_eq!(restarts.check(A, PhysicalOffset(950)), Ok(()));
        // The same, and the end is lost with the power.
        assert!(restarts.connected(A, PhysicalOffset(950)));
        restarts.begin(PhysicalOffset(950), true);
        assert!(restarts.check(A, PhysicalOffset(980)).is_err());
    }

    #[test]
    fn a_log_that_became_shorter_begins_a_life_whatever_the_start_says() {
        let mut restarts = MasterRestarts::default();
        restarts.acknowledged(A, PhysicalOffset(1000));
        assert!(restarts.begin(PhysicalOffset(10), false), "as after a restore of an old copy");
        assert!(restarts.check(A, PhysicalOffset(1000)).is_err());
        assert!(restarts.begin(PhysicalOffset(5), true), "shorter once more");
        assert_eq!(restarts.starts, [PhysicalOffset(5)], "what was behind it is gone");
    }
}

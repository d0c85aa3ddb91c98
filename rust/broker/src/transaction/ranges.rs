//! Numbers as ranges: what follows each other takes one entry.

use std::collections::BTreeMap;

/// A set of numbers.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// Ends by starts. No range touches another.
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    pub(super) fn contains(&self, number: u64) -> bool {
        self.ends.range(..=number).next_back().is_some_and(|(_, end)| number < *end)
    }

    /// The first number from this one on that is not in it.
    pub(super) fn end_of(&self, number: u64) -> u64 {
        let before = self.ends.range(..=number).next_back();
        before.map_or(number, |(_, end)| number.max(*end))
    }

    /// How many numbers from this one on are in it.
    pub(super) fn count_from(&self, number: u64) -> u64 {
        let before = self.end_of(number) - number;
        before + self.ends.range(number + 1..).map(|(start, end)| end - start).sum::<u64>()
    }

    pub(super) fn insert(&mut self, number: u64) {
        if self.contains(number) {
            return;
        }
        let before = self.ends.range(..number).next_back().filter(|(_, end)| **end == number);
        let start = before.map_or(number, |(start, _)| *start);
        let end = self.ends.remove(&(number + 1)).unwrap_or(number + 1);
        assert!(
            start <= number && number < end,
            "a range contains the number that was added to it: {start}..{end}"
        );
        assert!(!self.ends.contains_key(&end), "no range touches another: {start}..{end}");
        self.ends.insert(start, end);
    }

    /// Takes out the range that begins at a number. Returns its end, or the number.
    pub(super) fn take_from(&mut self, number: u64) -> u64 {
        self.ends.remove(&number).unwrap_or(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_follow_each_other_are_one_range() {
        let mut ranges = Ranges::default();
        for number in [5, 3, 9, 4, 5, 10] {
            ranges.insert(number);
        }
        assert_eq!(
            ranges.ends.iter().map(|(start, end)| (*start, *end)).collect::<Vec<_>>(),
            [(3, 6), (9, 11)]
        );
        let found: Vec<u64> = (0..12).filter(|number| ranges.contains(*number)).collect();
        assert_eq!(found, [3, 4, 5, 9, 10]);
        assert_eq!((ranges.count_from(0), ranges.count_from(4), ranges.count_from(11)), (5, 4, 0));
        assert_eq!((ranges.end_of(4), ranges.end_of(6), ranges.end_of(9)), (6, 6, 11));
        assert_eq!((ranges.take_from(3), ranges.take_from(3), ranges.take_from(10)), (6, 3, 10));
    }
}

//! Tables in pages: all topics or groups may be more than a frame holds.
//!
//! # Source
//! docs/reference/store-format.md 12.7.

use std::collections::BTreeMap;

use rocketpy_protocol::json;
use serde::Serialize;

/// Maximum number of bytes of one page.
const MAX_PAGE_BYTES: usize = 4 << 20;

/// Which part of a table a request wants.
#[derive(Debug, Clone, Copy)]
pub(super) struct Page {
    /// Entries before it, in the order of their names.
    from: usize,
    max_entries: usize,
}

impl Page {
    /// `None` for a request that wants the whole table at once.
    pub(super) fn of(from: Option<i32>, max_entries: Option<i32>) -> Option<Self> {
        let max_entries = usize::try_from(max_entries?).ok().filter(|max| *max > 0)?;
        Some(Self { from: usize::try_from(from.unwrap_or(0)).unwrap_or(0), max_entries })
    }

    /// Leaves this page in the table, and gives the number of entries of the whole.
    ///
    /// A page never ends one entry before the last: Apache's slave would stop there.
    pub(super) fn cut<T: Serialize>(self, table: &mut BTreeMap<String, T>) -> i32 {
        let total = table.len();
        let mut bytes = 0;
        let fits = |(index, (name, value)): &(usize, (String, T))| {
            bytes += name.len() + json::to_vec(value).len() + 8;
            *index < self.max_entries && (*index == 0 || bytes <= MAX_PAGE_BYTES)
        };
        let mut page: Vec<_> =
            std::mem::take(table).into_iter().skip(self.from).enumerate().take_while(fits).collect();
        if self.from + page.len() + 1 == total && page.len() > 1 {
            page.pop();
        }
        let (count, most) = (page.len(), self.max_entries);
        assert!(count <= most, "a page has at most the requested number of entries: {count} of {most}");
        *table = page.into_iter().map(|(_, entry)| entry).collect();
        i32::try_from(total).unwrap_or(i32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(count: usize) -> BTreeMap<String, String> {
        (0..count).map(|number| (format!("{number:05}"), "x".repeat(100))).collect()
    }

    /// Reads as Apache's slave does.
    fn read_in_pages(
        whole: &BTreeMap<String, String>,
        max_entries: i32,
    ) -> (BTreeMap<String, String>, usize) {
        let (mut read, mut pages) = (BTreeMap::new(), 0);
        loop {
            let mut page = whole.clone();
            let total = Page::of(Some(read.len() as i32), Some(max_entries)).unwrap().cut(&mut page);
            assert_eq!(total as usize, whole.len());
            read.extend(page);
            pages += 1;
            if read.len() + 1 >= whole.len() {
                return (read, pages);
            }
        }
    }

    #[test]
    fn a_reader_that_stops_one_early_still_gets_everything() {
        for count in [0, 1, 2, 3, 9, 10, 11, 12, 19, 20, 21, 22] {
            let whole = table(count);
            assert_eq!(read_in_pages(&whole, 10).0, whole, "{count}");
        }
    }

    #[test]
    fn a_page_is_bounded_in_bytes() {
        let whole = table(90_000);
        let (read, pages) = read_in_pages(&whole, 1_000_000);
        assert_eq!(read, whole);
        assert!(pages > 1);
    }

    #[test]
    fn a_request_without_a_size_wants_everything() {
        assert!(Page::of(Some(5), None).is_none() && Page::of(None, Some(0)).is_none());
    }
}

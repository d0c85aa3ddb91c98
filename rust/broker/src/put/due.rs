//! Reads the record of a message that waits. One that cannot be read holds up nobody else, and is tried again for a bounded time.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_env::{Disk, EnvError};
use rocketpy_model::PhysicalOffset;
use rocketpy_store::{Store, StoreError};
use tracing::warn;

use super::intake::Intake;
use crate::refusal::Refusal;

/// Pause between two tries of what cannot be read.
pub(crate) const READ_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Maximum number of messages that one service passes over while they cannot be read: a bound of its memory. With more it stops: one bad sector
/// never has that many.
pub(crate) const MAX_UNREADABLE_MESSAGES: usize = 4096;

/// A place is given up after this time. A path to the disk that fails over, or a device that is reset, is back within it.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);
/// A place is not given up before this many tries: the process may have stood still in between.
const MIN_TRIES: u32 = 10;
/// With this many unreadable pages nothing is given up: sectors and tracks of a disk go bad by less, all of a disk that fails does
/// by more.
const MAX_UNREADABLE_PAGES: usize = 64;
/// A page that nobody tried for this time is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// Unit of failed reads: a page of the page cache.
const PAGE_BYTES: u64 = 4096;

/// Result of reading the record of a waiting message.
#[derive(Debug)]
pub(crate) enum DueRecord {
    Found(bytes::Bytes),
    /// Reason why the message can never be delivered.
    Lost(String),
    /// It is to be tried again after [`READ_AGAIN_AFTER`]; others continue.
    Unreadable(StoreError),
}

/// Reads the record of a message that waits.
///
/// # Errors
/// No record can be read for now, for a reason that is not the place where this one is.
pub(crate) fn due_record(intake: &Intake<impl Disk>, at: PhysicalOffset) -> Result<DueRecord, Refusal> {
    let store = intake.store();
    let read = match store.record_at(at) {
        Err(StoreError::Env(_) | StoreError::DamagedLog { .. }) => store.record_from_file(at),
        read => read,
    };
    Ok(match read {
        Ok(Some(bytes)) => {
            intake.unreadable().read(at);
            DueRecord::Found(bytes)
        }
        Ok(None) => DueRecord::Lost("its record is gone".to_owned()),
        Err(StoreError::Env(error)) if is_of_place(&error) => match intake.unreadable().give_up(store, at) {
            true => DueRecord::Lost(format!("its record could not be read for a minute: {error}")),
            false => DueRecord::Unreadable(error.into()),
        },
        Err(error @ StoreError::Env(_)) => return Err(error.into()),
        Err(error) => DueRecord::Lost(error.to_string()),
    })
}

/// Whether the bytes at a place cannot be read, and others may.
pub(crate) fn is_of_place(error: &EnvError) -> bool {
    match error {
        EnvError::Io { .. } => !error.is_of_opening(),
        EnvError::Unreadable { .. } | EnvError::UnexpectedEnd { .. } => true,
        _ => false,
    }
}

/// Number of failed reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FailedReads {
    since: Duration,
    last: Duration,
    tries: u32,
}

impl FailedReads {
    pub(crate) fn new(now: Duration) -> Self {
        Self { since: now, last: now, tries: 0 }
    }

    /// Counts one more. Returns whether it was tried for long enough.
    pub(crate) fn again(&mut self, now: Duration) -> bool {
        (self.last, self.tries) = (now, self.tries.saturating_add(1));
        self.tries >= MIN_TRIES && now.saturating_sub(self.since) >= GIVE_UP_AFTER
    }
}

/// The pages of the log that could not be read when a message of theirs was due, or was looked at.
#[derive(Debug, Default)]
pub(crate) struct UnreadablePages {
    /// By number; no more than [`MAX_UNREADABLE_PAGES`].
    pages: Mutex<HashMap<u64, FailedReads>>,
    /// Added to the clock.
    #[cfg(test)]
    pub(crate) skipped: Mutex<Duration>,
}

impl UnreadablePages {
    /// The monotonic time.
    pub(crate) fn now(&self, store: &Store<impl Disk>) -> Duration {
        #[cfg(test)]
        return store.monotonic() + *self.skipped.lock();
        #[cfg(not(test))]
        store.monotonic()
    }

    /// A record could be read.
    fn read(&self, at: PhysicalOffset) {
        let mut pages = self.pages.lock();
        if !pages.is_empty() {
            pages.remove(&(at.get() / PAGE_BYTES));
        }
    }

    /// A record could not be read. Returns whether it is given up.
    fn give_up(&self, store: &Store<impl Disk>, at: PhysicalOffset) -> bool {
        self.failed(at, self.now(store)) && store.poisoned().is_none()
    }

    fn failed(&self, at: PhysicalOffset, now: Duration) -> bool {
        let (mut pages, page) = (self.pages.lock(), at.get() / PAGE_BYTES);
        pages.retain(|_, failed| now.saturating_sub(failed.last) < FORGET_AFTER);
        if !pages.contains_key(&page) {
            if pages.len() == MAX_UNREADABLE_PAGES {
                return false;
            }
            warn!(physical_offset = %at, "record of a waiting message not readable, retrying");
        }
        assert!(pages.len() <= MAX_UNREADABLE_PAGES, "unreadable pages have a bound: {}", pages.len());
        let is_spent = pages.entry(page).or_insert(FailedReads::new(now)).again(now);
        is_spent && pages.len() < MAX_UNREADABLE_PAGES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_record_is_given_up_after_a_minute_and_then_those_of_its_page_at_once() {
        let pages = UnreadablePages::default();
        let given_up = |at, second: u32| pages.failed(PhysicalOffset(at), second * SECOND);
        let first = (0..100).find(|second| given_up(5000, *second));
        assert_eq!(first, Some(60));
        assert!(given_up(6000, 61), "of the same page");
        assert!(!given_up(9000, 62), "of another one");
        pages.read(PhysicalOffset(5000));
        assert!(!given_up(5000, 63), "it could be read in between");
        assert!((1..MIN_TRIES).all(|_| !given_up(1_000_000, 1000)), "a process that stood still");
        assert!(!given_up(1_000_000, 1059) && given_up(1_000_000, 1060));
    }

    #[test]
    fn nothing_is_given_up_while_too_many_pages_cannot_be_read() {
        let pages = UnreadablePages::default();
        let count = MAX_UNREADABLE_PAGES as u64;
        let given_up = |pages: &UnreadablePages, count: u64, second: u32| {
            let given_up = |page| pages.failed(PhysicalOffset(page * PAGE_BYTES), second * SECOND);
            (0..count).filter(|page| given_up(*page)).count() as u64
        };
        assert_eq!((0..200).map(|second| given_up(&pages, count + 9, second)).sum::<u64>(), 0);
        assert_eq!(pages.pages.lock().len(), MAX_UNREADABLE_PAGES);
        let after = 200 + FORGET_AFTER.as_secs() as u32;
        let some = (after..after + 60).map(|second| given_up(&pages, count - 1, second)).sum::<u64>();
        assert_eq!(some, 0, "the others are forgotten, and these begin again");
        assert_eq!(given_up(&pages, count - 1, after + 60), count - 1);
    }
}

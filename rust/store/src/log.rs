//! The commit log of an open store: its files, its one writer, and how far it is written and durable.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rocketpy_env::failpoint::{self, Point};
use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, EnvError, LastReading, Region};
use rocketpy_model::{AtomicPhysicalOffset, PhysicalOffset};
use rocketpy_protocol::record::{
    BLANK_HEAD_BYTES, CheckMode, RecordCheck, RecordError, RecordView, blank_head, check_record,
};
use spin::mutex::{SpinMutex, SpinMutexGuard};

use crate::config::{FlushMode, StoreConfig};
use crate::error::DispatchError;
use crate::folder::Folder;
use crate::host::HostCell;
use crate::mapped::{MappedFile, MappedFileQueue};

/// When the clock steps back by no more than this, store times stay where they were.
const CLOCK_STEP_MS: i64 = 60_000;

/// Where no record is found, this many bytes are checked for pages that cannot be read. Records are hardly longer.
const LONGEST_LOOK: u64 = 8 << 20;

/// Confirmed offset of a log whose readers are not held.
const NO_LIMIT: PhysicalOffset = PhysicalOffset::MAX;

/// The handle that every part of an open store has on the log.
///
/// It knows three places. Their order is always the same: start, flushed, end. A fourth one limits what readers see.
pub(crate) struct Log<D: Disk> {
    disk: Arc<D>,
    config: StoreConfig,
    folder: Folder,
    files: MappedFileQueue<D>,
    /// Held while a record gets its place and is copied. Its release is a plain store: a lock that parks its waiters needs an
    /// atomic exchange, which waits until the copied bytes have left the processor.
    ///
    /// # Source
    /// docs/decisions/spin-lock-of-the-writer.md has the figures.
    writer: SpinMutex<Writer<D::Region>, spin::Yield>,
    /// End of the log: every byte before it is final and readable.
    end: AtomicPhysicalOffset,
    /// When the last record before `end` was stored; never ahead of `end`.
    last_stored_at: AtomicI64,
    /// The log is durable before this.
    flushed: AtomicPhysicalOffset,
    /// While readers are held, they see the log before this; else [`NO_LIMIT`].
    confirmed: AtomicPhysicalOffset,
    host: HostCell,
}

/// Facts about the log, from recovery.
pub(crate) struct FoundLog<R> {
    pub files: Vec<MappedFile<R>>,
    pub end: PhysicalOffset,
    /// When the last record before `end` was stored.
    pub last_stored_at: i64,
    /// The log is known to be durable before this.
    pub durable_to: PhysicalOffset,
}

/// State guarded by the writer lock.
struct Writer<R> {
    /// The file that is written; `None` before the first record, and when the last file is full.
    active: Option<Arc<MappedFile<R>>>,
    /// Where the next file starts when there is no active one.
    next_start: PhysicalOffset,
    last_stored_at: i64,
    last_look: LastReading,
    /// Set by dispatch before it sleeps: the next append wakes it.
    dispatch_sleeps: bool,
}

impl<D: Disk> Log<D> {
    pub(crate) fn new(disk: Arc<D>, config: StoreConfig, folder: Folder, found: FoundLog<D::Region>) -> Self {
        let FoundLog { files, end, last_stored_at, durable_to } = found;
        assert!(files.last().is_none_or(|last| end <= last.end()), "the log ends in its last file: at {end}");
        assert!(durable_to <= end, "the log is durable to {durable_to} and ends at {end}");
        let dirs = config.writable_commit_log_dirs();
        let files = MappedFileQueue::new(Arc::clone(&disk), dirs, config.commit_log_file_size, files);
        let active = files.last().filter(|file| file.region.written() < file.region.len());
        let writer = Writer {
            active,
            next_start: end,
            last_stored_at,
            last_look: LastReading::default(),
            dispatch_sleeps: false,
        };
        Self {
            writer: SpinMutex::new(writer),
            end: AtomicPhysicalOffset::new(end),
            last_stored_at: AtomicI64::new(last_stored_at),
            flushed: AtomicPhysicalOffset::new(durable_to),
            confirmed: AtomicPhysicalOffset::new(NO_LIMIT),
            host: HostCell::new(config.store_host),
            disk,
            config,
            folder,
            files,
        }
    }

    pub(crate) fn disk(&self) -> &D {
        &self.disk
    }

    pub(crate) fn config(&self) -> &StoreConfig {
        &self.config
    }

    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    pub(crate) fn files(&self) -> &MappedFileQueue<D> {
        &self.files
    }

    /// The file that holds an offset.
    pub(crate) fn find(&self, offset: PhysicalOffset) -> Option<Arc<MappedFile<D::Region>>> {
        self.files.find(offset)
    }

    pub(crate) fn start(&self) -> PhysicalOffset {
        self.files.min().unwrap_or_else(|| self.end())
    }

    /// End of the log: every byte before it is final and readable.
    #[inline]
    pub(crate) fn end(&self) -> PhysicalOffset {
        self.end.load(Ordering::Acquire)
    }

    /// When a record before [`Log::end`] was stored, as late as is known.
    pub(crate) fn last_stored_at(&self) -> i64 {
        self.last_stored_at.load(Ordering::Acquire)
    }

    /// The log is durable before this.
    #[inline]
    pub(crate) fn flushed(&self) -> PhysicalOffset {
        self.flushed.load(Ordering::SeqCst)
    }

    /// Notes that the log is durable before `end`. For the flusher alone.
    ///
    /// # Panics
    /// When the log ends before that.
    pub(crate) fn set_flushed(&self, end: PhysicalOffset) {
        assert!(
            end <= self.end(),
            "the flushed offset never passes the end of the log: {end} of {}",
            self.end()
        );
        self.flushed.fetch_max(end, Ordering::SeqCst);
    }

    /// End of what readers and dispatch may see: under synchronous flush nobody sees what a power loss may take back, and while readers
    /// are held nobody sees what is not confirmed. Never goes back.
    ///
    /// # Source
    /// docs/reference/store-format.md 5.9.
    #[inline]
    #[doc(alias = "confirmOffset")]
    pub(crate) fn readable_end(&self) -> PhysicalOffset {
        let end = self.safe_end(); // before the limit: [`Log::hold_readers`] takes the end of then
        end.min(self.confirmed.load(Ordering::Acquire))
    }

    /// End of what this store alone vouches for: under synchronous flush what is durable, else all that is written.
    #[inline]
    pub(crate) fn safe_end(&self) -> PhysicalOffset {
        match self.config.flush {
            FlushMode::Sync => self.flushed(),
            FlushMode::Async => self.end(),
        }
    }

    /// Whether readers see confirmed records only.
    #[inline]
    pub(crate) fn holds_readers(&self) -> bool {
        self.confirmed.load(Ordering::Acquire) != NO_LIMIT
    }

    /// Readers see the records of now, and later ones once [`Self::confirm`] covers them.
    pub(crate) fn hold_readers(&self) {
        let _no_append = self.write(); // the limit is not before what somebody has seen
        if !self.holds_readers() {
            self.confirmed.store(self.end(), Ordering::Release);
        }
    }

    /// Readers may see the log before `end`.
    ///
    /// # Panics
    /// When the log ends before that.
    pub(crate) fn confirm(&self, end: PhysicalOffset) {
        assert!(end <= self.end(), "a confirmed offset is in the log: {end} of {}", self.end());
        self.confirmed.fetch_max(end, Ordering::AcqRel);
    }

    /// Readers see all that is safe here.
    pub(crate) fn release_readers(&self) {
        self.confirmed.store(NO_LIMIT, Ordering::Release);
    }

    /// Up to where readers may see the log while they are held; `None` while they are not.
    pub(crate) fn confirmed(&self) -> Option<PhysicalOffset> {
        Some(self.confirmed.load(Ordering::Acquire)).filter(|end| *end != NO_LIMIT)
    }

    /// The address that goes into records.
    pub(crate) fn host(&self) -> SocketAddr {
        self.host.get()
    }

    pub(crate) fn set_host(&self, host: SocketAddr) {
        self.host.set(host);
    }

    #[inline]
    pub(crate) fn write(&self) -> LogWriter<'_, D> {
        LogWriter { log: self, state: self.writer.lock() }
    }

    /// Calls `visit` with each record from `at` up to `limit`, until it wants no more. Moves `at` behind what was
    /// visited. The visitor may look at all of a record but its body, which may be unreadable.
    ///
    /// # Errors
    /// The visitor's own, with `at` behind its record; [`DispatchError::Damage`] when no record lies at `at`, or none that can
    /// be read.
    pub(crate) fn walk(
        &self,
        at: &mut PhysicalOffset,
        limit: PhysicalOffset,
        mut visit: impl FnMut(&RecordView<'_>) -> Result<bool, DispatchError>,
    ) -> Result<(), DispatchError> {
        while *at < limit {
            let file = self.find(*at).ok_or_else(|| self.damage(*at, "the file is missing"))?;
            // The written length is read once for all records: the next append has to fetch it back from this processor.
            let bytes = file.region.view(0..limit.min(file.end()) - file.start);
            while let Some(rest) = bytes.get((*at - file.start) as usize..).filter(|rest| !rest.is_empty()) {
                let found = check_record(rest, CheckMode::Layout);
                check_seen(&file, *at, limit, &found)?;
                match found {
                    // The pair of the assertion in [`LogWriter::place`].
                    Ok(RecordCheck::Record(view)) if view.physical_offset != *at => {
                        let reason =
                            format!("the record contains another physical offset: {}", view.physical_offset);
                        return Err(self.damage(*at, &reason));
                    }
                    Ok(RecordCheck::Record(view)) => {
                        *at += view.size() as u64;
                        if !visit(&view)? {
                            return Ok(());
                        }
                    }
                    Ok(RecordCheck::Blank { .. }) => *at = file.end(),
                    Err(_) if file.end() - *at < BLANK_HEAD_BYTES as u64 => *at = file.end(),
                    Err(error) => return Err(self.damage(*at, &error.to_string())),
                }
            }
        }
        Ok(())
    }

    #[cold]
    pub(crate) fn damage(&self, physical_offset: PhysicalOffset, reason: &str) -> DispatchError {
        let path = match self.find(physical_offset) {
            Some(file) => file.path.clone(),
            None => self.folder.commit_log.clone(),
        };
        DispatchError::Damage { path, physical_offset, reason: reason.to_owned() }
    }
}

/// Says whether the head and the end of what was found at a place of the log, all but a record's body, could be read.
#[inline]
fn check_seen<R: Region>(
    file: &MappedFile<R>,
    at: PhysicalOffset,
    limit: PhysicalOffset,
    found: &Result<RecordCheck<'_>, RecordError>,
) -> Result<(), DispatchError> {
    /// Maximum length of the head of a record, and more than stands between body, topic and properties.
    const HEAD_BYTES: u64 = 128;
    match found {
        Ok(RecordCheck::Record(view)) => {
            let size = view.size() as u64;
            let behind_body = HEAD_BYTES + (view.topic.len() + view.properties.len()) as u64;
            if size <= HEAD_BYTES + behind_body {
                return file.check(at, at + size);
            }
            file.check(at, at + HEAD_BYTES)?;
            file.check(at + (size - behind_body), at + size)
        }
        Ok(RecordCheck::Blank { .. }) => Ok(()), // its magic was read
        Err(_) => file.check(at, limit.min(file.end()).min(at + LONGEST_LOOK)),
    }
}

/// The right to append. One thread has it at a time.
pub(crate) struct LogWriter<'a, D: Disk> {
    log: &'a Log<D>,
    state: SpinMutexGuard<'a, Writer<D::Region>>,
}

impl<D: Disk> LogWriter<'_, D> {
    /// The stored time of the next record: no earlier than it was born, if the clock of this machine says so.
    #[inline]
    pub(crate) fn stored_at(&mut self, born_at_ms: i64) -> i64 {
        let near_ms = self.log.disk.now_ms_near(&mut self.state.last_look);
        let now_ms = if born_at_ms > near_ms { self.log.disk.now_ms() } else { near_ms };
        self.state.time(now_ms)
    }

    /// Where the next file has to start when the active one has no room for a record and the blank record after it.
    ///
    /// # Source
    /// docs/reference/store-format.md 2.4.
    #[inline]
    pub(crate) fn lacks_file(&self, size_bytes: u64) -> Option<PhysicalOffset> {
        let Some(file) = &self.state.active else { return Some(self.state.next_start) };
        let left = file.region.len() - file.region.written();
        let spared = u64::from(planted::has(Bug::OffByOneAtRoll));
        (size_bytes + BLANK_HEAD_BYTES as u64 > left + spared).then(|| file.end())
    }

    /// Where the next file has to start when the active one is full. Records that are copied from another store bring the blank record
    /// with them.
    pub(crate) fn lacks_any_room(&self) -> Option<PhysicalOffset> {
        let Some(file) = &self.state.active else { return Some(self.state.next_start) };
        (file.region.written() == file.region.len()).then(|| file.end())
    }

    /// Ends the active file with a blank record, unless it is full, and makes the next one active.
    ///
    /// # Source
    /// docs/reference/store-format.md 2.4.
    pub(crate) fn roll(&mut self, next: Arc<MappedFile<D::Region>>) {
        let not_full = self.state.active.as_ref().filter(|file| file.region.written() < file.region.len());
        if let Some(file) = not_full {
            let left = file.region.len() - file.region.written();
            let blank = blank_head(left as u32);
            file.region.append(&blank[..BLANK_HEAD_BYTES.min(left as usize)], left);
            failpoint::reach(Point::Roll);
        }
        assert!(next.start >= self.log.end(), "the end of the log never goes back: to {}", next.start);
        self.log.files.push(Arc::clone(&next));
        self.log.end.store(next.start, Ordering::Release);
        self.state.active = Some(next);
    }

    /// Where the next record goes.
    ///
    /// # Panics
    /// Without an active file, and when it is written to another place than the end of the log.
    #[inline]
    pub(crate) fn place(&self) -> PhysicalOffset {
        let place = self.active().wrote();
        assert_eq!(
            place,
            self.log.end.load(Ordering::Relaxed),
            "the log ends where its last file is written to"
        );
        place
    }

    /// Copies records, `size_bytes` in all, to [`LogWriter::place`]. Nobody sees them yet.
    ///
    /// # Errors
    /// The file does not take them: it was cut short, or a page of it cannot be written to. Nothing may be appended any more.
    #[inline]
    pub(crate) fn copy(&self, parts: &[&[u8]], size_bytes: u64) -> Result<(), EnvError> {
        let region = &self.active().region;
        region.append_parts(parts, size_bytes);
        region.expect(size_bytes); // the next record is probably as long
        if region.fault().is_none() { Ok(()) } else { self.check_copy(size_bytes) }
    }

    /// Some page of the active file could not be read: says whether the last bytes lie in one.
    #[cold]
    fn check_copy(&self, size_bytes: u64) -> Result<(), EnvError> {
        let (path, region) = (&self.active().path, &self.active().region);
        let end = region.written();
        region.check(end - size_bytes..end).map_err(|error| {
            EnvError::from_flush("write into the map of", path, io::Error::other(error.to_string()))
        })
    }

    /// Makes everything before `end` visible.
    ///
    /// # Panics
    /// When the copied records end elsewhere.
    #[inline]
    pub(crate) fn publish(&self, end: PhysicalOffset, stored_at_ms: i64) {
        assert_eq!(end, self.active().wrote(), "what is published is what was copied");
        assert!(end >= self.log.end.load(Ordering::Relaxed), "the end of the log never goes back: to {end}");
        self.log.end.store(end, Ordering::Release);
        self.log.last_stored_at.store(stored_at_ms, Ordering::Release); // after the end: a flush reads it first
    }

    /// [`LogWriter::publish`] of records that another store stored, the last of them at `stored_at_ms`. Later ones are not older.
    pub(crate) fn publish_copied(&mut self, end: PhysicalOffset, stored_at_ms: i64) {
        self.state.last_stored_at = stored_at_ms;
        self.publish(end, stored_at_ms);
    }

    /// Asks the next append to wake dispatch.
    pub(crate) fn ask_for_wake(&mut self) {
        self.state.dispatch_sleeps = true;
    }

    /// Whether dispatch asked to be woken since the last call.
    #[inline]
    pub(crate) fn take_wake(&mut self) -> bool {
        std::mem::take(&mut self.state.dispatch_sleeps)
    }

    #[inline]
    fn active(&self) -> &MappedFile<D::Region> {
        self.state.active.as_deref().expect("there is room in a file")
    }
}

impl<R> Writer<R> {
    /// The stored time of the next record: the clock, held back from small steps into the past.
    fn time(&mut self, now_ms: i64) -> i64 {
        let back = self.last_stored_at.saturating_sub(now_ms);
        if !(0..=CLOCK_STEP_MS).contains(&back) {
            self.last_stored_at = now_ms;
        }
        self.last_stored_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::{self, FILE_BYTES};

    #[test]
    fn stored_times_do_not_follow_a_small_step_back_and_do_follow_a_large_one() {
        let dir = tempfile::tempdir().unwrap();
        let log = alone::log(dir.path(), FlushMode::Async);
        let mut writer = log.write();
        writer.state.last_stored_at = 1_000_000;
        assert_eq!(writer.state.time(1_000_005), 1_000_005);
        assert_eq!(writer.state.time(990_000), 1_000_005);
        assert_eq!(writer.state.time(1_000_006), 1_000_006);
        assert_eq!(writer.state.time(500_000), 500_000);
    }

    #[test]
    fn copied_bytes_are_seen_once_they_are_published() {
        let dir = tempfile::tempdir().unwrap();
        let log = alone::log(dir.path(), FlushMode::Async);
        assert_eq!(log.write().lacks_file(1), Some(PhysicalOffset::ZERO));
        alone::roll(&log);
        let writer = log.write();
        assert_eq!(writer.lacks_file(100), None);
        let place = writer.place();
        writer.copy(&[b"he", b"llo"], 5).unwrap();
        assert_eq!((place, log.end(), log.readable_end()), (0.into(), 0.into(), 0.into()));
        writer.publish(PhysicalOffset(5), 1000);
        assert_eq!((log.end(), log.last_stored_at()), (PhysicalOffset(5), 1000));
    }

    #[test]
    #[should_panic(expected = "what is published is what was copied")]
    fn nothing_is_published_that_was_not_copied() {
        let dir = tempfile::tempdir().unwrap();
        let log = alone::log(dir.path(), FlushMode::Async);
        alone::roll(&log);
        let writer = log.write();
        writer.copy(&[b"hello"], 5).unwrap();
        writer.publish(PhysicalOffset(6), 1000);
    }

    #[test]
    #[should_panic(expected = "the flushed offset never passes the end of the log")]
    fn nothing_is_flushed_that_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        alone::log(dir.path(), FlushMode::Async).set_flushed(PhysicalOffset(1));
    }

    #[test]
    fn under_synchronous_flush_readers_see_what_is_durable() {
        let dir = tempfile::tempdir().unwrap();
        let log = alone::log(dir.path(), FlushMode::Sync);
        alone::roll(&log);
        let end = alone::append(&log, b"hello");
        assert_eq!((log.end(), log.readable_end()), (end, PhysicalOffset::ZERO));
        log.set_flushed(end);
        log.set_flushed(PhysicalOffset(1)); // it does not go back
        assert_eq!(log.readable_end(), end);
    }

    #[test]
    fn a_walk_passes_the_end_of_a_file_and_tells_damage() {
        let dir = tempfile::tempdir().unwrap();
        let log = alone::log(dir.path(), FlushMode::Async);
        alone::roll(&log);
        alone::roll(&log);
        assert_eq!(log.end(), PhysicalOffset(FILE_BYTES), "a blank record fills the first file");
        let mut at = PhysicalOffset::ZERO;
        log.walk(&mut at, log.end(), |_| panic!("there is no record")).unwrap();
        assert_eq!(at, log.end());
        alone::append(&log, &[7; 100]);
        let error = log.walk(&mut at, log.end(), |_| panic!("there is no record")).unwrap_err();
        let DispatchError::Damage { path, physical_offset, .. } = error else { panic!("{error}") };
        assert_eq!((path, physical_offset), (log.find(at).unwrap().path.clone(), at));
    }
}

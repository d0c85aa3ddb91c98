//! A mapped file that only grows.
#![allow(clippy::disallowed_types, reason = "this crate is the door")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence};

use bytes::Bytes;
#[cfg(target_os = "linux")]
use memmap2::UncheckedAdvice;
use memmap2::{Advice, MmapOptions, MmapRaw};

use crate::disk::Region;
use crate::error::EnvError;
use crate::guard::Guard;
#[cfg(target_os = "linux")]
use crate::sys;

const PAGE: u64 = 4096;
/// A flush of this many bytes or more takes its pages out of the page table first. A smaller one has a page or two.
#[cfg(target_os = "linux")]
const LEAST_UNMAPPED_FLUSH: u64 = PAGE;

/// A real [`Region`]: a shared map of a whole file.
#[derive(Debug)]
pub struct MappedRegion {
    map: Arc<Map>,
    path: PathBuf,
}

#[derive(Debug)]
struct Map {
    /// Before the map, and so dropped before it.
    guard: Guard,
    raw: MmapRaw,
    end: End,
}

/// What appends change. It has a cache line of its own: readers of the map use the fields beside it.
#[derive(Debug)]
#[repr(align(64))]
struct End {
    /// Bytes before this never change; bytes behind it belong to the one who holds `appending`.
    written: AtomicU64,
    /// Set while an append copies: the proof that there is one writer.
    appending: AtomicBool,
}

impl MappedRegion {
    /// Maps the file from its start; its first `written` bytes count as published.
    pub(crate) fn map(file: &File, path: &Path, len: u64, written: u64) -> Result<Self, EnvError> {
        let raw = MmapOptions::new()
            .len(len as usize)
            .map_raw(file)
            .map_err(|source| EnvError::from_io("map", path, source))?;
        // SAFETY: the map lives in the same struct as its guard, behind it.
        let guard = unsafe { Guard::new(raw.as_ptr(), raw.len()) }
            .map_err(|source| EnvError::from_io("guard the map of", path, source))?;
        let end = End { written: AtomicU64::new(written), appending: AtomicBool::new(false) };
        let map = Map { guard, raw, end };
        Ok(Self { map: Arc::new(map), path: path.to_path_buf() })
    }

    /// The pages of a range that lie in the map: their start and length. `None` when there are none.
    fn pages(&self, range: &Range<u64>) -> Option<(usize, usize)> {
        let start = range.start / PAGE * PAGE;
        let end = range.end.next_multiple_of(PAGE).min(self.map.raw.len() as u64);
        (start < end).then(|| (start as usize, (end - start) as usize))
    }

    /// Best effort.
    fn advise(&self, advice: Advice, range: &Range<u64>) {
        if let Some((start, len)) = self.pages(range) {
            let _ = self.map.raw.advise_range(advice, start, len);
        }
    }

    /// Takes the pages of a range out of the process's page table in one go; they stay in memory, and come back when they are
    /// touched. A write of the range does the same page by page and interrupts the other processors for each.
    #[cfg(target_os = "linux")]
    fn unmap_pages(&self, range: &Range<u64>) {
        if let Some((start, len)) = self.pages(range)
            && sys::unmapping_keeps_writes()
        {
            // SAFETY: the range lies inside the map, which is shared and backed by a file: its bytes are those of the page
            // cache before and after, including what other threads write meanwhile (checked above).
            let _ = unsafe { self.map.raw.unchecked_advise_range(UncheckedAdvice::DontNeed, start, len) };
        }
    }

    /// Compares a range of the map with the file, after some page of the map could not be read.
    #[cold]
    #[allow(clippy::disallowed_methods, reason = "this crate is the door")]
    fn compare(&self, range: Range<u64>) -> Result<(), EnvError> {
        let unreadable = |offset, source| {
            Err(EnvError::Unreadable { path: self.path.clone(), offset, source: Arc::new(source) })
        };
        let file =
            File::open(&self.path).map_err(|source| EnvError::from_io(EnvError::OPEN, &self.path, source))?;
        let mut buffer = vec![0; PAGE as usize];
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min((at / PAGE + 1) * PAGE);
            let bytes = &mut buffer[..(end - at) as usize];
            if let Err(source) = file.read_exact_at(bytes, at) {
                return unreadable(at, source);
            }
            if bytes != self.map.bytes(&(at..end)) {
                return unreadable(at, io::Error::other("it could not be read when it was mapped"));
            }
            at = end;
        }
        Ok(())
    }

    /// A reference-counted view of published bytes.
    ///
    /// # Panics
    /// When the range is not published.
    pub fn region_slice(&self, range: Range<u64>) -> RegionSlice {
        self.map.check(&range);
        RegionSlice { map: Arc::clone(&self.map), range }
    }
}

impl Map {
    fn check(&self, range: &Range<u64>) {
        let written = self.end.written.load(Ordering::Acquire);
        assert!(
            range.start <= range.end && range.end <= written,
            "range {range:?} passes the written {written}"
        );
    }

    /// Asks for the first lines of a range, as far as it lies inside the map.
    #[cfg(target_arch = "x86_64")]
    fn prefetch<const HINT: i32>(&self, range: Range<u64>) {
        const LINE: usize = 64;
        /// A processor does not ask for more than this at a time.
        const MOST: usize = 2048;
        let start = range.start as usize / LINE * LINE;
        let end = (range.end as usize).min(start + MOST).min(self.raw.len());
        for at in (start..end).step_by(LINE) {
            // SAFETY: the address lies inside the map; a prefetch is a hint that reads and writes nothing.
            unsafe { std::arch::x86_64::_mm_prefetch::<HINT>(self.raw.as_ptr().add(at).cast()) };
        }
    }

    /// Reads one byte of each page of a range that lies inside the map.
    fn touch(&self, range: &Range<u64>) {
        let mut at = range.start;
        while at < range.end {
            // SAFETY: the byte lies inside the map. The read is volatile, so that it is done.
            unsafe { self.raw.as_ptr().add(at as usize).read_volatile() };
            at = (at / PAGE + 1) * PAGE;
        }
    }

    /// The bytes of a range that [`Map::check`] has accepted.
    fn bytes(&self, range: &Range<u64>) -> &[u8] {
        // SAFETY: the range lies below `written` (every caller checked it and `written` falls only when no reader is
        // left), hence inside the map, and bytes below `written` are never written again: `append` writes behind it
        // alone. The map lives as long as `self`.
        unsafe {
            std::slice::from_raw_parts(
                self.raw.as_ptr().add(range.start as usize),
                (range.end - range.start) as usize,
            )
        }
    }
}

impl Region for MappedRegion {
    fn len(&self) -> u64 {
        self.map.raw.len() as u64
    }

    fn written(&self) -> u64 {
        self.map.end.written.load(Ordering::Acquire)
    }

    fn append_parts(&self, parts: &[&[u8]], advance: u64) {
        let map = &*self.map;
        assert!(!map.end.appending.swap(true, Ordering::Acquire), "two appends at once");
        let at = map.end.written.load(Ordering::Relaxed);
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let fits = advance >= bytes && advance <= map.raw.len() as u64 - at;
        assert!(fits, "append of {bytes} bytes, advancing {advance}, at {at} of {}", map.raw.len());
        let mut to = at as usize;
        for part in parts {
            // SAFETY: the target lies inside the map (checked above for all parts together) and behind `written`, where no
            // reader looks; `appending` keeps every other writer out. The source is a borrowed slice of other memory.
            unsafe {
                std::ptr::copy_nonoverlapping(part.as_ptr(), map.raw.as_mut_ptr().add(to), part.len());
            }
            compiler_fence(Ordering::SeqCst); // a process that is killed leaves no part without those before it
            to += part.len();
        }
        map.end.written.store(at + advance, Ordering::Release);
        map.end.appending.store(false, Ordering::Release);
    }

    #[cfg(target_arch = "x86_64")]
    fn expect(&self, bytes: u64) {
        let at = self.map.end.written.load(Ordering::Relaxed);
        self.map.prefetch::<{ std::arch::x86_64::_MM_HINT_ET0 }>(at..at.saturating_add(bytes));
    }

    #[cfg(target_arch = "x86_64")]
    fn expect_read(&self, range: Range<u64>) {
        self.map.prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(range);
    }

    fn view(&self, range: Range<u64>) -> &[u8] {
        self.map.check(&range);
        self.map.bytes(&range)
    }

    fn slice(&self, range: Range<u64>) -> Bytes {
        self.region_slice(range).into_bytes()
    }

    #[inline]
    fn check(&self, range: Range<u64>) -> Result<(), EnvError> {
        // Not against the written length, which the next append would have to fetch back from this processor.
        assert!(range.end <= self.len(), "check of {range:?} passes the file");
        self.map.touch(&range);
        if self.map.guard.fault().is_none() { Ok(()) } else { self.compare(range) }
    }

    fn fault(&self) -> Option<EnvError> {
        let offset = self.map.guard.fault()?;
        let source = Arc::new(io::Error::other("the sector is bad, or the file was cut short"));
        Some(EnvError::Unreadable { path: self.path.clone(), offset, source })
    }

    #[cfg(target_os = "linux")]
    fn resident(&self, range: Range<u64>) -> u64 {
        let page = sys::page_bytes() as u64;
        let start = range.start / page * page;
        self.map.check(&range);
        let pages = sys::resident_pages(&self.map.raw, start as usize, (range.end - start) as usize);
        (start + pages as u64 * page).clamp(range.start, range.end) - range.start
    }

    fn rewind(&mut self, end: u64) {
        let map = Arc::get_mut(&mut self.map).expect("no slice of a region may be held while it is rewound");
        assert!(end <= *map.end.written.get_mut(), "rewind to {end} passes the written bytes");
        *map.end.written.get_mut() = end;
    }

    fn flush(&self, range: Range<u64>) -> Result<(), EnvError> {
        assert!(range.start <= range.end && range.end <= self.len(), "flush of {range:?} passes the file");
        #[cfg(target_os = "linux")]
        if range.end - range.start >= LEAST_UNMAPPED_FLUSH {
            self.unmap_pages(&range);
        }
        self.map
            .raw
            .flush_range(range.start as usize, (range.end - range.start) as usize)
            .map_err(|source| EnvError::from_flush("flush", &self.path, source))?;
        // A file that was cut short has no last page any more, and a flush of what is not there succeeds.
        self.map.touch(&(range.end.saturating_sub(1).max(range.start)..range.end));
        if self.map.guard.fault().is_none() {
            return Ok(());
        }
        self.compare(range)
            .map_err(|error| EnvError::from_flush("flush", &self.path, io::Error::other(error.to_string())))
    }

    fn fault_in(&self, range: Range<u64>) {
        self.advise(Advice::WillNeed, &range);
        #[cfg(target_os = "linux")]
        {
            // A fault would read ahead as far as the device is set to, and do nothing else until that is done: 20 ms for 8 MiB. It would
            // make large folios too, which are written whole.
            self.advise(Advice::Random, &range);
            // Linux before 5.14 does not know the advice: there appends take their faults one by one.
            self.advise(Advice::PopulateWrite, &range);
            self.advise(Advice::Normal, &range);
        }
    }

    #[cfg(target_os = "linux")]
    #[allow(clippy::disallowed_methods, reason = "this crate is the door")]
    fn fault_in_written(&self, range: Range<u64>) -> Result<(), EnvError> {
        self.fault_in(range.clone());
        self.unmap_pages(&range);
        if let Ok(file) = File::open(&self.path) {
            sys::write_out(&file, range.clone())
                .map_err(|source| EnvError::from_flush("flush ahead in", &self.path, source))?;
        }
        self.advise(Advice::PopulateWrite, &range);
        Ok(())
    }
}

/// Published bytes of a mapped file; the file stays mapped while this lives.
#[derive(Debug, Clone)]
pub struct RegionSlice {
    map: Arc<Map>,
    range: Range<u64>,
}

impl RegionSlice {
    /// The same bytes as [`Bytes`], without a copy.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for RegionSlice {
    fn as_ref(&self) -> &[u8] {
        self.map.bytes(&self.range)
    }
}

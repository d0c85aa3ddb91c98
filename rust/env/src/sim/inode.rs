//! One simulated file: what readers see, and what a power cut leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastrand::Rng;

use super::memory::Memory;

/// The unit in which the system caches and writes back.
const PAGE: usize = 4096;
/// The unit that a medium writes whole or not at all.
const SECTOR: usize = 512;

/// A file in two images.
pub(super) struct Inode {
    /// What readers see: the page cache.
    pub(super) cached: Arc<Memory>,
    /// The pages that were written to the medium; others read as zeros. Some may lie behind the durable length.
    durable: BTreeMap<usize, Box<[u8; PAGE]>>,
    durable_len: usize,
    /// Pages that differ from the medium as far as the system knows.
    dirty: BTreeSet<usize>,
    /// Pages that have space on the medium: writing them cannot meet a full disk.
    allocated: BTreeSet<usize>,
    /// Pages that the system takes for written although their bytes never reached the medium: falsely clean.
    lost: BTreeSet<usize>,
    /// Whole pages that were turned into zeros, where the medium still has the bytes before: a change of the file's layout,
    /// which becomes durable with the journal and not page by page.
    zeroed: BTreeSet<usize>,
    /// A write-back failed, and no flush has reported it.
    has_unreported_error: bool,
    /// The file became shorter, and that is not durable: behind its end the medium still has the old blocks.
    cut: bool,
}

impl Inode {
    pub(super) fn new(len: usize) -> Self {
        Self {
            cached: Arc::new(Memory::zeros(len)),
            durable: BTreeMap::new(),
            durable_len: 0,
            dirty: BTreeSet::new(),
            allocated: BTreeSet::new(),
            lost: BTreeSet::new(),
            zeroed: BTreeSet::new(),
            has_unreported_error: false,
            cut: false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.cached.len()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.cached.slice(0..self.len())
    }

    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if at + bytes.len() > self.len() {
            self.set_len(at + bytes.len());
        }
        self.cached.write(at, bytes);
        self.soil(at, at + bytes.len());
        self.allocate(at, at + bytes.len());
    }

    /// Notes that the pages of a range differ from the medium.
    pub(super) fn soil(&mut self, from: usize, to: usize) {
        for page in from / PAGE..to.div_ceil(PAGE) {
            self.dirty.insert(page);
            self.lost.remove(&page);
        }
    }

    /// Turns a range into zeros. Returns its whole pages, whose zeros become durable with [`Inode::commit_zeros`]; the
    /// rest is written as any bytes are.
    pub(super) fn zero(&mut self, from: usize, to: usize) -> Vec<usize> {
        let end = if to >= self.len() { to.div_ceil(PAGE) } else { to / PAGE };
        let first = from.div_ceil(PAGE);
        // A sparse file has few pages that are not zeros already.
        let pages = from / PAGE..to.div_ceil(PAGE);
        let written = [&self.dirty, &self.allocated, &self.lost].into_iter();
        let mut found: BTreeSet<usize> = written.flat_map(|set| set.range(pages.clone()).copied()).collect();
        found.extend(self.durable.range(pages).map(|(page, _)| *page));
        let mut whole = Vec::new();
        for page in found {
            let (at, behind) = (from.max(page * PAGE), to.min((page + 1) * PAGE));
            self.cached.write(at, &[0; PAGE][..behind - at]);
            self.soil(at, behind);
            if (first..end).contains(&page) {
                self.dirty.remove(&page);
                self.zeroed.insert(page);
                whole.push(page);
            }
        }
        whole
    }

    /// Makes the zeros of whole pages durable, except where a page was written since.
    pub(super) fn commit_zeros(&mut self, pages: &[usize]) {
        for page in pages {
            if self.zeroed.remove(page) {
                self.durable.remove(page);
            }
        }
    }

    /// Gives a range space.
    pub(super) fn allocate(&mut self, from: usize, to: usize) {
        self.allocated.extend(from / PAGE..to.div_ceil(PAGE));
    }

    /// Frees the space of the whole pages of a range.
    pub(super) fn punch(&mut self, from: usize, to: usize) {
        let to = if to >= self.len() { to.div_ceil(PAGE) } else { to / PAGE };
        self.allocated.retain(|page| !(from.div_ceil(PAGE)..to).contains(page));
    }

    /// Starts of the pages of a range that need space, cut to the range.
    pub(super) fn holes(&self, from: usize, to: usize) -> Vec<usize> {
        let pages = (from / PAGE..to.div_ceil(PAGE)).filter(|page| !self.allocated.contains(page));
        pages.map(|page| (page * PAGE).max(from)).collect()
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.cut |= len < self.len();
        let memory = Memory::zeros(len);
        memory.write(0, self.cached.slice(0..len.min(self.len())));
        self.cached = Arc::new(memory);
        for pages in [&mut self.dirty, &mut self.allocated, &mut self.lost, &mut self.zeroed] {
            pages.retain(|page| page * PAGE < len);
        }
    }

    /// Makes a length durable.
    pub(super) fn commit_len(&mut self, len: usize) {
        self.durable_len = len;
        self.cut_durable();
    }

    /// What was on the medium behind the durable length is gone.
    fn cut_durable(&mut self) {
        let len = self.durable_len;
        self.durable.split_off(&len.div_ceil(PAGE));
        if let Some(last) = self.durable.get_mut(&(len / PAGE)) {
            last[len % PAGE..].fill(0);
        }
    }

    fn durable_page(&mut self, page: usize) -> &mut [u8; PAGE] {
        self.durable.entry(page).or_insert_with(|| Box::new([0; PAGE]))
    }

    /// Writes the sectors of a page that `is_wanted` names.
    fn persist(&mut self, page: usize, mut is_wanted: impl FnMut() -> bool) {
        self.lost.remove(&page);
        self.zeroed.remove(&page);
        let (start, cached) = (page * PAGE, self.cached.clone());
        let end = cached.len().min(start + PAGE);
        let durable = self.durable_page(page);
        for from in (start..end).step_by(SECTOR) {
            let to = end.min(from + SECTOR);
            if is_wanted() {
                durable[from - start..to - start].copy_from_slice(cached.slice(from..to));
            }
        }
    }

    /// Writes a part of one sector of a page.
    fn tear_sector(&mut self, page: usize, rng: &mut Rng) {
        let (start, cached) = (page * PAGE, self.cached.clone());
        let end = cached.len().min(start + PAGE);
        let from = (start + rng.usize(0..PAGE / SECTOR) * SECTOR).min(end);
        let to = end.min(from + rng.usize(0..SECTOR));
        self.durable_page(page)[from - start..to - start].copy_from_slice(cached.slice(from..to));
    }

    pub(super) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() && !self.cut
    }

    /// The system writes some dirty page back by itself. One that `fails` counts as written all the same; the next flush of
    /// the file reports it.
    pub(super) fn write_back(&mut self, rng: &mut Rng, fails: bool) {
        let index = rng.usize(0..self.dirty.len());
        let Some(&page) = self.dirty.iter().nth(index) else { return };
        self.dirty.remove(&page);
        if fails {
            self.has_unreported_error = true;
            self.lost.insert(page);
        } else {
            self.persist(page, || true);
        }
    }

    /// Writes the dirty pages that a range touches. Says whether the flush is a success: an error of an earlier write-back
    /// is reported here, once.
    ///
    /// A flush that `fails` marks all of them as written, as Linux does, although some are not: the next one succeeds, and
    /// the bytes are gone with the power.
    pub(super) fn flush(&mut self, from: usize, to: usize, rng: &mut Rng, fails: bool) -> bool {
        let pages: Vec<_> = self.dirty.range(from / PAGE..to.div_ceil(PAGE)).copied().collect();
        let spoilt = if fails && !pages.is_empty() { rng.usize(0..pages.len()) } else { usize::MAX };
        for (index, page) in pages.into_iter().enumerate() {
            self.dirty.remove(&page);
            if !fails || (index != spoilt && rng.bool()) {
                self.persist(page, || true);
            } else {
                self.lost.insert(page);
            }
        }
        self.cut &= fails;
        !std::mem::take(&mut self.has_unreported_error) && !fails
    }

    pub(super) fn forget_error(&mut self) {
        self.has_unreported_error = false;
    }

    /// The process ends: the system may forget an error that no flush has reported.
    pub(super) fn may_forget_error(&mut self, rng: &mut Rng) {
        self.has_unreported_error &= rng.bool();
    }

    /// The system drops some of the falsely clean pages from its cache and reads them again: readers see what the medium has.
    /// Returns whether there was one. Nobody has the file open.
    pub(super) fn evict(&mut self, rng: &mut Rng) -> bool {
        let gone: Vec<usize> = self.lost.iter().copied().filter(|_| rng.bool()).collect();
        if gone.is_empty() {
            return false;
        }
        let bytes = Memory::of(self.bytes());
        for page in &gone {
            self.lost.remove(page);
            let medium = self.durable.get(page).map_or(&[0; PAGE], |page| &**page);
            let known = bytes.len().saturating_sub(page * PAGE).min(PAGE);
            bytes.write(page * PAGE, &medium[..known]);
        }
        self.cached = Arc::new(bytes);
        true
    }

    /// Writes the pages of a range out ahead of their use. Returns whether that worked: a page that `fails` counts as
    /// written.
    pub(super) fn write_out(&mut self, from: usize, to: usize, fails: bool) -> bool {
        self.soil(from, to);
        for page in from / PAGE..to.div_ceil(PAGE) {
            self.dirty.remove(&page);
            if fails {
                self.lost.insert(page);
            } else {
                self.persist(page, || true);
            }
        }
        !fails
    }

    /// The power is gone: each dirty page is kept, lost or torn; with `tears_sectors` a sector of it too.
    pub(super) fn lose_power(&mut self, rng: &mut Rng, tears_sectors: bool) {
        for page in std::mem::take(&mut self.dirty) {
            match rng.u8(0..3) {
                0 => self.persist(page, || true),
                1 => {}
                _ => {
                    self.persist(page, || rng.bool());
                    if tears_sectors && rng.bool() {
                        self.tear_sector(page, rng);
                    }
                }
            }
        }
        self.lost.clear();
        self.zeroed.clear();
        self.cut_durable();
        let cached = Memory::zeros(self.durable_len);
        for (page, bytes) in &self.durable {
            let at = page * PAGE;
            cached.write(at, &bytes[..PAGE.min(self.durable_len - at)]);
        }
        self.cached = Arc::new(cached);
        self.has_unreported_error = false;
        self.cut = false;
    }

    /// Puts bytes in place of the file's, on the medium as well.
    pub(super) fn set_bytes(&mut self, bytes: Vec<u8>) {
        self.cached = Arc::new(Memory::of(&bytes));
        self.durable_len = bytes.len();
        self.durable.clear();
        for (page, part) in bytes.chunks(PAGE).enumerate() {
            self.durable_page(page)[..part.len()].copy_from_slice(part);
        }
        self.dirty.clear();
        self.lost.clear();
        self.zeroed.clear();
        self.cut = false;
    }
}

//! What a medium does to a store at rest, and how the next start must answer.

use std::ops::Range;
use std::path::{Path, PathBuf};

use rocketpy_store::{StoreError, mark_page};

use super::log_files;
use super::plan::{Boot, Damage, ROOT};
use super::run::{Guarded, Run, guarded};
use crate::checker::Rule;
use crate::history::{CrashKind, Event, LogRange};

fn log_path(start: u64) -> PathBuf {
    Path::new(ROOT).join("commitlog").join(format!("{start:020}"))
}

impl Run {
    /// Does the damage that the plan names, after a process that ended in this way.
    pub(super) fn damage(&mut self, boot: &Boot, after: CrashKind, was_stopped: bool) {
        let Some(damage) = boot.damage else { return };
        let options = self.disk.options();
        self.disk.set_options(options.without_faults());
        match damage {
            Damage::DurableBit if self.plan.record_check => self.flip_durable_bit(),
            // The page cache still has what a killed process wrote; no mark covers anything behind the flushed end.
            Damage::TailBit if self.plan.record_check && after == CrashKind::Kill => self.flip_tail_bit(boot),
            Damage::LogFile => self.lose_log_file(),
            Damage::QueueFile => self.lose_queue_file(),
            // Without the mark only bodies are checked: a record that is torn in its properties would pass.
            Damage::Checkpoint if after != CrashKind::Power && !was_stopped => self.spoil_checkpoint(),
            _ => {}
        }
        self.disk.set_options(options);
    }

    fn flip(&mut self, start: u64, end: u64) -> (PathBuf, usize, u8) {
        let at = self.rng.u64(start..end);
        let path = log_path(at - at % self.plan.log_file);
        let (place, bit) = ((at % self.plan.log_file) as usize, 1 << self.rng.u8(0..8));
        self.flip_bit(&path, place, bit);
        (path, place, bit)
    }

    fn flip_bit(&mut self, path: &Path, place: usize, bit: u8) {
        if let Err(error) = self.disk.damage(path, |bytes| bytes[place] ^= bit) {
            self.wrong(Rule::Alive, format!("a file of the log is gone: {error}"));
        }
    }

    fn flip_durable_bit(&mut self) {
        let records = log_files::records(&self.disk, &self.plan);
        let durable = self.known.trusted_from.min(self.known.marked_to)..self.known.marked_to;
        let is_durable = |record: &LogRange| durable.start <= record.start && record.end <= durable.end;
        let durable: Vec<_> = records.into_iter().filter(is_durable).collect();
        let Some(&record) = self.rng.choice(&durable) else { return };
        let (path, place, bit) = self.flip(record.start, record.end);
        self.expect_refusal(|error| match error {
            StoreError::InteriorDamage { path: named, physical_offset, .. } => {
                *named == path && physical_offset.get() == record.start
            }
            _ => false,
        });
        self.flip_bit(&path, place, bit);
    }

    fn flip_tail_bit(&mut self, boot: &Boot) {
        let records = log_files::records(&self.disk, &self.plan);
        let tail: Vec<_> =
            records.into_iter().filter(|record| record.start >= self.known.flushed_to).collect();
        let Some(&record) = self.rng.choice(&tail) else { return };
        // Even the next one, torn in its properties, shows that this one was whole.
        let has_records_behind = tail.iter().any(|other| other.start > record.start)
            || log_files::has_body_at(&self.disk, &self.plan, record.end);
        let (path, place, bit) = self.flip(record.start, record.end);
        if has_records_behind {
            self.expect_refusal(|error| match error {
                StoreError::DamageAmongRecords { path: named, physical_offset, .. } => {
                    *named == path && physical_offset.get() == record.start
                }
                _ => false,
            });
            return self.flip_bit(&path, place, bit);
        }
        self.journal.lock().push(Event::Cut { at: record.start });
        let Some(store) = self.open() else { return };
        if !self.prepare_to_serve(&store) {
            return self.abandon(store);
        }
        let report = store.recovery();
        if report.end.get() != record.start || report.truncated_bytes == 0 {
            let text = format!("a damaged tail at {} is not cut there and counted: {report:?}", record.start);
            self.wrong(Rule::R4, text);
        }
        self.check_recovered(&store);
        self.crash(&Boot { damage: None, ..*boot }, Some(store));
    }

    /// The latest start of the log that a mark names, even if that mark is damaged.
    fn marked_from(&self) -> u64 {
        let page = self.disk.peek(&Path::new(ROOT).join("checkpoint")).unwrap_or_default();
        mark_page::log_from(&page).get()
    }

    fn lose_log_file(&mut self) {
        let dir = Path::new(ROOT).join("commitlog");
        let files = self.disk.files();
        let files = files.iter().filter(|(path, _)| path.parent() == Some(&dir));
        let mut starts: Vec<u64> = files.filter_map(|(path, _)| log_files::number(path)).collect();
        starts.retain(|&start| (self.marked_from()..self.known.marked_to).contains(&start));
        let Some(&start) = self.rng.choice(&starts) else { return };
        let path = log_path(start);
        let is_refused = |error: &StoreError| {
            matches!(error, StoreError::MissingFile { .. } | StoreError::WrongFileSize { .. })
        };
        if self.rng.bool() {
            match self.disk.hide(&path) {
                Ok(hidden) => {
                    self.expect_refusal(is_refused);
                    self.disk.unhide(hidden);
                }
                Err(error) => self.wrong(Rule::Alive, format!("a file of the log is gone: {error}")),
            }
        } else {
            let whole = self.disk.peek(&path).unwrap_or_default();
            let len = self.rng.usize(100..whole.len().max(101));
            let cut = self.disk.damage(&path, |bytes| bytes.truncate(len));
            self.expect_refusal(is_refused);
            let mended = self.disk.damage(&path, |bytes| *bytes = whole);
            if cut.and(mended).is_err() {
                self.wrong(Rule::Alive, "a file of the log is gone");
            }
        }
    }

    /// Checks that the store does not open, says why, and changes nothing in log and queues.
    fn expect_refusal(&mut self, is_expected: impl Fn(&StoreError) -> bool) {
        let before = self.contents();
        self.journal.lock().boot(self.disk.clone());
        let opened = guarded(|| rocketpy_store::Store::open_stepped(self.disk.clone(), self.plan.config()));
        match opened {
            Guarded::Done(Err(error)) if is_expected(&error) => {
                if self.contents() != before {
                    self.wrong(Rule::R4, format!("a refused start changed files: {error}"));
                }
            }
            Guarded::Done(Err(error)) => {
                self.wrong(Rule::R4, format!("damage is reported as something else: {error}"))
            }
            Guarded::Done(Ok(store)) => {
                let (marked_to, report) = (self.known.marked_to, store.recovery());
                let text = format!("damage does not refuse the start (durable mark {marked_to}): {report:?}");
                self.wrong(Rule::R4, text);
                self.abandon(store);
            }
            Guarded::Stopped => {}
            Guarded::Panicked(text) => self.wrong(Rule::Alive, format!("a panic: {text}")),
        }
    }

    fn contents(&self) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        let files = self.disk.files().into_iter().filter(|(path, _)| !path.ends_with("lock"));
        files.map(|(path, _)| (path.clone(), self.disk.peek(&path))).collect()
    }

    fn lose_queue_file(&mut self) {
        // When all records of a queue are gone, or may be cut off, only its files say which numbers were used.
        let living = log_files::living_queues(&self.disk, &self.plan, self.known.marked_to);
        let is_living = |path: &PathBuf| living.iter().any(|queue| path.parent() == Some(queue));
        let files: Vec<_> = self.disk.files().into_iter().filter(|(path, _)| is_living(path)).collect();
        if let Some((path, _)) = self.rng.choice(&files) {
            let _ = self.disk.hide(path);
            self.known.may_rebuild = true;
        }
    }

    fn spoil_checkpoint(&mut self) {
        let path = Path::new(ROOT).join("checkpoint");
        self.known.marked_to = 0;
        self.known.has_mark = false;
        self.known.trusted_from = u64::MAX; // until a start succeeds
        self.known.may_rebuild = true;
        if self.rng.bool() {
            let _ = self.disk.hide(&path);
        } else {
            // The name with the version stays: a mark of another version would refuse the start.
            let behind_version = |place: Range<usize>| place.start + mark_page::VERSION_AT + 1..place.end;
            let places = mark_page::places().map(|place| self.rng.usize(behind_version(place)));
            let _ = self.disk.damage(&path, |bytes| {
                for place in places {
                    if let Some(byte) = bytes.get_mut(place) {
                        *byte ^= 0x10;
                    }
                }
            });
        }
    }
}

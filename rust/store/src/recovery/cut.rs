//! Ends the log where its last sound record ends.

use std::path::PathBuf;

use rocketpy_env::{Disk, DiskFile, EnvError, OpenMode, Region};
use rocketpy_model::PhysicalOffset;

use super::scan::{Scan, check_again};
use super::{Plan, Recovery};
use crate::config::FlushMode;
use crate::error::StoreError;
use crate::folder::folder_of;
use crate::mapped::{MappedFile, nonzero_end};

impl<D: Disk> Recovery<'_, D> {
    /// Whether the log ends where the mark says. Then nothing after the end needs a check.
    pub(super) fn is_trusted(&self) -> bool {
        !self.dirty && self.checkpoint.mark.is_some()
    }

    /// Removes files whose making was cut short.
    pub(super) fn remove_unfinished(&self, log_file: Option<PathBuf>) -> Result<(), EnvError> {
        if let Some(path) = log_file {
            tracing::warn!(path = %path.display(), "unfinished commit log file removed");
            self.disk.remove_file(&path)?;
            self.disk.sync_dir(folder_of(&path))?;
        }
        self.found.iter().try_for_each(|found| found.remove_unfinished(&**self.disk, &self.queue_files))
    }

    /// Up to where the log is durable after the cut: all of it, unless a start would have to write too much.
    pub(super) fn durable_to(&self, plan: &Plan, end: PhysicalOffset) -> PhysicalOffset {
        let leaves_it = self.dirty
            && self.config.flush == FlushMode::Async
            && end.saturating_sub(plan.durable_to) > self.config.flush_at_start_bytes;
        if leaves_it { plan.durable_to } else { end }
    }

    /// Cuts the log at its end, durably, and makes durable what is before `durable_to`. Returns the bytes that were cut off.
    pub(super) fn cut_log(
        &self,
        files: &mut Vec<MappedFile<D::Region>>,
        plan: &Plan,
        scan: &Scan,
        durable_to: PhysicalOffset,
    ) -> Result<u64, StoreError> {
        assert!(durable_to <= scan.end, "what is cut off is not durable");
        let keep = files.iter().take_while(|file| file.start <= scan.end).count();
        let mut cut = 0;
        // From the last to the first: wherever a crash comes, the files that are left have no hole between them.
        while files.len() > keep {
            let Some(file) = files.pop() else { break };
            cut += torn_bytes(&file, 0);
            self.disk.remove_file(&file.path)?;
            self.disk.sync_dir(folder_of(&file.path))?;
        }
        for file in files.iter_mut() {
            if scan.end < file.end() {
                cut += self.cut_file(file, scan.end - file.start)?;
            }
            let (from, to) = (plan.durable_to.max(file.start), durable_to.min(file.end()));
            if from < to {
                if self.dirty {
                    let found = from - file.start..to - file.start;
                    file.write_again(&**self.disk, found.clone())?;
                    check_again(file, found, &self.checked())?;
                }
                file.region.flush(from - file.start..to - file.start)?;
            }
        }
        assert!(files.iter().all(|file| file.start <= scan.end), "the log ends in its last file");
        if self.dirty {
            self.folder.commit_logs.iter().try_for_each(|dir| self.disk.sync_dir(dir))?; // the last process may have died before it did
        }
        if cut > 0 {
            tracing::warn!(
                end = %scan.end,
                cut_bytes = cut,
                reason = scan.reason.as_deref().unwrap_or_default(),
                "torn end of the log cut off"
            );
        }
        Ok(cut)
    }

    /// Ends the log in a file. Returns how many torn bytes it removed.
    fn cut_file(&self, file: &mut MappedFile<D::Region>, at: u64) -> Result<u64, StoreError> {
        let handle = self.disk.open_file(&file.path, OpenMode::Write)?;
        let rest = at..file.region.len();
        let is_trusted = self.is_trusted();
        let mut cut = 0;
        if !is_trusted {
            cut = torn_bytes(file, at);
            // Stale bytes must not come back: a record that lost its predecessors would look sound again once new
            // records fill the gap before it.
            handle.zero_range(rest.clone(), true)?;
        }
        handle.allocate(rest.clone())?; // another program's file, or a copy, may have holes
        if !is_trusted {
            file.region.flush(rest)?; // not what lies before: that may be a lot
        }
        file.region.rewind(at);
        Ok(cut)
    }
}

/// Bytes of a file from an offset to the last one that is not zero, as far as the next MiB shows.
fn torn_bytes<R: Region>(file: &MappedFile<R>, from: u64) -> u64 {
    let end = file.region.len().min(from + (1 << 20));
    nonzero_end(file.region.view(from..end)) as u64
}

//! Walks the log record by record, by position, and finds the next sound place behind damage.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use rocketpy_env::Disk;
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::record::{CheckMode, RecordView};
use rocketpy_store::files::{Look, NumberedFile, StreamFiles, look, next_magic, nonzero_end};
use rocketpy_store::reader::{ReadError, StoreReader};

use crate::ToolError;

/// Bytes of the log that are read at once.
const WINDOW_BYTES: usize = 1 << 20;

/// Bytes that are read for one record; most are shorter.
const RECORD_BYTES: usize = 8 << 10;

/// Bytes of a record up to and including its magic number.
const HEAD_BYTES: u64 = 8;

/// Which checks a walk makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checks {
    /// Each record's checksum.
    All,
    /// The layout only.
    Layout,
}

/// A walk over the log of a folder.
pub(crate) struct LogWalk<D: Disk> {
    files: StreamFiles<D>,
    /// Next place to read.
    at: PhysicalOffset,
    /// Where to stop: nothing is read from here on.
    stop: PhysicalOffset,
    checked: Range<PhysicalOffset>,
    checks: Checks,
    window: Vec<u8>,
    window_at: PhysicalOffset,
    /// Bytes that are read at once.
    window_bytes: usize,
}

/// What comes next in the log.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    /// A sound record.
    Record(RecordView<'a>),
    /// Neither a sound record nor the end of a file; [`LogWalk::find_ground`] continues behind it.
    Damage { at: PhysicalOffset, reason: String },
    /// Files are missing up to `next`; the walk continues there.
    MissingFiles { at: PhysicalOffset, next: PhysicalOffset },
    /// The end of the last file, or the place to stop at.
    End,
}

/// What lies at a place, with the length of a record instead of its bytes.
enum Here {
    Record(usize),
    FileEnd,
    Damage(String),
}

impl<D: Disk> LogWalk<D> {
    /// A walk from the start of the log. Within `checked` a record without a checksum of its own is damaged.
    pub(crate) fn new(
        reader: &StoreReader<D>,
        checked: Range<PhysicalOffset>,
        checks: Checks,
    ) -> Result<Self, ReadError> {
        let files = StreamFiles::list_all(Arc::clone(reader.disk()), reader.log_dirs().to_vec())?;
        let at = PhysicalOffset(files.start().unwrap_or(0));
        Ok(Self {
            files,
            at,
            stop: PhysicalOffset::MAX,
            checked,
            checks,
            window: Vec::new(),
            window_at: PhysicalOffset::ZERO,
            window_bytes: WINDOW_BYTES,
        })
    }

    /// Stops the walk at a place.
    pub(crate) fn stop_at(&mut self, stop: PhysicalOffset) {
        self.stop = stop;
    }

    /// Continues at a place where a record or a file begins.
    pub(crate) fn go_to(&mut self, at: PhysicalOffset) {
        self.at = at;
        self.window_bytes = WINDOW_BYTES;
    }

    /// Goes to the start of one record that is wanted; those behind it probably are not.
    pub(crate) fn look_at(&mut self, at: PhysicalOffset) {
        self.at = at;
        self.window_bytes = RECORD_BYTES;
    }

    /// The next place.
    pub(crate) fn at(&self) -> PhysicalOffset {
        self.at
    }

    pub(crate) fn start(&self) -> PhysicalOffset {
        PhysicalOffset(self.files.start().unwrap_or(0))
    }

    /// Bytes of all files as they were listed.
    pub(crate) fn end_of_files(&self) -> PhysicalOffset {
        PhysicalOffset(self.files.files().last().map_or(0, NumberedFile::end))
    }

    /// The file that holds a place, and the place in it.
    pub(crate) fn place(&mut self, at: PhysicalOffset) -> Result<(PathBuf, u64), ReadError> {
        let at = at.get();
        let start = self.files.find(at)?.map_or(at, |file| file.start);
        Ok((self.files.path_at(at)?, at - start))
    }

    /// Position behind the file that holds a place.
    pub(crate) fn file_end(&mut self, at: PhysicalOffset) -> Result<Option<PhysicalOffset>, ReadError> {
        Ok(self.files.find(at.get())?.map(|file| PhysicalOffset(file.end())))
    }

    /// Start of the first file behind a place.
    pub(crate) fn next_file(&self, at: PhysicalOffset) -> Option<PhysicalOffset> {
        self.files.files().iter().map(|file| PhysicalOffset(file.start)).find(|&start| start >= at)
    }

    /// Reads the next place, and steps behind a sound record.
    pub(crate) fn step(&mut self) -> Result<Step<'_>, ReadError> {
        loop {
            let at = self.at;
            if at >= self.stop {
                return Ok(Step::End);
            }
            let Some(file_end) = self.file_end(at)? else {
                return Ok(match self.next_file(at) {
                    Some(next) => {
                        self.at = next;
                        Step::MissingFiles { at, next }
                    }
                    None => Step::End,
                });
            };
            match self.here(at, file_end)? {
                Here::FileEnd => self.at = file_end,
                Here::Damage(reason) => return Ok(Step::Damage { at, reason }),
                Here::Record(size) => {
                    self.at = at + size as u64;
                    let start = (at - self.window_at) as usize;
                    let view = RecordView::parse(&self.window[start..start + size]);
                    return Ok(view
                        .map_or_else(|error| Step::Damage { at, reason: error.to_string() }, Step::Record));
                }
            }
        }
    }

    fn here(&mut self, at: PhysicalOffset, file_end: PhysicalOffset) -> Result<Here, ReadError> {
        let left = file_end - at;
        if !self.load(at, 8, file_end)? {
            return Ok(Here::Damage("the file ends, or is gone".to_owned()));
        }
        let head = &self.window[(at - self.window_at) as usize..];
        let size = head.first_chunk().map_or(0, |size| u32::from_be_bytes(*size));
        let is_record = next_magic(&head[..head.len().min(8)], 0, 1).is_some();
        if is_record && u64::from(size) <= left && !self.load(at, size as usize, file_end)? {
            return Ok(Here::Damage("the file ends, or is gone".to_owned()));
        }
        let mode = match (self.checks, self.checked.contains(&at)) {
            (Checks::Layout, _) => CheckMode::Layout,
            (Checks::All, true) => CheckMode::RecordRequired,
            (Checks::All, false) => CheckMode::Body,
        };
        Ok(match look(&self.window[(at - self.window_at) as usize..], at, left, mode) {
            Ok(Look::Record(view)) => Here::Record(view.size()),
            Ok(Look::FileEnd) => Here::FileEnd,
            Err(reason) => Here::Damage(reason),
        })
    }

    /// Makes sure that the window has `wanted` bytes from a place on, or all up to the end of the file.
    fn load(
        &mut self,
        at: PhysicalOffset,
        wanted: usize,
        file_end: PhysicalOffset,
    ) -> Result<bool, ReadError> {
        let wanted = (wanted as u64).min(file_end - at) as usize;
        let end = self.window_at + self.window.len() as u64;
        if at >= self.window_at && at + wanted as u64 <= end {
            return Ok(true);
        }
        self.window.resize((wanted.max(self.window_bytes) as u64).min(file_end - at) as usize, 0);
        self.window_at = at;
        let is_there = self.files.read(at.get(), &mut self.window)?;
        if !is_there {
            self.window.clear();
        }
        Ok(is_there)
    }

    /// The first place at or behind one, in the same file, that may hold something else than zeros.
    fn next_data(&mut self, from: PhysicalOffset) -> Result<Option<PhysicalOffset>, ReadError> {
        Ok(self.files.next_data(from.get())?.map(PhysicalOffset))
    }

    /// Whether a sound record or the end of a file is at a place.
    fn is_sound(&mut self, at: PhysicalOffset, file_end: PhysicalOffset) -> Result<bool, ReadError> {
        Ok(at < file_end && !matches!(self.here(at, file_end)?, Here::Damage(_)))
    }

    /// Whether a sound record or the end of a file is at a place, read again.
    pub(crate) fn is_sound_now(&mut self, at: PhysicalOffset) -> Result<bool, ReadError> {
        self.window.clear();
        self.file_end(at)?.map_or(Ok(false), |file_end| self.is_sound(at, file_end))
    }

    /// The first sound place behind damage at `at`: a record in the same file, else the start of the next file; `None` when
    /// nothing sound follows in this file and there is no other.
    ///
    /// The length that the damaged record states comes first: what its body holds may look like a record.
    ///
    /// # Errors
    /// The error of `tick`, which is called now and then with the current place; or a file operation failed.
    pub(crate) fn find_ground(
        &mut self,
        at: PhysicalOffset,
        tick: &mut dyn FnMut(PhysicalOffset) -> Result<(), ToolError>,
    ) -> Result<Option<PhysicalOffset>, ToolError> {
        let Some(file_end) = self.file_end(at)? else {
            return Ok(self.next_file(at));
        };
        if self.load(at, 4, file_end)? {
            let head = self.window[(at - self.window_at) as usize..].first_chunk();
            let stated = at + head.map_or(0, |size| u64::from(u32::from_be_bytes(*size)));
            if stated > at && stated < file_end && self.is_sound(stated, file_end)? {
                return Ok(Some(stated));
            }
        }
        let mut from = at + 1;
        while let Some(data) = self.next_data(from)? {
            from = PhysicalOffset(data.get().saturating_sub(HEAD_BYTES - 1)).max(from); // a head may begin with zeros that lie in a hole
            if !self.load(from, WINDOW_BYTES, file_end)? {
                break;
            }
            tick(from)?;
            let offset = (from - self.window_at) as usize;
            let window_end = self.window_at + self.window.len() as u64;
            match next_magic(&self.window[offset..], 0, self.window.len()) {
                Some(found) if self.is_sound(from + found as u64, file_end)? => {
                    return Ok(Some(from + found as u64));
                }
                Some(found) => from += found as u64 + 1,
                None if window_end >= file_end => break,
                None => from = window_end - (HEAD_BYTES - 1), // a head may lie across the end of the window
            }
        }
        Ok(self.next_file(file_end))
    }

    /// Where the last byte from `at` to the end of all files that is not zero ends; `at` when all are zero.
    ///
    /// # Errors
    /// As [`LogWalk::find_ground`].
    pub(crate) fn end_of_data(
        &mut self,
        at: PhysicalOffset,
        tick: &mut dyn FnMut(PhysicalOffset) -> Result<(), ToolError>,
    ) -> Result<PhysicalOffset, ToolError> {
        let mut end = at;
        let mut from = at;
        while let Some(file_end) = self.file_end(from)? {
            while let Some(data) = self.next_data(from)? {
                if !self.load(data, WINDOW_BYTES, file_end)? {
                    break;
                }
                tick(data)?;
                let nonzero = nonzero_end(&self.window[(data - self.window_at) as usize..]) as u64;
                if nonzero > 0 {
                    end = data + nonzero;
                }
                from = self.window_at + self.window.len() as u64;
                if from >= file_end {
                    break;
                }
            }
            from = file_end;
        }
        Ok(end)
    }
}

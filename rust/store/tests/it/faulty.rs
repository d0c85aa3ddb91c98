//! A real disk with its own clock and faults on demand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use rocketpy_env::{
    DirEntry, Disk, DiskFile, DiskUsage, EnvError, FileSystem, LockHolder, MappedRegion, OpenMode, RealDisk,
    RealFile, RealFileSystem, RealLock, Region,
};

/// What a test can switch.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// The next flush of a mapped file fails; the one after it succeeds, as on Linux.
    pub fail_next_log_flush: AtomicBool,
    pub fail_next_write_ahead: AtomicBool,
    pub fail_next_file_flush: AtomicBool,
    /// The flush of the folder after the next new mapped file fails; the one after it succeeds, as on Linux.
    pub fail_next_folder_flush: AtomicBool,
    /// The next flush of a folder fails.
    pub fail_next_folder_sync: AtomicBool,
    pub fail_next_folder_removal: AtomicBool,
    pub synced_folders: Mutex<Vec<PathBuf>>,
    /// No folder can be opened to be flushed.
    pub no_handle_for_folders: AtomicBool,
    pub refused_folders: AtomicU64,
    /// No new mapped file can be made.
    pub no_space_for_log: AtomicBool,
    /// A new mapped file takes as long as this is so, as on a disk that stalls.
    pub endless_zeros: AtomicBool,
    pub zeros_begun: AtomicBool,
    /// Nothing can be written into files.
    pub no_space_for_files: AtomicBool,
    /// Nothing can be written into the checkpoint.
    pub no_space_for_checkpoint: AtomicBool,
    /// Writes into the checkpoint that found no space.
    pub refused_checkpoints: AtomicU64,
    pub log_flushes: AtomicU64,
    /// Place and length of what was written into commit log files by position.
    pub log_writes: Mutex<Vec<(u64, u64)>>,
    /// Bytes of a log file, and their place, that the system reads again from the disk when the file is opened for writing: their page
    /// counted as written and was not.
    pub evicted: Mutex<Option<(u64, Vec<u8>)>>,
    /// Files that can still be removed; every further removal fails.
    pub removals_left: Left,
    /// Writes into consume queues that still succeed; every further one finds the disk full.
    pub queue_writes_left: Left,
    /// Checks of what was seen of the log that still find it readable; every further one finds a bad page.
    pub log_checks_left: Left,
    /// How full the file systems of folders are, in percent; [`NOT_FULL`] otherwise, whatever the machine's disk is.
    used_percent: Mutex<BTreeMap<PathBuf, u64>>,
    /// A file that the next listing of its folder leaves out, as one may while files are made.
    pub left_out_of_listing: Mutex<Option<PathBuf>>,
    /// A file of the log that is cut to a length right after it was mapped.
    pub cut_opened: Mutex<Option<(PathBuf, u64)>>,
    /// No new mapped file can be made below this folder.
    no_space_below: Mutex<Option<PathBuf>>,
    /// 0: the clock of the machine.
    clock_ms: AtomicI64,
    /// What [`FaultyDisk::set_clock`] let pass.
    passed_ms: AtomicU64,
    gate: Gate,
}

/// Of a disk that nothing is to be removed from.
const NOT_FULL: u64 = 10;

impl Faults {
    fn open_folder(&self, path: &Path) -> Result<(), EnvError> {
        match self.no_handle_for_folders.load(Ordering::SeqCst) {
            true => {
                self.refused_folders.fetch_add(1, Ordering::SeqCst);
                Err(EnvError::TooManyOpenFiles { operation: "open", path: path.to_path_buf() })
            }
            false => Ok(()),
        }
    }
}

/// A count that starts without a bound.
#[derive(Debug)]
pub(crate) struct Left(AtomicU64);

impl Default for Left {
    fn default() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }
}

impl Left {
    /// Takes one, if one is left.
    fn take(&self) -> bool {
        let less = |left: u64| left.checked_sub(1);
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
    }
}

impl std::ops::Deref for Left {
    type Target = AtomicU64;

    fn deref(&self) -> &AtomicU64 {
        &self.0
    }
}

/// Holds flushes back while it is shut.
#[derive(Debug, Default)]
struct Gate {
    shut: Mutex<bool>,
    bell: Condvar,
    waiting: AtomicU64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct FaultyDisk {
    pub faults: Arc<Faults>,
}

impl FaultyDisk {
    pub(crate) fn set_clock(&self, now_ms: i64) {
        let passed_ms = u64::try_from(now_ms - self.now_ms()).unwrap_or(0);
        self.faults.passed_ms.fetch_add(passed_ms, Ordering::SeqCst);
        self.step_clock(now_ms);
    }

    /// Sets the wall clock, as somebody may at any moment; no time passes.
    pub(crate) fn step_clock(&self, now_ms: i64) {
        self.faults.clock_ms.store(now_ms, Ordering::SeqCst);
    }

    /// Says how full the file system of a folder is.
    pub(crate) fn set_used_percent(&self, dir: &Path, percent: u64) {
        self.faults.used_percent.lock().insert(dir.to_path_buf(), percent);
    }

    pub(crate) fn no_space_below(&self, dir: &Path) {
        *self.faults.no_space_below.lock() = Some(dir.to_path_buf());
    }

    pub(crate) fn shut_gate(&self) {
        *self.faults.gate.shut.lock() = true;
    }

    pub(crate) fn open_gate(&self) {
        *self.faults.gate.shut.lock() = false;
        self.faults.gate.bell.notify_all();
    }

    /// Flushes that stand before the gate.
    pub(crate) fn held_back(&self) -> u64 {
        self.faults.gate.waiting.load(Ordering::SeqCst)
    }
}

fn no_space(path: &Path) -> EnvError {
    EnvError::NoSpace { operation: "write", path: path.to_path_buf() }
}

fn broken_device(path: &Path) -> EnvError {
    EnvError::from_flush("flush", path, std::io::Error::from_raw_os_error(5))
}

pub(crate) struct FaultyRegion {
    region: MappedRegion,
    faults: Arc<Faults>,
}

pub(crate) struct FaultyFile {
    file: RealFile,
    faults: Arc<Faults>,
    place: Place,
}

/// What a file is to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Log,
    Queue,
    Checkpoint,
    Other,
}

impl Place {
    fn of(path: &Path) -> Self {
        let mut above = path.ancestors().skip(1);
        match above.next() {
            Some(dir) if dir.ends_with("commitlog") => Self::Log,
            _ if path.ends_with("checkpoint") => Self::Checkpoint,
            _ if above.any(|dir| dir.ends_with("consumequeue")) => Self::Queue,
            _ => Self::Other,
        }
    }
}

impl Region for FaultyRegion {
    fn len(&self) -> u64 {
        self.region.len()
    }

    fn written(&self) -> u64 {
        self.region.written()
    }

    fn append_parts(&self, parts: &[&[u8]], advance: u64) {
        self.region.append_parts(parts, advance);
    }

    fn view(&self, range: std::ops::Range<u64>) -> &[u8] {
        self.region.view(range)
    }

    fn slice(&self, range: std::ops::Range<u64>) -> Bytes {
        self.region.slice(range)
    }

    fn check(&self, range: std::ops::Range<u64>) -> Result<(), EnvError> {
        if !self.faults.log_checks_left.take() {
            let source = Arc::new(std::io::Error::other("on purpose"));
            return Err(EnvError::Unreadable { path: "log".into(), offset: range.start, source });
        }
        self.region.check(range)
    }

    fn fault(&self) -> Option<EnvError> {
        self.region.fault()
    }

    fn resident(&self, range: std::ops::Range<u64>) -> u64 {
        self.region.resident(range)
    }

    fn rewind(&mut self, end: u64) {
        self.region.rewind(end);
    }

    fn flush(&self, range: std::ops::Range<u64>) -> Result<(), EnvError> {
        let gate = &self.faults.gate;
        gate.waiting.fetch_add(1, Ordering::SeqCst);
        let mut shut = gate.shut.lock();
        while *shut {
            gate.bell.wait(&mut shut);
        }
        drop(shut);
        gate.waiting.fetch_sub(1, Ordering::SeqCst);
        self.faults.log_flushes.fetch_add(1, Ordering::SeqCst);
        if self.faults.fail_next_log_flush.swap(false, Ordering::SeqCst) {
            return Err(broken_device(Path::new("log")));
        }
        self.region.flush(range)
    }

    fn fault_in(&self, range: std::ops::Range<u64>) {
        self.region.fault_in(range);
    }

    fn fault_in_written(&self, range: std::ops::Range<u64>) -> Result<(), EnvError> {
        if self.faults.fail_next_write_ahead.swap(false, Ordering::SeqCst) {
            return Err(broken_device(Path::new("log")));
        }
        self.region.fault_in_written(range)
    }
}

impl DiskFile for FaultyFile {
    fn len(&self) -> Result<u64, EnvError> {
        self.file.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, EnvError> {
        self.file.read_at(offset, buffer)
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), EnvError> {
        self.file.read_exact_at(offset, buffer)
    }

    fn read_in_memory_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool, EnvError> {
        self.file.read_in_memory_at(offset, buffer)
    }

    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> Result<(), EnvError> {
        let is_checkpoint = self.place == Place::Checkpoint;
        if is_checkpoint && self.faults.no_space_for_checkpoint.load(Ordering::SeqCst) {
            self.faults.refused_checkpoints.fetch_add(1, Ordering::SeqCst);
            return Err(no_space(Path::new("file")));
        }
        if self.faults.no_space_for_files.load(Ordering::SeqCst) {
            return Err(no_space(Path::new("file")));
        }
        if self.place == Place::Queue && !self.faults.queue_writes_left.take() {
            return Err(no_space(Path::new("file")));
        }
        if self.place == Place::Log {
            self.faults.log_writes.lock().push((offset, bytes.len() as u64));
        }
        self.file.write_all_at(offset, bytes)
    }

    fn set_len(&self, len: u64) -> Result<(), EnvError> {
        self.file.set_len(len)
    }

    fn sync(&self) -> Result<(), EnvError> {
        if self.faults.fail_next_file_flush.swap(false, Ordering::SeqCst) {
            return Err(broken_device(Path::new("file")));
        }
        self.file.sync()
    }

    fn zero_range(&self, range: std::ops::Range<u64>, keep_allocated: bool) -> Result<(), EnvError> {
        self.file.zero_range(range, keep_allocated)
    }

    fn allocate(&self, range: std::ops::Range<u64>) -> Result<(), EnvError> {
        self.file.allocate(range)
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>, EnvError> {
        self.file.next_data(offset)
    }
}

/// A file system whose flush can fail.
#[derive(Debug)]
pub(crate) struct FaultyFileSystem {
    real: RealFileSystem,
    dir: PathBuf,
    faults: Arc<Faults>,
}

impl FileSystem for FaultyFileSystem {
    fn sync(&self) -> Result<(), EnvError> {
        if self.faults.fail_next_file_flush.swap(false, Ordering::SeqCst) {
            return Err(broken_device(&self.dir));
        }
        self.real.sync()
    }
}

impl Disk for FaultyDisk {
    type Region = FaultyRegion;
    type File = FaultyFile;
    type FileSystem = FaultyFileSystem;
    type Lock = RealLock;

    fn create_region_while(
        &self,
        path: &Path,
        len: u64,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<FaultyRegion, EnvError> {
        let is_below = self.faults.no_space_below.lock().as_ref().is_some_and(|dir| path.starts_with(dir));
        if is_below || self.faults.no_space_for_log.load(Ordering::SeqCst) {
            return Err(no_space(path));
        }
        if self.faults.endless_zeros.load(Ordering::SeqCst) {
            self.faults.zeros_begun.store(true, Ordering::SeqCst);
            while is_wanted() && self.faults.endless_zeros.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            if !is_wanted() {
                let given_up = std::io::ErrorKind::Interrupted.into();
                return Err(EnvError::from_io("allocate", path, given_up));
            }
        }
        let region = RealDisk.create_region_while(path, len, is_wanted)?;
        if self.faults.fail_next_folder_flush.swap(false, Ordering::SeqCst) {
            RealDisk.remove_file(path)?;
            return Err(broken_device(path.parent().unwrap()));
        }
        Ok(FaultyRegion { region, faults: Arc::clone(&self.faults) })
    }

    fn open_region(&self, path: &Path) -> Result<FaultyRegion, EnvError> {
        let region = RealDisk.open_region(path)?;
        if let Some((_, len)) = self.faults.cut_opened.lock().take_if(|(of, _)| of == path) {
            RealDisk.open_file(path, OpenMode::Write)?.set_len(len)?;
        }
        Ok(FaultyRegion { region, faults: Arc::clone(&self.faults) })
    }

    fn open_file(&self, path: &Path, mode: OpenMode) -> Result<FaultyFile, EnvError> {
        let place = Place::of(path);
        let file = RealDisk.open_file(path, mode)?;
        if place == Place::Log
            && mode == OpenMode::Write
            && let Some((at, old)) = self.faults.evicted.lock().take()
        {
            file.write_all_at(at, &old)?;
        }
        Ok(FaultyFile { file, faults: Arc::clone(&self.faults), place })
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<(), EnvError> {
        RealDisk.replace(path, bytes)
    }

    fn replace_keeping_backup(&self, path: &Path, bytes: &[u8]) -> Result<(), EnvError> {
        RealDisk.replace_keeping_backup(path, bytes)
    }

    fn read(&self, path: &Path, limit_bytes: u64) -> Result<Vec<u8>, EnvError> {
        RealDisk.read(path, limit_bytes)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), EnvError> {
        RealDisk.rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<(), EnvError> {
        RealDisk.hard_link(from, to)
    }

    fn remove_file(&self, path: &Path) -> Result<(), EnvError> {
        if !self.faults.removals_left.take() {
            return Err(EnvError::from_io("remove", path, std::io::Error::from_raw_os_error(5)));
        }
        RealDisk.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> Result<(), EnvError> {
        if self.faults.fail_next_folder_removal.swap(false, Ordering::SeqCst) {
            return Err(EnvError::from_io("remove", path, std::io::Error::from_raw_os_error(5)));
        }
        RealDisk.remove_dir_all(path)
    }

    fn create_dir_all(&self, path: &Path) -> Result<(), EnvError> {
        RealDisk.create_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<(), EnvError> {
        self.faults.open_folder(path)?;
        if self.faults.fail_next_folder_sync.swap(false, Ordering::SeqCst) {
            return Err(broken_device(path));
        }
        self.faults.synced_folders.lock().push(path.to_path_buf());
        RealDisk.sync_dir(path)
    }

    fn open_file_system(&self, dir: &Path) -> Result<FaultyFileSystem, EnvError> {
        self.faults.open_folder(dir)?;
        let real = RealDisk.open_file_system(dir)?;
        Ok(FaultyFileSystem { real, dir: dir.to_path_buf(), faults: Arc::clone(&self.faults) })
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>, EnvError> {
        let mut entries = RealDisk.list(dir)?;
        if let Some(path) = self.faults.left_out_of_listing.lock().take_if(|path| path.parent() == Some(dir))
        {
            entries.retain(|entry| path.file_name() != Some(&entry.name));
        }
        Ok(entries)
    }

    fn lock_folder(&self, path: &Path) -> Result<RealLock, EnvError> {
        RealDisk.lock_folder(path)
    }

    fn lock(&self, path: &Path) -> Result<RealLock, EnvError> {
        RealDisk.lock(path)
    }

    fn lock_holder(&self, path: &Path) -> Result<Option<LockHolder>, EnvError> {
        RealDisk.lock_holder(path)
    }

    fn page_cache(&self, dir: &Path) -> Option<String> {
        RealDisk.page_cache(dir)
    }

    fn usage(&self, path: &Path) -> Result<DiskUsage, EnvError> {
        let used = self.faults.used_percent.lock();
        let of_folder = used.iter().enumerate().rev().find(|(_, (dir, _))| path.starts_with(dir));
        let (number, percent) =
            of_folder.map_or((usize::MAX, NOT_FULL), |(number, (_, percent))| (number, *percent));
        let free_bytes = (100 - percent) << 18;
        let file_system = number as u64;
        Ok(DiskUsage { file_system, total_bytes: 100 << 18, free_bytes, available_bytes: free_bytes })
    }

    fn monotonic(&self) -> Duration {
        RealDisk.monotonic() + Duration::from_millis(self.faults.passed_ms.load(Ordering::SeqCst))
    }

    fn now_ms(&self) -> i64 {
        match self.faults.clock_ms.load(Ordering::SeqCst) {
            0 => RealDisk.now_ms(),
            set => set,
        }
    }
}

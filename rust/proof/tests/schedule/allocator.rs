//! The next file of the log: appends that need it, and the thread that makes it.

use std::collections::BTreeSet;

use rocketpy_model::PhysicalOffset;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;

use crate::next_file::{NextFile, Taken};
use crate::{EVER, join};

const FILE_BYTES: u64 = 10;
const RECORD_BYTES: u64 = 5;
const APPENDERS: u64 = 3;
const APPENDS: u64 = 2;

/// A log of files, of which each is made once.
struct Log {
    next: NextFile<u64, ()>,
    /// The writer lock.
    writer: Mutex<()>,
    end: AtomicU64,
    /// End of the last file.
    files_end: AtomicU64,
    made: Mutex<BTreeSet<u64>>,
}

impl Log {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            next: NextFile::new(PhysicalOffset::ZERO),
            writer: Mutex::new(()),
            end: AtomicU64::new(0),
            files_end: AtomicU64::new(0),
            made: Mutex::default(),
        })
    }

    fn end(&self) -> PhysicalOffset {
        PhysicalOffset(self.end.load(Ordering::SeqCst))
    }

    /// Appends a record; `false` when the store stops first.
    fn append(&self) -> bool {
        while !self.next.is_stopped() {
            if let Some(end) = self.place() {
                self.next.look_ahead(end);
                return true;
            }
            assert!(self.next.wait(EVER), "nobody gives up");
        }
        false
    }

    /// Places a record under the writer lock; `None` while there is no file for it.
    fn place(&self) -> Option<PhysicalOffset> {
        let _writer = self.writer.lock().expect("no append panics");
        let (at, files_end) = (self.end.load(Ordering::SeqCst), self.files_end.load(Ordering::SeqCst));
        if at == files_end {
            match self.next.take(PhysicalOffset(files_end)) {
                Taken::File(start) => assert_eq!(*start, files_end, "files follow each other"),
                Taken::Waits(_) => return None,
                Taken::Failed(_) => panic!("no file fails"),
            }
            self.files_end.store(files_end + FILE_BYTES, Ordering::SeqCst);
        }
        self.end.store(at + RECORD_BYTES, Ordering::SeqCst);
        Some(PhysicalOffset(at + RECORD_BYTES))
    }

    /// Makes the file that was asked for.
    fn make(&self) {
        let make = |start: PhysicalOffset| {
            let is_new = self.made.lock().expect("nothing panics").insert(start.get());
            assert!(is_new, "the file at {start} was made before");
            Ok(start.get())
        };
        self.next.make(make, |(), _| panic!("no file fails"));
    }

    /// Asks for the file behind the last one when that is half full.
    fn look(&self) {
        let (end, files_end) = (self.end(), self.files_end.load(Ordering::SeqCst));
        if end.get() + FILE_BYTES / 2 >= files_end {
            self.next.want_ahead(PhysicalOffset(files_end));
        }
        self.make();
        self.next.set_look_at(end + 1, || self.end());
    }

    /// The thread, and appenders.
    fn start(log: &Arc<Self>) -> (thread::JoinHandle<()>, Vec<thread::JoinHandle<u64>>) {
        let maker = Arc::clone(log);
        let maker = thread::spawn(move || maker.next.run(|| maker.make(), || maker.look()));
        let appenders = (0..APPENDERS).map(|_| {
            let log = Arc::clone(log);
            thread::spawn(move || (0..APPENDS).map(|_| u64::from(log.append())).sum())
        });
        (maker, appenders.collect())
    }
}

/// Appends that fill three files.
pub(crate) fn next_file() {
    let log = Log::new();
    let (maker, appenders) = Log::start(&log);
    join(appenders);
    assert_eq!(log.end().get(), APPENDERS * APPENDS * RECORD_BYTES);
    log.next.stop();
    maker.join().expect("it ends");
}

/// A stop while appends wait for files.
pub(crate) fn stop() {
    let log = Log::new();
    let (maker, appenders) = Log::start(&log);
    log.next.stop();
    let appended = join(appenders).into_iter().sum::<u64>();
    assert_eq!(log.end().get(), appended * RECORD_BYTES);
    maker.join().expect("it ends");
}

//! A mapped region only grows, and what is published stays readable.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rocketpy_env::{Disk, DiskFile, EnvError, MappedRegion, OpenMode, RealDisk, Region};

#[test]
fn a_new_region_is_allocated_zero_and_has_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("00000000000000000000");
    let region = RealDisk.create_region(&path, 1 << 20).unwrap();
    assert_eq!((region.len(), region.written()), (1 << 20, 0));
    let listed = RealDisk.list(dir.path()).unwrap();
    assert_eq!(listed.len(), 1, "nothing else lies beside it");
    assert_eq!(listed[0].size_bytes, 1 << 20);
    assert!(matches!(RealDisk.create_region(&path, 4096), Err(EnvError::AlreadyExists { .. })));
}

#[test]
fn appended_bytes_are_seen_by_views_slices_and_readers_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let region = RealDisk.create_region(&path, 8192).unwrap();
    region.append_parts(&[b"he", b"", b"llo"], 5);
    region.append(b"end", 100);
    assert_eq!(region.written(), 105);
    assert_eq!(region.view(0..8), b"helloend");
    let slice = region.slice(5..8);
    region.flush(0..105).unwrap();
    drop(region);
    assert_eq!(slice, "end", "a slice outlives the region");
    let mut bytes = [0; 8];
    RealDisk.open_file(&path, OpenMode::Read).unwrap().read_exact_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"helloend");
}

#[test]
fn an_opened_region_counts_as_written_until_it_is_rewound() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    RealDisk.create_region(&path, 4096).unwrap().append(b"abcdef", 6);
    let mut region = RealDisk.open_region(&path).unwrap();
    assert_eq!(region.written(), 4096);
    region.rewind(3);
    region.append(b"XY", 2);
    assert_eq!(region.view(0..5), b"abcXY");
}

#[test]
#[should_panic(expected = "passes the written 2")]
fn bytes_that_are_not_published_cannot_be_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let region = RealDisk.create_region(&dir.path().join("log"), 4096).unwrap();
    region.append(b"ab", 2);
    let _ = region.slice(0..3);
}

#[test]
#[should_panic(expected = "append of 10 bytes")]
fn an_append_cannot_pass_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let region = RealDisk.create_region(&dir.path().join("log"), 8).unwrap();
    region.append(&[1; 10], 10);
}

#[test]
fn readers_see_whole_appends_while_a_writer_appends() {
    let dir = tempfile::tempdir().unwrap();
    let region = RealDisk.create_region(&dir.path().join("log"), 1 << 20).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..8192u32 {
                region.append(&[number as u8; 128], 128);
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut seen = 0;
                while seen < 1 << 20 {
                    let written = region.written();
                    for at in (seen..written).step_by(128) {
                        let record = region.view(at..at + 128);
                        assert!(record.iter().all(|&byte| byte == (at / 128) as u8), "at {at}");
                    }
                    seen = written;
                }
            });
        }
        region.fault_in(0..1 << 20);
    });
}

/// Set when dropped, also by a panic.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The first bytes of a file as the disk has them. Where the file system can, this reads past the page cache, whose pages may
/// count as written.
fn on_disk(path: &Path, len: usize) -> Vec<u8> {
    const BLOCK: usize = 4096;
    let direct = File::options().read(true).custom_flags(libc::O_DIRECT).open(path);
    let file = direct.or_else(|_| File::open(path)).unwrap();
    let mut bytes = vec![0; len.next_multiple_of(BLOCK) + BLOCK];
    let at = bytes.as_ptr().align_offset(BLOCK);
    file.read_exact_at(&mut bytes[at..at + len.next_multiple_of(BLOCK)], 0).unwrap();
    bytes[at..at + len].to_vec()
}

#[test]
fn pages_that_are_made_ready_or_flushed_lose_no_append_that_comes_meanwhile() {
    const LEN: u64 = 8 << 20;
    const PIECE: u64 = 200;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let region = RealDisk.create_region(&path, LEN).unwrap();
    let expected = |at: u64| (at / PIECE) as u8 | 1;
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ended = Ended(&has_ended);
            for at in (0..LEN - PIECE).step_by(PIECE as usize) {
                region.append(&[expected(at); PIECE as usize], PIECE);
            }
        });
        scope.spawn(|| {
            let mut flushed = 0;
            while !has_ended.load(Ordering::Acquire) {
                let written = region.written();
                region.flush(flushed..written).unwrap();
                flushed = written;
            }
        });
        while !has_ended.load(Ordering::Acquire) {
            for at in (0..LEN).step_by(1 << 20) {
                region.fault_in_written(at..at + (1 << 20)).unwrap();
            }
        }
    });
    let written = region.written();
    region.flush(0..written).unwrap();
    let bytes = on_disk(&path, written as usize);
    for (piece, at) in bytes.chunks_exact(PIECE as usize).zip((0..).step_by(PIECE as usize)) {
        assert!(piece.iter().all(|&byte| byte == expected(at)), "at {at}");
    }
}

/// A region of three pages, full of one letter.
fn three_pages(path: &Path) -> MappedRegion {
    let region = RealDisk.create_region(path, 3 * 4096).unwrap();
    region.append(&[b'x'; 3 * 4096], 3 * 4096);
    region.flush(0..3 * 4096).unwrap();
    region
}

fn cut_short(path: &Path, len: u64) {
    RealDisk.open_file(path, OpenMode::Write).unwrap().set_len(len).unwrap();
}

#[test]
fn a_file_that_is_cut_short_is_an_error_with_its_place_and_the_rest_stays_readable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let region = three_pages(&path);
    let kept = region.slice(0..4096);
    region.check(0..3 * 4096).unwrap();
    assert!(region.fault().is_none());
    cut_short(&path, 4096);
    assert!(region.view(5000..8000).iter().all(|&byte| byte == 0), "nothing of the file is left there");
    let EnvError::Unreadable { path: of, offset, .. } = region.check(5000..8000).unwrap_err() else {
        panic!("another error")
    };
    assert_eq!((of, offset), (path.clone(), 5000));
    region.check(0..4096).expect("the first page is there");
    assert_eq!(kept, [b'x'; 4096][..]);
    let Some(EnvError::Unreadable { offset: 4096, .. }) = region.fault() else { panic!("no fault") };
    let second = three_pages(&dir.path().join("second"));
    assert!(second.check(0..3 * 4096).is_ok() && second.fault().is_none(), "another file is not concerned");
}

#[test]
fn pages_that_nobody_read_before_a_check_are_read_by_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let region = three_pages(&path);
    cut_short(&path, 2 * 4096);
    let error = region.check(0..3 * 4096).unwrap_err();
    assert!(matches!(error, EnvError::Unreadable { offset: 8192, .. }), "{error}");
}

#[test]
fn bytes_that_a_cut_file_cannot_take_are_not_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let region = RealDisk.create_region(&path, 2 * 4096).unwrap();
    region.append(&[b'x'; 100], 4096);
    cut_short(&path, 4096);
    region.append(&[b'y'; 100], 100);
    region.flush(0..4096).expect("the first page is there");
    assert!(region.check(4096..4196).is_err());
    assert!(region.flush(4096..4196).unwrap_err().is_failed_flush());
}

#[test]
fn a_flush_tells_that_the_file_was_cut_short_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let region = RealDisk.create_region(&path, 2 * 4096).unwrap();
    region.append(&[b'x'; 5000], 5000);
    cut_short(&path, 0);
    assert!(region.flush(0..5000).unwrap_err().is_failed_flush());
}

/// Removes the pages of a file from memory. A mapped page stays, and one that a kernel thread uses stays until later: the file is dropped
/// again and again until none is left.
#[cfg(target_os = "linux")]
pub(crate) fn forget(path: &Path) {
    for _ in 0..200 {
        let dropped = std::process::Command::new("dd")
            .arg(format!("of={}", path.display()))
            .args(["oflag=nocache", "conv=notrunc,fdatasync", "count=0"])
            .output()
            .unwrap();
        assert!(dropped.status.success(), "{dropped:?}");
        let region = RealDisk.open_region(path).unwrap();
        let length = std::fs::metadata(path).unwrap().len();
        let mut pages = (0..length).step_by(4096).map(|start| start..(start + 4096).min(length));
        if pages.all(|page| region.resident(page) == 0) {
            return;
        }
    }
    panic!("pages of {} stay in memory", path.display());
}

#[cfg(target_os = "linux")]
#[test]
fn pages_that_are_not_in_memory_are_known() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(); // a disk: memory is what a tmpfs has
    let path = dir.path().join("log");
    let region = three_pages(&path);
    assert_eq!(region.resident(100..9000), 8900);
    drop(region);
    forget(&path);
    let region = RealDisk.open_region(&path).unwrap();
    assert_eq!(region.resident(100..9000), 0);
    region.check(100..9000).unwrap();
    assert_eq!(region.resident(100..9000), 8900);
}

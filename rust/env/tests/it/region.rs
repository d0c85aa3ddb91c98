//! A mapped region only grows, and what is published stays readable.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rocketpy_env::{Disk, DiskFile, EnvError, OpenMode, RealDisk, Region};

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

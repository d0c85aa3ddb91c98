//! File systems that write to a new place: an allocated page needs space once more, so that a map may meet a full disk after all.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_store::{AppendError, FlushError, FlushMode, Store, StoreConfig};

use crate::disk_full::{Mounted, mount_image};
use crate::support::{read_all, record, small};

const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a program; says whether it is there and succeeded.
fn runs(program: &str, arguments: &[&str], path: &Path) -> bool {
    let output = Command::new(program).args(arguments).arg(path).output();
    let succeeds = output.as_ref().is_ok_and(|output| output.status.success());
    if !succeeds {
        eprintln!("{program}: {output:?}");
    }
    succeeds
}

/// A mounted file system of an image in a folder; `None` where it cannot be made, under `CI` a failure.
fn mounted<'a>(dir: &'a Path, image: &Path, mkfs: &[&str]) -> Option<Mounted<'a>> {
    let is_made = runs("truncate", &["-s", "320M"], image) && runs(mkfs[0], &mkfs[1..], image);
    assert!(is_made || std::env::var_os("CI").is_none(), "{mkfs:?} is needed");
    if is_made { mount_image(dir, image) } else { None }
}

/// Takes all space that is left.
fn fill_disk(dir: &Path) {
    for (number, block) in ["1M", "64k", "4k", "512"].into_iter().enumerate() {
        let of = format!("of={}", dir.join(format!("ballast{number}")).display());
        let filled =
            Command::new("dd").args(["if=/dev/zero", "conv=fsync", &of]).arg(format!("bs={block}")).output();
        assert!(!filled.unwrap().status.success(), "it ends for want of space");
    }
}

/// What a store on a full disk answers in the end.
#[derive(Debug)]
enum End {
    NotAppended(AppendError),
    NotFlushed(FlushError),
}

/// Appends and acknowledges until it is refused. Returns the bodies that were acknowledged and the refusal.
fn acknowledged(store: &Store, from: u32) -> (Vec<Vec<u8>>, Option<End>) {
    let mut bodies = Vec::new();
    for number in from..from + 2000 {
        let body = [number.to_be_bytes().as_slice(), &[7; 8000]].concat();
        match store.append(&record("t", 0, &body)) {
            Ok(appended) => match store.wait_flushed(appended.end, PATIENCE) {
                Ok(()) => bodies.push(body),
                Err(error) => return (bodies, Some(End::NotFlushed(error))),
            },
            Err(error) => return (bodies, Some(End::NotAppended(error))),
        }
    }
    (bodies, None)
}

/// Fills the disk under a store whose pages are written ahead. `share` may make its files share their space first.
fn fill_under_a_store(mkfs: &[&str], share: impl Fn(&Path)) {
    let host = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let Some(mounted) = mounted(dir.path(), &host.path().join("image"), mkfs) else { return };
    let root = dir.path().join("store");
    let config = StoreConfig { flush: FlushMode::Sync, commit_log_file_size: 16 << 20, ..small(&root) };
    let store = Store::open(config.clone()).unwrap();
    let mut bodies = Vec::new();
    for number in 0..20u32 {
        let body = number.to_be_bytes().to_vec();
        let appended = store.append(&record("t", 0, &body)).unwrap();
        store.wait_flushed(appended.end, PATIENCE).unwrap();
        bodies.push(body);
    }
    share(&root);
    fill_disk(dir.path());
    let (more, refusal) = acknowledged(&store, 20);
    eprintln!("{mkfs:?}: {} acknowledged on the full disk, then {refusal:?}", more.len());
    let says = match refusal.expect("the disk is full") {
        End::NotAppended(AppendError::QueueNotWriteable { .. }) => None, // dispatch met the full disk first
        End::NotAppended(error @ (AppendError::Poisoned { .. } | AppendError::DiskFull { .. })) => {
            Some(error.to_string())
        }
        End::NotFlushed(error @ FlushError::Poisoned { .. }) => Some(error.to_string()),
        other => panic!("{other:?}"),
    };
    let root_text = root.display().to_string();
    assert!(says.as_ref().is_none_or(|says| says.contains(&root_text)), "it names the place: {says:?}");
    bodies.extend(more);
    drop(store);
    for number in 0..4 {
        let _ = RealDisk.remove_file(&dir.path().join(format!("ballast{number}"))); // dd may not have made it
    }
    let store = Store::open(config).unwrap();
    let found = read_all(&store, "t", 0);
    assert!(found.starts_with(&bodies), "{} of {} acknowledged ones are there", found.len(), bodies.len());
    store.append(&record("t", 0, b"more")).unwrap();
    drop(store);
    drop(mounted);
}

#[test]
fn a_full_btrfs_refuses_or_poisons_and_loses_nothing() {
    fill_under_a_store(&["mkfs.btrfs", "-q"], |_| ());
}

#[test]
fn a_full_xfs_whose_log_shares_its_space_refuses_or_poisons_and_loses_nothing() {
    fill_under_a_store(&["mkfs.xfs", "-q"], |root| {
        let log = root.join("commitlog").join(format!("{:020}", 0));
        let copy = root.parent().unwrap().join("copy");
        let copied = Command::new("cp").arg("--reflink=always").args([&log, &copy]).status().unwrap();
        assert!(copied.success());
    });
}

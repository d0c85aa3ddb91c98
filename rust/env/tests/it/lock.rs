//! The lock excludes other processes, and a second lock of this one.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rocketpy_env::{Disk, EnvError, LockHolder, RealDisk};

#[test]
fn a_second_lock_of_this_process_is_refused_until_the_first_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let lock = RealDisk.lock(&path).unwrap();
    for _ in 0..2 {
        assert!(matches!(
            RealDisk.lock(&path),
            Err(EnvError::Locked { holder: LockHolder::ThisProcess, .. })
        ));
    }
    let content = format!("lock {}\n", std::process::id());
    assert_eq!(RealDisk.read(&path, 64).unwrap(), content.as_bytes());
    drop(lock);
    RealDisk.lock(&path).unwrap();
}

/// A process that asks for the same lock as Apache does (fcntl, not flock) and says whether it got it.
const ASK: &str = "
import fcntl, sys
file = open(sys.argv[1], 'r+b')
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
except OSError:
    sys.exit(3)
";

#[test]
fn another_process_sees_the_posix_lock() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let ask = || Command::new("python3").args(["-c", ASK]).arg(&path).status().unwrap().code();
    let lock = RealDisk.lock(&path).unwrap();
    assert_eq!(ask(), Some(3), "the lock is held");
    drop(lock);
    assert_eq!(ask(), Some(0), "the lock was given back");
}

#[test]
fn the_lock_stays_when_something_else_of_the_process_closes_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let ask = || Command::new("python3").args(["-c", ASK]).arg(&path).status().unwrap().code();
    let _lock = RealDisk.lock(&path).unwrap();
    drop(std::fs::File::open(&path).unwrap());
    assert_eq!(ask(), Some(3), "the lock is held");
}

/// A process that holds a POSIX lock, as Apache's broker does, until it is told to end.
const HOLD: &str = "
import fcntl, sys
file = open(sys.argv[1], 'w+b')
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print(flush=True)
sys.stdin.read()
";

#[test]
fn the_holder_is_named_whichever_kind_of_lock_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let mut holder = Command::new("python3")
        .args(["-c", HOLD])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let pid = holder.id();
    let refused = RealDisk.lock(&path);
    assert_eq!(RealDisk.lock_holder(&path).unwrap(), Some(LockHolder::Process(pid)));
    assert!(matches!(refused, Err(EnvError::Locked { holder: LockHolder::Process(of), .. }) if of == pid));
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert_eq!(RealDisk.lock_holder(&path).unwrap(), None);
    let _lock = RealDisk.lock(&path).unwrap();
    assert_eq!(RealDisk.lock_holder(&path).unwrap(), Some(LockHolder::ThisProcess));
}

#[test]
fn a_folder_is_locked_once_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let lock = RealDisk.lock_folder(dir.path()).unwrap();
    let error = RealDisk.lock_folder(dir.path()).unwrap_err();
    assert!(matches!(error, EnvError::Locked { holder: LockHolder::ThisProcess, .. }), "{error}");
    assert!(RealDisk.list(dir.path()).unwrap().is_empty());
    drop(lock);
    RealDisk.lock_folder(dir.path()).unwrap();
}

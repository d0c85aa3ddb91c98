//! The lock excludes other processes, and a second lock of this one.

use std::process::Command;

use rocketpy_env::{Disk, EnvError, RealDisk};

#[test]
fn a_second_lock_of_this_process_is_refused_until_the_first_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let lock = RealDisk.lock(&path).unwrap();
    for _ in 0..2 {
        assert!(matches!(RealDisk.lock(&path), Err(EnvError::Locked { pid: None, .. })));
    }
    assert_eq!(RealDisk.read(&path, 10).unwrap(), b"lock");
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

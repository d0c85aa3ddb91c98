//! Lines of the audit log, their limit and rotation.

use std::path::Path;

use rocketpy_env::{Disk, RealDisk};

use super::*;

fn lines(path: &Path) -> Vec<serde_json::Value> {
    let text = String::from_utf8(RealDisk.read(path, 1 << 20).unwrap()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn times_are_utc() {
    for (at_ms, text) in [
        (0, "1970-01-01T00:00:00.000Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
        (1_709_164_799_999, "2024-02-28T23:59:59.999Z"),
        (4_102_444_800_001, "2100-01-01T00:00:00.001Z"),
    ] {
        assert_eq!(utc(at_ms), text);
    }
}

#[test]
fn flood_of_denials_leaves_room_for_changes_and_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let audit = Audit::open(AuditConfig { path: path.clone(), max_bytes: 1 << 20, kept_files: 2 }).unwrap();
    let from: SocketAddr = "10.0.0.1:4711".parse().unwrap();
    let hostile = Audited {
        user: Some("a\nb\u{1b}".to_owned()),
        code: 215,
        result: "no policy".to_owned(),
        ..Audited::default()
    };
    for _ in 0..1_000 {
        audit.denied(from, hostile.clone());
    }
    let change = Audited {
        user: Some("admin".to_owned()),
        code: 17,
        resource: "Topic:orders".to_owned(),
        action: "Create".to_owned(),
        result: "admitted".to_owned(),
    };
    audit.admitted(from, change);
    drop(audit);
    let lines = lines(&path);
    assert_eq!(lines.len(), 22, "20 denials, the change, the count");
    assert_eq!((&lines[0]["user"], &lines[0]["result"]), (&"a\nb\u{1b}".into(), &"denied: no policy".into()));
    let change = &lines[20];
    assert_eq!(change["request"], "UPDATE_AND_CREATE_TOPIC");
    assert_eq!((&change["from"], &change["resource"]), (&"10.0.0.1:4711".into(), &"Topic:orders".into()));
    assert_eq!(lines[21]["result"], "980 denied requests of this address left out");
    assert!(RealDisk.is_private(&path).unwrap());
}

#[test]
fn full_file_is_rotated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let audit = Audit::open(AuditConfig { path: path.clone(), max_bytes: 1_000, kept_files: 2 }).unwrap();
    for _ in 0..100 {
        audit.admitted("10.0.0.1:1".parse().unwrap(), Audited::default());
    }
    drop(audit);
    let mut files = RealDisk.list(folder.path()).unwrap();
    assert!(files.iter().all(|file| file.size_bytes <= 1_000));
    let names: Vec<_> = files.drain(..).map(|file| file.name.into_string().unwrap()).collect();
    assert_eq!(names, ["audit.log", "audit.log.1", "audit.log.2"]);
}

#[test]
fn flood_of_changes_of_a_user_is_counted_and_leaves_room_for_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let audit = Audit::open(AuditConfig { path: path.clone(), max_bytes: 1 << 20, kept_files: 2 }).unwrap();
    let of = |user: &str| Audited { user: Some(user.to_owned()), ..Audited::default() };
    for port in 0..200 {
        audit.admitted_normal(SocketAddr::new([10, 0, 0, 1].into(), port), of("mallory"));
    }
    audit.admitted_normal("10.0.0.1:1".parse().unwrap(), of("alice"));
    audit.local(Audited::local_user("admin", "created at the start by initAuthenticationUser".to_owned()));
    assert_eq!(audit.not_written(), 100);
    drop(audit);
    let lines = lines(&path);
    assert_eq!(lines.len(), 103, "100 changes, those of others, the count");
    assert_eq!(lines[100]["user"], "alice");
    let local = &lines[101];
    assert_eq!((&local["from"], &local["resource"]), (&"local".into(), &"User:admin".into()));
    assert_eq!(local["request"], "AUTH_CREATE_USER");
    let count = &lines[102];
    assert_eq!(count["user"], "mallory");
    assert_eq!(count["result"], "100 admitted changes of this user left out");
}

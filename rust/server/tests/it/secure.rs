//! A server that makes its certificates and users itself, and one that refuses to be open.
#![expect(clippy::disallowed_methods, reason = "a test reads its own files")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rocketpy_auth::{Accounts, Caller};
use rocketpy_server::config::NamedSecret;
use rocketpy_server::{Process, Role, SecureError, ServerConfig, ServerError};

use crate::support::{TIMEOUT, config};

fn secure(store: &Path) -> ServerConfig {
    ServerConfig { is_secure: true, ..config(store) }
}

fn texts(folder: &Path) -> Vec<String> {
    ["ca.pem", "ca.key", "server.pem", "server.key", "admin.json", "client.json", "peer.json"]
        .map(|name| fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}")))
        .into()
}

#[test]
fn a_secure_server_makes_its_files_once_and_only_its_owner_reads_secrets() {
    let store = tempfile::tempdir().unwrap();
    let folder = store.path().join("secure");
    let server = Process::start(Role::Standalone, secure(store.path())).unwrap();
    assert_eq!(server.warning(), None);
    server.stop(TIMEOUT).unwrap();
    let made = texts(&folder);
    let mode = || fs::metadata(&folder).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o700);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    Process::start(Role::Standalone, secure(store.path())).unwrap().stop(TIMEOUT).unwrap();
    assert_eq!(mode(), 0o700, "an earlier version made it with another mode");
    for name in ["ca.key", "server.key", "admin.json", "client.json", "peer.json"] {
        let mode = fs::metadata(folder.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let named = || {
        let mut config = secure(store.path());
        config.broker.advertised_host = Some("127.0.0.2".to_owned());
        config
    };
    // The key of the authority may be elsewhere while the certificate is valid, whatever the names.
    let elsewhere = tempfile::tempdir().unwrap();
    fs::rename(folder.join("ca.key"), elsewhere.path().join("ca.key")).unwrap();
    for config in [secure(store.path()), named()] {
        Process::start(Role::Standalone, config).unwrap().stop(TIMEOUT).unwrap();
    }
    fs::rename(elsewhere.path().join("ca.key"), folder.join("ca.key")).unwrap();
    assert_eq!(texts(&folder), made);
    Process::start(Role::Standalone, named()).unwrap().stop(TIMEOUT).unwrap();
    let again = texts(&folder);
    assert_ne!(again[2], made[2], "the certificate has the new name");
    assert_eq!((&again[..2], &again[3..]), (&made[..2], &made[3..]));
}

#[test]
fn a_missing_key_of_the_authority_is_named_and_damage_is_not_replaced() {
    let store = tempfile::tempdir().unwrap();
    let folder = store.path().join("secure");
    Process::start(Role::Standalone, secure(store.path())).unwrap().stop(TIMEOUT).unwrap();
    let mode = |name, mode| fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
    for (name, text) in [("admin.json", "{"), ("server.key", "no key"), ("server.json", "[]")] {
        let kept = fs::read(folder.join(name)).unwrap();
        fs::write(folder.join(name), text).unwrap();
        let error = Process::start(Role::Standalone, secure(store.path())).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
        fs::write(folder.join(name), kept).unwrap();
        mode(name, 0o644);
        let error = Process::start(Role::Standalone, secure(store.path())).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("other users"), "{error}");
        mode(name, 0o600);
    }
    fs::remove_file(folder.join("server.pem")).unwrap();
    fs::remove_file(folder.join("ca.key")).unwrap();
    let error = Process::start(Role::Standalone, secure(store.path())).unwrap_err();
    assert!(error.to_string().contains("ca.key") && error.hint().is_some(), "{error}");
}

#[test]
fn a_deleted_user_of_a_secure_server_stays_deleted() {
    let store = tempfile::tempdir().unwrap();
    let start = || Process::start(Role::Standalone, secure(store.path())).unwrap().stop(TIMEOUT).unwrap();
    let file = store.path().join("config/users.json");
    start();
    let names = || {
        let users = Accounts::open(file.clone()).unwrap().users("");
        users.into_iter().map(|user| user.name).collect::<Vec<_>>()
    };
    assert_eq!(names(), ["admin", "client", "peer"]);
    Accounts::open(file.clone()).unwrap().delete_user("client", Caller::Super).unwrap();
    start();
    assert_eq!(names(), ["admin", "peer"]);
    for name in ["peer", "admin"] {
        Accounts::open(file.clone()).unwrap().delete_user(name, Caller::Super).unwrap();
    }
    start();
    assert_eq!(names(), ["peer"], "the user of the server alone comes back");
    let mut renamed = secure(store.path());
    renamed.auth.peer = Some(NamedSecret { name: "peer2".to_owned(), secret: "another secret".to_owned() });
    Process::start(Role::Standalone, renamed).unwrap().stop(TIMEOUT).unwrap();
    assert_eq!(names(), ["peer", "peer2"]);
}

#[test]
fn a_server_that_requires_it_is_not_open_to_other_machines() {
    let store = tempfile::tempdir().unwrap();
    let open = |requires_secure| ServerConfig {
        host: "0.0.0.0".to_owned(),
        requires_secure,
        ..config(store.path())
    };
    for role in [Role::Standalone, Role::NameServer] {
        let error = Process::start(role, open(true)).unwrap_err();
        assert!(matches!(error, ServerError::Secure(SecureError::Open { .. })), "{error}");
    }
    let error = Process::start(Role::NameServer, secure(store.path())).unwrap_err();
    assert!(matches!(error, ServerError::Secure(SecureError::NotAlone)), "{error}");
    let mut listed = ServerConfig { is_secure: true, host: "0.0.0.0".to_owned(), ..config(store.path()) };
    listed.auth.unauthorized = vec![105];
    let error = Process::start(Role::Standalone, listed).unwrap_err().to_string();
    assert!(error.contains("authorizationWhitelist"), "{error}");
    let on_loopback = ServerConfig { host: "127.0.0.1".to_owned(), ..open(true) };
    Process::start(Role::Standalone, on_loopback).unwrap();
}

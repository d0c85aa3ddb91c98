//! Starts that must fail, each with an error that names what is wrong.

use std::net::TcpListener;
use std::path::Path;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_server::{Process, Role, ServerConfig, ServerError};

use crate::support::config;

/// A start that must fail, with a message that names `named` and a way out somewhere.
fn fails(config: ServerConfig, named: &str) -> ServerError {
    let error = Process::start(Role::Standalone, config).unwrap_err();
    let text = format!("{error}; {}", error.hint().unwrap_or_default());
    assert!(text.contains(named), "{named:?} in {text:?}");
    error
}

#[test]
fn a_port_in_use_is_named_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    // No other test uses this host: the port stays free once it is given back.
    let config = || ServerConfig { host: "127.0.7.1".to_owned(), ..config(&store) };
    let taken = TcpListener::bind((config().host, 0)).unwrap();
    let address = taken.local_addr().unwrap();
    let port = address.port();
    fails(ServerConfig { port: Some(port), ..config() }, &address.to_string());
    fails(ServerConfig { name_server_port: Some(port), ..config() }, &address.to_string());
    assert!(RealDisk.list(&store).is_err(), "no folder of a store");
    drop(taken);
    // Store lock and ports are free again.
    let server = Process::start(Role::Standalone, ServerConfig { port: Some(port), ..config() }).unwrap();
    assert!(server.addresses().broker.as_ref().unwrap().ends_with(&port.to_string()));
}

#[test]
fn a_bad_host_or_advertised_host_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fails(
        ServerConfig { host: "no.such.host.invalid".to_owned(), ..config(folder.path()) },
        "no.such.host.invalid",
    );
    // An address of the range for documents is of no interface here.
    fails(ServerConfig { host: "192.0.2.1".to_owned(), ..config(folder.path()) }, "192.0.2.1");
    let mut advertised = config(folder.path());
    advertised.broker.advertised_host = Some("no.such.host.invalid".to_owned());
    fails(advertised, "brokerIP1");
}

#[test]
fn a_bad_store_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a-file");
    RealDisk.replace(&file, b"text").unwrap();
    fails(config(&file), "a-file");

    let foreign = folder.path().join("foreign");
    RealDisk.create_dir_all(&foreign).unwrap();
    RealDisk.replace(&foreign.join("thesis.docx"), b"text").unwrap();
    fails(config(&foreign), "foreign");
    assert!(RealDisk.read(&foreign.join("thesis.docx"), 10).is_ok(), "left alone");

    // Nobody, not even root, makes folders there.
    fails(config("/proc/no-store-here".as_ref()), "/proc/no-store-here");
}

#[test]
fn a_store_in_use_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(Role::Standalone, config(folder.path())).unwrap();
    let error = fails(config(folder.path()), "in use");
    assert!(error.retryable());
    drop(server);
    assert!(Process::start(Role::Standalone, config(folder.path())).is_ok());
}

#[test]
fn a_ready_file_that_cannot_be_written_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let ready_file = Some(folder.path().join("no/such/folder/ready.json"));
    fails(ServerConfig { ready_file, ..config(&folder.path().join("store")) }, "ready.json");
    assert!(
        Process::start(Role::Standalone, config(&folder.path().join("store"))).is_ok(),
        "nothing is left running"
    );
}

#[test]
fn ready_file_replaces_no_file_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let with = |ready: &Path| ServerConfig {
        ready_file: Some(ready.to_owned()),
        ..config(&folder.path().join("store"))
    };
    let orders = folder.path().join("orders.json");
    RealDisk.replace(&orders, b"[1, 2]").unwrap();
    let error = fails(with(&orders), "orders.json");
    assert!(error.hint().unwrap().contains("--ready-file"));
    assert_eq!(RealDisk.read(&orders, 10).unwrap(), b"[1, 2]");
    fails(with("/dev/null".as_ref()), "/dev/null");
    let empty = folder.path().join("empty");
    RealDisk.replace(&empty, b"").unwrap();
    drop(Process::start(Role::Standalone, with(&empty)).unwrap());
    assert!(RealDisk.read(&empty, 10).is_err(), "gone with its server");
}

#[test]
fn a_broker_needs_a_name_server() {
    let folder = tempfile::tempdir().unwrap();
    let error = Process::start(Role::Broker, config(folder.path())).unwrap_err();
    assert!(matches!(error, ServerError::NoNameServer));
    assert!(error.hint().unwrap().contains("--name-server"));
}

#[test]
fn a_failed_start_leaves_the_ready_file_of_the_running_server() {
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready.json");
    // Of a process that is no more.
    RealDisk.replace(&ready, br#"{"pid":2147483647}"#).unwrap();
    let with_ready_file =
        || ServerConfig { ready_file: Some(ready.clone()), ..config(&folder.path().join("store")) };
    let server = Process::start(Role::Standalone, with_ready_file()).unwrap();
    let written = RealDisk.read(&ready, 1000).unwrap();
    assert!(!String::from_utf8_lossy(&written).contains("2147483647"));
    fails(with_ready_file(), "in use");
    assert_eq!(RealDisk.read(&ready, 1000).unwrap(), written);
    drop(server);
    assert!(RealDisk.read(&ready, 1000).is_err(), "gone with its server");
}

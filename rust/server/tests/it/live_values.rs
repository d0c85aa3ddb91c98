//! Live values: their layer, their file, and what a start does with them.

use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, RealDisk};
use rocketpy_protocol::body::TopicRouteData;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::GetConfigHeader;
use rocketpy_protocol::settings::{ConfigChange, ConfigData, ConfigEntries, ConfigEntry, TakesEffect};
use rocketpy_protocol::{Command, json};
use rocketpy_server::config::live::unset_offline;
use rocketpy_server::{Process, Role, ServerConfig, ServerError, Sources};

use crate::support::{Caller, TIMEOUT, config};

const BROKER: [i32; 2] = [request::GET_BROKER_CONFIG, request::UPDATE_BROKER_CONFIG];
const NAME_SERVER: [i32; 2] = [request::GET_NAMESRV_CONFIG, request::UPDATE_NAMESRV_CONFIG];

/// A server in this process, and the codes of one of its parts.
struct Server {
    process: Process,
    caller: Caller,
    address: String,
    codes: [i32; 2],
}

impl Server {
    fn start(role: Role, config: ServerConfig, codes: [i32; 2]) -> Self {
        let process = Process::start(role, config).unwrap();
        let addresses = process.addresses().clone();
        let address = if codes == BROKER { addresses.broker } else { addresses.name_server };
        Self { process, caller: Caller::new(), address: address.unwrap(), codes }
    }

    fn broker(config: ServerConfig) -> Self {
        Self::start(Role::Standalone, config, BROKER)
    }

    fn entry(&self, key: &str) -> ConfigEntry {
        let asked = Command::request(self.codes[0], &GetConfigHeader { layers: Some("true") });
        let body = self.caller.call(&self.address, asked).body;
        let entries: ConfigEntries = json::from_slice(&body).unwrap();
        entries.keys.into_iter().find(|entry| entry.key == key).unwrap_or_else(|| panic!("{key}"))
    }

    /// Value and layer of a key.
    fn value(&self, key: &str) -> (Option<ConfigData>, String) {
        let entry = self.entry(key);
        (entry.value, entry.origin)
    }

    fn change(&self, change: &ConfigChange) -> Command {
        self.caller.call(&self.address, change.request(self.codes[1]))
    }

    fn set(&self, text: &str) -> i32 {
        self.change(&ConfigChange { text: text.to_owned(), ..ConfigChange::default() }).code
    }

    fn unset(&self, key: &str) -> i32 {
        self.change(&ConfigChange { unset: vec![key.to_owned()], ..ConfigChange::default() }).code
    }

    fn stop(self) {
        self.process.stop(TIMEOUT).unwrap();
    }
}

fn number(value: i64, origin: &str) -> (Option<ConfigData>, String) {
    (Some(ConfigData::Number(value)), origin.to_owned())
}

/// A configuration with layers, on the folder `store`.
fn layered(store: &Path, file: Option<&str>, environment: &[&str], settings: &[&str]) -> ServerConfig {
    let path = store.with_extension("conf");
    let lines =
        ["listenPort=0\nnameServerPort=0\nmappedFileSizeCommitLog=1048576\n", file.unwrap_or_default()];
    RealDisk.replace(&path, lines.concat().as_bytes()).unwrap();
    let pair =
        |text: &&str| text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())).unwrap();
    let mut settings: Vec<_> = settings.iter().map(pair).collect();
    settings.push(("storePathRootDir".to_owned(), store.display().to_string()));
    let environment = environment.iter().map(pair).collect();
    ServerConfig::load(&Sources { file: Some(path), environment, settings }).unwrap()
}

fn live_file(store: &Path) -> PathBuf {
    store.join("config/live.properties")
}

fn write_live(store: &Path, text: &str) {
    RealDisk.create_dir_all(&store.join("config")).unwrap();
    RealDisk.replace(&live_file(store), text.as_bytes()).unwrap();
}

#[test]
fn live_values_override_file_and_environment_and_are_overridden_by_settings() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    const KEY: &str = "fileReservedTime";
    write_live(&store, "fileReservedTime=30\n");
    for (file, environment, settings, expected) in [
        (None, &[][..], &[][..], number(30, "live")),
        (Some("fileReservedTime=10\n"), &[], &[], number(30, "live")),
        (Some("fileReservedTime=10\n"), &["ROCKETPY_FILE_RESERVED_TIME=20"], &[], number(30, "live")),
        (Some("fileReservedTime=10\n"), &[], &["fileReservedTime=40"], number(40, "command line")),
    ] {
        let server = Server::broker(layered(&store, file, environment, settings));
        assert_eq!(server.value(KEY), expected, "{file:?} {environment:?} {settings:?}");
        if !settings.is_empty() {
            let refused = server.set_refused("fileReservedTime=50");
            assert!(refused.contains(KEY) && refused.contains("flags or settings"), "{refused}");
        }
        assert_eq!(server.unset(KEY), 0);
        let lower = match (environment, settings, file) {
            (_, [_], _) => number(40, "command line"),
            ([_], ..) => number(20, "environment"),
            (_, _, Some(_)) => number(10, "file"),
            _ => number(72, "default"),
        };
        assert_eq!(server.value(KEY), lower, "unset gives back the lower layer");
        server.stop();
        write_live(&store, "fileReservedTime=30\n");
    }
    let server =
        Server::broker(layered(&store, None, &["ROCKETPY_FILE_RESERVED_TIME=20"], &["fileReservedTime=40"]));
    assert_eq!(server.value(KEY), number(40, "command line"));
    assert_eq!(server.entry(KEY).live.as_deref(), Some("30"), "kept, without effect");
}

impl Server {
    fn set_refused(&self, text: &str) -> String {
        let answer = self.change(&ConfigChange { text: text.to_owned(), ..ConfigChange::default() });
        assert_eq!(answer.code, response::NO_PERMISSION, "{text}");
        answer.remark.unwrap()
    }
}

#[test]
fn live_values_survive_a_restart_and_those_of_the_next_start_wait_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::broker(config(folder.path()));
    assert_eq!(server.set("# by mqadmin\nautoCreateTopicEnable=false\ndeleteWhen=05;17\n"), 0);
    let refused = server.set_refused("fileReservedTime=1\nmaxTopics=40\n");
    assert!(refused.contains("maxTopics") && refused.contains("--at-restart"), "{refused}");
    let waits = ConfigChange { text: "maxTopics=40".to_owned(), at_restart: true, ..ConfigChange::default() };
    let checked = ConfigChange { is_dry_run: true, ..waits.clone() };
    assert_eq!(server.change(&checked).code, 0);
    assert_eq!(server.entry("maxTopics").live, None, "a dry run changes nothing");
    let answer = server.change(&waits);
    assert_eq!(answer.code, 0);
    assert!(answer.remark.unwrap().contains("next start: maxTopics"));
    let entry = server.entry("maxTopics");
    assert_eq!((entry.value, entry.live), (Some(ConfigData::Number(100_000)), Some("40".to_owned())));
    assert_eq!((entry.origin.as_str(), entry.takes_effect), ("default", TakesEffect::AtRestart));
    assert_eq!(server.value("fileReservedTime"), number(72, "default"), "all or nothing");
    assert_eq!(server.caller.send(&server.address, "unknown", "x").code, response::TOPIC_NOT_EXIST);
    server.stop();

    let server = Server::broker(config(folder.path()));
    assert_eq!(server.value("maxTopics"), number(40, "live"));
    assert_eq!(server.caller.send(&server.address, "unknown", "x").code, response::TOPIC_NOT_EXIST);
    let entry = server.entry("autoCreateTopicEnable");
    assert_eq!((entry.value, entry.takes_effect), (Some(ConfigData::Switch(false)), TakesEffect::AtOnce));
    assert_eq!(entry.source.as_deref(), live_file(folder.path()).to_str());
    assert_eq!(server.unset("autoCreateTopicEnable"), 0);
    assert_eq!(server.caller.send(&server.address, "unknown", "x").code, 0, "at once");
    let text = RealDisk.read(&live_file(folder.path()), 1000).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.ends_with("deleteWhen=05;17\nmaxTopics=40\n"), "{text}");
    let backup = RealDisk.read(&folder.path().join("config/live.properties.bak"), 1000).unwrap();
    assert!(String::from_utf8(backup).unwrap().contains("autoCreateTopicEnable=false"));
}

#[test]
fn keys_of_identity_paths_secrets_and_other_servers_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::broker(config(folder.path()));
    for key in
        ["brokerName", "storePathRootDir", "haTokenFile", "metricsGrpcExporterHeader", "orderMessageEnable"]
    {
        let at_restart = true;
        let change = ConfigChange { text: format!("{key}=a:b\n"), at_restart, ..ConfigChange::default() };
        let answer = server.change(&change);
        assert_eq!(answer.code, response::NO_PERMISSION, "{key}");
        assert!(answer.remark.unwrap().contains(key), "{key}");
    }
    let control = ConfigChange { text: "file\\u0007Time=1\n".to_owned(), ..ConfigChange::default() };
    let answer = server.change(&control);
    assert_eq!(answer.code, response::NO_PERMISSION);
    assert!(!answer.remark.as_ref().unwrap().contains('\u{7}'), "{answer:?}");
    let value = ConfigChange { text: "deleteWhen=04\\u0007\n".to_owned(), ..ConfigChange::default() };
    assert_eq!(server.change(&value).code, response::INVALID_PARAMETER);
    let both = ConfigChange {
        text: "deleteWhen=05\n".to_owned(),
        unset: vec!["delete_when".to_owned()],
        ..ConfigChange::default()
    };
    assert_eq!(server.change(&both).code, response::INVALID_PARAMETER);
    assert!(RealDisk.read(&live_file(folder.path()), 1000).unwrap_err().is_not_found(), "nothing was kept");
}

#[test]
fn live_value_that_cannot_be_used_stops_the_start_until_it_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("a store");
    write_live(&store, "fileReservedTime=-1\nnoSuchKey=1\nhaTokenFile=/none\nmaxTopics=40\n");
    let error = Process::start(Role::Standalone, config(&store)).unwrap_err();
    let text = error.to_string();
    for key in ["fileReservedTime", "noSuchKey", "haTokenFile"] {
        let command = format!("rocketpy config unset --store '{}' {key}", store.display());
        assert!(text.contains(&command), "{text}");
    }
    assert!(text.contains("live.properties"), "{text}");
    let keys = ["file_reserved_time", "noSuchKey", "haTokenFile"].map(str::to_owned);
    assert_eq!(unset_offline(&store, &keys, true).unwrap().len(), 3);
    assert!(Process::start(Role::Standalone, config(&store)).is_err(), "a dry run changes nothing");
    unset_offline(&store, &keys, false).unwrap();
    let error = unset_offline(&store, &keys, false).unwrap_err();
    assert!(error.to_string().starts_with("file_reserved_time has no live value in"), "{error}");
    let server = Server::broker(config(&store));
    assert_eq!(server.value("maxTopics"), number(40, "live"), "the others stay");
    let error = unset_offline(&store, &["maxTopics".to_owned()], false).unwrap_err();
    assert!(error.to_string().contains("a server uses the store"), "{error}");
}

#[test]
fn start_that_fails_names_the_live_values_that_only_a_start_reads() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    write_live(folder.path(), &format!("haListenPort={port}\n"));
    let error = Process::start(Role::Standalone, config(folder.path())).unwrap_err();
    assert!(matches!(error, ServerError::WithLiveValues { .. }), "{error:?}");
    assert!(error.to_string().ends_with("(live values in force: haListenPort)"), "{error}");
    assert!(error.hint().unwrap().contains(" haListenPort`"), "{:?}", error.hint());
}

#[test]
fn change_that_cannot_be_saved_is_an_error_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::broker(config(folder.path()));
    // As a folder that is read-only, also for the superuser.
    RealDisk.create_dir_all(&live_file(folder.path()).join("x")).unwrap();
    let change = ConfigChange { text: "fileReservedTime=1\n".to_owned(), ..ConfigChange::default() };
    let answer = server.change(&change);
    assert_eq!(answer.code, response::SYSTEM_ERROR);
    assert!(answer.remark.unwrap().contains("live.properties"));
    assert_eq!(server.value("fileReservedTime"), number(72, "default"));
}

#[test]
fn name_server_keeps_live_values_beside_its_key_value_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let started = |kv: Option<&str>| {
        let mut config = ServerConfig { port: Some(0), ..ServerConfig::default() };
        config.name_server.kv_config_path = kv.map(|name| folder.path().join(name));
        Server::start(Role::NameServer, config, NAME_SERVER)
    };
    let server = started(None);
    let change = ConfigChange { text: "orderMessageEnable=true\n".to_owned(), ..ConfigChange::default() };
    let answer = server.change(&change);
    assert_eq!(answer.code, 0);
    assert!(answer.remark.unwrap().contains("kvConfigPath"), "it has no file");
    for (text, code, named) in [
        ("kvConfigPath=/x\n", response::NO_PERMISSION, "kvConfigPath"),
        ("orderMessageEnable=false\nlistenPort=1\n", response::NO_PERMISSION, "listenPort"),
        ("orderMessageEnable=maybe\n", response::INVALID_PARAMETER, "orderMessageEnable"),
        ("scanNotActiveBrokerInterval=1\n", response::INVALID_PARAMETER, "86400000"),
        ("a=\\u12", response::INVALID_PARAMETER, "key=value"),
        ("deleteWhen=04\n", response::NO_PERMISSION, "broker"),
    ] {
        let answer = server.change(&ConfigChange { text: text.to_owned(), ..ConfigChange::default() });
        assert_eq!(answer.code, code, "{text}");
        assert!(answer.remark.unwrap().contains(named), "{text}");
    }
    assert_eq!(server.value("orderMessageEnable").1, "live");
    server.stop();

    let server = started(Some("kvConfig.json"));
    assert_eq!(server.value("orderMessageEnable").1, "default");
    assert_eq!(server.set("orderMessageEnable=true\nscanNotActiveBrokerInterval = 10\n"), 0);
    server.stop();
    let server = started(Some("kvConfig.json"));
    assert_eq!(server.value("orderMessageEnable"), (Some(ConfigData::Switch(true)), "live".to_owned()));
    assert_eq!(server.value("scanNotActiveBrokerInterval"), number(10, "live"));
    assert_eq!(server.unset("orderMessageEnable"), 0);
    assert_eq!(server.value("orderMessageEnable").1, "default");
    server.stop();
    let file = folder.path().join("kvConfig.live.properties");
    let removed = unset_offline(&file, &["scanNotActiveBrokerInterval".to_owned()], false).unwrap();
    assert_eq!(removed[0].value, "10");
}

#[test]
fn every_key_of_apache_is_listed_and_no_secret_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut given = config(folder.path());
    given.set("metricsGrpcExporterHeader", "api-key:hush").unwrap();
    let server = Server::broker(given);
    let lines = |address: &str, code: i32| {
        let body = server.caller.call(address, Command::bare_request(code)).body;
        String::from_utf8(body.to_vec()).unwrap()
    };
    let of_broker = lines(&server.address, request::GET_BROKER_CONFIG);
    let name_server = server.process.addresses().name_server.clone().unwrap();
    let of_name_server = lines(&name_server, request::GET_NAMESRV_CONFIG);
    let names = |text: &str| {
        text.lines()
            .map(|line| line.split_once('=').unwrap().0.to_owned())
            .collect::<std::collections::HashSet<_>>()
    };
    let table = include_str!("../../src/config/apache-keys.tsv").lines().skip(1);
    let of_550 = table.filter(|line| line.ends_with("5.5.0"));
    let apache: Vec<&str> = of_550.map(|line| line.split('\t').next().unwrap()).collect();
    let (ours, its) = (names(&of_broker), names(&of_name_server));
    // Keys that have no value are left out, as Apache leaves them out.
    let empty = [
        "authConfigPath",
        "haListenPort",
        "haMasterAddress",
        "initAuthenticationUser",
        "innerClientAuthenticationCredentials",
        "metricsGrpcExporterTarget",
    ];
    let missing: Vec<&&str> = apache
        .iter()
        .filter(|key| !ours.contains(**key) && !its.contains(**key) && !empty.contains(key))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    for line in ["sendMessageThreadPoolNums=4", "brokerIP2=127.0.0.1", "fileReservedTime=72"] {
        assert!(of_broker.lines().any(|found| found == line), "{line}");
    }
    for line in ["productEnvName=center", "serverWorkerThreads=8", "orderMessageEnable=false"] {
        assert!(of_name_server.lines().any(|found| found == line), "{line}");
    }
    assert!(of_broker.contains("metricsGrpcExporterHeader=api-key:***"), "{of_broker}");
    assert!(!of_broker.contains("hush") && !of_name_server.contains("hush"));
    let port = name_server.rsplit_once(':').unwrap().1;
    assert!(of_name_server.contains(&format!("listenPort={port}\n")));
    assert!(!server.entry("sendMessageThreadPoolNums").is_used);
}

#[test]
fn permission_that_is_set_live_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::broker(config(folder.path()));
    assert_eq!(server.caller.send(&server.address, "orders", "x").code, 0);
    assert_eq!(server.set("brokerPermission=4\n"), 0);
    server.stop();
    let server = Server::broker(config(folder.path()));
    assert_eq!(server.caller.send(&server.address, "orders", "x").code, response::NO_PERMISSION);
    let name_server = server.process.addresses().name_server.clone().unwrap();
    let route: TopicRouteData = server.caller.route(&name_server, "orders").unwrap();
    assert_eq!(route.queue_datas[0].perm, 4);
    assert_eq!(server.unset("brokerPermission"), 0);
    assert_eq!(server.caller.send(&server.address, "orders", "x").code, 0);
}

//! Layers, spellings, units and refusals.

use std::collections::HashSet;
use std::time::Duration;

use rocketpy_env::{Disk, RealDisk};

use super::*;

#[test]
fn no_two_keys_fold_to_the_same_spelling() {
    let mut seen = HashSet::new();
    for name in known_names() {
        assert!(seen.insert(folded(name)), "{name}");
    }
    assert!(seen.len() > 490, "the list of Apache's keys is there");
}

#[test]
fn layers_win_in_order_and_spellings_are_one_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.conf");
    RealDisk.replace(&file, b"brokerName=from-file\nlistenPort=1\nregionId=r1\n").unwrap();
    let config = ServerConfig::load(&Sources {
        file: Some(file),
        environment: vec![
            ("ROCKETPY_LISTEN_PORT".to_owned(), "2".to_owned()),
            ("ROCKETPY_BROKER_NAME".to_owned(), "from-environment".to_owned()),
        ],
        settings: vec![("brokerName".to_owned(), "from-command-line".to_owned())],
    })
    .unwrap();
    assert_eq!(config.broker.region_id, "r1");
    assert_eq!(config.port, Some(2));
    assert_eq!(config.broker.broker_name, "from-command-line");
}

#[test]
fn one_key_bounds_the_connections_of_every_port() {
    let mut config = ServerConfig::default();
    let of = |config: &ServerConfig| (config.broker.max_connections, config.name_server.max_connections);
    assert_eq!(of(&config), (65_536, 10_000), "as docs/configuration.md says");
    config.set("maxConnections", "77").unwrap();
    assert_eq!(of(&config), (77, 77));
}

#[test]
fn all_settings_that_cannot_be_used_are_named_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.conf");
    RealDisk
        .replace(
            &file,
            b"aclEnable=true\nenableControllerMode=true\nlistenPrt=1\nenablePropertyFilter=true\n",
        )
        .unwrap();
    let settings = vec![("listenPort".to_owned(), "many".to_owned())];
    let error =
        ServerConfig::load(&Sources { file: Some(file), settings, ..Sources::default() }).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("4 settings are invalid:\n"), "{text}");
    for named in ["aclEnable=true", "enableControllerMode=true", "listenPrt", "listenPort"] {
        assert!(text.lines().any(|line| line.starts_with("  ") && line.contains(named)), "{named} in {text}");
    }
    assert!(!text.contains("enablePropertyFilter"), "it has no meaning here: {text}");
    assert!(error.hint().unwrap().contains("listenPort"), "the way out of the misspelt one");
}

#[test]
fn folders_of_a_toml_list_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.toml");
    RealDisk.replace(&path, b"readOnlyCommitLogStorePaths = ['/a/log', '/b/log']").unwrap();
    let sources = Sources { file: Some(path), environment: Vec::new(), settings: Vec::new() };
    let config = ServerConfig::load(&sources).unwrap();
    assert_eq!(config.broker.store.read_only_commit_log_dirs, ["/a/log", "/b/log"].map(PathBuf::from));
}

#[test]
fn an_unknown_key_names_the_nearest() {
    let error = ServerConfig::default().set("flushDiskTyp", "SYNC_FLUSH").unwrap_err();
    assert_eq!(
        error.hint().unwrap(),
        "write flushDiskType, or remove the key; `rocketpy config explain flushDiskType` describes it"
    );
    let error = ServerConfig::default().set("foo", "1").unwrap_err();
    assert!(error.to_string().ends_with("the flags or settings: foo"), "{error}");
    assert!(error.hint().unwrap().contains("rocketpy config show"), "nothing looks like it");
}

#[test]
fn what_is_not_there_yet_is_refused_and_what_means_nothing_is_listed() {
    let mut config = ServerConfig::default();
    let error = config.set("aclEnable", "true").unwrap_err();
    assert!(error.to_string().contains("access control"), "{error}");
    config.set("aclEnable", "false").unwrap();
    config.set("enableControllerMode", "false").unwrap();
    assert!(config.set("enableControllerMode", "true").is_err());
    config.set("redeleteHangedFileInterval", "04").unwrap();
    config.set("redeleteHangedFileInterval", "05").unwrap();
    assert_eq!(config.ignored, ["redeleteHangedFileInterval"]);
}

#[test]
fn keys_of_retention_have_the_units_of_apache() {
    let mut config = ServerConfig::default();
    for (key, value) in [
        ("storePathCommitLog", "/a/log, /b/log"),
        ("readOnlyCommitLogStorePaths", "/c/log"),
        ("fileReservedTime", "48"),
        ("deleteWhen", "03;15"),
        ("diskMaxUsedSpaceRatio", "70"),
        ("diskSpaceCleanForciblyRatio", "80"),
        ("diskSpaceWarningLevelRatio", "88"),
        ("cleanFileForciblyEnable", "false"),
        ("cleanResourceInterval", "5000"),
        ("deleteFileBatchMax", "3"),
        ("deleteCommitLogFilesInterval", "50"),
        ("deleteConsumeQueueFilesInterval", "0"),
        ("retentionMaxBytes", "1000000000000"),
    ] {
        config.set(key, value).unwrap();
    }
    let store = &config.broker.store;
    let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
    assert_eq!(store.commit_log_dirs(), paths(&["/a/log", "/b/log", "/c/log"]));
    assert_eq!(store.writable_commit_log_dirs(), paths(&["/a/log", "/b/log"]));
    let millis = Duration::from_millis;
    let expected = rocketpy_broker::RetentionConfig {
        reserved_time: Duration::from_secs(48 * 3600),
        delete_hours: rocketpy_broker::DeleteHours::of(&[3, 15]),
        max_used_percent: 70,
        force_used_percent: 80,
        refuse_used_percent: 88,
        clean_forcibly: false,
        max_bytes: Some(1_000_000_000_000),
        files_a_round: 3,
        log_file_pause: millis(50),
        queue_file_pause: millis(0),
        interval: millis(5000),
        first_after: Duration::from_secs(60),
    };
    assert_eq!(store.retention, expected);
    config.set("retentionMaxBytes", "0").unwrap();
    config.set("readOnlyCommitLogStorePaths", "").unwrap();
    assert_eq!(config.broker.store.retention.max_bytes, None);
    assert_eq!(config.broker.store.read_only_commit_log_dirs, paths(&[]));
}

#[test]
fn keys_of_flush_reach_the_store() {
    let mut config = ServerConfig::default();
    for (key, value) in [
        ("flushCommitLogLeastPages", "4"),
        ("flushCommitLogThoroughInterval", "20000"),
        ("flushIntervalCommitLog", "100"),
        ("flushIntervalConsumeQueue", "2000"),
        ("osPageCacheBusyTimeOutMills", "3000"),
    ] {
        config.set(key, value).unwrap();
    }
    let store = &config.broker.store;
    assert_eq!((store.flush_least_pages, store.flush_thorough_interval.as_secs()), (4, 20));
    assert_eq!((store.flush_interval.as_millis(), store.checkpoint_interval.as_secs()), (100, 2));
    assert_eq!(store.busy_timeout.as_secs(), 3);
    assert!(config.set("autoMessageVersionOnTopicLen", "false").is_err());
    assert!(config.ignored.is_empty());
}

#[test]
fn a_bad_value_says_what_is_wanted() {
    let mut config = ServerConfig::default();
    for (key, value, wanted) in [
        ("listenPort", "x", "port"),
        ("flushDiskType", "sometimes", "SYNC_FLUSH"),
        ("brokerName", "a/b", "name"),
        ("namesrvAddr", "localhost", "by a semicolon, not \"localhost\""),
        ("mappedFileSizeCommitLog", "4096", "16384"),
        ("mappedFileSizeCommitLog", "2147483648", "2147483647"),
        ("brokerPermission", "3", "read"),
        ("syncFlushTimeout", "-1", "milliseconds"),
        ("osPageCacheBusyTimeOutMills", "0", "milliseconds"),
        ("brokerIP1", "10.0.0.1:10911", "without a port"),
        ("deleteWhen", "24", "23"),
        ("fileReservedTime", "-1", "hours"),
        ("diskMaxUsedSpaceRatio", "101", "100"),
        ("storePathCommitLog", " , ", "commas"),
    ] {
        let error = config.set(key, value).unwrap_err().to_string();
        assert!(error.contains(wanted) && error.contains(key), "{error}");
    }
}

#[test]
fn a_value_remembers_its_layer_and_both_names_of_one_value_do() {
    let config = ServerConfig::load(&Sources {
        file: None,
        environment: vec![("ROCKETPY_RECORD_CHECK".to_owned(), "false".to_owned())],
        settings: vec![("brokerName".to_owned(), "b".to_owned())],
    })
    .unwrap();
    let origin = |key| config.origin(key).to_string();
    assert_eq!(origin("recordCheck"), "environment variable ROCKETPY_RECORD_CHECK");
    assert_eq!(origin("enabledAppendPropCRC"), origin("recordCheck"));
    assert_eq!(
        (config.origin("brokerName").layer(), config.origin("regionId").layer()),
        ("command line", "default")
    );
}

#[test]
fn every_value_of_the_defaults_is_one_that_the_table_takes() {
    let default = ServerConfig::default();
    for key in KEYS {
        let value = key.value(&default);
        if value == Value::Nothing {
            continue;
        }
        let mut config = ServerConfig::default();
        config.set(key.name, &value.to_string()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(key.value(&config), value, "{}", key.name);
        if let (Value::Number(number), Some((least, most))) = (value, key.shape().bounds) {
            assert!((least..=most).contains(&number), "{}", key.name);
            assert!(config.set(key.name, &(i128::from(most) + 1).to_string()).is_err(), "{}", key.name);
        }
    }
}

#[test]
fn every_key_is_described_in_sentences() {
    for key in KEYS {
        let text = key.description();
        let starts_well = text.starts_with(|c: char| c.is_uppercase());
        assert!(starts_well && text.ends_with('.') && !text.contains("  "), "{}: {text}", key.name);
        assert_eq!(
            key.section == Section::Ours,
            key.apache == Apache::Unknown && key.name != "nameServerPort"
        );
        if let Some(of) = key.alias_of {
            assert!(KEYS.iter().any(|other| other.name == of), "{of}");
        }
    }
}

#[test]
fn a_key_is_found_by_any_spelling() {
    assert_eq!(key_name("broker_ip1").unwrap(), "brokerIP1");
    assert_eq!(key_name("ACLENABLE").unwrap(), "aclEnable");
    assert_eq!(key_name("timer-warm-enable").unwrap(), "timerWarmEnable");
    assert_eq!(
        key_name("flushDiskTyp").unwrap_err().hint().unwrap(),
        "write flushDiskType, or remove the key; `rocketpy config explain flushDiskType` describes it"
    );
}

//! Layers, spellings, units and refusals.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use rocketpy_broker::{BrokerRole, FlushMode};
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
fn no_key_with_a_path_may_be_set_by_a_request() {
    for key in KEYS {
        let is_path = ["file", "folder"].iter().any(|kind| key.shape().kind.contains(kind));
        assert!(!is_path || !live::is_allowed(key), "{}", key.name);
        assert!(!key.is_changeable || live::is_allowed(key), "{}", key.name);
    }
    for name in live::NEVER_LIVE {
        assert!(KEYS.iter().any(|key| key.name == name), "{name}");
    }
}

#[test]
fn value_of_a_changeable_key_reads_back_as_it_is_written() {
    for key in KEYS.iter().filter(|key| key.is_changeable) {
        let mut config = ServerConfig::default();
        config.set(key.name, &key.default_value().to_string()).unwrap();
        assert_eq!(key.value(&config), key.default_value(), "{}", key.name);
    }
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
fn secret_that_cannot_be_used_is_not_in_the_error() {
    for key in ["initAuthenticationUser", "innerClientAuthenticationCredentials", "metricsGrpcExporterHeader"]
    {
        let error = ServerConfig::default().set(key, "hush\u{1}").unwrap_err();
        let text = format!("{error} {error:?} {:?}", error.hint());
        assert!(text.contains(key) && !text.contains("hush"), "{text}");
    }
    let refused = check_on_command_line("init_authentication_user").unwrap_err();
    assert!(refused.hint().unwrap().contains("ROCKETPY_INIT_AUTHENTICATION_USER"), "{refused}");
    check_on_command_line("brokerName").unwrap();
}

#[test]
fn file_with_a_secret_that_everybody_may_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let [tls, conf] = ["tls.properties", "broker.conf"].map(|name| folder.path().join(name));
    let text = format!(
        "initAuthenticationUser={{\"username\":\"admin\",\"password\":\"12345678\"}}\ntlsConfigFile={}\n",
        tls.display()
    );
    RealDisk.replace(&conf, text.as_bytes()).unwrap();
    RealDisk.replace(&tls, b"tls.server.keyPassword=secret\n").unwrap();
    let open = || {
        let config = ServerConfig::load(&Sources { file: Some(conf.clone()), ..Sources::default() }).unwrap();
        config.open_files_with_secrets().into_iter().map(Path::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(open(), [conf.clone(), tls.clone()]);
    RealDisk.replace_private(&conf, text.as_bytes()).unwrap();
    assert_eq!(open(), std::slice::from_ref(&tls));
    RealDisk.replace(&tls, b"tls.server.need.client.auth=none\n").unwrap();
    assert_eq!(open(), Vec::<PathBuf>::new(), "no secret");
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
    let lines: Vec<&str> = text.lines().collect();
    let below =
        |named: &str| lines[lines.iter().position(|line| line.contains(named)).unwrap() + 1].trim_start();
    assert!(below("listenPrt").starts_with("hint: write listenPort"), "{text}");
    assert_eq!(below("aclEnable=true"), "hint: write aclEnable=false, or remove the key");
    assert!(error.hint().unwrap().starts_with("correct each"), "each line has its own");
}

/// A value that somebody may have given a key of Apache's: its default, else one of its type.
fn plausible<'a>(key: &str, kind: &str, default: &'a str) -> &'a str {
    let shape = KEYS.iter().find(|known| known.name == key).map(|known| known.shape().kind);
    match (default, shape, kind) {
        ("", Some("host:port" | "host:port;..."), _) => "10.0.0.1:9876",
        ("", Some("name:value,..."), _) => "region:north",
        ("", Some("http://host:port"), _) => "http://otel:4317",
        ("", Some("code,..."), _) => "105",
        ("", Some("JSON"), _) => r#"{"username":"a","password":"b","accessKey":"a","secretKey":"b"}"#,
        ("", None, "boolean") => "false",
        ("", ..) => "x",
        (default, ..) => default,
    }
}

#[test]
fn every_key_of_apache_is_accepted_unless_it_requires_a_missing_feature() {
    let rows: Vec<Vec<&str>> = apache::TABLE.lines().map(|line| line.split('\t').collect()).collect();
    let (head, rows) = rows.split_first().unwrap();
    assert_eq!(head[..], ["key", "type", "default", "versions"]);
    assert!(rows.len() > 540, "{}", rows.len());
    for version in ["3.2.6", "3.5.8", "4.0.0", "4.9.7", "5.0.0", "5.5.0"] {
        let has = |row: &&Vec<&str>| row[3].split(' ').any(|other| other == version);
        assert!(rows.iter().filter(has).count() > 50, "{version}");
    }
    for row in rows {
        let (key, kind) = (row[0], row[1]);
        let mut values = vec![plausible(key, kind, row[2])];
        if kind == "boolean" {
            values.extend(["true", "FALSE"]);
        }
        let fixed = FIXED.iter().find(|fixed| fixed.name == key);
        for value in values {
            let set = ServerConfig::default().set(key, value);
            match fixed.filter(|fixed| !fixed.only.eq_ignore_ascii_case(value) && !fixed.only.is_empty()) {
                None if key == "messageStorePlugIn" => assert!(set.is_err()),
                None => set.unwrap_or_else(|error| panic!("{key}={value}: {error}")),
                Some(fixed) => {
                    let error = set.unwrap_err();
                    assert!(error.to_string().contains(fixed.feature), "{error}");
                    let hint = format!("write {key}={}, or remove the key", fixed.only);
                    assert_eq!(error.hint(), Some(hint));
                }
            }
        }
    }
}

#[test]
fn an_enum_may_be_written_as_the_number_that_apache_reads() {
    let mut config = ServerConfig::default();
    for (value, kind) in [
        ("0", ExporterType::Disabled),
        ("1", ExporterType::Otlp),
        ("2", ExporterType::Prometheus),
        ("3", ExporterType::Log),
    ] {
        config.set("metricsExporterType", value).expect(value);
        assert_eq!(config.exporter.kind, kind);
    }
    for (key, value) in
        [("metricsExporterType", "9"), ("defaultMessageRequestMode", "0"), ("brokerRole", "0")]
    {
        config.set(key, value).expect_err(key);
    }
}

#[test]
fn texts_that_others_read_have_no_control_characters() {
    for control in ['\u{1b}', '\u{7f}', '\u{9b}', '\u{2028}', '\u{202e}', '\u{2066}'] {
        for (key, value) in [
            ("regionId", format!("a{control}b")),
            ("brokerIP1", format!("a{control}b")),
            ("namesrvAddr", format!("a{control}b:9876")),
            ("haMasterAddress", format!("a{control}b:10912")),
        ] {
            let error = ServerConfig::default().set(key, &value).expect_err(key);
            assert!(matches!(error, ConfigError::Value { .. }), "{error}");
        }
    }
}

#[test]
fn each_of_several_errors_is_one_line_with_its_hint_below() {
    let forged = "a\nERROR forged\u{1b}[2J";
    let error = loaded(b"", &[(forged, "1"), ("aclEnable", forged)]).unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines[0], "2 settings are invalid:", "{error}");
    assert!(lines.iter().all(|line| !line.starts_with("ERROR") && !line.contains('\u{1b}')), "{error}");
    assert!(error.contains(r"a\nERROR forged\u{1b}[2J") && lines.len() == 5, "{error}");
}

#[test]
fn keys_that_require_a_missing_feature_name_it() {
    for (key, value, feature) in [
        ("aclEnable", "True", "authenticationEnabled"),
        ("metricsInDelta", "true", "delta temporality of metrics"),
        ("supportActingMaster", "true", "acting masters"),
        ("filterServerNums", "1", "filter servers"),
    ] {
        let mut config = ServerConfig::default();
        let error = config.set(key, value).unwrap_err();
        assert!(error.to_string().contains(feature) && error.hint().unwrap().contains(key), "{error}");
        config.set(key, "").unwrap();
        assert!(config.ignored.is_empty(), "{key}");
    }
}

#[test]
fn keys_without_a_meaning_are_listed_once_whatever_their_value() {
    let config = loaded(
        b"brokerIP2=10.0.0.2\nconfigBlackList=configBlackList;brokerConfigPath\nbroker_ip2=10.0.0.3\n",
        &[],
    );
    assert_eq!(config.unwrap().ignored, ["brokerIP2", "configBlackList"]);
}

/// A file as guides have it: a mark of the byte order, comments in another charset, older keys, paths, units.
const OF_A_GUIDE: &[u8] = b"\xef\xbb\xbfbrokerClusterName=rocketmq-cluster\r\n# \xcb\xf9\xca\xf4\xbc\xaf\xc8\xba\r\nbrokerIP1=[::1]\r\n\
    namesrvAddr=ns1:9876;[::1]:9876\r\nmapedFileSizeCommitLog=1073741824\r\nmapedFileSizeConsumeQueue=300000\r\n\
    storePathIndex=/usr/local/rocketmq/store/index/\r\nstorePathConsumerQueue=/usr/local/rocketmq/store/consumequeue\r\n\
    storePathConsumeQueue=/usr/local/rocketmq/store/consumequeue\r\nstoreCheckpoint=/usr/local/rocketmq/store/checkpoint\r\n\
    abortFile=/usr/local/rocketmq/store/abort\r\nstorePathRootDir=/usr/local/rocketmq/store\r\nmaxMessageSize=64k\r\n\
    fileReservedTime=5d\r\nflushDiskType=sync_flush\r\nbrokerRole=Sync_Master\r\ncheckTransactionMessageEnable=false\r\n\
    sendMessageThreadPoolNums=128\r\n";

fn loaded(text: &[u8], settings: &[(&str, &str)]) -> Result<ServerConfig, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.conf");
    RealDisk.replace(&file, text).unwrap();
    let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    ServerConfig::load(&Sources { file: Some(file), settings, ..Sources::default() })
}

#[test]
fn a_file_of_a_guide_is_read() {
    let config = loaded(OF_A_GUIDE, &[("storePathRootDir", "/elsewhere")]).unwrap();
    let (broker, store) = (&config.broker, &config.broker.store);
    assert_eq!(broker.cluster_name, "rocketmq-cluster");
    assert_eq!(broker.advertised_host.as_deref(), Some("::1"));
    assert_eq!(broker.name_servers, ["ns1:9876", "[::1]:9876"]);
    assert_eq!((store.commit_log_file_size, store.consume_queue_file_size), (1 << 30, 300_000));
    assert_eq!(store.root, Path::new("/elsewhere"), "its paths are those of the folder that it names");
    assert_eq!((broker.max_message_size, store.retention.reserved_time.as_secs()), (65_536, 120 * 3600));
    assert_eq!((store.flush, broker.replication.role), (FlushMode::Sync, BrokerRole::SyncMaster));
    assert_eq!(config.ignored, ["checkTransactionMessageEnable", "sendMessageThreadPoolNums"]);
}

#[test]
fn log_files_have_the_size_of_apache_with_a_broker_conf_that_does_not_set_it() {
    let size = |config: ServerConfig| config.broker.store.commit_log_file_size;
    assert_eq!(size(ServerConfig::default()), 64 << 20);
    let of_apache = loaded(b"brokerName=a\n", &[]).unwrap();
    assert_eq!(of_apache.origin("mappedFileSizeCommitLog").layer(), "Apache's default");
    assert_eq!(size(of_apache), 1 << 30);
    assert_eq!(size(loaded(b"mapedFileSizeCommitLog=16m\n", &[]).unwrap()), 16 << 20);
    assert_eq!(size(loaded(b"brokerName=a\n", &[("mappedFileSizeCommitLog", "32m")]).unwrap()), 32 << 20);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.toml");
    RealDisk.replace(&file, b"brokerName = \"a\"\n").unwrap();
    let of_toml = ServerConfig::load(&Sources { file: Some(file), ..Sources::default() }).unwrap();
    assert_eq!(size(of_toml), 64 << 20);
}

#[test]
fn a_path_that_the_store_does_not_use_is_an_error() {
    let error = loaded(b"storePathIndex=/data/b/index\nstorePathRootDir=/data/a\n", &[]).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("must be /data/a/index, not \"/data/b/index\""), "{text}");
    assert!(error.hint().unwrap().ends_with("storePathRootDir=/data/b"), "{:?}", error.hint());
    let error = loaded(b"storePathRootDir=/a\nabortFile=/a/index/stop\n", &[]).unwrap_err();
    assert!(error.hint().unwrap().starts_with("remove the key: "), "{:?}", error.hint());
}

#[test]
fn only_comments_may_be_in_another_charset() {
    let error = loaded(b"# fine\nbrokerName=\xcb\xf9\n", &[]).unwrap_err();
    assert!(error.to_string().contains("not UTF-8: brokerName="), "{error}");
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
    assert!(error.to_string().contains("migrateAuthFromV1Enabled"), "{error}");
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
        ("maxMessageSize", "10 apples", "a size such as 64k"),
        ("fileReservedTime", "90m", "a time such as"),
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
        // Sections of their own have keys of both.
        let has_both = matches!(key.section, Section::Tls | Section::Auth);
        let is_ours = key.apache == Apache::Unknown && key.name != "nameServerPort";
        assert!(has_both || is_ours == (key.section == Section::Ours), "{}", key.name);
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

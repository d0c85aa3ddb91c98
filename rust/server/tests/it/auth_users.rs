//! Users of both servers of a process: who may change them, and what survives a kill.
//!
//! The numbers of rows are those of `auth.rs`.

use rocketpy_env::{Disk, RealDisk};
use rocketpy_protocol::body::{Password, UserInfo};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::UserRequestHeader;
use rocketpy_protocol::{Command, json, signature};
use rocketpy_server::config::{AuthConfig, ExporterType, NamedSecret};
use rocketpy_server::{Process, Role, ServerError};

use crate::auth::{Secured, allow, create_user, user, user_request, users_on, with_fields};
use crate::binary;
use crate::metrics::scrape;
use crate::support::{Caller, TIMEOUT, config, pull, wait_until};

/// Rows 24 to 26: names, networks and bodies of an administrator who means ill.
#[test]
fn hostile_names_and_bodies_are_refused() {
    let server = Secured::start();
    let long = "a".repeat(64 << 10);
    for name in ["", " ", "a\nb", "a*", "*", "a%b", "a\0b", "a:b", "../a", &long] {
        for address in [&server.broker, &server.names] {
            let answer = server.admin.call(address, create_user(name));
            assert_eq!(answer.code, response::INVALID_PARAMETER, "{name:?}: {:?}", answer.remark);
            assert!(!answer.remark.unwrap().contains('\n'), "{name:?}");
            let answer = server.admin.call(address, allow(name, "Topic:orders", &["Sub"]));
            assert_ne!(answer.code, 0, "{name:?}");
        }
    }
    for resource in ["Topic:a\\nb", "Topic:a*b", "orders", "Topic:", "Topic:%RETRY%a", "Any:x", ""] {
        assert_ne!(
            server.admin.call(&server.broker, allow("alice", resource, &["Sub"])).code,
            0,
            "{resource:?}"
        );
    }
    for actions in [&["Any"][..], &[], &["Write"]] {
        assert_ne!(server.admin.call(&server.broker, allow("alice", "Topic:orders", actions)).code, 0);
    }
    let deep = "[".repeat(100_000);
    let large = format!(r#"{{"username":"{}"}}"#, "a".repeat(8 << 20));
    for body in [deep, large, "{".to_owned(), "\u{feff}".to_owned()] {
        for code in [request::AUTH_CREATE_USER, request::AUTH_CREATE_ACL] {
            let mut command = Command::request(code, &UserRequestHeader { username: "bob" });
            command.ext.push("subject", "User:alice");
            let answer = server.admin.call(&server.broker, command.with_body(body.clone()));
            assert_ne!(answer.code, 0);
        }
    }
    let users = server.admin.call(&server.broker, Command::bare_request(request::AUTH_LIST_USER));
    let users: Vec<UserInfo> = json::from_slice(&users.body).unwrap();
    let names: Vec<_> = users.into_iter().filter_map(|user| user.username).collect();
    assert_eq!(names, ["admin", "alice", "inner"]);
}

/// Row 25, and secrets in answers.
#[test]
fn only_super_users_make_super_users_and_see_secrets() {
    let server = Secured::start();
    for address in [&server.broker, &server.names] {
        let answer = server.admin.call(address, allow("alice", "Cluster:*", &["Update", "Get"]));
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
        let info = UserInfo {
            password: Some(Password("secret of eve".to_owned())),
            user_type: Some("Super".to_owned()),
            ..UserInfo::default()
        };
        let answer = server.call_as("alice", address, user_request(request::AUTH_CREATE_USER, "eve", &info));
        assert_eq!(answer.code, response::SYSTEM_ERROR, "{:?}", answer.remark);
        for (code, name) in [(request::AUTH_UPDATE_USER, "alice"), (request::AUTH_UPDATE_USER, "admin")] {
            let answer = server.call_as("alice", address, user_request(code, name, &info));
            assert_eq!(answer.code, response::SYSTEM_ERROR, "{:?}", answer.remark);
        }
        let deleted = user_request(request::AUTH_DELETE_USER, "admin", &UserInfo::default());
        assert_eq!(server.call_as("alice", address, deleted).code, response::SYSTEM_ERROR);
        let asked = || Command::request(request::AUTH_GET_USER, &UserRequestHeader { username: "admin" });
        let of_alice = server.call_as("alice", address, asked());
        let shown: UserInfo = json::from_slice(&of_alice.body).unwrap();
        assert_eq!((shown.username.as_deref(), shown.password), (Some("admin"), None));
        let of_admin: UserInfo = json::from_slice(&server.admin.call(address, asked()).body).unwrap();
        assert_eq!(of_admin.password, Some(Password(user("admin").secret)), "over loopback");
        let none = Command::request(request::AUTH_GET_USER, &UserRequestHeader { username: "nobody" });
        let none = server.admin.call(address, none);
        assert_eq!((none.code, none.body.len()), (0, 0), "as with Apache");
    }
}

/// The nonce keeps an earlier answer from being taken for this one.
#[test]
fn users_are_copied_with_a_nonce_alone() {
    let server = Secured::start();
    let copy = |nonce| with_fields(request::COPY_ACCOUNTS, &[("nonce", nonce)]);
    for asked in [Command::bare_request(request::COPY_ACCOUNTS), copy("")] {
        let answer = server.admin.call(&server.broker, asked);
        assert_eq!(answer.code, response::INVALID_PARAMETER, "{:?}", answer.remark);
        assert!(answer.body.is_empty() && answer.remark.unwrap().contains("nonce"));
    }
    assert_eq!(server.admin.call(&server.broker, copy("drawn")).code, 0);
}

#[test]
fn both_secrets_of_a_rotation_sign_until_it_ends() {
    let server = Secured::start();
    assert_eq!(server.admin.call(&server.broker, allow("alice", "*", &["All"])).code, 0);
    let signed_with = |secret: &str| {
        let mut command = pull("orders", 0, 0);
        signature::add(&mut command, "alice", secret);
        server.stranger.call(&server.broker, command).code
    };
    let update = |info: &UserInfo| {
        let answer =
            server.admin.call(&server.broker, user_request(request::AUTH_UPDATE_USER, "alice", info));
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
    };
    let old = user("alice").secret;
    update(&UserInfo { new_password: Some(Password("another".to_owned())), ..UserInfo::default() });
    assert_eq!((signed_with(&old), signed_with("another")), (0, 0));
    update(&UserInfo { rotating: Some(false), ..UserInfo::default() });
    assert_eq!((signed_with(&old), signed_with("another")), (response::NO_PERMISSION, 0));
}

#[test]
fn first_user_is_made_once_and_keys_that_contradict_stop_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let with = |first: &str| {
        let mut config = config(folder.path());
        config.auth = users_on();
        config.auth.first_user = Some(NamedSecret { name: "admin".to_owned(), secret: first.to_owned() });
        config
    };
    let works = |process: &Process, secret: &str| {
        let caller = Caller::of_user(&NamedSecret { name: "admin".to_owned(), secret: secret.to_owned() });
        let broker = process.addresses().broker.clone().unwrap();
        caller.call(&broker, Command::bare_request(request::GET_BROKER_RUNTIME_INFO)).code == 0
    };
    let process = Process::start(Role::Standalone, with("first")).unwrap();
    assert!(works(&process, "first"));
    process.stop(TIMEOUT).unwrap();
    let process = Process::start(Role::Standalone, with("second")).unwrap();
    assert!(works(&process, "first") && !works(&process, "second"), "never updated");
    process.stop(TIMEOUT).unwrap();

    let refused = |change: fn(&mut AuthConfig), says: &str| {
        let mut config = with("first");
        change(&mut config.auth);
        let error = Process::start(Role::Standalone, config).unwrap_err();
        assert!(matches!(error, ServerError::Auth(_)), "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
    };
    refused(|auth| auth.authenticates = false, "authenticationEnabled");
    refused(|auth| auth.peer = None, "innerClientAuthenticationCredentials");
    let mut config = config(folder.path());
    config.auth = users_on();
    let error = Process::start(Role::NameServer, config).unwrap_err();
    assert!(error.hint().unwrap().contains("authConfigPath"), "{error}");
}

/// The file of users is whole after each kill, and has each user whose creation was answered.
#[test]
fn users_survive_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let (store, ready) = (folder.path().join("store"), folder.path().join("ready"));
    let admin = Caller::of_user(&user("admin"));
    let mut made = Vec::new();
    for cycle in 0..3 {
        let mut command = binary::server(&store);
        command.envs([
            ("ROCKETPY_AUTHENTICATION_ENABLED", "true"),
            ("ROCKETPY_AUTHORIZATION_ENABLED", "true"),
            ("ROCKETPY_INIT_AUTHENTICATION_USER", r#"{"username":"admin","password":"secret of admin"}"#),
            (
                "ROCKETPY_INNER_CLIENT_AUTHENTICATION_CREDENTIALS",
                r#"{"accessKey":"inner","secretKey":"secret of inner"}"#,
            ),
        ]);
        let process = binary::Process::start(command, &ready);
        let users = admin.call(&process.broker, Command::bare_request(request::AUTH_LIST_USER));
        let users: Vec<UserInfo> = json::from_slice(&users.body).unwrap();
        let names: Vec<String> = users.into_iter().filter_map(|user| user.username).collect();
        assert!(made.iter().all(|name| names.contains(name)), "{made:?} of {names:?}");
        let (broker, wanted) = (process.broker.clone(), 20 + 7 * cycle);
        let making = std::thread::spawn(move || {
            let admin = Caller::of_user(&user("admin"));
            let mut made = Vec::new();
            loop {
                let name = format!("user-{cycle}-{}", made.len());
                match admin.try_call(&broker, create_user(&name)) {
                    Ok(answer) if answer.code == 0 => made.push(name),
                    _ => return made,
                }
            }
        });
        let users_file = store.join("config/users.json");
        wait_until("some users are made", || {
            let text = RealDisk.read(&users_file, 1 << 20).unwrap();
            String::from_utf8_lossy(&text).matches(&format!("user-{cycle}-")).count() >= wanted
        });
        process.kill();
        made.extend(making.join().unwrap());
    }
    assert!(made.len() >= 30, "{}", made.len());
}

#[test]
fn secret_on_a_command_line_is_refused_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = binary::server(folder.path());
    command.args(["--set", r#"initAuthenticationUser={"username":"a","password":"do not show"}"#]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(text.contains("ROCKETPY_INIT_AUTHENTICATION_USER") && text.contains("0600"), "{text}");
    assert!(!text.contains("do not show"), "{text}");
}

#[test]
fn second_broker_of_a_folder_neither_reads_nor_writes_its_users() {
    let server = Secured::start();
    let mut second = config(server.folder.path());
    second.auth = users_on();
    second.auth.first_user = Some(user("intruder"));
    let refused = Process::start(Role::Standalone, second.clone()).unwrap_err();
    assert!(refused.to_string().contains("store folder is in use by"), "{refused}");
    let users = server.folder.path().join("config/users.json");
    assert!(!String::from_utf8_lossy(&RealDisk.read(&users, 1 << 20).unwrap()).contains("intruder"));
    // Another store with the same users file.
    let other = tempfile::tempdir().unwrap();
    second.broker.store.root = other.path().to_owned();
    second.auth.users_file = Some(users.clone());
    let refused = Process::start(Role::Standalone, second).unwrap_err();
    assert!(refused.to_string().contains("users file is in use by"), "{refused}");
    server.process.stop(TIMEOUT).unwrap();
    rocketpy_auth::UsersLock::take(&users).unwrap();
}

#[test]
fn audit_log_names_users_made_at_the_start_and_reads_of_passwords() {
    let server = Secured::start();
    let asked = Command::request(request::AUTH_GET_USER, &UserRequestHeader { username: "alice" });
    assert_eq!(server.admin.call(&server.broker, asked).code, 0);
    server.process.stop(TIMEOUT).unwrap();
    let log = server.folder.path().join("log/audit.log");
    wait_until("the log has both", || {
        let text = String::from_utf8_lossy(&RealDisk.read(&log, 1 << 20).unwrap()).into_owned();
        text.contains(r#""result":"created at the start by initAuthenticationUser""#)
            && text.contains(r#""result":"created at the start by innerClientAuthenticationCredentials""#)
            && text.contains("the answer has passwords")
            && !text.contains("secret of")
    });
}

#[test]
fn name_server_alone_has_the_cluster_of_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.auth = users_on();
    config.auth.users_file = Some(folder.path().join("users.json"));
    config.set("brokerClusterName", "prod").unwrap();
    let process = Process::start(Role::NameServer, config).unwrap();
    let names = process.addresses().name_server.clone().unwrap();
    let (admin, alice) = (Caller::of_user(&user("admin")), Caller::of_user(&user("alice")));
    assert_eq!(admin.call(&names, create_user("alice")).code, 0);
    let list = || alice.call(&names, Command::bare_request(request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER));
    let denied = list();
    assert_eq!(denied.code, response::NO_PERMISSION);
    assert!(denied.remark.unwrap().contains("access Cluster:prod"));
    assert_eq!(admin.call(&names, allow("alice", "Cluster:prod", &["Get"])).code, 0);
    assert_eq!(list().code, 0);
}

#[test]
fn name_server_alone_serves_metrics_of_its_certificate_users_and_denials() {
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("made");
    let secure = rocketpy_server::ServerConfig { is_secure: true, ..config(&made) };
    Process::start(Role::Standalone, secure).unwrap().stop(TIMEOUT).unwrap();
    let mut config = config(folder.path());
    config.auth = users_on();
    config.auth.users_file = Some(folder.path().join("users.json"));
    let [cert, key] = ["server.pem", "server.key"].map(|name| made.join("secure").join(name));
    (config.tls.server.cert, config.tls.server.key) = (Some(cert), Some(key));
    config.exporter.kind = ExporterType::Prometheus;
    config.exporter.port = 0;
    let process = Process::start(Role::NameServer, config).unwrap();
    let names = process.addresses().name_server.clone().unwrap();
    let list = Command::bare_request(request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER);
    assert_eq!(Caller::new().call(&names, list).code, response::NO_PERMISSION);
    let metrics = scrape(&crate::metrics::address(&process));
    let value = |name: &str| metrics[&format!("rocketpy_nameserver_{name}")][0].1;
    let days_left = (value("tls_certificate_expiry_timestamp_seconds") * 1000.0
        - rocketpy_env::now_ms() as f64)
        / 86_400_000.0;
    assert!((364.0..366.0).contains(&days_left), "{days_left}");
    assert_eq!((value("users"), value("denied_requests_total")), (2.0, 1.0));
    assert_eq!(value("tls_refused_connections_total"), 0.0);
    assert_eq!(value("audit_lines_left_out_total"), 0.0);
}

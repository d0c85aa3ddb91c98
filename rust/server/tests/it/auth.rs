//! Users and policies: what a user without a policy and a stranger get, and what no user gets.
//!
//! The numbers of rows are those of the list of attacks that these tests try on both servers of a process.

use std::io::{Read, Write};
use std::net::TcpStream;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_protocol::body::{ConsumerData, HeartbeatData, Password, SubscriptionData, UserInfo};
use rocketpy_protocol::code::request::{self, Party};
use rocketpy_protocol::code::response;
use rocketpy_protocol::header::{
    AclRequestHeader, GetTopicStatsInfoRequestHeader, Header, SendMessageResponseHeader, UserRequestHeader,
    ViewMessageRequestHeader,
};
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_protocol::proof::ProofStream;
use rocketpy_protocol::settings::ConfigChange;
use rocketpy_protocol::{Command, json, signature};
use rocketpy_server::config::{AuthConfig, NamedSecret};
use rocketpy_server::{Process, Role, ServerConfig};

use crate::support::{Caller, TIMEOUT, config, create_topic, pull, send, send_with, wait_until};

pub(crate) fn user(name: &str) -> NamedSecret {
    NamedSecret { name: name.to_owned(), secret: format!("secret of {name}") }
}

/// Users on, with an administrator and a user of the servers.
pub(crate) fn users_on() -> AuthConfig {
    AuthConfig {
        authenticates: true,
        authorizes: true,
        first_user: Some(user("admin")),
        peer: Some(user("inner")),
        ..AuthConfig::default()
    }
}

/// A request about a user.
pub(crate) fn user_request(code: i32, username: &str, info: &UserInfo) -> Command {
    Command::request(code, &UserRequestHeader { username }).with_body(json::to_vec(info))
}

/// Creates a user whose secret [`user`] says.
pub(crate) fn create_user(name: &str) -> Command {
    let info = UserInfo { password: Some(Password(user(name).secret)), ..UserInfo::default() };
    user_request(request::AUTH_CREATE_USER, name, &info)
}

/// Allows a user something.
pub(crate) fn allow(name: &str, resource: &str, actions: &[&str]) -> Command {
    let subject = format!("User:{name}");
    let actions = json::to_vec(&actions);
    let actions = String::from_utf8_lossy(&actions);
    let body = format!(
        r#"{{"policies":[{{"entries":[{{"resource":"{resource}","actions":{actions},"decision":"Allow"}}]}}]}}"#
    );
    Command::request(request::AUTH_CREATE_ACL, &AclRequestHeader { subject: &subject }).with_body(body)
}

/// A server with a topic and one message; `alice` has no policy.
pub(crate) struct Secured {
    pub(crate) process: Process,
    pub(crate) broker: String,
    pub(crate) names: String,
    /// The administrator.
    pub(crate) admin: Caller,
    /// Does not sign by itself.
    pub(crate) stranger: Caller,
    pub(crate) folder: tempfile::TempDir,
}

impl Secured {
    pub(crate) fn start() -> Self {
        Self::start_with(|_| {})
    }

    pub(crate) fn start_with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path());
        config.auth = users_on();
        config.broker.replication.port = Some(0);
        change(&mut config);
        let process = Process::start(Role::Standalone, config).unwrap();
        let (broker, names) =
            (process.addresses().broker.clone().unwrap(), process.addresses().name_server.clone().unwrap());
        let admin = Caller::of_user(&user("admin"));
        for command in [create_topic("orders"), send("orders", "a secret"), create_user("alice")] {
            let answer = admin.call(&broker, command);
            assert_eq!(answer.code, 0, "{:?}", answer.remark);
        }
        wait_until("the message can be read", || admin.call(&broker, pull("orders", 0, 0)).code == 0);
        Self { process, broker, names, admin, stranger: Caller::new(), folder }
    }

    /// Calls with Apache's signature of a user.
    pub(crate) fn call_as(&self, name: &str, address: &str, mut command: Command) -> Command {
        signature::add(&mut command, name, &user(name).secret);
        self.stranger.call(address, command)
    }

    /// Calls as the user without a policy, and checks that the answer is a denial.
    pub(crate) fn deny(&self, address: &str, command: Command, what: &str) {
        let answer = self.call_as("alice", address, command);
        assert_eq!(answer.code, response::NO_PERMISSION, "{what}: {:?}", answer.remark);
        assert!(answer.remark.as_ref().unwrap().contains("alice"), "{what}: {:?}", answer.remark);
        assert!(answer.body.is_empty(), "{what}");
    }

    /// Topic and message are there, and the store is what it was.
    pub(crate) fn check_nothing_changed(&self) {
        assert_eq!(self.admin.read_all(&self.broker, "orders"), ["a secret"]);
    }
}

fn change(text: &str) -> ConfigChange {
    ConfigChange { text: text.to_owned(), ..ConfigChange::default() }
}

/// A request with fields that no header struct of this crate has.
pub(crate) fn with_fields(code: i32, fields: &[(&str, &str)]) -> Command {
    let mut command = Command::bare_request(code);
    command.ext = fields.iter().copied().collect();
    command
}

/// Rows 1 to 7: each is refused, to a user and to a stranger, at broker and name server; rows 4 and 7 to administrators too.
#[test]
fn configuration_is_changed_by_nobody_without_a_policy_and_security_by_nobody() {
    let server = Secured::start();
    let texts = [
        "rocketmqHome=-c touch${IFS}/tmp/x\n",
        "brokerConfigPath=/tmp/x\nbrokerName=a\\nb=c\n",
        "configStorePath=/tmp/x\nkvConfigPath=/tmp/y\nrocketmqHome=/tmp\n",
        "storePathRootDir=/tmp/x\n",
        "storePathCommitLog=/tmp/x\n",
        "brokerName=x\\nauthenticationEnabled=false\n",
        "configBlackList=\n",
        "fileReservedTime=1\n",
        "diskMaxUsedSpaceRatio=1\n",
        "authenticationEnabled=false\nauthorizationEnabled=false\n",
    ];
    for text in texts {
        for (address, code) in
            [(&server.broker, request::UPDATE_BROKER_CONFIG), (&server.names, request::UPDATE_NAMESRV_CONFIG)]
        {
            server.deny(address, change(text).request(code), text);
            let answer = server.stranger.call(address, change(text).request(code));
            assert_eq!(answer.code, response::NO_PERMISSION, "{text}");
        }
    }
    server.deny(&server.broker, Command::bare_request(request::DELETE_EXPIRED_COMMITLOG), "329");
    let keys = [
        "authenticationEnabled=false",
        "authorizationEnabled=false",
        "authenticationWhitelist=25",
        "authorizationWhitelist=25",
        r#"initAuthenticationUser={"username":"eve","password":"eve"}"#,
        r#"innerClientAuthenticationCredentials={"accessKey":"eve","secretKey":"eve"}"#,
        "migrateAuthFromV1Enabled=true",
        "authRequireProof=false",
        "authConfigPath=/tmp/x",
        "auditLogPath=/tmp/x",
        "storePathRootDir=/tmp/x",
    ];
    for key in keys {
        for at_restart in [false, true] {
            let change = ConfigChange { at_restart, ..change(key) };
            let answer = server.admin.call(&server.broker, change.request(request::UPDATE_BROKER_CONFIG));
            assert_eq!(answer.code, response::NO_PERMISSION, "{key}: {:?}", answer.remark);
            let answer = server.admin.call(&server.names, change.request(request::UPDATE_NAMESRV_CONFIG));
            assert_eq!(answer.code, response::NO_PERMISSION, "{key}: {:?}", answer.remark);
        }
    }
    server.check_nothing_changed();
}

/// Row 8.
#[test]
fn secrets_of_the_configuration_are_shown_to_nobody() {
    let server = Secured::start();
    for (address, code) in
        [(&server.broker, request::GET_BROKER_CONFIG), (&server.names, request::GET_NAMESRV_CONFIG)]
    {
        server.deny(address, Command::bare_request(code), "configuration");
        for asked in [Command::bare_request(code), with_fields(code, &[("layers", "true")])] {
            let answer = server.admin.call(address, asked);
            assert_eq!(answer.code, 0, "{:?}", answer.remark);
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(text.contains("initAuthenticationUser"), "{text}");
            assert!(!text.contains("secret of"), "{text}");
        }
    }
}

/// Rows 9, 10, 13 and 22: messages and groups of others.
#[test]
fn messages_and_groups_of_others_are_closed() {
    let server = Secured::start();
    let broker = &server.broker;
    let mut lite = pull("orders", 0, 0);
    lite.code = request::LITE_PULL_MESSAGE;
    let view =
        Command::request(request::VIEW_MESSAGE_BY_ID, &ViewMessageRequestHeader { topic: None, offset: 0 });
    let mut reply = send("orders", "reply");
    reply.code = request::SEND_REPLY_MESSAGE_V2;
    let heartbeat = HeartbeatData {
        client_id: "eve".to_owned(),
        consumer_data_set: vec![ConsumerData {
            group_name: "billing".to_owned(),
            subscription_data_set: vec![SubscriptionData {
                topic: "orders".to_owned(),
                sub_string: "*".to_owned(),
                ..SubscriptionData::default()
            }],
            ..ConsumerData::default()
        }],
        ..HeartbeatData::default()
    };
    let heartbeat = Command::bare_request(request::HEART_BEAT).with_body(json::to_vec(&heartbeat));
    let commit = with_fields(
        request::UPDATE_CONSUMER_OFFSET,
        &[("consumerGroup", "billing"), ("topic", "orders"), ("queueId", "0"), ("commitOffset", "1")],
    );
    let lock = Command::bare_request(request::LOCK_BATCH_MQ).with_body(
        r#"{"consumerGroup":"billing","clientId":"eve","mqSet":[{"topic":"orders","brokerName":"broker-a","queueId":0}]}"#,
    );
    let rows = [
        ("9", lite),
        ("10", view),
        ("11", pull("orders", 0, 0)),
        ("13: 325", reply),
        ("13: 324", with_fields(request::SEND_REPLY_MESSAGE, &[("topic", "orders"), ("producerGroup", "p")])),
        ("13: 200070", Command::bare_request(request::POP_LITE_MESSAGE)),
        ("13: 200071", Command::bare_request(request::LITE_SUBSCRIPTION_CTL)),
        ("13: 200151", Command::bare_request(request::BATCH_ACK_MESSAGE)),
        ("13: 400", Command::bare_request(request::QUERY_ASSIGNMENT)),
        ("22: 34", heartbeat),
        ("22: 15", commit),
        ("22: 41", lock),
        ("send", send("orders", "false")),
        ("send to a new topic", send("another", "false")),
    ];
    for (row, command) in rows {
        server.deny(broker, command, row);
    }
    server.check_nothing_changed();
}

/// A request that names a place in the log, and a topic of its own: the record's topic counts.
#[test]
fn a_place_in_the_log_opens_no_message_of_another_topic() {
    let server = Secured::start();
    let broker = &server.broker;
    let mut half = send_with("orders", "half", Some("TRAN_MSG\u{1}true\u{2}PGROUP\u{1}producers\u{2}"));
    half.ext.push("f", "4");
    let half = server.admin.call(broker, half);
    assert_eq!(half.code, 0, "{:?}", half.remark);
    let half = SendMessageResponseHeader::read(&half.ext).unwrap();
    let id: OffsetMessageId = half.msg_id.parse().unwrap();
    let (half_at, half_offset) = (id.physical_offset.to_string(), half.queue_offset.to_string());
    for command in [
        create_topic("own"),
        allow("alice", "Topic:own", &["All"]),
        allow("alice", "Group:readers", &["All"]),
        allow("alice", "Group:producers", &["All"]),
    ] {
        assert_eq!(server.admin.call(broker, command).code, 0);
    }
    let view = |offset| {
        Command::request(
            request::VIEW_MESSAGE_BY_ID,
            &ViewMessageRequestHeader { topic: Some("own"), offset },
        )
    };
    let view_of_any =
        Command::request(request::VIEW_MESSAGE_BY_ID, &ViewMessageRequestHeader { topic: None, offset: 0 });
    assert_eq!(server.admin.call(broker, allow("alice", "Cluster:*", &["Get"])).code, 0);
    server.deny(broker, view_of_any, "view without a topic");
    let back = [("offset", "0"), ("group", "readers"), ("delayLevel", "3"), ("originTopic", "own")];
    let end = [
        ("producerGroup", "producers"),
        ("tranStateTableOffset", &half_offset),
        ("commitLogOffset", &half_at),
        ("commitOrRollback", "8"),
        ("msgId", ""),
        ("topic", "own"),
    ];
    server.deny(broker, view(0), "view");
    server.deny(broker, with_fields(request::CONSUMER_SEND_MSG_BACK, &back), "send-back");
    server.deny(broker, with_fields(request::END_TRANSACTION, &end), "commit");
    server.deny(broker, with_fields(request::END_TRANSACTION, &end[..5]), "commit without a topic");

    let own = server.call_as("alice", broker, send("own", "mine"));
    let own = SendMessageResponseHeader::read(&own.ext).unwrap();
    let id: OffsetMessageId = own.msg_id.parse().unwrap();
    let read = server.call_as("alice", broker, view(id.physical_offset.to_wire()));
    assert_eq!(read.code, 0, "{:?}", read.remark);
    server.check_nothing_changed();
}

/// Rows 11, 12 and 15, and each other code: no code is open to a user without a policy, none to a stranger.
#[test]
fn every_code_is_denied_without_a_policy() {
    let server = Secured::start();
    for row in request::ALL {
        let addresses = match row.asked_of {
            Party::Broker if row.name.starts_with("AUTH_") => vec![&server.broker, &server.names],
            Party::Broker => vec![&server.broker],
            Party::NameServer => vec![&server.names],
            _ => vec![&server.broker, &server.names],
        };
        for address in addresses {
            let answer = server.call_as("alice", address, Command::bare_request(row.code));
            match row.code {
                // Bare, they name nothing that a policy could be about.
                request::END_TRANSACTION
                | request::VIEW_MESSAGE_BY_ID
                | request::UNREGISTER_CLIENT
                | request::HEART_BEAT
                | request::UPDATE_AND_CREATE_TOPIC_LIST
                | request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST => {
                    assert_ne!(answer.code, 0, "{}", row.name)
                }
                _ => assert_eq!(answer.code, response::NO_PERMISSION, "{}: {:?}", row.name, answer.remark),
            }
            let answer = server.stranger.call(address, Command::bare_request(row.code));
            assert_eq!(answer.code, response::NO_PERMISSION, "{}: {:?}", row.name, answer.remark);
            assert_eq!(answer.remark.as_deref(), Some("username cannot be null."), "{}", row.name);
        }
    }
    let unknown = server.call_as("alice", &server.broker, Command::bare_request(4_711));
    assert_eq!(unknown.code, response::REQUEST_CODE_NOT_SUPPORTED);
    server.check_nothing_changed();
    let log = server.folder.path().join("log/audit.log");
    let audited = || String::from_utf8_lossy(&RealDisk.read(&log, 16 << 20).unwrap()).into_owned();
    wait_until("the audit log has the creation of the user and a denial", || {
        let text = audited();
        text.contains("AUTH_CREATE_USER") && text.contains(r#""user":"alice""#)
    });
    assert!(!audited().contains("secret of"), "{}", audited());
}

/// Row 14.
#[test]
fn the_port_for_slaves_gives_nothing_to_a_stranger() {
    let server = Secured::start();
    let status = server.admin.call(&server.broker, Command::bare_request(request::EXCHANGE_BROKER_HA_INFO));
    let address = status.ext.get("masterHaAddress").unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket.write_all(&0_u64.to_be_bytes()).unwrap();
    assert_eq!(socket.read(&mut [0; 12]).unwrap(), 0, "closed without a byte of the log");
}

/// Rows 16 to 19 and 21: a captured request of an administrator.
#[test]
fn captured_requests_of_our_clients_serve_nobody() {
    let server = Secured::start();
    let (broker, admin) = (&server.broker, user("admin"));
    let stream = ProofStream::new([1, 2]);
    let capture = |command: Command| {
        let mut command = command;
        stream.sign(&mut command, &admin.name, &admin.secret, rocketpy_env::now_ms());
        command
    };
    let stats =
        |topic| Command::request(request::GET_TOPIC_STATS_INFO, &GetTopicStatsInfoRequestHeader { topic });
    let captured = capture(stats("orders"));
    assert_eq!(server.stranger.call(broker, captured.clone()).code, 0);
    let again = Caller::new().call(broker, captured);
    assert_eq!(again.code, response::NO_PERMISSION, "row 16: {:?}", again.remark);

    let changed = |what: &str, command: &mut dyn FnMut(&mut Command)| {
        let mut captured = capture(stats("orders"));
        command(&mut captured);
        let answer = server.stranger.call(broker, captured);
        assert_eq!(answer.code, response::NO_PERMISSION, "{what}: {:?}", answer.remark);
    };
    changed("row 17", &mut |command| command.code = request::DELETE_TOPIC_IN_BROKER);
    changed("row 18", &mut |command| {
        command.ext.push("topic", "order");
        command.ext.push("topica", "s");
    });
    changed("row 19", &mut |command| {
        command.ext.push("topic", "order");
        command.body = "s".into();
    });
    changed("without the proof", &mut |command| command.ext.remove("RpProof"));

    let mut forged = stats("orders");
    signature::add(&mut forged, "admin", "another secret");
    for _ in 0..2 {
        assert_eq!(server.call_as("admin", broker, stats("orders")).code, 0);
        let answer = server.stranger.call(broker, forged.clone());
        assert_eq!(answer.code, response::NO_PERMISSION, "row 21: {:?}", answer.remark);
    }
    server.check_nothing_changed();
}

/// With `authRequireProof` Apache's signature alone opens nothing.
#[test]
fn required_proofs_keep_requests_without_one_out() {
    let server = Secured::start_with(|config| config.auth.requires_proof = true);
    let stats =
        Command::request(request::GET_TOPIC_STATS_INFO, &GetTopicStatsInfoRequestHeader { topic: "orders" });
    assert_eq!(server.admin.call(&server.broker, stats.clone()).code, 0);
    let answer = server.call_as("admin", &server.broker, stats);
    assert_eq!(answer.code, response::NO_PERMISSION, "{:?}", answer.remark);
}

#[test]
fn a_policy_opens_what_it_names_at_once_and_broker_and_name_server_share_users() {
    let server = Secured::start();
    let route = || with_fields(request::GET_ROUTEINFO_BY_TOPIC, &[("topic", "orders")]);
    server.deny(&server.names, route(), "route");
    for command in
        [allow("alice", "Topic:orders", &["Sub"]), allow("alice", "Group:TOOLS_CONSUMER", &["Sub"])]
    {
        assert_eq!(server.admin.call(&server.broker, command).code, 0);
    }
    assert_eq!(server.call_as("alice", &server.broker, pull("orders", 0, 0)).code, 0);
    assert_eq!(server.call_as("alice", &server.names, route()).code, 0, "by the policy that the broker took");
    server.deny(&server.broker, send("orders", "no"), "send");
    let disabled = UserInfo { user_status: Some("disable".to_owned()), ..UserInfo::default() };
    let disable = user_request(request::AUTH_UPDATE_USER, "alice", &disabled);
    assert_eq!(server.admin.call(&server.names, disable).code, 0);
    let answer = server.call_as("alice", &server.broker, pull("orders", 0, 0));
    assert_eq!(answer.code, response::NO_PERMISSION);
    assert!(answer.remark.unwrap().contains("disabled"));
}

/// A pull that a quota of its user holds back.
#[test]
fn quota_of_a_user_limits_its_requests_alone() {
    let server = Secured::start();
    for (name, command) in [
        ("alice", allow("alice", "*", &["All"])),
        ("bob", create_user("bob")),
        ("bob", allow("bob", "*", &["All"])),
    ] {
        assert_eq!(server.admin.call(&server.broker, command).code, 0, "{name}");
    }
    let quota = br#"{"scope":"user","name":"alice","sendBytes":1}"#;
    let set = Command::bare_request(request::SET_QUOTA).with_body(quota.to_vec());
    assert_eq!(server.admin.call(&server.broker, set).code, 0);
    assert_eq!(server.call_as("alice", &server.broker, send("orders", "0123456789")).code, 0, "takes a debt");
    let over = server.call_as("alice", &server.broker, send("orders", "x"));
    assert_eq!(over.code, response::SYSTEM_BUSY, "{:?}", over.remark);
    assert!(over.remark.unwrap().contains("quota of user alice"));
    assert_eq!(server.call_as("bob", &server.broker, send("orders", "x")).code, 0);
    server.process.stop(TIMEOUT).unwrap();
}

//! Attacks of requests on a guard, as numbered in the list of attacks that the decision page names.

use bytes::Bytes;
use rocketpy_protocol::body::{AclInfo, Password, PolicyEntryInfo, PolicyInfo, UserInfo};
use rocketpy_protocol::proof::{PROOF, ProofStream};

use super::*;
use crate::{Action, Caller, RulesError};

const NOW_MS: i64 = 1_700_000_000_000;
const SECRET: &str = "secret of alice";

struct Fixture {
    guard: Arc<Guard>,
    _folder: tempfile::TempDir,
}

fn rules() -> Rules {
    let cluster = "east".to_owned();
    Rules { authentication: true, authorization: true, cluster, ..Rules::default() }
}

fn user(password: &str, kind: &str) -> UserInfo {
    let (password, kind) = (Some(Password(password.to_owned())), Some(kind.to_owned()));
    UserInfo { password, user_type: kind, ..UserInfo::default() }
}

fn acl(entries: &[(&str, &[&str])]) -> AclInfo {
    let entry = |(resource, actions): &(&str, &[&str])| PolicyEntryInfo {
        resource: Some((*resource).to_owned()),
        actions: actions.iter().map(|action| (*action).to_owned()).collect(),
        decision: Some("Allow".to_owned()),
        ..PolicyEntryInfo::default()
    };
    let entries = entries.iter().map(entry).collect();
    AclInfo { policies: vec![PolicyInfo { entries, policy_type: None }], subject: None }
}

/// A guard with the super user `root` and the user `alice`.
fn fixture(rules: Rules, of_alice: &[(&str, &[&str])]) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let accounts = Accounts::open(folder.path().join("users.json")).unwrap();
    accounts.create_user("root", &user("secret of root", "Super"), Caller::Super).unwrap();
    accounts.create_user("alice", &user(SECRET, "Normal"), Caller::Super).unwrap();
    if !of_alice.is_empty() {
        accounts.set_policies("User:alice", &acl(of_alice), Caller::Super).unwrap();
    }
    Fixture { guard: Guard::new(accounts, rules, None), _folder: folder }
}

impl Fixture {
    fn check(&self, request: &Command) -> Result<(), Denial> {
        self.guard.check(request, "10.0.0.1:4711".parse().unwrap(), NOW_MS)
    }

    fn refusal(&self, request: &Command) -> Option<Response> {
        let from = "10.0.0.1:4711".parse().unwrap();
        self.guard.check(request, from, NOW_MS).err().map(|denial| self.guard.refuse(from, request, &denial))
    }
}

fn plain(code: i32, fields: &[(&str, &str)], body: &str) -> Command {
    let mut command = Command::bare_request(code);
    command.ext = fields.iter().copied().collect();
    command.body = Bytes::from(body.to_owned());
    command
}

fn signed(user: &str, secret: &str, mut command: Command) -> Command {
    signature::add(&mut command, user, secret);
    command
}

fn proven(user: &str, secret: &str, mut command: Command) -> Command {
    ProofStream::new([7, 7]).sign(&mut command, user, secret, NOW_MS);
    command
}

#[test]
fn authentication_answers_as_apache_does() {
    let fixture = fixture(rules(), &[("Topic:orders", &["Sub"])]);
    let question = || plain(request::GET_ROUTEINFO_BY_TOPIC, &[("topic", "orders")], "");
    let remark = |command: &Command| fixture.refusal(command).map(|refusal| refusal.command.remark.unwrap());
    assert_eq!(remark(&question()).as_deref(), Some("username cannot be null."));
    let empty = signed("", SECRET, question());
    assert_eq!(
        remark(&empty).as_deref(),
        Some("username cannot be null."),
        "the C++ client without credentials"
    );
    assert_eq!(remark(&signed("bob", SECRET, question())).as_deref(), Some("User:bob is not found."));
    assert_eq!(remark(&signed("alice", "guess", question())).as_deref(), Some("check signature failed."));
    assert_eq!(remark(&signed("alice", SECRET, question())), None);
    let disable = UserInfo { user_status: Some("disable".to_owned()), ..UserInfo::default() };
    fixture.guard.accounts().update_user("alice", &disable, Caller::Super).unwrap();
    assert_eq!(remark(&signed("alice", SECRET, question())).as_deref(), Some("User:alice is disabled."));
}

#[test]
fn denial_names_user_resource_action_and_address() {
    let fixture = fixture(rules(), &[("Topic:orders", &["Sub"])]);
    let send = signed("alice", SECRET, plain(request::SEND_MESSAGE_V2, &[("b", "payments\n")], ""));
    let refusal = fixture.refusal(&send).unwrap();
    assert_eq!(refusal.command.code, response::NO_PERMISSION);
    let remark = refusal.command.remark.unwrap();
    let expected = "User:alice has no permission to access Topic:payments\\n from 10.0.0.1, no matched policies. \
                    (action Pub, request SEND_MESSAGE_V2)";
    assert_eq!(remark, expected);
}

#[test]
fn both_secrets_sign_until_the_rotation_ends() {
    let fixture = fixture(rules(), &[("Topic:orders", &["Sub"])]);
    let asks = |secret: &str| {
        let question = plain(request::GET_ROUTEINFO_BY_TOPIC, &[("topic", "orders")], "");
        (fixture.check(&signed("alice", secret, question.clone())).is_ok())
            & fixture.check(&proven_at(secret, question)).is_ok()
    };
    let update =
        |info: UserInfo| fixture.guard.accounts().update_user("alice", &info, Caller::Super).unwrap();
    update(UserInfo { new_password: Some(Password("second".to_owned())), ..UserInfo::default() });
    assert!(asks(SECRET) && asks("second"));
    update(UserInfo { rotating: Some(false), ..UserInfo::default() });
    assert!(!asks(SECRET) && asks("second"));
}

/// A request of a stream of its own.
fn proven_at(secret: &str, mut command: Command) -> Command {
    ProofStream::new([rocketpy_env::random_u64(), 1]).sign(&mut command, "alice", secret, NOW_MS);
    command
}

#[test]
fn attack_16_replayed_request_is_refused_with_a_proof() {
    let fixture = fixture(rules(), &[]);
    let captured =
        proven("root", "secret of root", plain(request::DELETE_TOPIC_IN_BROKER, &[("topic", "t")], ""));
    assert_eq!(fixture.check(&captured), Ok(()));
    assert!(matches!(fixture.check(&captured), Err(Denial::Replayed { source: Replayed::Again, .. })));
    let other_address = fixture.guard.check(&captured, "10.9.9.9:1".parse().unwrap(), NOW_MS);
    assert!(matches!(other_address, Err(Denial::Replayed { .. })));
    let tomorrow = fixture.guard.check(&captured, "10.0.0.1:1".parse().unwrap(), NOW_MS + 86_400_000);
    assert!(matches!(tomorrow, Err(Denial::Replayed { source: Replayed::Time { .. }, .. })));
}

#[test]
fn attack_17_another_code_is_refused_with_a_proof() {
    let fixture = fixture(rules(), &[]);
    let mut captured =
        proven("root", "secret of root", plain(request::GET_TOPIC_STATS_INFO, &[("topic", "t")], ""));
    captured.code = request::DELETE_TOPIC_IN_BROKER;
    assert!(signature::is_signed(&captured, "secret of root"), "Apache's signature does not cover the code");
    assert_eq!(fixture.check(&captured), Err(Denial::Proof("root".to_owned())));
    let remark = fixture.refusal(&captured).unwrap().command.remark.unwrap();
    assert!(remark.starts_with("check proof failed: field RpProof of User:root"), "{remark}");
}

#[test]
fn attacks_18_and_19_moved_letters_are_refused_with_a_proof() {
    let fixture = fixture(rules(), &[]);
    let fields = [("statsKey", "ab"), ("statsName", "cd")];
    let captured = proven("root", "secret of root", plain(request::VIEW_BROKER_STATS_DATA, &fields, "body"));
    let mut neighbour = captured.clone();
    neighbour.ext.push("statsKey", "a");
    neighbour.ext.push("statsName", "bcd");
    let mut into_body = captured.clone();
    into_body.ext.push("statsName", "c");
    into_body.body = Bytes::from_static(b"dbody");
    for moved in [neighbour, into_body] {
        assert!(signature::is_signed(&moved, "secret of root"), "Apache's signature holds");
        assert_eq!(fixture.check(&moved), Err(Denial::Proof("root".to_owned())));
    }
}

#[test]
fn wrong_secret_is_a_wrong_signature_with_a_proof_too() {
    let fixture = fixture(rules(), &[]);
    let guessed = proven("root", "guess", plain(request::GET_BROKER_CONFIG, &[], ""));
    assert_eq!(fixture.check(&guessed), Err(Denial::Signature));
}

#[test]
fn proof_that_is_taken_away_leaves_no_request() {
    let fixture = fixture(rules(), &[]);
    let captured = proven("root", "secret of root", plain(request::GET_BROKER_CONFIG, &[], ""));
    let mut without = captured.clone();
    without.ext.remove(PROOF);
    assert_eq!(fixture.check(&without), Err(Denial::Signature));
    // Apache's signature covers values alone: under another name it holds, for ever and with any code.
    let mut renamed = without;
    renamed.ext.push("RpProoe", captured.ext.get(PROOF).unwrap());
    renamed.code = request::CLEAN_UNUSED_TOPIC;
    assert!(signature::is_signed(&renamed, "secret of root"));
    assert_eq!(fixture.check(&renamed), Err(Denial::Signature));
}

#[test]
fn attack_20_policies_without_users_are_refused_at_the_start() {
    let open = Rules { authentication: false, ..rules() };
    assert_eq!(open.check(), Err(RulesError::NoAuthentication));
    assert_eq!(rules().check(), Ok(()));
    let lists = |code| Rules { authentication_whitelist: [code].into(), ..rules() };
    assert!(matches!(lists(request::AUTH_CREATE_USER).check(), Err(RulesError::Guarded { .. })));
    assert!(matches!(lists(request::COPY_ACCOUNTS).check(), Err(RulesError::Guarded { .. })));
    assert!(matches!(lists(request::CHANGE_BROKER_ROLE).check(), Err(RulesError::Guarded { .. })));
    assert!(matches!(lists(31_000).check(), Err(RulesError::Unknown { .. })));
    assert_eq!(lists(request::GET_ROUTEINFO_BY_TOPIC).check(), Ok(()));
}

#[test]
fn attack_21_each_request_of_a_connection_needs_a_signature() {
    let fixture = fixture(rules(), &[("Topic:orders", &["Sub"])]);
    let question = || plain(request::GET_ROUTEINFO_BY_TOPIC, &[("topic", "orders")], "");
    assert_eq!(fixture.check(&signed("alice", SECRET, question())), Ok(()));
    assert_eq!(fixture.check(&signed("alice", "guess", question())), Err(Denial::Signature));
}

#[test]
fn whitelisted_code_passes_its_own_check_alone() {
    let code = request::GET_ROUTEINFO_BY_TOPIC;
    let question = plain(code, &[("topic", "orders"), ("AccessKey", "root")], "");
    let of_users = Rules { authentication_whitelist: [code].into(), ..rules() };
    assert_eq!(fixture(of_users.clone(), &[]).check(&question), Err(Denial::NoUser), "policies need a user");
    let of_both = Rules { authorization_whitelist: [code].into(), ..of_users };
    let fixture = fixture(of_both, &[]);
    assert_eq!(fixture.check(&question), Ok(()));
    assert_eq!(fixture.guard.user_of(&question), None, "nobody proved to be root");
}

#[test]
fn replication_needs_a_proof_of_a_super_user_even_without_policies() {
    let all: &[(&str, &[&str])] = &[("*", &["All"])];
    for rules in [rules(), Rules { authorization: false, ..rules() }] {
        let fixture = fixture(rules, all);
        for code in [request::COPY_LOG, request::LEAVE_MASTER, request::COPY_TABLES, request::COPY_ACCOUNTS] {
            let ask = || plain(code, &[], "");
            let unproven = fixture.check(&signed("root", "secret of root", ask()));
            assert!(matches!(unproven, Err(Denial::NoProof { .. })), "{code}");
            assert!(
                matches!(fixture.check(&proven_at(SECRET, ask())), Err(Denial::NotAllowed { .. })),
                "{code}"
            );
            let mut peer = ask();
            ProofStream::new([9, code as u64]).sign(&mut peer, "root", "secret of root", NOW_MS);
            assert_eq!(fixture.check(&peer), Ok(()), "{code}");
        }
    }
}

#[test]
fn users_are_managed_with_permission_even_without_policies() {
    let fixture = fixture(Rules { authorization: false, ..rules() }, &[]);
    let send = plain(request::SEND_MESSAGE_V2, &[("b", "orders")], "");
    assert_eq!(fixture.check(&signed("alice", SECRET, send)), Ok(()));
    let make = plain(request::AUTH_CREATE_USER, &[("username", "mallory")], "{}");
    assert!(matches!(fixture.check(&signed("alice", SECRET, make.clone())), Err(Denial::NotAllowed { .. })));
    assert_eq!(fixture.check(&signed("root", "secret of root", make)), Ok(()));
}

#[test]
fn roles_are_changed_with_permission_even_without_policies() {
    let fixture = fixture(Rules { authorization: false, ..rules() }, &[]);
    let change = plain(request::CHANGE_BROKER_ROLE, &[], "");
    assert!(matches!(
        fixture.check(&signed("alice", SECRET, change.clone())),
        Err(Denial::NotAllowed { .. })
    ));
    assert_eq!(fixture.check(&signed("root", "secret of root", change)), Ok(()));
}

#[test]
fn required_proof_refuses_plain_signatures() {
    let fixture = fixture(Rules { require_proof: true, ..rules() }, &[("Topic:orders", &["Sub"])]);
    let question = || plain(request::GET_ROUTEINFO_BY_TOPIC, &[("topic", "orders")], "");
    assert!(matches!(fixture.check(&signed("alice", SECRET, question())), Err(Denial::NoProof { .. })));
    assert_eq!(fixture.check(&proven("alice", SECRET, question())), Ok(()));
    let mut malformed = signed("alice", SECRET, question());
    malformed.ext.push(PROOF, "RpProof1;1");
    assert_eq!(fixture.check(&malformed), Err(Denial::MalformedProof("alice".to_owned())));
}

#[test]
fn unknown_code_is_refused_by_name() {
    let fixture = fixture(rules(), &[("*", &["All"])]);
    let refusal = fixture.refusal(&signed("alice", SECRET, plain(31_000, &[], ""))).unwrap();
    assert_eq!(refusal.command.code, response::REQUEST_CODE_NOT_SUPPORTED);
}

/// Requests that Apache's 5.5.0 serves for a user without any policy: 4, 6 to 13, 15 and 22 of the list.
#[test]
fn user_without_policies_gets_nothing() {
    let fixture = fixture(rules(), &[]);
    for row in request::ALL {
        let fields = [
            ("topic", "t"),
            ("b", "t"),
            ("group", "g"),
            ("consumerGroup", "g"),
            ("groupName", "g"),
            ("srcGroup", "g"),
            ("destGroup", "g"),
            ("clusterName", "east"),
            ("queueId", "0"),
            ("offset", "0"),
        ];
        let body = match row.code {
            request::HEART_BEAT => r#"{"clientID":"c","consumerDataSet":[{"groupName":"g"}]}"#,
            request::UPDATE_AND_CREATE_TOPIC_LIST => r#"{"topicConfigList":[{"topicName":"t"}]}"#,
            request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST => r#"{"groupConfigList":[{"groupName":"g"}]}"#,
            _ => "{}",
        };
        let command = signed("alice", SECRET, plain(row.code, &fields, body));
        assert!(fixture.check(&command).is_err(), "{}", row.name);
        assert!(
            fixture.check(&signed("alice", SECRET, plain(row.code, &[], "{}"))).is_err() || is_open(row.code)
        );
    }
}

/// Requests that name nothing and change nothing.
fn is_open(code: i32) -> bool {
    matches!(
        code,
        request::HEART_BEAT
            | request::UNREGISTER_CLIENT
            | request::END_TRANSACTION
            | request::VIEW_MESSAGE_BY_ID
            | request::UPDATE_AND_CREATE_TOPIC_LIST
            | request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    )
}

/// A policy for all topics, with a denial for one, must not open the messages that wait for it in the broker's own topics.
#[test]
fn topics_with_messages_of_others_are_read_by_super_users_alone() {
    let fixture = fixture(rules(), &[("Topic:*", &["All"]), ("Group:g", &["All"])]);
    let codes = [
        request::PULL_MESSAGE,
        request::LITE_PULL_MESSAGE,
        request::QUERY_MESSAGE,
        request::VIEW_MESSAGE_BY_ID,
        request::GET_MAX_OFFSET,
        request::QUERY_CONSUMER_OFFSET,
        request::QUERY_CONSUME_QUEUE,
    ];
    let asks = |code, topic| plain(code, &[("topic", topic), ("consumerGroup", "g")], "");
    for code in codes {
        assert_eq!(fixture.check(&signed("alice", SECRET, asks(code, "orders"))), Ok(()), "{code}");
        for topic in [
            "SCHEDULE_TOPIC_XXXX",
            "RMQ_SYS_TRANS_HALF_TOPIC",
            "RMQ_SYS_TRANS_OP_HALF_TOPIC",
            "TRANS_CHECK_MAX_TIME_TOPIC",
            "rmq_sys_wheel_timer",
        ] {
            let denial = fixture.check(&signed("alice", SECRET, asks(code, topic))).unwrap_err();
            assert!(denial.to_string().contains(&format!("Topic:{topic}")), "{code}: {denial}");
            assert_eq!(fixture.check(&signed("root", "secret of root", asks(code, topic))), Ok(()), "{code}");
        }
    }
}

#[test]
fn code_that_needs_no_user_keeps_the_one_that_its_policies_need() {
    let code = request::END_TRANSACTION;
    let fixture =
        fixture(Rules { authentication_whitelist: [code].into(), ..rules() }, &[("Topic:orders", &["Pub"])]);
    let end = signed("alice", SECRET, plain(code, &[("producerGroup", "p")], ""));
    assert_eq!(fixture.check(&end), Ok(()));
    assert_eq!(fixture.guard.user_of(&end), Some("alice"));
    let from = "10.0.0.1:1".parse().unwrap();
    assert!(fixture.guard.refusal_of_topic(from, &end, "orders", Actions::of(&[Action::Pub])).is_none());
    let forged = signed("alice", "guess", plain(code, &[("producerGroup", "p")], ""));
    assert_eq!(fixture.check(&forged), Err(Denial::NoUser));
}

#[test]
fn bodies_of_users_without_rights_are_bounded_before_they_are_read() {
    let fixture = fixture(rules(), &[]);
    let refusal = |body: &str| {
        let denial =
            fixture.check(&signed("alice", SECRET, plain(request::HEART_BEAT, &[], body))).unwrap_err();
        denial.to_string()
    };
    let items = "{},".repeat(1 << 17);
    let many = format!(r#"{{"consumerDataSet":[{{"groupName":"g","subscriptionDataSet":[{items}{{}}]}}]}}"#);
    assert!(refusal(&many).contains("more than 131072 items"), "{}", refusal(&many));
    let long = format!(r#"{{"clientID":"{}"}}"#, "a".repeat(4 << 20));
    assert!(refusal(&long).contains("exceeds 4194304 bytes"));
}

#[test]
fn handler_asks_for_the_topic_of_a_record() {
    let fixture = fixture(rules(), &[("Topic:orders", &["Pub"]), ("Group:g", &["Sub"])]);
    let end = signed("alice", SECRET, plain(request::END_TRANSACTION, &[("producerGroup", "p")], ""));
    assert_eq!(fixture.check(&end), Ok(()), "clients of Go and C++ name no topic");
    let from = "10.0.0.1:1".parse().unwrap();
    let refusal = |topic, action| fixture.guard.refusal_of_topic(from, &end, topic, Actions::of(&[action]));
    assert!(refusal("orders", Action::Pub).is_none());
    assert!(refusal("orders", Action::Sub).is_some());
    assert!(refusal("payments", Action::Pub).is_some());
    assert!(refusal("%RETRY%g", Action::Sub).is_none() && refusal("%DLQ%g", Action::Sub).is_none());
    assert!(refusal("%DLQ%other", Action::Sub).is_some());
}

#[test]
fn changes_of_administrators_and_denials_are_audited() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let config = crate::AuditConfig { path: path.clone(), max_bytes: 1 << 20, kept_files: 1 };
    let fixture = fixture(rules(), &[("Topic:orders", &["Create"])]);
    let audit = Audit::open(config).unwrap();
    let guard = Guard::new(fixture.guard.accounts().clone(), rules(), Some(audit));
    let from: SocketAddr = "10.0.0.1:4711".parse().unwrap();
    let send = |command: &Command| match guard.check(command, from, NOW_MS) {
        Ok(()) => guard.note_admitted(from, command, true),
        Err(denial) => drop(guard.refuse(from, command, &denial)),
    };
    send(&signed("alice", SECRET, plain(request::UPDATE_AND_CREATE_TOPIC, &[("topic", "orders")], "")));
    send(&signed("alice", SECRET, plain(request::DELETE_TOPIC_IN_BROKER, &[("topic", "orders")], "")));
    send(&signed("root", "secret of root", plain(request::AUTH_CREATE_USER, &[("username", "bob")], "")));
    send(&signed("root", "secret of root", plain(request::GET_BROKER_CONFIG, &[], "")));
    for name in ["bob", "alice"] {
        send(&signed("root", "secret of root", plain(request::AUTH_GET_USER, &[("username", name)], "")));
    }
    send(&signed("root", "secret of root", plain(request::AUTH_LIST_USER, &[], "")));
    let copy = proven("root", "secret of root", plain(request::COPY_ACCOUNTS, &[], ""));
    send(&copy);
    guard.note(from, &copy, "copied");
    drop(guard);
    let text = rocketpy_env::Disk::read(&rocketpy_env::RealDisk, &path, 1 << 20).unwrap();
    let text = String::from_utf8(text).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = |line: &serde_json::Value| {
        let member = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        [member("user"), member("request"), member("resource"), member("action")].join(" ")
    };
    let expected = [
        "alice UPDATE_AND_CREATE_TOPIC Topic:orders Create",
        "alice DELETE_TOPIC_IN_BROKER Topic:orders Delete",
        "root AUTH_CREATE_USER User:bob Update",
        "root AUTH_GET_USER User:alice Get",
        "root AUTH_LIST_USER Cluster:east Get",
        "root COPY_ACCOUNTS Cluster:east All",
    ];
    let what = "no line about another question, nor about a user that is not there";
    assert_eq!(lines.iter().map(told).collect::<Vec<_>>(), expected, "{what}");
    assert_eq!(lines[4]["result"], "admitted, the answer has passwords");
    assert_eq!(lines[0]["result"], "admitted");
    assert!(lines[1]["result"].as_str().unwrap().contains("no matched policies"));
    assert!(!text.contains("secret of"));
}

#[test]
fn request_that_waited_is_refused_once_its_user_lost_its_rights() {
    let fixture = fixture(rules(), &[("Topic:orders", &["Sub"]), ("Group:g", &["Sub"])]);
    let accounts = fixture.guard.accounts();
    let from: SocketAddr = "10.0.0.1:4711".parse().unwrap();
    let fields = &[("topic", "orders"), ("consumerGroup", "g")];
    let pull = signed("alice", SECRET, plain(request::PULL_MESSAGE, fields, ""));
    let messages = Permit { topic: "orders", group: Some("g"), actions: Actions::of(&[Action::Sub]) };
    let remarks = || {
        let whole = fixture.guard.refusal_after_wait(from, &pull);
        let permit = fixture.guard.refusal_of_permit(request::PULL_MESSAGE, Some("alice"), from, messages);
        [whole, permit].map(|refusal| refusal.map(|refusal| refusal.command.remark.unwrap()))
    };
    assert_eq!(remarks(), [None, None], "neither signature nor proof is checked again");
    accounts.delete_policies("User:alice", None, Some("Group:g"), Caller::Super).unwrap();
    for remark in remarks() {
        assert!(remark.as_ref().is_some_and(|remark| remark.contains("access Group:g")), "{remark:?}");
    }
    accounts.set_policies("User:alice", &acl(&[("Group:g", &["Sub"])]), Caller::Super).unwrap();
    let status = |status: &str| UserInfo { user_status: Some(status.to_owned()), ..UserInfo::default() };
    accounts.update_user("alice", &status("disable"), Caller::Super).unwrap();
    assert_eq!(remarks(), [(); 2].map(|()| Some("User:alice is disabled.".to_owned())));
    assert!(!fixture.guard.still_admits(Some("alice")));
    accounts.update_user("alice", &status("enable"), Caller::Super).unwrap();
    assert_eq!(remarks(), [None, None]);
    accounts.delete_user("alice", Caller::Super).unwrap();
    assert_eq!(remarks(), [(); 2].map(|()| Some("User:alice is not found.".to_owned())));
}

#[test]
fn request_that_waited_without_policies_needs_its_user_alone() {
    let fixture = fixture(Rules { authorization: false, ..rules() }, &[]);
    let from: SocketAddr = "10.0.0.1:4711".parse().unwrap();
    let pull = signed("alice", SECRET, plain(request::PULL_MESSAGE, &[("topic", "orders")], ""));
    assert!(fixture.guard.refusal_after_wait(from, &pull).is_none());
    fixture.guard.accounts().delete_user("alice", Caller::Super).unwrap();
    assert!(fixture.guard.refusal_after_wait(from, &pull).is_some());
}

//! Users and policies: changes, limits, files, copies.

use rocketpy_env::{Disk, RealDisk};
use rocketpy_protocol::body::{PolicyEntryInfo, PolicyInfo};
use rocketpy_protocol::code::response;
use rocketpy_protocol::json;

use super::*;

struct Fixture {
    accounts: Arc<Accounts>,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config").join("users.json");
    let accounts = Accounts::open(path.clone()).unwrap();
    Fixture { accounts, path, _folder: folder }
}

fn password(text: &str) -> UserInfo {
    UserInfo { password: Some(Password(text.to_owned())), ..UserInfo::default() }
}

fn entry(resource: &str) -> PolicyEntryInfo {
    PolicyEntryInfo {
        resource: Some(resource.to_owned()),
        actions: vec!["Pub".to_owned()],
        decision: Some("Allow".to_owned()),
        source_ips: Vec::new(),
    }
}

fn acl(entries: Vec<PolicyEntryInfo>) -> AclInfo {
    AclInfo { policies: vec![PolicyInfo { entries, policy_type: None }], subject: None }
}

#[test]
fn users_and_policies_are_there_after_a_restart_and_readable_by_their_owner_alone() {
    let Fixture { accounts, path, .. } = fixture();
    assert!(accounts.is_empty());
    accounts.create_user("alice", &password("first"), Caller::Super).unwrap();
    let second = UserInfo { new_password: Some(Password("second".to_owned())), ..UserInfo::default() };
    accounts.update_user("alice", &second, Caller::Super).unwrap();
    let group = PolicyEntryInfo { actions: vec!["Sub".to_owned()], ..entry("Group:*") };
    accounts
        .set_policies("User:alice", &acl(vec![entry("Topic:o*"), group, entry("*")]), Caller::Super)
        .unwrap();
    assert!(accounts.ensure_super("root", "secret").unwrap());
    assert!(!accounts.ensure_super("root", "another").unwrap());
    for file in [path.clone(), path.with_file_name("users.json.bak")] {
        assert!(RealDisk.is_private(&file).unwrap(), "{}", file.display());
    }
    let again = Accounts::open(path).unwrap();
    assert_eq!(again.user("alice"), accounts.user("alice"));
    let secrets = again.user("alice").unwrap().secrets;
    assert_eq!(secrets.iter().collect::<Vec<_>>(), ["second", "first"]);
    assert_eq!(again.users(""), accounts.users(""));
    assert_eq!(again.policies("", ""), accounts.policies("", ""));
    assert_eq!(again.version(), accounts.version());
    assert_eq!(again.user("root").unwrap().secrets.newest(), "secret");
}

#[test]
fn answers_are_those_of_apache() {
    let Fixture { accounts, .. } = fixture();
    let said = |result: Result<(), AccountsError>| {
        let error = result.unwrap_err();
        (error.code(), error.to_string())
    };
    let (refused, invalid) = (response::NO_PERMISSION, response::INVALID_PARAMETER);
    accounts.create_user("alice", &password("secret"), Caller::Super).unwrap();
    let text = |text: &str| text.to_owned();
    assert_eq!(
        said(accounts.create_user("alice", &password("x"), Caller::Super)),
        (refused, text("The user is existed"))
    );
    assert_eq!(said(accounts.create_user("", &password("x"), Caller::Super)).0, invalid);
    assert_eq!(
        said(accounts.create_user("bob", &UserInfo::default(), Caller::Super)),
        (refused, text("password can not be blank"))
    );
    assert_eq!(
        said(accounts.update_user("bob", &password("x"), Caller::Super)),
        (refused, text("The user is not exist"))
    );
    assert_eq!(
        said(accounts.set_policies("User:bob", &acl(vec![entry("*")]), Caller::Super)),
        (refused, text("The subject of User:bob is not exist."))
    );
    assert_eq!(
        said(accounts.set_policies("User:alice", &AclInfo::default(), Caller::Super)),
        (refused, text("The policies is empty."))
    );
    assert_eq!(
        said(accounts.delete_policies("User:alice", None, None, Caller::Super)),
        (refused, text("The acl is not exist."))
    );
    assert_eq!(accounts.policies_of("User:alice").unwrap(), None);
    accounts.delete_user("nobody", Caller::Normal).unwrap();
}

#[test]
fn policies_are_replaced_by_resource_and_go_with_their_user() {
    let Fixture { accounts, .. } = fixture();
    accounts.create_user("alice", &password("secret"), Caller::Super).unwrap();
    accounts
        .set_policies("User:alice", &acl(vec![entry("Topic:a"), entry("Topic:b")]), Caller::Super)
        .unwrap();
    let denied = PolicyEntryInfo { decision: Some("Deny".to_owned()), ..entry("Topic:a") };
    let version = accounts.version();
    accounts.set_policies("User:alice", &acl(vec![denied.clone()]), Caller::Super).unwrap();
    assert_ne!(accounts.version(), version);
    let version = accounts.version();
    accounts.set_policies("User:alice", &acl(vec![denied.clone()]), Caller::Super).unwrap();
    assert_eq!(accounts.version(), version, "nothing changed");
    let entries = accounts.policies_of("User:alice").unwrap().unwrap().policies.remove(0).entries;
    assert_eq!(entries, [denied, entry("Topic:b")]);
    assert_eq!(accounts.policies("lic", "Topic:b")[0].policies[0].entries, [entry("Topic:b")]);
    assert!(accounts.policies("bob", "").is_empty());
    accounts.delete_policies("User:alice", Some(""), Some("Topic:zzz"), Caller::Super).unwrap();
    accounts.delete_policies("User:alice", Some("Custom"), Some("Topic:b"), Caller::Super).unwrap();
    accounts.delete_policies("User:alice", Some("Default"), Some("Topic:a"), Caller::Super).unwrap();
    assert_eq!(accounts.policies_of("User:alice").unwrap().unwrap().policies[0].entries.len(), 1);
    accounts.delete_user("alice", Caller::Normal).unwrap();
    accounts.create_user("alice", &password("secret"), Caller::Super).unwrap();
    assert_eq!(accounts.policies_of("User:alice").unwrap(), None);
}

/// Attack 25, and its relatives: a user that may manage users takes the place of a super user.
#[test]
fn super_user_is_changed_by_super_users_alone() {
    let Fixture { accounts, .. } = fixture();
    accounts.ensure_super("root", "secret").unwrap();
    accounts.create_user("alice", &password("secret"), Caller::Normal).unwrap();
    let becomes_super = UserInfo { user_type: Some("Super".to_owned()), ..password("x") };
    let becomes_normal = UserInfo { user_type: Some("Normal".to_owned()), ..UserInfo::default() };
    let disable = UserInfo { user_status: Some("disable".to_owned()), ..UserInfo::default() };
    let refused = [
        accounts.create_user("mallory", &becomes_super, Caller::Normal),
        accounts.update_user("alice", &becomes_super, Caller::Normal),
        accounts.update_user("root", &password("mine"), Caller::Normal),
        accounts.update_user("root", &disable, Caller::Normal),
        accounts.update_user("root", &becomes_normal, Caller::Normal),
        accounts.delete_user("root", Caller::Normal),
    ];
    for result in refused {
        let error = result.unwrap_err();
        assert_eq!(error.code(), response::SYSTEM_ERROR, "{error}");
    }
    accounts.update_user("alice", &becomes_super, Caller::Super).unwrap();
}

/// Attack 24.
#[test]
fn hostile_names_and_secrets_are_refused() {
    let Fixture { accounts, .. } = fixture();
    let long = "x".repeat(65_536);
    for name in ["a\nb", "a\0", "*", "a*", "%41", "a:b", "a b", "\u{202e}a", "ä", "", " ", &long] {
        assert!(accounts.create_user(name, &password("secret"), Caller::Super).is_err(), "{name:.20?}");
        assert!(accounts.update_user(name, &password("secret"), Caller::Super).is_err(), "{name:.20?}");
    }
    accounts.create_user("a-b_c.d@e.org", &password("secret"), Caller::Super).unwrap();
    accounts.create_user("alice", &password("secret"), Caller::Super).unwrap();
    for secret in ["", " ", "a\nb", "a\0", "a\u{1b}", &long] {
        assert!(accounts.create_user("bob", &password(secret), Caller::Super).is_err(), "{secret:.20?}");
    }
}

/// Attack 24.
#[test]
fn hostile_policies_are_refused() {
    let Fixture { accounts, .. } = fixture();
    accounts.create_user("alice", &password("secret"), Caller::Super).unwrap();
    let long = "x".repeat(65_536);
    let resources = [
        "",
        "Topic",
        "Topic:",
        "Topic:a*b",
        "Topic:a,b",
        "Topic:*a",
        "Namespace:*",
        "Topic:**",
        "Topic:a\n",
        "Topic:a\0",
        "Topic:a b",
        "Topic:@",
        "Queue:a",
        "**",
        "Topic:%RETRY%g",
        "Topic:%DLQ%*",
        "Group:%RETRY%g",
        " *",
        &format!("Topic:{long}"),
        &format!("Topic:{long}*"),
    ];
    for resource in resources {
        let result = accounts.set_policies("User:alice", &acl(vec![entry(resource)]), Caller::Super);
        assert!(result.is_err_and(|error| error.to_string().len() < 1_000), "{resource:.20?}");
    }
    for ip in ["", "10.0.0.0/33", "a", "10.0.0.1\n", "*", "10.0.0.*", "1.2.3.4/0x8"] {
        let limited = PolicyEntryInfo { source_ips: vec![ip.to_owned()], ..entry("*") };
        assert!(accounts.set_policies("User:alice", &acl(vec![limited]), Caller::Super).is_err(), "{ip:?}");
    }
    for ip in ["0.0.0.0/0", "::/0", "::ffff:10.0.0.1", "10.0.0.1"] {
        let limited = PolicyEntryInfo { source_ips: vec![ip.to_owned()], ..entry("*") };
        accounts.set_policies("User:alice", &acl(vec![limited]), Caller::Super).unwrap();
    }
    for actions in [vec![], vec!["Any".to_owned()], vec!["Pup".to_owned()], vec![String::new()]] {
        assert!(
            accounts
                .set_policies(
                    "User:alice",
                    &acl(vec![PolicyEntryInfo { actions, ..entry("*") }]),
                    Caller::Super
                )
                .is_err()
        );
    }
    for subject in ["alice", "Role:alice", "User:", "User:*", "User:a\n", ""] {
        assert!(
            accounts.set_policies(subject, &acl(vec![entry("*")]), Caller::Super).is_err(),
            "{subject:?}"
        );
        assert!(
            accounts.policies_of(subject).is_err()
                && accounts.delete_policies(subject, None, None, Caller::Super).is_err()
        );
    }
}

/// Attack 26.
#[test]
fn deep_and_large_bodies_are_refused() {
    let deep = format!("{{\"policies\":{}", "[".repeat(100_000));
    assert!(json::from_str::<AclInfo>(&deep).is_err());
    assert!(json::from_str::<UserInfo>(&format!("{{\"password\":{}", "{\"a\":".repeat(100_000))).is_err());
    let Fixture { accounts, .. } = fixture();
    accounts.create_user("alice", &password("secret"), Caller::Super).unwrap();
    let entries = |count: usize| (0..count).map(|n| entry(&format!("Topic:t{n}"))).collect::<Vec<_>>();
    accounts.set_policies("User:alice", &acl(entries(MAX_POLICIES)), Caller::Super).unwrap();
    assert!(accounts.set_policies("User:alice", &acl(vec![entry("Topic:another")]), Caller::Super).is_err());
    assert!(accounts.set_policies("User:alice", &acl(entries(100_000)), Caller::Super).is_err());
    let ips = PolicyEntryInfo { source_ips: vec!["10.0.0.1".to_owned(); 1_000], ..entry("Topic:t1") };
    assert!(accounts.set_policies("User:alice", &acl(vec![ips]), Caller::Super).is_err());
}

#[test]
fn users_are_bounded() {
    let Fixture { accounts, path, .. } = fixture();
    accounts.create_user("alice", &password("secret"), Caller::Super).unwrap();
    let alice = accounts.user("alice").unwrap();
    accounts
        .change(|users| {
            for n in 1..MAX_USERS {
                let name = format!("u{n}");
                users.insert(name.clone().into(), Account::new(User { name, ..alice.clone() }, Vec::new()));
            }
            Ok(true)
        })
        .unwrap();
    let error = accounts.create_user("one-more", &password("secret"), Caller::Super).unwrap_err();
    assert_eq!(error.to_string(), "users exceed 10000, delete some first");
    assert_eq!(Accounts::open(path).unwrap().users("").len(), MAX_USERS);
}

#[test]
fn file_that_others_can_read_or_that_is_damaged_stops_the_start() {
    let Fixture { accounts, path, .. } = fixture();
    accounts.create_user("alice", &password("secret"), Caller::Super).unwrap();
    accounts.create_user("bob", &password("secret"), Caller::Super).unwrap();
    let good = RealDisk.read(&path, 1 << 20).unwrap();
    RealDisk.remove_file(&path).unwrap();
    RealDisk.replace(&path, &good).unwrap();
    let error = Accounts::open(path.clone()).unwrap_err();
    assert!(error.to_string().contains("chmod 600"), "{error}");
    RealDisk.replace_private(&path, &good[..good.len() / 2]).unwrap();
    let error = Accounts::open(path.clone()).unwrap_err();
    assert!(matches!(error, AccountsError::Damaged { .. }), "the backup lacks the last change: {error}");
    assert!(!error.to_string().contains("secret"), "{error}");
    RealDisk.replace_private(&path, &good).unwrap();
    RealDisk.replace_private(&path, &good).unwrap();
    for table in [r#"{}"#, r#"{"users":null}"#, "null", "[]", ""] {
        RealDisk.replace_private(&path, table.as_bytes()).unwrap();
        let error = Accounts::open(path.clone()).unwrap_err();
        assert!(matches!(error, AccountsError::Damaged { .. }), "{table}: {error}");
        assert!(
            error.to_string().contains("users.json") && error.to_string().contains("--offline"),
            "{error}"
        );
    }
    RealDisk.replace_private(&path, br#"{"users":{}}"#).unwrap();
    assert!(Accounts::open(path.clone()).unwrap().is_empty(), "all users were deleted");
}

#[test]
fn missing_file_with_a_backup_stops_the_start() {
    let Fixture { accounts, path, .. } = fixture();
    assert!(accounts.is_new());
    for name in ["alice", "bob"] {
        accounts.create_user(name, &password("secret"), Caller::Super).unwrap();
    }
    accounts.delete_user("bob", Caller::Super).unwrap();
    assert!(!Accounts::open(path.clone()).unwrap().is_new());
    RealDisk.remove_file(&path).unwrap();
    let error = Accounts::open(path.clone()).unwrap_err();
    assert!(matches!(error, AccountsError::Missing { .. }), "bob would be back: {error}");
    assert!(error.to_string().contains("users.json") && error.to_string().contains("--offline"), "{error}");
    let anew = Accounts::open_anew(path.clone()).unwrap();
    anew.ensure_super("root", "secret").unwrap();
    let names: Vec<_> = Accounts::open(path).unwrap().users("").into_iter().map(|user| user.name).collect();
    assert_eq!(names, ["root"]);
}

#[test]
fn table_that_slaves_could_not_copy_is_refused() {
    let Fixture { accounts, .. } = fixture();
    let source_ips = |n: usize| {
        (0..256).map(|at| format!("2001:db8:1111:2222:3333:4444:{:x}:{:x}", n + 1, at + 1)).collect()
    };
    let large =
        || (0..1_000).map(|n| PolicyEntryInfo { source_ips: source_ips(n), ..entry(&format!("Topic:t{n}")) });
    let large = acl(large().collect());
    for name in ["alice", "bob"] {
        accounts.create_user(name, &password("secret"), Caller::Super).unwrap();
    }
    accounts.set_policies("User:alice", &large, Caller::Super).unwrap();
    let before = accounts.version();
    let error = accounts.set_policies("User:bob", &large, Caller::Super).unwrap_err();
    assert!(matches!(error, AccountsError::TooLarge { .. }), "{error}");
    assert!(error.to_string().contains("15728640 bytes"), "{error}");
    assert_eq!((accounts.version(), accounts.policies_of("User:bob").unwrap()), (before, None));
    let listed = json::to_vec(&accounts.policies("", "")).len();
    let copied = accounts.snapshot().seal("inner", b"request").unwrap().len();
    assert!(listed <= copied && copied < 16 << 20, "{listed}, {copied}");
    accounts.delete_policies("User:alice", None, None, Caller::Super).unwrap();
    accounts.set_policies("User:bob", &large, Caller::Super).unwrap();
}

#[test]
fn table_above_the_limit_may_shrink() {
    let Fixture { accounts, .. } = fixture();
    let policies = || acl((0..3).map(|n| entry(&format!("Topic:t{n}"))).collect());
    accounts.create_user("alice", &password("secret"), Caller::Super).unwrap();
    accounts.set_policies("User:alice", &policies(), Caller::Super).unwrap();
    let size = Content::of(accounts.version(), &accounts.state.load().users).size_bytes();
    assert!(is_too_large(size + 1, || size, size - 1));
    assert!(!is_too_large(size - 10, || size, size - 20), "it shrinks");
    assert!(!is_too_large(size + 1, || size, size + 1));
}

#[test]
fn entries_that_contradict_each_other_are_refused() {
    let Fixture { accounts, .. } = fixture();
    accounts.create_user("alice", &password("secret"), Caller::Super).unwrap();
    let denied = PolicyEntryInfo { decision: Some("Deny".to_owned()), ..entry("Topic:a") };
    let error =
        accounts.set_policies("User:alice", &acl(vec![denied, entry("Topic:a")]), Caller::Super).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Topic:a has two entries of type Custom that contradict each other, give it one"
    );
    assert_eq!(accounts.policies_of("User:alice").unwrap(), None);
    accounts
        .set_policies("User:alice", &acl(vec![entry("Topic:a"), entry("Topic:a")]), Caller::Super)
        .unwrap();
}

#[test]
fn policies_of_a_super_user_are_changed_by_super_users_only() {
    let Fixture { accounts, .. } = fixture();
    accounts.ensure_super("root", "secret").unwrap();
    let policies = acl(vec![entry("Topic:a")]);
    let denied =
        |result: Result<(), AccountsError>| assert!(matches!(result, Err(AccountsError::NeedsSuper { .. })));
    denied(accounts.set_policies("User:root", &policies, Caller::Normal));
    accounts.set_policies("User:root", &policies, Caller::Super).unwrap();
    denied(accounts.delete_policies("User:root", None, None, Caller::Normal));
    accounts.delete_policies("User:root", None, None, Caller::Super).unwrap();
}

#[test]
fn refused_kinds_are_not_repeated() {
    let Fixture { accounts, .. } = fixture();
    let info = UserInfo { user_type: Some("my password".to_owned()), ..password("secret") };
    let error = accounts.create_user("alice", &info, Caller::Super).unwrap_err();
    assert_eq!(error.to_string(), "userType must be Super or Normal");
}

#[test]
fn change_that_is_not_written_is_not_seen() {
    let Fixture { accounts, path, .. } = fixture();
    accounts.create_user("alice", &password("secret"), Caller::Super).unwrap();
    // The temporary file cannot take the name of a folder.
    RealDisk.create_dir_all(&path.with_file_name("users.json.tmp").join("x")).unwrap();
    let error = accounts.create_user("bob", &password("secret"), Caller::Super).unwrap_err();
    assert!(matches!(error, AccountsError::File(_)), "{error}");
    assert_eq!(accounts.user("bob"), None);
    assert_eq!(accounts.users("").len(), 1);
}

#[test]
fn snapshot_takes_everything_to_another_server_encrypted() {
    let Fixture { accounts, .. } = fixture();
    accounts.ensure_super("root", "secret of root").unwrap();
    accounts.create_user("alice", &password("secret of alice"), Caller::Super).unwrap();
    accounts.set_policies("User:alice", &acl(vec![entry("Topic:o*")]), Caller::Super).unwrap();
    let sealed = accounts.snapshot().seal("inner", b"request 1").unwrap();
    let holds = |text: &[u8]| sealed.windows(text.len()).any(|window| window == text);
    assert!(!holds(b"secret of") && !holds(b"alice"));
    assert_ne!(sealed, accounts.snapshot().seal("inner", b"request 1").unwrap(), "each has its own key");
    for (secret, context) in [("other", &b"request 1"[..]), ("inner", b"request 2")] {
        assert!(Snapshot::unseal(&sealed, secret, context).is_err());
    }
    let mut changed = sealed.clone();
    for at in [0, 31, 32, sealed.len() / 2, sealed.len() - 1] {
        changed[at] ^= 1;
        assert!(Snapshot::unseal(&changed, "inner", b"request 1").is_err(), "{at}");
        changed[at] ^= 1;
    }
    for length in [0, 1, 32, 47, sealed.len() - 1] {
        assert!(Snapshot::unseal(&sealed[..length], "inner", b"request 1").is_err(), "{length}");
    }
    let slave = fixture();
    slave.accounts.ensure_super("stale", "secret").unwrap();
    slave.accounts.replace(&Snapshot::unseal(&sealed, "inner", b"request 1").unwrap()).unwrap();
    for copy in [slave.accounts, Accounts::open(slave.path).unwrap()] {
        assert_eq!(copy.users(""), accounts.users(""));
        assert_eq!(copy.policies("", ""), accounts.policies("", ""));
        assert_eq!(copy.version(), accounts.version());
    }
    let shown = format!("{:?} {:?}", accounts.snapshot(), accounts.users(""));
    assert!(!shown.contains("secret of"), "{shown}");
}

#[test]
fn second_rotation_is_refused_until_the_first_one_is_finished() {
    let Fixture { accounts, .. } = fixture();
    accounts.create_user("alice", &password("first"), Caller::Super).unwrap();
    let rotate = |secret: &str| {
        let info = UserInfo { new_password: Some(Password(secret.to_owned())), ..UserInfo::default() };
        accounts.update_user("alice", &info, Caller::Super)
    };
    let secrets = || accounts.user("alice").unwrap().secrets.iter().map(str::to_owned).collect::<Vec<_>>();
    rotate("second").unwrap();
    rotate("second").unwrap();
    for other in ["third", "first"] {
        let refused = rotate(other).unwrap_err().to_string();
        assert!(refused.contains("user finish-rotation"), "{refused}");
    }
    assert_eq!(secrets(), ["second", "first"]);
    let finish = UserInfo { rotating: Some(false), ..UserInfo::default() };
    accounts.update_user("alice", &finish, Caller::Super).unwrap();
    rotate("third").unwrap();
    assert_eq!(secrets(), ["third", "second"]);
}

#[test]
fn refused_resource_is_named_with_the_forms_that_are_accepted() {
    let Fixture { accounts, .. } = fixture();
    accounts.create_user("alice", &password("secret"), Caller::Super).unwrap();
    let refusal = |entry| {
        accounts.set_policies("User:alice", &acl(vec![entry]), Caller::Super).unwrap_err().to_string()
    };
    for resource in ["Topic:or*ers", "Topic:a,b"] {
        let text = refusal(entry(resource));
        assert!(text.contains(&format!("{resource:?}")) && text.contains("a prefix and *"), "{text}");
    }
    assert_eq!(
        refusal(entry("Group:readers")),
        "no request needs Pub on Group:readers: actions of Group are Sub,Create,Update,Delete,Get"
    );
    assert!(refusal(entry("Namespace:prod")).contains("Topic:NAMESPACE%*"));
    // mqadmin gives all resources of a command the same actions.
    let both =
        PolicyEntryInfo { actions: vec!["Pub".to_owned(), "Sub".to_owned()], ..entry("Group:readers") };
    accounts.set_policies("User:alice", &acl(vec![both]), Caller::Super).unwrap();
    accounts
        .set_policies("User:alice", &acl(vec![entry("Group:readers"), entry("Topic:orders")]), Caller::Super)
        .unwrap();
}

//! Users and policies of `plain_acl.yml`.

use super::*;

const FILE: &str = r#"
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
      - topicD=anything
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB

  - accessKey: rocketmq2
    secretKey: "12345678"
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"#;

struct Fixture {
    folder: tempfile::TempDir,
    accounts: std::sync::Arc<Accounts>,
}

fn fixture(files: &[(&str, &str)]) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    RealDisk.create_dir_all(&folder.path().join("acl")).unwrap();
    for (name, text) in files {
        RealDisk.replace(&folder.path().join(name), text.as_bytes()).unwrap();
    }
    let accounts = Accounts::open(folder.path().join("users.json")).unwrap();
    Fixture { folder, accounts }
}

#[test]
fn accounts_become_users_and_permissions_policies() {
    let more =
        "accounts:\n- {accessKey: more, secretKey: secret8}\n- {accessKey: RocketMQ, secretKey: other678}\n";
    let Fixture { folder, accounts } =
        fixture(&[("plain_acl.yml", FILE), ("acl/more.yml", more), ("acl/x.txt", "?")]);
    let migrated = migrate(&accounts, folder.path()).unwrap();
    assert_eq!(migrated.created, ["RocketMQ", "rocketmq2", "more"]);
    assert_eq!(migrated.skipped, ["RocketMQ"], "it stays as the first file has it");
    assert_eq!(migrated.white_addresses, ["10.10.103.*", "192.168.0.*", "192.168.1.*"]);
    assert!(accounts.user("rocketmq2").unwrap().is_super());
    let user = accounts.user("RocketMQ").unwrap();
    assert!(!user.is_super());
    assert_eq!(user.secrets.newest(), "12345678");
    let acl = accounts.policies_of("User:RocketMQ").unwrap().unwrap();
    let told = |policy: usize| -> Vec<String> {
        let entries = acl.policies[policy].entries.iter();
        entries
            .map(|entry| {
                let (resource, decision) = (entry.resource.as_deref(), entry.decision.as_deref());
                format!("{} {} {}", resource.unwrap(), entry.actions.join(","), decision.unwrap())
            })
            .collect()
    };
    assert_eq!(
        told(0),
        [
            "Topic:topicA All Deny",
            "Topic:topicB Pub,Sub Allow",
            "Topic:topicC Sub Allow",
            "Topic:topicD All Deny",
            "Group:groupA All Deny",
            "Group:groupB Pub,Sub Allow",
        ]
    );
    assert_eq!(told(1), ["Topic:* All Deny", "Group:* Sub Allow"]);
    let again = migrate(&accounts, folder.path()).unwrap();
    assert_eq!((again.created.len(), again.skipped.len()), (0, 4));
}

#[test]
fn missing_and_empty_files_are_fine() {
    let Fixture { folder, accounts } = fixture(&[("acl/empty.yml", "\n")]);
    assert_eq!(migrate(&accounts, folder.path()).unwrap(), Migrated::default());
}

#[test]
fn faulty_file_is_named_without_its_secrets() {
    for (text, reason) in [
        ("accounts:\n- {accessKey: a b, secretKey: hidden78}\n", "cannot take over account \"a b\""),
        ("accounts:\n- {accessKey: a, secretKey: ''}\n", "password can not be blank"),
        (
            "accounts:\n- {accessKey: a, secretKey: hidden78, topicPerms: [t]}\n",
            "topicPerms must be NAME=PERMISSION",
        ),
        ("accounts:\n- {accessKey: a, secretKey: hidden78, admin: maybe}\n", "line 2"),
        ("accounts:\n- accessKey: [hidden78\n", "not YAML"),
        ("a: &a [*a]\nb: {x: *a}\n- c", "not YAML"),
    ] {
        let Fixture { folder, accounts } = fixture(&[("plain_acl.yml", text)]);
        let error = migrate(&accounts, folder.path()).unwrap_err().to_string();
        assert!(error.contains("plain_acl.yml") && error.contains(reason), "{error}");
        assert!(!error.contains("hidden78"), "{error}");
    }
}

#[test]
fn deep_and_large_files_are_refused() {
    let deep = format!("accounts: {}", "[".repeat(100_000));
    let bomb = (0..30).fold("a0: &a0 [x]\n".to_owned(), |text, n| {
        format!("{text}a{}: &a{} [{}]\n", n + 1, n + 1, vec![format!("*a{n}"); 9].join(","))
    });
    for text in [deep, format!("{bomb}accounts: *a30\n")] {
        let Fixture { folder, accounts } = fixture(&[("plain_acl.yml", &text)]);
        assert!(migrate(&accounts, folder.path()).is_err());
    }
}

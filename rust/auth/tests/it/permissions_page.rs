//! docs/permissions.md says of every request what a user needs for it: its table is made of the table of needs.

use std::collections::BTreeSet;

use bytes::Bytes;
use rocketpy_auth::{Accounts, Action, Caller, Need, Target, needs};
use rocketpy_env::{Disk, RealDisk};
use rocketpy_protocol::Command;
use rocketpy_protocol::body::{AclInfo, Password, PolicyEntryInfo, PolicyInfo, UserInfo};
use rocketpy_protocol::code::request::{self, Party};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/permissions.md");
const MAKE: &str = "UPDATE_DOCS=1 cargo test -p rocketpy-auth --test it permissions_page";
const TABLE: &str = "<!-- table -->\n";

/// A request that names a topic `T`, a group `G` and so on wherever it can.
fn sample(code: i32) -> Command {
    let fields = [
        ("topic", "TOPIC"),
        ("b", "TOPIC"),
        ("originTopic", "TOPIC"),
        ("group", "GROUP"),
        ("consumerGroup", "GROUP"),
        ("groupName", "GROUP"),
        ("srcGroup", "SOURCE"),
        ("destGroup", "TARGET"),
        ("clusterName", "CLUSTER"),
    ];
    let body = match code {
        request::HEART_BEAT => {
            r#"{"consumerDataSet":[{"groupName":"GROUP","subscriptionDataSet":[{"topic":"TOPIC"},{"topic":"%RETRY%GROUP"}]}],
            "producerDataSet":[{"groupName":"PRODUCERS"}]}"#
        }
        request::LOCK_BATCH_MQ | request::UNLOCK_BATCH_MQ => {
            r#"{"consumerGroup":"GROUP","mqSet":[{"topic":"TOPIC","brokerName":"b","queueId":0}]}"#
        }
        request::CHECK_CLIENT_CONFIG => r#"{"group":"GROUP","subscriptionData":{"topic":"TOPIC"}}"#,
        request::UPDATE_AND_CREATE_TOPIC_LIST => r#"{"topicConfigList":[{"topicName":"TOPIC"}]}"#,
        request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP => r#"{"groupName":"GROUP"}"#,
        request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST => r#"{"groupConfigList":[{"groupName":"GROUP"}]}"#,
        _ => "",
    };
    let mut command = Command::bare_request(code);
    command.ext = fields.into_iter().collect();
    command.body = Bytes::from_static(body.as_bytes());
    command
}

fn text(need: &Need<'_>) -> String {
    let resource = match &need.target {
        Target::Peers | Target::OfOthers(_) => return "a super user".to_owned(),
        Target::OwnCluster => "Cluster".to_owned(),
        Target::Cluster(_) => "Cluster (that it names)".to_owned(),
        Target::Topic(_) => "Topic".to_owned(),
        Target::Group(name) if name == "GROUP" => "Group".to_owned(),
        Target::Group(name) => format!("Group ({})", name.to_lowercase()),
    };
    let actions: Vec<&str> = need.actions.iter().map(Action::name).collect();
    format!("{resource} {}", actions.join(" or "))
}

#[test]
fn page_of_permissions_says_what_each_request_needs() {
    let found = String::from_utf8(RealDisk.read(PAGE.as_ref(), 1 << 20).unwrap()).unwrap();
    let (head, _) = found.split_once(TABLE).expect("a table");
    let mut page = format!("{head}{TABLE}\n| code | request | a user needs |\n|---|---|---|\n");
    let asked = request::ALL.iter().filter(|row| matches!(row.asked_of, Party::Broker | Party::NameServer));
    for row in asked {
        let command = sample(row.code);
        let mut needs: Vec<String> = needs(&command).unwrap().iter().map(text).collect();
        needs.sort();
        page += &format!("| {} | {} | {} |\n", row.code, row.name, needs.join("; "));
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        return RealDisk.replace(PAGE.as_ref(), page.as_bytes()).unwrap();
    }
    assert!(found == page, "docs/permissions.md is not what the table of needs says; make it with {MAKE}");
}

/// A policy whose actions no request needs is refused: it would never decide.
#[test]
fn policies_are_accepted_for_the_actions_that_requests_need() {
    let mut needed = BTreeSet::new();
    for row in request::ALL.iter().filter(|row| matches!(row.asked_of, Party::Broker | Party::NameServer)) {
        for need in needs(&sample(row.code)).unwrap() {
            let kind = match need.target {
                Target::OwnCluster | Target::Cluster(_) => "Cluster",
                Target::Topic(_) => "Topic",
                Target::Group(_) => "Group",
                Target::OfOthers(_) | Target::Peers => continue,
            };
            needed.extend(need.actions.iter().map(|action| (kind, action.name())));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let accounts = Accounts::open(folder.path().join("users.json")).unwrap();
    let info = UserInfo { password: Some(Password("secret".to_owned())), ..UserInfo::default() };
    accounts.create_user("alice", &info, Caller::Super).unwrap();
    let mut accepted = BTreeSet::new();
    for kind in ["Cluster", "Topic", "Group", "Namespace"] {
        for action in rocketpy_auth::Actions::ALL.iter().map(Action::name) {
            let entry = PolicyEntryInfo {
                resource: Some(format!("{kind}:a")),
                actions: vec![action.to_owned()],
                decision: Some("Allow".to_owned()),
                ..PolicyEntryInfo::default()
            };
            let acl = AclInfo {
                policies: vec![PolicyInfo { entries: vec![entry], policy_type: None }],
                subject: None,
            };
            if accounts.set_policies("User:alice", &acl, Caller::Super).is_ok() {
                accepted.insert((kind, action));
            }
        }
    }
    assert_eq!(accepted, needed);
}

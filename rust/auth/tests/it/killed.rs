//! A process that is killed while it changes users leaves the state before or after the change.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use rocketpy_auth::{Accounts, Caller};
use rocketpy_protocol::body::{AclInfo, Password, PolicyEntryInfo, PolicyInfo, UserInfo};

/// The folder of the child.
const FOLDER: &str = "ROCKETPY_CHANGE_USERS_IN";
/// Times that a child is killed.
const ROUNDS: usize = 12;

fn change(accounts: &Accounts, number: u64) {
    let password = Some(Password(format!("secret {number}")));
    accounts.update_user("alice", &UserInfo { password, ..UserInfo::default() }, Caller::Super).unwrap();
    let entry = PolicyEntryInfo {
        resource: Some(format!("Topic:t{}", number % 7)),
        actions: vec!["Pub".to_owned()],
        decision: Some(if number.is_multiple_of(2) { "Allow" } else { "Deny" }.to_owned()),
        ..PolicyEntryInfo::default()
    };
    let policies = vec![PolicyInfo { entries: vec![entry], policy_type: None }];
    accounts.set_policies("User:alice", &AclInfo { policies, subject: None }, Caller::Super).unwrap();
}

/// Runs in the child: changes users until it is killed, and prints the answers.
#[test]
fn child_changes_users() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let accounts = Accounts::open(Path::new(&folder).join("users.json")).unwrap();
    let first = number_of(&accounts) + 1;
    for number in first.. {
        change(&accounts, number);
        let mut answers = std::io::stdout().lock();
        writeln!(answers, "\nanswered {number}").unwrap();
        answers.flush().unwrap();
    }
}

fn number_of(accounts: &Accounts) -> u64 {
    let secret = accounts.user("alice").unwrap().secrets.newest().to_owned();
    secret.strip_prefix("secret ").unwrap().parse().unwrap()
}

#[test]
fn killed_process_leaves_the_users_before_or_after_the_change() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.json");
    let first = Some(Password("secret 0".to_owned()));
    let accounts = Accounts::open(path.clone()).unwrap();
    accounts
        .create_user("alice", &UserInfo { password: first, ..UserInfo::default() }, Caller::Super)
        .unwrap();
    drop(accounts);
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::child_changes_users", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut answered = lines.filter_map(|line| line.strip_prefix("answered ")?.parse::<u64>().ok());
        let mut last = answered.nth(round * 2).expect("it answers");
        child.kill().unwrap();
        child.wait().unwrap();
        last = answered.last().unwrap_or(last);
        let accounts = Accounts::open(path.clone()).unwrap();
        let found = number_of(&accounts);
        assert!(found == last || found == last + 1, "{found} was written, {last} was answered");
        accounts.policies_of("User:alice").unwrap().expect("its policies");
    }
}

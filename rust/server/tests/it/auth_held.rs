//! Requests that wait: their users may lose their rights meanwhile.

use std::thread;

use rocketpy_protocol::body::{KvTable, UserInfo};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::DeleteAclRequestHeader;
use rocketpy_protocol::{Command, json};

use crate::auth::{Secured, allow, user_request};
use crate::support::{pull_as, send, wait_until};

/// How long a pull is held that must be answered by something else.
const LONG_MS: i64 = 60_000;

fn held_pulls(server: &Secured) -> String {
    let answer = server.admin.call(&server.broker, Command::bare_request(request::GET_BROKER_RUNTIME_INFO));
    let table: KvTable = json::from_slice(&answer.body).unwrap();
    table.table["heldPulls"].clone()
}

/// The answer to a pull of alice that is held until a message arrives, after a change of the administrator.
fn pulled_after(change: Command) -> Command {
    let server = Secured::start();
    for (resource, actions) in [("Topic:orders", &["Sub"]), ("Group:readers", &["Sub"])] {
        assert_eq!(server.admin.call(&server.broker, allow("alice", resource, actions)).code, 0);
    }
    thread::scope(|scope| {
        let pull =
            scope.spawn(|| server.call_as("alice", &server.broker, pull_as("readers", "orders", 1, LONG_MS)));
        wait_until("the pull is held", || held_pulls(&server) == "1");
        assert_eq!(server.admin.call(&server.broker, change).code, 0);
        assert_eq!(server.admin.call(&server.broker, send("orders", "another secret")).code, 0);
        pull.join().unwrap()
    })
}

#[test]
fn held_pull_delivers_nothing_after_its_policy_was_revoked() {
    let header =
        DeleteAclRequestHeader { subject: "User:alice", policy_type: None, resource: Some("Topic:orders") };
    let answer = pulled_after(Command::request(request::AUTH_DELETE_ACL, &header));
    assert_eq!(answer.code, response::NO_PERMISSION, "{:?}", answer.remark);
    assert!(answer.remark.unwrap().contains("no permission to access Topic:orders"));
    assert!(answer.body.is_empty());
}

#[test]
fn held_pull_delivers_nothing_after_its_user_was_deleted() {
    let answer = pulled_after(user_request(request::AUTH_DELETE_USER, "alice", &UserInfo::default()));
    assert_eq!(answer.code, response::NO_PERMISSION, "{:?}", answer.remark);
    assert_eq!(answer.remark.as_deref(), Some("User:alice is not found."));
    assert!(answer.body.is_empty());
}

#[test]
fn held_pull_delivers_while_its_user_keeps_its_rights() {
    let answer = pulled_after(allow("alice", "Topic:others", &["Sub"]));
    assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
    assert!(!answer.body.is_empty());
}

//! Users and policies: bodies of requests, `plain_acl.yml`, proofs, and what any request needs.

use bytes::Bytes;
use rocketpy_auth::{is_plain_acl, needs, policies_read_back};
use rocketpy_protocol::body::AclInfo;
use rocketpy_protocol::code::request;
use rocketpy_protocol::proof::{self, PROOF, Proof};
use rocketpy_protocol::{Command, json};

use super::Seed;

/// The same bytes as a file of access control 1.0, as policies, as a proof, and as the body of every request.
pub(super) fn auth(bytes: &[u8]) {
    let _ = is_plain_acl(bytes);
    if let Ok(acl) = json::from_slice::<AclInfo>(bytes) {
        assert!(policies_read_back(&acl), "policies that were read write to themselves");
    }
    let text = String::from_utf8_lossy(bytes);
    let mut command = Command::bare_request(0);
    command.ext = text.lines().filter_map(|line| line.split_once('=')).collect();
    command.body = Bytes::copy_from_slice(bytes);
    let _ = proof::is_disguised(&command);
    for row in request::ALL {
        command.code = row.code;
        let _ = needs(&command);
    }
    command.ext.push(PROOF, &text);
    if let Ok(Some(proof)) = Proof::read(&command) {
        assert!(!proof.is_of(&command, "secret"), "nobody guesses a proof");
    }
}

pub(super) fn seeds() -> Vec<Seed> {
    let named = [
        (
            "plain-acl",
            "globalWhiteRemoteAddresses:\n- 10.10.103.*\naccounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n  admin: false\n  \
             defaultTopicPerm: DENY\n  topicPerms:\n  - topicA=PUB|SUB\n  groupPerms: [groupA=DENY]\n",
        ),
        (
            "acl",
            r#"{"subject":"User:a","policies":[{"policyType":"Custom","entries":[{"resource":"Topic:T*","actions":["Pub","Sub"],
            "sourceIps":["10.0.0.0/8","::/0"],"decision":"Allow"}]}]}"#,
        ),
        (
            "user",
            r#"{"username":"a","password":"b","newPassword":"c","rotating":true,"userType":"Super","userStatus":"enable"}"#,
        ),
        (
            "proof",
            "RpProof1;1700000000000;00000000000000070000000000000007;1;AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        ),
        (
            "heartbeat",
            r#"{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"%RETRY%g"},{"topic":"t"}]}]}"#,
        ),
        ("fields", "topic=%RETRY%g\nb=t\nconsumerGroup=g\ngroup=%DLQ%g\nclusterName=c\nAccessKey=a\n"),
    ];
    named.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).into()
}

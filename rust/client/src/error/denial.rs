//! Refusals by the users and policies of a server: who was denied what, and the way out.

use std::borrow::Cow;

use rocketpy_protocol::code::response;

/// Operation that changes users or policies.
pub(crate) const ACCESS_CHANGE: &str = "change of users and policies";
/// Operation that reads them.
pub(crate) const ACCESS_QUERY: &str = "query of users and policies";

/// Actions of policies, as remarks name them.
const ACTIONS: [&str; 7] = ["Pub", "Sub", "Create", "Update", "Delete", "Get", "List"];

/// Whether a refusal denies the caller something. To changes of users, the same code also answers that a user exists or is missing.
pub(super) fn is_denial(operation: &str, code: i32, remark: &str) -> bool {
    let is_about_accounts = operation == ACCESS_CHANGE || operation == ACCESS_QUERY;
    code == response::NO_PERMISSION && (!is_about_accounts || hint(remark).is_some())
}

/// The way out of a denial by users and policies; `None` for another refusal.
///
/// # Source
/// docs/reference/protocol.md 6.3: remarks of Apache's brokers.
pub(super) fn hint(remark: &str) -> Option<Cow<'static, str>> {
    if let Some((user, rest)) = remark.split_once(" has no permission to access ") {
        let user = user.rsplit("User:").next().filter(|user| !user.is_empty()).unwrap_or("USER");
        let mut words = rest.split([' ', ',', '(', ')']).filter(|word| !word.is_empty());
        let resource = words.next().unwrap_or("RESOURCE");
        let action = words.find(|word| ACTIONS.contains(&word.trim_end_matches('.'))).unwrap_or("ACTION");
        let action = action.trim_end_matches('.');
        return Some(
            format!("an administrator allows it: `rocketpy acl grant {user} {resource} {action}`").into(),
        );
    }
    let hints = [
        (
            "username cannot be null",
            "give the client a user: credentials=Credentials(...), --credentials FILE before the command, or ROCKETPY_CREDENTIALS",
        ),
        (
            "proof",
            "clients of RocketPy send it: check the clocks of client and server; clients of Apache need authRequireProof=false",
        ),
        (" has no permission", "only a super user may do so: `rocketpy user update NAME --super`"),
        (
            "signature",
            "check the secret of the user: `rocketpy user update NAME --password` sets another one",
        ),
        ("is disabled", "an administrator enables the user: `rocketpy user update NAME --enable`"),
        ("is not found", "check the access key; `rocketpy user list` shows the users"),
    ];
    hints.iter().find(|(part, _)| remark.contains(part)).map(|(_, hint)| (*hint).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_names_the_command_that_grants_what_was_denied() {
        let denied = |remark| hint(remark).unwrap().into_owned();
        let apache =
            "User:billing has no permission to access Topic:orders from 10.0.0.9, no matched policies.";
        assert!(denied(apache).contains("`rocketpy acl grant billing Topic:orders ACTION`"));
        let ours =
            "User:billing has no permission to access Group:g from 10.0.0.9 for Sub, the decision is deny.";
        assert!(denied(ours).contains("`rocketpy acl grant billing Group:g Sub`"));
        assert!(denied("username cannot be null.").contains("--credentials FILE"));
        assert!(denied("User:x is disabled.").contains("--enable"));
        assert!(denied("check signature failed.").contains("secret"));
        assert_eq!(hint("the topic[orders] sending message is forbidden"), None);
    }

    #[test]
    fn existing_user_is_not_a_denial() {
        let code = response::NO_PERMISSION;
        assert!(!is_denial(ACCESS_CHANGE, code, "The user is existed"));
        assert!(is_denial(
            ACCESS_CHANGE,
            code,
            "User:a has no permission to access Cluster:c from 1.2.3.4, no matched policies."
        ));
        assert!(is_denial("send", code, "the topic[orders] sending message is forbidden"));
    }
}

//! Refusals by the users and policies of a server: who was denied what, and the way out.

use std::borrow::Cow;

use rocketpy_protocol::code::response;

/// Operation that changes users or policies.
pub(crate) const ACCESS_CHANGE: &str = "change of users and policies";
/// Operation that reads them.
pub(crate) const ACCESS_QUERY: &str = "query of users and policies";

/// Actions of policies. Of several of which one is enough, an administrator needs the first: the calls that follow read too.
const ACTIONS: [&str; 7] = ["Get", "Update", "Sub", "Pub", "Create", "Delete", "List"];
/// A server that could not check a signature. It does not say whose.
const BAD_SIGNATURE: &str = "check signature failed";

/// What a user has to be allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Resource of a policy.
    pub resource: String,
    /// Its action.
    pub action: &'static str,
}

impl Grant {
    /// To send to a topic.
    pub(crate) fn publish(topic: &str) -> Self {
        Self { resource: format!("Topic:{topic}"), action: "Pub" }
    }

    /// To read a topic.
    pub(crate) fn subscribe(topic: &str) -> Self {
        Self { resource: format!("Topic:{topic}"), action: "Sub" }
    }

    /// To read as a group.
    pub(crate) fn join(group: &str) -> Self {
        Self { resource: format!("Group:{group}"), action: "Sub" }
    }
}

/// Whether a refusal denies the caller something. To changes of users, the same code also answers that a user exists or is missing.
pub(super) fn is_denial(operation: &str, code: i32, remark: &str) -> bool {
    let is_about_accounts = operation == ACCESS_CHANGE || operation == ACCESS_QUERY;
    code == response::NO_PERMISSION && (!is_about_accounts || hint(remark, &[]).is_some())
}

/// Whether the same request is denied again. A proof that was overtaken is not: each request has a new one.
pub(super) fn is_final(remark: &str) -> bool {
    hint(remark, &[]).is_some() && !remark.contains(OVERTAKEN)
}

/// Names the user of this client in a denial that does not.
pub(crate) fn name_user(remark: &mut String, user: &str) {
    if remark.trim_end_matches('.') == BAD_SIGNATURE {
        *remark = format!("{BAD_SIGNATURE}, User:{user}");
    }
}

/// A request that arrived after many later ones.
const OVERTAKEN: &str = "older than the last one";

/// The way out of a denial by users and policies; `None` for another refusal. `needs`: all that the call needs, if the caller knows.
///
/// # Source
/// docs/reference/protocol.md 6.3: remarks of Apache's brokers.
pub(super) fn hint(remark: &str, needs: &[Grant]) -> Option<Cow<'static, str>> {
    if let Some((user, rest)) = remark.split_once(" has no permission to access ") {
        return Some(grant_hint(user, rest, needs));
    }
    if remark.starts_with(BAD_SIGNATURE) {
        let user = remark.split_once("User:").map(|(_, user)| user);
        let (whose, name) = (user.map(|user| format!(" {user}")), user.map_or("NAME".into(), quoted));
        return Some(
            format!(
                "check name and secret of the user{}: the file of --credentials or ROCKETPY_CREDENTIALS, or ROCKETPY_ACCESS_KEY and \
                 ROCKETPY_SECRET_KEY; an administrator sets another secret: `rocketpy user update {name} --generate FILE`",
                whose.unwrap_or_default()
            )
            .into(),
        );
    }
    let hints = [
        (
            "username cannot be null",
            "give the client a user: credentials=Credentials(...), --credentials FILE before the command, or ROCKETPY_CREDENTIALS",
        ),
        (
            "check proof failed",
            "the secret is right: something between client and server changed or repeated the request, use TLS",
        ),
        ("check the clocks", "set the clocks of client and server: they must differ by less than 5 minutes"),
        ("needs a proof", "use a client of RocketPy, or set authRequireProof=false at the servers"),
        ("field RpProof is malformed", "use a client of RocketPy of the server's version"),
        ("too many streams of proofs", "share one client object, or wait 10 minutes"),
        (": its proof ", "send the request again: it was repeated or overtaken by others on its way"),
        (" has no permission", "only a super user may do so: `rocketpy user update NAME --super`"),
        ("is disabled", "an administrator enables the user: `rocketpy user update NAME --enable`"),
        ("is not found", "check the access key; `rocketpy user list` shows the users"),
    ];
    hints.iter().find(|(part, _)| remark.contains(part)).map(|(_, hint)| (*hint).into())
}

/// The commands that allow a call. The remark of the server is `user`, the words before the denial, and `rest`.
fn grant_hint(user: &str, rest: &str, needs: &[Grant]) -> Cow<'static, str> {
    let user = quoted(user.rsplit("User:").next().filter(|user| !user.is_empty()).unwrap_or("USER"));
    if rest.contains("only a super user may") {
        return format!("only a super user may do so: `rocketpy user update {user} --super`").into();
    }
    let words: Vec<_> = rest.split([' ', ',', '(', ')']).filter(|word| !word.is_empty()).collect();
    let denied = words.first().copied().unwrap_or("RESOURCE");
    let action = match ACTIONS.into_iter().find(|action| words.contains(action)) {
        // Changes read what they change, and a policy for one of the actions would replace that for the other.
        Some("Create") => "Create,Get",
        Some("Update") => "Update,Get",
        Some("Delete") => "Delete,Get",
        action => action.unwrap_or("ACTION"),
    };
    let is_named = needs.iter().any(|need| need.resource == denied);
    let named = (!is_named).then_some((denied, action));
    let needed = needs.iter().map(|need| (need.resource.as_str(), need.action));
    let command = |(resource, action)| format!("`rocketpy acl grant {user} {} {action}`", quoted(resource));
    let commands: Vec<_> = named.into_iter().chain(needed).map(command).collect();
    assert!(!commands.is_empty(), "a denial names a resource, or its caller does");
    format!(
        "an administrator allows it: {}; each replaces the policy of its resource, see `rocketpy acl show {user}`",
        commands.join(", ")
    )
    .into()
}

/// A word as a shell reads it.
fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "_-.:%/@".contains(character);
    if word.chars().all(is_plain) { word.into() } else { format!("'{}'", word.replace('\'', r"'\''")).into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(remark: &str) -> String {
        hint(remark, &[]).unwrap().into_owned()
    }

    #[test]
    fn names_with_words_of_denials_are_not_denials() {
        assert!(!is_final("the broker[proof-a] sending message is forbidden"));
        assert!(!is_final("topic waterproof does not accept messages"));
        assert!(is_final("request of User:a is refused: its proof was accepted before"));
        assert!(!is_final(
            "request of User:a is refused: its proof is more than 64 requests older than the last one of its stream"
        ));
        assert!(is_final("request of User:a is refused: field RpProof is malformed"));
    }

    #[test]
    fn hint_names_the_command_that_grants_what_was_denied() {
        let apache =
            "User:billing has no permission to access Topic:orders from 10.0.0.9, no matched policies.";
        assert!(denied(apache).contains("`rocketpy acl grant billing Topic:orders ACTION`"));
        let ours = "User:billing has no permission to access Topic:o|p from 10.0.0.9, no matched policies. (action Pub,Sub,Get, \
                    request GET_ROUTEINFO_BY_TOPIC)";
        assert!(
            denied(ours).contains("`rocketpy acl grant billing 'Topic:o|p' Get`"),
            "an administrator reads"
        );
        let needs = [Grant::subscribe("o|p"), Grant::join("g")];
        let text = hint(ours, &needs).unwrap();
        let both = "`rocketpy acl grant billing 'Topic:o|p' Sub`, `rocketpy acl grant billing Group:g Sub`";
        assert!(text.contains(both) && !text.contains("Get"), "{text}");
        let change = "User:a has no permission to access Cluster:c from ::1, no matched policies. (action Update, request 25)";
        assert!(denied(change).contains("`rocketpy acl grant a Cluster:c Update,Get`"));
        let needs = [Grant::publish("t")];
        assert!(
            hint(apache, &needs)
                .unwrap()
                .contains("Topic:orders ACTION`, `rocketpy acl grant billing Topic:t Pub")
        );
    }

    #[test]
    fn hint_for_a_super_users_request_names_no_policy() {
        let remark = "User:a has no permission to access Cluster:c from ::1, only a super user may. (action Pub,Sub, request 1)";
        assert_eq!(denied(remark), "only a super user may do so: `rocketpy user update a --super`");
    }

    #[test]
    fn hint_for_a_bad_signature_names_the_user_and_where_its_secret_is() {
        let mut remark = "check signature failed.".to_owned();
        assert!(denied(&remark).contains("`rocketpy user update NAME --generate FILE`"));
        name_user(&mut remark, "billing");
        assert_eq!(remark, "check signature failed, User:billing");
        for part in [
            "secret of the user billing:",
            "--credentials",
            "ROCKETPY_CREDENTIALS",
            "ROCKETPY_SECRET_KEY",
            "update billing --gen",
        ] {
            assert!(denied(&remark).contains(part), "{part}");
        }
        assert!(!denied(&remark).contains("clock"));
        let mut other = "User:x is disabled.".to_owned();
        name_user(&mut other, "billing");
        assert_eq!(other, "User:x is disabled.");
        assert!(denied("request of User:a is refused: its proof is 400 s old or early, check the clocks of client and server").contains("5 minutes"));
    }

    #[test]
    fn hint_quotes_names_of_others_for_the_shell() {
        let remark = "User:a;rm'x has no permission to access Topic:$(b) from 1.2.3.4, no matched policies.";
        assert!(denied(remark).contains(r"grant 'a;rm'\''x' 'Topic:$"), "{}", denied(remark));
    }

    #[test]
    fn hints_of_other_denials_name_the_remedy() {
        assert!(denied("username cannot be null.").contains("--credentials FILE"));
        assert!(denied("User:x is disabled.").contains("--enable"));
        assert!(denied("check proof failed: field RpProof of User:x is not that of").contains("use TLS"));
        assert_eq!(hint("the topic[orders] sending message is forbidden", &[]), None);
        assert!(is_final("User:x is disabled."));
        assert!(!is_final(
            "request of User:a is refused: its proof is more than 64 requests older than the last one of its stream"
        ));
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

//! Bodies of requests about users and policies, read strictly: a misspelt member would leave a policy wider than it was meant.

use rocketpy_model::printable::beginning;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Form of a member.
#[derive(Debug, Clone, Copy)]
enum Form {
    Text,
    Flag,
    Texts,
    Objects(Members),
}

type Members = &'static [(&'static str, Form)];

/// Members of a body of 3001 and 3002.
const USER: Members = &[
    ("newPassword", Form::Text),
    ("password", Form::Text),
    ("rotating", Form::Flag),
    ("userStatus", Form::Text),
    ("userType", Form::Text),
    ("username", Form::Text),
];
/// Members of a body of 3006 and 3007.
const POLICIES: Members = &[("policies", Form::Objects(POLICY)), ("subject", Form::Text)];
const POLICY: Members = &[("entries", Form::Objects(ENTRY)), ("policyType", Form::Text)];
const ENTRY: Members = &[
    ("actions", Form::Texts),
    ("decision", Form::Text),
    ("resource", Form::Text),
    ("sourceIps", Form::Texts),
];

/// Why a body is refused. No text holds a value: it may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The text is not JSON.
    #[error("body is not JSON, line {line} column {column}")]
    Syntax {
        /// Line of the error, from 1.
        line: usize,
        /// Column of the error.
        column: usize,
    },
    /// No request has such a member.
    #[error("unknown field {field}, known are {known}")]
    Unknown {
        /// Where it is.
        field: String,
        /// Members of the same object.
        known: String,
    },
    /// A member has another form.
    #[error("field {field} must be {wanted}")]
    Form {
        /// Where it is.
        field: String,
        /// Its form.
        wanted: &'static str,
    },
}

/// Reads the body about a user.
///
/// # Errors
/// The text is not JSON; a member is unknown or has the wrong form.
pub(crate) fn user<T: DeserializeOwned>(body: &[u8]) -> Result<T, BodyError> {
    read(body, USER)
}

/// Reads the body about the policies of a user.
///
/// # Errors
/// As [`user`].
pub(crate) fn policies<T: DeserializeOwned>(body: &[u8]) -> Result<T, BodyError> {
    read(body, POLICIES)
}

fn read<T: DeserializeOwned>(body: &[u8], members: Members) -> Result<T, BodyError> {
    let syntax = |error: serde_json::Error| BodyError::Syntax { line: error.line(), column: error.column() };
    let mut value: Value = serde_json::from_slice(body).map_err(syntax)?;
    check_object("", &mut value, members)?;
    serde_json::from_value(value).map_err(syntax)
}

/// Checks the members of an object, and takes those that are null away: Java's clients mean an absent member.
fn check_object(path: &str, value: &mut Value, members: Members) -> Result<(), BodyError> {
    let object: &mut Map<String, Value> = value.as_object_mut().ok_or_else(|| wrong(path, "an object"))?;
    object.retain(|_, value| !value.is_null());
    for (name, value) in object {
        let field = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let Some((_, form)) = members.iter().find(|(known, _)| known == name) else {
            let known: Vec<_> = members.iter().map(|(known, _)| *known).collect();
            return Err(BodyError::Unknown {
                field: beginning(&field).into_owned(),
                known: known.join(", "),
            });
        };
        check(&field, value, *form)?;
    }
    Ok(())
}

fn check(field: &str, value: &mut Value, form: Form) -> Result<(), BodyError> {
    match form {
        Form::Text if !value.is_string() => Err(wrong(field, "a text")),
        Form::Flag if !value.is_boolean() => Err(wrong(field, "true or false")),
        Form::Text | Form::Flag => Ok(()),
        Form::Texts => {
            each(field, value, |at, item| if item.is_string() { Ok(()) } else { Err(wrong(at, "a text")) })
        }
        Form::Objects(members) => each(field, value, |at, item| check_object(at, item, members)),
    }
}

fn each(
    field: &str,
    value: &mut Value,
    check: impl Fn(&str, &mut Value) -> Result<(), BodyError>,
) -> Result<(), BodyError> {
    let items = value.as_array_mut().ok_or_else(|| wrong(field, "a list"))?;
    items.iter_mut().enumerate().try_for_each(|(at, item)| check(&format!("{field}[{at}]"), item))
}

fn wrong(field: &str, wanted: &'static str) -> BodyError {
    let field = if field.is_empty() { "body".to_owned() } else { field.to_owned() };
    BodyError::Form { field, wanted }
}

#[cfg(test)]
mod tests {
    use rocketpy_protocol::body::{AclInfo, UserInfo};

    use super::*;

    fn refusal_of_policies(body: &str) -> String {
        policies::<AclInfo>(body.as_bytes()).unwrap_err().to_string()
    }

    fn entry(members: &str) -> String {
        format!(
            r#"{{"policies":[{{"entries":[{{"resource":"*","decision":"Allow","actions":["Pub"]{members}}}]}}]}}"#
        )
    }

    #[test]
    fn misspelt_and_wrong_members_are_refused_by_name() {
        assert!(policies::<AclInfo>(entry("").as_bytes()).is_ok());
        let path = "policies[0].entries[0]";
        for (members, expected) in [
            (
                r#","sourceIPs":["10.0.0.1"]"#,
                format!("unknown field {path}.sourceIPs, known are actions, decision, resource, sourceIps"),
            ),
            (r#","sourceIps":[null]"#, format!("field {path}.sourceIps[0] must be a text")),
            (r#","sourceIps":[7]"#, format!("field {path}.sourceIps[0] must be a text")),
            (r#","sourceIps":"10.0.0.1""#, format!("field {path}.sourceIps must be a list")),
            (r#","sourceIps":{}"#, format!("field {path}.sourceIps must be a list")),
        ] {
            assert_eq!(refusal_of_policies(&entry(members)), expected);
        }
        assert!(
            refusal_of_policies(r#"{"policy":[]}"#).starts_with("unknown field policy, known are policies")
        );
        assert_eq!(refusal_of_policies("[]"), "field body must be an object");
        assert_eq!(refusal_of_policies(r#"{"policies":[null]}"#), "field policies[0] must be an object");
        assert!(refusal_of_policies("{").starts_with("body is not JSON, line 1"));
    }

    #[test]
    fn refused_bodies_of_users_show_no_value() {
        for body in [
            r#"{"password":["hidden"]}"#,
            r#"{"passwort":"hidden"}"#,
            r#"{"password":"hidden""#,
            r#"{"rotating":"hidden"}"#,
        ] {
            let refused = user::<UserInfo>(body.as_bytes()).unwrap_err().to_string();
            assert!(!refused.contains("hidden"), "{refused}");
        }
    }

    #[test]
    fn bodies_of_apaches_tools_are_read() {
        let body = br#"{"policies":[{"entries":[{"actions":["Pub","Sub"],"decision":"Allow","resource":"Topic:t","sourceIps":["192.168.1.0/24"]}],"policyType":"Custom"}],"subject":"User:alice"}"#;
        let read: AclInfo = policies(body).unwrap();
        assert_eq!(read.policies[0].entries[0].source_ips, ["192.168.1.0/24"]);
        let read: AclInfo =
            policies(br#"{"policies":[{"entries":[{"actions":["Pub"],"decision":"Allow","resource":"*","sourceIps":null}],"policyType":null}],"subject":null}"#).unwrap();
        assert!(read.policies[0].entries[0].source_ips.is_empty());
        let read: UserInfo =
            user(br#"{"password":"p","userStatus":null,"userType":"Normal","username":"alice"}"#).unwrap();
        assert_eq!(read.user_type.as_deref(), Some("Normal"));
    }
}

//! Users and policies of a process.

use std::fmt;
use std::path::PathBuf;

use super::kind::{Holds, Kind, Shape, Value, Wanted};

/// Shown in place of a secret.
pub(super) const MASK: &str = "***";

/// Users and policies of a process.
#[derive(Clone, Debug, Default)]
pub struct AuthConfig {
    /// Whether requests need the signature of a user (`authenticationEnabled`).
    pub authenticates: bool,
    /// Whether users need a policy for what they request (`authorizationEnabled`).
    pub authorizes: bool,
    /// Request codes without a signature (`authenticationWhitelist`).
    pub unauthenticated: Vec<i32>,
    /// Request codes without a policy (`authorizationWhitelist`).
    pub unauthorized: Vec<i32>,
    /// The first administrator (`initAuthenticationUser`).
    pub first_user: Option<NamedSecret>,
    /// User of requests between servers (`innerClientAuthenticationCredentials`).
    pub peer: Option<NamedSecret>,
    /// Users that the first start makes; no key, a secure server sets them.
    pub first_users: Option<FirstUsers>,
    /// Whether the start reads `plain_acl.yml` (`migrateAuthFromV1Enabled`).
    pub migrates_v1: bool,
    /// Whether every signature must cover code and time (`authRequireProof`).
    pub requires_proof: bool,
    /// File of users and policies (`authConfigPath`).
    pub users_file: Option<PathBuf>,
    /// File of the audit log (`auditLogPath`).
    pub audit_file: Option<PathBuf>,
}

/// The users of a server that makes its own.
#[derive(Clone, Debug)]
pub struct FirstUsers {
    /// A super user.
    pub administrator: NamedSecret,
    /// A user with policies for messages.
    pub client: NamedSecret,
    /// Whether this start made their files: the first secure one of the folder.
    pub are_new: bool,
}

/// A user and the secret of its signatures.
#[derive(Clone, PartialEq, Eq)]
pub struct NamedSecret {
    /// Name of the user.
    pub name: String,
    /// Secret of the user.
    pub secret: String,
}

impl fmt::Debug for NamedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedSecret").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A user as a JSON object with these two members.
pub(super) struct UserOf {
    name: &'static str,
    secret: &'static str,
}

pub(super) const FIRST_USER: UserOf = UserOf { name: "username", secret: "password" };
pub(super) const PEER_USER: UserOf = UserOf { name: "accessKey", secret: "secretKey" };

impl Kind for UserOf {
    fn shape(&self) -> Shape {
        Shape { is_secret: true, ..Shape::of("JSON") }
    }
}

impl Holds<NamedSecret> for UserOf {
    fn parse(&self, text: &str) -> Result<NamedSecret, Wanted> {
        let Self { name, secret } = self;
        // The cause of an error would repeat the secret.
        let read: Option<serde_json::Map<String, serde_json::Value>> = serde_json::from_str(text).ok();
        let member = |key: &str| {
            let text = read.as_ref()?.get(key)?.as_str()?;
            (!text.trim().is_empty()).then(|| text.to_owned())
        };
        member(name)
            .zip(member(secret))
            .map(|(name, secret)| NamedSecret { name, secret })
            .ok_or_else(|| format!(r#"{{"{name}":"NAME","{secret}":"SECRET"}}"#))
    }

    fn value(&self, _held: &NamedSecret) -> Value {
        Value::Text(MASK.to_owned())
    }
}

/// Request codes, separated by commas.
pub(super) struct Codes;

impl Kind for Codes {
    fn shape(&self) -> Shape {
        Shape::of("code,...")
    }
}

impl Holds<Vec<i32>> for Codes {
    fn parse(&self, text: &str) -> Result<Vec<i32>, Wanted> {
        let parts = text.split([',', ';']).map(str::trim).filter(|part| !part.is_empty());
        let codes: Result<_, _> = parts.map(str::parse).collect();
        codes.map_err(|_| "request codes such as 105, separated by commas".to_owned())
    }

    fn value(&self, held: &Vec<i32>) -> Value {
        Value::List(held.iter().map(i32::to_string).collect(), ',')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_the_configuration_are_read_and_never_shown() {
        let user = FIRST_USER.parse(r#"{"username":"admin","password":"12345678"}"#).unwrap();
        assert_eq!((user.name.as_str(), user.secret.as_str()), ("admin", "12345678"));
        assert_eq!(FIRST_USER.value(&user).to_string(), MASK);
        assert!(!format!("{user:?}").contains("12345678"));
        let peer = PEER_USER.parse(r#"{"accessKey":"inner","secretKey":"s3cret"}"#).unwrap();
        assert_eq!(peer.name, "inner");
        for bad in ["", "admin", r#"{"username":"admin"}"#, r#"{"username":" ","password":"s3cret"}"#] {
            let wanted = FIRST_USER.parse(bad).unwrap_err();
            assert!(!wanted.contains("s3cret") && wanted.contains("username"), "{wanted}");
        }
        assert_eq!(Codes.parse("105, 11,").unwrap(), [105, 11]);
        assert!(Codes.parse("105,x").is_err());
    }
}

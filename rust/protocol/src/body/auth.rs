//! Bodies about users and policies (codes 3001 to 3010).

use std::fmt;

use serde::{Deserialize, Serialize};

/// A secret, which `Debug` hides.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Password(pub String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// A user. An absent member stays as it is (code 3002) or takes its default (code 3001).
///
/// # Source
/// docs/reference/protocol.md 6.3.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UserInfo {
    /// In a request of code 3002: a second secret, valid beside the first one. RocketPy's own; Apache's brokers ignore it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_password: Option<Password>,
    /// The secret that signs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Password>,
    /// In an answer, `true`: two secrets are valid. In a request of code 3002, `false`: the older one ends. RocketPy's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotating: Option<bool>,
    /// `enable` or `disable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_status: Option<String>,
    /// `Super` or `Normal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_type: Option<String>,
    /// The name; in requests that of the header counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
}

/// The policies of a user.
///
/// # Source
/// docs/reference/protocol.md 6.3.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AclInfo {
    /// By type of policy.
    pub policies: Vec<PolicyInfo>,
    /// `User:` and the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

/// The policies of one type.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyInfo {
    /// One for each resource.
    pub entries: Vec<PolicyEntryInfo>,
    /// `Custom` or `Default`; absent: `Custom`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_type: Option<String>,
}

/// A decision about a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyEntryInfo {
    /// `All`, `Pub`, `Sub`, `Create`, `Update`, `Delete`, `Get`, `List`.
    pub actions: Vec<String>,
    /// `Allow` or `Deny`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// `*`, or `Topic:`, `Group:` or `Cluster:` with a name, a prefix and `*`, or `*`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Addresses and networks that the entry is limited to; empty: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source_ips: Vec<String>,
}

//! Policies: what a user may do with which resources.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use rocketpy_model::Network;
use rocketpy_model::name::{check_cluster, check_stored_group, check_topic};
use rocketpy_model::printable::beginning;
use rocketpy_model::system::{DLQ_PREFIX, RETRY_PREFIX};
use rocketpy_protocol::body::{AclInfo, PolicyEntryInfo, PolicyInfo};

use crate::AccountsError;
use crate::user::said;

/// Maximum number of policies of a user.
pub const MAX_POLICIES: usize = 1_000;
/// Maximum number of source addresses and networks of a policy.
pub const MAX_SOURCE_IPS: usize = 256;

/// A decision about a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Which policies come first.
    pub policy_type: PolicyType,
    /// What it is about. A user has one policy for each type and resource.
    pub resource: Resource,
    /// What is done with it.
    pub actions: Actions,
    /// Where the request comes from; empty: from anywhere.
    pub source_ips: Vec<Network>,
    /// Whether it may be done.
    pub decision: Decision,
}

/// Which policies come first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PolicyType {
    /// Before those of the other type.
    #[default]
    Custom,
    /// Only where no policy of type Custom matches.
    Default,
}

/// Whether something may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It may.
    Allow,
    /// It may not.
    Deny,
}

/// Kind of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResourceType {
    /// A cluster: its brokers and name servers.
    Cluster,
    /// A topic.
    Topic,
    /// A consumer group, with its retry and dead-letter topics; a producer group.
    Group,
    /// A namespace. No request is about one: such a policy never matches.
    Namespace,
}

/// What a policy is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Resource {
    /// `*`: everything.
    Everything,
    /// `Topic:*`: all of a kind.
    All(ResourceType),
    /// `Topic:orders*`: all whose names begin so.
    Prefix(ResourceType, Box<str>),
    /// `Topic:orders`: one.
    One(ResourceType, Box<str>),
}

/// Something that can be done with a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Action {
    Pub = 1,
    Sub = 2,
    Create = 4,
    Update = 8,
    Delete = 16,
    Get = 32,
    List = 64,
}

/// A set of actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Actions(u8);

impl PolicyType {
    const KNOWN: [Self; 2] = [Self::Custom, Self::Default];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Custom => "Custom",
            Self::Default => "Default",
        }
    }

    /// The type of this name in any case; Custom without a name.
    ///
    /// # Errors
    /// The name is another one.
    pub fn parse(text: Option<&str>) -> Result<Self, AccountsError> {
        let Some(text) = said(text) else { return Ok(Self::Custom) };
        let found = Self::KNOWN.into_iter().find(|known| known.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| AccountsError::value("policyType", "Custom or Default", text))
    }
}

impl Decision {
    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "Allow",
            Self::Deny => "Deny",
        }
    }

    fn parse(text: Option<&str>) -> Result<Self, AccountsError> {
        let is = |decision: Self| text.is_some_and(|text| decision.name().eq_ignore_ascii_case(text));
        match () {
            () if is(Self::Allow) => Ok(Self::Allow),
            () if is(Self::Deny) => Ok(Self::Deny),
            () => Err(AccountsError::Decision),
        }
    }
}

impl ResourceType {
    pub(crate) const ALL: [Self; 4] = [Self::Cluster, Self::Topic, Self::Group, Self::Namespace];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Topic => "Topic",
            Self::Group => "Group",
            Self::Namespace => "Namespace",
        }
    }

    /// The actions that requests need on such a resource.
    const fn needed(self) -> Actions {
        use Action::{Create, Delete, Get, List, Pub, Sub, Update};
        match self {
            Self::Cluster => Actions::of(&[Update, Get, List]),
            Self::Topic => Actions::of(&[Pub, Sub, Create, Update, Delete, Get]),
            Self::Group => Actions::of(&[Sub, Create, Update, Delete, Get]),
            Self::Namespace => Actions::of(&[]),
        }
    }

    fn is_name(self, name: &str) -> bool {
        match self {
            Self::Cluster => check_cluster(name).is_ok(),
            // A retry or dead-letter topic belongs to its group.
            Self::Topic => check_topic(name).is_ok() && !is_of_group(name),
            Self::Group | Self::Namespace => check_stored_group(name).is_ok() && !is_of_group(name),
        }
    }
}

fn is_of_group(name: &str) -> bool {
    name.starts_with(RETRY_PREFIX) || name.starts_with(DLQ_PREFIX)
}

impl Resource {
    /// The kind; `None` for everything.
    const fn kind(&self) -> Option<ResourceType> {
        match self {
            Self::Everything => None,
            Self::All(kind) | Self::Prefix(kind, _) | Self::One(kind, _) => Some(*kind),
        }
    }
}

impl FromStr for Resource {
    type Err = AccountsError;

    fn from_str(text: &str) -> Result<Self, AccountsError> {
        if text == "*" {
            return Ok(Self::Everything);
        }
        let wanted = "*, or Cluster:, Topic: or Group: with a name, a prefix and *, or * (a group has its retry and dead-letter topics)";
        let wrong = || AccountsError::value("resource", wanted, text);
        let (kind, name) = text.split_once(':').ok_or_else(wrong)?;
        let is_kind = |known: &ResourceType| known.name().eq_ignore_ascii_case(kind);
        let kind = ResourceType::ALL.into_iter().find(is_kind).ok_or_else(wrong)?;
        let resource = match name.strip_suffix('*') {
            Some("") => return Ok(Self::All(kind)),
            Some(prefix) => Self::Prefix(kind, prefix.into()),
            None => Self::One(kind, name.into()),
        };
        let name = name.strip_suffix('*').unwrap_or(name);
        if kind.is_name(name) { Ok(resource) } else { Err(wrong()) }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("*"),
            Self::All(kind) => write!(f, "{}:*", kind.name()),
            Self::Prefix(kind, prefix) => write!(f, "{}:{prefix}*", kind.name()),
            Self::One(kind, name) => write!(f, "{}:{name}", kind.name()),
        }
    }
}

impl Action {
    const KNOWN: [Self; 7] =
        [Self::Pub, Self::Sub, Self::Create, Self::Update, Self::Delete, Self::Get, Self::List];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pub => "Pub",
            Self::Sub => "Sub",
            Self::Create => "Create",
            Self::Update => "Update",
            Self::Delete => "Delete",
            Self::Get => "Get",
            Self::List => "List",
        }
    }
}

impl Actions {
    /// Every action.
    pub const ALL: Self = Self(0x7f);
    const ALL_NAME: &'static str = "All";

    /// The set of these actions.
    pub const fn of(actions: &[Action]) -> Self {
        let mut bits = 0;
        let mut at = 0;
        while at < actions.len() {
            bits |= actions[at] as u8;
            at += 1;
        }
        Self(bits)
    }

    /// Whether an action is in both sets.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The actions of the set.
    pub fn iter(self) -> impl Iterator<Item = Action> {
        Action::KNOWN.into_iter().filter(move |action| self.0 & *action as u8 != 0)
    }

    fn parse(names: &[String]) -> Result<Self, AccountsError> {
        let mut set = Self(0);
        for name in names {
            let known = Action::KNOWN.into_iter().find(|known| known.name().eq_ignore_ascii_case(name));
            set.0 |= match known {
                Some(action) => action as u8,
                None if name.eq_ignore_ascii_case(Self::ALL_NAME) => Self::ALL.0,
                None if name.eq_ignore_ascii_case("Any") => return Err(AccountsError::AnyAction),
                None => {
                    let wanted = "of All, Pub, Sub, Create, Update, Delete, Get, List";
                    return Err(AccountsError::value("actions", wanted, name));
                }
            };
        }
        if set.0 == 0 { Err(AccountsError::Empty { members: "actions" }) } else { Ok(set) }
    }

    fn names(self) -> Vec<String> {
        if self == Self::ALL {
            return vec![Self::ALL_NAME.to_owned()];
        }
        self.iter().map(|action| action.name().to_owned()).collect()
    }
}

/// The names of the actions, with commas between.
impl fmt::Display for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(","))
    }
}

impl Policy {
    fn parse(policy_type: PolicyType, entry: &PolicyEntryInfo) -> Result<Self, AccountsError> {
        if entry.source_ips.len() > MAX_SOURCE_IPS {
            return Err(AccountsError::TooMany {
                what: "source addresses of a policy",
                limit: MAX_SOURCE_IPS,
            });
        }
        let network = |text: &String| {
            text.parse().map_err(|_| AccountsError::SourceIp { text: beginning(text).into_owned() })
        };
        Ok(Self {
            policy_type,
            resource: entry.resource.as_deref().unwrap_or_default().parse()?,
            actions: Actions::parse(&entry.actions)?,
            source_ips: entry.source_ips.iter().map(network).collect::<Result<_, _>>()?,
            decision: Decision::parse(entry.decision.as_deref())?,
        })
    }

    /// # Errors
    /// No request needs one of its actions on its kind of resource.
    fn check_use(&self) -> Result<(), AccountsError> {
        match self.resource.kind() {
            Some(ResourceType::Namespace) => {
                let wanted =
                    "about topics or groups: names in a namespace begin with it, as in Topic:NAMESPACE%*";
                Err(AccountsError::value("resource", wanted, &self.resource.to_string()))
            }
            Some(kind) if !kind.needed().meets(self.actions) => Err(AccountsError::Useless {
                actions: self.actions,
                resource: beginning(&self.resource.to_string()).into_owned(),
                kind: kind.name(),
                needed: kind.needed(),
            }),
            _ => Ok(()),
        }
    }

    fn entry(&self) -> PolicyEntryInfo {
        PolicyEntryInfo {
            actions: self.actions.names(),
            decision: Some(self.decision.name().to_owned()),
            resource: Some(self.resource.to_string()),
            source_ips: self.source_ips.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The policies of a body.
///
/// # Errors
/// There is none, there are too many, or a value is invalid.
pub(crate) fn parsed(policies: &[PolicyInfo]) -> Result<Vec<Policy>, AccountsError> {
    if policies.is_empty() {
        return Err(AccountsError::Empty { members: "policies" });
    }
    let count: usize = policies.iter().map(|policy| policy.entries.len()).sum();
    if count > MAX_POLICIES {
        return Err(AccountsError::TooMany { what: "policies of a user", limit: MAX_POLICIES });
    }
    let mut parsed = Vec::with_capacity(count);
    for policy in policies {
        let policy_type = PolicyType::parse(policy.policy_type.as_deref())?;
        if policy.entries.is_empty() {
            return Err(AccountsError::Empty { members: "policy entries" });
        }
        for entry in &policy.entries {
            parsed.push(Policy::parse(policy_type, entry)?);
        }
    }
    Ok(parsed)
}

/// Refuses policies none of which ever decides. Useless ones among others are accepted: mqadmin gives all resources of a command the same
/// actions, and copies what migrations wrote.
///
/// # Errors
/// No request needs one of their actions on their kinds of resources.
pub(crate) fn check_use(policies: &[Policy]) -> Result<(), AccountsError> {
    let mut checked = policies.iter().map(Policy::check_use);
    let first = checked.next().unwrap_or(Ok(()));
    if checked.any(|checked| checked.is_ok()) { Ok(()) } else { first }
}

/// Refuses two different policies of one type about one resource: the last one would replace the others, also those that deny.
///
/// # Errors
/// There are two.
pub(crate) fn check_single(policies: &[Policy]) -> Result<(), AccountsError> {
    let mut seen: HashMap<(&'static str, &Resource), &Policy> = HashMap::new();
    for policy in policies {
        let policy_type = policy.policy_type.name();
        let former = seen.insert((policy_type, &policy.resource), policy);
        if former.is_some_and(|former| former != policy) {
            let resource = beginning(&policy.resource.to_string()).into_owned();
            return Err(AccountsError::Twice { resource, policy_type });
        }
    }
    Ok(())
}

/// The policies as a body, those of type Custom first; only those that `is_wanted`.
pub(crate) fn body(name: &str, policies: &[Policy], is_wanted: impl Fn(&Policy) -> bool) -> AclInfo {
    let of_type = |policy_type: PolicyType| {
        let wanted = policies.iter().filter(|policy| policy.policy_type == policy_type && is_wanted(policy));
        let entries: Vec<_> = wanted.map(Policy::entry).collect();
        let policy_type = Some(policy_type.name().to_owned());
        (!entries.is_empty()).then_some(PolicyInfo { entries, policy_type })
    };
    let policies = PolicyType::KNOWN.into_iter().filter_map(of_type).collect();
    AclInfo { policies, subject: Some(subject(name)) }
}

/// The subject that a user is in requests about policies.
pub(crate) fn subject(name: &str) -> String {
    format!("User:{name}")
}

/// Whether policies of a body that are accepted write to themselves, for the fuzzer.
pub fn policies_read_back(acl: &AclInfo) -> bool {
    let Ok(policies) = parsed(&acl.policies) else { return true };
    let of_type = |policy_type: PolicyType| {
        policies.iter().filter(|policy| policy.policy_type == policy_type).cloned().collect::<Vec<_>>()
    };
    let sorted = PolicyType::KNOWN.map(of_type).concat();
    parsed(&body("a", &policies, |_| true).policies).is_ok_and(|again| again == sorted)
}

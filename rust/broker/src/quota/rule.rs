//! Quotas as an operator writes them, and the one that counts for a name.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use rocketpy_model::network::{Network, host_of};
use rocketpy_model::{name, system};
use rocketpy_protocol::body::Quota;
use serde::{Serialize, Serializer};

use crate::refusal::Refusal;
use crate::table::named::Named;

/// Maximum limit per second: 1 TB.
const MAX_LIMIT: u64 = 1_000_000_000_000;

/// Kind of name that a quota limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Topic,
    Group,
    Address,
    User,
}

impl Scope {
    pub(crate) const ALL: [Self; 4] = [Self::Topic, Self::Group, Self::Address, Self::User];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::Group => "group",
            Self::Address => "address",
            Self::User => "user",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direction {
    Send,
    Pull,
}

/// A quota that passed its checks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rule {
    /// `scope:name`.
    id: String,
    scope: Scope,
    names: Names,
    quota: Quota,
}

/// Names that a quota limits, each for itself.
#[derive(Debug, Clone, PartialEq)]
enum Names {
    One,
    Beginning(String),
    Network(Network),
    Each,
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.quota.serialize(serializer)
    }
}

impl Named for Rule {
    fn name(&self) -> &str {
        &self.id
    }
}

impl Rule {
    /// # Errors
    /// Scope, name or a limit is invalid; the name belongs to the system.
    pub(crate) fn new(mut quota: Quota) -> Result<Self, Refusal> {
        let (scope, text, names) = parsed(&quota.scope, &quota.name)?;
        quota.name = text;
        let limits = [
            ("sendMessages", quota.send_messages),
            ("sendBytes", quota.send_bytes),
            ("pullMessages", quota.pull_messages),
            ("pullBytes", quota.pull_bytes),
            ("connections", quota.connections),
        ];
        for (field, limit) in limits {
            if let Some(limit) = limit.filter(|limit| !(1..=MAX_LIMIT).contains(limit)) {
                let wanted = "1 to 1000000000000";
                return Err(Refusal::Value { field, wanted, value: limit.to_string() });
            }
        }
        if limits.iter().all(|(_, limit)| limit.is_none()) {
            let (field, wanted) = ("the quota", "at least one limit");
            return Err(Refusal::Value { field, wanted, value: "none".to_owned() });
        }
        if quota.connections.is_some() && scope != Scope::Address {
            let (field, wanted) = ("connections", "a limit of scope address");
            return Err(Refusal::Value { field, wanted, value: format!("scope {}", scope.name()) });
        }
        Ok(Self { id: format!("{}:{}", scope.name(), quota.name), scope, names, quota })
    }

    pub(crate) fn quota(&self) -> &Quota {
        &self.quota
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Limits of messages and bytes per second.
    pub(super) fn limits(&self, direction: Direction) -> [Option<u64>; 2] {
        match direction {
            Direction::Send => [self.quota.send_messages, self.quota.send_bytes],
            Direction::Pull => [self.quota.pull_messages, self.quota.pull_bytes],
        }
    }

    fn limits_name(&self, name: &str) -> bool {
        match &self.names {
            Names::One => self.quota.name == name,
            Names::Beginning(beginning) => name.starts_with(beginning.as_str()),
            Names::Network(network) => name.parse().is_ok_and(|ip| network.contains(ip)),
            Names::Each => true,
        }
    }

    /// The narrower, the greater.
    fn narrowness(&self) -> usize {
        match &self.names {
            Names::One => usize::MAX,
            Names::Beginning(beginning) => beginning.len(),
            Names::Network(network) => usize::from(network.bits()) + 1,
            Names::Each => 0,
        }
    }
}

/// The id of a quota in the table.
///
/// # Errors
/// Scope or name is invalid.
pub(super) fn id_of(scope: &str, name: &str) -> Result<String, Refusal> {
    let (scope, name, _) = parsed(scope, name)?;
    Ok(format!("{}:{name}", scope.name()))
}

fn parsed(scope: &str, name: &str) -> Result<(Scope, String, Names), Refusal> {
    let Some(found) = Scope::ALL.into_iter().find(|known| known.name() == scope) else {
        let (field, wanted) = ("scope", "topic, group, address or user");
        return Err(Refusal::Value { field, wanted, value: scope.to_owned() });
    };
    if name == "*" {
        return Ok((found, name.to_owned(), Names::Each));
    }
    let (text, names) = match found {
        Scope::Address => address(name)?,
        Scope::Topic | Scope::Group | Scope::User => {
            let names = match name.strip_suffix('*') {
                Some(beginning) => Names::Beginning(beginning.to_owned()),
                None => Names::One,
            };
            check_name(found, name.strip_suffix('*').unwrap_or(name))?;
            (name.to_owned(), names)
        }
    };
    Ok((found, text, names))
}

fn check_name(scope: Scope, name: &str) -> Result<(), Refusal> {
    match scope {
        Scope::Group => Ok(name::check_group(name)?),
        Scope::User => Ok(name::check_user(name)?),
        Scope::Topic | Scope::Address => {
            name::check_topic(name)?;
            if is_limited_topic(name) {
                return Ok(());
            }
            Err(Refusal::SystemTopic { topic: name.to_owned() })
        }
    }
}

/// Whether quotas of topics limit the topic: they leave those of the system, of retries and of dead letters alone.
pub(crate) fn is_limited_topic(topic: &str) -> bool {
    !system::is_system_topic(topic) && !topic.starts_with('%')
}

fn address(text: &str) -> Result<(String, Names), Refusal> {
    let wrong = || {
        let (field, wanted) = ("name", "an IP address, a network such as 10.0.0.0/8, or *");
        Refusal::Value { field, wanted, value: text.to_owned() }
    };
    if !text.contains('/') {
        let ip: IpAddr = text.parse().map_err(|_| wrong())?;
        return Ok((ip.to_canonical().to_string(), Names::One));
    }
    let network: Network = text.parse().map_err(|_| wrong())?;
    Ok((format!("{}/{}", network.first(), network.bits()), Names::Network(network)))
}

/// Quotas of all scopes, for look-ups.
#[derive(Debug, Default)]
pub(super) struct Rules {
    of_one: [HashMap<String, Arc<Rule>>; 4],
    /// Those of several names, the narrowest first.
    of_several: [Vec<Arc<Rule>>; 4],
    /// Whether any limits messages or bytes, by scope and direction.
    limits: [[bool; 2]; 4],
}

impl Rules {
    pub(super) fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        let mut all = Self::default();
        for rule in rules {
            let scope = rule.scope as usize;
            let rule = Arc::new(rule);
            for direction in [Direction::Send, Direction::Pull] {
                let limits = rule.limits(direction).iter().any(Option::is_some);
                all.limits[scope][direction as usize] |= limits;
            }
            match rule.names {
                Names::One => drop(all.of_one[scope].insert(rule.quota.name.clone(), rule)),
                _ => all.of_several[scope].push(rule),
            }
        }
        for rules in &mut all.of_several {
            rules.sort_by_key(|rule| std::cmp::Reverse(rule.narrowness()));
        }
        all
    }

    /// Whether any quota limits messages or bytes.
    pub(super) fn any(&self) -> bool {
        self.limits.iter().flatten().any(|limits| *limits)
    }

    pub(super) fn any_of(&self, scope: Scope, direction: Direction) -> bool {
        self.limits[scope as usize][direction as usize]
    }

    /// The quota of a name: its own, else the narrowest that has it.
    pub(super) fn find(&self, scope: Scope, name: &str) -> Option<&Arc<Rule>> {
        let own = self.of_one[scope as usize].get(name);
        own.or_else(|| self.of_several[scope as usize].iter().find(|rule| rule.limits_name(name)))
    }

    pub(super) fn by_id(&self, id: &str) -> Option<&Arc<Rule>> {
        let rules = self.of_one.iter().flat_map(HashMap::values).chain(self.of_several.iter().flatten());
        rules.into_iter().find(|rule| rule.id == id)
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.by_id(id).is_some()
    }

    /// The quota of an address, and the name under which it is counted.
    pub(super) fn find_address(&self, ip: IpAddr) -> Option<(&Arc<Rule>, String)> {
        let name = ip.to_canonical().to_string();
        let rule = self.find(Scope::Address, &name)?;
        Some(match rule.names {
            Names::One => (rule, name),
            _ => (rule, host_of(ip).to_string()),
        })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(scope: &str, name: &str) -> Result<Rule, Refusal> {
        let (scope, name) = (scope.to_owned(), name.to_owned());
        Rule::new(Quota { scope, name, send_messages: Some(1), ..Quota::default() })
    }

    #[test]
    fn the_narrowest_quota_of_a_name_counts() {
        let names = [
            ("topic", "*"),
            ("topic", "or*"),
            ("topic", "order*"),
            ("topic", "orders"),
            ("address", "*"),
            ("address", "10.0.0.0/8"),
            ("address", "10.1.2.3"),
            ("address", "2001:db8::1"),
            ("user", "app*"),
        ];
        let rules = Rules::new(names.map(|(scope, name)| rule(scope, name).unwrap()));
        let topic = |name| rules.find(Scope::Topic, name).unwrap().id().to_owned();
        assert_eq!(topic("orders"), "topic:orders");
        assert_eq!(topic("ordered"), "topic:order*");
        assert_eq!(topic("oregano"), "topic:or*");
        assert_eq!(topic("payments"), "topic:*");
        let address = |ip: &str| {
            let (rule, name) = rules.find_address(ip.parse().unwrap()).unwrap();
            (rule.id().to_owned(), name)
        };
        let found = |id: &str, name: &str| (id.to_owned(), name.to_owned());
        assert_eq!(address("::ffff:10.1.2.3"), found("address:10.1.2.3", "10.1.2.3"));
        assert_eq!(address("10.1.2.4"), found("address:10.0.0.0/8", "10.1.2.4"));
        assert_eq!(address("192.0.2.1"), found("address:*", "192.0.2.1"));
        assert_eq!(address("2001:db8::1"), found("address:2001:db8::1", "2001:db8::1"));
        assert_eq!(address("2001:db8::2"), found("address:*", "2001:db8::"), "one host has 64 bits");
        assert!(rules.find(Scope::Group, "group").is_none());
        assert_eq!(rules.find(Scope::User, "app-1").unwrap().id(), "user:app*");
        assert!(rules.any_of(Scope::Topic, Direction::Send) && !rules.any_of(Scope::Topic, Direction::Pull));
    }

    #[test]
    fn names_and_limits_that_are_none_are_refused() {
        for (scope, name) in [
            ("client", "x"),
            ("user", " "),
            ("user", "a*b"),
            ("user", "a\nb"),
            ("topic", ""),
            ("topic", "a b"),
            ("topic", "a*b"),
            ("topic", "TBW102"),
            ("topic", "%RETRY%g"),
            ("group", "a/b"),
            ("address", "host"),
            ("address", "10.0.0.0/33"),
            ("address", "10.0.0.0/x"),
            ("address", "10.*"),
        ] {
            assert!(rule(scope, name).is_err(), "{scope} {name}");
        }
        assert_eq!(rule("address", "10.1.2.3/8").unwrap().id(), "address:10.0.0.0/8");
        assert_eq!(rule("address", "0.0.0.0/0").unwrap().id(), "address:0.0.0.0/0");
        let quota = |scope: &str| Quota { scope: scope.to_owned(), name: "*".to_owned(), ..Quota::default() };
        assert!(Rule::new(quota("topic")).is_err(), "no limit");
        assert!(Rule::new(Quota { send_messages: Some(0), ..quota("topic") }).is_err());
        assert!(Rule::new(Quota { send_bytes: Some(u64::MAX), ..quota("topic") }).is_err());
        assert!(Rule::new(Quota { connections: Some(1), ..quota("topic") }).is_err());
        assert!(Rule::new(Quota { connections: Some(1), ..quota("address") }).is_ok());
    }
}

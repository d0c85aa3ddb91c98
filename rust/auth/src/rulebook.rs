//! The policies of a user, arranged for decisions.

use std::collections::HashMap;
use std::net::IpAddr;

use rocketpy_model::Network;

use crate::policy::{Actions, Decision, Policy, PolicyType, Resource, ResourceType};

/// The policies of a user in the order in which they decide: those of type Custom, then those of type Default.
///
/// # Source
/// docs/reference/protocol.md 6.3.
#[derive(Debug, Default)]
pub(crate) struct Rulebook {
    custom: Ranked,
    default: Ranked,
}

/// The policies of one type: those about one resource, then by prefix, the longest first, then those of a kind, then those of everything.
#[derive(Debug, Default)]
struct Ranked {
    one: HashMap<Box<str>, Vec<(ResourceType, Rule)>>,
    prefixes: Vec<(ResourceType, Box<str>, Rule)>,
    all: Vec<(ResourceType, Rule)>,
    everything: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    actions: Actions,
    source_ips: Vec<Network>,
    decision: Decision,
}

impl Rulebook {
    pub(crate) fn new(policies: &[Policy]) -> Self {
        let mut book = Self::default();
        // Of two that match equally well, the one that denies decides.
        for decision in [Decision::Deny, Decision::Allow] {
            for policy in policies.iter().filter(|policy| policy.decision == decision) {
                match policy.policy_type {
                    PolicyType::Custom => book.custom.add(policy),
                    PolicyType::Default => book.default.add(policy),
                }
            }
        }
        book.custom.sort();
        book.default.sort();
        book
    }

    /// The decision of the first policy that matches: it is about the resource, has one of the actions, and the address.
    pub(crate) fn decide(
        &self,
        (kind, name): (ResourceType, &str),
        actions: Actions,
        from: IpAddr,
    ) -> Option<Decision> {
        let matches = |rule: &&Rule| rule.matches(actions, from);
        let found = self.custom.about(kind, name).find(matches);
        found.or_else(|| self.default.about(kind, name).find(matches)).map(|rule| rule.decision)
    }
}

impl Ranked {
    fn add(&mut self, policy: &Policy) {
        let Policy { actions, decision, .. } = *policy;
        let rule = Rule { actions, source_ips: policy.source_ips.clone(), decision };
        match policy.resource.clone() {
            Resource::Everything => self.everything.push(rule),
            Resource::All(kind) => self.all.push((kind, rule)),
            Resource::Prefix(kind, prefix) => self.prefixes.push((kind, prefix, rule)),
            Resource::One(kind, name) => self.one.entry(name).or_default().push((kind, rule)),
        }
    }

    fn sort(&mut self) {
        self.prefixes.sort_by_key(|(_, prefix, _)| std::cmp::Reverse(prefix.len()));
    }

    /// The rules about a resource, in the order in which they decide.
    fn about<'a>(&'a self, kind: ResourceType, name: &'a str) -> impl Iterator<Item = &'a Rule> {
        let one = self.one.get(name).into_iter().flatten();
        let one = one.filter(move |(of, _)| *of == kind).map(|(_, rule)| rule);
        let prefixes = self.prefixes.iter();
        let prefixes = prefixes.filter(move |(of, prefix, _)| *of == kind && name.starts_with(&**prefix));
        let all = self.all.iter().filter(move |(of, _)| *of == kind).map(|(_, rule)| rule);
        one.chain(prefixes.map(|(_, _, rule)| rule)).chain(all).chain(&self.everything)
    }
}

impl Rule {
    fn matches(&self, actions: Actions, from: IpAddr) -> bool {
        let is_from = || self.source_ips.is_empty() || self.source_ips.iter().any(|net| net.contains(from));
        self.actions.meets(actions) && is_from()
    }
}

#[cfg(test)]
mod tests;

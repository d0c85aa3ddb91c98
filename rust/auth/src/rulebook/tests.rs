//! The order in which policies decide.

use std::cmp::Ordering;

use proptest::prelude::*;

use super::*;
use crate::policy::Action;

fn policy(policy_type: PolicyType, resource: &str, actions: Actions, decision: Decision) -> Policy {
    let resource = resource.parse().unwrap();
    Policy { policy_type, resource, actions, source_ips: Vec::new(), decision }
}

fn custom(resource: &str, decision: Decision) -> Policy {
    policy(PolicyType::Custom, resource, Actions::ALL, decision)
}

fn decide(policies: &[Policy], topic: &str) -> Option<Decision> {
    let from = "10.0.0.1".parse().unwrap();
    Rulebook::new(policies).decide((ResourceType::Topic, topic), Actions::of(&[Action::Pub]), from)
}

#[test]
fn each_rank_decides_before_the_next() {
    let ranks = ["Topic:orders", "Topic:orde*", "Topic:o*", "Topic:*", "*"];
    for (at, better) in ranks.iter().enumerate() {
        for worse in &ranks[at + 1..] {
            for (first, second) in [(Decision::Allow, Decision::Deny), (Decision::Deny, Decision::Allow)] {
                let policies = [custom(worse, second), custom(better, first)];
                assert_eq!(decide(&policies, "orders"), Some(first), "{better} before {worse}");
            }
        }
    }
}

#[test]
fn default_policies_decide_only_where_no_custom_one_matches() {
    let default = policy(PolicyType::Default, "Topic:orders", Actions::ALL, Decision::Allow);
    assert_eq!(decide(&[default.clone(), custom("*", Decision::Deny)], "orders"), Some(Decision::Deny));
    let of_reads = policy(PolicyType::Custom, "*", Actions::of(&[Action::Sub]), Decision::Deny);
    assert_eq!(decide(&[default.clone(), of_reads], "orders"), Some(Decision::Allow));
    assert_eq!(decide(&[default], "payments"), None, "no policy, no permission");
}

#[test]
fn address_limits_a_policy_and_mapped_addresses_count() {
    let mut allowed = custom("Topic:orders", Decision::Allow);
    allowed.source_ips = vec!["10.0.0.0/8".parse().unwrap(), "::ffff:192.168.0.1".parse().unwrap()];
    let book = Rulebook::new(&[allowed]);
    let from = |ip: &str| {
        let actions = Actions::of(&[Action::Pub]);
        book.decide((ResourceType::Topic, "orders"), actions, ip.parse().unwrap())
    };
    for ip in ["10.1.2.3", "::ffff:10.1.2.3", "192.168.0.1", "::ffff:192.168.0.1"] {
        assert_eq!(from(ip), Some(Decision::Allow), "{ip}");
    }
    for ip in ["11.0.0.1", "192.168.0.2", "::1", "::10.1.2.3"] {
        assert_eq!(from(ip), None, "{ip}");
    }
}

/// The order as the reference states it, over all policies that match.
fn reference(policies: &[Policy], kind: ResourceType, name: &str, actions: Actions) -> Option<Decision> {
    for policy_type in [PolicyType::Custom, PolicyType::Default] {
        let is_about = |resource: &Resource| match resource {
            Resource::Everything => true,
            Resource::All(of) => *of == kind,
            Resource::Prefix(of, prefix) => *of == kind && name.starts_with(&**prefix),
            Resource::One(of, one) => *of == kind && **one == *name,
        };
        let is_match = |policy: &&Policy| {
            policy.policy_type == policy_type
                && is_about(&policy.resource)
                && policy.actions.iter().any(|action| actions.iter().any(|wanted| wanted == action))
        };
        let mut matching: Vec<&Policy> = policies.iter().filter(is_match).collect();
        matching.sort_by(|one, other| order(one, other));
        if let Some(first) = matching.first() {
            return Some(first.decision);
        }
    }
    None
}

fn order(one: &Policy, other: &Policy) -> Ordering {
    let rank = |policy: &Policy| match &policy.resource {
        Resource::One(..) => (0, 0),
        Resource::Prefix(_, prefix) => (1, usize::MAX - prefix.len()),
        Resource::All(_) => (2, 0),
        Resource::Everything => (3, 0),
    };
    let denies_first = |policy: &Policy| policy.decision == Decision::Allow;
    rank(one).cmp(&rank(other)).then(denies_first(one).cmp(&denies_first(other)))
}

fn any_resource() -> impl Strategy<Value = Resource> {
    let kind = prop::sample::select(vec![ResourceType::Topic, ResourceType::Group]);
    let name = "a{1,3}b?";
    (kind, name, 0..4).prop_map(|(kind, name, form)| match form {
        0 => Resource::Everything,
        1 => Resource::All(kind),
        2 => Resource::Prefix(kind, name.into()),
        _ => Resource::One(kind, name.into()),
    })
}

fn any_actions() -> impl Strategy<Value = Actions> {
    prop::collection::vec(prop::sample::select(Actions::ALL.iter().collect::<Vec<_>>()), 1..4)
        .prop_map(|actions| Actions::of(&actions))
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let types = prop::sample::select(vec![PolicyType::Custom, PolicyType::Default]);
    let decision = prop::sample::select(vec![Decision::Allow, Decision::Deny]);
    (types, any_resource(), any_actions(), decision).prop_map(|(policy_type, resource, actions, decision)| {
        Policy { policy_type, resource, actions, source_ips: Vec::new(), decision }
    })
}

proptest! {
    #[test]
    fn decisions_follow_the_order_of_the_reference(
        policies in prop::collection::vec(any_policy(), 0..12),
        kind in prop::sample::select(vec![ResourceType::Topic, ResourceType::Group]),
        name in "a{0,3}b?",
        actions in any_actions(),
    ) {
        let from = "10.0.0.1".parse().unwrap();
        let decided = Rulebook::new(&policies).decide((kind, &name), actions, from);
        prop_assert_eq!(decided, reference(&policies, kind, &name, actions));
    }

    #[test]
    fn text_of_a_resource_reads_back(resource in any_resource()) {
        prop_assert_eq!(resource.to_string().parse::<Resource>().unwrap(), resource);
    }
}

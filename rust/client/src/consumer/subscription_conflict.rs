//! What brokers say of members that subscribe to something else than this one.

use rocketpy_protocol::body::OtherSubscription;

/// The latest word about a member with other subscriptions.
#[derive(Debug, Default)]
pub(crate) struct SubscriptionConflict {
    other: Option<OtherSubscription>,
    /// The user has not been told since the last heartbeat.
    is_due: bool,
}

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    /// There is such a member, or another one than before.
    Differs,
    /// There is none any more.
    Agrees,
}

impl SubscriptionConflict {
    /// Takes what the answers to a heartbeat said. `None` ends a disagreement only where all brokers answered.
    pub(crate) fn heard(&mut self, other: Option<OtherSubscription>, all_answered: bool) -> Change {
        if other.is_none() && !all_answered {
            return Change::Nothing;
        }
        let change = match (&self.other, &other) {
            (Some(_), None) => Change::Agrees,
            (before, Some(_)) if *before != other => Change::Differs,
            _ => Change::Nothing,
        };
        // A broker that was just connected to repeats what the regular heartbeat told.
        self.is_due = other.is_some() && (self.is_due || all_answered || change == Change::Differs);
        self.other = other;
        change
    }

    /// The other member, once after each heartbeat that told of it.
    pub(crate) fn take_due(&mut self) -> Option<OtherSubscription> {
        std::mem::take(&mut self.is_due).then(|| self.other.clone()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(subscriptions: &str) -> Option<OtherSubscription> {
        Some(OtherSubscription { subscriptions: subscriptions.to_owned(), ..OtherSubscription::default() })
    }

    #[test]
    fn each_heartbeat_renews_the_error_and_only_a_change_is_logged() {
        let mut others = SubscriptionConflict::default();
        assert_eq!(others.heard(None, true), Change::Nothing);
        assert_eq!(others.heard(other("t: A"), true), Change::Differs);
        assert_eq!((others.take_due(), others.take_due()), (other("t: A"), None));
        assert_eq!(others.heard(other("t: A"), true), Change::Nothing);
        assert_eq!(others.take_due(), other("t: A"));
        assert_eq!(others.heard(other("t: B"), true), Change::Differs);
    }

    #[test]
    fn an_end_is_believed_when_all_brokers_were_asked_and_takes_the_error_back() {
        let mut others = SubscriptionConflict::default();
        others.heard(other("t: A"), false);
        assert_eq!(others.heard(None, false), Change::Nothing);
        assert_eq!(others.heard(None, true), Change::Agrees);
        assert_eq!(others.take_due(), None);
    }
}

//! How a member gets messages to its user.

/// How a member gets messages to its user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The user polls.
    #[default]
    Pull,
    /// Handlers get messages and finish each.
    Push {
        /// Each queue's messages one after the other.
        ordered: bool,
        /// The member gets all messages, not a share.
        broadcast: bool,
    },
}

impl Delivery {
    pub(crate) fn is_pushed(self) -> bool {
        self != Self::Pull
    }

    pub(crate) fn is_ordered(self) -> bool {
        matches!(self, Self::Push { ordered: true, .. })
    }

    pub(crate) fn is_broadcast(self) -> bool {
        matches!(self, Self::Push { broadcast: true, .. })
    }

    /// Whether a queue may be read only with its lock at the broker.
    pub(crate) fn needs_locks(self) -> bool {
        matches!(self, Self::Push { ordered: true, broadcast: false })
    }
}

//! Which parts a process has.

use crate::config::live::Part;

/// Which parts a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A name server and a broker.
    Standalone,
    /// A name server alone. `listenPort` is its port, unless `nameServerPort` is set.
    NameServer,
    /// A broker alone, which registers at the name servers of `namesrvAddr`.
    Broker,
}

impl Role {
    /// Whether the process has a name server.
    pub fn has_name_server(self) -> bool {
        self != Self::Broker
    }

    pub(crate) fn parts(self) -> &'static [Part] {
        match self {
            Self::Standalone => &[Part::NameServer, Part::Broker],
            Self::NameServer => &[Part::NameServer],
            Self::Broker => &[Part::Broker],
        }
    }

    /// Whether the process has a broker.
    pub fn has_broker(self) -> bool {
        self != Self::NameServer
    }
}

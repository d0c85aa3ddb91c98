use std::time::Duration;

use crate::ServerConfig;

/// Where a running process accepts connections, as `host:port` that a client can use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// The name server, when this process has one (standalone, name server only).
    pub name_server: Option<String>,
    /// The broker, when this process has one.
    pub broker: Option<String>,
}

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The broker's reason.
    #[error(transparent)]
    Broker(#[from] rocketpy_broker::BrokerError),
}

impl ServerError {
    /// The way out, for the last line of a message.
    pub fn hint(&self) -> &'static str {
        ""
    }
}

macro_rules! process {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        pub struct $name {
            addresses: Addresses,
        }

        impl $name {
            /// Starts and returns once everything accepts. Blocks; owns its threads.
            pub fn start(_config: ServerConfig) -> Result<Self, ServerError> {
                Ok(Self { addresses: Addresses::default() })
            }

            /// Where it accepts.
            pub fn addresses(&self) -> &Addresses {
                &self.addresses
            }

            /// Stops in order; idempotent. Blocks for at most `within`.
            pub fn stop(&self, _within: Duration) {}
        }
    };
}

process!(
    /// A name server and a broker in one process.
    Standalone
);
process!(
    /// A name server alone.
    NameServerOnly
);
process!(
    /// A broker alone.
    BrokerOnly
);

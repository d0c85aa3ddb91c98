//! How clients and slaves reach this broker.

use std::net::SocketAddr;

/// How clients reach this broker; known once its address is bound.
#[derive(Debug, Clone)]
pub(crate) struct Advertised {
    /// In offset message ids and records.
    pub(crate) store_host: SocketAddr,
    /// In routes.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Advertised {
    /// `host:port`, an IPv6 address in brackets.
    pub(crate) fn address(&self) -> String {
        self.with_port(self.port)
    }

    pub(crate) fn with_port(&self, port: u16) -> String {
        if self.host.contains(':') {
            format!("[{}]:{port}", self.host)
        } else {
            format!("{}:{port}", self.host)
        }
    }
}

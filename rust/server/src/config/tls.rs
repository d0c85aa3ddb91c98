//! Certificates and keys of a process.

use std::path::PathBuf;

use rocketpy_broker::{ClientTlsFiles, ServerTlsFiles, Trust};

/// TLS of a process: of its ports, and of its broker as a client.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// TLS of the ports (`tlsServer...`).
    pub server: ServerTlsFiles,
    /// File with Apache's properties (`tlsConfigFile`).
    pub config_file: Option<PathBuf>,
    /// Whether the broker connects by TLS (`useTLS`).
    pub is_used: bool,
    /// Certificate that the broker shows (`tlsClient...`).
    pub client: ClientTlsFiles,
    /// Authorities that it trusts (`tlsClientTrustCertPath`); `None`: those of the system.
    pub client_trust: Option<PathBuf>,
    /// Whether it verifies servers (`tlsClientAuthServer`).
    pub verifies_servers: bool,
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self {
            server: ServerTlsFiles::default(),
            config_file: None,
            is_used: false,
            client: ClientTlsFiles::default(),
            client_trust: None,
            verifies_servers: true,
        }
    }
}

impl TlsConfig {
    /// Settings of the broker as a client.
    pub(crate) fn of_client(&self) -> ClientTlsFiles {
        let trust = match &self.client_trust {
            _ if !self.verifies_servers => Trust::Anybody,
            Some(path) => Trust::Authorities(path.clone()),
            None => Trust::System,
        };
        ClientTlsFiles { trust, ..self.client.clone() }
    }
}

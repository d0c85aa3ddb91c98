//! Paths of certificates and keys, and what is in them.
use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, RealDisk};

use super::error::TlsError;
use super::identity::{Identity, Pem};

/// Maximum size of a file of certificates or of a key.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// How a server treats TLS and plain connections on its port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[doc(alias = "tls.server.mode")]
pub enum TlsMode {
    /// Plain connections only.
    Disabled,
    /// Plain and TLS connections, once there is a certificate.
    #[default]
    Permissive,
    /// TLS connections only.
    Enforcing,
}

/// Whether clients need a certificate. One that is given is always verified.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[doc(alias = "tls.server.need.client.auth")]
pub enum ClientVerification {
    /// None is requested.
    #[default]
    None,
    /// A client may have one.
    Optional,
    /// A client without one is refused.
    Require,
}

/// TLS settings of a server.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ServerTlsFiles {
    /// Which connections are accepted. Default permissive: plain ones only, until there is a certificate.
    pub mode: TlsMode,
    /// PEM file of the server's certificate, followed by those of its authorities.
    pub cert: Option<PathBuf>,
    /// PEM file of its private key.
    pub key: Option<PathBuf>,
    /// Password of the key.
    pub key_password: Option<String>,
    /// Whether clients need a certificate.
    pub client_verification: ClientVerification,
    /// PEM file of the authorities of client certificates.
    pub trust: Option<PathBuf>,
}

/// Which servers a client trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Trust {
    /// Those whose certificate an authority of the system signed for their host.
    #[default]
    System,
    /// Those whose certificate an authority in this PEM file signed for their host.
    Authorities(PathBuf),
    /// The one with the first certificate of this PEM file, whatever its host: the server of this process itself.
    Exactly(PathBuf),
    /// Any: the peer may be anybody.
    Anybody,
}

/// TLS settings of a client.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClientTlsFiles {
    /// Which servers are trusted.
    pub trust: Trust,
    /// PEM file of the client's certificate.
    pub cert: Option<PathBuf>,
    /// PEM file of its private key.
    pub key: Option<PathBuf>,
    /// Password of the key.
    pub key_password: Option<String>,
}

impl std::fmt::Debug for ServerTlsFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTlsFiles")
            .field("mode", &self.mode)
            .field("cert", &self.cert)
            .field("client_verification", &self.client_verification)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ClientTlsFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientTlsFiles")
            .field("trust", &self.trust)
            .field("cert", &self.cert)
            .finish_non_exhaustive()
    }
}

/// A file with its bytes. Equal bytes need no new context.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Read {
    path: PathBuf,
    text: Vec<u8>,
}

impl Read {
    pub(super) fn of(path: &Path) -> Result<Self, TlsError> {
        Ok(Self { path: path.to_owned(), text: RealDisk.read(path, MAX_FILE_BYTES)? })
    }

    pub(super) fn of_optional(path: Option<&PathBuf>) -> Result<Option<Self>, TlsError> {
        path.map(|path| Self::of(path)).transpose()
    }

    pub(super) fn pem(&self) -> Pem<'_> {
        Pem { path: &self.path, text: &self.text }
    }
}

/// Certificate, key and authorities as they are in their files.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Contents {
    pair: Option<(Read, Read)>,
    pub(super) trust: Option<Read>,
}

impl Contents {
    /// Reads the files that are named.
    ///
    /// # Errors
    /// A file cannot be read, or only one of certificate and key is named.
    pub(super) fn read(
        cert: Option<&PathBuf>,
        key: Option<&PathBuf>,
        trust: Option<&PathBuf>,
        names: (&'static str, &'static str),
    ) -> Result<Self, TlsError> {
        let pair = match (cert, key) {
            (Some(cert), Some(key)) => Some((Read::of(cert)?, Read::of(key)?)),
            (None, None) => None,
            _ => return Err(TlsError::Half { setting: names.0, other: names.1 }),
        };
        Ok(Self { pair, trust: Read::of_optional(trust)? })
    }

    pub(super) fn identity(&self, password: Option<&str>) -> Result<Option<Identity>, TlsError> {
        let Some((cert, key)) = &self.pair else { return Ok(None) };
        Identity::read(&cert.pem(), &key.pem(), password).map(Some)
    }
}

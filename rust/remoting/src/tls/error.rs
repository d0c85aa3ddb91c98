//! Why TLS settings cannot be used.
use std::path::PathBuf;

use rocketpy_env::EnvError;
use tokio_rustls::rustls;

/// Why TLS settings cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum TlsError {
    #[error("cannot read a TLS file: {0}")]
    File(#[from] EnvError),
    #[error("{} has no certificate in PEM", path.display())]
    NoCertificate { path: PathBuf },
    #[error("{} has a certificate that cannot be read: {reason}", path.display())]
    Certificate { path: PathBuf, reason: String },
    #[error("{} has no private key in PEM (PKCS#8, PKCS#1 or SEC1)", path.display())]
    NoKey { path: PathBuf },
    #[error("{} is encrypted and no password is set", path.display())]
    NoPassword { path: PathBuf },
    #[error("cannot decrypt {}: wrong password, or not encrypted by PBES2: {reason}", path.display())]
    Password { path: PathBuf, reason: String },
    #[error("the system has no trusted certificates: {reason}")]
    NoRoots { reason: String },
    #[error("{setting} and {other} must be set together")]
    Half { setting: &'static str, other: &'static str },
    #[error("client certificates cannot be verified without a file of trusted authorities")]
    NoAuthorities,
    #[error("certificate or key rejected: {0}")]
    Rejected(#[from] rustls::Error),
}

impl TlsError {
    /// Advice on how to recover.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoPassword { .. } => Some("set the password of the key, or give a key without one"),
            Self::Password { .. } => Some(
                "encrypt it with `openssl pkcs8 -topk8 -v2 aes-256-cbc`, or give a key without a password",
            ),
            Self::NoRoots { .. } => Some("install ca-certificates, or give a file with the authority"),
            Self::NoAuthorities => {
                Some("set tlsServerTrustCertPath to the PEM file of the authority of the clients")
            }
            Self::Rejected(_) => Some("give the chain and the key that belong together, in PEM"),
            Self::NoCertificate { .. } | Self::Certificate { .. } | Self::NoKey { .. } => Some(
                "convert the file with openssl to PEM; the certificate of the server is first, then those of its authorities",
            ),
            Self::File(error) => error.hint(),
            Self::Half { .. } => None,
        }
    }
}

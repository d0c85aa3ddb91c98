//! The server's side: which connections are encrypted, and by which certificate.
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{DEFAULT_VERSIONS, ServerConfig};

use super::error::TlsError;
use super::files::{ClientVerification, Contents, ServerTlsFiles, TlsMode};
use super::half_open::HalfOpen;
use super::reloaded::Reloaded;
use super::stream::{EncryptedStream, Metered, of_server};
use super::{HANDSHAKE, provider};

/// Maximum number of handshakes of a process that have not ended.
const MAX_HALF_OPEN: usize = 1024;
/// Maximum time of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// TLS of a process that listens: shared by all of its ports.
pub struct ServerTls {
    files: ServerTlsFiles,
    current: Reloaded<Current>,
    half_open: Arc<HalfOpen>,
    handshake_timeout: Duration,
    failed: AtomicU64,
}

/// What the next handshake uses.
#[derive(Clone)]
struct Current {
    context: Arc<ServerConfig>,
    expires_at_ms: i64,
}

/// A connection whose kind is known.
pub enum Accepted {
    /// Without encryption.
    Plain(TcpStream),
    /// With encryption, after the handshake.
    Encrypted(Box<EncryptedStream>),
}

/// Why a connection is not served.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum Refused {
    #[error("closed by the peer before its first byte")]
    Silent,
    #[error("no first byte within {} s", .0.as_secs_f32())]
    NoFirstByte(Duration),
    #[error("plain connection, tlsServerMode is enforcing")]
    Plain,
    #[error("TLS handshake not ended within {} s", .0.as_secs_f32())]
    Slow(Duration),
    #[error("TLS handshake displaced by later ones")]
    Displaced,
    #[error("TLS handshake failed: {0}")]
    Handshake(#[source] io::Error),
    #[error("socket broke: {0}")]
    Socket(#[from] io::Error),
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl ServerTls {
    /// Reads certificate and key. `None`: connections are plain, because TLS is disabled or, in permissive mode, without a certificate.
    ///
    /// # Errors
    /// A file cannot be read or used; enforcing mode without a certificate.
    pub fn load(files: ServerTlsFiles) -> Result<Option<Arc<Self>>, TlsError> {
        Self::load_bounded(files, MAX_HALF_OPEN, HANDSHAKE_TIMEOUT)
    }

    /// As [`load`](Self::load), with bounds of handshakes that have not ended: their number and their time.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_bounded(
        files: ServerTlsFiles,
        max_half_open: usize,
        handshake_timeout: Duration,
    ) -> Result<Option<Arc<Self>>, TlsError> {
        if files.mode == TlsMode::Disabled {
            return Ok(None);
        }
        let contents = files.contents()?;
        let Some(current) = files.current(&contents)? else {
            return match files.mode {
                TlsMode::Enforcing => {
                    Err(TlsError::Half { setting: "tlsServerMode=enforcing", other: "tlsServerCertPath" })
                }
                _ => Ok(None),
            };
        };
        Ok(Some(Arc::new(Self {
            files,
            current: Reloaded::new(current, contents),
            half_open: HalfOpen::new(max_half_open),
            handshake_timeout,
            failed: AtomicU64::new(0),
        })))
    }

    /// Reads the files again; true when they have changed and are used from now on. Connections that are open keep what they have. May block.
    ///
    /// # Errors
    /// A file cannot be read or used: the former contents stay in use. Each broken content is reported once.
    pub fn reload(&self) -> Result<bool, TlsError> {
        self.current.reload(|| self.files.contents(), |contents| self.files.current(contents))
    }

    /// Earliest end of a certificate in use, in milliseconds of Unix time.
    pub fn expires_at_ms(&self) -> i64 {
        self.current.get().expires_at_ms
    }

    /// Handshakes that have not ended.
    pub fn half_open(&self) -> usize {
        self.half_open.count()
    }

    /// Connections refused since the start: failed and unfinished handshakes, and plain ones where TLS is enforced.
    pub fn refused(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    pub(super) fn context(&self) -> Arc<ServerConfig> {
        self.current.get().context
    }

    pub(super) fn handshake_timeout(&self) -> Duration {
        self.handshake_timeout
    }

    /// Whether a first byte begins a handshake.
    ///
    /// # Errors
    /// A plain connection where TLS is enforced.
    pub(super) fn is_handshake(&self, first: u8) -> Result<bool, Refused> {
        match (first, self.files.mode) {
            (HANDSHAKE, _) => Ok(true),
            (_, TlsMode::Enforcing) => Err(Refused::Plain),
            _ => Ok(false),
        }
    }

    pub(super) fn count_refused(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Looks at the first byte, which a plain connection may send within `patience`, and completes the handshake of a TLS connection.
    ///
    /// # Errors
    /// The connection is not served, and why.
    pub async fn accept(&self, socket: TcpStream, patience: Duration) -> Result<Accepted, Refused> {
        let accepted = match self.files.mode {
            // Nothing but a handshake may come: each connection counts from its first moment.
            TlsMode::Enforcing => self.bounded(self.enforce(socket)).await,
            _ => match tokio::time::timeout(patience, self.begins_handshake(&socket)).await {
                Ok(Ok(true)) => self.bounded(self.shake_hands(socket)).await,
                Ok(begins) => begins.map(|_| Accepted::Plain(socket)),
                Err(_) => Err(Refused::NoFirstByte(patience)),
            },
        };
        if !matches!(accepted, Ok(_) | Err(Refused::Silent)) {
            self.count_refused();
        }
        accepted
    }

    async fn enforce(&self, socket: TcpStream) -> Result<Accepted, Refused> {
        self.begins_handshake(&socket).await?;
        self.shake_hands(socket).await
    }

    async fn begins_handshake(&self, socket: &TcpStream) -> Result<bool, Refused> {
        let mut first = [0];
        if socket.peek(&mut first).await? == 0 {
            return Err(Refused::Silent);
        }
        self.is_handshake(first[0])
    }

    async fn shake_hands(&self, socket: TcpStream) -> Result<Accepted, Refused> {
        let stream = TlsAcceptor::from(self.context()).accept(Metered::new(socket)).await;
        Ok(Accepted::Encrypted(Box::new(of_server(stream.map_err(Refused::Handshake)?))))
    }

    async fn bounded(
        &self,
        accept: impl Future<Output = Result<Accepted, Refused>>,
    ) -> Result<Accepted, Refused> {
        let mut place = self.half_open.enter();
        tokio::select! {
            accepted = tokio::time::timeout(self.handshake_timeout, accept) => {
                accepted.unwrap_or(Err(Refused::Slow(self.handshake_timeout)))
            }
            () = place.displaced() => Err(Refused::Displaced),
        }
    }
}

impl ServerTlsFiles {
    fn contents(&self) -> Result<Contents, TlsError> {
        let names = ("tlsServerCertPath", "tlsServerKeyPath");
        Contents::read(self.cert.as_ref(), self.key.as_ref(), self.trust.as_ref(), names)
    }

    fn current(&self, contents: &Contents) -> Result<Option<Current>, TlsError> {
        let Some(identity) = contents.identity(self.key_password.as_deref())? else { return Ok(None) };
        let builder =
            ServerConfig::builder_with_provider(provider()).with_protocol_versions(DEFAULT_VERSIONS)?;
        let builder = match (self.client_verification, &contents.trust) {
            (ClientVerification::None, _) => builder.with_no_client_auth(),
            (_, None) => return Err(TlsError::NoAuthorities),
            (verification, Some(trust)) => {
                let roots = Arc::new(trust.pem().roots()?);
                let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                if verification == ClientVerification::Optional {
                    verifier = verifier.allow_unauthenticated();
                }
                builder.with_client_cert_verifier(verifier.build().map_err(|_| TlsError::NoAuthorities)?)
            }
        };
        let context = builder.with_single_cert(identity.chain, identity.key)?;
        Ok(Some(Current { context: Arc::new(context), expires_at_ms: identity.expires_at_ms }))
    }
}

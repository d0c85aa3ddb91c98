//! The client's side: whom it trusts, and what it shows.
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls_native_certs::load_native_certs;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WantsClientCert;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, ClientConnection, ConfigBuilder, DEFAULT_VERSIONS, DigitallySignedStruct,
    Error, RootCertStore, SignatureScheme, WantsVerifier,
};

use super::error::TlsError;
use super::files::{ClientTlsFiles, Contents, Trust};
use super::reloaded::Reloaded;
use super::stream::{EncryptedStream, Metered, of_client};
use super::{ALERT, HANDSHAKE, provider};

/// Time for a server to answer the beginning of a handshake.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// TLS of a client: verifies chain and name of each server, unless it trusts one certificate or anybody.
pub struct ClientTls {
    files: ClientTlsFiles,
    context: Reloaded<Arc<ClientConfig>>,
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientTls").field("files", &self.files).finish_non_exhaustive()
    }
}

/// Equal settings, as clients that share connections have to have.
impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        self.files == other.files
    }
}

impl Eq for ClientTls {}

impl ClientTls {
    /// Reads the files. May block.
    ///
    /// # Errors
    /// A file cannot be read or used, or the system has no trusted certificates.
    pub fn load(files: ClientTlsFiles) -> Result<Arc<Self>, TlsError> {
        let contents = files.contents()?;
        let context = files.context(&contents)?;
        Ok(Arc::new(Self { context: Reloaded::new(context, contents), files }))
    }

    /// Reads the files again; true when they have changed and are used from now on. May block.
    ///
    /// # Errors
    /// As [`load`](Self::load): the former contents stay in use. Each broken content is reported once.
    pub fn reload(&self) -> Result<bool, TlsError> {
        self.context.reload(|| self.files.contents(), |contents| self.files.context(contents).map(Some))
    }

    pub(super) fn context(&self) -> Arc<ClientConfig> {
        self.context.get()
    }

    /// Completes the handshake with the server of an address (`host:port`).
    ///
    /// # Errors
    /// The server offers no TLS, or its certificate is not accepted.
    pub async fn connect(&self, addr: &str, socket: TcpStream) -> io::Result<EncryptedStream> {
        let name = server_name(addr)?;
        Ok(of_client(TlsConnector::from(self.context()).connect(name, Metered::new(socket)).await?))
    }

    /// Whether a server answers the beginning of a TLS handshake.
    pub(crate) async fn is_spoken_at(addr: &str) -> bool {
        let probed = tokio::time::timeout(PROBE_TIMEOUT, probe(addr)).await;
        matches!(probed, Ok(Ok(ALERT | HANDSHAKE)))
    }
}

/// The first byte of the answer to the beginning of a handshake, which ends there.
async fn probe(addr: &str) -> io::Result<u8> {
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(DEFAULT_VERSIONS);
    let config = unnamed(builder.map_err(io::Error::other)?, None).with_no_client_auth();
    let session = ClientConnection::new(Arc::new(config), server_name(addr)?);
    let (mut session, mut hello) = (session.map_err(io::Error::other)?, Vec::new());
    while session.wants_write() {
        session.write_tls(&mut hello)?;
    }
    let mut socket = TcpStream::connect(addr).await?;
    socket.write_all(&hello).await?;
    socket.read_u8().await
}

/// The host of `host:port`, which the certificate has to name.
pub(super) fn server_name(addr: &str) -> io::Result<ServerName<'static>> {
    let host = addr.rsplit_once(':').map_or(addr, |(host, _)| host);
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let invalid =
        |_| io::Error::new(io::ErrorKind::InvalidInput, format!("no certificate can name the host: {host}"));
    ServerName::try_from(host.to_owned()).map_err(invalid)
}

impl ClientTlsFiles {
    fn contents(&self) -> Result<Contents, TlsError> {
        let names = ("the certificate of a client", "its key");
        let trust = match &self.trust {
            Trust::Authorities(path) | Trust::Exactly(path) => Some(path),
            Trust::System | Trust::Anybody => None,
        };
        Contents::read(self.cert.as_ref(), self.key.as_ref(), trust, names)
    }

    fn context(&self, contents: &Contents) -> Result<Arc<ClientConfig>, TlsError> {
        let builder =
            ClientConfig::builder_with_provider(provider()).with_protocol_versions(DEFAULT_VERSIONS)?;
        let builder = match (&self.trust, &contents.trust) {
            (Trust::Anybody, _) => unnamed(builder, None),
            (Trust::Exactly(_), Some(own)) => unnamed(builder, Some(own.pem().first_certificate()?)),
            (_, Some(authorities)) => builder.with_root_certificates(authorities.pem().roots()?),
            (_, None) => builder.with_root_certificates(system_roots()?),
        };
        Ok(Arc::new(match contents.identity(self.key_password.as_deref())? {
            Some(identity) => builder.with_client_auth_cert(identity.chain, identity.key)?,
            None => builder.with_no_client_auth(),
        }))
    }
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let reason = found.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
        return Err(TlsError::NoRoots { reason });
    }
    Ok(roots)
}

fn unnamed(
    builder: ConfigBuilder<ClientConfig, WantsVerifier>,
    only: Option<CertificateDer<'static>>,
) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    builder.dangerous().with_custom_certificate_verifier(Arc::new(Unnamed { only }))
}

/// Accepts a certificate whatever its host and its authority, if the server has its key.
#[derive(Debug)]
struct Unnamed {
    /// `None`: every certificate.
    only: Option<CertificateDer<'static>>,
}

impl ServerCertVerifier for Unnamed {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.only {
            Some(only) if only != end_entity => Err(CertificateError::UnknownIssuer.into()),
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

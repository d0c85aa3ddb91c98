//! Certificates and keys from PEM.
use std::path::Path;

use pkcs8::EncryptedPrivateKeyInfoRef;
use pkcs8::der::pem::decode_vec;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use x509_cert::Certificate;
use x509_cert::der::Decode;

use super::error::TlsError;

/// Label of a key that is encrypted by its password.
const ENCRYPTED_KEY: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
const ENCRYPTED_KEY_END: &str = "-----END ENCRYPTED PRIVATE KEY-----";

/// Certificate chain with its private key.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    /// Earliest end of a certificate of the chain, in milliseconds of Unix time.
    pub(super) expires_at_ms: i64,
}

/// A file that was read.
pub(super) struct Pem<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a [u8],
}

impl Identity {
    /// Reads a chain, the server's certificate first, and its key.
    ///
    /// # Errors
    /// A file is not PEM, or the key cannot be decrypted.
    pub(super) fn read(chain: &Pem<'_>, key: &Pem<'_>, password: Option<&str>) -> Result<Self, TlsError> {
        let chain = chain.certificates()?;
        let expires_at_ms = chain.iter().map(|(_, expires_at_ms)| *expires_at_ms).min();
        Ok(Self {
            expires_at_ms: expires_at_ms.expect("a chain has a certificate"),
            chain: chain.into_iter().map(|(certificate, _)| certificate).collect(),
            key: key.private_key(password)?,
        })
    }
}

impl Pem<'_> {
    /// The certificates with the ends of their validity, at least one.
    fn certificates(&self) -> Result<Vec<(CertificateDer<'static>, i64)>, TlsError> {
        let unreadable = |reason: String| TlsError::Certificate { path: self.path.to_owned(), reason };
        let mut found = Vec::new();
        for certificate in CertificateDer::pem_slice_iter(self.text) {
            let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
            let parsed =
                Certificate::from_der(&certificate).map_err(|error| unreadable(error.to_string()))?;
            let end = parsed.tbs_certificate().validity().not_after.to_unix_duration();
            found.push((certificate, i64::try_from(end.as_millis()).unwrap_or(i64::MAX)));
        }
        if found.is_empty() {
            return Err(TlsError::NoCertificate { path: self.path.to_owned() });
        }
        Ok(found)
    }

    pub(super) fn first_certificate(&self) -> Result<CertificateDer<'static>, TlsError> {
        Ok(self.certificates()?.swap_remove(0).0)
    }

    /// Certificates of authorities.
    pub(super) fn roots(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for (certificate, _) in self.certificates()? {
            roots.add(certificate)?;
        }
        Ok(roots)
    }

    fn private_key(&self, password: Option<&str>) -> Result<PrivateKeyDer<'static>, TlsError> {
        let text = String::from_utf8_lossy(self.text);
        let Some(begin) = text.find(ENCRYPTED_KEY) else {
            return PrivateKeyDer::from_pem_slice(self.text)
                .map_err(|_| TlsError::NoKey { path: self.path.to_owned() });
        };
        let Some(password) = password else {
            return Err(TlsError::NoPassword { path: self.path.to_owned() });
        };
        let failed = |reason: String| TlsError::Password { path: self.path.to_owned(), reason };
        let end = text[begin..]
            .find(ENCRYPTED_KEY_END)
            .map_or(text.len(), |at| begin + at + ENCRYPTED_KEY_END.len());
        let (_, der) = decode_vec(text[begin..end].as_bytes()).map_err(|error| failed(error.to_string()))?;
        let encrypted = EncryptedPrivateKeyInfoRef::try_from(der.as_slice())
            .map_err(|error| failed(error.to_string()))?;
        let key = encrypted.decrypt(password).map_err(|error| failed(error.to_string()))?;
        Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
    }
}

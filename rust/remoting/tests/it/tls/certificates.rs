//! Authorities and certificates, made for each test.
#![expect(clippy::disallowed_methods, reason = "a test writes its own files")]

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use tempfile::TempDir;

/// Folder with an authority and the certificates that it signed.
pub(crate) struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// Paths of a certificate and its key.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        params.distinguished_name.push(DnType::CommonName, folder.path().to_string_lossy().into_owned());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { folder, issuer }
    }

    /// PEM file of the authority itself.
    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Certificate of a server for some hosts, until the end of a year.
    pub(crate) fn server(&self, hosts: &[&str], last_year: i32) -> Pair {
        self.sign("server", hosts, ExtendedKeyUsagePurpose::ServerAuth, last_year)
    }

    pub(crate) fn client(&self) -> Pair {
        self.sign("client", &["client"], ExtendedKeyUsagePurpose::ClientAuth, 2100)
    }

    /// Signs a certificate and writes it, over the former one of the same name.
    fn sign(&self, name: &str, hosts: &[&str], usage: ExtendedKeyUsagePurpose, last_year: i32) -> Pair {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.extended_key_usages = vec![usage];
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(last_year, 12, 31);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let path = |ending: &str| self.folder.path().join(format!("{name}.{ending}"));
        let pair = Pair { cert: path("pem"), key: path("key") };
        std::fs::write(&pair.cert, certificate.pem()).unwrap();
        std::fs::write(&pair.key, key.serialize_pem()).unwrap();
        pair
    }
}

//! A server that is closed from its first start: an authority, a certificate and users of its own, in the folder `secure` of the store.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use ring::rand::{SecureRandom, SystemRandom};
use rocketpy_broker::{ClientVerification, TlsMode, outward_ip};
use rocketpy_env::{Disk, EnvError, RealDisk, now_ms};
use rocketpy_protocol::body::{AclInfo, PolicyEntryInfo, PolicyInfo};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::config::{ExporterType, FirstUsers, NamedSecret};
use crate::role::Role;
use crate::{ServerConfig, address};

/// Folder in the store.
const FOLDER: &str = "secure";
/// Maximum size of a file of the folder.
const MAX_BYTES: u64 = 1 << 20;
/// Validity of the authority and of the certificate that it signs.
const AUTHORITY_DAYS: i64 = 3650;
const CERTIFICATE_DAYS: i64 = 365;
/// A start replaces a certificate that has less than this left.
const RENEW_WITHIN_DAYS: i64 = 60;
/// Clocks of clients may be behind.
const BACKDATED_MS: i64 = 3_600_000;
const DAY_MS: i64 = 86_400_000;

const ADMINISTRATOR: &str = "admin";
const CLIENT: &str = "client";
const PEER: &str = "peer";
/// Random bytes of a secret.
const SECRET_BYTES: usize = 32;

/// Why the files of a secure server cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum SecureError {
    /// A broker or a name server alone shares its authority and its users with others.
    #[error("secure=true is for a name server and a broker in one process")]
    NotAlone,
    /// A file cannot be read or written.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// Half of the authority is missing, or a file cannot be decoded.
    #[error("cannot use {}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The system has no random bytes for a secret.
    #[error("the system gives no random bytes")]
    NoRandomness,
    /// The server would listen beyond loopback without TLS or without users.
    #[error("{host} is reached by other machines, and requireSecure=true: {missing}")]
    Open {
        /// The host to listen on.
        host: String,
        /// What is missing.
        missing: &'static str,
    },
}

impl SecureError {
    /// The way out, for a person.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotAlone => Some("set tlsServerMode, authenticationEnabled and authorizationEnabled"),
            Self::Damaged { .. } => {
                Some("restore the file from a backup with mode 0600, or remove the folder to make new ones")
            }
            Self::Open { .. } => Some("start with --secure, or listen on 127.0.0.1"),
            Self::Env(_) | Self::Certificate(_) | Self::NoRandomness => None,
        }
    }
}

/// User and secret, in a file that `rocketpy --credentials` reads.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Credentials {
    access_key: String,
    secret_key: String,
}

/// What the certificate was made for.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Issued {
    names: BTreeSet<String>,
    expires_at_ms: i64,
}

/// Creates missing files of the folder, and sets the keys that the configuration leaves at their defaults.
///
/// # Durability
/// On return the files survive a power loss.
///
/// # Errors
/// The process has no broker or no name server; a file cannot be read, decoded or written.
pub(crate) fn prepare(role: Role, config: &mut ServerConfig) -> Result<(), SecureError> {
    if !config.is_secure {
        return Ok(());
    }
    if role != Role::Standalone {
        return Err(SecureError::NotAlone);
    }
    let folder = config.broker.store.root.join(FOLDER);
    RealDisk.create_private_dir(&folder)?;
    let has_certificate = config.tls.server.cert.is_some() || config.tls.server.key.is_some();
    if !has_certificate {
        certificate(&folder, names(config))?;
    }
    let are_new = decoded::<Credentials>(&folder.join(format!("{PEER}.json")))?.is_none();
    let (administrator, client) = (credentials(&folder, ADMINISTRATOR)?, credentials(&folder, CLIENT)?);
    let peer = credentials(&folder, PEER)?;
    let tls = &mut config.tls.server;
    if !has_certificate {
        (tls.cert, tls.key) = (Some(folder.join("server.pem")), Some(folder.join("server.key")));
    }
    if tls.mode == TlsMode::Permissive {
        tls.mode = TlsMode::Enforcing;
    }
    let auth = &mut config.auth;
    (auth.authenticates, auth.authorizes) = (true, true);
    auth.peer.get_or_insert(peer);
    auth.first_users = Some(FirstUsers { administrator, client, are_new });
    config.requires_secure = true;
    Ok(())
}

/// Refuses to be open to other machines, for `requireSecure`.
///
/// # Errors
/// Something listens beyond loopback without TLS or users.
pub(crate) fn check(config: &ServerConfig, is_beyond_loopback: bool) -> Result<(), SecureError> {
    match missing(config).filter(|_| config.requires_secure && is_beyond_loopback) {
        Some(missing) => Err(SecureError::Open { host: config.host.clone(), missing }),
        None => Ok(()),
    }
}

/// The danger of a server that other machines can reach; `None` when every connection needs TLS, and every request a user with a policy.
pub(crate) fn danger(config: &ServerConfig) -> Option<&'static str> {
    let auth = &config.auth;
    let doors = [
        (auth.authenticates && auth.authorizes, address::OPEN_TO_ALL),
        (auth.unauthenticated.is_empty() && auth.unauthorized.is_empty(), address::OPEN_LISTS),
        (config.tls.server.mode == TlsMode::Enforcing, address::NOT_ENCRYPTED),
        (!has_open_metrics(config), address::OPEN_METRICS),
    ];
    doors.into_iter().find(|(is_closed, _)| !is_closed).map(|(_, danger)| danger)
}

/// Whether other machines read the names of topics and groups without a login.
fn has_open_metrics(config: &ServerConfig) -> bool {
    config.exporter.kind == ExporterType::Prometheus
        && config.tls.server.client_verification != ClientVerification::Require
        && address::listen(&config.exporter.host, 0).is_ok_and(address::is_beyond_loopback)
}

fn missing(config: &ServerConfig) -> Option<&'static str> {
    let doors = [
        (config.tls.server.mode == TlsMode::Enforcing, "tlsServerMode is not enforcing"),
        (config.auth.authenticates, "authenticationEnabled is false"),
        (config.auth.authorizes, "authorizationEnabled is false"),
        (config.auth.unauthenticated.is_empty(), "authenticationWhitelist opens requests"),
        (config.auth.unauthorized.is_empty(), "authorizationWhitelist opens requests"),
        (
            !has_open_metrics(config),
            "metricsPromExporterHost is reached by others, and tlsServerNeedClientAuth is not require",
        ),
    ];
    doors.into_iter().find(|(is_closed, _)| !is_closed).map(|(_, missing)| missing)
}

/// Policies of the user for clients: messages of all topics, in all groups, and no administration.
pub(crate) fn of_client() -> AclInfo {
    let entry = |resource: &str, actions: &[&str]| PolicyEntryInfo {
        resource: Some(resource.to_owned()),
        actions: actions.iter().map(|&action| action.to_owned()).collect(),
        decision: Some("Allow".to_owned()),
        ..PolicyEntryInfo::default()
    };
    let entries = vec![entry("Topic:*", &["Pub", "Sub", "Get"]), entry("Group:*", &["Sub", "Get"])];
    let policy = PolicyInfo { policy_type: Some("Custom".to_owned()), entries };
    AclInfo { policies: vec![policy], ..AclInfo::default() }
}

/// The hosts by which clients find this server.
fn names(config: &ServerConfig) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    let ip = config.host.parse::<IpAddr>();
    match ip {
        Ok(ip) if ip.is_unspecified() => {
            names.insert(outward_ip().to_string());
        }
        _ => {
            names.insert(config.host.clone());
        }
    }
    names.extend(config.broker.advertised_host.clone());
    if let Ok(name) = RealDisk.read(Path::new("/proc/sys/kernel/hostname"), MAX_BYTES) {
        let name = String::from_utf8_lossy(&name).trim().to_owned();
        names.extend(Some(name).filter(|name| !name.is_empty() && name.is_ascii()));
    }
    names
}

/// Signs the server's certificate, unless there is one for these names that stays valid for a while. The key of the authority is needed
/// only then: it may be kept elsewhere between two starts.
fn certificate(folder: &Path, names: BTreeSet<String>) -> Result<(), SecureError> {
    let [path, key, about] = ["server.pem", "server.key", "server.json"].map(|name| folder.join(name));
    let now_ms = now_ms();
    let issued: Option<Issued> = decoded(&about)?;
    let renewed_at_ms = |issued: &Issued| issued.expires_at_ms - RENEW_WITHIN_DAYS * DAY_MS;
    let is_there = read(&path)?.is_some() && read(&key)?.is_some();
    if let Some(issued) = issued.filter(|_| is_there) {
        if names.is_subset(&issued.names) && now_ms < renewed_at_ms(&issued) {
            return Ok(());
        }
        if now_ms < issued.expires_at_ms && read(&folder.join("ca.key"))?.is_none() {
            let missing: Vec<_> = names.difference(&issued.names).collect();
            let days = (issued.expires_at_ms - now_ms) / DAY_MS;
            warn!(
                ?missing,
                days,
                "certificate of the server not signed again, ca.key is missing; clients cannot use the missing names"
            );
            return Ok(());
        }
    }
    let authority = authority(folder, now_ms)?;
    let mut params = CertificateParams::new(Vec::from_iter(names.clone()))?;
    params.distinguished_name = named("RocketPy server");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let expires_at_ms = now_ms + CERTIFICATE_DAYS * DAY_MS;
    limit(&mut params, now_ms, CERTIFICATE_DAYS);
    let certificate = params.signed_by(&key_pair(&key)?, &authority)?;
    RealDisk.replace_keeping_backup(&path, certificate.pem().as_bytes())?;
    // Last: without it the next start signs again.
    write_json(&about, &Issued { names, expires_at_ms })?;
    info!(path = %path.display(), days = CERTIFICATE_DAYS, "certificate of the server signed by its own authority");
    Ok(())
}

fn authority(folder: &Path, now_ms: i64) -> Result<Issuer<'static, KeyPair>, SecureError> {
    let [path, key] = ["ca.pem", "ca.key"].map(|name| folder.join(name));
    let is_known = read(&path)?.is_some();
    if is_known && read(&key)?.is_none() {
        let reason =
            "the file is missing, and a certificate of the server has to be signed with it".to_owned();
        return Err(SecureError::Damaged { path: key, reason });
    }
    let pair = key_pair(&key)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = named("RocketPy authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    limit(&mut params, now_ms, AUTHORITY_DAYS);
    if !is_known {
        RealDisk.replace_keeping_backup(&path, params.self_signed(&pair)?.pem().as_bytes())?;
    }
    Ok(Issuer::new(params, pair))
}

/// The key of a file, which is made if it is missing.
fn key_pair(path: &Path) -> Result<KeyPair, SecureError> {
    if let Some(text) = read(path)? {
        let damaged =
            |error: rcgen::Error| SecureError::Damaged { path: path.to_owned(), reason: error.to_string() };
        return KeyPair::from_pem(&text).map_err(damaged);
    }
    let pair = KeyPair::generate()?;
    RealDisk.replace_private(path, pair.serialize_pem().as_bytes())?;
    Ok(pair)
}

/// The user of a file, which is made with a random secret if it is missing.
fn credentials(folder: &Path, name: &str) -> Result<NamedSecret, SecureError> {
    let path = folder.join(format!("{name}.json"));
    if let Some(Credentials { access_key: name, secret_key: secret }) = decoded(&path)? {
        return Ok(NamedSecret { name, secret });
    }
    let mut random = [0; SECRET_BYTES];
    SystemRandom::new().fill(&mut random).map_err(|_| SecureError::NoRandomness)?;
    let secret: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let made = Credentials { access_key: name.to_owned(), secret_key: secret };
    write_json(&path, &made)?;
    Ok(NamedSecret { name: made.access_key, secret: made.secret_key })
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// Sets the validity of a certificate.
fn limit(params: &mut CertificateParams, now_ms: i64, days: i64) {
    let after_1970 = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or_default());
    let since = date_time_ymd(1970, 1, 1);
    params.not_before = since + after_1970(now_ms - BACKDATED_MS);
    params.not_after = since + after_1970(now_ms + days * DAY_MS);
}

/// A file as text; `None` when it is missing. All but certificates hold secrets.
fn read(path: &Path) -> Result<Option<String>, SecureError> {
    let text = match RealDisk.read(path, MAX_BYTES) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if path.extension().is_none_or(|ending| ending != "pem") && !RealDisk.is_private(path)? {
        let reason = "other users can read it".to_owned();
        return Err(SecureError::Damaged { path: path.to_owned(), reason });
    }
    Ok(Some(text))
}

fn decoded<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, SecureError> {
    let Some(text) = read(path)? else { return Ok(None) };
    // The cause of a decoder would repeat a secret.
    let damaged = |_| SecureError::Damaged {
        path: path.to_owned(),
        reason: "its JSON is not that of this file".to_owned(),
    };
    serde_json::from_str(&text).map(Some).map_err(damaged)
}

fn write_json(path: &Path, content: &impl Serialize) -> Result<(), SecureError> {
    let text = serde_json::to_string(content).expect("plain structures become JSON");
    Ok(RealDisk.replace_private(path, text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn danger_names_what_is_open_alone() {
        let mut config = ServerConfig::default();
        assert_eq!(danger(&config), Some(address::OPEN_TO_ALL));
        config.auth.authenticates = true;
        assert_eq!(danger(&config), Some(address::OPEN_TO_ALL), "every user may do everything");
        config.auth.authorizes = true;
        assert_eq!(danger(&config), Some(address::NOT_ENCRYPTED));
        config.tls.server.mode = TlsMode::Enforcing;
        assert_eq!((danger(&config), missing(&config)), (None, None));
        config.auth.unauthorized = vec![105];
        assert_eq!(danger(&config), Some(address::OPEN_LISTS));
        config.auth.unauthorized.clear();
        config.exporter.kind = ExporterType::Prometheus;
        config.exporter.host = "0.0.0.0".to_owned();
        let danger = danger(&config).unwrap();
        assert!(danger.contains("metrics") && !danger.contains("messages"), "{danger}");
    }
}

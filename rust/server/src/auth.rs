//! Users and policies of a process.

use std::path::{Path, PathBuf};

use rocketpy_auth::{
    Accounts, AccountsError, Audit, AuditConfig, Guard, Migrated, MigrationError, Rules, RulesError, migrate,
};
use rocketpy_broker::{Auth, Credentials};
use rocketpy_env::{Disk, EnvError, RealDisk};
use tracing::{info, warn};

use crate::config::{AuthConfig, NamedSecret, Origin};
use crate::{ServerConfig, secure};

/// File of users and policies, in `config` of the store.
const USERS: &str = "users.json";
/// File of the audit log, in `log` of the store.
const AUDIT: &str = "audit.log";
/// Size at which the audit log is renamed to `audit.log.1`, and number of renamed files.
const AUDIT_FILE_BYTES: u64 = 64 << 20;
const AUDIT_FILES: u32 = 10;
/// Variable with the folder whose `conf` Apache's servers read.
const ROCKETMQ_HOME: &str = "ROCKETMQ_HOME";

/// Why users and policies cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// Keys contradict each other, or a white list opens a door.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// The file of users cannot be used.
    #[error("cannot use the users of {} (authConfigPath): {source}", path.display())]
    Accounts {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: AccountsError,
    },
    /// A user of the configuration cannot be made.
    #[error("cannot create the user of {key}: {source}")]
    User {
        /// The key.
        key: &'static str,
        /// What is wrong with it.
        source: AccountsError,
    },
    /// Servers could not send requests to each other.
    #[error(
        "authenticationEnabled=true needs innerClientAuthenticationCredentials, the user of requests between servers"
    )]
    NoPeer,
    /// A name server keeps nothing on disk.
    #[error("users of a name server need a file (authConfigPath)")]
    NoPlace,
    /// There is no folder with ACL 1.0.
    #[error(
        "migrateAuthFromV1Enabled=true needs a configuration file next to plain_acl.yml, or ROCKETMQ_HOME"
    )]
    NoOldFiles,
    /// The audit log cannot be written.
    #[error("cannot open the audit log {} (auditLogPath): {source}", path.display())]
    Audit {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: EnvError,
    },
    /// The files of ACL 1.0 cannot be used.
    #[error(transparent)]
    Migration(#[from] MigrationError),
}

impl AuthError {
    /// The way out, for a person; `None` when the message says it all.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoPeer => Some(
                "set ROCKETPY_INNER_CLIENT_AUTHENTICATION_CREDENTIALS='{\"accessKey\":\"NAME\",\"secretKey\":\"SECRET\"}', the same on all servers",
            ),
            Self::NoPlace => Some("set authConfigPath, or kvConfigPath"),
            _ => None,
        }
    }
}

/// Opens users and policies, creates the users of the configuration, and makes the check of requests.
///
/// # Errors
/// A file cannot be used, or keys contradict each other.
pub(crate) fn open(has_broker: bool, config: &ServerConfig) -> Result<Auth, AuthError> {
    let auth = &config.auth;
    let credentials = auth.peer.as_ref().map(|peer| Credentials::new(&peer.name, &peer.secret));
    let rules = rules(config)?;
    if !auth.authenticates {
        return Ok(Auth { guard: None, credentials });
    }
    let peer = auth.peer.as_ref().ok_or(AuthError::NoPeer)?;
    let path = users_file(has_broker, config)?;
    let accounts =
        Accounts::open(path.clone()).map_err(|source| AuthError::Accounts { path: path.clone(), source })?;
    if auth.migrates_v1 {
        let Migrated { created, skipped, white_addresses } = migrate(&accounts, &old_files(config)?)?;
        info!(
            created = created.join(" "),
            skipped = skipped.join(" "),
            "users and policies of ACL 1.0 migrated"
        );
        if !white_addresses.is_empty() {
            warn!(addresses = white_addresses.join(" "), "white addresses of ACL 1.0 need a signature now");
        }
    }
    create_users(auth, &accounts, peer)?;
    let known = accounts.user(&peer.name);
    if !known.is_some_and(|user| user.secrets.iter().any(|secret| secret == peer.secret)) {
        warn!(
            user = peer.name,
            "secret of innerClientAuthenticationCredentials is not that of its user, servers refuse each other's requests; see `rocketpy user rotate`"
        );
    }
    let path = audit_file(has_broker, config, &path);
    let log = AuditConfig { path: path.clone(), max_bytes: AUDIT_FILE_BYTES, kept_files: AUDIT_FILES };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let made = RealDisk.create_dir_all(folder);
        made.map_err(|source| AuthError::Audit { path: path.clone(), source })?;
    }
    let audit = Audit::open(log).map_err(|source| AuthError::Audit { path, source })?;
    Ok(Auth { guard: Some(Guard::new(accounts, rules, Some(audit))), credentials })
}

/// Creates the users of the configuration that do not exist. Those of a secure server come with its first start only: a deleted one stays
/// deleted.
///
/// # Errors
/// A name or a secret is invalid, or the file cannot be written.
fn create_users(auth: &AuthConfig, accounts: &Accounts, peer: &NamedSecret) -> Result<(), AuthError> {
    let mut super_users = vec![("innerClientAuthenticationCredentials", peer)];
    super_users.extend(auth.first_user.iter().map(|user| ("initAuthenticationUser", user)));
    // The user of the server is the last one that a first start creates.
    if let Some(first) = auth.first_users.as_ref().filter(|_| accounts.user(&peer.name).is_none()) {
        super_users.push(("secure", &first.administrator));
        let NamedSecret { name, secret } = &first.client;
        let made = accounts.ensure_user(name, secret, &secure::of_client());
        if made.map_err(|source| AuthError::User { key: "secure", source })? {
            info!(user = name, "user for clients created");
        }
    }
    for (key, NamedSecret { name, secret }) in super_users.into_iter().rev() {
        if accounts.ensure_super(name, secret).map_err(|source| AuthError::User { key, source })? {
            info!(user = name, key, "user created");
        }
    }
    Ok(())
}

/// # Errors
/// Policies without users, or a white list that opens a door.
fn rules(config: &ServerConfig) -> Result<Rules, RulesError> {
    let auth = &config.auth;
    let rules = Rules {
        authentication: auth.authenticates,
        authorization: auth.authorizes,
        authentication_whitelist: auth.unauthenticated.iter().copied().collect(),
        authorization_whitelist: auth.unauthorized.iter().copied().collect(),
        require_proof: auth.requires_proof,
        cluster: config.broker.cluster_name.clone(),
    };
    rules.check()?;
    Ok(rules)
}

/// # Errors
/// A name server without a file.
fn users_file(has_broker: bool, config: &ServerConfig) -> Result<PathBuf, AuthError> {
    if let Some(path) = &config.auth.users_file {
        return Ok(path.clone());
    }
    if has_broker {
        return Ok(config.broker.store.root.join("config").join(USERS));
    }
    let beside = config.name_server.kv_config_path.as_deref().and_then(Path::parent);
    beside.map(|folder| folder.join(USERS)).ok_or(AuthError::NoPlace)
}

fn audit_file(has_broker: bool, config: &ServerConfig, users: &Path) -> PathBuf {
    match &config.auth.audit_file {
        Some(path) => path.clone(),
        None if has_broker => config.broker.store.root.join("log").join(AUDIT),
        None => users.with_file_name(AUDIT),
    }
}

/// The folder of `plain_acl.yml`.
///
/// # Errors
/// Nothing names it.
fn old_files(config: &ServerConfig) -> Result<PathBuf, AuthError> {
    if let Origin::File(path) = config.origin("migrateAuthFromV1Enabled") {
        return Ok(path.parent().unwrap_or(Path::new(".")).to_owned());
    }
    let home = std::env::var_os(ROCKETMQ_HOME).ok_or(AuthError::NoOldFiles)?;
    Ok(Path::new(&home).join("conf"))
}

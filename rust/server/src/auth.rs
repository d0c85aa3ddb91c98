//! Users and policies of a process.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rocketpy_auth::{
    Accounts, AccountsError, Audit, AuditConfig, Audited, FirstUser, Guard, Migrated, MigrationError, Rules,
    RulesError, UsersLock, migrate,
};
use rocketpy_broker::{Auth, Credentials};
use rocketpy_env::EnvError;
use tracing::{info, warn};

use crate::config::{AuthConfig, NamedSecret, Origin};
use crate::{ServerConfig, secure};

/// File of users and policies, in `config` of the store.
const USERS: &str = "users.json";
/// File of the audit log, in `log` of the store.
const AUDIT: &str = "audit.log";
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

/// Opens users and policies, creates the users of the configuration, and makes the check of requests. The lock is that of the users file,
/// until this process has stopped.
///
/// # Errors
/// A file cannot be used, another process uses it, or keys contradict each other.
pub(crate) fn open(has_broker: bool, config: &ServerConfig) -> Result<(Auth, Option<UsersLock>), AuthError> {
    let auth = &config.auth;
    let credentials = auth.peer.as_ref().map(|peer| Credentials::new(&peer.name, &peer.secret));
    let rules = rules(config)?;
    if !auth.authenticates {
        return Ok((Auth { guard: None, credentials }, None));
    }
    let peer = auth.peer.as_ref().ok_or(AuthError::NoPeer)?;
    let path = users_file(has_broker, config)?;
    let unusable = |source| AuthError::Accounts { path: path.clone(), source };
    let lock = UsersLock::take(&path).map_err(unusable)?;
    let accounts = Accounts::open(path.clone()).map_err(unusable)?;
    let audit = open_audit(audit_file(has_broker, config, &path))?;
    if auth.first_users.is_some() {
        create_users(auth, &accounts, peer, &audit)?; // first: with the file of a migration, the next start would not be the first one
    }
    if auth.migrates_v1 {
        let Migrated { created, skipped, white_addresses } = migrate(&accounts, &old_files(config)?)?;
        for name in &created {
            audit.local(Audited::local_user(name, created_by("migrateAuthFromV1Enabled")));
        }
        info!(
            created = created.join(" "),
            skipped = skipped.join(" "),
            "users and policies of ACL 1.0 migrated"
        );
        if !white_addresses.is_empty() {
            warn!(addresses = white_addresses.join(" "), "white addresses of ACL 1.0 need a signature now");
        }
    }
    create_users(auth, &accounts, peer, &audit)?;
    let known = accounts.user(&peer.name);
    if !known.is_some_and(|user| user.secrets.iter().any(|secret| secret == peer.secret)) {
        warn!(
            user = peer.name,
            "secret of innerClientAuthenticationCredentials is not that of its user, servers refuse each other's requests; see `rocketpy user rotate`"
        );
    }
    Ok((Auth { guard: Some(Guard::new(accounts, rules, Some(audit))), credentials }, Some(lock)))
}

/// # Errors
/// The file, or its folder, cannot be written.
fn open_audit(path: PathBuf) -> Result<Arc<Audit>, AuthError> {
    Audit::open(AuditConfig::new(path.clone())).map_err(|source| AuthError::Audit { path, source })
}

/// Result of an audit line about a user that the start creates.
fn created_by(key: &str) -> String {
    format!("created at the start by {key}")
}

/// Creates the users of the configuration that do not exist. Those of a secure server come with its first start only, in one change: a deleted
/// one stays deleted.
///
/// # Errors
/// A name or a secret is invalid, or the file cannot be written.
fn create_users(
    auth: &AuthConfig,
    accounts: &Accounts,
    peer: &NamedSecret,
    audit: &Audit,
) -> Result<(), AuthError> {
    let of_client = secure::of_client();
    let mut wanted = Vec::new();
    if let Some(first) = auth.first_users.as_ref().filter(|first| first.are_new || accounts.is_new()) {
        wanted.push(("secure", &first.client, Some(&of_client)));
        wanted.push(("secure", &first.administrator, None));
    }
    wanted.extend(auth.first_user.iter().map(|user| ("initAuthenticationUser", user, None)));
    wanted.push(("innerClientAuthenticationCredentials", peer, None));
    let first: Vec<_> = wanted
        .iter()
        .map(|&(_, NamedSecret { name, secret }, acl)| FirstUser { name, secret, acl })
        .collect();
    for (&(key, ..), user) in wanted.iter().zip(&first) {
        user.check().map_err(|source| AuthError::User { key, source })?;
    }
    let made = accounts
        .ensure_all(&first)
        .map_err(|source| AuthError::User { key: "innerClientAuthenticationCredentials", source })?;
    for name in made {
        let key = wanted.iter().find(|(_, user, _)| user.name == name).map_or("", |(key, ..)| *key);
        audit.local(Audited::local_user(&name, created_by(key)));
        info!(user = name, key, "user created");
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

//! Takes over the accounts of Apache's access control 1.0: `plain_acl.yml` and the files of the folder `acl` beside it.
//!
//! # Source
//! docs/reference/protocol.md 6.2.

use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, EnvError, RealDisk};
use rocketpy_protocol::body::{Password, UserInfo};
use serde::Deserialize;
use tracing::{info, warn};

use crate::policy::{Action, Actions, Decision, Policy, PolicyType, Resource, ResourceType};
use crate::user::UserType;
use crate::{Accounts, AccountsError, Caller};

/// Largest file that is read.
const MAX_BYTES: u64 = 4 << 20;

/// Result of a migration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Migrated {
    /// Users that were made.
    pub created: Vec<String>,
    /// Users that existed: they stay as they are.
    pub skipped: Vec<String>,
    /// Addresses that needed no signature: they do now.
    pub white_addresses: Vec<String>,
}

/// Why accounts were not taken over. Users before the faulty one are there; a second try skips them.
#[derive(Debug, Clone, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum MigrationError {
    #[error(transparent)]
    File(#[from] EnvError),
    #[error("cannot read {}: {reason}", path.display())]
    Yaml { path: PathBuf, reason: String },
    #[error("cannot take over account {account:?} of {}: {source}", path.display())]
    Account { path: PathBuf, account: String, source: AccountsError },
}

/// A file of access control 1.0. Unknown keys are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PlainAcl {
    accounts: Option<Vec<PlainAccount>>,
    global_white_remote_addresses: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PlainAccount {
    access_key: String,
    secret_key: String,
    white_remote_address: Option<String>,
    admin: bool,
    default_topic_perm: Option<String>,
    default_group_perm: Option<String>,
    topic_perms: Option<Vec<String>>,
    group_perms: Option<Vec<String>>,
}

impl std::fmt::Debug for PlainAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlainAccount").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// Makes a user with policies of each account in `CONF/plain_acl.yml` and `CONF/acl/*.yml`. A missing file is fine.
///
/// # Errors
/// A file cannot be read, or an account is invalid.
pub fn migrate(accounts: &Accounts, conf: &Path) -> Result<Migrated, MigrationError> {
    let mut migrated = Migrated::default();
    for path in files(conf)? {
        let text = match RealDisk.read(&path, MAX_BYTES) {
            Err(error) if error.is_not_found() => continue,
            read => read?,
        };
        let file = parse(&text).map_err(|reason| MigrationError::Yaml { path: path.clone(), reason })?;
        migrated.white_addresses.extend(file.global_white_remote_addresses.unwrap_or_default());
        for account in file.accounts.unwrap_or_default() {
            let name = account.access_key.clone();
            let addresses = account.white_remote_address.as_ref().filter(|text| !text.trim().is_empty());
            migrated.white_addresses.extend(addresses.cloned());
            let made = make(accounts, &account).map_err(|source| MigrationError::Account {
                path: path.clone(),
                account: rocketpy_model::printable::beginning(&name).into_owned(),
                source,
            })?;
            if made { &mut migrated.created } else { &mut migrated.skipped }.push(name);
        }
    }
    migrated.log();
    Ok(migrated)
}

impl Migrated {
    fn log(&self) {
        if !self.created.is_empty() {
            info!(users = self.created.join(", "), "users of plain_acl.yml taken over");
        }
        if !self.white_addresses.is_empty() {
            warn!(
                addresses = self.white_addresses.join(", "),
                "white addresses of plain_acl.yml not taken over: their requests need a signature now"
            );
        }
    }
}

fn files(conf: &Path) -> Result<Vec<PathBuf>, EnvError> {
    let folder = conf.join("acl");
    let entries = match RealDisk.list(&folder) {
        Err(error) if error.is_not_found() => Vec::new(),
        listed => listed?,
    };
    let names = entries.into_iter().map(|entry| entry.name);
    let is_yaml = |name: &std::ffi::OsString| {
        let name = name.as_encoded_bytes();
        name.ends_with(b".yml") || name.ends_with(b".yaml")
    };
    let beside = names.filter(is_yaml).map(|name| folder.join(name));
    Ok(std::iter::once(conf.join("plain_acl.yml")).chain(beside).collect())
}

/// Reads a file. The reason of a refusal quotes no value: it may be a secret.
fn parse(bytes: &[u8]) -> Result<PlainAcl, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    if text.trim().is_empty() {
        return Ok(PlainAcl::default());
    }
    serde_saphyr::from_str(text).map_err(|error| match error.location() {
        Some(at) => format!("it is not YAML of access control 1.0, see line {}", at.line()),
        None => "it is not YAML of access control 1.0".to_owned(),
    })
}

/// Whether the bytes are a file of access control 1.0 whose accounts are valid, for the fuzzer.
pub fn is_plain_acl(bytes: &[u8]) -> bool {
    let accounts = parse(bytes).map(|file| file.accounts.unwrap_or_default());
    accounts.is_ok_and(|accounts| accounts.iter().all(|account| policies(account).is_ok()))
}

/// Makes the user of an account, unless it exists.
fn make(accounts: &Accounts, account: &PlainAccount) -> Result<bool, AccountsError> {
    let policies = policies(account)?;
    let kind = if account.admin { UserType::Super } else { UserType::Normal };
    let info = UserInfo {
        password: Some(Password(account.secret_key.clone())),
        user_type: Some(kind.name().to_owned()),
        ..UserInfo::default()
    };
    accounts.create_with(&account.access_key, &info, policies, Caller::Super)
}

fn policies(account: &PlainAccount) -> Result<Vec<Policy>, AccountsError> {
    let mut policies = Vec::new();
    let lists = [(ResourceType::Topic, &account.topic_perms), (ResourceType::Group, &account.group_perms)];
    for (kind, perms) in lists {
        for perm in perms.iter().flatten() {
            let wanted = "NAME=PERMISSION";
            let (name, perm) =
                perm.split_once('=').ok_or_else(|| AccountsError::value(field(kind), wanted, perm))?;
            let resource: Resource = format!("{}:{}", kind.name(), name.trim()).parse()?;
            policies.push(policy(PolicyType::Custom, resource, perm));
        }
    }
    let defaults = [
        (ResourceType::Topic, &account.default_topic_perm),
        (ResourceType::Group, &account.default_group_perm),
    ];
    for (kind, perm) in defaults {
        if let Some(perm) = perm.as_deref().filter(|perm| !perm.trim().is_empty()) {
            policies.push(policy(PolicyType::Default, Resource::All(kind), perm));
        }
    }
    Ok(policies)
}

const fn field(kind: ResourceType) -> &'static str {
    if matches!(kind, ResourceType::Topic) { "topicPerms" } else { "groupPerms" }
}

/// What a permission of access control 1.0 means. Anything but `PUB` and `SUB` denies.
fn policy(policy_type: PolicyType, resource: Resource, perm: &str) -> Policy {
    let (actions, decision) = match perm.trim() {
        "PUB" => (Actions::of(&[Action::Pub]), Decision::Allow),
        "SUB" => (Actions::of(&[Action::Sub]), Decision::Allow),
        "PUB|SUB" | "SUB|PUB" => (Actions::of(&[Action::Pub, Action::Sub]), Decision::Allow),
        _ => (Actions::ALL, Decision::Deny),
    };
    Policy { policy_type, resource, actions, source_ips: Vec::new(), decision }
}

#[cfg(test)]
mod tests;

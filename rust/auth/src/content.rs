//! Users and policies in memory, in the file and in a snapshot.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rocketpy_model::DataVersion;
use rocketpy_protocol::body::{Password, PolicyInfo};
use rocketpy_protocol::json;
use serde::{Deserialize, Serialize};

use crate::policy::{self, Policy};
use crate::rulebook::Rulebook;
use crate::user::{Secrets, User, UserStatus, UserType, check_name};
use crate::{AccountsError, MAX_USERS};

/// Users by name.
pub(crate) type Users = HashMap<Arc<str>, Arc<Account>>;

/// A user with its policies.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) user: User,
    pub(crate) policies: Vec<Policy>,
    pub(crate) rulebook: Rulebook,
}

impl Account {
    pub(crate) fn new(user: User, policies: Vec<Policy>) -> Arc<Self> {
        let rulebook = Rulebook::new(&policies);
        Arc::new(Self { user, policies, rulebook })
    }
}

/// All users as they are written: into `users.json`, which has mode 0600, and into snapshots, which are encrypted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Content {
    pub(crate) data_version: DataVersion,
    pub(crate) users: BTreeMap<String, StoredUser>,
}

/// A user as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StoredUser {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    policies: Vec<PolicyInfo>,
    /// The newest first.
    secrets: Vec<Password>,
    user_status: String,
    user_type: String,
}

impl Content {
    pub(crate) fn of(data_version: DataVersion, users: &Users) -> Self {
        let stored =
            |(name, account): (&Arc<str>, &Arc<Account>)| (name.to_string(), StoredUser::of(account));
        Self { data_version, users: users.iter().map(stored).collect() }
    }

    /// Size of the copy for a slave.
    pub(crate) fn size_bytes(&self) -> usize {
        json::to_vec(self).len()
    }

    /// The users, checked as requests are.
    ///
    /// # Errors
    /// A user or a policy is invalid, or there are too many.
    pub(crate) fn users(&self) -> Result<Users, AccountsError> {
        if self.users.len() > MAX_USERS {
            return Err(AccountsError::TooMany { what: "users", limit: MAX_USERS });
        }
        let account = |(name, stored): (&String, &StoredUser)| {
            let account = stored.account(name)?;
            Ok((Arc::from(&**name), account))
        };
        self.users.iter().map(account).collect()
    }
}

impl StoredUser {
    fn of(account: &Account) -> Self {
        let User { name, secrets, kind, status } = &account.user;
        Self {
            policies: policy::body(name, &account.policies, |_| true).policies,
            secrets: secrets.iter().map(|secret| Password(secret.to_owned())).collect(),
            user_status: status.name().to_owned(),
            user_type: kind.name().to_owned(),
        }
    }

    fn account(&self, name: &str) -> Result<Arc<Account>, AccountsError> {
        check_name(name)?;
        let mut oldest_first = self.secrets.iter().take(2).rev();
        let mut secrets = Secrets::new(oldest_first.next().map_or("", |secret| &secret.0))?;
        for secret in oldest_first {
            secrets.rotate(&secret.0)?;
        }
        let user = User {
            name: name.to_owned(),
            secrets,
            kind: UserType::parse(&self.user_type)?,
            status: UserStatus::parse(&self.user_status)?,
        };
        let policies = if self.policies.is_empty() { Vec::new() } else { policy::parsed(&self.policies)? };
        Ok(Account::new(user, policies))
    }
}

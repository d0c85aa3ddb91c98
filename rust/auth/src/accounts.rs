//! The users and policies of a process.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rocketpy_env::now_ms;
use rocketpy_model::DataVersion;
use rocketpy_protocol::body::{AclInfo, Password, UserInfo};

use crate::content::{Account, Content, Users};
use crate::file::UsersFile;
use crate::policy::{self, MAX_POLICIES, Policy, PolicyType, Resource};
use crate::user::{self, User, UserType, said};
use crate::{AccountsError, Snapshot};

/// Maximum number of users.
pub const MAX_USERS: usize = 10_000;
/// Maximum size of all users and policies as JSON: the copy for a slave and the list of all policies have to fit into a frame of 16 MiB.
const MAX_COPY_BYTES: usize = 15 << 20;

/// A user that a start makes. `Debug` shows no secret.
#[derive(Clone, Copy)]
pub struct FirstUser<'a> {
    /// The user.
    pub name: &'a str,
    /// Its secret.
    pub secret: &'a str,
    /// Its policies; `None`: it is a super user.
    pub acl: Option<&'a AclInfo>,
}

impl fmt::Debug for FirstUser<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirstUser").field("name", &self.name).finish_non_exhaustive()
    }
}

impl FirstUser<'_> {
    /// Checks name, secret and policies.
    ///
    /// # Errors
    /// One is invalid.
    pub fn check(&self) -> Result<(), AccountsError> {
        self.account().map(drop)
    }

    fn account(&self) -> Result<Arc<Account>, AccountsError> {
        let user_type = if self.acl.is_some() { UserType::Normal } else { UserType::Super };
        let info = UserInfo {
            password: Some(Password(self.secret.to_owned())),
            user_type: Some(user_type.name().to_owned()),
            ..UserInfo::default()
        };
        let policies = self.acl.map_or(Ok(Vec::new()), |acl| policy::parsed(&acl.policies))?;
        Ok(Account::new(user::made_of(self.name, &info)?, merged(Vec::new(), policies)?))
    }
}

/// Who asks for a change of users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// A super user, or an operator at the machine: every change.
    Super,
    /// Another user: no change of a super user.
    Normal,
}

/// Users and policies of a process, in memory and in a file.
///
/// Requests read without waiting for anybody. A change is seen once it is on disk; it writes the file, so it must not run on an async thread.
#[derive(Debug)]
pub struct Accounts {
    state: ArcSwap<State>,
    /// Held by whoever changes something.
    file: Mutex<UsersFile>,
    /// Whether the file was missing.
    is_new: bool,
}

#[derive(Debug)]
struct State {
    version: DataVersion,
    users: Users,
}

impl Accounts {
    /// Reads the file; a missing one without a backup is empty.
    ///
    /// # Errors
    /// The file cannot be read or decoded, others may read it, or it is missing and its backup is not.
    pub fn open(path: PathBuf) -> Result<Arc<Self>, AccountsError> {
        let file = UsersFile::new(path.clone());
        let found = file.load()?;
        Self::with(file, path, found)
    }

    /// [`Accounts::open`] for an operator who begins anew: a missing file is empty, whatever its backup has.
    pub(crate) fn open_anew(path: PathBuf) -> Result<Arc<Self>, AccountsError> {
        let file = UsersFile::new(path.clone());
        let found = file.load_alone()?;
        Self::with(file, path, found)
    }

    fn with(file: UsersFile, path: PathBuf, found: Option<Content>) -> Result<Arc<Self>, AccountsError> {
        let is_new = found.is_none();
        let content = found.unwrap_or_default();
        let users =
            content.users().map_err(|error| AccountsError::Damaged { path, reason: error.to_string() })?;
        let state = State { version: content.data_version, users };
        Ok(Arc::new(Self { state: ArcSwap::from_pointee(state), file: Mutex::new(file), is_new }))
    }

    /// Whether there was no file when it was opened: the first start.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Whether there is no user.
    pub fn is_empty(&self) -> bool {
        self.state.load().users.is_empty()
    }

    /// Number of users.
    pub fn count(&self) -> usize {
        self.state.load().users.len()
    }

    /// Version of users and policies; each change has another one.
    pub fn version(&self) -> DataVersion {
        self.state.load().version
    }

    /// The user of this name.
    pub fn user(&self, name: &str) -> Option<User> {
        self.account(name).map(|account| account.user.clone())
    }

    /// Users whose names contain the filter, by name.
    pub fn users(&self, filter: &str) -> Vec<User> {
        let state = self.state.load();
        let wanted = state.users.values().filter(|account| account.user.name.contains(filter));
        let mut users: Vec<User> = wanted.map(|account| account.user.clone()).collect();
        users.sort_by(|one, other| one.name.cmp(&other.name));
        users
    }

    pub(crate) fn account(&self, name: &str) -> Option<Arc<Account>> {
        self.state.load().users.get(name).cloned()
    }

    /// Adds a user.
    ///
    /// # Errors
    /// Name, password or another value is invalid; the user exists; there are too many; the caller may not make a super user; the file is not
    /// written.
    pub fn create_user(&self, name: &str, info: &UserInfo, by: Caller) -> Result<(), AccountsError> {
        if self.create_with(name, info, Vec::new(), by)? { Ok(()) } else { Err(AccountsError::UserExists) }
    }

    /// [`Accounts::create_user`] with policies, in one change. Says whether the user was made: one that exists stays as it is.
    pub(crate) fn create_with(
        &self,
        name: &str,
        info: &UserInfo,
        policies: Vec<Policy>,
        by: Caller,
    ) -> Result<bool, AccountsError> {
        let user = user::made_of(name, info)?;
        check_caller(&user, by, "create")?;
        let policies = merged(Vec::new(), policies)?;
        let mut is_made = false;
        self.change(|users| {
            if users.contains_key(name) {
                return Ok(false);
            }
            if users.len() >= MAX_USERS {
                return Err(AccountsError::TooMany { what: "users", limit: MAX_USERS });
            }
            users.insert(name.into(), Account::new(user, policies));
            is_made = true;
            Ok(true)
        })?;
        Ok(is_made)
    }

    /// Makes a super user at a start, unless a user of this name exists. Says whether it was made.
    ///
    /// # Errors
    /// As [`Accounts::create_user`].
    pub fn ensure_super(&self, name: &str, password: &str) -> Result<bool, AccountsError> {
        Ok(!self.ensure_all(&[FirstUser { name, secret: password, acl: None }])?.is_empty())
    }

    /// Makes users at a start in one change, except those that exist. Returns the names of the new ones.
    ///
    /// # Errors
    /// As [`Accounts::create_user`] and [`Accounts::set_policies`].
    pub fn ensure_all(&self, wanted: &[FirstUser<'_>]) -> Result<Vec<String>, AccountsError> {
        let mut made = Vec::new();
        self.change(|users| {
            for wanted in wanted {
                if users.contains_key(wanted.name) {
                    continue;
                }
                if users.len() >= MAX_USERS {
                    return Err(AccountsError::TooMany { what: "users", limit: MAX_USERS });
                }
                users.insert(wanted.name.into(), wanted.account()?);
                made.push(wanted.name.to_owned());
            }
            Ok(!made.is_empty())
        })?;
        Ok(made)
    }

    /// Changes what the body states: password, second password, end of a rotation, type, status.
    ///
    /// # Errors
    /// Invalid value; unknown user; the user is a super user and the caller is not; a rotation is open, and the body begins another one; the file cannot
    /// be written.
    pub fn update_user(&self, name: &str, info: &UserInfo, by: Caller) -> Result<(), AccountsError> {
        user::check_name(name)?;
        self.change(|users| {
            let account = users.get(name).ok_or(AccountsError::NoUser)?;
            check_caller(&account.user, by, "update")?;
            let mut user = account.user.clone();
            user::change(&mut user, info)?;
            check_caller(&user, by, "update")?;
            let is_changed = user != account.user;
            let account = Account::new(user, account.policies.clone());
            users.insert(name.into(), account);
            Ok(is_changed)
        })
    }

    /// Deletes a user with its policies; an unknown one is deleted already.
    ///
    /// # Errors
    /// The name is blank; the caller may not delete a super user; the file is not written.
    pub fn delete_user(&self, name: &str, by: Caller) -> Result<(), AccountsError> {
        if name.trim().is_empty() {
            return Err(AccountsError::BlankName);
        }
        self.change(|users| {
            let Some(account) = users.get(name) else { return Ok(false) };
            check_caller(&account.user, by, "delete")?;
            Ok(users.remove(name).is_some())
        })
    }

    /// Adds policies to those of a user; one of the same type and resource is replaced.
    ///
    /// # Errors
    /// The subject is not a user, or is a super user while the caller is not; a policy is invalid or never decides; two contradict each other;
    /// there are too many; the file is not written.
    pub fn set_policies(&self, subject: &str, acl: &AclInfo, by: Caller) -> Result<(), AccountsError> {
        let name = name_of(subject)?;
        let policies = policy::parsed(&acl.policies)?;
        policy::check_use(&policies)?;
        policy::check_single(&policies)?;
        self.change(|users| {
            let Some(account) = users.get(name) else {
                return Err(AccountsError::NoSubject { subject: policy::subject(name) });
            };
            check_caller(&account.user, by, "update")?;
            let all = merged(account.policies.clone(), policies)?;
            let is_changed = all != account.policies;
            let account = Account::new(account.user.clone(), all);
            users.insert(name.into(), account);
            Ok(is_changed)
        })
    }

    /// Deletes the policy of a type about a resource; without a resource all policies of the user. A resource without a policy is fine.
    ///
    /// # Errors
    /// The subject is not a user, or has no policies, or is a super user while the caller is not; a value is invalid; the file is not written.
    pub fn delete_policies(
        &self,
        subject: &str,
        policy_type: Option<&str>,
        resource: Option<&str>,
        by: Caller,
    ) -> Result<(), AccountsError> {
        let name = name_of(subject)?;
        let policy_type = PolicyType::parse(policy_type)?;
        let resource: Option<Resource> = said(resource).map(str::parse).transpose()?;
        self.change(|users| {
            let account = users.get(name).ok_or(AccountsError::NoUser)?;
            check_caller(&account.user, by, "update")?;
            if account.policies.is_empty() {
                return Err(AccountsError::NoPolicies);
            }
            let stays = |policy: &&Policy| {
                resource
                    .as_ref()
                    .is_some_and(|resource| policy.policy_type != policy_type || policy.resource != *resource)
            };
            let left: Vec<Policy> = account.policies.iter().filter(stays).cloned().collect();
            let is_changed = left.len() != account.policies.len();
            let account = Account::new(account.user.clone(), left);
            users.insert(name.into(), account);
            Ok(is_changed)
        })
    }

    /// The policies of a user; `None` without any.
    ///
    /// # Errors
    /// The subject is not a user.
    pub fn policies_of(&self, subject: &str) -> Result<Option<AclInfo>, AccountsError> {
        let name = name_of(subject)?;
        let account = self.account(name).ok_or(AccountsError::NoSubject { subject: subject.to_owned() })?;
        Ok((!account.policies.is_empty()).then(|| policy::body(name, &account.policies, |_| true)))
    }

    /// Policies of all users whose subjects contain the first filter, about resources whose texts contain the second one.
    pub fn policies(&self, subject_filter: &str, resource_filter: &str) -> Vec<AclInfo> {
        let state = self.state.load();
        let is_wanted = |policy: &Policy| policy.resource.to_string().contains(resource_filter);
        let wanted = state.users.iter().filter(|(name, _)| policy::subject(name).contains(subject_filter));
        let bodies = wanted.map(|(name, account)| policy::body(name, &account.policies, is_wanted));
        let mut bodies: Vec<AclInfo> = bodies.filter(|body| !body.policies.is_empty()).collect();
        bodies.sort_by(|one, other| one.subject.cmp(&other.subject));
        bodies
    }

    /// Everything, for a slave.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.state.load();
        Snapshot::new(Content::of(state.version, &state.users))
    }

    /// Takes over what a master has, with its version.
    ///
    /// # Errors
    /// It is invalid, or the file is not written.
    pub fn replace(&self, snapshot: &Snapshot) -> Result<(), AccountsError> {
        let file = self.file.lock();
        let content = snapshot.content();
        let users = content.users()?;
        file.save(content)?;
        self.state.store(Arc::new(State { version: content.data_version, users }));
        Ok(())
    }

    /// Makes a change, writes it if there was one, and lets it be seen.
    ///
    /// # Errors
    /// Users and policies would grow beyond the copy for a slave; the file is not written.
    fn change(
        &self,
        change: impl FnOnce(&mut Users) -> Result<bool, AccountsError>,
    ) -> Result<(), AccountsError> {
        let file = self.file.lock();
        let state = self.state.load_full();
        let mut users = state.users.clone();
        if !change(&mut users)? {
            return Ok(());
        }
        let version = state.version.next(now_ms());
        let content = Content::of(version, &users);
        let former = || Content::of(version, &state.users).size_bytes();
        if is_too_large(content.size_bytes(), former, MAX_COPY_BYTES) {
            return Err(AccountsError::TooLarge { limit_bytes: MAX_COPY_BYTES });
        }
        file.save(&content)?;
        self.state.store(Arc::new(State { version, users }));
        Ok(())
    }
}

/// Whether a change is refused because of the size after it. A change that shrinks a table is not.
fn is_too_large(size_bytes: usize, former_bytes: impl FnOnce() -> usize, limit_bytes: usize) -> bool {
    size_bytes > limit_bytes && size_bytes > former_bytes()
}

/// Adds policies to others; one of the same type and resource is replaced.
///
/// # Errors
/// There are too many.
fn merged(mut all: Vec<Policy>, policies: Vec<Policy>) -> Result<Vec<Policy>, AccountsError> {
    for policy in policies {
        let is_same = |old: &Policy| old.policy_type == policy.policy_type && old.resource == policy.resource;
        match all.iter_mut().find(|old| is_same(old)) {
            Some(old) => *old = policy,
            None => all.push(policy),
        }
    }
    if all.len() > MAX_POLICIES {
        return Err(AccountsError::TooMany { what: "policies of a user", limit: MAX_POLICIES });
    }
    Ok(all)
}

/// # Errors
/// The user is a super user, which the caller may not touch.
fn check_caller(user: &User, by: Caller, verb: &'static str) -> Result<(), AccountsError> {
    if user.is_super() && by != Caller::Super { Err(AccountsError::NeedsSuper { verb }) } else { Ok(()) }
}

/// The user that a subject names.
fn name_of(subject: &str) -> Result<&str, AccountsError> {
    let wrong = || AccountsError::value("subject", "User:NAME", subject);
    let (kind, name) = subject.split_once(':').ok_or_else(wrong)?;
    if !kind.eq_ignore_ascii_case("User") {
        return Err(wrong());
    }
    user::check_name(name)?;
    Ok(name)
}

#[cfg(test)]
mod tests;

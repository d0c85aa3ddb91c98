//! The way in when no administrator can log in: the users of a server that does not run.

use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, RealDisk};
use rocketpy_protocol::body::{Password, UserInfo};

use crate::{Accounts, AccountsError, Caller, UserStatus, UserType};

/// Where a broker keeps its users, in its store.
const FILE: &str = "config/users.json";

/// Outcome of [`put_offline`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutOffline {
    /// The users file.
    pub file: PathBuf,
    /// Whether there was no user of this name.
    pub is_new: bool,
}

/// Creates an enabled user in the store of a stopped broker, or in a users file. Of a user that exists it replaces secret and type, and keeps
/// the policies.
///
/// # Errors
/// A server uses the store; the file cannot be read or written; name or secret is invalid.
pub fn put_offline(
    path: &Path,
    name: &str,
    password: &str,
    kind: UserType,
    is_dry_run: bool,
) -> Result<PutOffline, AccountsError> {
    let is_store = RealDisk.list(path).is_ok();
    let _lock = is_store.then(|| RealDisk.lock(&path.join("lock"))).transpose()?;
    let file = if is_store { path.join(FILE) } else { path.to_owned() };
    let accounts = Accounts::open(file.clone())?;
    let is_new = accounts.user(name).is_none();
    let info = UserInfo {
        password: Some(Password(password.to_owned())),
        user_type: Some(kind.name().to_owned()),
        user_status: Some(UserStatus::Enable.name().to_owned()),
        ..UserInfo::default()
    };
    if !is_dry_run {
        let put = if is_new { Accounts::create_user } else { Accounts::update_user };
        put(&accounts, name, &info, Caller::Super)?;
    }
    Ok(PutOffline { file, is_new })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offline_user_is_created_or_gets_a_new_secret_while_no_server_runs() {
        let store = tempfile::tempdir().unwrap();
        let put =
            |password, is_dry_run| put_offline(store.path(), "admin", password, UserType::Super, is_dry_run);
        let file = store.path().join(FILE);
        let opened = || Accounts::open(file.clone()).unwrap();
        assert_eq!(put("first", true).unwrap(), PutOffline { file: file.clone(), is_new: true });
        assert!(opened().is_empty());
        assert!(put("first", false).unwrap().is_new);
        let info = UserInfo { user_status: Some("disable".to_owned()), ..UserInfo::default() };
        opened().update_user("admin", &info, Caller::Super).unwrap();
        assert!(!put("second", false).unwrap().is_new);
        let user = opened().user("admin").unwrap();
        assert_eq!((user.kind, user.status), (UserType::Super, UserStatus::Enable));
        assert_eq!(user.secrets.iter().collect::<Vec<_>>(), ["second"]);
        let _server = RealDisk.lock(&store.path().join("lock")).unwrap();
        assert!(put("third", false).unwrap_err().to_string().contains("lock"));
    }
}

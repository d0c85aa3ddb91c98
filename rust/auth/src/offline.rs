//! The way in when no administrator can log in: the users of a server that does not run.

use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, RealDisk};
use rocketpy_protocol::body::{Password, UserInfo};

use crate::{Accounts, AccountsError, Audit, AuditConfig, Audited, Caller, UserStatus, UserType, UsersLock};

/// Where a broker keeps its users and its audit log, in its store.
const FILE: &str = "config/users.json";
const AUDIT_FILE: &str = "log/audit.log";
/// Name of the audit log of a users file elsewhere, next to it.
const AUDIT_NAME: &str = "audit.log";

/// Outcome of [`put_offline`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutOffline {
    /// The users file.
    pub file: PathBuf,
    /// Whether there was no user of this name.
    pub is_new: bool,
}

/// Creates an enabled user in the store of a stopped broker, or in a users file. Of a user that exists it replaces secret and type, and keeps
/// the policies, and leaves a line in the audit log that is next to the users by default. A missing file begins anew, without the users of its
/// backup.
///
/// # Errors
/// A server uses the store or the file; users or audit log cannot be read or written; name or secret is invalid.
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
    let _users_lock = (!is_dry_run).then(|| UsersLock::take(&file)).transpose()?;
    let accounts = Accounts::open_anew(file.clone())?;
    let is_new = accounts.user(name).is_none();
    let info = UserInfo {
        password: Some(Password(password.to_owned())),
        user_type: Some(kind.name().to_owned()),
        user_status: Some(UserStatus::Enable.name().to_owned()),
        ..UserInfo::default()
    };
    if !is_dry_run {
        // Opened first: no change without a line.
        let audit_file = if is_store { path.join(AUDIT_FILE) } else { file.with_file_name(AUDIT_NAME) };
        let audit = Audit::open(AuditConfig::new(audit_file))?;
        let put = if is_new { Accounts::create_user } else { Accounts::update_user };
        put(&accounts, name, &info, Caller::Super)?;
        let done = if is_new { "created" } else { "enabled with a new password" };
        audit.local(Audited::local_user(name, format!("{done} by `rocketpy user add --offline`")));
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
        let log = RealDisk.read(&store.path().join(AUDIT_FILE), 1 << 20).unwrap();
        let log = String::from_utf8(log).unwrap();
        let lines: Vec<serde_json::Value> =
            log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let told = |line: &serde_json::Value| {
            ["from", "resource", "result"].map(|member| line[member].as_str().unwrap().to_owned())
        };
        let by = "by `rocketpy user add --offline`";
        let expected = ["created", "enabled with a new password"]
            .map(|done| ["local".to_owned(), "User:admin".to_owned(), format!("{done} {by}")]);
        assert_eq!(lines.iter().map(told).collect::<Vec<_>>(), expected, "none of the dry run");
        let _server = RealDisk.lock(&store.path().join("lock")).unwrap();
        assert!(put("third", false).unwrap_err().to_string().contains("lock"));
    }

    #[test]
    fn offline_user_of_a_file_is_refused_while_a_server_uses_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users.json");
        let put = || put_offline(&file, "admin", "secret", UserType::Super, false);
        let server = UsersLock::take(&file).unwrap();
        let refused = put().unwrap_err().to_string();
        assert!(refused.contains("users file is in use by"), "{refused}");
        let has = |name: &str| RealDisk.list(folder.path()).unwrap().iter().any(|entry| entry.name == name);
        assert!(!has("users.json"));
        drop(server);
        assert!(put().unwrap().is_new);
        assert!(has(AUDIT_NAME));
    }
}

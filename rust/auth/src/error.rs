//! Why users and policies are refused.

use std::path::PathBuf;

use rocketpy_env::{EnvError, LockHolder};
use rocketpy_model::NameError;
use rocketpy_model::printable::beginning;
use rocketpy_protocol::code::response;

use crate::policy::Actions;

/// Why users or policies were not opened, read or changed. Remarks that Apache's tools compare are Apache's. No text holds a secret.
#[derive(Debug, Clone, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum AccountsError {
    #[error("username can not be blank")]
    BlankName,
    #[error(transparent)]
    Name(NameError),
    #[error("password can not be blank")]
    BlankPassword,
    #[error("password exceeds {max_bytes} bytes or has control characters")]
    InvalidPassword { max_bytes: usize },
    #[error("The user is existed")]
    UserExists,
    #[error("The user is not exist")]
    NoUser,
    #[error("The super user can only be {verb} by super user")]
    NeedsSuper { verb: &'static str },
    #[error("The subject of {subject} is not exist.")]
    NoSubject { subject: String },
    #[error("The acl is not exist.")]
    NoPolicies,
    #[error("The {members} is empty.")]
    Empty { members: &'static str },
    #[error("The actions can not be Any.")]
    AnyAction,
    #[error("The source ip is invalid. {text:?}")]
    SourceIp { text: String },
    #[error("The decision is null or illegal.")]
    Decision,
    #[error("no request needs {actions} on {resource}: actions of {kind} are {needed}")]
    Useless { actions: Actions, resource: String, kind: &'static str, needed: Actions },
    #[error(
        "cannot begin another rotation: the user has two passwords, and the first one would end; end it by `rocketpy user finish-rotation`"
    )]
    RotationOpen,
    #[error("{field} must be {wanted}: {value:?}")]
    Value { field: &'static str, wanted: &'static str, value: String },
    #[error("{what} exceed {limit}, delete some first")]
    TooMany { what: &'static str, limit: usize },
    #[error("users file is readable by others, run chmod 600: {}", path.display())]
    OpenToOthers { path: PathBuf },
    #[error("cannot decode the users file {}: {reason}; restore it from a backup ({}.bak lacks the last change), or remove it and add users again (`rocketpy user add NAME --super --offline`)", path.display(), path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("users file is missing, but its backup is there: {}; restore the file (the backup lacks the last change, which may have deleted a user), or begin again with `rocketpy user add NAME --super --offline`", path.display())]
    Missing { path: PathBuf },
    #[error(
        "users and policies exceed {limit_bytes} bytes, the limit of their copy for slaves and of lists; delete some first"
    )]
    TooLarge { limit_bytes: usize },
    #[error("{resource} has two entries of type {policy_type} that contradict each other, give it one")]
    Twice { resource: String, policy_type: &'static str },
    #[error("{field} must be {wanted}")]
    Kind { field: &'static str, wanted: &'static str },
    #[error("users file is in use by {holder}, stop it first: {}", path.display())]
    InUse { path: PathBuf, holder: LockHolder },
    #[error(transparent)]
    File(#[from] EnvError),
}

impl AccountsError {
    pub(crate) fn value(field: &'static str, wanted: &'static str, value: &str) -> Self {
        Self::Value { field, wanted, value: beginning(value).into_owned() }
    }

    /// The response code of the refusal.
    pub const fn code(&self) -> i32 {
        match self {
            Self::BlankName
            | Self::Name(_)
            | Self::InvalidPassword { .. }
            | Self::Useless { .. }
            | Self::Twice { .. }
            | Self::Kind { .. }
            | Self::Value { .. } => response::INVALID_PARAMETER,
            Self::NeedsSuper { .. }
            | Self::TooMany { .. }
            | Self::OpenToOthers { .. }
            | Self::Damaged { .. }
            | Self::Missing { .. }
            | Self::TooLarge { .. }
            | Self::InUse { .. }
            | Self::File(_) => response::SYSTEM_ERROR,
            _ => response::NO_PERMISSION,
        }
    }
}

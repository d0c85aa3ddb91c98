//! Users and their secrets.

use std::fmt;

use rocketpy_model::NameError;
use rocketpy_model::name::check_user;
use rocketpy_model::printable::is_control;
use rocketpy_protocol::body::{Password, UserInfo};

use crate::AccountsError;

/// Maximum number of bytes of a secret.
pub const SECRET_MAX_BYTES: usize = 1024;

/// Who may send requests, and proves it by a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its name: the access key of its requests.
    pub name: String,
    /// What signs them.
    pub secrets: Secrets,
    /// Whether policies limit it.
    pub kind: UserType,
    /// Whether it may send requests at all.
    pub status: UserStatus,
}

impl User {
    /// The user as an answer shows it. The secret, the newest of two, is shown only where `shows_secret` says so.
    pub fn info(&self, shows_secret: bool) -> UserInfo {
        UserInfo {
            new_password: None,
            password: shows_secret.then(|| Password(self.secrets.newest().to_owned())),
            rotating: self.secrets.are_two().then_some(true),
            user_status: Some(self.status.name().to_owned()),
            user_type: Some(self.kind.name().to_owned()),
            username: Some(self.name.clone()),
        }
    }

    /// Whether it passes every policy.
    pub fn is_super(&self) -> bool {
        self.kind == UserType::Super
    }
}

/// One secret, or two while they are rotated: both are valid. `Debug` shows none.
#[derive(Clone, PartialEq, Eq)]
pub struct Secrets {
    newest: String,
    older: Option<String>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", 1 + usize::from(self.older.is_some()))
    }
}

impl Secrets {
    /// One secret.
    ///
    /// # Errors
    /// It is blank, longer than [`SECRET_MAX_BYTES`] or has control characters.
    pub fn new(secret: &str) -> Result<Self, AccountsError> {
        check_secret(secret)?;
        Ok(Self { newest: secret.to_owned(), older: None })
    }

    /// Begins a rotation: the secret joins the newest one. It may be repeated with the same secret.
    ///
    /// # Errors
    /// As [`Secrets::new`]; a rotation is open.
    pub fn rotate(&mut self, secret: &str) -> Result<(), AccountsError> {
        check_secret(secret)?;
        if self.newest != secret {
            if self.are_two() {
                return Err(AccountsError::RotationOpen);
            }
            self.older = Some(std::mem::replace(&mut self.newest, secret.to_owned()));
        }
        Ok(())
    }

    /// Ends a rotation: only the newest secret stays valid.
    pub fn finish_rotation(&mut self) {
        self.older = None;
    }

    /// The secret that stays.
    pub fn newest(&self) -> &str {
        &self.newest
    }

    /// The valid secrets, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.newest).chain(self.older.as_deref())
    }

    /// Whether a rotation is under way.
    pub fn are_two(&self) -> bool {
        self.older.is_some()
    }
}

fn check_secret(secret: &str) -> Result<(), AccountsError> {
    if secret.trim().is_empty() {
        return Err(AccountsError::BlankPassword);
    }
    if secret.len() > SECRET_MAX_BYTES || secret.chars().any(is_control) {
        return Err(AccountsError::InvalidPassword { max_bytes: SECRET_MAX_BYTES });
    }
    Ok(())
}

/// Whether policies limit a user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UserType {
    /// It may do everything.
    Super,
    /// It may do what its policies allow.
    #[default]
    Normal,
}

/// Whether a user may send requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UserStatus {
    /// It may.
    #[default]
    Enable,
    /// Its requests are refused.
    Disable,
}

impl UserType {
    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Super => "Super",
            Self::Normal => "Normal",
        }
    }

    /// # Errors
    /// The name is another one; case does not count. The error does not show it: it may be a secret at a wrong place.
    pub fn parse(text: &str) -> Result<Self, AccountsError> {
        let known = [Self::Super, Self::Normal];
        let found = known.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(text));
        found.ok_or(AccountsError::Kind { field: "userType", wanted: "Super or Normal" })
    }
}

impl UserStatus {
    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enable => "enable",
            Self::Disable => "disable",
        }
    }

    /// # Errors
    /// The name is another one; case does not count.
    pub fn parse(text: &str) -> Result<Self, AccountsError> {
        let known = [Self::Enable, Self::Disable];
        let found = known.into_iter().find(|status| status.name().eq_ignore_ascii_case(text));
        found.ok_or(AccountsError::Kind { field: "userStatus", wanted: "enable or disable" })
    }
}

/// The text of a member that says something.
pub(crate) fn said(member: Option<&str>) -> Option<&str> {
    member.filter(|text| !text.trim().is_empty())
}

/// The user that a request asks for.
///
/// # Errors
/// A value is invalid; the password is missing.
pub(crate) fn made_of(name: &str, info: &UserInfo) -> Result<User, AccountsError> {
    check_name(name)?;
    let password = info.password.as_ref().map_or("", |password| &password.0);
    let kind = said(info.user_type.as_deref()).map_or(Ok(UserType::default()), UserType::parse)?;
    let status = said(info.user_status.as_deref()).map_or(Ok(UserStatus::default()), UserStatus::parse)?;
    Ok(User { name: name.to_owned(), secrets: Secrets::new(password)?, kind, status })
}

/// Changes what a request states; the rest stays.
///
/// # Errors
/// A value is invalid.
pub(crate) fn change(user: &mut User, info: &UserInfo) -> Result<(), AccountsError> {
    let stated = |password: &Option<Password>| password.as_ref().map(|password| password.0.clone());
    if let Some(password) = stated(&info.password).filter(|password| !password.trim().is_empty()) {
        user.secrets = Secrets::new(&password)?;
    }
    if let Some(password) = stated(&info.new_password) {
        user.secrets.rotate(&password)?;
    }
    if info.rotating == Some(false) {
        user.secrets.finish_rotation();
    }
    if let Some(kind) = said(info.user_type.as_deref()) {
        user.kind = UserType::parse(kind)?;
    }
    if let Some(status) = said(info.user_status.as_deref()) {
        user.status = UserStatus::parse(status)?;
    }
    Ok(())
}

/// # Errors
/// The name is blank, or invalid.
pub(crate) fn check_name(name: &str) -> Result<(), AccountsError> {
    match check_user(name) {
        Ok(()) => Ok(()),
        Err(NameError::Empty { .. }) => Err(AccountsError::BlankName),
        Err(error) => Err(AccountsError::Name(error)),
    }
}

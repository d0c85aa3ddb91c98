//! What a [`Guard`](crate::Guard) checks.

use std::collections::BTreeSet;

use rocketpy_protocol::code::request;

/// What is checked of requests, from the configuration of a server.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Whether requests need a user (`authenticationEnabled`).
    pub authentication: bool,
    /// Whether users need policies (`authorizationEnabled`).
    pub authorization: bool,
    /// Request codes that need no user (`authenticationWhitelist`).
    pub authentication_whitelist: BTreeSet<i32>,
    /// Request codes that need no policy (`authorizationWhitelist`).
    pub authorization_whitelist: BTreeSet<i32>,
    /// Whether every request needs a proof (`authRequireProof`): Apache's clients make none.
    pub require_proof: bool,
    /// Name of the cluster, as policies name it.
    pub cluster: String,
}

/// Why a server must not start with such rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum RulesError {
    #[error(
        "authorizationEnabled needs authenticationEnabled: a request without a user would have no policies"
    )]
    NoAuthentication,
    #[error(
        "{key} must not list request code {code} ({name}): it reads or changes users, replicates, or changes a role"
    )]
    Guarded { key: &'static str, code: i32, name: &'static str },
    #[error("{key} lists an unknown request code: {code}")]
    Unknown { key: &'static str, code: i32 },
}

impl Rules {
    /// Refuses rules that leave a door open.
    ///
    /// # Errors
    /// Policies without users; a whitelist with a code that is always checked, or with an unknown one.
    pub fn check(&self) -> Result<(), RulesError> {
        if self.authorization && !self.authentication {
            return Err(RulesError::NoAuthentication);
        }
        let lists = [
            ("authenticationWhitelist", &self.authentication_whitelist),
            ("authorizationWhitelist", &self.authorization_whitelist),
        ];
        for (key, list) in lists {
            for &code in list {
                let name = request::name_of(code).ok_or(RulesError::Unknown { key, code })?;
                if is_always_checked(code) {
                    return Err(RulesError::Guarded { key, code, name });
                }
            }
        }
        Ok(())
    }
}

/// Whether a request between brokers gives or takes away what others rely on: it needs a proof and a super user.
pub(crate) const fn is_replication(code: i32) -> bool {
    matches!(code, request::COPY_LOG | request::LEAVE_MASTER | request::COPY_TABLES | request::COPY_ACCOUNTS)
}

/// Whether users need policies for a request even where policies are off.
pub(crate) const fn is_always_checked(code: i32) -> bool {
    is_replication(code)
        || matches!(code, request::AUTH_CREATE_USER..=request::AUTH_LIST_ACL | request::CHANGE_BROKER_ROLE)
}

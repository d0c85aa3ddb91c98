//! What a master and its slaves prove to each other.

use std::sync::Arc;

use rocketpy_auth::{Accounts, UserStatus};
use rocketpy_protocol::signature;
use rocketpy_remoting::Credentials;

use super::config::Token;
use crate::{BrokerConfig, BrokerError};

/// First part of what keys are made of.
const REPLICATION: &[u8] = b"replication";

/// The token of `haTokenFile`, the secret of `innerClientAuthenticationCredentials`, or both: then a proof needs both.
#[derive(Debug, Clone)]
pub(crate) struct SharedSecret {
    token: Option<Token>,
    user: Option<PeerUser>,
}

/// The user of the servers, while users are on.
#[derive(Debug, Clone)]
struct PeerUser {
    credentials: Credentials,
    accounts: Arc<Accounts>,
}

impl SharedSecret {
    /// The secret of a broker; `None` without one.
    ///
    /// # Errors
    /// The file of the token cannot be read, or holds nothing.
    pub(crate) fn of(config: &BrokerConfig) -> Result<Option<Self>, BrokerError> {
        let token = config.replication.token()?;
        let user = config.auth.guard.as_ref().zip(config.auth.credentials.clone());
        let user =
            user.map(|(guard, credentials)| PeerUser { credentials, accounts: guard.accounts().clone() });
        Ok((token.is_some() || user.is_some()).then_some(Self { token, user }))
    }

    #[cfg(test)]
    pub(crate) fn of_token(token: &str) -> Self {
        Self { token: Some(Token(token.to_owned())), user: None }
    }

    /// Whether a file has a token.
    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Proves the secret to a broker that has heard `parts`.
    pub(super) fn prove(&self, parts: &[&[u8]]) -> String {
        let of_user = self.user.as_ref().map(|user| &*user.credentials.secret_key);
        signature::prove(&self.key(of_user), parts)
    }

    /// Whether a broker proves the secret. A user with two secrets proves either.
    pub(super) fn is_proof(&self, parts: &[&[u8]], proof: &str) -> bool {
        let is_proof = |secret: Option<&str>| signature::is_proof(&self.key(secret), parts, proof);
        let Some(PeerUser { credentials, accounts }) = &self.user else { return is_proof(None) };
        let user = accounts.user(&credentials.access_key);
        is_proof(Some(&credentials.secret_key))
            || user.is_some_and(|user| {
                user.status == UserStatus::Enable && user.secrets.iter().any(|secret| is_proof(Some(secret)))
            })
    }

    /// Whether an operator proves the token, which commands read from its file.
    pub(super) fn is_proof_of_token(&self, parts: &[&[u8]], proof: &str) -> bool {
        self.token.as_ref().is_some_and(|token| signature::is_proof(&token.0, parts, proof))
    }

    /// The key of proofs.
    fn key(&self, secret: Option<&str>) -> String {
        let token = self.token.as_ref().map(|token| token.0.as_str());
        match (secret, token) {
            (None, token) => token.unwrap_or_default().to_owned(),
            (Some(secret), token) => {
                signature::prove(secret, &[REPLICATION, token.unwrap_or_default().as_bytes()])
            }
        }
    }
}

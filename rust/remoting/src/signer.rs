//! Signs the requests of a client.
use std::fmt;

use rocketpy_env::{now_ms, random_u64};
use rocketpy_protocol::Command;
use rocketpy_protocol::proof::ProofStream;

use crate::hook::RequestHook;

/// Token of temporary credentials.
const SECURITY_TOKEN: &str = "SecurityToken";

/// A user and its secret.
#[derive(Clone, PartialEq, Eq)]
#[doc(alias = "SessionCredentials")]
pub struct Credentials {
    /// Name of the user.
    pub access_key: String,
    /// Its secret, which is never sent.
    pub secret_key: String,
    /// Token of temporary credentials. RocketPy's servers ignore it.
    pub security_token: Option<String>,
}

impl Credentials {
    pub fn new(access_key: impl Into<String>, secret_key: impl Into<String>) -> Self {
        Self { access_key: access_key.into(), secret_key: secret_key.into(), security_token: None }
    }
}

/// Without the secrets.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// Adds user, proof and signature to every request of a client, once for every attempt.
///
/// The proof covers code, time and position in the stream of requests, which Apache's signature does not. The signature covers the proof as
/// one more field, so that Apache's servers accept it.
///
/// # Source
/// docs/reference/protocol.md 6.1.
#[doc(alias = "AclClientRPCHook")]
pub struct Signer {
    credentials: Credentials,
    proofs: ProofStream,
}

impl Signer {
    pub fn new(credentials: Credentials) -> Self {
        Self { credentials, proofs: ProofStream::new([random_u64(), random_u64()]) }
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("credentials", &self.credentials).finish_non_exhaustive()
    }
}

impl RequestHook for Signer {
    fn outgoing(&self, _: &str, request: &mut Command) {
        let Credentials { access_key, secret_key, security_token } = &self.credentials;
        if let Some(token) = security_token {
            request.ext.push(SECURITY_TOKEN, token);
        }
        self.proofs.sign(request, access_key, secret_key, now_ms());
    }
}

//! All users and policies, for a slave: on the wire they are encrypted, because they hold secrets.

use std::fmt;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use rocketpy_model::DataVersion;
use rocketpy_protocol::json;

use crate::content::Content;

/// Bytes of the random salt before the encrypted bytes.
const SALT_BYTES: usize = 32;
/// Keeps the key apart from others that the same secret gives.
const PURPOSE: &[u8] = b"rocketpy accounts 1";

/// All users and policies with their version. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot {
    content: Content,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Content { data_version, users } = &self.content;
        f.debug_struct("Snapshot").field("version", data_version).field("users", &users.len()).finish()
    }
}

/// Why a snapshot cannot be encrypted or decrypted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum SealError {
    #[error("the system gives no random numbers")]
    NoRandom,
    #[error(
        "cannot decrypt the users of the master: both need the same innerClientAuthenticationCredentials"
    )]
    Sealed,
    #[error("cannot decode the users of the master: {reason}")]
    Content { reason: String },
}

impl Snapshot {
    pub(crate) const fn new(content: Content) -> Self {
        Self { content }
    }

    pub(crate) const fn content(&self) -> &Content {
        &self.content
    }

    /// The version of what it holds.
    pub fn version(&self) -> DataVersion {
        self.content.data_version
    }

    /// Encrypts with a key that is made of a secret and a random salt: each key is used once. `context` is what both sides know of the
    /// request, so that an earlier answer is not taken for this one.
    ///
    /// # Errors
    /// There are no random numbers.
    pub fn seal(&self, secret: &str, context: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut salt = [0; SALT_BYTES];
        SystemRandom::new().fill(&mut salt).map_err(|_| SealError::NoRandom)?;
        let mut bytes = json::to_vec(&self.content);
        let tag = key(secret, &salt)
            .seal_in_place_separate_tag(nonce(), Aad::from(context), &mut bytes)
            .map_err(|_| SealError::NoRandom)?;
        Ok([&salt, &*bytes, tag.as_ref()].concat())
    }

    /// Decrypts what [`Snapshot::seal`] made with the same secret and context.
    ///
    /// # Errors
    /// Secret or context differ, or the bytes were changed.
    pub fn unseal(sealed: &[u8], secret: &str, context: &[u8]) -> Result<Self, SealError> {
        let (salt, encrypted) = sealed.split_first_chunk::<SALT_BYTES>().ok_or(SealError::Sealed)?;
        let mut bytes = encrypted.to_vec();
        let plain = key(secret, salt)
            .open_in_place(nonce(), Aad::from(context), &mut bytes)
            .map_err(|_| SealError::Sealed)?;
        let content =
            json::from_slice(plain).map_err(|error| SealError::Content { reason: error.to_string() })?;
        Ok(Self { content })
    }
}

/// The key of a secret and a salt, for one message.
fn key(secret: &str, salt: &[u8]) -> LessSafeKey {
    let derived = Salt::new(HKDF_SHA256, salt).extract(secret.as_bytes());
    let key = derived.expand(&[PURPOSE], &CHACHA20_POLY1305).expect("a key is short enough for HKDF");
    LessSafeKey::new(UnboundKey::from(key))
}

/// The same for every message, because each one has its own key.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

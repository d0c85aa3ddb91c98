//! Signatures of requests (access control of the 4.x and 5.x lines).
//!
//! The signed content is the values of all custom header fields, sorted by name and joined without separators, then the body.
//!
//! # Source
//! docs/reference/protocol.md 6.1.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

use crate::{Command, ExtFields};

/// Names the signer.
pub const ACCESS_KEY: &str = "AccessKey";
/// The signature itself; not part of what is signed.
pub const SIGNATURE: &str = "Signature";

/// A field that clients up to 4.9.3 add after signing.
const UNIQUE_KEY_QUERY: &str = "_UNIQUE_KEY_QUERY";
/// Version ordinal of 4.9.3.
const UNIQUE_KEY_QUERY_UNSIGNED_UNTIL: i32 = 399;

/// The signature of a command: HMAC-SHA1 of its content, as Base64.
#[must_use]
pub fn sign(command: &Command, secret: &str) -> String {
    STANDARD.encode(content_mac(command, secret).finalize().into_bytes())
}

/// Says whether the command carries the signature that its content and `secret` give.
#[must_use]
pub fn is_signed(command: &Command, secret: &str) -> bool {
    let stated = command.ext.get(SIGNATURE).and_then(|text| STANDARD.decode(text).ok());
    stated.is_some_and(|stated| content_mac(command, secret).verify_slice(&stated).is_ok())
}

/// Adds access key and signature to a command whose header is complete.
pub fn add(command: &mut Command, access_key: &str, secret: &str) {
    command.ext.push(ACCESS_KEY, access_key);
    let signature = sign(command, secret);
    command.ext.push(SIGNATURE, &signature);
}

/// Proves that the same secret is known to who has heard `parts`: HMAC-SHA1 of them, each behind its length, as Base64. Not Apache's.
#[must_use]
pub fn prove(secret: &str, parts: &[&[u8]]) -> String {
    STANDARD.encode(parts_mac(secret, parts).finalize().into_bytes())
}

/// Says whether a text is the proof that the parts and the secret give.
#[must_use]
pub fn is_proof(secret: &str, parts: &[&[u8]], proof: &str) -> bool {
    let stated = STANDARD.decode(proof).ok();
    stated.is_some_and(|stated| parts_mac(secret, parts).verify_slice(&stated).is_ok())
}

/// First part of the proof of an answer to GET_BROKER_HA_STATUS.
pub const STATUS: &[u8] = b"status";

/// What a command for another role proves, behind the challenge of its broker.
#[must_use]
pub fn role_change(role: &str, broker_id: Option<i64>, force: bool) -> String {
    format!("role change {role} {} {force}", broker_id.unwrap_or(-1))
}

fn parts_mac(secret: &str, parts: &[&[u8]]) -> Hmac<Sha1> {
    let mut mac = Hmac::<Sha1>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac
}

fn content_mac(command: &Command, secret: &str) -> Hmac<Sha1> {
    let mut mac = Hmac::<Sha1>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
    for (_, value) in signed_fields(&command.ext, command.version) {
        mac.update(value.as_bytes());
    }
    mac.update(&command.body);
    mac
}

/// The fields that are signed, in the order in which they are. Names sort by UTF-16 unit, as Java's do.
pub(crate) fn signed_fields(fields: &ExtFields, version: i32) -> Vec<(&str, &str)> {
    let is_signed = |name: &str| {
        name != SIGNATURE && !(name == UNIQUE_KEY_QUERY && version <= UNIQUE_KEY_QUERY_UNSIGNED_UNTIL)
    };
    let mut signed: Vec<(&str, &str)> = fields.iter().filter(|(name, _)| is_signed(name)).collect();
    signed.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
    signed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_secret_and_parts_alone() {
        let proof = prove("secret", &[b"a", b"bc"]);
        assert!(is_proof("secret", &[b"a", b"bc"], &proof));
        let others: [(&str, [&[u8]; 2]); 3] =
            [("other", [b"a", b"bc"]), ("secret", [b"ab", b"c"]), ("secret", [b"bc", b"a"])];
        for (secret, parts) in others {
            assert!(!is_proof(secret, &parts, &proof));
        }
        assert!(!is_proof("secret", &[b"a", b"bc"], "no Base64!"));
    }
}

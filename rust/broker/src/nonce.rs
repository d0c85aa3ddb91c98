//! Texts that make a request or an answer unlike every other.

use rocketpy_env::random_u64;

/// A text that nobody can guess.
pub(crate) fn random_text() -> String {
    format!("{:016x}{:016x}", random_u64(), random_u64())
}

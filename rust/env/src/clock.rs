//! The wall clock and the one source of randomness.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

/// The wall clock.
///
/// # Units
/// Milliseconds since 1970 in UTC; 0 when the clock stands before it.
#[allow(clippy::disallowed_methods, reason = "this crate is the door")]
pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

/// A number nobody can foresee, for identities and jitter; not for secrets.
pub fn random_u64() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(now_ms() as u64);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_stands_after_2020_and_numbers_differ() {
        assert!(now_ms() > 1_577_836_800_000);
        assert_ne!(random_u64(), random_u64());
    }
}

//! What may be done with a topic on one broker.
//!
//! # Source
//! docs/reference/protocol.md 2.0 (perm bits).

use std::fmt;

use serde::{Deserialize, Serialize};

/// New topics may be made after this one.
pub const INHERIT: i32 = 0x1;
pub const WRITE: i32 = 0x2;
pub const READ: i32 = 0x4;
pub const PRIORITY: i32 = 0x8;

/// The permission bits of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[doc(alias = "PermName")]
pub struct Permission(pub i32);

impl Permission {
    pub const NONE: Self = Self(0);
    pub const READ_WRITE: Self = Self(READ | WRITE);
    pub const READ_WRITE_INHERIT: Self = Self(READ | WRITE | INHERIT);

    #[must_use]
    pub const fn bits(self) -> i32 {
        self.0
    }

    #[must_use]
    pub const fn is_readable(self) -> bool {
        self.0 & READ != 0
    }

    #[must_use]
    pub const fn is_writable(self) -> bool {
        self.0 & WRITE != 0
    }

    #[must_use]
    pub const fn is_inherited(self) -> bool {
        self.0 & INHERIT != 0
    }

    /// Says whether only known bits are set.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.0 & !(INHERIT | WRITE | READ | PRIORITY) == 0
    }

    #[must_use]
    pub const fn with(self, bits: i32) -> Self {
        Self(self.0 | bits)
    }

    #[must_use]
    pub const fn without(self, bits: i32) -> Self {
        Self(self.0 & !bits)
    }
}

impl Default for Permission {
    fn default() -> Self {
        Self::READ_WRITE
    }
}

/// As the tools print it: `RW-`, `RWX`.
impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |set: bool, letter: &'static str| if set { letter } else { "-" };
        write!(
            f,
            "{}{}{}",
            letter(self.is_readable(), "R"),
            letter(self.is_writable(), "W"),
            letter(self.is_inherited(), "X")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_print_as_the_tools_print_them() {
        assert_eq!(Permission(6).to_string(), "RW-");
        assert_eq!(Permission(7).to_string(), "RWX");
        assert_eq!(Permission(7).without(WRITE | INHERIT).to_string(), "R--");
        assert!(!Permission(16).is_valid());
    }
}

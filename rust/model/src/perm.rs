//! What may be done with a topic on one broker.
//!
//! # Source
//! docs/reference/protocol.md 2.0 (perm bits).

use std::fmt;

use serde::{Deserialize, Serialize};

/// The topic is a template: topics may be created from it.
pub const INHERIT: i32 = 0x1;
/// Messages may be sent to the topic.
pub const WRITE: i32 = 0x2;
/// Messages may be read from the topic.
pub const READ: i32 = 0x4;
/// Apache's bit for priorities.
pub const PRIORITY: i32 = 0x8;

/// The permission bits of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[doc(alias = "PermName")]
pub struct Permission(pub i32);

impl Permission {
    /// No permission.
    pub const NONE: Self = Self(0);
    /// Read and write.
    pub const READ_WRITE: Self = Self(READ | WRITE);
    /// Read, write, and create topics from this one.
    pub const READ_WRITE_INHERIT: Self = Self(READ | WRITE | INHERIT);

    /// The bits as a number.
    #[must_use]
    pub const fn bits(self) -> i32 {
        self.0
    }

    /// Whether messages may be read.
    #[must_use]
    pub const fn is_readable(self) -> bool {
        self.0 & READ != 0
    }

    /// Whether messages may be sent.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        self.0 & WRITE != 0
    }

    /// Whether topics may be created from this one.
    #[must_use]
    pub const fn is_inherited(self) -> bool {
        self.0 & INHERIT != 0
    }

    /// Says whether only known bits are set.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.0 & !(INHERIT | WRITE | READ | PRIORITY) == 0
    }

    /// The permission with these bits set.
    #[must_use]
    pub const fn with(self, bits: i32) -> Self {
        Self(self.0 | bits)
    }

    /// The permission with these bits cleared.
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

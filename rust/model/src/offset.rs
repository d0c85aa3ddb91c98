use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

macro_rules! offset {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The first offset.
            pub const ZERO: Self = Self(0);

            /// The bare number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The distance from `earlier`, or `None` when `earlier` lies behind this offset.
            #[must_use]
            pub const fn checked_sub(self, earlier: Self) -> Option<u64> {
                self.0.checked_sub(earlier.0)
            }

            /// The number as it stands on the wire and in files: a signed 64-bit integer.
            #[must_use]
            pub const fn to_wire(self) -> i64 {
                self.0 as i64
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<u64> for $name {
            fn from(value: u64) -> Self {
                Self(value)
            }
        }

        impl From<$name> for u64 {
            fn from(value: $name) -> Self {
                value.0
            }
        }

        impl Add<u64> for $name {
            type Output = Self;

            fn add(self, distance: u64) -> Self {
                Self(self.0 + distance)
            }
        }

        impl AddAssign<u64> for $name {
            fn add_assign(&mut self, distance: u64) {
                self.0 += distance;
            }
        }

        /// # Panics
        /// In builds with overflow checks, when the right side is the greater one.
        impl Sub for $name {
            type Output = u64;

            fn sub(self, earlier: Self) -> u64 {
                self.0 - earlier.0
            }
        }
    };
}

offset! {
    /// A byte position in the endless stream of the commit log.
    ///
    /// # Units
    /// Bytes; the first byte of the first commit log file is 0.
    PhysicalOffset
}

offset! {
    /// The number of an entry in one queue.
    ///
    /// # Units
    /// Entries; the first entry of a queue is 0.
    #[doc(alias = "logicOffset")]
    #[doc(alias = "cqOffset")]
    QueueOffset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_a_kind_subtract_to_a_distance() {
        assert_eq!(QueueOffset(7) - QueueOffset(3), 4);
        assert_eq!(PhysicalOffset(3).checked_sub(PhysicalOffset(7)), None);
        assert_eq!((PhysicalOffset(3) + 4).to_string(), "7");
    }
}

//! The two kinds of offset, and cells that threads share.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

macro_rules! offset {
    ($(#[$doc:meta])* $name:ident, $(#[$cell_doc:meta])* $cell:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The first offset.
            pub const ZERO: Self = Self(0);

            /// The greatest offset; no record or entry lies there.
            pub const MAX: Self = Self(u64::MAX);

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

            /// The distance from `earlier`, or 0 when `earlier` lies behind this offset.
            #[must_use]
            pub const fn saturating_sub(self, earlier: Self) -> u64 {
                self.0.saturating_sub(earlier.0)
            }

            /// The offset that lies `distance` further, or `None` when there is none.
            #[must_use]
            pub const fn checked_add(self, distance: u64) -> Option<Self> {
                match self.0.checked_add(distance) {
                    Some(sum) => Some(Self(sum)),
                    None => None,
                }
            }

            /// The start of the block of `size` that holds this offset.
            ///
            /// # Panics
            /// When `size` is 0.
            #[must_use]
            pub const fn block_start(self, size: u64) -> Self {
                Self(self.0 - self.0 % size)
            }

            /// The offset that the wire or a file gives; `None` for a negative number.
            #[must_use]
            pub const fn from_wire(value: i64) -> Option<Self> {
                if value < 0 { None } else { Some(Self(value as u64)) }
            }

            /// The number on the wire and in files: a signed 64-bit integer.
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

        /// # Panics
        /// In builds with overflow checks, when the offset lies nearer to 0 than that.
        impl Sub<u64> for $name {
            type Output = Self;

            fn sub(self, distance: u64) -> Self {
                Self(self.0 - distance)
            }
        }

        $(#[$cell_doc])*
        #[derive(Debug, Default)]
        pub struct $cell(AtomicU64);

        impl $cell {
            /// A cell that holds `offset`.
            #[must_use]
            pub const fn new(offset: $name) -> Self {
                Self(AtomicU64::new(offset.0))
            }

            /// See [`AtomicU64::load`].
            #[must_use]
            pub fn load(&self, order: Ordering) -> $name {
                $name(self.0.load(order))
            }

            /// See [`AtomicU64::store`].
            pub fn store(&self, offset: $name, order: Ordering) {
                self.0.store(offset.0, order);
            }

            /// Stores an offset and returns the former one. See [`AtomicU64::swap`].
            pub fn swap(&self, offset: $name, order: Ordering) -> $name {
                $name(self.0.swap(offset.0, order))
            }

            /// Stores an offset if it is greater, and returns the former one. See [`AtomicU64::fetch_max`].
            pub fn fetch_max(&self, offset: $name, order: Ordering) -> $name {
                $name(self.0.fetch_max(offset.0, order))
            }
        }
    };
}

offset! {
    /// A byte position in the endless stream of the commit log.
    ///
    /// # Units
    /// Bytes; the first byte of the first commit log file is 0.
    PhysicalOffset,
    /// A physical offset that threads share.
    AtomicPhysicalOffset
}

offset! {
    /// The number of an entry in one queue.
    ///
    /// # Units
    /// Entries; the first entry of a queue is 0.
    #[doc(alias = "logicOffset")]
    #[doc(alias = "cqOffset")]
    QueueOffset,
    /// A queue offset that threads share.
    AtomicQueueOffset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_a_kind_subtract_to_a_distance() {
        assert_eq!(QueueOffset(7) - QueueOffset(3), 4);
        assert_eq!(PhysicalOffset(3).checked_sub(PhysicalOffset(7)), None);
        assert_eq!(PhysicalOffset(3).saturating_sub(PhysicalOffset(7)), 0);
        assert_eq!((PhysicalOffset(3) + 4).to_string(), "7");
    }

    #[test]
    fn an_offset_and_a_distance_give_an_offset() {
        assert_eq!(PhysicalOffset(7) - 3, PhysicalOffset(4));
        assert_eq!(QueueOffset(7).checked_add(1), Some(QueueOffset(8)));
        assert_eq!(QueueOffset::MAX.checked_add(1), None);
        assert_eq!(PhysicalOffset(4097).block_start(4096), PhysicalOffset(4096));
    }

    #[test]
    fn the_wire_gives_no_negative_offset() {
        assert_eq!(QueueOffset::from_wire(-1), None);
        assert_eq!(QueueOffset::from_wire(7).map(QueueOffset::to_wire), Some(7));
    }

    #[test]
    fn a_cell_takes_the_greater_offset() {
        let cell = AtomicPhysicalOffset::new(PhysicalOffset(5));
        assert_eq!(cell.fetch_max(PhysicalOffset(3), Ordering::Relaxed), PhysicalOffset(5));
        assert_eq!(cell.fetch_max(PhysicalOffset(9), Ordering::Relaxed), PhysicalOffset(5));
        assert_eq!(cell.load(Ordering::Relaxed), PhysicalOffset(9));
    }
}

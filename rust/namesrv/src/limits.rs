//! Limits of what brokers state, and the memory that covers it.

/// Longest address.
pub(crate) const MAX_ADDRESS_BYTES: usize = 255 + ":65535".len();
/// Memory of a broker beside its topics, with the addresses that are remembered of its name.
pub(crate) const BROKER_BYTES: usize = 8192;

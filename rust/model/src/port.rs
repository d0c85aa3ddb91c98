//! The ports on which servers listen unless they are told otherwise, as with Apache.
//!
//! # Source
//! docs/reference/protocol.md 7.

/// The port of a name server.
pub const NAME_SERVER: u16 = 9876;
/// The port of a broker.
pub const BROKER: u16 = 10911;

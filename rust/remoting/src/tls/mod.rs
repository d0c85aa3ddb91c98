//! TLS: one port for plain and encrypted connections, and clients that verify their servers.
//!
//! The first byte of a connection decides: 0x16 begins a TLS handshake, and no frame begins with it. A plain connection is served by its
//! socket as before, so that TLS costs it one look at one byte.
//!
//! # Source
//! docs/reference/protocol.md 6.4.

mod accept;
mod connect;
mod error;
mod files;
mod half_open;
mod identity;
mod reloaded;
mod socket;
mod stream;

use std::sync::{Arc, LazyLock};

use tokio_rustls::rustls::crypto::{CryptoProvider, ring};

pub use self::accept::{Accepted, Refused, ServerTls};
pub use self::connect::ClientTls;
pub use self::error::TlsError;
pub use self::files::{ClientTlsFiles, ClientVerification, ServerTlsFiles, TlsMode, Trust};
pub use self::socket::Socket;
pub use self::stream::EncryptedStream;

/// First byte of a TLS connection: a record of the type handshake.
const HANDSHAKE: u8 = 0x16;
/// First byte of an alert, by which a server refuses a handshake.
const ALERT: u8 = 0x15;

/// Cipher suites, key exchange and signatures.
fn provider() -> Arc<CryptoProvider> {
    static RING: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(ring::default_provider()));
    RING.clone()
}

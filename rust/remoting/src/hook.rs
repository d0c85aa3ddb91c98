//! The client's seam for signing requests.
use std::fmt;

use rocketpy_protocol::Command;

/// Completes the requests of a [`Client`](crate::Client) before they are encoded, for example with a signature.
#[doc(alias = "RPCHook")]
pub trait RequestHook: fmt::Debug + Send + Sync + 'static {
    /// Changes a request that is about to be sent to `addr` (`host:port`, as the caller gave it).
    ///
    /// Runs once for every attempt, on the caller's thread, and must not block. A request that is sent again over a new
    /// connection still has the fields of the first attempt, so a hook replaces its fields instead of adding them twice. A
    /// change of `opaque`, `serialize` or the one-way bit has no effect.
    ///
    /// # Source
    /// docs/reference/client.md 2.5. Responses, and requests of a server to its client, do not pass.
    fn outgoing(&self, addr: &str, request: &mut Command);
}

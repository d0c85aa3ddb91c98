//! What a connection runs over: a socket, an encrypted stream around one (`tls`), memory in tests.
use std::io;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A stream of bytes in both directions.
///
/// A connection writes with `poll_write_vectored`, flushes when nothing more is queued, and shuts its side at the end. A stream
/// that buffers what it is given, as encryption does, therefore needs nothing else from the connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin {
    /// Returns ready when a read may bring bytes.
    ///
    /// A stream that can tell lets an idle connection wait without a read buffer. The default cannot tell and is always ready.
    fn poll_read_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Whether the stream is encrypted.
    fn is_encrypted(&self) -> bool {
        false
    }
}

impl Stream for TcpStream {
    fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_read_ready(self, cx)
    }
}

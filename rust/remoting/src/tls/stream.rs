//! An encrypted stream as framing sees it.
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{TlsStream, client, server};

use crate::stream::Stream;

/// Maximum number of bytes of a peer until its handshake has ended. A chain of certificates has a few thousand.
pub(super) const MAX_HANDSHAKE_BYTES: usize = 32 << 10;

/// An encrypted stream over a socket.
pub type EncryptedStream = TlsStream<Metered>;

/// A socket that reads a bounded number of bytes until the handshake over it has ended.
#[derive(Debug)]
pub struct Metered {
    socket: TcpStream,
    /// `None` once the handshake has ended.
    left_bytes: Option<usize>,
}

impl Metered {
    pub(super) fn new(socket: TcpStream) -> Self {
        Self { socket, left_bytes: Some(MAX_HANDSHAKE_BYTES) }
    }
}

/// The stream of a handshake that has ended, on the server's side.
pub(super) fn of_server(mut stream: server::TlsStream<Metered>) -> EncryptedStream {
    stream.get_mut().0.left_bytes = None;
    stream.into()
}

/// The same on the client's side.
pub(super) fn of_client(mut stream: client::TlsStream<Metered>) -> EncryptedStream {
    stream.get_mut().0.left_bytes = None;
    stream.into()
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(cx, buf);
        let Some(left_bytes) = &mut self.left_bytes else { return read };
        match left_bytes.checked_sub(buf.filled().len() - before) {
            Some(left) => *left_bytes = left,
            None => {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "handshake is too long")));
            }
        }
        read
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

impl Stream for EncryptedStream {
    fn is_encrypted(&self) -> bool {
        true
    }

    fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (socket, is_drained) = match self {
            Self::Server(stream) => {
                let (socket, session) = stream.get_mut();
                (&socket.socket, session.wants_read())
            }
            Self::Client(stream) => {
                let (socket, session) = stream.get_mut();
                (&socket.socket, session.wants_read())
            }
        };
        // Bytes that are decrypted already come without a byte on the socket.
        if is_drained { socket.poll_read_ready(cx) } else { Poll::Ready(Ok(())) }
    }
}

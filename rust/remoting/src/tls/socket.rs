//! A socket of threads that block, plain or encrypted. One thread may read while another writes.
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use tokio_rustls::rustls::{ClientConnection, Connection, ServerConnection};

use super::accept::{Refused, ServerTls};
use super::connect::{ClientTls, server_name};
use super::stream::MAX_HANDSHAKE_BYTES;

/// Size of one read from the socket.
const READ_BYTES: usize = 64 << 10;

/// A socket of threads that block.
#[derive(Debug)]
pub struct Socket {
    tcp: TcpStream,
    tls: Option<Tls>,
}

#[derive(Debug)]
struct Tls {
    session: Mutex<Connection>,
    /// Read from the socket and not yet decrypted. Held by the thread that reads.
    received: Mutex<BytesMut>,
    /// Held while encrypted bytes are written: they leave in the order of their encryption.
    sending: Mutex<()>,
}

impl Socket {
    /// A socket without encryption.
    pub fn plain(tcp: TcpStream) -> Self {
        Self { tcp, tls: None }
    }

    /// Looks at the first byte, which a plain peer may send within `patience`, and completes a handshake. Blocks. The timeouts of the socket
    /// are those from before.
    ///
    /// # Errors
    /// The connection is not served, and why.
    pub fn accept(tcp: TcpStream, tls: &ServerTls, patience: Duration) -> Result<Self, Refused> {
        let accepted = Self::try_accept(tcp, tls, patience);
        if !matches!(accepted, Ok(_) | Err(Refused::Silent)) {
            tls.count_refused();
        }
        accepted
    }

    fn try_accept(tcp: TcpStream, tls: &ServerTls, patience: Duration) -> Result<Self, Refused> {
        let timeout = tcp.read_timeout()?;
        tcp.set_read_timeout(Some(patience))?;
        let mut first = [0];
        match tcp.peek(&mut first) {
            Ok(0) => return Err(Refused::Silent),
            Ok(_) => tcp.set_read_timeout(timeout)?,
            Err(error) if is_timeout(&error) => return Err(Refused::NoFirstByte(patience)),
            Err(error) => return Err(error.into()),
        }
        if !tls.is_handshake(first[0])? {
            return Ok(Self::plain(tcp));
        }
        let session = ServerConnection::new(tls.context()).map_err(io::Error::other)?;
        let within = tls.handshake_timeout();
        Self::shake_hands(tcp, session.into(), within).map_err(|error| match is_timeout(&error) {
            true => Refused::Slow(within),
            false => Refused::Handshake(error),
        })
    }

    /// Completes a handshake with the server of an address (`host:port`). Blocks.
    ///
    /// # Errors
    /// The server offers no TLS, or its certificate is not accepted.
    pub fn connect(tcp: TcpStream, tls: &ClientTls, addr: &str, within: Duration) -> io::Result<Self> {
        let session = ClientConnection::new(tls.context(), server_name(addr)?).map_err(io::Error::other)?;
        Self::shake_hands(tcp, session.into(), within)
    }

    fn shake_hands(tcp: TcpStream, mut session: Connection, within: Duration) -> io::Result<Self> {
        let (timeout, deadline) = (tcp.read_timeout()?, Instant::now() + within);
        let mut left_bytes = MAX_HANDSHAKE_BYTES;
        let mut received = BytesMut::new();
        while session.is_handshaking() || session.wants_write() {
            send_waiting(&mut session, &tcp)?;
            if !session.is_handshaking() {
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            tcp.set_read_timeout(Some(left))?;
            let mut bytes = [0; 4096];
            let count = (&tcp).read(&mut bytes)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let too_long = || io::Error::new(io::ErrorKind::InvalidData, "handshake is too long");
            left_bytes = left_bytes.checked_sub(count).ok_or_else(too_long)?;
            received.extend_from_slice(&bytes[..count]);
            while session.is_handshaking() && !received.is_empty() {
                if let Err(error) = decrypt(&mut session, &mut received) {
                    drop(send_waiting(&mut session, &tcp)); // the alert says why
                    return Err(error);
                }
            }
        }
        tcp.set_read_timeout(timeout)?;
        let tls =
            Tls { session: Mutex::new(session), received: Mutex::new(received), sending: Mutex::new(()) };
        Ok(Self { tcp, tls: Some(tls) })
    }

    /// Ends both directions: threads that read or write end.
    ///
    /// # Errors
    /// The socket is gone already.
    pub fn shutdown(&self) -> io::Result<()> {
        self.tcp.shutdown(Shutdown::Both)
    }

    /// Maximum wait of a read.
    ///
    /// # Errors
    /// The socket is gone, or the wait is zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.tcp.set_read_timeout(timeout)
    }
}

impl Tls {
    fn read(&self, tcp: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        let mut received = self.received.lock();
        loop {
            {
                let mut session = self.session.lock();
                match session.reader().read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return read,
                }
                if !received.is_empty() {
                    decrypt(&mut session, &mut received)?;
                    // An answer to the protocol itself. A write that is under way takes it along.
                    if session.wants_write()
                        && let Some(_sending) = self.sending.try_lock()
                    {
                        send_waiting(&mut session, tcp)?;
                    }
                    continue;
                }
            }
            received.resize(READ_BYTES, 0);
            let read = (&*tcp).read(&mut received);
            received.truncate(*read.as_ref().unwrap_or(&0));
            if read? == 0 {
                return Ok(0);
            }
        }
    }

    fn write(&self, tcp: &TcpStream, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let _sending = self.sending.lock();
        let mut encrypted = Vec::new();
        let written = {
            let mut session = self.session.lock();
            let written = session.writer().write_vectored(parts)?;
            while session.wants_write() {
                session.write_tls(&mut encrypted)?;
            }
            written
        };
        (&*tcp).write_all(&encrypted)?;
        Ok(written)
    }
}

/// Decrypts at least one received byte.
fn decrypt(session: &mut Connection, received: &mut BytesMut) -> io::Result<()> {
    session.read_tls(&mut received.reader())?;
    let processed = session.process_new_packets();
    processed.map(drop).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn send_waiting(session: &mut Connection, mut tcp: &TcpStream) -> io::Result<()> {
    while session.wants_write() {
        session.write_tls(&mut tcp)?;
    }
    Ok(())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => (&self.tcp).read(buffer),
            Some(tls) => tls.read(&self.tcp, buffer),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.tls {
            None => (&self.tcp).write_vectored(parts),
            Some(tls) => tls.write(&self.tcp, parts),
        }
    }

    /// Writes leave at once.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

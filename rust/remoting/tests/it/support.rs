//! A peer made of bytes, and handlers made of closures.
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rocketpy_protocol::Command;
use rocketpy_remoting::{Connection, Handler, Reply, Response, Server, ServerConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// No test waits longer than this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const LOOPBACK: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Waits for a future and panics after [`PATIENCE`].
pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(PATIENCE, what).await.expect("it did not happen in time")
}

/// One frame with a JSON header, as bytes.
pub(crate) fn frame(header: &Value, body: &[u8]) -> Vec<u8> {
    let header = header.to_string();
    let mut frame = Vec::new();
    frame.extend_from_slice(&u32::try_from(4 + header.len() + body.len()).expect("small").to_be_bytes());
    frame.extend_from_slice(&u32::try_from(header.len()).expect("small").to_be_bytes());
    frame.extend_from_slice(header.as_bytes());
    frame.extend_from_slice(body);
    frame
}

pub(crate) fn request(code: i32, opaque: i32, body: &[u8]) -> Vec<u8> {
    request_with(code, opaque, 0, 479, body)
}

pub(crate) fn request_with(code: i32, opaque: i32, flag: i32, version: i32, body: &[u8]) -> Vec<u8> {
    let header =
        json!({"code": code, "flag": flag, "language": "JAVA", "opaque": opaque, "version": version});
    frame(&header, body)
}

pub(crate) fn response(code: i32, opaque: i64, body: &[u8]) -> Vec<u8> {
    frame(&json!({"code": code, "flag": 1, "language": "JAVA", "opaque": opaque, "version": 479}), body)
}

/// A frame as it came.
#[derive(Debug)]
pub(crate) struct Received {
    pub serialize: u8,
    /// The JSON header; null for a binary one.
    pub header: Value,
    pub body: Vec<u8>,
}

impl Received {
    pub(crate) fn code(&self) -> i64 {
        self.header["code"].as_i64().expect("a code")
    }

    pub(crate) fn opaque(&self) -> i64 {
        self.header["opaque"].as_i64().expect("an opaque")
    }

    pub(crate) fn remark(&self) -> &str {
        self.header["remark"].as_str().unwrap_or_default()
    }
}

/// The other end of a socket, without any codec.
pub(crate) struct RawPeer {
    pub stream: TcpStream,
}

impl RawPeer {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(addr).await.expect("connects") }
    }

    pub(crate) async fn accept(listener: &TcpListener) -> Self {
        Self { stream: soon(listener.accept()).await.expect("accepts").0 }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        soon(self.stream.write_all(bytes)).await.expect("writes");
    }

    /// The next frame, or `None` at the end of the stream.
    pub(crate) async fn receive(&mut self) -> Option<Received> {
        soon(async {
            let mut length = [0; 4];
            match self.stream.read_exact(&mut length).await {
                Ok(_) => {}
                Err(error) if is_end(&error) => return None,
                Err(error) => panic!("reading a length: {error}"),
            }
            let mut rest = vec![0; u32::from_be_bytes(length) as usize];
            self.stream.read_exact(&mut rest).await.expect("a whole frame");
            let word = u32::from_be_bytes(rest[..4].try_into().expect("four bytes"));
            let body = rest.split_off(4 + (word & 0x00FF_FFFF) as usize);
            let header =
                if word >> 24 == 0 { serde_json::from_slice(&rest[4..]).expect("JSON") } else { Value::Null };
            Some(Received { serialize: rest[0], header, body })
        })
        .await
    }

    /// Asserts that the other side ends the connection without another frame.
    pub(crate) async fn assert_closed(&mut self) {
        let mut byte = [0];
        match soon(self.stream.read(&mut byte)).await {
            Ok(count) => assert_eq!(count, 0, "a byte came where the end was expected"),
            Err(error) => assert!(is_end(&error), "{error}"),
        }
    }

    /// Asserts that this connection still answers.
    pub(crate) async fn assert_serves(&mut self) {
        self.send(&request(ECHO, 4711, b"still there")).await;
        let answer = self.receive().await.expect("an answer");
        assert_eq!((answer.opaque(), answer.body.as_slice()), (4711, b"still there".as_slice()));
    }
}

fn is_end(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
}

/// What a handler tells the test.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Connected(u64),
    Disconnected(u64),
}

struct Closure<F> {
    handle: F,
    events: Option<mpsc::UnboundedSender<Event>>,
}

impl<F: Fn(&Arc<Connection>, Command, Reply) + Send + Sync + 'static> Handler for Closure<F> {
    fn handle(&self, connection: &Arc<Connection>, request: Command, reply: Reply) {
        (self.handle)(connection, request, reply);
    }

    fn connected(&self, connection: &Arc<Connection>) {
        if let Some(events) = &self.events {
            drop(events.send(Event::Connected(connection.id())));
        }
    }

    fn disconnected(&self, connection: &Arc<Connection>) {
        if let Some(events) = &self.events {
            drop(events.send(Event::Disconnected(connection.id())));
        }
    }
}

pub(crate) fn handler(
    handle: impl Fn(&Arc<Connection>, Command, Reply) + Send + Sync + 'static,
) -> Arc<dyn Handler> {
    Arc::new(Closure { handle, events: None })
}

pub(crate) fn handler_with_events(
    handle: impl Fn(&Arc<Connection>, Command, Reply) + Send + Sync + 'static,
) -> (Arc<dyn Handler>, mpsc::UnboundedReceiver<Event>) {
    let (events, receiver) = mpsc::unbounded_channel();
    (Arc::new(Closure { handle, events: Some(events) }), receiver)
}

/// The request code that [`echo`] answers with its own body.
pub(crate) const ECHO: i32 = 10;

pub(crate) fn echo(_: &Arc<Connection>, request: Command, reply: Reply) {
    if request.code == ECHO {
        reply.send(Response::success().with_body(request.body));
    } else {
        reply.send(Response::not_supported(request.code));
    }
}

pub(crate) fn serve(config: ServerConfig, handler: Arc<dyn Handler>) -> Server {
    Server::bind(config, handler).expect("binds")
}

pub(crate) fn echo_server() -> Server {
    serve(ServerConfig::new(LOOPBACK), handler(echo))
}

/// A handler that keeps every reply for the test to give.
pub(crate) fn keeping() -> (Arc<dyn Handler>, mpsc::UnboundedReceiver<(Command, Reply)>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let keep = handler(move |_, request, reply| sender.send((request, reply)).expect("the test listens"));
    (keep, receiver)
}

pub(crate) fn bytes(size: usize, seed: u8) -> Bytes {
    (0..size).map(|index| u8::try_from(index % 251).expect("below 251") ^ seed).collect()
}

//! Framing over streams that are no sockets.
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rocketpy_protocol::{Command, SerializeType};
use tokio::io::{AsyncReadExt, BufWriter, DuplexStream, duplex};
use tokio::sync::mpsc;

use crate::config::ServerConfig;
use crate::connection::Connection;
use crate::driver::Driver;
use crate::error::CallError;
use crate::handler::{Handler, Reply, Service};
use crate::response::Response;
use crate::stream::Stream;

/// No test waits longer for what must happen.
const PATIENCE: Duration = Duration::from_secs(20);
const ECHO: i32 = 10;

impl Stream for DuplexStream {}
impl Stream for BufWriter<DuplexStream> {}

/// Answers with the body of the request, and tells of the end.
struct Echo(mpsc::UnboundedSender<()>);

impl Handler for Echo {
    fn handle(&self, _: &Arc<Connection>, request: Command, reply: Reply) {
        reply.send(Response::success().with_body(request.body));
    }

    fn disconnected(&self, _: &Arc<Connection>) {
        self.0.send(()).unwrap_or_default();
    }
}

/// Serves one end of a stream; the receiver hears of the end.
fn serve(
    stream: impl Stream + Send + 'static,
    config: &ServerConfig,
) -> (Arc<Connection>, mpsc::UnboundedReceiver<()>) {
    let (ended, receiver) = mpsc::unbounded_channel();
    let service = Service { handler: Arc::new(Echo(ended)), check: None };
    let nowhere = SocketAddr::from(([0; 4], 0));
    let connection = Arc::new(Connection::new(
        (nowhere, nowhere),
        "memory".into(),
        SerializeType::Json,
        config.limits(),
        None,
    ));
    tokio::spawn(Driver::new(stream, Arc::clone(&connection), service, ()));
    (connection, receiver)
}

fn config() -> ServerConfig {
    ServerConfig::new(SocketAddr::from(([0; 4], 0)))
}

fn body(size: usize) -> Bytes {
    (0..size).map(|index| (index % 251) as u8).collect()
}

async fn assert_echoes(client: &Connection) {
    let mut calls = Vec::new();
    for size in [0, 1, 2047, 2048, 300_000, 3] {
        let request = Command::bare_request(ECHO).with_body(body(size));
        calls.push((size, client.start_call(request, PATIENCE).await.expect("queued")));
    }
    for (size, call) in calls {
        assert_eq!(call.await.expect("an answer").body, body(size));
    }
}

#[tokio::test]
async fn frames_cross_a_stream_in_memory_and_a_close_ends_both_sides() {
    // Smaller than a frame: writes are cut at any byte.
    let (near, far) = duplex(1000);
    let (client, mut client_ended) = serve(near, &config());
    let (server, mut server_ended) = serve(far, &config());
    assert_echoes(&client).await;
    client.close();
    for ended in [&mut client_ended, &mut server_ended] {
        tokio::time::timeout(PATIENCE, ended.recv()).await.expect("ends").expect("ends once");
    }
    let error = client.call(Command::bare_request(ECHO), PATIENCE).await.unwrap_err();
    assert!(matches!(error, CallError::Closed { queued: false, .. }), "{error}");
    assert!(!server.is_open());
}

#[tokio::test]
async fn a_stream_that_buffers_is_flushed_when_nothing_more_is_queued() {
    let (near, far) = duplex(1000);
    let (client, _ended) = serve(BufWriter::new(near), &config());
    let (_server, _ended) = serve(BufWriter::new(far), &config());
    assert_echoes(&client).await;
}

#[tokio::test]
async fn a_stream_whose_flush_does_not_end_counts_as_stalled() {
    let stall = ServerConfig { stall_timeout: Duration::from_millis(50), ..config() };
    let (near, _nobody_reads) = duplex(10);
    let (client, mut ended) = serve(BufWriter::new(near), &stall);
    let request = Command::bare_request(ECHO).with_body(body(100));
    let call = client.start_call(request, PATIENCE).await.expect("queued");
    tokio::time::timeout(PATIENCE, ended.recv()).await.expect("ends").expect("ends once");
    assert!(matches!(call.await, Err(CallError::Closed { queued: true, .. })));
}

#[tokio::test]
async fn a_reader_that_takes_a_byte_now_and_then_counts_as_stalled() {
    let stall = ServerConfig { stall_timeout: Duration::from_millis(200), ..config() };
    let (near, mut far) = duplex(1000);
    let (client, mut ended) = serve(near, &stall);
    let request = Command::bare_request(ECHO).with_body(body(300_000));
    let call = client.start_call(request, PATIENCE).await.expect("queued");
    let reading = tokio::spawn(async move {
        let mut byte = [0];
        while far.read_exact(&mut byte).await.is_ok() {
            // Not a wait: the pace of the reader.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    tokio::time::timeout(PATIENCE, ended.recv()).await.expect("ends").expect("ends once");
    assert!(matches!(call.await, Err(CallError::Closed { queued: true, .. })));
    reading.abort();
}

//! Framing over streams that are no sockets.
use std::io::{self, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rocketpy_protocol::{Command, SerializeType, flag};
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufWriter, DuplexStream, ReadBuf, duplex,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::config::ServerConfig;
use crate::connection::{Connection, Phase};
use crate::driver::Driver;
use crate::error::CallError;
use crate::handler::{Handler, NoHandler, Reply, Service};
use crate::response::Response;
use crate::shared_driver::SharedDriver;
use crate::stream::Stream;
use crate::turn::{MAX_BYTES, MAX_FRAMES};

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
    (serve_by(Arc::new(Echo(ended)), stream, config), receiver)
}

/// Serves one end of a stream by this handler.
fn serve_by(
    handler: Arc<dyn Handler>,
    stream: impl Stream + Send + 'static,
    config: &ServerConfig,
) -> Arc<Connection> {
    let (connection, service) = (connection(config), Service { handler, check: None });
    tokio::spawn(Driver::new(stream, Arc::clone(&connection), service, ()));
    connection
}

fn connection(config: &ServerConfig) -> Arc<Connection> {
    let nowhere = SocketAddr::from(([0; 4], 0));
    let ends = (nowhere, nowhere);
    Arc::new(Connection::new(ends, "memory".into(), SerializeType::Json, config.limits(), None))
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

const FLOOD: i32 = 11;

/// Counts the requests of a flood, and notes how many had been handled when another request comes.
#[derive(Default)]
struct Flooded {
    answer: Bytes,
    handled: AtomicUsize,
    before_the_other: OnceLock<usize>,
}

impl Handler for Flooded {
    fn handle(&self, _: &Arc<Connection>, request: Command, reply: Reply) {
        match request.code {
            FLOOD => drop(self.handled.fetch_add(1, Ordering::Relaxed)),
            _ => self.before_the_other.set(self.handled.load(Ordering::Relaxed)).expect("one comes"),
        }
        reply.send(Response::success().with_body(self.answer.clone()));
    }
}

fn frame(request: &Command) -> BytesMut {
    let mut frame = BytesMut::new();
    request.encode(&mut frame).expect("it can be encoded");
    frame
}

/// A connection whose one request has arrived, though the runtime has not looked at the socket yet.
fn arrived(request: &Command) -> (std::net::TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut client = std::net::TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let (server, _) = listener.accept().expect("accepted");
    client.write_all(&frame(request)).expect("sent");
    server.peek(&mut [0]).expect("it has arrived");
    server.set_nonblocking(true).expect("set");
    (client, server)
}

/// How many requests of a flood are handled before the one request of another connection is, with such answers.
async fn handled_before_another(flood: &Command, count: usize, answer: Bytes) -> usize {
    let frames = frame(flood).repeat(count);
    let (mut near, far) = duplex(frames.len());
    near.write_all(&frames).await.expect("buffered");
    let (other, socket) = arrived(&Command::bare_request(ECHO));
    let handler = Arc::new(Flooded { answer, ..Flooded::default() });
    serve_by(handler.clone(), far, &config());
    serve_by(handler.clone(), TcpStream::from_std(socket).expect("registered"), &config());
    while handler.handled.load(Ordering::Relaxed) < count {
        tokio::task::yield_now().await;
    }
    drop(other);
    *handler.before_the_other.get().expect("it was handled before the end of the flood")
}

#[tokio::test]
async fn a_flood_of_requests_lets_others_in_after_a_few_turns() {
    let mut flood = Command::bare_request(FLOOD);
    flood.flag |= flag::ONEWAY;
    let before = handled_before_another(&flood, 100_000, Bytes::new()).await;
    assert!(before <= 4 * MAX_FRAMES, "{before} of 100,000 requests came first");
}

#[tokio::test]
async fn requests_with_large_answers_make_a_turn_of_fewer() {
    let flood = Command::bare_request(FLOOD);
    let before = handled_before_another(&flood, 40, body(MAX_BYTES / 2)).await;
    assert!(before <= 4 * 2, "{before} of 40 requests came first");
}

/// A peer that sends one-way requests for ever, takes every byte, and answers nothing.
struct Pump {
    frame: BytesMut,
    /// Bytes of the frame that were read.
    read: usize,
}

impl Pump {
    fn new() -> Self {
        let mut request = Command::bare_request(ECHO);
        request.flag |= flag::ONEWAY;
        Self { frame: frame(&request), read: 0 }
    }
}

impl AsyncRead for Pump {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while buf.remaining() > 0 {
            let rest = &self.frame[self.read..];
            let count = rest.len().min(buf.remaining());
            buf.put_slice(&rest[..count]);
            self.read = (self.read + count) % self.frame.len();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pump {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Stream for Pump {}

#[tokio::test]
async fn a_call_to_a_peer_that_always_sends_ends_at_its_timeout() {
    let (connection, _ended) = serve(Pump::new(), &config());
    let call = connection.call(Command::bare_request(ECHO), Duration::from_millis(50));
    let result = tokio::time::timeout(PATIENCE, call).await.expect("it ends");
    assert!(matches!(result, Err(CallError::Timeout { .. })), "{result:?}");
}

#[tokio::test]
async fn a_close_ends_a_connection_whose_peer_always_sends() {
    for phase in [Phase::Closing, Phase::Draining] {
        let (connection, mut ended) = serve(Pump::new(), &config());
        tokio::task::yield_now().await;
        connection.enter(phase);
        tokio::time::timeout(PATIENCE, ended.recv()).await.expect("ends").expect("ends once");
    }
}

/// A peer that sends one request, whose answer comes in the moment between the last write and the end.
struct LateAnswer {
    request: Option<BytesMut>,
    reply: mpsc::UnboundedReceiver<Reply>,
    kept: Option<Reply>,
    written_bytes: usize,
    /// Told at the shutdown how many bytes were written before it.
    shut: mpsc::UnboundedSender<usize>,
}

impl AsyncRead for LateAnswer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(request) = self.request.take() {
            buf.put_slice(&request);
            return Poll::Ready(Ok(()));
        }
        if let Some(reply) = self.kept.take() {
            reply.send(Response::success());
        } else if let Ok(reply) = self.reply.try_recv() {
            reply.connection().enter(Phase::Draining);
            self.kept = Some(reply);
        }
        Poll::Pending
    }
}

impl AsyncWrite for LateAnswer {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.written_bytes += bytes.len();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shut.send(self.written_bytes).unwrap_or_default();
        Poll::Ready(Ok(()))
    }
}

impl Stream for LateAnswer {}

/// Leaves the answer to the test.
struct Keep(mpsc::UnboundedSender<Reply>);

impl Handler for Keep {
    fn handle(&self, _: &Arc<Connection>, _: Command, reply: Reply) {
        self.0.send(reply).expect("the stream lives");
    }
}

#[tokio::test]
async fn the_last_answer_leaves_before_the_end_although_another_thread_gives_it_after_the_last_write() {
    let (keep, reply) = mpsc::unbounded_channel();
    let (shut, mut written) = mpsc::unbounded_channel();
    let request = Some(frame(&Command::bare_request(ECHO)));
    let stream = LateAnswer { request, reply, kept: None, written_bytes: 0, shut };
    serve_by(Arc::new(Keep(keep)), stream, &config());
    let written_bytes =
        tokio::time::timeout(PATIENCE, written.recv()).await.expect("is shut").expect("is told");
    assert!(written_bytes > 0, "the answer is lost");
}

#[tokio::test]
async fn a_thread_that_writes_for_the_task_leaves_it_asleep_only_where_nothing_is_left_to_do() {
    let (near, _far) = duplex(1000);
    let (connection, service) =
        (connection(&config()), Service { handler: Arc::new(NoHandler), check: None });
    let mut driver = Driver::new(near, connection, service, ());
    assert!(!driver.write_for_task(Waker::noop()), "the task begins by itself");
    assert!(Pin::new(&mut driver).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(driver.write_for_task(Waker::noop()));
    let mut answers = BytesMut::new();
    for _ in 0..=MAX_FRAMES {
        let answer = Command { serialize: SerializeType::Binary, ..Response::success().command };
        answer.encode_head(0, &mut answers).expect("a frame");
    }
    let is_done = driver.read_for_task(|bytes| {
        bytes[..answers.len()].copy_from_slice(&answers);
        Ok(answers.len())
    });
    assert!(!is_done, "one frame more than a turn takes");
    assert!(!driver.write_for_task(Waker::noop()), "one frame more than a turn takes");
    assert!(Pin::new(&mut driver).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(driver.write_for_task(Waker::noop()));
}

#[tokio::test]
async fn a_connection_ends_with_its_task_while_a_thread_helps_it() {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("binds");
    let addr = listener.local_addr().expect("an address");
    let stream = TcpStream::connect(addr).await.expect("connects");
    let (connection, service) =
        (connection(&config()), Service { handler: Arc::new(NoHandler), check: None });
    let driver = |stream| Driver::new(stream, Arc::clone(&connection), service, ());
    let driver = SharedDriver::new(stream, driver).expect("a descriptor");
    let helper = connection.outbox().helper().and_then(Weak::upgrade).expect("the task lives");
    let call = connection.try_start_call(Command::bare_request(ECHO), PATIENCE).expect("queued");
    drop(driver);
    assert!(!connection.is_open());
    assert!(matches!(call.await, Err(CallError::Closed { queued: true, .. })));
    assert!(!helper.write(Waker::noop()), "nothing is left to help");
}

#[tokio::test]
async fn a_thread_that_waits_for_an_answer_is_told_when_the_task_has_read_it() {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("binds");
    let addr = listener.local_addr().expect("an address");
    let stream = TcpStream::connect(addr).await.expect("connects");
    let (mut peer, _) = listener.accept().await.expect("a connection");
    let mut answer = BytesMut::new();
    Response::success().command.encode_head(0, &mut answer).expect("a frame");
    peer.write_all(&answer).await.expect("it is taken");
    stream.readable().await.expect("it has come");
    let (connection, service) =
        (connection(&config()), Service { handler: Arc::new(NoHandler), check: None });
    let driver = |stream| Driver::new(stream, Arc::clone(&connection), service, ());
    let mut task = SharedDriver::new(stream, driver).expect("descriptors");
    let helper = connection.outbox().helper().and_then(Weak::upgrade).expect("the task lives");
    let call = connection.try_start_call(Command::bare_request(ECHO), PATIENCE).expect("queued");
    let mut looks = 0;
    helper.read(&mut || {
        looks += 1;
        // The task reads between the thread's first look and its wait: nothing comes from the socket any more.
        if looks == 1 {
            assert!(Pin::new(&mut task).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        looks == 2
    });
    assert_eq!(looks, 2, "nobody told it");
    call.await.expect("the answer");
}

//! The client against servers made of bytes, and against the server of this crate.
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use rocketpy_protocol::frame::decode_frame;
use rocketpy_protocol::{Command, SerializeType, code};
use rocketpy_remoting::{CallError, Client, ClientConfig, Response, ServerConfig};
use tokio::net::TcpListener;

use crate::support::*;

const SHORT: Duration = Duration::from_millis(100);

fn echo_request(body: &'static [u8]) -> Command {
    Command::bare_request(ECHO).with_body(Bytes::from_static(body))
}

fn client() -> Client {
    Client::new(ClientConfig::default())
}

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind(LOOPBACK).await.expect("binds");
    let addr = listener.local_addr().expect("an address").to_string();
    (listener, addr)
}

/// An address where nothing listens. No other test uses its host, so the port stays free.
async fn free_addr() -> SocketAddr {
    TcpListener::bind("127.0.7.6:0").await.expect("binds").local_addr().expect("an address")
}

#[tokio::test]
async fn a_call_returns_the_response_whatever_its_code() {
    let server = echo_server();
    let client = client();
    let addr = server.local_addr().to_string();
    let answer = client.call(&addr, echo_request(b"hello"), PATIENCE).await.expect("an answer");
    assert_eq!((answer.code, &answer.body[..]), (0, &b"hello"[..]));
    let refused = client.call(&addr, Command::bare_request(36), PATIENCE).await.expect("an answer");
    assert_eq!(refused.code, code::response::REQUEST_CODE_NOT_SUPPORTED);
    assert_eq!(client.connections().len(), 1);
}

#[tokio::test]
async fn each_call_gets_its_own_answer_although_they_come_in_reverse() {
    let (keep, mut kept) = keeping();
    let server = serve(ServerConfig::new(LOOPBACK), keep);
    let client = client();
    let addr = server.local_addr().to_string();
    let mut calls = Vec::new();
    for index in 0..200_u8 {
        let request = Command::bare_request(ECHO).with_body(vec![index; usize::from(index) * 40]);
        calls.push(client.start_call(&addr, request, PATIENCE).await.expect("queued"));
    }
    let mut replies = Vec::new();
    for _ in 0..200 {
        replies.push(soon(kept.recv()).await.expect("a request"));
    }
    for (request, reply) in replies.into_iter().rev() {
        reply.send(Response::success().with_body(request.body));
    }
    for (index, call) in (0_u8..).zip(calls) {
        let answer = call.await.expect("an answer");
        assert!(answer.body == vec![index; usize::from(index) * 40]);
    }
}

#[tokio::test]
async fn a_late_answer_is_a_timeout_that_harms_no_other_call() {
    let (listener, addr) = listener().await;
    let client = client();
    let serving = tokio::spawn(async move {
        let mut server = RawPeer::accept(&listener).await;
        let late = server.receive().await.expect("a request").opaque();
        let next = server.receive().await.expect("a request").opaque();
        server
            .send(
                &[response(0, late, b"late"), response(0, next, b"in time"), response(0, 9999, b"?")]
                    .concat(),
            )
            .await;
        server
    });
    let started = Instant::now();
    let error = client.call(&addr, echo_request(b"1"), SHORT).await.unwrap_err();
    assert!(started.elapsed() >= SHORT && started.elapsed() < PATIENCE / 2, "{:?}", started.elapsed());
    assert_eq!(error, CallError::Timeout { addr: addr.clone(), code: ECHO, timeout_ms: 100 });
    assert!(error.retryable() && error.may_have_been_applied());
    let answer = client.call(&addr, echo_request(b"2"), PATIENCE).await.expect("an answer");
    assert_eq!(&answer.body[..], b"in time");
    serving.await.expect("served");
}

#[tokio::test]
async fn each_call_ends_at_its_own_timeout() {
    let (listener, addr) = listener().await;
    let client = client();
    let long =
        client.start_call(&addr, echo_request(b"long"), Duration::from_secs(3600)).await.expect("queued");
    let short = client.start_call(&addr, echo_request(b"short"), SHORT).await.expect("queued");
    let error = soon(short).await.unwrap_err();
    assert!(matches!(error, CallError::Timeout { timeout_ms: 100, .. }), "{error}");
    let mut server = RawPeer::accept(&listener).await;
    let opaque = server.receive().await.expect("a request").opaque();
    server.send(&response(0, opaque, b"at last")).await;
    assert_eq!(&soon(long).await.expect("an answer").body[..], b"at last");
}

#[tokio::test]
async fn a_server_that_takes_no_bytes_is_a_timeout_too() {
    let (_listener, addr) = listener().await;
    let client = client();
    let mut calls = Vec::new();
    for _ in 0..20 {
        let request = Command::bare_request(ECHO).with_body(bytes(1024 * 1024, 0));
        calls.push(client.start_call(&addr, request, Duration::from_secs(3600)).await.expect("queued"));
    }
    let error = soon(client.call(&addr, echo_request(b"late"), SHORT)).await.unwrap_err();
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
}

#[tokio::test]
async fn after_a_timeout_in_silence_calls_take_a_new_connection_and_those_under_way_keep_theirs() {
    let (listener, addr) = listener().await;
    let client = client();
    let hour = Duration::from_secs(3600);
    let under_way = client.start_call(&addr, echo_request(b"under way"), hour).await.expect("queued");
    let mut silent = RawPeer::accept(&listener).await;
    let opaque = silent.receive().await.expect("a request").opaque();
    let error = soon(client.call(&addr, echo_request(b"lost"), Duration::from_secs(1))).await.unwrap_err();
    assert!(matches!(error, CallError::Timeout { timeout_ms: 1000, .. }), "{error}");
    let next = client.start_call(&addr, echo_request(b"next"), hour).await.expect("queued");
    let mut second = soon(RawPeer::accept(&listener)).await;
    let next_opaque = second.receive().await.expect("a request").opaque();
    second.send(&response(0, next_opaque, b"heard")).await;
    assert_eq!(&soon(next).await.expect("an answer").body[..], b"heard");
    silent.send(&response(0, opaque, b"at last")).await;
    assert_eq!(&soon(under_way).await.expect("an answer").body[..], b"at last");
    assert_eq!(silent.receive().await.expect("a request").body, b"lost");
    silent.assert_closed().await;
    drop(second);
}

#[tokio::test]
async fn nobody_listening_is_a_connect_error_that_was_not_applied() {
    let addr = free_addr().await.to_string();
    let error = client().call(&addr, echo_request(b""), PATIENCE).await.unwrap_err();
    let CallError::Connect { kind, .. } = &error else { panic!("{error}") };
    assert_eq!(*kind, io::ErrorKind::ConnectionRefused);
    assert!(error.retryable() && !error.may_have_been_applied());
    assert!(error.to_string().contains(&addr), "{error}");
}

#[tokio::test]
async fn an_address_that_is_none_is_a_connect_error() {
    for addr in ["", "no port", "127.0.0.1:99999", "host.invalid:1"] {
        let error = soon(client().call(addr, echo_request(b""), PATIENCE)).await.unwrap_err();
        assert!(
            matches!(error, CallError::Connect { .. } | CallError::ConnectTimeout { .. }),
            "{addr}: {error}"
        );
    }
}

#[tokio::test]
async fn a_connection_that_ends_fails_its_calls_and_the_next_call_opens_another() {
    let (listener, addr) = listener().await;
    let client = client();
    let serving = tokio::spawn(async move {
        let mut first = RawPeer::accept(&listener).await;
        first.receive().await.expect("a request");
        drop(first);
        drop(RawPeer::accept(&listener).await); // the client looks whether the server speaks TLS
        let mut second = RawPeer::accept(&listener).await;
        let opaque = second.receive().await.expect("a request").opaque();
        second.send(&response(0, opaque, b"second")).await;
        second
    });
    let error = client.call(&addr, echo_request(b""), PATIENCE).await.unwrap_err();
    assert_eq!(error, CallError::Closed { addr: addr.clone(), code: ECHO, queued: true });
    assert!(error.retryable() && error.may_have_been_applied());
    let answer = client.call(&addr, echo_request(b""), PATIENCE).await.expect("an answer");
    assert_eq!(&answer.body[..], b"second");
    serving.await.expect("served");
}

#[tokio::test]
async fn garbage_from_a_server_fails_the_calls_of_that_connection() {
    let (listener, addr) = listener().await;
    let client = client();
    let serving = tokio::spawn(async move {
        let mut server = RawPeer::accept(&listener).await;
        server.receive().await.expect("a request");
        server.send(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        server.assert_closed().await;
    });
    let error = client.call(&addr, echo_request(b""), PATIENCE).await.unwrap_err();
    assert!(matches!(error, CallError::Closed { queued: true, .. }), "{error}");
    serving.await.expect("closed");
}

#[tokio::test]
async fn outstanding_calls_are_bounded_and_the_next_one_waits_for_room() {
    let (listener, addr) = listener().await;
    let client = Client::new(ClientConfig { max_outstanding_calls: 2, ..ClientConfig::default() });
    let first = client.start_call(&addr, echo_request(b"1"), PATIENCE).await.expect("queued");
    let _second = client.start_call(&addr, echo_request(b"2"), PATIENCE).await.expect("queued");
    let error = client.start_call(&addr, echo_request(b"3"), SHORT).await.unwrap_err();
    assert_eq!(error, CallError::WindowFull { addr: addr.clone(), code: ECHO, timeout_ms: 100 });
    assert!(error.retryable() && !error.may_have_been_applied());
    let connection = client.connection(&addr, PATIENCE).await.expect("open");
    assert!(matches!(
        connection.try_start_call(echo_request(b"4"), PATIENCE),
        Err(CallError::WindowFull { .. })
    ));
    let mut server = RawPeer::accept(&listener).await;
    let opaque = server.receive().await.expect("a request").opaque();
    let waiting = tokio::spawn(async move { client.start_call(&addr, echo_request(b"5"), PATIENCE).await });
    server.send(&response(0, opaque, b"")).await;
    first.await.expect("an answer");
    let _fifth = soon(waiting).await.expect("runs").expect("queued");
    assert_eq!(server.receive().await.expect("a request").body, b"2");
    assert_eq!(server.receive().await.expect("a request").body, b"5");
}

#[tokio::test]
async fn outstanding_bytes_are_bounded_and_one_large_request_still_goes() {
    let (_listener, addr) = listener().await;
    let config = ClientConfig { max_outstanding_bytes: 1024 * 1024, ..ClientConfig::default() };
    let client = Client::new(config);
    let large = || Command::bare_request(ECHO).with_body(bytes(2 * 1024 * 1024, 0));
    let _first = client.start_call(&addr, large(), PATIENCE).await.expect("queued");
    let error = client.start_call(&addr, echo_request(b"small"), SHORT).await.unwrap_err();
    assert!(matches!(error, CallError::WindowFull { .. }), "{error}");
}

#[tokio::test]
async fn answers_are_read_while_many_requests_wait() {
    const REQUEST_BYTES: usize = 2 << 20;
    const ANSWER_BYTES: usize = 15 << 20;
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(64 * 1024).expect("sets");
    socket.bind(LOOPBACK).expect("binds");
    let listener = socket.listen(1).expect("listens");
    let addr = listener.local_addr().expect("an address").to_string();
    let client = Client::new(ClientConfig { max_queued_bytes: 1024, ..ClientConfig::default() });
    let mut calls = Vec::new();
    for _ in 0..12 {
        let request = Command::bare_request(ECHO).with_body(vec![1; REQUEST_BYTES]);
        calls.push(client.start_call(&addr, request, PATIENCE).await.expect("queued"));
    }
    // The server reads no more requests until its answers are read, and the answers are more than the sockets hold.
    let serving = tokio::spawn(async move {
        let mut server = RawPeer::accept(&listener).await;
        for _ in 0..4 {
            let mut opaques = Vec::new();
            for _ in 0..3 {
                opaques.push(server.receive().await.expect("a request").opaque());
            }
            for opaque in opaques {
                server.send(&response(0, opaque, &vec![2; ANSWER_BYTES])).await;
            }
        }
    });
    for call in calls {
        assert_eq!(call.await.expect("an answer").body.len(), ANSWER_BYTES);
    }
    serving.await.expect("served");
}

#[tokio::test]
async fn a_request_beyond_the_frame_limit_is_refused_here() {
    let server = echo_server();
    let addr = server.local_addr().to_string();
    let client = client();
    let request = Command::bare_request(ECHO).with_body(bytes(16 * 1024 * 1024, 0));
    let error = client.call(&addr, request, PATIENCE).await.unwrap_err();
    assert!(matches!(error, CallError::FrameTooLarge { max_bytes: 16_777_216, .. }), "{error}");
    assert!(!error.retryable() && !error.may_have_been_applied());
    client.call(&addr, echo_request(b"the connection goes on"), PATIENCE).await.expect("an answer");
}

#[tokio::test]
async fn a_request_refused_by_go_away_is_sent_once_more_on_a_new_connection() {
    let (listener, addr) = listener().await;
    let client = client();
    let serving = tokio::spawn(async move {
        let mut first = RawPeer::accept(&listener).await;
        let refused = first.receive().await.expect("a request");
        first.send(&response(1500, refused.opaque(), b"")).await;
        let mut second = RawPeer::accept(&listener).await;
        let taken = second.receive().await.expect("a request");
        assert_eq!(taken.body, refused.body);
        second.send(&response(0, taken.opaque(), b"taken")).await;
        // The first connection ends when its last call is answered.
        first.assert_closed().await;
        let late = second.receive().await.expect("a request");
        second.send(&response(1500, late.opaque(), b"")).await;
        let mut third = RawPeer::accept(&listener).await;
        let late = third.receive().await.expect("a request");
        third.send(&response(1500, late.opaque(), b"")).await;
    });
    let answer = client.call(&addr, echo_request(b"once"), PATIENCE).await.expect("an answer");
    assert_eq!(&answer.body[..], b"taken");
    let error = client.call(&addr, echo_request(b"twice"), PATIENCE).await.unwrap_err();
    assert_eq!(error, CallError::GoAway { addr, code: ECHO });
    assert!(error.retryable() && !error.may_have_been_applied());
    serving.await.expect("served");
}

#[tokio::test]
async fn the_chosen_serialization_is_kept() {
    let (listener, addr) = listener().await;
    let client = Client::new(ClientConfig { serialize: SerializeType::Binary, ..ClientConfig::default() });
    let _call = client.start_call(&addr, echo_request(b"binary"), PATIENCE).await.expect("queued");
    let received = RawPeer::accept(&listener).await.receive().await.expect("a request");
    assert_eq!((received.serialize, received.body), (1, b"binary".to_vec()));
    let server = echo_server();
    let answer = client.call(&server.local_addr().to_string(), echo_request(b"both"), PATIENCE).await;
    assert_eq!(answer.expect("an answer").serialize, SerializeType::Binary);
}

#[tokio::test]
async fn a_one_way_request_says_so() {
    let (listener, addr) = listener().await;
    client().call_oneway(&addr, echo_request(b"no answer"), PATIENCE).await.expect("queued");
    let received = RawPeer::accept(&listener).await.receive().await.expect("a request");
    assert_eq!((&received.header["flag"], received.body), (&serde_json::json!(2), b"no answer".to_vec()));
}

#[tokio::test]
async fn calls_that_come_together_open_one_connection() {
    let (handler, mut events) = handler_with_events(echo);
    let server = serve(ServerConfig::new(LOOPBACK), handler);
    let addr: Arc<str> = server.local_addr().to_string().into();
    let client = client();
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let (client, addr) = (client.clone(), Arc::clone(&addr));
            tokio::spawn(async move { client.call(&addr, echo_request(b""), PATIENCE).await })
        })
        .collect();
    for call in calls {
        call.await.expect("runs").expect("an answer");
    }
    assert!(matches!(events.try_recv(), Ok(Event::Connected(_))));
    assert!(events.try_recv().is_err(), "a second connection was opened");
}

#[tokio::test]
async fn a_closed_client_fails_its_calls_and_takes_no_more() {
    let (listener, addr) = listener().await;
    let client = client();
    let call = client.start_call(&addr, echo_request(b""), PATIENCE).await.expect("queued");
    let mut server = RawPeer::accept(&listener).await;
    server.receive().await.expect("a request");
    client.close();
    server.assert_closed().await;
    drop(server);
    assert!(matches!(soon(call).await, Err(CallError::Closed { queued: true, .. })));
    let error = client.call(&addr, echo_request(b""), PATIENCE).await.unwrap_err();
    assert_eq!(error, CallError::ClientClosed);
}

#[tokio::test]
async fn a_close_ends_a_retired_connection_too_although_a_call_is_held_there() {
    const LONG: Duration = Duration::from_secs(3600);
    let (listener, addr) = listener().await;
    let client = client();
    let held = client.start_call(&addr, echo_request(b"held"), LONG).await.expect("queued");
    let mut first = RawPeer::accept(&listener).await;
    first.receive().await.expect("a request");
    let refused = client.start_call(&addr, echo_request(b"refused"), PATIENCE).await.expect("queued");
    let request = first.receive().await.expect("a request");
    first.send(&response(1500, request.opaque(), b"")).await;
    soon(refused).await.expect_err("the server says GO_AWAY");
    client.call_oneway(&addr, echo_request(b"elsewhere"), PATIENCE).await.expect("queued");
    let mut second = RawPeer::accept(&listener).await;
    second.receive().await.expect("a request");
    soon(client.shutdown()).await;
    assert!(matches!(soon(held).await, Err(CallError::Closed { queued: true, .. })));
    first.assert_closed().await;
    second.assert_closed().await;
}

#[tokio::test]
async fn a_dropped_client_closes_its_connections() {
    let (listener, addr) = listener().await;
    let client = client();
    client.call_oneway(&addr, echo_request(b""), PATIENCE).await.expect("queued");
    let mut server = RawPeer::accept(&listener).await;
    server.receive().await.expect("a request");
    drop(client.clone());
    drop(client);
    server.assert_closed().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_the_next_call_opens_another() {
    let (handler, mut events) = handler_with_events(echo);
    let server = serve(ServerConfig::new(LOOPBACK), handler);
    let addr = server.local_addr().to_string();
    let client = Client::new(ClientConfig { idle_timeout: SHORT, ..ClientConfig::default() });
    client.call(&addr, echo_request(b""), PATIENCE).await.expect("an answer");
    let Some(Event::Connected(first)) = soon(events.recv()).await else { panic!("not connected") };
    assert_eq!(soon(events.recv()).await, Some(Event::Disconnected(first)));
    client.call(&addr, echo_request(b""), PATIENCE).await.expect("an answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_restart_under_load_loses_no_call_without_an_error() {
    const CALLS: usize = 4000;
    let server = serve(ServerConfig::new(free_addr().await), handler(echo));
    let addr = server.local_addr();
    let client = client();
    let (answered, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let (client, addr) = (client.clone(), addr.to_string());
            let (answered, failed) = (Arc::clone(&answered), Arc::clone(&failed));
            tokio::spawn(async move {
                for _ in 0..CALLS / 8 {
                    match client.call(&addr, echo_request(b"load"), PATIENCE).await {
                        Ok(_) => answered.fetch_add(1, Ordering::Relaxed),
                        Err(error) => {
                            assert!(error.retryable(), "{error}");
                            failed.fetch_add(1, Ordering::Relaxed)
                        }
                    };
                }
            })
        })
        .collect();
    while answered.load(Ordering::Relaxed) < CALLS / 4 {
        tokio::task::yield_now().await;
    }
    server.shutdown(PATIENCE).await;
    let server = serve(ServerConfig::new(addr), handler(echo));
    for worker in workers {
        soon(worker).await.expect("ends");
    }
    assert_eq!(answered.load(Ordering::Relaxed) + failed.load(Ordering::Relaxed), CALLS);
    client.call(&server.local_addr().to_string(), echo_request(b""), PATIENCE).await.expect("an answer");
}

/// Echoes every frame, in a thread of its own.
fn echo_thread() -> (String, std::thread::JoinHandle<()>) {
    let listener = std::net::TcpListener::bind(LOOPBACK).expect("binds");
    let addr = listener.local_addr().expect("an address").to_string();
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        while echo_one(&mut stream) {}
    });
    (addr, echo)
}

/// Echoes one frame; false when the peer is gone.
fn echo_one(stream: &mut std::net::TcpStream) -> bool {
    let mut length = [0; 4];
    if stream.read_exact(&mut length).is_err() {
        return false;
    }
    let mut rest = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut rest).expect("a whole frame");
    let request = decode_frame(&mut BytesMut::from(&[&length[..], &rest].concat()[..]), usize::MAX);
    let request = Command::decode(request.expect("a frame").expect("whole")).expect("a command");
    stream.write_all(&response(0, i64::from(request.opaque), &request.body)).expect("it takes answers");
    true
}

#[test]
fn a_thread_that_blocks_writes_its_request_and_reads_the_answer_while_nobody_drives_the_runtime() {
    let (addr, echo) = echo_thread();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client = client();
    let connection = runtime.block_on(async {
        // The first call opens the connection, and leaves its task asleep.
        client.call(&addr, echo_request(b"first"), PATIENCE).await.expect("an answer");
        client.connection(&addr, PATIENCE).await.expect("it is open")
    });
    let _here = rocketpy_remoting::read_here();
    let deadline = Instant::now() + PATIENCE;
    for _ in 0..100 {
        let mut call = std::pin::pin!(connection.call(echo_request(b"here"), PATIENCE));
        let answer = loop {
            // The peer may take longer than a poll waits.
            let polled = runtime
                .handle()
                .block_on(std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx))));
            match polled {
                std::task::Poll::Ready(answer) => break answer.expect("an answer"),
                std::task::Poll::Pending => assert!(Instant::now() < deadline, "nobody reads or writes"),
            }
        };
        assert_eq!(&answer.body[..], b"here");
    }
    drop((connection, client, runtime));
    echo.join().expect("it ends with the connection");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_that_read_and_write_for_the_task_mix_up_no_calls() {
    let server = echo_server();
    let client = client();
    let addr = server.local_addr().to_string();
    let handle = tokio::runtime::Handle::current();
    let threads: Vec<_> = (0..8_u8)
        .map(|thread| {
            let (client, addr, handle) = (client.clone(), addr.clone(), handle.clone());
            std::thread::spawn(move || {
                let _here = rocketpy_remoting::read_here();
                for number in 0..200 {
                    // Small ones, and such as no single read brings.
                    let body = vec![thread; if number % 10 == 0 { 100_000 } else { number }];
                    let request = Command::bare_request(ECHO).with_body(body.clone());
                    let answer = handle.block_on(client.call(&addr, request, PATIENCE)).expect("an answer");
                    assert_eq!(answer.body, body);
                }
            })
        })
        .collect();
    let joined = tokio::task::spawn_blocking(move || threads.into_iter().try_for_each(|one| one.join()));
    soon(joined).await.expect("no panic here").expect("no panic there");
    assert_eq!(client.connections().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_thread_that_reads_for_the_task_is_told_of_the_end_of_the_connection() {
    let (listener, addr) = listener().await;
    let (client, handle) = (client(), tokio::runtime::Handle::current());
    let calling = std::thread::spawn(move || {
        let _here = rocketpy_remoting::read_here();
        handle.block_on(client.call(&addr, echo_request(b"hello"), PATIENCE))
    });
    let (stream, _) = soon(listener.accept()).await.expect("a connection");
    soon(stream.readable()).await.expect("the request");
    drop((stream, listener));
    let joined = tokio::task::spawn_blocking(move || calling.join());
    let answer = soon(joined).await.expect("no panic here").expect("no panic there");
    assert!(matches!(answer, Err(CallError::Closed { .. } | CallError::Connect { .. })), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_that_read_for_the_task_hear_of_every_end_of_their_connection() {
    let listener = std::net::TcpListener::bind(LOOPBACK).expect("binds");
    let addr = listener.local_addr().expect("an address").to_string();
    // Each connection ends after some answers, with requests unread, so that the kernel resets it.
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.expect("a connection");
            (0..number % 40).any(|_| !echo_one(&mut stream));
        }
    });
    let (client, handle) = (client(), tokio::runtime::Handle::current());
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (client, addr, handle) = (client.clone(), addr.clone(), handle.clone());
            std::thread::spawn(move || {
                let _here = rocketpy_remoting::read_here();
                for _ in 0..200 {
                    match handle.block_on(client.call(&addr, echo_request(b"hello"), PATIENCE)) {
                        Ok(answer) => assert_eq!(&answer.body[..], b"hello"),
                        Err(CallError::Closed { .. } | CallError::Connect { .. }) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                }
            })
        })
        .collect();
    let joined = tokio::task::spawn_blocking(move || threads.into_iter().try_for_each(|one| one.join()));
    joined.await.expect("no panic here").expect("no panic there");
}

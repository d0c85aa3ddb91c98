//! How connections end: idle, half-closed, closed here, with the server.
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketpy_protocol::{Command, code};
use rocketpy_remoting::{Client, ClientConfig, Response, ServerConfig};
use tokio::io::AsyncWriteExt;

use crate::support::*;

#[tokio::test]
async fn an_idle_connection_is_closed_and_one_that_talks_is_not() {
    const IDLE: Duration = Duration::from_secs(1);
    let server = serve(ServerConfig { idle_timeout: IDLE, ..ServerConfig::new(LOOPBACK) }, handler(echo));
    let started = Instant::now();
    let mut idle = RawPeer::connect(server.local_addr()).await;
    let mut talking = RawPeer::connect(server.local_addr()).await;
    let mut ticks = tokio::time::interval(IDLE / 10);
    loop {
        talking.assert_serves().await;
        tokio::select! {
            () = idle.assert_closed() => break,
            _ = ticks.tick() => {}
        }
    }
    assert!(started.elapsed() >= IDLE, "closed after {:?}", started.elapsed());
    talking.assert_serves().await;
}

#[tokio::test]
async fn a_peer_that_closes_its_half_gets_its_answers_first() {
    let (keep, mut kept) = keeping();
    let server = serve(ServerConfig::new(LOOPBACK), keep);
    let mut peer = RawPeer::connect(server.local_addr()).await;
    peer.send(&[request(ECHO, 1, b"a"), request(ECHO, 2, b"b")].concat()).await;
    peer.stream.shutdown().await.expect("half-closes");
    for _ in 0..2 {
        let (request, reply) = soon(kept.recv()).await.expect("a request");
        reply.send(Response::success().with_body(request.body));
    }
    assert_eq!(peer.receive().await.expect("an answer").body, b"a");
    assert_eq!(peer.receive().await.expect("an answer").body, b"b");
    peer.assert_closed().await;
}

#[tokio::test]
async fn a_peer_that_leaves_is_noticed_although_its_request_is_held() {
    let (sender, mut held) = tokio::sync::mpsc::unbounded_channel();
    let (handler, mut events) = handler_with_events(move |_, _, reply| sender.send(reply).expect("kept"));
    let server = serve(ServerConfig::new(LOOPBACK), handler);
    let mut peer = RawPeer::connect(server.local_addr()).await;
    peer.send(&request(11, 1, b"")).await;
    let reply = soon(held.recv()).await.expect("held");
    drop(peer);
    let Some(Event::Connected(id)) = soon(events.recv()).await else { panic!("not connected") };
    assert_eq!(soon(events.recv()).await, Some(Event::Disconnected(id)));
    assert!(!reply.connection().is_open());
    reply.send(Response::success());
}

#[tokio::test]
async fn closing_a_connection_writes_what_is_queued() {
    let server = serve(
        ServerConfig::new(LOOPBACK),
        handler(|connection, _, reply| {
            reply.send(Response::success().with_body(bytes(3 * 1024 * 1024, 1)));
            connection.close();
        }),
    );
    let mut peer = RawPeer::connect(server.local_addr()).await;
    peer.send(&[request(ECHO, 1, b""), request(ECHO, 2, b"never read")].concat()).await;
    assert!(peer.receive().await.expect("an answer").body == bytes(3 * 1024 * 1024, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_answers_what_was_taken_and_refuses_what_comes() {
    let (keep, mut kept) = keeping();
    let server = Arc::new(serve(ServerConfig::new(LOOPBACK), keep));
    let addr = server.local_addr();
    let mut peer = RawPeer::connect(addr).await;
    let mut old = RawPeer::connect(addr).await;
    peer.send(&request(ECHO, 1, b"taken")).await;
    let (taken, reply) = soon(kept.recv()).await.expect("taken");
    old.send(&request_with(ECHO, 1, 0, 317, b"taken")).await;
    let (_, old_reply) = soon(kept.recv()).await.expect("taken");
    let stopping = tokio::spawn({
        let server = Arc::clone(&server);
        async move { server.shutdown(PATIENCE).await }
    });
    while tokio::net::TcpStream::connect(addr).await.is_ok() {
        tokio::task::yield_now().await;
    }
    while server.connections().iter().any(|connection| connection.is_open()) {
        tokio::task::yield_now().await;
    }
    peer.send(&request(ECHO, 2, b"late")).await;
    let refusal = peer.receive().await.expect("an answer");
    assert_eq!((refusal.opaque(), refusal.code()), (2, i64::from(code::response::GO_AWAY)));
    // A peer of an older version does not know that code: it gets its answer and the end.
    old.send(&request_with(ECHO, 2, 0, 317, b"late")).await;
    old_reply.send(Response::success());
    assert_eq!(old.receive().await.expect("an answer").opaque(), 1);
    reply.send(Response::success().with_body(taken.body));
    assert_eq!(peer.receive().await.expect("an answer").body, b"taken");
    peer.assert_closed().await;
    old.assert_closed().await;
    soon(stopping).await.expect("stops");
    assert!(kept.try_recv().is_err(), "a late request was handled");
}

#[tokio::test]
async fn a_shutdown_ends_at_its_deadline_although_a_request_is_held() {
    let (keep, mut kept) = keeping();
    let server = serve(ServerConfig::new(LOOPBACK), keep);
    let mut peer = RawPeer::connect(server.local_addr()).await;
    peer.send(&request(11, 1, b"")).await;
    let (_, reply) = soon(kept.recv()).await.expect("held");
    let started = Instant::now();
    soon(server.shutdown(Duration::from_millis(50))).await;
    assert!(started.elapsed() >= Duration::from_millis(50));
    assert!(server.connections().is_empty());
    peer.assert_closed().await;
    reply.send(Response::success());
}

#[tokio::test]
async fn an_idle_server_stops_at_once_and_its_address_is_free() {
    let server = echo_server();
    let mut peer = RawPeer::connect(server.local_addr()).await;
    peer.assert_serves().await;
    drop(peer);
    soon(server.shutdown(PATIENCE)).await;
    let again = serve(ServerConfig::new(server.local_addr()), handler(echo));
    RawPeer::connect(again.local_addr()).await.assert_serves().await;
}

#[tokio::test]
async fn a_dropped_server_ends_its_connections() {
    let server = echo_server();
    let mut peer = RawPeer::connect(server.local_addr()).await;
    peer.assert_serves().await;
    drop(server);
    peer.assert_closed().await;
}

#[tokio::test]
async fn a_client_that_shuts_down_waits_for_the_end_of_its_connections() {
    let server = echo_server();
    let client = Client::new(ClientConfig::default());
    let addr = server.local_addr().to_string();
    client.call(&addr, Command::bare_request(ECHO), PATIENCE).await.expect("an answer");
    let connection = client.connections().pop().expect("a connection");
    let weak = Arc::downgrade(&connection);
    drop(connection);
    soon(client.shutdown()).await;
    assert!(client.connections().iter().all(|connection| !connection.is_open()));
    drop(client);
    assert_eq!(weak.strong_count(), 0, "a task still holds the connection");
}

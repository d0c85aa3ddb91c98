//! Bounds, and what happens at them: no answer is lost, and memory stays bounded.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rocketpy_remoting::{Response, ServerConfig};
use tokio::io::AsyncWriteExt;

use crate::support::*;

const ANSWER_BYTES: usize = 64 * 1024;
const MAX_QUEUED_BYTES: usize = 256 * 1024;

fn slow_reader_config() -> ServerConfig {
    ServerConfig { max_queued_bytes: MAX_QUEUED_BYTES, ..ServerConfig::new(LOOPBACK) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_is_no_longer_read_from_and_loses_nothing() {
    const REQUESTS: usize = 2000;
    let (handled, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, most) = (Arc::clone(&handled), Arc::clone(&peak));
    let (progress, mut progressed) = tokio::sync::mpsc::unbounded_channel();
    let server = serve(
        slow_reader_config(),
        handler(move |connection, request, reply| {
            count.fetch_add(1, Ordering::Relaxed);
            reply.send(Response::success().with_body(bytes(ANSWER_BYTES, request.body[0])));
            most.fetch_max(connection.queued_bytes(), Ordering::Relaxed);
            progress.send(connection.queued_bytes()).unwrap_or_default();
        }),
    );
    let peer = RawPeer::connect(server.local_addr()).await;
    let (reading, mut writing) = peer.stream.into_split();
    let sending = tokio::spawn(async move {
        for opaque in 0..REQUESTS {
            let body = [u8::try_from(opaque % 256).unwrap()];
            writing.write_all(&request(ECHO, i32::try_from(opaque).unwrap(), &body)).await.expect("writes");
        }
        writing
    });
    // Nothing is read yet: the server fills the socket, then its queue, then it stops reading.
    while soon(progressed.recv()).await.expect("progress") <= MAX_QUEUED_BYTES {}
    let writing = soon(sending).await.expect("all requests fit into the sockets");
    let mut peer = RawPeer { stream: reading.reunite(writing).expect("one socket") };
    assert!(handled.load(Ordering::Relaxed) < REQUESTS, "requests were taken without bound");
    for opaque in 0..REQUESTS {
        let answer = peer.receive().await.expect("an answer");
        assert_eq!(answer.opaque(), i64::try_from(opaque).unwrap());
        assert!(answer.body == bytes(ANSWER_BYTES, u8::try_from(opaque % 256).unwrap()));
    }
    assert!(peak.load(Ordering::Relaxed) <= MAX_QUEUED_BYTES + ANSWER_BYTES + 1024);
}

#[tokio::test]
async fn a_reader_that_stops_reading_is_closed() {
    let config = ServerConfig { stall_timeout: Duration::from_millis(100), ..slow_reader_config() };
    let (handler, mut events) =
        handler_with_events(|_, _, reply| reply.send(Response::success().with_body(bytes(ANSWER_BYTES, 0))));
    let server = serve(config, handler);
    let mut peer = RawPeer::connect(server.local_addr()).await;
    let Some(Event::Connected(id)) = soon(events.recv()).await else { panic!("not connected") };
    let frames: Vec<u8> = (0..2000).flat_map(|opaque| request(ECHO, opaque, b"")).collect();
    peer.send(&frames).await;
    assert_eq!(soon(events.recv()).await, Some(Event::Disconnected(id)));
    soon(server.shutdown(PATIENCE)).await;
    assert!(server.connections().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unanswered_requests_of_a_connection_are_bounded() {
    const MOST: usize = 4;
    const REQUESTS: usize = 500;
    let (sender, receiver) = std::sync::mpsc::channel();
    let (open, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, most) = (Arc::clone(&open), Arc::clone(&peak));
    let config = ServerConfig { max_unanswered: MOST, ..ServerConfig::new(LOOPBACK) };
    let server = serve(
        config,
        handler(move |_, _, reply| {
            most.fetch_max(count.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sender.send(reply).expect("answered elsewhere");
        }),
    );
    let answering = std::thread::spawn(move || {
        let mut kept = Vec::new();
        for index in 0..REQUESTS {
            kept.push(receiver.recv_timeout(PATIENCE).expect("a request"));
            // Answers are given in groups, as after a flush.
            if kept.len() == MOST || index + 1 == REQUESTS {
                for reply in kept.drain(..).rev() {
                    open.fetch_sub(1, Ordering::SeqCst);
                    reply.send(Response::success());
                }
            }
        }
    });
    let mut peer = RawPeer::connect(server.local_addr()).await;
    let frames: Vec<u8> =
        (0..REQUESTS).flat_map(|opaque| request(ECHO, i32::try_from(opaque).unwrap(), b"")).collect();
    peer.send(&frames).await;
    for _ in 0..REQUESTS {
        assert_eq!(peer.receive().await.expect("an answer").code(), 0);
    }
    answering.join().expect("answered all");
    assert_eq!(peak.load(Ordering::SeqCst), MOST);
}

#[tokio::test]
async fn one_way_requests_count_until_they_are_done() {
    let (keep, mut kept) = keeping();
    let server = serve(ServerConfig { max_unanswered: 1, ..ServerConfig::new(LOOPBACK) }, keep);
    let mut peer = RawPeer::connect(server.local_addr()).await;
    peer.send(&[request_with(1, 1, 2, 479, b""), request_with(2, 2, 2, 479, b"")].concat()).await;
    let (first, reply) = soon(kept.recv()).await.expect("the first");
    assert_eq!((first.code, reply.is_oneway()), (1, true));
    assert!(kept.try_recv().is_err());
    drop(reply);
    assert_eq!(soon(kept.recv()).await.expect("the second").0.code, 2);
}

#[tokio::test]
async fn a_connection_too_many_is_closed_until_one_leaves() {
    let (handler, mut events) = handler_with_events(echo);
    let server = serve(ServerConfig { max_connections: 2, ..ServerConfig::new(LOOPBACK) }, handler);
    let mut first = RawPeer::connect(server.local_addr()).await;
    first.assert_serves().await;
    let Some(Event::Connected(id)) = soon(events.recv()).await else { panic!("not connected") };
    let mut second = RawPeer::connect(server.local_addr()).await;
    second.assert_serves().await;
    RawPeer::connect(server.local_addr()).await.assert_closed().await;
    second.assert_serves().await;
    drop(first);
    while soon(events.recv()).await != Some(Event::Disconnected(id)) {}
    while !server.connections().iter().all(|connection| connection.is_open()) {
        tokio::task::yield_now().await;
    }
    RawPeer::connect(server.local_addr()).await.assert_serves().await;
}

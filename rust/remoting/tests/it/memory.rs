//! What peers make the server hold, by the figure of its budget: bounded, and others are served meanwhile.
use std::sync::Arc;

use bytes::Bytes;
use rocketpy_remoting::{Handler, MemoryBudget, Response, Server, ServerConfig};
use tokio::io::AsyncWriteExt;

use crate::support::*;

const MIB: usize = 1 << 20;
/// Half of it is for frames and answers.
const BUDGET_BYTES: usize = 32 * MIB;

fn serve_within(budget: &Arc<MemoryBudget>, handler: Arc<dyn Handler>) -> Server {
    serve(ServerConfig { memory: Arc::clone(budget), ..ServerConfig::new(LOOPBACK) }, handler)
}

/// Waits for a condition that other tasks bring about.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "it did not happen: {what}");
}

/// A frame that lacks its last byte.
fn partial_frame(size: usize) -> Vec<u8> {
    let mut frame = request(ECHO, 1, &vec![7; size]);
    frame.pop();
    frame
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partial_frames_stay_within_the_budget_and_another_client_is_served() {
    let budget = MemoryBudget::new(BUDGET_BYTES);
    let server = serve_within(&budget, handler(echo));
    let mut other = RawPeer::connect(server.local_addr()).await;
    let mut peers = Vec::new();
    for _ in 0..60 {
        let mut peer = RawPeer::connect(server.local_addr()).await;
        // The server may close the connection during this write.
        drop(soon(peer.stream.write_all(&partial_frame(MIB))).await);
        peers.push(peer);
        other.assert_serves().await;
    }
    assert!(budget.closed_connections() > 0, "60 MiB do not fit");
    until("the closed connections are gone", || budget.used_bytes() <= BUDGET_BYTES / 2).await;
    // Less than each of them holds: on a busy machine it may take as long.
    let mut large = RawPeer::connect(server.local_addr()).await;
    large.send(&request(ECHO, 2, &vec![1; MIB / 2])).await;
    assert_eq!(large.receive().await.expect("an answer").body.len(), MIB / 2);
    drop((peers, large, other));
    until("everything is given back", || budget.used_bytes() == 0).await;
}

#[tokio::test]
async fn the_length_of_a_frame_alone_takes_no_memory() {
    let budget = MemoryBudget::new(BUDGET_BYTES);
    let server = serve_within(&budget, handler(echo));
    let mut liars = Vec::new();
    for _ in 0..20 {
        let mut liar = RawPeer::connect(server.local_addr()).await;
        let partial = &partial_frame(15 * MIB)[..100];
        liar.send(&[request(ECHO, 1, b"read with what follows"), partial.to_vec()].concat()).await;
        liar.receive().await.expect("an answer");
        liars.push(liar);
    }
    assert_eq!(budget.used_bytes(), 0);
}

#[tokio::test]
async fn a_short_rest_does_not_keep_the_block_of_a_large_frame() {
    let budget = MemoryBudget::new(BUDGET_BYTES);
    let server = serve_within(&budget, handler(echo));
    let mut peer = RawPeer::connect(server.local_addr()).await;
    let bytes = [request(ECHO, 1, &vec![1; 4 * MIB]), partial_frame(100)].concat();
    let (mut reading, mut writing) = peer.stream.into_split();
    let sending = tokio::spawn(async move {
        writing.write_all(&bytes).await.expect("writes");
        writing
    });
    let mut answer = vec![0; 4 * MIB];
    soon(tokio::io::AsyncReadExt::read_exact(&mut reading, &mut answer)).await.expect("reads");
    peer = RawPeer { stream: reading.reunite(soon(sending).await.expect("sent")).expect("one socket") };
    until("the block is given up", || budget.used_bytes() < 64 * 1024).await;
    drop(peer);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_takes_stay_within_the_budget_and_another_client_is_served() {
    let budget = MemoryBudget::new(BUDGET_BYTES);
    let body = Bytes::from(vec![7; 6 * MIB]);
    let answering = handler(move |connection, request, reply| match request.code {
        ECHO => echo(connection, request, reply),
        _ => reply.send(Response::success().with_body(body.clone())),
    });
    let server = serve_within(&budget, answering);
    let mut other = RawPeer::connect(server.local_addr()).await;
    let mut peers = Vec::new();
    for _ in 0..12 {
        let mut peer = RawPeer::connect(server.local_addr()).await;
        peer.send(&[request(11, 1, b""), request(11, 2, b"")].concat()).await;
        peers.push(peer);
        other.assert_serves().await;
    }
    until("connections are closed", || budget.closed_connections() > 0).await;
    until("the closed connections are gone", || budget.used_bytes() <= BUDGET_BYTES / 2).await;
    // Less than each of them holds: on a busy machine it may take as long.
    other.send(&request(ECHO, 3, &vec![1; MIB])).await;
    assert_eq!(other.receive().await.expect("an answer").body.len(), MIB);
    drop((peers, other));
    until("everything is given back", || budget.used_bytes() == 0).await;
}

#[tokio::test]
async fn slices_of_mapped_files_cost_no_memory_while_they_wait() {
    let budget = MemoryBudget::new(BUDGET_BYTES);
    let slice = Bytes::from(vec![7; MIB]);
    let answering = handler(move |_, _, reply| {
        let response = Response { mapped_bytes: 14 * MIB, ..Response::success() };
        reply.send((0..14).fold(response, |response, _| response.with_body(slice.clone())));
    });
    let server = serve_within(&budget, answering);
    let mut peer = RawPeer::connect(server.local_addr()).await;
    peer.send(&request(11, 1, b"")).await;
    until("the answer waits", || server.connections().iter().any(|it| it.queued_bytes() > MIB)).await;
    assert_eq!(budget.used_bytes(), 0);
    assert_eq!(peer.receive().await.expect("an answer").body.len(), 14 * MIB);
}

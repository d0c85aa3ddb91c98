//! Bytes that are not frames: the connection ends, the server and its other connections continue.
use rocketpy_remoting::{Server, ServerConfig};
use tokio::io::AsyncWriteExt;

use crate::support::*;

/// Sends `bytes` and expects the end of the connection, while another connection is served.
async fn assert_only_this_connection_closes(server: &Server, bytes: &[u8]) {
    let mut other = RawPeer::connect(server.local_addr()).await;
    other.assert_serves().await;
    let mut peer = RawPeer::connect(server.local_addr()).await;
    peer.send(bytes).await;
    peer.assert_closed().await;
    other.assert_serves().await;
    RawPeer::connect(server.local_addr()).await.assert_serves().await;
}

#[tokio::test]
async fn a_length_beyond_the_limit_closes_the_connection_without_waiting_for_more() {
    let server = echo_server();
    // The limit counts the length field too.
    for length in [16_u32 * 1024 * 1024 - 3, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF] {
        assert_only_this_connection_closes(&server, &length.to_be_bytes()).await;
    }
}

#[tokio::test]
async fn a_length_that_cannot_hold_a_header_closes_the_connection() {
    let server = echo_server();
    for length in 0_u32..4 {
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend_from_slice(&[0; 8]);
        assert_only_this_connection_closes(&server, &bytes).await;
    }
}

#[tokio::test]
async fn a_header_longer_than_its_frame_closes_the_connection() {
    let server = echo_server();
    let mut bytes = request(ECHO, 1, b"body");
    bytes[5..8].copy_from_slice(&[0xFF, 0xFF, 0xFF]);
    assert_only_this_connection_closes(&server, &bytes).await;
}

#[tokio::test]
async fn an_unknown_serialization_closes_the_connection() {
    let server = echo_server();
    let mut bytes = request(ECHO, 1, b"body");
    bytes[4] = 2;
    assert_only_this_connection_closes(&server, &bytes).await;
}

#[tokio::test]
async fn a_header_that_is_not_json_closes_the_connection() {
    let server = echo_server();
    for header in [&b"not json"[..], b"{\"code\":10", b"[]", b"\xFF\xFE", b""] {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&u32::try_from(4 + header.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(&u32::try_from(header.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(header);
        assert_only_this_connection_closes(&server, &bytes).await;
    }
}

#[tokio::test]
async fn other_protocols_close_the_connection() {
    let server = echo_server();
    let tls = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xFC];
    for bytes in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n", &tls] {
        assert_only_this_connection_closes(&server, bytes).await;
    }
}

#[tokio::test]
async fn what_came_before_garbage_is_still_answered() {
    let server = echo_server();
    let mut peer = RawPeer::connect(server.local_addr()).await;
    peer.send(&[request(ECHO, 1, b"good"), b"GET / HTTP/1.1\r\n".to_vec()].concat()).await;
    assert_eq!(peer.receive().await.expect("an answer").body, b"good");
    peer.assert_closed().await;
}

#[tokio::test]
async fn a_false_but_legal_length_costs_other_connections_nothing() {
    let server = echo_server();
    let mut liars = Vec::new();
    for _ in 0..50 {
        let mut liar = RawPeer::connect(server.local_addr()).await;
        liar.send(&(15_u32 * 1024 * 1024).to_be_bytes()).await;
        liar.send(b"and then nothing").await;
        liars.push(liar);
    }
    RawPeer::connect(server.local_addr()).await.assert_serves().await;
    for mut liar in liars {
        liar.stream.shutdown().await.expect("half-closes");
        liar.assert_closed().await;
    }
    RawPeer::connect(server.local_addr()).await.assert_serves().await;
}

#[tokio::test]
async fn a_reset_in_the_middle_of_a_frame_ends_the_connection() {
    let (handler, mut events) = handler_with_events(echo);
    let server = serve(ServerConfig::new(LOOPBACK), handler);
    let mut peer = RawPeer::connect(server.local_addr()).await;
    peer.send(&request(ECHO, 1, b"body")[..20]).await;
    let Some(Event::Connected(id)) = soon(events.recv()).await else { panic!("not connected") };
    peer.stream.set_zero_linger().expect("sets");
    drop(peer);
    assert_eq!(soon(events.recv()).await, Some(Event::Disconnected(id)));
    RawPeer::connect(server.local_addr()).await.assert_serves().await;
}

#[tokio::test]
async fn random_bytes_never_stop_the_server() {
    let server = echo_server();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..200 {
        let mut bytes = Vec::new();
        for _ in 0..40 {
            // xorshift: the same bytes in every run.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_be_bytes());
        }
        // Half of them begin with a correct length.
        if state.is_multiple_of(2) {
            let length = u32::try_from(bytes.len() - 4).unwrap();
            bytes[..4].copy_from_slice(&length.to_be_bytes());
        }
        let mut peer = RawPeer::connect(server.local_addr()).await;
        // The server may close the connection during this write.
        drop(peer.stream.write_all(&bytes).await);
        drop(peer.stream.shutdown().await);
        peer.assert_closed().await;
    }
    RawPeer::connect(server.local_addr()).await.assert_serves().await;
}

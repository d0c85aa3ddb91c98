use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Fixture, Send, TIMEOUT};

/// Sends bytes and reads until the broker closes.
async fn closes_on(fixture: &Fixture, bytes: &[u8]) {
    let mut socket = TcpStream::connect(&fixture.address).await.unwrap();
    socket.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // A reset is a close as well.
    let _ = tokio::time::timeout(TIMEOUT, socket.read_to_end(&mut answer)).await.expect("still open");
    assert!(answer.is_empty(), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lying_frames_close_their_connection_and_no_other() {
    let fixture = Fixture::start().await;
    fixture.put("orders", 0, "before").await;
    // Longer than any frame may be.
    closes_on(&fixture, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 2, b'{', b'}']).await;
    // A negative length.
    closes_on(&fixture, &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 2, b'{', b'}']).await;
    // A header longer than its frame.
    closes_on(&fixture, &[0, 0, 0, 6, 0, 0, 0, 200, b'{', b'}']).await;
    // A header that is not JSON.
    closes_on(&fixture, &[0, 0, 0, 8, 0, 0, 0, 4, b'n', b'o', b'p', b'e']).await;
    // An unknown serialisation.
    closes_on(&fixture, &[0, 0, 0, 6, 9, 0, 0, 2, b'{', b'}']).await;
    let answer = fixture.send(Send::new("orders", "after")).await;
    assert_eq!(answer.code, 0, "the others are served on");
}

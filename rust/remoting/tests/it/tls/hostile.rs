//! Peers that begin a handshake and do not end it.
use std::sync::Arc;
use std::time::Duration;

use rocketpy_remoting::{Server, ServerTls, TlsMode};
use tokio::io::AsyncWriteExt;

use super::certificates::Authority;
use super::{LATER, call, client, echo_with, files, trusting};
use crate::support::{RawPeer, soon};

/// First bytes of a ClientHello: a record of 512 bytes that never ends.
const BEGUN: [u8; 9] = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xFC];

fn bounded(authority: &Authority, mode: TlsMode, max: usize, within: Duration) -> (Arc<ServerTls>, Server) {
    let files = files(mode, &authority.server(&["127.0.0.1"], LATER));
    let tls = ServerTls::load_bounded(files, max, within).unwrap().unwrap();
    (tls.clone(), echo_with(tls))
}

/// Number of handshakes that the test begins: 10,000 in the soak run.
fn handshakes() -> usize {
    std::env::var("ROCKETPY_TEST_HANDSHAKES").map_or(300, |text| text.parse().expect("a number"))
}

#[tokio::test]
async fn half_open_handshakes_displace_each_other_and_no_client() {
    let authority = Authority::new();
    let (tls, server) = bounded(&authority, TlsMode::Permissive, 50, Duration::from_secs(3600));
    let mut begun = Vec::new();
    for _ in 0..handshakes() {
        let mut peer = RawPeer::connect(server.local_addr()).await;
        peer.send(&BEGUN).await;
        begun.push(peer);
    }
    let last = begun.split_off(begun.len() - 50);
    for mut peer in begun {
        peer.assert_closed().await;
    }
    assert!(tls.half_open() <= 50, "{}", tls.half_open());
    assert!(call(&client(trusting(&authority)), &server).await.is_ok(), "a client ends its handshake");
    RawPeer::connect(server.local_addr()).await.assert_serves().await;
    drop(last);
}

#[tokio::test]
async fn a_handshake_of_one_byte_at_a_time_ends_at_its_timeout() {
    let authority = Authority::new();
    for mode in [TlsMode::Permissive, TlsMode::Enforcing] {
        let (tls, server) = bounded(&authority, mode, 50, Duration::from_millis(300));
        let RawPeer { mut stream } = RawPeer::connect(server.local_addr()).await;
        soon(async {
            for byte in BEGUN.into_iter().chain(std::iter::repeat(0)) {
                if stream.write_all(&[byte]).await.is_err() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        assert_eq!((tls.half_open(), tls.refused()), (0, 1), "{mode:?}");
    }
}

#[tokio::test]
async fn a_silent_peer_is_closed_where_tls_is_enforced() {
    let authority = Authority::new();
    let (tls, server) = bounded(&authority, TlsMode::Enforcing, 50, Duration::from_millis(100));
    let mut silent = RawPeer::connect(server.local_addr()).await;
    silent.assert_closed().await;
    assert_eq!(tls.refused(), 1);
}

#[tokio::test]
async fn a_handshake_that_is_too_long_is_closed() {
    let authority = Authority::new();
    let (tls, server) = bounded(&authority, TlsMode::Permissive, 50, Duration::from_secs(3600));
    let mut peer = RawPeer::connect(server.local_addr()).await;
    // Records of a ClientHello of 16 MiB.
    let mut record = vec![0x16, 0x03, 0x01, 0x40, 0x00];
    record.resize(5 + 0x4000, 0);
    record[5..9].copy_from_slice(&[0x01, 0xFF, 0xFF, 0xFF]);
    soon(async {
        while peer.stream.write_all(&record).await.is_ok() {
            record[5..9].fill(0);
        }
    })
    .await;
    assert_eq!((tls.half_open(), tls.refused()), (0, 1));
}

#[tokio::test]
async fn old_versions_of_tls_are_refused() {
    let authority = Authority::new();
    let (tls, server) = bounded(&authority, TlsMode::Permissive, 50, Duration::from_secs(3600));
    for minor in [0x00, 0x01, 0x02] {
        // A ClientHello of SSL 3.0, TLS 1.0 or 1.1 with one cipher suite of each.
        let mut hello = vec![0x03, minor];
        hello.extend([7; 32]);
        hello.extend([0x00, 0x00, 0x04, 0xC0, 0x14, 0x00, 0x2F, 0x01, 0x00]);
        let mut record =
            vec![0x16, 0x03, minor, 0x00, hello.len() as u8 + 4, 0x01, 0x00, 0x00, hello.len() as u8];
        record.extend(hello);
        let mut peer = RawPeer::connect(server.local_addr()).await;
        peer.send(&record).await;
        let mut alert = Vec::new();
        let read = tokio::io::AsyncReadExt::read_to_end(&mut peer.stream, &mut alert);
        drop(soon(read).await);
        assert!(alert.is_empty() || alert[0] == 0x15, "nothing but an alert: {alert:?}");
    }
    assert_eq!((tls.half_open(), tls.refused()), (0, 3));
}

#[tokio::test]
async fn a_stop_ends_handshakes_under_way() {
    let authority = Authority::new();
    let (tls, server) = bounded(&authority, TlsMode::Permissive, 50, Duration::from_secs(3600));
    let (mut begun, mut silent) =
        (RawPeer::connect(server.local_addr()).await, RawPeer::connect(server.local_addr()).await);
    begun.send(&BEGUN).await;
    soon(async {
        while tls.half_open() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    soon(server.shutdown(Duration::from_secs(5))).await;
    begun.assert_closed().await;
    silent.assert_closed().await;
}

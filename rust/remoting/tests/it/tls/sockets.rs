//! Sockets of threads that block, as replication uses them.
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rocketpy_remoting::{ClientTls, Refused, Socket, TlsMode};

use super::certificates::Authority;
use super::{LATER, files, load, trusting};
use crate::support::{LOOPBACK, PATIENCE};

/// Both ends of a connection, secured by `client` or plain.
fn both(
    tls: Arc<rocketpy_remoting::ServerTls>,
    client: Option<Arc<ClientTls>>,
) -> (Result<Socket, Refused>, Socket) {
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || Socket::accept(listener.accept().unwrap().0, &tls, PATIENCE));
    let tcp = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let socket = match client {
        Some(tls) => Socket::connect(tcp, &tls, &format!("127.0.0.1:{port}"), PATIENCE).unwrap(),
        None => Socket::plain(tcp),
    };
    (&socket).write_all(b"x").unwrap();
    (server.join().unwrap(), socket)
}

#[test]
fn threads_read_and_write_at_the_same_time() {
    let authority = Authority::new();
    let tls = load(files(TlsMode::Permissive, &authority.server(&["127.0.0.1"], LATER)));
    for client in [Some(ClientTls::load(trusting(&authority)).unwrap()), None] {
        let (server, client) = both(tls.clone(), client);
        let server = server.unwrap();
        let mut first = [0];
        (&server).read_exact(&mut first).unwrap();
        let sent: Vec<u8> = (0..4_000_000_u32).map(|at| (at % 251) as u8).collect();
        thread::scope(|scope| {
            for (from, to) in [(&server, &client), (&client, &server)] {
                let sent = &sent;
                scope.spawn(move || {
                    let mut from = from;
                    from.write_all(sent).unwrap();
                });
                scope.spawn(move || {
                    let (mut to, mut received) = (to, vec![0; sent.len()]);
                    to.read_exact(&mut received).unwrap();
                    assert!(received == *sent, "bytes arrive as they were sent");
                });
            }
        });
        client.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        let late = (&client).read(&mut first).unwrap_err();
        assert!(matches!(late.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{late}");
        server.shutdown().unwrap();
        assert_eq!((&client).read(&mut first).unwrap_or(0), 0);
    }
}

#[test]
fn plain_peers_are_refused_where_tls_is_enforced() {
    let authority = Authority::new();
    let tls = load(files(TlsMode::Enforcing, &authority.server(&["127.0.0.1"], LATER)));
    let (refused, _client) = both(tls, None);
    assert!(matches!(refused, Err(Refused::Plain)), "{refused:?}");
}

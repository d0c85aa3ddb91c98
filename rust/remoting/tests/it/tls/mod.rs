//! TLS over real sockets: who gets in, who is refused, and what unfinished handshakes may cost.
mod certificates;
mod hostile;
mod reload;
mod sockets;
mod verification;

use std::sync::Arc;
use std::time::Duration;

use rocketpy_protocol::Command;
use rocketpy_remoting::{
    CallError, Client, ClientConfig, ClientTls, ClientTlsFiles, Server, ServerConfig, ServerTls,
    ServerTlsFiles, TlsMode, Trust,
};
use tokio::task::JoinSet;

use self::certificates::{Authority, Pair};
use crate::support::{ECHO, LOOPBACK, PATIENCE, RawPeer, bytes, echo, handler, serve};

/// Last year of certificates that are valid.
const LATER: i32 = 2100;

/// Settings of a server with a certificate.
fn files(mode: TlsMode, pair: &Pair) -> ServerTlsFiles {
    ServerTlsFiles {
        mode,
        cert: Some(pair.cert.clone()),
        key: Some(pair.key.clone()),
        ..ServerTlsFiles::default()
    }
}

fn load(files: ServerTlsFiles) -> Arc<ServerTls> {
    ServerTls::load(files).expect("the files are good").expect("it has a certificate")
}

fn echo_with(tls: Arc<ServerTls>) -> Server {
    serve(ServerConfig { tls: Some(tls), ..ServerConfig::new(LOOPBACK) }, handler(echo))
}

fn trusting(authority: &Authority) -> ClientTlsFiles {
    ClientTlsFiles { trust: Trust::Authorities(authority.ca()), ..ClientTlsFiles::default() }
}

fn client(files: ClientTlsFiles) -> Client {
    Client::new(ClientConfig { tls: Some(ClientTls::load(files).unwrap()), ..ClientConfig::default() })
}

/// Calls by the host name `localhost`, or by the address.
async fn call_at(
    client: &Client,
    host: &str,
    server: &Server,
    body: bytes::Bytes,
) -> Result<Command, CallError> {
    let mut request = Command::bare_request(ECHO);
    request.body = body;
    client.call(&format!("{host}:{}", server.local_addr().port()), request, PATIENCE).await
}

async fn call(client: &Client, server: &Server) -> Result<Command, CallError> {
    call_at(client, "127.0.0.1", server, bytes::Bytes::from_static(b"hello")).await
}

fn reason(result: Result<Command, CallError>) -> String {
    match result {
        Err(error @ CallError::Tls { .. }) => {
            let text = error.to_string();
            assert_eq!(error.retryable(), text.contains("closed the connection"), "{text}");
            assert!(!error.may_have_been_applied());
            text
        }
        other => panic!("expected an error of TLS: {other:?}"),
    }
}

#[tokio::test]
async fn plain_and_tls_clients_share_one_port() {
    let authority = Authority::new();
    let server =
        echo_with(load(files(TlsMode::Permissive, &authority.server(&["localhost", "127.0.0.1"], LATER))));
    let (secure, plain) = (client(trusting(&authority)), Client::new(ClientConfig::default()));

    let large = bytes(3 << 20, 7);
    for host in ["localhost", "127.0.0.1"] {
        let answer = call_at(&secure, host, &server, large.clone()).await.unwrap();
        assert!(answer.body == large, "a large body comes back as it was: {}", answer.body.len());
    }
    assert_eq!(call(&plain, &server).await.unwrap().body, b"hello"[..]);
    RawPeer::connect(server.local_addr()).await.assert_serves().await;
    let mut calls = JoinSet::new();
    for seed in 0..200_u8 {
        let (secure, addr) = (secure.clone(), format!("localhost:{}", server.local_addr().port()));
        calls.spawn(async move {
            let (sent, mut request) = (bytes(usize::from(seed) * 100, seed), Command::bare_request(ECHO));
            request.body = sent.clone();
            assert_eq!(secure.call(&addr, request, PATIENCE).await.unwrap().body, sent);
        });
    }
    calls.join_all().await;
    secure.shutdown().await;
    server.shutdown(Duration::from_secs(5)).await;
    assert!(server.connections().is_empty());
}

#[tokio::test]
async fn enforcing_closes_plain_connections_without_an_answer() {
    let authority = Authority::new();
    let tls = load(files(TlsMode::Enforcing, &authority.server(&["127.0.0.1"], LATER)));
    let server = echo_with(tls.clone());

    let mut plain = RawPeer::connect(server.local_addr()).await;
    plain.send(&crate::support::request(ECHO, 1, b"hello")).await;
    plain.assert_closed().await;

    assert_eq!(call(&client(trusting(&authority)), &server).await.unwrap().body, b"hello"[..]);
    assert_eq!(tls.refused(), 1);
}

#[tokio::test]
async fn plain_client_learns_that_the_server_accepts_only_tls() {
    let authority = Authority::new();
    let tls = load(files(TlsMode::Enforcing, &authority.server(&["127.0.0.1"], LATER)));
    let server = echo_with(tls);
    let plain = Client::new(ClientConfig::default());
    let error = call(&plain, &server).await.unwrap_err();
    assert!(matches!(error, CallError::TlsOnly { code: ECHO, queued: true, .. }), "{error:?}");
    assert!(error.may_have_been_applied(), "a server that accepts both and crashed looks the same");

    // A server that closes both is not one of TLS.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let closing = tokio::spawn(async move {
        loop {
            drop(listener.accept().await);
        }
    });
    let error = plain.call(&address, Command::bare_request(ECHO), PATIENCE).await.unwrap_err();
    assert!(matches!(error, CallError::Closed { .. } | CallError::Connect { .. }), "{error:?}");
    closing.abort();
}

#[test]
fn modes_without_a_certificate_are_plain_or_refused() {
    for mode in [TlsMode::Disabled, TlsMode::Permissive] {
        let files = ServerTlsFiles { mode, ..ServerTlsFiles::default() };
        assert!(ServerTls::load(files).unwrap().is_none(), "{mode:?}");
    }
    let enforcing = ServerTlsFiles { mode: TlsMode::Enforcing, ..ServerTlsFiles::default() };
    let error = ServerTls::load(enforcing).unwrap_err().to_string();
    assert!(error.contains("tlsServerCertPath"), "{error}");

    let authority = Authority::new();
    let disabled = files(TlsMode::Disabled, &authority.server(&["a"], LATER));
    assert!(ServerTls::load(disabled).unwrap().is_none(), "a certificate changes nothing under disabled");
}

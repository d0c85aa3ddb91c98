//! Requests of the server over the connection that the client opened.
use std::sync::Arc;

use bytes::Bytes;
use rocketpy_protocol::{Command, code};
use rocketpy_remoting::{CallError, Client, ClientConfig, Connection, Response, Server, ServerConfig};

use crate::support::*;

const NOTIFY: i32 = 40;

/// A server, and the connection that a client opened to it.
async fn connected(client: &Client) -> (Server, Arc<Connection>) {
    let server = echo_server();
    client
        .call(&server.local_addr().to_string(), Command::bare_request(ECHO), PATIENCE)
        .await
        .expect("an answer");
    let connection = server.connections().pop().expect("a connection");
    (server, connection)
}

#[tokio::test]
async fn the_server_calls_the_client_and_gets_its_answer() {
    let client = Client::new(ClientConfig::default());
    client.set_request_handler(handler(|_, request, reply| {
        assert_eq!(request.code, NOTIFY);
        reply.send(Response::success().with_body(request.body));
    }));
    let (_server, connection) = connected(&client).await;
    let request = Command::bare_request(NOTIFY).with_body(Bytes::from_static(b"push"));
    let answer = connection.call(request, PATIENCE).await.expect("an answer");
    assert_eq!((answer.code, &answer.body[..]), (0, &b"push"[..]));
}

#[tokio::test]
async fn a_client_without_a_handler_refuses_by_code_and_stays_connected() {
    let client = Client::new(ClientConfig::default());
    let (server, connection) = connected(&client).await;
    let answer = connection.call(Command::bare_request(NOTIFY), PATIENCE).await.expect("an answer");
    assert_eq!(answer.code, code::response::REQUEST_CODE_NOT_SUPPORTED);
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    client.set_request_handler(handler(move |_, request, reply| {
        sender.send((request.code, reply.is_oneway())).expect("the test listens");
    }));
    connection.send_oneway(Command::bare_request(NOTIFY)).expect("queued");
    assert_eq!(soon(received.recv()).await, Some((NOTIFY, true)));
    let answer = client.call(&server.local_addr().to_string(), Command::bare_request(ECHO), PATIENCE).await;
    assert_eq!(answer.expect("an answer").code, 0);
}

#[tokio::test]
async fn requests_of_the_server_are_written_as_the_client_writes() {
    let server = echo_server();
    let mut peer = RawPeer::connect(server.local_addr()).await;
    peer.assert_serves().await;
    let connection = server.connections().pop().expect("a connection");
    connection.send_oneway(Command::bare_request(NOTIFY)).expect("queued");
    let pushed = peer.receive().await.expect("a request");
    assert_eq!((pushed.serialize, pushed.code(), &pushed.header["flag"]), (0, 40, &serde_json::json!(2)));
    // Code 10, RUST, version 479, opaque 1: the smallest binary header.
    let mut binary = vec![0, 0, 0, 25, 1, 0, 0, 21, 0, 10, 12, 0x01, 0xDF, 0, 0, 0, 1];
    binary.extend_from_slice(&[0; 12]);
    peer.send(&binary).await;
    assert_eq!(peer.receive().await.expect("an answer").serialize, 1);
    connection.send_oneway(Command::bare_request(NOTIFY)).expect("queued");
    assert_eq!(peer.receive().await.expect("a request").serialize, 1);
}

#[tokio::test]
async fn a_call_to_a_client_that_leaves_fails() {
    let client = Client::new(ClientConfig::default());
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    client.set_request_handler(handler(move |_, _, reply| sender.send(reply).expect("the test listens")));
    let (_server, connection) = connected(&client).await;
    let call = connection.start_call(Command::bare_request(NOTIFY), PATIENCE).await.expect("queued");
    let reply = soon(received.recv()).await.expect("received");
    client.close();
    let error = soon(call).await.unwrap_err();
    assert!(matches!(error, CallError::Closed { queued: true, code: NOTIFY, .. }), "{error}");
    let error = connection.send_oneway(Command::bare_request(NOTIFY)).unwrap_err();
    assert!(matches!(error, CallError::Closed { queued: false, .. }), "{error}");
    drop(reply);
}

#[tokio::test]
async fn pushes_to_a_client_that_does_not_read_are_refused_at_the_bound() {
    let config = ServerConfig { max_queued_bytes: 256 * 1024, ..ServerConfig::new(LOOPBACK) };
    let server = serve(config, handler(echo));
    let mut peer = RawPeer::connect(server.local_addr()).await;
    peer.assert_serves().await;
    let connection = server.connections().pop().expect("a connection");
    let push = || Command::bare_request(NOTIFY).with_body(bytes(64 * 1024, 0));
    let mut pushed = 0;
    let error = loop {
        match connection.send_oneway(push()) {
            Ok(()) => pushed += 1,
            Err(error) => break error,
        }
        tokio::task::yield_now().await;
    };
    assert!(matches!(error, CallError::WindowFull { code: NOTIFY, timeout_ms: 0, .. }), "{error}");
    for _ in 0..pushed {
        assert_eq!(peer.receive().await.expect("a request").body.len(), 64 * 1024);
    }
    soon(async {
        while connection.queued_bytes() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    connection.send_oneway(push()).expect("room again");
}

#[tokio::test]
async fn a_connection_carries_one_attachment() {
    let client = Client::new(ClientConfig::default());
    let (_server, connection) = connected(&client).await;
    assert!(connection.attachment::<String>().is_none());
    assert!(connection.attach(Arc::new(String::from("group"))));
    assert!(!connection.attach(Arc::new(1_u8)));
    assert_eq!(connection.attachment::<String>().as_deref().map(String::as_str), Some("group"));
    assert!(connection.attachment::<u8>().is_none());
}

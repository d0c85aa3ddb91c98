//! Hooks that see every request: one signs, one checks.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rocketpy_protocol::proof::Proof;
use rocketpy_protocol::{Command, code, signature};
use rocketpy_remoting::{
    CallError, Client, ClientConfig, Connection, Credentials, RequestCheck, RequestHook, Response,
    ServerConfig, Signer,
};

use crate::support::*;

/// Adds a signature: address, request code, and how many requests it has signed.
#[derive(Debug, Default)]
struct Sign(AtomicUsize);

impl RequestHook for Sign {
    fn outgoing(&self, addr: &str, request: &mut Command) {
        let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        request.ext.remove("Signature");
        request.ext.push("Signature", &format!("{addr} {} {number}", request.code));
    }
}

#[tokio::test]
async fn a_signer_adds_user_proof_and_signature_to_every_request() {
    let (keep, mut kept) = keeping();
    let server = serve(ServerConfig::new(LOOPBACK), keep);
    let addr = server.local_addr().to_string();
    let secret = "the secret";
    let credentials =
        Credentials { security_token: Some("a token".to_owned()), ..Credentials::new("user", secret) };
    let signer = Arc::new(Signer::new(credentials));
    assert!(!format!("{signer:?}").contains("secret\"") && !format!("{signer:?}").contains("token"));
    let client = Client::new(ClientConfig { hook: Some(signer), ..ClientConfig::default() });
    let mut request = Command::bare_request(ECHO).with_body("text");
    request.ext.push("topic", "orders");
    let mut proofs = Vec::new();
    for _ in 0..2 {
        client.call_oneway(&addr, request.clone(), PATIENCE).await.expect("queued");
        let (received, _) = soon(kept.recv()).await.expect("a request");
        assert_eq!(received.ext.get("AccessKey"), Some("user"));
        assert_eq!(received.ext.get("SecurityToken"), Some("a token"));
        assert!(signature::is_signed(&received, secret));
        let proof = Proof::read(&received).expect("a proof").expect("a proof");
        assert!(proof.is_of(&received, secret));
        proofs.push(proof);
        request = received; // as of an attempt whose connection ended
    }
    assert_eq!((proofs[0].stream, proofs[0].counter + 1), (proofs[1].stream, proofs[1].counter));
    assert_eq!(request.ext.len(), 5);
}

/// Admits signed requests.
#[derive(Debug)]
struct Check;

impl RequestCheck for Check {
    fn refusal(&self, _: &Arc<Connection>, request: &Command) -> Option<Response> {
        match request.ext.get("Signature") {
            Some("panic") => panic!("a signature that the check cannot read"),
            Some(_) => None,
            None => Some(Response::status(code::response::NO_PERMISSION, "no signature")),
        }
    }
}

fn signing_client() -> Client {
    Client::new(ClientConfig { hook: Some(Arc::new(Sign::default())), ..ClientConfig::default() })
}

#[tokio::test]
async fn a_hook_completes_every_request_of_a_client_and_no_answer() {
    let (keep, mut kept) = keeping();
    let server = serve(ServerConfig::new(LOOPBACK), keep);
    let addr = server.local_addr().to_string();
    let client = signing_client();
    let call = client.start_call(&addr, Command::bare_request(ECHO), PATIENCE).await.expect("queued");
    client.call_oneway(&addr, Command::bare_request(11), PATIENCE).await.expect("queued");
    let (called, reply) = soon(kept.recv()).await.expect("a request");
    assert_eq!(called.ext.get("Signature"), Some(format!("{addr} 10 1").as_str()));
    let (oneway, _) = soon(kept.recv()).await.expect("a request");
    assert_eq!(oneway.ext.get("Signature"), Some(format!("{addr} 11 2").as_str()));
    reply.send(Response::success());
    soon(call).await.expect("an answer");
    // The server's own request, and the client's answer to it, pass no hook.
    let push = server.connections()[0].call(Command::bare_request(40), PATIENCE).await.expect("an answer");
    assert_eq!(push.ext.get("Signature"), None);
}

#[tokio::test]
async fn a_request_that_is_sent_again_is_signed_again() {
    let server = serve(
        ServerConfig::new(LOOPBACK),
        handler(|_, request, reply| match request.ext.get("Signature") {
            Some(signature) if signature.ends_with(" 1") => {
                reply.send(Response::status(code::response::GO_AWAY, "shutting down"));
            }
            signature => reply.send(Response::status(0, signature.unwrap_or_default())),
        }),
    );
    let addr = server.local_addr().to_string();
    let answer =
        signing_client().call(&addr, Command::bare_request(ECHO), PATIENCE).await.expect("an answer");
    assert_eq!(answer.remark.as_deref(), Some(format!("{addr} 10 2").as_str()));
}

#[tokio::test]
async fn a_check_refuses_before_the_handler_sees_the_request() {
    let (keep, mut kept) = keeping();
    let server = serve(ServerConfig { check: Some(Arc::new(Check)), ..ServerConfig::new(LOOPBACK) }, keep);
    let addr = server.local_addr().to_string();
    let unsigned = Client::new(ClientConfig::default());
    let refused = unsigned.call(&addr, Command::bare_request(ECHO), PATIENCE).await.expect("an answer");
    assert_eq!(
        (refused.code, refused.remark.as_deref()),
        (code::response::NO_PERMISSION, Some("no signature"))
    );
    unsigned.call_oneway(&addr, Command::bare_request(ECHO), PATIENCE).await.expect("queued");
    let mut broken = Command::bare_request(ECHO);
    broken.ext.push("Signature", "panic");
    let failed = unsigned.call(&addr, broken, PATIENCE).await.expect("an answer");
    assert_eq!(failed.code, code::response::SYSTEM_ERROR, "a check that panics admits nothing");
    assert!(kept.try_recv().is_err(), "the handler saw a refused request");
    let admitted = signing_client();
    let call = admitted.start_call(&addr, Command::bare_request(ECHO), PATIENCE).await.expect("queued");
    let (_, reply) = soon(kept.recv()).await.expect("a request");
    reply.send(Response::success());
    assert_eq!(soon(call).await.expect("an answer").code, 0);
}

/// Panics at requests with code 11.
#[derive(Debug)]
struct Broken;

impl RequestHook for Broken {
    fn outgoing(&self, _: &str, request: &mut Command) {
        assert_ne!(request.code, 11, "a key that cannot be read");
    }
}

#[tokio::test]
async fn a_hook_that_panics_takes_no_room_of_later_requests() {
    let server = serve(ServerConfig::new(LOOPBACK), handler(|_, _, reply| reply.send(Response::success())));
    let addr = server.local_addr().to_string();
    let config =
        ClientConfig { hook: Some(Arc::new(Broken)), max_outstanding_calls: 2, ..ClientConfig::default() };
    let client = Arc::new(Client::new(config));
    for _ in 0..3 {
        let (client, addr) = (client.clone(), addr.clone());
        let call =
            tokio::spawn(
                async move { client.call(&addr, Command::bare_request(11), PATIENCE).await.map(drop) },
            );
        assert!(soon(call).await.expect_err("the hook's panic").is_panic());
    }
    let answer = client.call(&addr, Command::bare_request(ECHO), Duration::from_secs(5)).await;
    assert_eq!(answer.expect("room").code, 0);
}

/// Adds a megabyte to the body.
#[derive(Debug)]
struct Grow;

impl RequestHook for Grow {
    fn outgoing(&self, _: &str, request: &mut Command) {
        request.body = vec![0; 1 << 20].into();
    }
}

#[tokio::test]
async fn bytes_that_a_hook_adds_count_for_the_window() {
    let (keep, mut kept) = keeping();
    let server = serve(ServerConfig::new(LOOPBACK), keep);
    let addr = server.local_addr().to_string();
    let config = ClientConfig {
        hook: Some(Arc::new(Grow)),
        max_outstanding_bytes: 3 << 19,
        ..ClientConfig::default()
    };
    let client = Client::new(config);
    let first = client.start_call(&addr, Command::bare_request(ECHO), PATIENCE).await.expect("queued");
    let second = client.start_call(&addr, Command::bare_request(ECHO), Duration::from_millis(50)).await;
    assert!(matches!(second, Err(CallError::WindowFull { .. })), "the window has room for one");
    let (_, reply) = soon(kept.recv()).await.expect("a request");
    reply.send(Response::success());
    soon(first).await.expect("an answer");
}

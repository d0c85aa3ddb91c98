//! Certificates that are accepted and refused, on both sides.
#![expect(clippy::disallowed_methods, reason = "a test writes its own files")]

use rocketpy_remoting::{
    ClientTlsFiles, ClientVerification, ServerTls, ServerTlsFiles, TlsError, TlsMode, Trust,
};

use super::certificates::{Authority, Pair};
use super::{LATER, call, call_at, client, echo_with, files, load, reason, trusting};

/// Key of [`ENCRYPTED_CERT`], encrypted by `openssl pkcs8 -topk8 -v2 aes-256-cbc` with the password `secret`.
const ENCRYPTED_KEY: &str = include_str!("encrypted.key");
const ENCRYPTED_CERT: &str = include_str!("encrypted.pem");

#[tokio::test]
async fn clients_verify_authority_host_and_validity() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = echo_with(load(files(TlsMode::Permissive, &authority.server(&["127.0.0.1"], LATER))));

    let wrong = reason(call(&client(trusting(&other)), &server).await);
    assert!(wrong.contains("UnknownIssuer"), "{wrong}");
    let wrong = reason(call_at(&client(trusting(&authority)), "localhost", &server, "x".into()).await);
    assert!(wrong.contains("not valid for name \"localhost\""), "{wrong}");

    let expired = echo_with(load(files(TlsMode::Permissive, &authority.server(&["127.0.0.1"], 2021))));
    let wrong = reason(call(&client(trusting(&authority)), &expired).await);
    assert!(wrong.contains("expired"), "{wrong}");

    let anybody = ClientTlsFiles { trust: Trust::Anybody, ..ClientTlsFiles::default() };
    assert_eq!(call(&client(anybody), &expired).await.unwrap().body, b"hello"[..]);
}

#[tokio::test]
async fn a_client_may_trust_one_certificate_whatever_its_host() {
    let authority = Authority::new();
    let pair = authority.server(&["elsewhere"], LATER);
    let server = echo_with(load(files(TlsMode::Enforcing, &pair)));
    let exactly = |cert| ClientTlsFiles { trust: Trust::Exactly(cert), ..ClientTlsFiles::default() };
    assert!(call(&client(exactly(pair.cert)), &server).await.is_ok());
    assert!(reason(call(&client(exactly(authority.ca())), &server).await).contains("UnknownIssuer"));
}

#[tokio::test]
async fn a_tls_client_reports_a_plain_server() {
    let authority = Authority::new();
    let server = crate::support::echo_server();
    let wrong = reason(call(&client(trusting(&authority)), &server).await);
    assert!(wrong.contains("closed the connection during the handshake"), "{wrong}");
}

fn verifying(verification: ClientVerification, pair: &Pair, authority: &Authority) -> ServerTlsFiles {
    ServerTlsFiles {
        client_verification: verification,
        trust: Some(authority.ca()),
        ..files(TlsMode::Permissive, pair)
    }
}

#[tokio::test]
async fn client_certificates_are_verified_when_they_are_given() {
    let (authority, other) = (Authority::new(), Authority::new());
    let pair = authority.server(&["127.0.0.1"], LATER);
    let with =
        |pair: Pair| ClientTlsFiles { cert: Some(pair.cert), key: Some(pair.key), ..trusting(&authority) };
    let (good, foreign) = (with(authority.client()), with(other.client()));

    let require = echo_with(load(verifying(ClientVerification::Require, &pair, &authority)));
    assert!(call(&client(good.clone()), &require).await.is_ok());
    for refused in [foreign.clone(), trusting(&authority)] {
        assert!(call(&client(refused), &require).await.is_err());
    }
    let optional = echo_with(load(verifying(ClientVerification::Optional, &pair, &authority)));
    for accepted in [good.clone(), trusting(&authority)] {
        assert!(call(&client(accepted), &optional).await.is_ok());
    }
    assert!(call(&client(foreign), &optional).await.is_err());

    let unverifiable =
        ServerTlsFiles { trust: None, ..verifying(ClientVerification::Require, &pair, &authority) };
    assert!(matches!(ServerTls::load(unverifiable), Err(TlsError::NoAuthorities)));
}

#[tokio::test]
async fn encrypted_keys_need_their_password() {
    let folder = tempfile::tempdir().unwrap();
    let pair = Pair { cert: folder.path().join("a.pem"), key: folder.path().join("a.key") };
    std::fs::write(&pair.cert, ENCRYPTED_CERT).unwrap();
    std::fs::write(&pair.key, ENCRYPTED_KEY).unwrap();
    let with = |password: Option<&str>| ServerTlsFiles {
        key_password: password.map(str::to_owned),
        ..files(TlsMode::Permissive, &pair)
    };
    assert!(matches!(ServerTls::load(with(None)), Err(TlsError::NoPassword { .. })));
    assert!(matches!(ServerTls::load(with(Some("wrong"))), Err(TlsError::Password { .. })));
    assert!(!format!("{:?}", with(Some("hidden"))).contains("hidden"));

    let server = echo_with(load(with(Some("secret"))));
    let exactly = ClientTlsFiles { trust: Trust::Exactly(pair.cert.clone()), ..ClientTlsFiles::default() };
    assert!(call(&client(exactly), &server).await.is_ok());
}

#[test]
fn a_broken_file_is_named() {
    let authority = Authority::new();
    let pair = authority.server(&["a"], LATER);
    let other = Authority::new().server(&["a"], LATER).key;
    let missing = authority.folder().join("missing.pem");
    for (cert, key, expected) in [
        (&pair.key, &pair.key, "server.key has no certificate in PEM"),
        (&pair.cert, &pair.cert, "server.pem has no private key in PEM"),
        (&missing, &pair.key, "missing.pem"),
        (&pair.cert, &other, "cannot read a TLS file"), // its folder is gone
    ] {
        let files = files(TlsMode::Permissive, &Pair { cert: cert.clone(), key: key.clone() });
        let error = ServerTls::load(files).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let foreign = Authority::new();
    let mixed = Pair { cert: pair.cert, key: foreign.server(&["a"], LATER).key };
    assert!(matches!(ServerTls::load(files(TlsMode::Permissive, &mixed)), Err(TlsError::Rejected(_))));
}

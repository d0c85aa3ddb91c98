//! Changed files are used without a restart, broken ones are not.
#![expect(clippy::disallowed_methods, reason = "a test writes its own files")]

use rocketpy_remoting::TlsMode;

use super::certificates::Authority;
use super::{LATER, call, client, echo_with, files, load, trusting};

#[tokio::test]
async fn a_changed_certificate_serves_new_connections_and_a_broken_one_does_not() {
    let (former, later) = (Authority::new(), Authority::new());
    let pair = former.server(&["127.0.0.1"], LATER - 1);
    let tls = load(files(TlsMode::Permissive, &pair));
    let server = echo_with(tls.clone());
    let open = client(trusting(&former));
    assert!(call(&open, &server).await.is_ok());
    assert!(!tls.reload().unwrap(), "nothing has changed");
    let first_end = tls.expires_at_ms();

    std::fs::write(&pair.cert, "-----BEGIN CERTIFICATE-----\nbroken").unwrap();
    assert!(tls.reload().is_err());
    assert!(!tls.reload().unwrap(), "a broken file is reported once");
    std::fs::remove_file(&pair.key).unwrap();
    assert!(tls.reload().is_err());
    assert!(!tls.reload().unwrap(), "a missing file is reported once");
    assert!(call(&client(trusting(&former)), &server).await.is_ok(), "the former certificate serves");

    let new = later.server(&["127.0.0.1"], LATER);
    std::fs::copy(&new.cert, &pair.cert).unwrap();
    std::fs::copy(&new.key, &pair.key).unwrap();
    assert!(tls.reload().unwrap());
    assert!(tls.expires_at_ms() > first_end);
    assert!(call(&client(trusting(&later)), &server).await.is_ok());
    assert!(call(&client(trusting(&former)), &server).await.is_err());
    assert!(call(&open, &server).await.is_ok(), "an open connection keeps what it has");
}

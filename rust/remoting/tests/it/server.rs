//! Requests and answers on the server's side.
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use rocketpy_protocol::code;
use rocketpy_remoting::{Reserved, Response, Server, ServerConfig, ServerError, cork};

use crate::support::*;

#[tokio::test]
async fn pipelined_requests_are_answered_in_the_order_of_their_replies() {
    let (keep, mut kept) = keeping();
    let server = serve(ServerConfig::new(LOOPBACK), keep);
    let mut peer = RawPeer::connect(server.local_addr()).await;
    let frames: Vec<u8> =
        (0..100).flat_map(|opaque| request(ECHO, opaque, &[u8::try_from(opaque).unwrap()])).collect();
    peer.send(&frames).await;
    let mut replies = Vec::new();
    for _ in 0..100 {
        replies.push(soon(kept.recv()).await.expect("a request"));
    }
    for (request, reply) in replies.into_iter().rev() {
        reply.send(Response::success().with_body(request.body));
    }
    for opaque in (0..100).rev() {
        let answer = peer.receive().await.expect("an answer");
        assert_eq!((answer.opaque(), answer.body), (opaque, vec![u8::try_from(opaque).unwrap()]));
        assert_eq!(answer.header["flag"], 1);
    }
}

#[tokio::test]
async fn a_frame_that_comes_byte_by_byte_is_one_request() {
    let server = echo_server();
    let mut peer = RawPeer::connect(server.local_addr()).await;
    peer.stream.set_nodelay(true).expect("sets");
    for byte in request(ECHO, 5, b"drop by drop") {
        peer.send(&[byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(peer.receive().await.expect("an answer").body, b"drop by drop");
}

#[tokio::test]
async fn a_large_request_and_its_large_answer_arrive_whole() {
    let server = echo_server();
    let mut peer = RawPeer::connect(server.local_addr()).await;
    let body = bytes(15 * 1024 * 1024, 3);
    let frame = request(ECHO, 5, &body);
    let (mut reading, mut writing) = peer.stream.into_split();
    let sent = tokio::spawn(async move {
        tokio::io::AsyncWriteExt::write_all(&mut writing, &frame).await.expect("writes");
        writing
    });
    let mut answer = vec![0; body.len() + 8];
    soon(tokio::io::AsyncReadExt::read_exact(&mut reading, &mut answer)).await.expect("an answer");
    let header_bytes = u32::from_be_bytes(answer[4..8].try_into().unwrap()) as usize;
    let mut rest = vec![0; header_bytes];
    soon(tokio::io::AsyncReadExt::read_exact(&mut reading, &mut rest)).await.expect("the rest");
    answer.extend_from_slice(&rest);
    assert!(answer[8 + header_bytes..] == body[..]);
    peer = RawPeer { stream: reading.reunite(sent.await.expect("sent")).expect("one socket") };
    peer.assert_serves().await;
}

#[tokio::test]
async fn an_answer_of_many_slices_is_one_body() {
    let slices: Vec<Bytes> =
        (0..500_usize).map(|index| bytes(index * 7, u8::try_from(index % 256).unwrap())).collect();
    let whole = slices.concat();
    let server = serve(
        ServerConfig::new(LOOPBACK),
        handler(move |_, _, reply| {
            let mut response = Response::success();
            response.body.clone_from(&slices);
            reply.send(response);
        }),
    );
    let mut peer = RawPeer::connect(server.local_addr()).await;
    for opaque in 0..3 {
        peer.send(&request(ECHO, opaque, b"")).await;
        assert!(peer.receive().await.expect("an answer").body == whole);
    }
}

#[tokio::test]
async fn a_one_way_request_is_never_answered() {
    let server = serve(
        ServerConfig::new(LOOPBACK),
        handler(|connection, request, reply| match request.code {
            1 => reply.send(Response::success()),
            2 => drop(reply),
            3 => panic!("on purpose"),
            _ => echo(connection, request, reply),
        }),
    );
    let mut peer = RawPeer::connect(server.local_addr()).await;
    for code in [1, 2, 3, 999] {
        peer.send(&request_with(code, code, 2, 479, b"")).await;
    }
    peer.assert_serves().await;
}

#[tokio::test]
async fn a_panic_in_the_handler_is_a_system_error_and_the_connection_stays_open() {
    let server = serve(
        ServerConfig::new(LOOPBACK),
        handler(|connection, request, reply| {
            assert_ne!(request.code, 1, "on purpose");
            echo(connection, request, reply);
        }),
    );
    let mut peer = RawPeer::connect(server.local_addr()).await;
    for opaque in 0..3 {
        peer.send(&request(1, opaque, b"")).await;
        let answer = peer.receive().await.expect("an answer");
        assert_eq!(
            (answer.code(), answer.opaque()),
            (i64::from(code::response::SYSTEM_ERROR), i64::from(opaque))
        );
        assert!(!answer.remark().is_empty());
        peer.assert_serves().await;
    }
}

#[tokio::test]
async fn a_request_that_is_forgotten_is_a_system_error() {
    let server = serve(ServerConfig::new(LOOPBACK), handler(|_, _, reply| drop(reply)));
    let mut peer = RawPeer::connect(server.local_addr()).await;
    peer.send(&request(ECHO, 9, b"")).await;
    let answer = peer.receive().await.expect("an answer");
    assert_eq!((answer.code(), answer.opaque()), (1, 9));
}

#[tokio::test]
async fn an_unknown_code_is_refused_by_number_and_name() {
    let server = echo_server();
    let mut peer = RawPeer::connect(server.local_addr()).await;
    for (unsupported, named) in [(36, "CONSUMER_SEND_MSG_BACK"), (31_999, "31999")] {
        peer.send(&request(unsupported, 1, b"")).await;
        let answer = peer.receive().await.expect("an answer");
        assert_eq!(answer.code(), i64::from(code::response::REQUEST_CODE_NOT_SUPPORTED));
        assert!(answer.remark().contains(named), "{}", answer.remark());
    }
}

#[tokio::test]
async fn an_answer_beyond_the_frame_limit_becomes_a_system_error() {
    let config = ServerConfig { max_frame_bytes: 4096, ..ServerConfig::new(LOOPBACK) };
    let server =
        serve(config, handler(|_, _, reply| reply.send(Response::success().with_body(bytes(5000, 0)))));
    let mut peer = RawPeer::connect(server.local_addr()).await;
    peer.send(&request(ECHO, 3, b"")).await;
    let answer = peer.receive().await.expect("an answer");
    assert_eq!((answer.code(), answer.opaque()), (1, 3));
    assert!(answer.remark().contains("4096"), "{}", answer.remark());
}

#[tokio::test]
async fn the_answer_has_the_serialization_of_its_request() {
    // The frame of docs/reference/protocol.md 10.2: code 105 in the binary form.
    let binary =
        "0000002d0100002900690001df000000070000000000000000000000140005746f70696300000009546f70696354657374";
    let binary: Vec<u8> =
        (0..binary.len()).step_by(2).map(|at| u8::from_str_radix(&binary[at..at + 2], 16).unwrap()).collect();
    let server = echo_server();
    let mut peer = RawPeer::connect(server.local_addr()).await;
    peer.send(&[binary.clone(), request(ECHO, 1, b"json"), binary].concat()).await;
    let kinds = [
        peer.receive().await.expect("an answer").serialize,
        peer.receive().await.expect("an answer").serialize,
        peer.receive().await.expect("an answer").serialize,
    ];
    assert_eq!(kinds, [1, 0, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_given_by_other_threads_under_a_cork_all_arrive() {
    const PEERS: usize = 8;
    const REQUESTS: usize = 1000;
    let (keep, mut kept) = keeping();
    let server = serve(ServerConfig::new(LOOPBACK), keep);
    let addr = server.local_addr();
    let answered = std::sync::Arc::new(AtomicUsize::new(0));
    let counter = std::sync::Arc::clone(&answered);
    let flusher = std::thread::spawn(move || {
        while let Some(first) = kept.blocking_recv() {
            let _cork = cork();
            let _nested = cork();
            let more = std::iter::from_fn(|| kept.try_recv().ok());
            for (request, reply) in std::iter::once(first).chain(more) {
                counter.fetch_add(1, Ordering::Relaxed);
                reply.send(Response::success().with_body(request.body));
            }
        }
    });
    let peers = (0..PEERS).map(|_| {
        tokio::spawn(async move {
            let mut peer = RawPeer::connect(addr).await;
            let frames: Vec<u8> = (0..REQUESTS)
                .flat_map(|opaque| request(ECHO, i32::try_from(opaque).unwrap(), b"x"))
                .collect();
            peer.send(&frames).await;
            let mut seen = vec![false; REQUESTS];
            for _ in 0..REQUESTS {
                let opaque = usize::try_from(peer.receive().await.expect("an answer").opaque()).unwrap();
                assert!(!std::mem::replace(&mut seen[opaque], true), "answered twice");
            }
        })
    });
    for peer in peers.collect::<Vec<_>>() {
        peer.await.expect("all answers");
    }
    assert_eq!(answered.load(Ordering::Relaxed), PEERS * REQUESTS);
    drop(server);
    flusher.join().expect("ends with the server");
}

#[tokio::test]
async fn a_port_in_use_is_named_with_a_hint() {
    let server = echo_server();
    let error = Server::bind(ServerConfig::new(server.local_addr()), handler(echo)).unwrap_err();
    let ServerError::Bind { addr, .. } = &error;
    assert_eq!(*addr, server.local_addr());
    assert!(error.to_string().contains("another port"), "{error}");
}

#[tokio::test]
async fn an_ipv4_client_of_a_socket_that_serves_both_is_an_ipv4_client() {
    let (keep, mut kept) = keeping();
    let both = std::net::SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), 0);
    let server = match Server::bind(ServerConfig::new(both), keep) {
        Ok(server) => server,
        // A machine without IPv6.
        Err(ServerError::Bind { .. }) => return,
    };
    let mut peer = RawPeer::connect((std::net::Ipv4Addr::LOCALHOST, server.local_addr().port()).into()).await;
    peer.send(&request(ECHO, 1, b"")).await;
    let (_, reply) = soon(kept.recv()).await.expect("a request");
    assert_eq!(reply.connection().peer(), peer.stream.local_addr().unwrap());
}

#[tokio::test]
async fn a_reserved_address_refuses_connections_until_it_is_served() {
    let reserved = Reserved::new(LOOPBACK).expect("a free port");
    let (keep, _kept) = keeping();
    let server = reserved.serve(ServerConfig::new(LOOPBACK), keep).expect("serves");
    RawPeer::connect(server.local_addr()).await;
    let error = Reserved::new(server.local_addr()).unwrap_err();
    assert!(error.to_string().contains(&server.local_addr().to_string()), "{error}");
}

//! kill -9, again and again, on one store.
//!
//! Shows that nothing acknowledged is lost with the process. It cannot show a missing flush: the page cache outlives it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::binary::{Process, server};
use crate::support::{Caller, wait_until};

const CYCLES: usize = 4;

#[test]
fn every_acknowledged_message_is_there_after_kill_9() {
    for flush in ["ASYNC_FLUSH", "SYNC_FLUSH"] {
        let folder = tempfile::tempdir().unwrap();
        let (store, ready) = (folder.path().join("store"), folder.path().join("ready"));
        let mut acknowledged: Vec<String> = Vec::new();
        for cycle in 0..CYCLES {
            let mut command = server(&store);
            command.arg("--set").arg(format!("flushDiskType={flush}"));
            let process = Process::start(command, &ready);
            verify(&process, &acknowledged);
            acknowledged.extend(send_until_killed(process, cycle));
        }
        let process = Process::start(server(&store), &ready);
        verify(&process, &acknowledged);
    }
}

/// The first kill comes while all of them wait, the second while some are delivered; a delivery may be repeated then.
#[test]
fn delayed_messages_come_after_kill_9() {
    const COUNT: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    let (store, ready) = (folder.path().join("store"), folder.path().join("ready"));
    let caller = Caller::new();
    let process = Process::start(server(&store), &ready);
    caller.create_topic(&process.broker, "orders");
    for number in 0..COUNT {
        let mut send = crate::support::send("orders", &format!("{number}"));
        send.ext.remove("i");
        send.ext.push("i", "DELAY\u{1}1\u{2}");
        let answer = caller.call(&process.broker, send);
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
    }
    process.kill();
    for wanted in [1, COUNT] {
        let process = Process::start(server(&store), &ready);
        let mut found = std::collections::HashSet::new();
        wait_until("delayed messages are delivered", || {
            found = caller.read_all(&process.broker, "orders").into_iter().collect();
            found.len() >= wanted
        });
        process.kill();
    }
}

/// Sends without a pause while another thread kills the server; returns what was acknowledged.
fn send_until_killed(process: Process, cycle: usize) -> Vec<String> {
    let stop = Arc::new(AtomicBool::new(false));
    let (broker, sending) = (process.broker.clone(), stop.clone());
    let sender = std::thread::spawn(move || {
        let caller = Caller::new();
        let mut acknowledged = Vec::new();
        for number in 0.. {
            if sending.load(Ordering::Acquire) {
                break;
            }
            let body = format!("{cycle}-{number}");
            // Refused or flushed too late, a time-out or a broken connection: may be stored, is not counted.
            match caller.try_call(&broker, crate::support::send("orders", &body)) {
                Ok(answer) if answer.code == 0 => acknowledged.push(body),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        acknowledged
    });
    let caller = Caller::new();
    wait_until("some messages are stored", || {
        caller.read_all(&process.broker, "orders").len() > cycle * 100 + 150
    });
    process.kill();
    stop.store(true, Ordering::Release);
    sender.join().unwrap()
}

/// Every acknowledged message is there once and in order; others may be between them.
fn verify(process: &Process, acknowledged: &[String]) {
    let caller = Caller::new();
    let mut found = Vec::new();
    let last = acknowledged.last();
    wait_until("the last acknowledged message is readable", || {
        found = caller.read_all(&process.broker, "orders");
        last.is_none_or(|last| found.contains(last))
    });
    let mut rest = found.iter();
    for message in acknowledged {
        assert!(rest.any(|body| body == message), "{message} is lost or out of its place");
    }
    let distinct: std::collections::HashSet<&String> = found.iter().collect();
    assert_eq!(distinct.len(), found.len(), "a message is there twice");
}

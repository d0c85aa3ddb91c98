//! Answers that wait for a flush.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketpy_env::failpoint::{self, Point};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::code::response;
use rocketpy_remoting::{Reply, Response, cork};
use tokio::sync::Notify;

/// Answers of sends under SYNC_FLUSH, kept until a flush covers their records.
///
/// All that one flush covers leave together. Their connections keep being read.
#[doc(alias = "GroupCommitService")]
#[derive(Debug, Default)]
pub(crate) struct HeldSends {
    waiting: Mutex<Waiting>,
    count: AtomicUsize,
    /// Notified when a send is held and none was.
    begun: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// In the order of their records' ends.
    sends: VecDeque<HeldSend>,
    /// Why all were given up. From then on nothing waits for a flush.
    given_up: Option<&'static str>,
}

#[derive(Debug)]
struct HeldSend {
    end: PhysicalOffset,
    deadline: Instant,
    reply: Reply,
    response: Response,
}

impl HeldSends {
    /// Keeps an answer. The caller then reports the flushed offset again: the flush may have come in between.
    pub(crate) fn hold(&self, end: PhysicalOffset, timeout: Duration, reply: Reply, response: Response) {
        let held = HeldSend { end, deadline: Instant::now() + timeout, reply, response };
        let mut waiting = self.waiting.lock();
        if let Some(remark) = waiting.given_up {
            drop(waiting);
            return give_up(vec![held], remark);
        }
        let waiting = &mut waiting.sends;
        // Two connections may get here in another order than that of their records in the log.
        let behind = waiting.iter().rev().take_while(|other| other.end > end).count();
        let at = waiting.len() - behind;
        waiting.insert(at, held);
        self.count.store(waiting.len(), Ordering::Release);
        if waiting.len() == 1 {
            self.begun.notify_one();
        }
    }

    /// Answers all whose records are durable.
    pub(crate) fn flushed(&self, offset: PhysicalOffset) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let covered: Vec<HeldSend> = {
            let waiting = &mut self.waiting.lock().sends;
            let count = waiting.partition_point(|held| held.end <= offset);
            let covered = waiting.drain(..count).collect();
            self.count.store(waiting.len(), Ordering::Release);
            covered
        };
        let _cork = cork();
        for held in covered {
            failpoint::reach(Point::BeforeAcknowledge);
            held.reply.send(held.response);
        }
    }

    /// Answers all with FLUSH_DISK_TIMEOUT, and those that come later: they may be stored.
    pub(crate) fn give_up_all(&self, remark: &'static str) {
        let all: Vec<HeldSend> = {
            let mut waiting = self.waiting.lock();
            self.count.store(0, Ordering::Release);
            waiting.given_up.get_or_insert(remark);
            waiting.sends.drain(..).collect()
        };
        give_up(all, remark);
    }

    /// Waits until the time of the first one is up.
    pub(crate) async fn wait_for_deadline(&self) {
        loop {
            let next = self.waiting.lock().sends.front().map(|held| held.deadline);
            match next {
                Some(deadline) => return tokio::time::sleep_until(deadline.into()).await,
                None => self.begun.notified().await,
            }
        }
    }

    /// Answers those whose time is up.
    pub(crate) fn give_up_expired(&self, now: Instant) {
        let expired: Vec<HeldSend> = {
            let waiting = &mut self.waiting.lock().sends;
            let count = waiting.iter().take_while(|held| held.deadline <= now).count();
            let expired = waiting.drain(..count).collect();
            self.count.store(waiting.len(), Ordering::Release);
            expired
        };
        give_up(
            expired,
            "the flush did not come in time (syncFlushTimeout); the message is stored and may be durable",
        );
    }
}

fn give_up(sends: Vec<HeldSend>, remark: &str) {
    let _cork = cork();
    for HeldSend { reply, mut response, .. } in sends {
        response.command.code = response::FLUSH_DISK_TIMEOUT;
        response.command.remark = Some(remark.to_owned());
        reply.send(response);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rocketpy_protocol::Command;
    use rocketpy_remoting::{Client, ClientConfig, Connection, Handler, PendingCall, Server, ServerConfig};

    use super::*;
    use crate::testing::until;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Holds every request; its code is the end of its record.
    struct Holder(Arc<HeldSends>, Duration);

    impl Handler for Holder {
        fn handle(&self, _connection: &Arc<Connection>, request: Command, reply: Reply) {
            self.0.hold(PhysicalOffset(request.code as u64), self.1, reply, Response::success());
        }
    }

    async fn held(
        sends: &Arc<HeldSends>,
        timeout: Duration,
        ends: &[i32],
    ) -> (Server, Client, Vec<PendingCall>) {
        let config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        let server = Server::bind(config, Arc::new(Holder(sends.clone(), timeout))).unwrap();
        let client = Client::new(ClientConfig::default());
        let mut calls = Vec::new();
        for end in ends {
            let request = Command::bare_request(*end);
            calls.push(client.start_call(&server.local_addr().to_string(), request, PATIENCE).await.unwrap());
        }
        until("all are held", || sends.waiting.lock().sends.len() >= ends.len()).await;
        (server, client, calls)
    }

    #[tokio::test]
    async fn a_flush_answers_just_the_sends_that_it_covers() {
        let sends = Arc::new(HeldSends::default());
        let (server, client, mut calls) = held(&sends, PATIENCE, &[300, 100, 200]).await;
        let [third, first, second] = [calls.remove(0), calls.remove(0), calls.remove(0)];
        sends.flushed(PhysicalOffset(99));
        assert_eq!(sends.waiting.lock().sends.len(), 3);
        sends.flushed(PhysicalOffset(200));
        assert_eq!(first.await.unwrap().code, response::SUCCESS);
        assert_eq!(second.await.unwrap().code, response::SUCCESS);
        assert_eq!(sends.waiting.lock().sends.len(), 1, "the third is not covered");
        sends.give_up_all("gone");
        let third = third.await.unwrap();
        assert_eq!((third.code, third.remark.as_deref()), (response::FLUSH_DISK_TIMEOUT, Some("gone")));

        let address = server.local_addr().to_string();
        let late = client.call(&address, Command::bare_request(400), PATIENCE);
        let late = tokio::time::timeout(PATIENCE / 2, late).await.expect("nothing is held any more").unwrap();
        assert_eq!((late.code, late.remark.as_deref()), (response::FLUSH_DISK_TIMEOUT, Some("gone")));
    }

    #[tokio::test]
    async fn a_send_that_no_flush_covers_in_time_is_told_so() {
        let sends = Arc::new(HeldSends::default());
        let watcher = sends.clone();
        let watching = tokio::spawn(async move {
            loop {
                watcher.wait_for_deadline().await;
                watcher.give_up_expired(Instant::now());
            }
        });
        let (_server, _client, calls) = held(&sends, Duration::from_millis(30), &[100]).await;
        for call in calls {
            assert_eq!(call.await.unwrap().code, response::FLUSH_DISK_TIMEOUT);
        }
        watching.abort();
    }
}

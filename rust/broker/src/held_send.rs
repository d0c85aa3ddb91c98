//! Answers that wait for a flush.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rocketpy_env::failpoint::{self, Point};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::code::response;
use rocketpy_remoting::{Reply, Response, cork};
use tokio::sync::Notify;

use crate::held_state::{HeldState, Waits};

/// Answers of sends under SYNC_FLUSH, kept until a flush covers their records.
///
/// All that one flush covers leave together. Their connections keep being read.
#[doc(alias = "GroupCommitService")]
#[derive(Debug)]
pub(crate) struct HeldSends {
    waiting: HeldState<Waiting, 1>,
    /// Notified when a send is held and none was.
    begun: Notify,
}

/// The one kind of offset for which a send waits: how far the flush is.
const FLUSH: usize = 0;

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

impl Waits<1> for Waiting {
    fn first(&self) -> [u64; 1] {
        [self.sends.front().map_or(u64::MAX, |held| held.end.get())]
    }
}

impl Waiting {
    fn insert(&mut self, held: HeldSend) {
        // Two connections may get here in another order than that of their records in the log.
        let behind = self.sends.iter().rev().take_while(|other| other.end > held.end).count();
        self.sends.insert(self.sends.len() - behind, held);
    }

    fn take_covered(&mut self, flushed: PhysicalOffset) -> Vec<HeldSend> {
        let count = self.sends.partition_point(|held| held.end <= flushed);
        self.sends.drain(..count).collect()
    }
}

impl Default for HeldSends {
    fn default() -> Self {
        Self { waiting: HeldState::new(Waiting::default()), begun: Notify::new() }
    }
}

impl HeldSends {
    /// Keeps an answer until a flush covers `end`. `flushed` says how far the flush is: it may have passed the record before this.
    pub(crate) fn hold(
        &self,
        end: PhysicalOffset,
        timeout: Duration,
        (reply, response): (Reply, Response),
        flushed: impl FnOnce() -> PhysicalOffset,
    ) {
        let held = HeldSend { end, deadline: Instant::now() + timeout, reply, response };
        let add = |waiting: &mut Waiting| match waiting.given_up {
            Some(remark) => Err(Box::new((held, remark))),
            None => {
                waiting.insert(held);
                Ok(())
            }
        };
        let look = |waiting: &mut Waiting, ()| {
            let is_first = waiting.sends.len() == 1;
            (is_first, waiting.take_covered(flushed()))
        };
        match self.waiting.hold(add, look) {
            Ok((is_first, covered)) => {
                if is_first {
                    self.begun.notify_one();
                }
                acknowledge(covered);
            }
            Err(refused) => {
                let (held, remark) = *refused;
                give_up(vec![held], remark);
            }
        }
    }

    /// Answers all whose records are durable.
    pub(crate) fn flushed(&self, offset: PhysicalOffset) {
        let covered = self.waiting.reached(FLUSH, offset.get(), |waiting| waiting.take_covered(offset));
        if let Some(covered) = covered {
            acknowledge(covered);
        }
    }

    /// Answers all with FLUSH_DISK_TIMEOUT, and those that come later: they may be stored.
    pub(crate) fn give_up_all(&self, remark: &'static str) {
        let all: Vec<HeldSend> = self.waiting.with(|waiting| {
            waiting.given_up.get_or_insert(remark);
            waiting.sends.drain(..).collect()
        });
        give_up(all, remark);
    }

    /// Waits until the time of the first one is up.
    pub(crate) async fn wait_for_deadline(&self) {
        loop {
            let next = self.waiting.with(|waiting| waiting.sends.front().map(|held| held.deadline));
            match next {
                Some(deadline) => return tokio::time::sleep_until(deadline.into()).await,
                None => self.begun.notified().await,
            }
        }
    }

    /// Answers those whose time is up.
    pub(crate) fn give_up_expired(&self, now: Instant) {
        let expired: Vec<HeldSend> = self.waiting.with(|waiting| {
            let count = waiting.sends.iter().take_while(|held| held.deadline <= now).count();
            waiting.sends.drain(..count).collect()
        });
        give_up(
            expired,
            "the flush did not come in time (syncFlushTimeout); the message is stored and may be durable",
        );
    }
}

fn acknowledge(sends: Vec<HeldSend>) {
    let _cork = cork();
    for held in sends {
        failpoint::reach(Point::BeforeAcknowledge);
        held.reply.send(held.response);
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
            let end = PhysicalOffset(request.code as u64);
            self.0.hold(end, self.1, (reply, Response::success()), || PhysicalOffset::ZERO);
        }
    }

    fn count(sends: &HeldSends) -> usize {
        sends.waiting.with(|waiting| waiting.sends.len())
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
        until("all are held", || count(sends) >= ends.len()).await;
        (server, client, calls)
    }

    #[tokio::test]
    async fn a_flush_answers_just_the_sends_that_it_covers() {
        let sends = Arc::new(HeldSends::default());
        let (server, client, mut calls) = held(&sends, PATIENCE, &[300, 100, 200]).await;
        let [third, first, second] = [calls.remove(0), calls.remove(0), calls.remove(0)];
        sends.flushed(PhysicalOffset(99));
        assert_eq!(count(&sends), 3);
        sends.flushed(PhysicalOffset(200));
        assert_eq!(first.await.unwrap().code, response::SUCCESS);
        assert_eq!(second.await.unwrap().code, response::SUCCESS);
        assert_eq!(count(&sends), 1, "the third is not covered");
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

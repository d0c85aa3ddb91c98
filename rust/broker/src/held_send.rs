//! Answers that wait for a flush, or for slaves.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rocketpy_env::failpoint::{self, Point};
use rocketpy_model::{AtomicPhysicalOffset, PhysicalOffset};
use rocketpy_protocol::code::response;
use rocketpy_remoting::{Reply, Response, cork};
use tokio::sync::Notify;

use crate::held_state::{HeldState, Waits};
use crate::metrics::TimedSend;

/// Answers of sends, kept until a flush covers their records, or the slaves have them.
///
/// All that one flush or one report covers leave together. Their connections keep being read.
#[doc(alias = "GroupCommitService")]
#[derive(Debug)]
pub(crate) struct HeldSends {
    mark: Mark,
    waiting: HeldState<Waiting, 1>,
    /// Current mark, as last passed to [`Self::reached`].
    reached: AtomicPhysicalOffset,
    /// Notified when a send is held and none was.
    begun: Notify,
    /// Where those wait further that wait for slaves as well.
    slaves: Option<Arc<Self>>,
}

/// Condition for which sends wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The flush.
    Flushed,
    /// As many slaves as have to have the record.
    Replicated,
}

impl Mark {
    /// The answer to a send for which it does not come in time, and what that says.
    const fn late(self) -> (i32, &'static str) {
        match self {
            Self::Flushed => (
                response::FLUSH_DISK_TIMEOUT,
                "the flush did not come in time (syncFlushTimeout); the message is stored and may be durable",
            ),
            Self::Replicated => (
                response::FLUSH_SLAVE_TIMEOUT,
                "too few slaves had the message in time (slaveTimeout, inSyncReplicas); it is stored here",
            ),
        }
    }
}

/// The one kind of offset for which a send waits.
const MARK: usize = 0;

/// An answer, and how long it waits for slaves after this; `None`: not at all.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) reply: Reply,
    pub(crate) response: Response,
    pub(crate) slaves_within: Option<Duration>,
    /// How to take the time of the request, of some sends.
    pub(crate) timed: Option<TimedSend>,
}

impl Held {
    pub(crate) fn answer(self) {
        if let Some(timed) = self.timed {
            timed.took(self.reply.read_at().elapsed());
        }
        self.reply.send(self.response);
    }
}

#[derive(Debug, Default)]
struct Waiting {
    /// In the order of their records' ends.
    sends: VecDeque<HeldSend>,
    /// Why all were given up. From then on nothing waits.
    given_up: Option<&'static str>,
}

#[derive(Debug)]
struct HeldSend {
    end: PhysicalOffset,
    deadline: Instant,
    held: Held,
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
        let (at, end) = (self.sends.len() - behind, held.end);
        self.sends.insert(at, held);
        let next = self.sends.get(at + 1).map_or(end, |next| next.end);
        assert!(end <= next, "held sends are in the order of their records: {end} before {next}");
    }

    fn take_covered(&mut self, reached: PhysicalOffset) -> Vec<HeldSend> {
        let count = self.sends.partition_point(|held| held.end <= reached);
        let covered: Vec<HeldSend> = self.sends.drain(..count).collect();
        let last = covered.last().map(|held| held.end);
        assert!(last <= Some(reached), "no send is answered before its record is covered: {last:?}");
        let next = self.sends.front().map(|held| held.end);
        assert!(
            next.is_none_or(|next| next > reached),
            "every held send waits for an offset past the reached one: {next:?}"
        );
        assert!(self.sends.is_empty() || self.given_up.is_none(), "no send waits once all are given up");
        covered
    }
}

impl HeldSends {
    /// Sends that wait for the flush, and then where they say so for `slaves`.
    pub(crate) fn for_flush(slaves: Arc<Self>) -> Self {
        assert_eq!(slaves.mark, Mark::Replicated, "sends wait for slaves after the flush");
        Self::new(Mark::Flushed, Some(slaves))
    }

    /// Sends that wait for slaves.
    pub(crate) fn for_slaves() -> Self {
        Self::new(Mark::Replicated, None)
    }

    fn new(mark: Mark, slaves: Option<Arc<Self>>) -> Self {
        let (waiting, reached) = (HeldState::new(Waiting::default()), AtomicPhysicalOffset::default());
        Self { mark, waiting, reached, begun: Notify::new(), slaves }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.with(|waiting| waiting.sends.len())
    }

    pub(crate) fn mark(&self) -> Mark {
        self.mark
    }

    /// Keeps an answer until the mark covers `end`. `reached` says how far that is: it may have passed the record before this.
    pub(crate) fn hold(
        &self,
        end: PhysicalOffset,
        timeout: Duration,
        held: Held,
        reached: impl FnOnce() -> PhysicalOffset,
    ) {
        let held = HeldSend { end, deadline: Instant::now() + timeout, held };
        let add = |waiting: &mut Waiting| match waiting.given_up {
            Some(remark) => Err(Box::new((held, remark))),
            None => {
                waiting.insert(held);
                Ok(())
            }
        };
        let look = |waiting: &mut Waiting, ()| {
            let is_first = waiting.sends.len() == 1;
            (is_first, waiting.take_covered(reached()))
        };
        match self.waiting.hold(add, look) {
            Ok((is_first, covered)) => {
                if is_first {
                    self.begun.notify_one();
                }
                self.release(covered);
            }
            Err(refused) => {
                let (held, remark) = *refused;
                self.give_up(vec![held], remark);
            }
        }
    }

    /// Moves the mark to at least this offset, and answers all sends whose records it covers.
    pub(crate) fn reached(&self, offset: PhysicalOffset) {
        self.reached.fetch_max(offset, Ordering::AcqRel);
        let covered = self.waiting.reached(MARK, offset.get(), |waiting| waiting.take_covered(offset));
        if let Some(covered) = covered {
            self.release(covered);
        }
    }

    /// Answers those that the mark covers, or has them wait for slaves.
    fn release(&self, sends: Vec<HeldSend>) {
        let _cork = cork();
        for HeldSend { end, held, .. } in sends {
            match (held.slaves_within, &self.slaves) {
                (Some(within), Some(slaves)) => slaves.hold_for_slaves(end, within, held),
                _ => {
                    failpoint::reach(Point::BeforeAcknowledge);
                    held.answer();
                }
            }
        }
    }

    /// [`Self::hold`] of one that waits for slaves, as far as they have said.
    pub(crate) fn hold_for_slaves(&self, end: PhysicalOffset, timeout: Duration, held: Held) {
        self.hold(end, timeout, held, || self.reached.load(Ordering::Acquire));
    }

    /// Answers all as late ones, and those that come later: they may be stored.
    pub(crate) fn give_up_all(&self, remark: &'static str) {
        let all: Vec<HeldSend> = self.waiting.with(|waiting| {
            waiting.given_up.get_or_insert(remark);
            waiting.sends.drain(..).collect()
        });
        self.give_up(all, remark);
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
        self.give_up(expired, self.mark.late().1);
    }

    fn give_up(&self, sends: Vec<HeldSend>, remark: &str) {
        let _cork = cork();
        for HeldSend { held: Held { reply, mut response, .. }, .. } in sends {
            response.command.code = self.mark.late().0;
            response.command.remark = Some(remark.to_owned());
            reply.send(response);
        }
    }
}

#[cfg(test)]
mod tests {
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
            let held = Held { reply, response: Response::success(), slaves_within: None, timed: None };
            self.0.hold(end, self.1, held, || PhysicalOffset::ZERO);
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
        let sends = Arc::new(HeldSends::for_flush(Arc::new(HeldSends::for_slaves())));
        let (server, client, mut calls) = held(&sends, PATIENCE, &[300, 100, 200]).await;
        let [third, first, second] = [calls.remove(0), calls.remove(0), calls.remove(0)];
        sends.reached(PhysicalOffset(99));
        assert_eq!(count(&sends), 3);
        sends.reached(PhysicalOffset(200));
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
        let sends = Arc::new(HeldSends::for_flush(Arc::new(HeldSends::for_slaves())));
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

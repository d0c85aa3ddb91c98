use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use rocketpy_remoting::Reply;
use rocketpy_store::Arrival;
use tokio::sync::Notify;

use crate::process::pull::Pull;

/// Pulls that wait for a message, keyed by topic and queue.
///
/// # Source
/// docs/reference/protocol.md 5.4.
#[doc(alias = "PullRequestHoldService")]
#[derive(Debug)]
pub(crate) struct HeldPulls {
    state: Mutex<State>,
    /// Pulls held now; arrivals look here first.
    count: AtomicUsize,
    limit: usize,
    /// Told when the earliest deadline moved to the front.
    sooner: Notify,
}

/// A pull and the right to answer it.
#[derive(Debug)]
pub(crate) struct HeldPull {
    pub(crate) pull: Pull,
    pub(crate) reply: Reply,
    pub(crate) deadline: Instant,
}

/// Number of a held pull, unique in the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HeldId(u64);

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    pulls: HashMap<HeldId, HeldPull>,
    /// Sets, in the order of coming: a pull leaves all of these in a few steps, however many are held.
    by_queue: HashMap<Arc<str>, HashMap<u32, BTreeSet<HeldId>>>,
    by_connection: HashMap<u64, BTreeSet<HeldId>>,
    by_deadline: BTreeSet<(Instant, HeldId)>,
}

impl HeldPulls {
    pub(crate) fn new(limit: usize) -> Self {
        Self { state: Mutex::default(), count: AtomicUsize::new(0), limit, sooner: Notify::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Keeps a pull; gives it back when there are too many.
    ///
    /// The caller looks at the queue again afterwards, because a message may have come before.
    pub(crate) fn hold(&self, held: HeldPull) -> Result<HeldId, HeldPull> {
        let mut state = self.state.lock();
        if state.pulls.len() >= self.limit {
            return Err(held);
        }
        let id = HeldId(state.next_id);
        state.next_id += 1;
        let deadline = held.deadline;
        let queues = match state.by_queue.get_mut(held.pull.topic.as_ref()) {
            Some(queues) => queues,
            None => state.by_queue.entry(held.pull.topic.clone()).or_default(),
        };
        queues.entry(held.pull.queue_id).or_default().insert(id);
        state.by_connection.entry(held.reply.connection().id()).or_default().insert(id);
        state.by_deadline.insert((deadline, id));
        state.pulls.insert(id, held);
        self.count.store(state.pulls.len(), Ordering::Release);
        let is_first = state.by_deadline.first() == Some(&(deadline, id));
        drop(state);
        if is_first {
            self.sooner.notify_one();
        }
        Ok(id)
    }

    /// Takes one pull out, if nobody else has.
    pub(crate) fn take(&self, id: HeldId) -> Option<HeldPull> {
        let mut state = self.state.lock();
        let held = state.take(id);
        self.count.store(state.pulls.len(), Ordering::Release);
        held
    }

    /// Takes out the pulls for which a message that passes their filter has come.
    pub(crate) fn arrived(&self, arrivals: &[Arrival]) -> Vec<HeldPull> {
        if self.len() == 0 {
            return Vec::new();
        }
        let mut state = self.state.lock();
        let mut released = Vec::new();
        for arrival in arrivals {
            // Taken out right away: the next arrival in the same queue does not look at them again.
            let woken = state.woken_by(arrival);
            released.extend(woken.into_iter().filter_map(|id| state.take(id)));
        }
        self.count.store(state.pulls.len(), Ordering::Release);
        released
    }

    /// Takes out the pulls whose queue has grown past their offset, whatever their filter.
    pub(crate) fn behind(&self, max_offset: impl Fn(&str, u32) -> i64) -> Vec<HeldPull> {
        self.release(|state, ids| {
            for (topic, queues) in &state.by_queue {
                for (queue_id, waiting) in queues {
                    let max = max_offset(topic, *queue_id);
                    let is_behind =
                        |id: &&HeldId| state.pulls.get(*id).is_some_and(|held| max > held.pull.offset);
                    ids.extend(waiting.iter().filter(is_behind));
                }
            }
        })
    }

    /// Takes out the pulls whose time is up.
    pub(crate) fn overdue(&self, now: Instant) -> Vec<HeldPull> {
        self.release(|state, ids| {
            ids.extend(
                state.by_deadline.iter().take_while(|(deadline, _)| *deadline <= now).map(|(_, id)| *id),
            );
        })
    }

    /// Takes out all pulls of one topic.
    pub(crate) fn of_topic(&self, topic: &str) -> Vec<HeldPull> {
        self.release(|state, ids| {
            ids.extend(state.by_queue.get(topic).into_iter().flatten().flat_map(|(_, waiting)| waiting));
        })
    }

    /// Takes out everything.
    pub(crate) fn all(&self) -> Vec<HeldPull> {
        self.release(|state, ids| ids.extend(state.pulls.keys()))
    }

    /// Forgets the pulls of a connection that has ended.
    pub(crate) fn disconnected(&self, connection_id: u64) {
        drop(
            self.release(|state, ids| {
                ids.extend(state.by_connection.get(&connection_id).into_iter().flatten())
            }),
        );
    }

    /// Waits until the earliest deadline, or `until`.
    pub(crate) async fn wait_for_deadline(&self, until: Instant) {
        loop {
            let first = self.state.lock().by_deadline.first().map(|(deadline, _)| *deadline);
            let wake_at = first.map_or(until, |deadline| deadline.min(until));
            tokio::select! {
                () = tokio::time::sleep_until(wake_at.into()) => return,
                () = self.sooner.notified() => {}
            }
        }
    }

    fn release(&self, choose: impl FnOnce(&State, &mut Vec<HeldId>)) -> Vec<HeldPull> {
        let mut state = self.state.lock();
        let mut ids = Vec::new();
        choose(&state, &mut ids);
        // One id may have been chosen twice: the second time it is gone.
        let released = ids.into_iter().filter_map(|id| state.take(id)).collect();
        self.count.store(state.pulls.len(), Ordering::Release);
        released
    }
}

impl State {
    fn woken_by(&self, arrival: &Arrival) -> Vec<HeldId> {
        let queues = self.by_queue.get(&arrival.topic);
        let waiting = queues.and_then(|queues| queues.get(&arrival.queue_id));
        let next_offset = i64::try_from(arrival.next_offset.get()).unwrap_or(i64::MAX);
        let is_woken = |id: &HeldId| {
            self.pulls.get(id).is_some_and(|held| {
                next_offset > held.pull.offset && held.pull.filter.matches_code(arrival.tags_code)
            })
        };
        waiting.into_iter().flatten().copied().filter(is_woken).collect()
    }

    fn take(&mut self, id: HeldId) -> Option<HeldPull> {
        let held = self.pulls.remove(&id)?;
        self.by_deadline.remove(&(held.deadline, id));
        if let Some(queues) = self.by_queue.get_mut(held.pull.topic.as_ref()) {
            remove_from(queues, &held.pull.queue_id, id);
            if queues.is_empty() {
                self.by_queue.remove(held.pull.topic.as_ref());
            }
        }
        remove_from(&mut self.by_connection, &held.reply.connection().id(), id);
        Some(held)
    }
}

fn remove_from<K: Eq + Hash>(sets: &mut HashMap<K, BTreeSet<HeldId>>, key: &K, id: HeldId) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(&id);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rocketpy_model::QueueOffset;
    use rocketpy_protocol::Command;
    use rocketpy_remoting::{Client, ClientConfig, Connection, Handler, Server, ServerConfig};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Holds every request as a pull of queue 0.
    struct Holder(Arc<HeldPulls>);

    impl Handler for Holder {
        fn handle(&self, _connection: &Arc<Connection>, _request: Command, reply: Reply) {
            let pull = Pull::of_queue("orders", 0, 0);
            self.0.hold(HeldPull { pull, reply, deadline: Instant::now() + PATIENCE }).unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn many_pulls_of_one_queue_are_released_in_a_moment() {
        const PULLS: usize = 30_000;
        let pulls = Arc::new(HeldPulls::new(PULLS));
        let config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        let server = Server::bind(config, Arc::new(Holder(pulls.clone()))).unwrap();
        let address = server.local_addr().to_string();
        // One connection takes half as many calls.
        let clients = [(); 2].map(|()| Client::new(ClientConfig::default()));
        let mut calls = Vec::new();
        for client in clients.iter().cycle().take(PULLS) {
            calls.push(client.start_call(&address, Command::bare_request(11), PATIENCE).await.unwrap());
        }
        while pulls.len() < PULLS {
            tokio::task::yield_now().await;
        }
        let arrival = |next| Arrival {
            topic: "orders".into(),
            queue_id: 0,
            next_offset: QueueOffset(next),
            tags_code: 0,
            stored_at_ms: 0,
        };
        let started = Instant::now();
        let released = pulls.arrived(&[arrival(1), arrival(2)]);
        // Tens of milliseconds; many seconds when each release walks over all others.
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        assert_eq!((released.len(), pulls.len()), (PULLS, 0));
    }
}

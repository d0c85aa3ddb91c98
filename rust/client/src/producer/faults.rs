//! Brokers that a producer avoids: slow ones for a while, failed ones until they answer again.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rocketpy_model::MessageQueue;
use tracing::{info, warn};

use crate::client::Client;
use crate::error::ClientError;

/// For how long a broker is avoided whose answer took this long, both in milliseconds. Quicker ones are not.
const PENALTIES_MS: [(u64, u64); 5] =
    [(15_000, 30_000), (5000, 10_000), (3000, 6000), (1800, 5000), (550, 2000)];
/// For how long one is avoided that failed.
const PENALTY_OF_FAILURE: Duration = Duration::from_secs(10);
/// How often a broker that failed is asked whether it answers again.
const ASK_INTERVAL: Duration = Duration::from_secs(3);
/// How long its answer may take. One that needs longer is still too slow.
const ASK_TIMEOUT: Duration = Duration::from_millis(200);

/// What is known of the brokers of a producer.
///
/// # Source
/// docs/reference/client.md 5.9.
#[derive(Debug, Default)]
#[doc(alias = "LatencyFaultToleranceImpl")]
pub(crate) struct Faults {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By broker name; one that was never slow has none.
    brokers: HashMap<Arc<str>, Fault>,
    /// A task asks whether brokers answer again.
    is_asking: bool,
}

#[derive(Debug)]
struct Fault {
    available_at: Instant,
    /// The queue whose broker failed, until the broker answers again.
    unreachable: Option<MessageQueue>,
}

/// The same at one point in time.
pub(crate) struct FaultsNow<'a> {
    state: MutexGuard<'a, State>,
    now: Instant,
}

impl FaultsNow<'_> {
    pub(crate) fn is_available(&self, broker_name: &str) -> bool {
        self.is_reachable(broker_name)
            && self.state.brokers.get(broker_name).is_none_or(|fault| fault.available_at <= self.now)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.brokers.is_empty()
    }

    pub(crate) fn is_reachable(&self, broker_name: &str) -> bool {
        self.state.brokers.get(broker_name).is_none_or(|fault| fault.unreachable.is_none())
    }
}

impl Faults {
    pub(super) fn at(&self, now: Instant) -> FaultsNow<'_> {
        FaultsNow { state: self.state.lock(), now }
    }

    /// A broker took a message. A longer penalty replaces a shorter one; a quick answer shortens none.
    pub(super) fn answered(&self, broker_name: &Arc<str>, latency: Duration, now: Instant) {
        let reached = |(least_ms, _): &&(u64, u64)| latency >= Duration::from_millis(*least_ms);
        let mut state = self.state.lock();
        if let Some((_, penalty_ms)) = PENALTIES_MS.iter().find(reached) {
            state.avoid(broker_name, now + Duration::from_millis(*penalty_ms)).unreachable = None;
        } else if let Some(fault) = state.brokers.get_mut(broker_name) {
            fault.unreachable = None;
        }
    }

    /// A broker did not take a message. True when the caller is to start [`Self::ask_until_reachable`].
    pub(super) fn failed(&self, queue: &MessageQueue, now: Instant) -> bool {
        let mut state = self.state.lock();
        let fault = state.avoid(&queue.broker_name, now + PENALTY_OF_FAILURE);
        if fault.unreachable.replace(queue.clone()).is_none() {
            warn!(broker_name = &*queue.broker_name, "broker failed, other brokers preferred");
        }
        !std::mem::replace(&mut state.is_asking, true)
    }

    /// Asks the brokers that failed until all answer again, or the producer is gone.
    pub(super) async fn ask_until_reachable(faults: Weak<Self>, client: Client) {
        loop {
            tokio::time::sleep(ASK_INTERVAL).await;
            let Some(faults) = faults.upgrade() else { return };
            if client.check().is_err() {
                return;
            }
            for queue in faults.unreachable() {
                if is_answered(&client, &queue).await {
                    info!(broker_name = &*queue.broker_name, "broker reachable again");
                    faults.reached(&queue.broker_name);
                }
            }
            if faults.ends_asking() {
                return;
            }
        }
    }

    fn unreachable(&self) -> Vec<MessageQueue> {
        self.state.lock().unreachable().cloned().collect()
    }

    fn reached(&self, broker_name: &str) {
        if let Some(fault) = self.state.lock().brokers.get_mut(broker_name) {
            fault.unreachable = None;
        }
    }

    /// Whether nobody is left to ask. The next failure then starts another task.
    fn ends_asking(&self) -> bool {
        let mut state = self.state.lock();
        assert!(state.is_asking, "one task asks failed brokers whether they answer again");
        let goes_on = state.unreachable().next().is_some();
        state.is_asking = goes_on;
        !goes_on
    }
}

impl State {
    fn avoid(&mut self, broker_name: &Arc<str>, until: Instant) -> &mut Fault {
        let fault = self.brokers.entry(broker_name.clone());
        let fault = fault.or_insert(Fault { available_at: until, unreachable: None });
        fault.available_at = fault.available_at.max(until);
        fault
    }

    fn unreachable(&self) -> impl Iterator<Item = &MessageQueue> {
        self.brokers.values().filter_map(|fault| fault.unreachable.as_ref())
    }
}

/// Whether a broker answers, or is gone from its topic's route: it may then come back as another one.
async fn is_answered(client: &Client, queue: &MessageQueue) -> bool {
    let address = match client.api().master_of(queue).await {
        Ok(address) => address,
        Err(error) => {
            return matches!(error, ClientError::BrokerNotFound { .. } | ClientError::NoRoute { .. });
        }
    };
    let request = crate::wire::max_offset(queue, true);
    client.api().call(&address, "question whether it answers", request, ASK_TIMEOUT).await.is_ok()
}

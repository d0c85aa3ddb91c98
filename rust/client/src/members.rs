//! The groups that one client is a member of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rocketpy_protocol::Command;
use rocketpy_protocol::body::{ConsumerData, HeartbeatData, ProducerData};

use crate::error::ClientError;
use crate::wire;

/// What the client asks of a consumer.
pub(crate) trait Consumer: Send + Sync {
    /// What the heartbeat says of it.
    fn heartbeat(&self) -> ConsumerData;
    /// Shares the queues out again soon.
    fn rebalance_soon(&self);
    /// A broker was connected to: it may have forgotten what it was told.
    fn broker_connected(&self);
    /// The client closes.
    fn stop(&self);
}

/// Registered producer and consumer groups, each once.
#[derive(Default)]
pub(crate) struct Members {
    producers: Mutex<BTreeSet<String>>,
    consumers: Mutex<BTreeMap<String, Weak<dyn Consumer>>>,
}

impl Members {
    /// # Errors
    /// [`ClientError::GroupInUse`].
    pub(crate) fn add_producer(&self, group: &str) -> Result<(), ClientError> {
        if self.producers.lock().insert(group.to_owned()) {
            return Ok(());
        }
        Err(ClientError::GroupInUse { role: "producer", group: group.to_owned() })
    }

    pub(crate) fn remove_producer(&self, group: &str) {
        self.producers.lock().remove(group);
    }

    /// # Errors
    /// [`ClientError::GroupInUse`].
    pub(crate) fn add_consumer(&self, group: &str, consumer: Weak<dyn Consumer>) -> Result<(), ClientError> {
        let mut consumers = self.consumers.lock();
        if consumers.get(group).is_some_and(|consumer| consumer.strong_count() > 0) {
            return Err(ClientError::GroupInUse { role: "consumer", group: group.to_owned() });
        }
        consumers.insert(group.to_owned(), consumer);
        Ok(())
    }

    pub(crate) fn remove_consumer(&self, group: &str) {
        self.consumers.lock().remove(group);
    }

    pub(crate) fn has_consumers(&self) -> bool {
        !self.consumers.lock().is_empty()
    }

    /// The heartbeat's body; `None` while there is nothing to tell.
    pub(crate) fn heartbeat(&self, client_id: &str) -> Option<HeartbeatData> {
        let producers: Vec<ProducerData> =
            self.producers.lock().iter().map(|group| ProducerData { group_name: group.clone() }).collect();
        let consumers: Vec<ConsumerData> = self.live().iter().map(|consumer| consumer.heartbeat()).collect();
        if producers.is_empty() && consumers.is_empty() {
            return None;
        }
        Some(HeartbeatData {
            client_id: client_id.to_owned(),
            producer_data_set: producers,
            consumer_data_set: consumers,
            ..HeartbeatData::default()
        })
    }

    /// Lets the consumer of a group, if it is here, share the queues out again.
    pub(crate) fn rebalance(&self, group: &str) {
        let consumer = self.consumers.lock().get(group).and_then(Weak::upgrade);
        if let Some(consumer) = consumer {
            consumer.rebalance_soon();
        }
    }

    pub(crate) fn brokers_connected(&self) {
        self.live().iter().for_each(|consumer| consumer.broker_connected());
    }

    /// The consumers that are still there. Called without the lock: the last owner may end meanwhile.
    fn live(&self) -> Vec<Arc<dyn Consumer>> {
        self.consumers.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Stops the consumers and empties the table; returns the requests that tell brokers of each group's end.
    pub(crate) fn leave_all(&self, client_id: &str) -> Vec<Command> {
        self.live().iter().for_each(|consumer| consumer.stop());
        let consumers = std::mem::take(&mut *self.consumers.lock());
        let producers = std::mem::take(&mut *self.producers.lock());
        let consumers = consumers.keys().map(|group| wire::unregister_consumer(client_id, group));
        consumers.chain(producers.iter().map(|group| wire::unregister_producer(client_id, group))).collect()
    }
}

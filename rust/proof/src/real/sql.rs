//! A group with an SQL filter. The client has none, so it pulls in the protocol itself: everything from the start of each queue, in every
//! life of the server.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rocketpy_client::{Admin, Client};
use rocketpy_env::now_ms;
use rocketpy_model::MessageQueue;
use rocketpy_remoting as remoting;

use super::load::{DRAIN_WITHIN, DRAINED_AFTER, Load, RETRY_PAUSE};
use super::pull::Pull;
use crate::history::{Call, Event, Reply};

pub(super) const GROUP: &str = "by-sql";
/// What the filter passes, by tag.
pub(super) const TAGS: [&str; 2] = ["green", "blue"];
/// The property `part` is 0 for red, 1 for green, 2 for blue.
const FILTER: &str = "part BETWEEN 1 AND 2 AND (shade IS NULL OR NOT TAGS = 'red')";
const MOST: i32 = 200;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Reads until the load ends, or while it drains until nothing more comes.
pub(super) async fn read(load: Load, client: Client, broker: String) {
    load.journal.lock().push(Event::Rebalance { group: GROUP.to_owned() });
    let caller = remoting::Client::new(remoting::ClientConfig::default());
    let mut positions: BTreeMap<MessageQueue, i64> = BTreeMap::new();
    let (began, mut got_at, mut draining_since) = (Instant::now(), None, None);
    while !load.is_over() {
        let mut has_all = true;
        for topic in load.topics.iter() {
            let queues = Admin::new(&client).queues(topic).await;
            has_all &= queues.is_ok();
            for queue in queues.unwrap_or_default() {
                let position = positions.entry(queue.clone()).or_default();
                has_all &= pull(&load, &caller, &broker, &queue, position, &mut got_at).await;
            }
        }
        if load.is_draining() {
            let since = *draining_since.get_or_insert_with(Instant::now);
            let quiet = got_at.unwrap_or(began).max(since).elapsed();
            if has_all && quiet > DRAINED_AFTER || quiet > DRAIN_WITHIN {
                return;
            }
        }
        tokio::time::sleep(if has_all { LOOK_AGAIN } else { RETRY_PAUSE }).await;
    }
}

/// Pulls from a queue once. Returns whether there is nothing behind.
async fn pull(
    load: &Load,
    caller: &remoting::Client,
    broker: &str,
    queue: &MessageQueue,
    position: &mut i64,
    got_at: &mut Option<Instant>,
) -> bool {
    let pull = Pull { group: GROUP, queue, offset: *position, most: MOST, sql: Some(FILTER) };
    let Some(pulled) = pull.from(caller, broker).await else { return false };
    *position = pulled.next;
    if !pulled.deliveries.is_empty() {
        *got_at = Some(Instant::now());
        let call = Call::Receive { group: GROUP.to_owned(), member: 0 };
        let reply = Reply::Received { at_ms: now_ms(), deliveries: pulled.deliveries };
        load.journal.lock().done(call, reply);
    }
    pulled.is_end
}

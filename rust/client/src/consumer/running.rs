//! What a member says of itself when an administrator asks (`mqadmin consumerStatus`).
//!
//! # Source
//! docs/reference/client.md 15.2.

use std::time::Instant;

use rocketpy_env::now_ms;
use rocketpy_model::QueueOffset;
use rocketpy_protocol::body::{ConsumeType, ConsumerRunningInfo, ProcessQueueInfo, running_property as name};

use super::assigned::Assigned;
use super::member::Member;
use super::subscription::TopicSubscription;
use crate::members::Consumer;

impl Member {
    pub(super) fn describe(&self) -> ConsumerRunningInfo {
        let kind = match self.heartbeat().consume_type {
            ConsumeType::ConsumePassively => "CONSUME_PASSIVELY",
            _ => "CONSUME_ACTIVELY",
        };
        let servers = self.client.api().name_servers().iter().map(|server| format!("{server};"));
        let properties = [
            (name::CONSUME_ORDERLY, self.delivery.is_ordered().to_string()),
            (name::CONSUME_TYPE, kind.to_owned()),
            (name::CONSUMER_START_TIMESTAMP, self.activity.started_at_ms.to_string()),
            (name::CLIENT_VERSION, concat!("rocketpy ", env!("CARGO_PKG_VERSION")).to_owned()),
            (name::NAMESERVER_ADDR, servers.collect()),
        ];
        let (now, now_ms) = (Instant::now(), now_ms());
        let paces = self.subscriptions.iter().zip(&self.activity.paces);
        let status = paces.map(|(subscription, pace)| (subscription.topic.clone(), pace.status(now)));
        ConsumerRunningInfo {
            mq_table: self
                .state
                .lock()
                .own()
                .map(|one| ((*one.queue).clone(), of_queue(one, now_ms)))
                .collect(),
            properties: properties.map(|(name, value)| (name.to_owned(), value)).into(),
            status_table: if self.delivery.is_pushed() { status.collect() } else { [].into() },
            subscription_set: self.subscriptions.iter().map(TopicSubscription::to_wire).collect(),
            ..ConsumerRunningInfo::default()
        }
    }
}

fn of_queue(assigned: &Assigned, now_ms: i64) -> ProcessQueueInfo {
    let offset = |offset: Option<QueueOffset>| offset.map_or(0, QueueOffset::to_wire);
    let at_ms = |at: Option<Instant>| at.map_or(0, |at| now_ms - at.elapsed().as_millis() as i64);
    let waiting = || assigned.prefetched.spans().map(|span| span.queue_offset);
    let in_work = assigned.in_work.as_ref();
    let first = in_work.and_then(|all| all.first_unfinished()).or_else(|| waiting().next());
    let last = waiting().next_back().or_else(|| in_work.and_then(|all| all.last()));
    let unfinished = in_work.map_or((0, 0), |all| (all.unfinished(), all.unfinished_bytes()));
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    ProcessQueueInfo {
        cached_msg_count: count(assigned.prefetched.messages() + unfinished.0),
        cached_msg_max_offset: offset(last),
        cached_msg_min_offset: offset(first),
        cached_msg_size_mib: count((assigned.prefetched.bytes() + unfinished.1) >> 20),
        commit_offset: offset(assigned.at.settled),
        last_consumed_at_ms: at_ms(assigned.consumed_at),
        last_locked_at_ms: at_ms(assigned.locked),
        last_pulled_at_ms: at_ms(assigned.pulled_at),
        is_locked: assigned.is_locked(),
        ..ProcessQueueInfo::default()
    }
}

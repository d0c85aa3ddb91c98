//! Statistics of topics, groups and the broker.
//!
//! # Source
//! docs/reference/protocol.md 2.6.3 and 2.6.4.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use rocketpy_model::{MessageQueue, QueueOffset};
use rocketpy_protocol::body::{
    BrokerConsumeStats, ConsumeStats, ConsumeTimeSpans, QueueTimeSpan, Statistics, StatisticsItem,
};
use rocketpy_protocol::header::{
    GetBrokerConsumeStatsRequestHeader, Header, QueryConsumeTimeSpanRequestHeader,
    ViewBrokerStatsDataRequestHeader,
};

use super::group::add_progress;
use crate::call::{Answer, Call, success_json};
use crate::desk::Desk;
use crate::metrics::Window;
use crate::refusal::Refusal;

/// VIEW_BROKER_STATS_DATA: an item over the last minute, hour and day.
pub(super) fn item(Call { desk, request, .. }: Call<'_>) -> Answer {
    let header = ViewBrokerStatsDataRequestHeader::read(&request.ext)?;
    let (name, key) = (header.stats_name, header.stats_key);
    let config = desk.ground.config();
    let item = desk.ground.metrics().item(Instant::now(), &config.cluster_name, name, key);
    let Some(windows) = item else {
        return Err(Refusal::NoStatistics { name: name.to_owned(), key: key.to_owned() });
    };
    let are_numbers = windows.iter().all(|window| window.rate.is_finite() && window.mean.is_finite());
    assert!(are_numbers, "rates are numbers: {windows:?}");
    let [stats_minute, stats_hour, stats_day] = windows.map(|Window { sum, rate, mean }| StatisticsItem {
        avgpt: mean,
        sum: i64::try_from(sum).unwrap_or(i64::MAX),
        tps: rate,
    });
    Ok(success_json(&Statistics { stats_day, stats_hour, stats_minute }))
}

/// GET_BROKER_CONSUME_STATS: progress of all groups in the topics for which they have offsets.
pub(super) fn of_groups(Call { desk, connection, request }: Call<'_>) -> Answer {
    let header = GetBrokerConsumeStatsRequestHeader::read(&request.ext)?;
    let mut answer =
        BrokerConsumeStats { broker_addr: desk.endpoints.advertised.address(), ..Default::default() };
    for group in desk.ground.groups().all().subscription_group_table.into_keys() {
        if !connection.is_open() {
            break; // nobody waits for the rest
        }
        let topics = of_group(desk, &group, header.is_order)?;
        for progress in topics.iter().flat_map(|stats| stats.offset_table.values()) {
            answer.total_diff += progress.broker_offset - progress.consumer_offset;
            answer.total_inflight_diff += progress.pull_offset - progress.consumer_offset;
        }
        answer.consume_stats_list.push(BTreeMap::from([(group, topics)]));
    }
    Ok(success_json(&answer))
}

/// Progress of a group in each topic. Topics to which no online member subscribes are left out.
fn of_group(desk: &Desk, group: &str, only_ordered: bool) -> Result<Vec<ConsumeStats>, Refusal> {
    let subscribed = desk.members.clients().subscribed_topics(group);
    let mut topics = desk.members.offsets().topics_of(group);
    topics.sort_unstable();
    let mut all = Vec::new();
    for topic in topics {
        let Some(config) = desk.ground.topics().get(&topic) else { continue };
        let is_left_out = only_ordered && !config.order
            || subscribed.as_ref().is_some_and(|subscribed| !subscribed.contains(&topic));
        if !is_left_out {
            let mut stats = ConsumeStats::default();
            add_progress(desk, &mut stats, group, &topic, config.write_queues)?;
            all.push(stats);
        }
    }
    Ok(all)
}

/// QUERY_CONSUME_TIME_SPAN: store times of the first, the last and the last consumed message of each queue.
pub(super) fn time_spans(Call { desk, connection, request }: Call<'_>) -> Answer {
    let header = QueryConsumeTimeSpanRequestHeader::read(&request.ext)?;
    let Some(config) = desk.ground.topics().get(header.topic) else {
        return Err(Refusal::NoTopic { topic: header.topic.to_owned() });
    };
    let (topic, broker_name): (Arc<str>, Arc<str>) =
        (header.topic.into(), desk.ground.config().broker_name.as_str().into());
    let mut spans = ConsumeTimeSpans::default();
    for queue_id in 0..config.write_queues {
        if !connection.is_open() {
            break; // nobody waits for the rest
        }
        let queue = MessageQueue { topic: topic.clone(), broker_name: broker_name.clone(), queue_id };
        spans.consume_time_span_set.push(time_span(desk, header.group, queue)?);
    }
    Ok(success_json(&spans))
}

fn time_span(desk: &Desk, group: &str, queue: MessageQueue) -> Result<QueueTimeSpan, Refusal> {
    let store = desk.ground.store();
    let MessageQueue { topic, queue_id, .. } = &queue;
    let bounds = store.queue_bounds(topic, *queue_id);
    let (min, max) = (bounds.min.get(), bounds.max.get());
    assert!(min <= max, "a queue begins before it ends: {min}, {max}");
    let committed = desk.members.offsets().get(group, topic, *queue_id).unwrap_or(0).max(0).unsigned_abs();
    let stored_at = |offset: Option<u64>| match offset.filter(|offset| (min..max).contains(offset)) {
        Some(offset) => Ok(store.stored_at(topic, *queue_id, QueueOffset(offset))?.unwrap_or(-1)),
        None => Ok::<_, Refusal>(-1),
    };
    let min_time_stamp = stored_at(Some(min))?;
    let consumed = committed.checked_sub(1);
    let consume_time_stamp = if consumed.is_some() { stored_at(consumed)? } else { min_time_stamp };
    let next_at_ms = stored_at(Some(committed.max(min)))?;
    let delay_time = if next_at_ms >= 0 { (store.now_ms() - next_at_ms).max(0) } else { 0 };
    let max_time_stamp = stored_at(max.checked_sub(1))?;
    Ok(QueueTimeSpan { consume_time_stamp, delay_time, max_time_stamp, message_queue: queue, min_time_stamp })
}

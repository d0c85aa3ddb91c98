//! Bytes of each topic on disk. The size of its records is an estimate: the log holds those of all topics together.

use std::collections::HashMap;

use rocketpy_model::QueueOffset;

use super::{Out, Sample};
use crate::desk::Desk;
use crate::metrics::Metric;

/// Bytes of a consume queue entry.
const ENTRY_BYTES: u64 = 20;
/// Records whose sizes stand for those of their topic.
const SAMPLES: u64 = 8;
/// Topics whose records are looked at in one reading.
const MAX_TOPICS_A_READING: usize = 1000;

/// Mean record sizes by topic, with the number of messages when they were taken.
#[derive(Debug, Default)]
pub(super) struct RecordSizes(HashMap<String, (u64, u64)>);

pub(super) fn show(desk: &Desk, known: &mut RecordSizes, out: &mut Out<'_>) {
    if !out.shows(Metric::TopicSize) {
        return;
    }
    let (_, topics) = desk.ground.topics().all();
    known.0.retain(|topic, _| topics.contains_key(topic));
    let (store, mut looked_at) = (desk.ground.store(), 0);
    let mut sizes = Vec::with_capacity(topics.len());
    for (name, topic) in &topics {
        let mut messages = 0;
        let mut largest = None;
        for queue_id in 0..topic.queues() {
            let bounds = store.queue_bounds(name, queue_id);
            let count = bounds.max.get().saturating_sub(bounds.min.get());
            messages += count;
            if count > largest.map_or(0, |(_, _, most)| most) {
                largest = Some((queue_id, bounds.min, count));
            }
        }
        let Some((queue_id, min, count)) = largest else { continue };
        let taken = known.0.get(name).copied();
        let is_old = taken.is_none_or(|(_, of)| messages.abs_diff(of) > of / 10);
        let mean = match taken {
            Some((mean, _)) if !is_old || looked_at >= MAX_TOPICS_A_READING => mean,
            _ => {
                looked_at += 1;
                let mean = mean_size(desk, name, queue_id, (min, count));
                known.0.insert(name.clone(), (mean, messages));
                mean
            }
        };
        sizes.push((name, messages * ENTRY_BYTES, messages * mean));
    }
    out.show(Metric::TopicSize, |add| {
        for (topic, entries, records) in &sizes {
            add(&[topic, "consume_queue"], Sample::Count(*entries));
            add(&[topic, "commit_log"], Sample::Count(*records));
        }
    });
}

/// Mean size of some records, spread over a queue. Their entries say it: no record is read.
fn mean_size(desk: &Desk, topic: &str, queue_id: u32, (min, count): (QueueOffset, u64)) -> u64 {
    assert!(count > 0, "a queue whose records are looked at has one: {topic} {queue_id}");
    let (mut bytes, mut found) = (0_u64, 0);
    for sample in 0..SAMPLES.min(count) {
        let at = QueueOffset(min.get() + sample * count / SAMPLES.min(count));
        let entries = desk.ground.store().entries(topic, queue_id, at, 1).unwrap_or_default();
        if let Some(entry) = entries.first() {
            (bytes, found) = (bytes + u64::from(entry.size_bytes), found + 1);
        }
    }
    bytes.checked_div(found).unwrap_or(0)
}

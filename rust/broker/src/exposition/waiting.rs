//! Messages that wait: timers, and half messages.

use std::collections::BTreeMap;

use rocketpy_model::{QueueOffset, system};

use super::{Out, Sample};
use crate::desk::Desk;
use crate::metrics::Metric;

/// Bounds of the times until timers are due, in seconds: Apache's.
const BOUNDS_S: [i64; 8] = [5, 60, 300, 900, 3600, 14_400, 28_800, 86_400];

pub(super) fn show(desk: &Desk, out: &mut Out<'_>) {
    let now_ms = desk.ground.store().now_ms();
    if out.shows(Metric::TimerSnapshot) {
        show_timers(desk, now_ms, out);
    }
    if out.shows(Metric::HalfMessages) {
        let open = desk.transactions.open_by_topic();
        out.show(Metric::HalfMessages, |add| {
            open.iter().for_each(|(topic, count)| add(&[topic], Sample::Count(*count)));
        });
    }
    let first = desk.transactions.first_open();
    let age_ms = first.map_or(0, |first| age_ms(desk, system::HALF_TOPIC, first, now_ms));
    out.show_one(Metric::HalfMessageAge, Sample::Count(age_ms));
}

/// Age of a message of the only queue of a system topic.
fn age_ms(desk: &Desk, topic: &str, offset: QueueOffset, now_ms: i64) -> u64 {
    let stored_at = desk.ground.store().stored_at(topic, 0, offset).ok().flatten();
    stored_at.map_or(0, |at_ms| now_ms.saturating_sub(at_ms).max(0).unsigned_abs())
}

fn show_timers(desk: &Desk, now_ms: i64, out: &mut Out<'_>) {
    let timers = &desk.timers;
    let (lag, next) = timers.not_taken();
    let age_ms = if lag == 0 { 0 } else { age_ms(desk, system::TIMER_TOPIC, next, now_ms) };
    out.show_one(Metric::TimerEnqueueLag, Sample::Count(lag));
    out.show_one(Metric::TimerEnqueueLatency, Sample::Count(age_ms));
    let mut ranges = Vec::with_capacity(BOUNDS_S.len() + 1);
    ranges.push(i64::MIN..now_ms);
    let mut from_ms = now_ms;
    for bound in BOUNDS_S {
        let until_ms = now_ms.saturating_add(bound * 1000);
        ranges.push(from_ms..until_ms);
        from_ms = until_ms;
    }
    let counts = timers.waiting_in(&ranges);
    let late_ms = timers.first_due_at_ms().map_or(0, |due_at_ms| now_ms.saturating_sub(due_at_ms).max(0));
    // The slot of this second holds messages that are due later in it.
    let due = if late_ms > 0 { counts[0] } else { 0 };
    out.show_one(Metric::TimerDequeueLag, Sample::Count(due));
    out.show_one(Metric::TimerDequeueLatency, Sample::Count(late_ms.unsigned_abs()));
    out.show(Metric::TimerSnapshot, |add| {
        for (bound, count) in BOUNDS_S.iter().zip(&counts[1..]) {
            add(&[&bound.to_string()], Sample::Count(*count));
        }
    });
    let (_, topics) = desk.ground.topics().all();
    let waiting: BTreeMap<&String, u64> = topics
        .keys()
        .filter_map(|topic| Some((topic, timers.waiting_for(topic)?.0.max(0).unsigned_abs())))
        .collect();
    out.show(Metric::TimingMessages, |add| {
        waiting.iter().for_each(|(topic, count)| add(&[topic], Sample::Count(*count)));
    });
}

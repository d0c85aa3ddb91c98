//! What the metrics say of a message that a client sent.

use rocketpy_env::Disk;
use rocketpy_model::system;

use super::destination::{Destination, Wait};
use super::properties::ParsedProperties;
use super::{Delay, Intake, NewMessage};
use crate::metrics::{MessageType, Metric, TimedSend};

/// Counts a stored message, or the messages of a batch with the bytes of their records. Returns how to take the time until its answer,
/// where that is wanted.
///
/// Retries and dead letters are no traffic of clients: Apache counts them apart.
pub(super) fn count(
    intake: &Intake<impl Disk>,
    message: &NewMessage<'_>,
    destination: &Destination,
    parsed: &ParsedProperties<'_>,
    (messages, size_bytes): (usize, u32),
) -> Option<TimedSend> {
    assert!(messages > 0, "a put that is counted has stored a message");
    let (metrics, topic) = (intake.ground().metrics(), &destination.topic);
    match destination.wait {
        Some(Wait::Time(due_at_ms)) => {
            let delay_ms = due_at_ms.saturating_sub(intake.store().now_ms()).max(0);
            metrics.observe(Metric::DelayLatency, &[], delay_ms as f64 / 1000.0);
        }
        Some(Wait::Level(level)) => {
            let delay_ms = intake.store().delay_levels().ms(i64::from(level));
            metrics.observe(Metric::DelayLatency, &[], delay_ms.max(0) as f64 / 1000.0);
        }
        Some(Wait::Transaction) | None => {}
    }
    // Names of retry and dead-letter topics begin so; others may.
    let is_of_group =
        |name: &str| name.starts_with(system::DLQ_PREFIX) || name.starts_with(system::RETRY_PREFIX);
    if message.topic.starts_with('%') && is_of_group(message.topic) {
        if let Some(group) = system::group_of_retry_topic(message.topic)
            && destination.delay == Delay::Dropped
        {
            count_dead_letter(intake, group, message.topic);
        }
        return None;
    }
    let kind = match destination.wait {
        Some(Wait::Transaction) => MessageType::Transaction,
        _ if parsed.is_ordered => MessageType::Fifo,
        Some(Wait::Level(_) | Wait::Time(_)) => MessageType::Delay,
        None => MessageType::Normal,
    };
    metrics.sent().count((topic, destination.queue_id), kind, messages as u64, size_bytes.into())
}

/// Counts a message that became a dead letter of a group.
pub(crate) fn count_dead_letter(intake: &Intake<impl Disk>, group: &str, topic: &str) {
    count_returned(intake, Metric::DeadLetters, group, topic);
}

/// Counts a message that a consumer sent back.
pub(crate) fn count_sent_back(intake: &Intake<impl Disk>, group: &str, topic: &str) {
    count_returned(intake, Metric::SentBack, group, topic);
}

fn count_returned(intake: &Intake<impl Disk>, metric: Metric, group: &str, topic: &str) {
    let is_system = system::is_system_topic(topic) || system::is_system_group(group);
    let labels = [group, topic, if is_system { "true" } else { "false" }];
    intake.ground().metrics().add_to(metric, &labels, 1);
}

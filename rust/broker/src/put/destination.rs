//! Where a message goes: its topic and queue, after the rules for missing topics, system topics and retries.
//!
//! # Source
//! docs/reference/protocol.md 2.3.1 (rules 1 to 4) and 2.3.9.

use std::sync::Arc;
use std::time::Instant;

use rocketpy_env::{Disk, random_u64};
use rocketpy_model::{TopicConfig, name, perm, property, system};

use super::intake::Intake;
use super::message::{Delay, NewMessage, Origin, Template};
use super::missing::{Missing, NotPut};
use super::properties::{Feature, Timer};
use crate::refusal::Refusal;

/// The queue that a message goes to.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) topic: Arc<TopicConfig>,
    pub(super) queue_id: u32,
    /// Where it waits first.
    pub(super) wait: Option<Wait>,
    /// What the message's own says, or [`Delay::Dropped`] for a dead letter.
    pub(super) delay: Delay,
}

/// Condition for which a message waits before it is stored in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// A delay level, in `SCHEDULE_TOPIC_XXXX`.
    Level(u32),
    /// Its time in Unix milliseconds, in `rmq_sys_wheel_timer`.
    Time(i64),
    /// The end of its transaction, in `RMQ_SYS_TRANS_HALF_TOPIC`.
    Transaction,
}

/// When a timer message is due; `None` when that is now.
///
/// # Errors
/// It says no time, or a client's one is too far away: what the broker stores again was accepted once, perhaps when the limit was higher.
pub(super) fn due_later(
    intake: &Intake<impl Disk>,
    origin: Origin,
    timer: Timer,
) -> Result<Option<i64>, Refusal> {
    let now_ms = intake.store().now_ms();
    let due_at_ms = timer.due_at_ms(now_ms)?;
    let limit = intake.config().max_timer_delay;
    // A record's stored time may be a millisecond older than the clock, and is not to be before a time that a client names.
    if due_at_ms < now_ms || due_at_ms == now_ms && !timer.names_time() {
        return Ok(None);
    }
    match due_at_ms.abs_diff(now_ms) {
        wait_ms if origin == Origin::Client && u128::from(wait_ms) > limit.as_millis() => {
            Err(Refusal::TooFar { property: timer.property(), wait_ms, limit_seconds: limit.as_secs() })
        }
        _ => Ok(Some(due_at_ms)),
    }
}

/// The level that a message gets which asks for one: the last one for any above it.
fn level_of(intake: &Intake<impl Disk>, asked: u32) -> u32 {
    asked.min(intake.config().delay_levels.count())
}

impl Destination {
    /// Finds the queue.
    ///
    /// # Errors
    /// There is no such topic or queue, or the sender may not use it; or a topic or a group is missing that may be made.
    pub(super) fn of(
        intake: &Intake<impl Disk>,
        origin: Origin,
        message: &NewMessage<'_>,
    ) -> Result<Self, NotPut> {
        let topic = find_topic(intake, origin, message.topic, message.template)?;
        let queue_id = choose_queue(&topic, message.queue_id)?;
        assert!(queue_id < topic.queues(), "the queue of a message is one of its topic: {queue_id}");
        let destination = Self { topic, queue_id, wait: None, delay: message.delay };
        match system::group_of_retry_topic(message.topic) {
            Some(group) if origin == Origin::Client => destination.or_dead_letters(intake, message, group),
            _ => Ok(destination),
        }
    }

    /// Where a message goes that asks for more than to be stored: a delay level leads to `SCHEDULE_TOPIC_XXXX`, a time that is to come
    /// to `rmq_sys_wheel_timer`, a transaction to `RMQ_SYS_TRANS_HALF_TOPIC`.
    ///
    /// # Errors
    /// The delay level or delivery time is out of range.
    ///
    /// # Source
    /// docs/reference/store-format.md 8.2, 8.4 and 9.2.
    pub(super) fn for_feature(
        self,
        intake: &Intake<impl Disk>,
        origin: Origin,
        feature: Feature,
    ) -> Result<Self, Refusal> {
        let wait = match feature {
            Feature::Level(Some(level)) => Some(Wait::Level(level_of(intake, level))),
            Feature::Level(None) => return Err(Refusal::NoTime { property: property::DELAY }),
            Feature::Timer(timer) => due_later(intake, origin, timer)?.map(Wait::Time),
            Feature::Transaction => Some(Wait::Transaction),
        };
        Ok(Self { wait, ..self })
    }

    /// A client's retry that was tried too often, or whose group consumes in order, goes to the dead letters.
    ///
    /// # Source
    /// docs/reference/protocol.md 2.3.9.
    fn or_dead_letters(
        self,
        intake: &Intake<impl Disk>,
        message: &NewMessage<'_>,
        group: &str,
    ) -> Result<Self, NotPut> {
        let Some(config) = intake.ground().groups().get(group) else {
            return Err(Missing::Group(group.to_owned()).into());
        };
        if message.is_batch {
            return Err(Refusal::BatchToRetryTopic { topic: message.topic.to_owned() }.into());
        }
        let limit = message.max_reconsume_times.unwrap_or(config.retry_max_times);
        let is_spent = message.reconsume_times > limit;
        if !is_spent && !intake.members().queue_locks().is_any_held(group, Instant::now()) {
            return Ok(self);
        }
        let dead_letters = system::dlq_topic(group);
        let Some(topic) = intake.ground().topics().get(&dead_letters) else {
            return Err(Missing::Topic(TopicConfig::new(dead_letters, 1)).into());
        };
        Ok(Self { topic, queue_id: 0, wait: None, delay: Delay::Dropped })
    }
}

fn find_topic(
    intake: &Intake<impl Disk>,
    origin: Origin,
    name: &str,
    template: Option<Template<'_>>,
) -> Result<Arc<TopicConfig>, NotPut> {
    let known = intake.ground().topics().get(name);
    if known.is_none() {
        name::check_topic(name).map_err(Refusal::from)?;
    }
    let is_trace = || name == intake.config().trace_topic_name;
    if origin == Origin::Client && system::is_send_denied(name) && !is_trace() {
        return Err(Refusal::SendDenied { topic: name.to_owned() }.into());
    }
    match known {
        Some(topic) => Ok(topic),
        None => Err(Missing::Topic(missing_topic(intake, origin, name, template)?).into()),
    }
}

/// What a missing topic becomes: made from the template that the sender names, or with one queue for retries. Dead letters
/// have a topic of their own only where the broker says so.
fn missing_topic(
    intake: &Intake<impl Disk>,
    origin: Origin,
    name: &str,
    template: Option<Template<'_>>,
) -> Result<TopicConfig, Refusal> {
    let inherited = template.and_then(|wanted| {
        let topic = intake.ground().topics().get(wanted.topic).filter(|topic| topic.perm.is_inherited())?;
        let queues = u32::try_from(wanted.queues).unwrap_or(0).min(topic.write_queues);
        Some(TopicConfig::new(name, queues.max(1)).with_perm(topic.perm.without(perm::INHERIT)))
    });
    let is_for_retries = name.starts_with(system::RETRY_PREFIX)
        || origin == Origin::Broker
            && (name.starts_with(system::DLQ_PREFIX) || name == system::TRANSACTION_CHECK_MAX_TIME_TOPIC);
    match inherited {
        Some(topic) => Ok(topic),
        None if is_for_retries => Ok(TopicConfig::new(name, retry_queues(intake, name))),
        None => Err(Refusal::NoTopic { topic: name.to_owned() }),
    }
}

/// Queues of a new topic for retries: as many as its group says (`retryQueueNums`). Dead letters have one.
fn retry_queues(intake: &Intake<impl Disk>, topic: &str) -> u32 {
    let group = system::group_of_retry_topic(topic).and_then(|group| intake.ground().groups().get(group));
    group.and_then(|group| u32::try_from(group.retry_queues).ok()).unwrap_or(1).max(1)
}

fn choose_queue(topic: &TopicConfig, wanted: i32) -> Result<u32, Refusal> {
    let (name, queues) = (&topic.name, topic.queues());
    let out_of_range = || Refusal::QueueId { topic: name.clone(), queue_id: wanted, queues };
    match u32::try_from(wanted) {
        Ok(queue_id) if queue_id < queues => Ok(queue_id),
        Ok(_) => Err(out_of_range()),
        Err(_) if topic.write_queues == 0 => Err(out_of_range()),
        Err(_) => Ok((random_u64() % u64::from(topic.write_queues)) as u32),
    }
}

//! The one way of a message into the store.
//!
//! Whoever has a message to store builds a [`NewMessage`] and gives it to [`put`]: a client's send, decoded
//! ([`crate::process`]), or the broker itself ([`stored_again`]). The door knows neither wire header nor connection nor reply. It
//! checks the message, reads its properties once ([`properties`]), finds its topic and queue ([`destination`]), writes the properties
//! that are stored ([`stored_properties`]), appends, counts, and says what the answer waits for ([`AckCondition`]).

mod ack;
mod counted;
mod destination;
mod due;
mod intake;
mod late;
mod message;
mod missing;
pub(crate) mod properties;
pub(crate) mod reserve;
mod stored_again;
mod stored_properties;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cell::RefCell;

pub(crate) use ack::{AckCondition, Acks, acknowledge};
pub(crate) use counted::{count_dead_letter, count_sent_back};
use destination::{Destination, Wait, due_later};
pub(crate) use due::{
    DueRecord, FailedReads, MAX_UNREADABLE_MESSAGES, READ_AGAIN_AFTER, due_record, is_of_place,
};
pub(crate) use intake::Intake;
pub(crate) use late::{Late, check_creation, deliver_late, is_lasting};
pub(crate) use message::{Delay, NewMessage, Origin, Template};
pub(crate) use missing::{NotPut, put_and_make};
use properties::{Feature, ParsedProperties, check_sys_flag, parse};
use rocketpy_env::Disk;
use rocketpy_env::planted::{self, Bug};
use rocketpy_model::{
    PhysicalOffset, QueueOffset, TopicConfig, TopicFilterType, name, perm, property, sys_flag, system,
};
use rocketpy_protocol::batch;
use rocketpy_store::{Appended, DelayLevels, NewRecord};
pub(crate) use stored_again::StoredAgain;
use stored_properties::Own;

use crate::refusal::Refusal;
use crate::role::OfMaster;
use crate::{FlushMode, topic_attribute};

/// Where a message was stored, and what an acknowledgement of it waits for.
#[derive(Debug)]
#[doc(alias = "PutMessageResult")]
pub(crate) struct Stored<'a> {
    pub(crate) queue_id: u32,
    /// Of a batch: that of the first record. The others follow it.
    pub(crate) queue_offset: QueueOffset,
    pub(crate) places: Places,
    /// Bytes of all records.
    size_bytes: u32,
    /// The message's own, or the one that the broker gave it; for a batch, the key of the batch itself.
    pub(crate) unique_key: Option<Cow<'a, str>>,
    /// When it is due, of a message that waits for its time.
    pub(crate) due_at_ms: Option<i64>,
    pub(crate) ack: AckCondition,
}

/// The physical offsets of the records that a put made.
#[derive(Debug)]
pub(crate) enum Places {
    One(PhysicalOffset),
    Many(Vec<PhysicalOffset>),
}

impl Places {
    /// In the order of the messages; never empty.
    pub(crate) fn as_slice(&self) -> &[PhysicalOffset] {
        match self {
            Self::One(place) => std::slice::from_ref(place),
            Self::Many(places) => places,
        }
    }
}

thread_local! {
    /// Properties of the message that is being stored. The buffer is reused to avoid an allocation per message.
    static PROPERTIES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Stores a message or a batch.
///
/// # Errors
/// The message is not stored, and no part of a batch is. What is missing for it may be made: see [`put_and_make`].
///
/// # Durability
/// On return the record survives the end of the process; it survives a power loss once the flush has reached its end.
pub(crate) fn put<'a>(
    intake: &Intake<impl Disk>,
    origin: Origin,
    message: &NewMessage<'a>,
) -> Result<Stored<'a>, NotPut> {
    let stored = check_and_append(intake, origin, message);
    match &stored {
        // It is put again.
        Err(NotPut::Missing(_)) => {}
        Ok(stored) => {
            intake
                .ground()
                .metrics()
                .put(stored.places.as_slice().len() as u64, u64::from(stored.size_bytes));
        }
        Err(NotPut::Refused(_)) => intake.ground().metrics().put_failed(),
    }
    stored
}

fn check_and_append<'a>(
    intake: &Intake<impl Disk>,
    origin: Origin,
    message: &NewMessage<'a>,
) -> Result<Stored<'a>, NotPut> {
    intake.ground().check_master(OfMaster::Message)?;
    if origin == Origin::Client {
        check_writable(intake)?;
    }
    let mut destination = Destination::of(intake, origin, message)?;
    check_body(intake, origin, message.body)?;
    if origin == Origin::Client {
        reserve::check_length(message.properties)?;
    }
    let parsed = parse(message.properties, origin, destination.delay);
    if origin == Origin::Client {
        check_sys_flag(message.sys_flag, parsed.feature)?;
    }
    if let Some(feature) = feature_of(intake, origin, message, &parsed)? {
        destination = destination.for_feature(intake, origin, feature)?;
        match (feature, destination.wait) {
            (_, Some(Wait::Time(due_at_ms))) if parsed.recalls => {
                intake.recalls().check_recall_at(due_at_ms)?
            }
            // Else it would be a message of the topic.
            (Feature::Timer(_), None) if parsed.recalls => return Err(Refusal::LateRecall.into()),
            _ => {}
        }
    }
    let stored = if message.is_batch {
        append_batch(intake, origin, message, destination, &parsed)
    } else {
        append(intake, origin, message, destination, &parsed)
    };
    Ok(stored?)
}

/// What a message asks for that counts: a retry that asks for a delay level begins no transaction, whatever an old client left in it.
///
/// # Errors
/// Transactions are off, or the transaction could never end.
///
/// # Source
/// docs/reference/store-format.md 9.2.
fn feature_of(
    intake: &Intake<impl Disk>,
    origin: Origin,
    message: &NewMessage<'_>,
    parsed: &ParsedProperties<'_>,
) -> Result<Option<Feature>, Refusal> {
    match (parsed.feature, parsed.wait) {
        (Some(Feature::Transaction), Some(level @ Feature::Level(_))) if message.reconsume_times > 0 => {
            Ok(Some(level))
        }
        (Some(Feature::Transaction), _) if intake.config().reject_transactions => {
            Err(Refusal::TransactionsOff { broker: intake.config().broker_name.clone() })
        }
        (Some(Feature::Transaction), _) if message.is_batch => Err(Refusal::TransactionalBatch),
        (Some(Feature::Transaction), _) => {
            check_half(intake, origin, parsed)?;
            Ok(Some(Feature::Transaction))
        }
        (feature, _) => Ok(feature),
    }
}

/// Checks that a half message can be ended: by its producer, by a question to it, and with a commit that is stored.
///
/// # Errors
/// The half message would stay open for ever.
fn check_half(
    intake: &Intake<impl Disk>,
    origin: Origin,
    parsed: &ParsedProperties<'_>,
) -> Result<(), Refusal> {
    match parsed.wait {
        Some(Feature::Level(None)) => return Err(Refusal::NoTime { property: property::DELAY }),
        Some(Feature::Timer(timer)) => {
            due_later(intake, origin, timer)?;
        }
        _ => {}
    }
    if parsed.recalls {
        return Err(Refusal::TransactionalRecall);
    }
    name::check_stored_group(parsed.producer_group.ok_or(Refusal::NoProducerGroup)?)?;
    let limit_seconds = intake.config().max_timer_delay.as_secs();
    match parsed.immunity_seconds {
        Some(seconds) if seconds > limit_seconds => Err(Refusal::LongImmunity { seconds, limit_seconds }),
        _ => Ok(()),
    }
}

/// # Errors
/// The broker has no write permission, and clients have had time to notice.
pub(crate) fn check_writable(intake: &Intake<impl Disk>) -> Result<(), Refusal> {
    let permission = intake.config().broker_permission;
    if permission & perm::WRITE == 0 && !intake.ground().is_writable_still() {
        return Err(Refusal::BrokerNotWritable { broker: intake.config().broker_name.clone(), permission });
    }
    Ok(())
}

/// The limits bind clients only: a message that the broker stores again was accepted once, perhaps when `maxMessageSize` was higher,
/// or by another broker.
fn check_body(intake: &Intake<impl Disk>, origin: Origin, body: &[u8]) -> Result<(), Refusal> {
    if origin == Origin::Broker {
        return Ok(());
    }
    if body.is_empty() {
        return Err(Refusal::NoBody);
    }
    let limit_bytes = intake.config().max_message_size as usize;
    if body.len() > limit_bytes {
        return Err(Refusal::BodyTooLong { size_bytes: body.len(), limit_bytes });
    }
    Ok(())
}

fn append<'a>(
    intake: &Intake<impl Disk>,
    origin: Origin,
    message: &NewMessage<'a>,
    destination: Destination,
    parsed: &ParsedProperties<'a>,
) -> Result<Stored<'a>, Refusal> {
    let (appended, new_key) = match origin {
        Origin::Broker => {
            let own = parsed.as_they_are();
            (place(intake, origin, message, &destination, parsed, &own, None)?, None)
        }
        Origin::Client => {
            let new_key = parsed.unique_key.is_none().then(|| intake.ground().next_unique_key());
            let appended = PROPERTIES.with_borrow_mut(|text| {
                let suffix = intake.property_suffix();
                let own = parsed.of_client(new_key.as_deref(), suffix, text)?;
                reserve::check_file(message.body, own.text, intake.store().config().commit_log_file_size)?;
                place(intake, origin, message, &destination, parsed, &own, new_key.as_deref())
            })?;
            (appended, new_key)
        }
    };
    assert!(
        appended.physical_offset < appended.end,
        "a record that is stored has a length: {}",
        appended.end
    );
    let timed = match origin {
        Origin::Client => counted::count(intake, message, &destination, parsed, (1, appended.size_bytes)),
        Origin::Broker => None,
    };
    let due_at_ms = match destination.wait {
        Some(Wait::Time(due_at_ms)) => Some(due_at_ms),
        _ => None,
    };
    if let Some(due_at_ms) = due_at_ms.filter(|_| parsed.recalls) {
        intake.recalls().recall_was_put(appended.queue_offset, due_at_ms);
        if intake.store().now_ms() >= due_at_ms {
            return Err(Refusal::LateRecall); // the message may have come while this was stored
        }
    }
    Ok(Stored {
        queue_id: destination.queue_id,
        queue_offset: appended.queue_offset,
        places: Places::One(appended.physical_offset),
        size_bytes: appended.size_bytes,
        unique_key: parsed.unique_key.map(Cow::Borrowed).or(new_key.map(Cow::Owned)),
        due_at_ms,
        ack: AckCondition { timed, ..condition(intake, &destination.topic, parsed, appended.end) },
    })
}

/// Appends one record to its queue, or to the one in which it waits.
///
/// # Source
/// docs/reference/store-format.md 8.2, 8.4 and 9.2.
fn place(
    intake: &Intake<impl Disk>,
    origin: Origin,
    message: &NewMessage<'_>,
    destination: &Destination,
    parsed: &ParsedProperties<'_>,
    own: &Own<'_>,
    new_key: Option<&str>,
) -> Result<Appended, Refusal> {
    let (topic, queue_id) = (&destination.topic.name, destination.queue_id);
    let of = |properties| record(origin, message, destination, properties, own.may_have_crc);
    let appended = match destination.wait {
        None => intake.store().append(&of(own.text)),
        Some(Wait::Level(level)) => {
            let levels = 1..=DelayLevels::MAX_COUNT;
            assert!(
                levels.contains(&level),
                "the delay level of a waiting message is within its limits: {level}"
            );
            let properties = parsed.delayed(own, level, topic, queue_id)?;
            let (topic, queue_id) = (system::SCHEDULE_TOPIC, level - 1);
            intake.store().append(&NewRecord { topic, queue_id, ..of(&properties) })
        }
        Some(Wait::Time(due_at_ms)) => {
            let properties = parsed.timed(own, due_at_ms, topic, queue_id)?;
            intake.store().append(&NewRecord { topic: system::TIMER_TOPIC, queue_id: 0, ..of(&properties) })
        }
        Some(Wait::Transaction) => {
            let properties = parsed.half(own, new_key, topic, queue_id)?;
            let record = of(&properties);
            let sys_flag = record.sys_flag & !sys_flag::TRANSACTION_MASK;
            intake.store().append(&NewRecord { topic: system::HALF_TOPIC, queue_id: 0, sys_flag, ..record })
        }
    };
    Ok(appended?)
}

/// Items of a batch get no properties but their own.
fn append_batch<'a>(
    intake: &Intake<impl Disk>,
    origin: Origin,
    message: &NewMessage<'a>,
    destination: Destination,
    parsed: &ParsedProperties<'a>,
) -> Result<Stored<'a>, Refusal> {
    let topic = &destination.topic.name;
    if topic.starts_with(system::RETRY_PREFIX) || topic.starts_with(system::DLQ_PREFIX) {
        return Err(Refusal::BatchToRetryTopic { topic: topic.clone() });
    }
    check_batched(parsed.feature)?;
    let (messages, may_have_crc) = check_items(intake, origin, message)?;
    let appended = intake.store().append_batch(&record(origin, message, &destination, &[], may_have_crc))?;
    let (places, end) = (&appended.physical_offsets, appended.end);
    assert!(
        places.last().is_some_and(|last| *last < end),
        "a batch that is stored has a record before {end}"
    );
    assert_eq!(places.len(), messages, "each message of a batch has its record");
    let timed = match origin {
        Origin::Client => {
            counted::count(intake, message, &destination, parsed, (messages, appended.size_bytes))
        }
        Origin::Broker => None,
    };
    Ok(Stored {
        queue_id: destination.queue_id,
        queue_offset: appended.first_queue_offset,
        places: Places::Many(appended.physical_offsets),
        size_bytes: appended.size_bytes,
        unique_key: parsed.unique_key.map(Cow::Borrowed),
        due_at_ms: None,
        ack: AckCondition { timed, ..condition(intake, &destination.topic, parsed, appended.end) },
    })
}

/// Checks the messages of a batch: how many there are, and whether one may have a checksum of its record.
///
/// # Errors
/// [`Refusal::OfBatch`] names the first message that is refused.
fn check_items(
    intake: &Intake<impl Disk>,
    origin: Origin,
    message: &NewMessage<'_>,
) -> Result<(usize, bool), Refusal> {
    let (mut messages, mut may_have_crc) = (0, false);
    for item in batch::items(message.body) {
        let checked = item.map_err(|error| Refusal::BadBatch { reason: error.to_string() });
        let checked = checked.and_then(|item| {
            let of_item = parse(item.properties, origin, message.delay);
            check_batched(of_item.feature)?;
            if item.body.is_empty() {
                return Err(Refusal::NoBody);
            }
            reserve::check(item.properties, 0)?;
            reserve::check_file(item.body, item.properties, intake.store().config().commit_log_file_size)?;
            Ok(of_item.has_crc())
        });
        let index = messages;
        may_have_crc |= checked.map_err(|refusal| Refusal::OfBatch { index, refusal: Box::new(refusal) })?;
        messages += 1;
    }
    Ok((messages, may_have_crc))
}

/// # Errors
/// No batch can have what its message asks for.
fn check_batched(feature: Option<Feature>) -> Result<(), Refusal> {
    match feature {
        None => Ok(()),
        Some(Feature::Level(_) | Feature::Timer(_)) => Err(Refusal::DelayedBatch),
        Some(Feature::Transaction) => Err(Refusal::TransactionalBatch),
    }
}

fn record<'a>(
    origin: Origin,
    message: &NewMessage<'a>,
    destination: &'a Destination,
    properties: &'a [u8],
    may_have_crc: bool,
) -> NewRecord<'a> {
    let multi_tags = match destination.topic.filter_type {
        TopicFilterType::MultiTag if origin == Origin::Client => sys_flag::MULTI_TAGS,
        _ => 0,
    };
    NewRecord {
        topic: &destination.topic.name,
        queue_id: destination.queue_id,
        flag: message.flag,
        sys_flag: message.sys_flag & !(sys_flag::BORN_HOST_V6 | sys_flag::STORE_HOST_V6) | multi_tags,
        born_at_ms: message.born_at_ms,
        born_host: message.born_host,
        reconsume_times: message.reconsume_times,
        prepared_transaction_offset: message.prepared_transaction_offset.unwrap_or_default(),
        body: message.body,
        properties,
        may_have_crc,
    }
}

/// Condition for the answer to a record that ends at `end`.
fn condition(
    intake: &Intake<impl Disk>,
    topic: &TopicConfig,
    parsed: &ParsedProperties<'_>,
    end: PhysicalOffset,
) -> AckCondition {
    let waits_for_slaves =
        intake.slaves().are_waited_for() && !parsed.answer_before_flush && !planted::has(Bug::AckBeforeSlave);
    AckCondition {
        flushed: waits_for_flush(intake, topic, parsed).then_some(end),
        replicated: waits_for_slaves.then_some(end),
        ..AckCondition::default()
    }
}

/// Whether the answer comes after the flush: as the message says, else its topic, else the broker.
///
/// # Source
/// docs/reference/store-format.md 6.1 for the message; a topic's `flush.type` is not Apache's.
fn waits_for_flush(intake: &Intake<impl Disk>, topic: &TopicConfig, parsed: &ParsedProperties<'_>) -> bool {
    let by_topic = topic_attribute::flush_type(topic).map(|kind| kind == FlushMode::Sync);
    let by_topic = by_topic.filter(|_| !planted::has(Bug::TopicFlushIgnored));
    !parsed.answer_before_flush && by_topic.unwrap_or(intake.is_sync_flush())
}

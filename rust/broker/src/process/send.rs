//! Storing messages.
//!
//! # Source
//! docs/reference/protocol.md 2.3.1, docs/reference/store-format.md 6.6.

use std::cell::RefCell;
use std::sync::Arc;

use rocketpy_env::failpoint::{self, Point};
use rocketpy_env::random_u64;
use rocketpy_model::{PhysicalOffset, TopicConfig, TopicFilterType, name, perm, sys_flag, system};
use rocketpy_protocol::code::response;
use rocketpy_protocol::header::{SendMessageRequestHeader, SendMessageResponseHeader};
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_protocol::{Command, Header, batch};
use rocketpy_remoting::{Connection, Reply, Response};
use rocketpy_store::NewRecord;

use super::blocking;
use super::topic::ANNOUNCE_WAIT;
use crate::message_properties::{DelayLevel, PropertyFacts, check_sys_flag, inspect, stored};
use crate::refusal::Refusal;
use crate::registration::Announced;
use crate::shared::Shared;
use crate::{FlushMode, topic_attribute};

/// A topic, and the announcement to wait for when it is new.
type Created = (Arc<TopicConfig>, Option<Announced>);

/// Where a message goes after the rules for topics, queues and retries.
struct Destination {
    topic: Arc<TopicConfig>,
    queue_id: u32,
    /// Dead letters wait for nothing any more.
    delay_level: DelayLevel,
    /// For a topic that this message made: when the name servers know it.
    announced: Option<Announced>,
}

/// What was stored: the answer, and what a flush has to reach before it may leave.
struct Stored {
    response: Response,
    end: PhysicalOffset,
    waits_for_flush: bool,
    announced: Option<Announced>,
}

thread_local! {
    /// Properties of the message that is being stored, kept for its room.
    static PROPERTIES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Stores the message or the batch, and answers as the flush policy says.
pub(super) fn send(shared: &Arc<Shared>, connection: &Connection, request: &Command, reply: Reply) {
    let mut stored = match store(shared, connection, request) {
        Ok(stored) => stored,
        Err(refusal) => {
            shared.stats.put_failed();
            return reply.send(refusal.response());
        }
    };
    let Some(announced) = stored.announced.take() else {
        return acknowledge(shared, stored, reply);
    };
    // The sender of a new topic's first message may ask for its route as soon as it has the answer.
    let shared = shared.clone();
    tokio::spawn(async move {
        if let Some(registrar) = shared.registrar() {
            registrar.taken(&announced, ANNOUNCE_WAIT).await;
        }
        acknowledge(&shared, stored, reply);
    });
}

/// Answers now, or when the flush has covered the message.
fn acknowledge(shared: &Shared, stored: Stored, reply: Reply) {
    let Stored { response, end, waits_for_flush, .. } = stored;
    if !waits_for_flush {
        failpoint::reach(Point::BeforeAcknowledge);
        return reply.send(response);
    }
    shared.held_sends.hold(end, shared.config.sync_flush_timeout, reply, response);
    shared.store.request_flush(end);
    // The flush may have come between the append and the hold.
    shared.held_sends.flushed(shared.store.flushed_offset());
}

fn store(shared: &Shared, connection: &Connection, request: &Command) -> Result<Stored, Refusal> {
    let header = SendMessageRequestHeader::of(request)?;
    let config = &shared.config;
    if config.broker_permission & perm::WRITE == 0 {
        let (broker, permission) = (config.broker_name.clone(), config.broker_permission);
        return Err(Refusal::BrokerNotWritable { broker, permission });
    }
    let destination = destination(shared, &header)?;
    check_sys_flag(header.sys_flag)?;
    if request.body.is_empty() {
        return Err(Refusal::NoBody);
    }
    if request.body.len() > config.store.max_message_size as usize {
        let (size_bytes, limit_bytes) = (request.body.len(), config.store.max_message_size as usize);
        return Err(Refusal::BodyTooLong { size_bytes, limit_bytes });
    }
    let properties = header.properties.unwrap_or_default().as_bytes();
    let facts = inspect(properties, destination.delay_level)?;
    if header.is_batch() {
        return store_batch(shared, connection, request, &header, destination, &facts);
    }
    let new_key = facts.unique_key.is_none().then(|| shared.next_unique_key());
    let appended = PROPERTIES.with_borrow_mut(|text| {
        stored(properties, &facts, new_key.as_deref(), &shared.property_suffix, text)?;
        Ok::<_, Refusal>(shared.store.append(&record(connection, request, &header, &destination, text))?)
    })?;
    shared.stats.put(1, u64::from(appended.size_bytes));
    let mut id = String::with_capacity(56);
    write_id(shared, appended.physical_offset, &mut id);
    let response = answer(
        shared,
        &Answered {
            message_ids: &id,
            queue_id: destination.queue_id,
            queue_offset: appended.queue_offset.get(),
            unique_key: facts.unique_key.or(new_key.as_deref()),
            batch_key: None,
        },
    );
    let waits_for_flush = waits_for_flush(shared, &destination.topic, &facts);
    Ok(Stored { response, end: appended.end, waits_for_flush, announced: destination.announced })
}

/// Whether the answer comes after the flush: the message's own wish first, then its topic's, then the broker's.
///
/// # Source
/// docs/reference/store-format.md 6.1 for the message; a topic's `flush.type` is not Apache's.
fn waits_for_flush(shared: &Shared, topic: &TopicConfig, facts: &PropertyFacts<'_>) -> bool {
    let by_topic = topic_attribute::flush_type(topic).map(|kind| kind == FlushMode::Sync);
    !facts.answer_before_flush && by_topic.unwrap_or(shared.sync_flush)
}

fn record<'a>(
    connection: &Connection,
    request: &'a Command,
    header: &SendMessageRequestHeader<'_>,
    destination: &'a Destination,
    properties: &'a [u8],
) -> NewRecord<'a> {
    let multi_tags = match destination.topic.filter_type {
        TopicFilterType::MultiTag => sys_flag::MULTI_TAGS,
        TopicFilterType::SingleTag => 0,
    };
    NewRecord {
        topic: &destination.topic.name,
        queue_id: destination.queue_id,
        flag: header.flag,
        sys_flag: header.sys_flag & !(sys_flag::BORN_HOST_V6 | sys_flag::STORE_HOST_V6) | multi_tags,
        born_at_ms: header.born_timestamp,
        born_host: connection.peer(),
        reconsume_times: header.reconsume_times.unwrap_or(0),
        prepared_transaction_offset: PhysicalOffset::ZERO,
        body: &request.body,
        properties,
    }
}

/// The items of a batch get no properties but their own.
fn store_batch(
    shared: &Shared,
    connection: &Connection,
    request: &Command,
    header: &SendMessageRequestHeader<'_>,
    destination: Destination,
    facts: &PropertyFacts<'_>,
) -> Result<Stored, Refusal> {
    let topic = &destination.topic.name;
    if topic.starts_with(system::RETRY_PREFIX) || topic.starts_with(system::DLQ_PREFIX) {
        return Err(Refusal::BatchToRetryTopic { topic: topic.clone() });
    }
    for item in batch::items(&request.body) {
        let item = item.map_err(|error| Refusal::BadBatch { reason: error.to_string() })?;
        inspect(item.properties, DelayLevel::Refused)?;
    }
    let appended = shared.store.append_batch(&record(connection, request, header, &destination, &[]))?;
    shared.stats.put(appended.physical_offsets.len() as u64, u64::from(appended.size_bytes));
    let mut ids = String::with_capacity(appended.physical_offsets.len() * 33);
    for offset in &appended.physical_offsets {
        if !ids.is_empty() {
            ids.push(',');
        }
        write_id(shared, *offset, &mut ids);
    }
    let response = answer(
        shared,
        &Answered {
            message_ids: &ids,
            queue_id: destination.queue_id,
            queue_offset: appended.first_queue_offset.get(),
            unique_key: facts.unique_key,
            batch_key: facts.unique_key,
        },
    );
    let waits_for_flush = waits_for_flush(shared, &destination.topic, facts);
    Ok(Stored { response, end: appended.end, waits_for_flush, announced: destination.announced })
}

fn destination(shared: &Shared, header: &SendMessageRequestHeader<'_>) -> Result<Destination, Refusal> {
    let (topic, announced) = match shared.topics.get(header.topic) {
        Some(topic) if !system::is_send_denied(header.topic) => (topic, None),
        Some(_) => return Err(Refusal::SendDenied { topic: header.topic.to_owned() }),
        None => create(shared, header)?,
    };
    let queue_id = choose_queue(&topic, header.queue_id)?;
    let destination = Destination { queue_id, topic, delay_level: DelayLevel::Refused, announced };
    match system::group_of_retry_topic(header.topic) {
        Some(group) => after_retries(shared, header, group, destination),
        None => Ok(destination),
    }
}

/// Creates a topic that is missing, from the template that the sender names.
fn create(shared: &Shared, header: &SendMessageRequestHeader<'_>) -> Result<Created, Refusal> {
    name::check_topic(header.topic)?;
    if system::is_send_denied(header.topic) {
        return Err(Refusal::SendDenied { topic: header.topic.to_owned() });
    }
    let template = shared.topics.get(header.default_topic).filter(|template| template.perm.is_inherited());
    let topic = match template {
        Some(template) => {
            let queues =
                u32::try_from(header.default_topic_queue_nums).unwrap_or(0).min(template.write_queues);
            TopicConfig::new(header.topic, queues.max(1)).with_perm(template.perm.without(perm::INHERIT))
        }
        None if header.topic.starts_with(system::RETRY_PREFIX) => TopicConfig::new(header.topic, 1),
        None => return Err(Refusal::NoTopic { topic: header.topic.to_owned() }),
    };
    create_and_announce(shared, topic)
}

fn create_and_announce(shared: &Shared, topic: TopicConfig) -> Result<Created, Refusal> {
    let name = topic.name.clone();
    let change = blocking(|| shared.topics.create(vec![topic]))?;
    let announced = change.zip(shared.registrar()).map(|(change, registrar)| registrar.announce(&change));
    let topic = shared.topics.get(&name).ok_or(Refusal::NoTopic { topic: name })?;
    Ok((topic, announced))
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

/// A message to a retry topic that was tried too often, or whose group consumes in order, goes to the dead letters.
///
/// # Source
/// docs/reference/protocol.md 2.3.9.
fn after_retries(
    shared: &Shared,
    header: &SendMessageRequestHeader<'_>,
    group: &str,
    destination: Destination,
) -> Result<Destination, Refusal> {
    let config = match shared.groups.get(group) {
        Some(config) => config,
        None => blocking(|| shared.groups.get_or_create(group))?,
    };
    if header.is_batch() {
        return Err(Refusal::BatchToRetryTopic { topic: header.topic.to_owned() });
    }
    let limit = header.max_reconsume_times.unwrap_or(config.retry_max_times);
    let is_spent = header.reconsume_times.unwrap_or(0) > limit;
    if !is_spent && !shared.queue_locks.is_any_held(group, rocketpy_env::now_ms()) {
        return Ok(destination);
    }
    let dead_letters = system::dlq_topic(group);
    let (topic, announced) = match shared.topics.get(&dead_letters) {
        Some(topic) => (topic, None),
        None => create_and_announce(shared, TopicConfig::new(dead_letters, 1))?,
    };
    Ok(Destination { topic, queue_id: 0, delay_level: DelayLevel::Dropped, announced })
}

fn write_id(shared: &Shared, physical_offset: PhysicalOffset, out: &mut String) {
    OffsetMessageId { host: shared.store_host(), physical_offset }.write(out);
}

/// What the answer to a stored message says.
struct Answered<'a> {
    message_ids: &'a str,
    queue_id: u32,
    queue_offset: u64,
    unique_key: Option<&'a str>,
    batch_key: Option<&'a str>,
}

fn answer(shared: &Shared, answered: &Answered<'_>) -> Response {
    let mut command = super::response(response::SUCCESS);
    let header = SendMessageResponseHeader {
        msg_id: answered.message_ids,
        queue_id: answered.queue_id as i32,
        queue_offset: super::offset::signed(answered.queue_offset),
        transaction_id: answered.unique_key,
        batch_uniq_id: answered.batch_key,
        recall_handle: None,
        region: Some(&shared.config.region_id),
        trace_on: Some(if shared.config.trace_on { "true" } else { "false" }),
    };
    header.write(&mut command.ext);
    command.into()
}

//! SEND_MESSAGE: a client's message, single or in a batch.
//!
//! # Source
//! docs/reference/protocol.md 2.3.1, docs/reference/store-format.md 6.6.

use std::sync::Arc;

use rocketpy_protocol::code::response;
use rocketpy_protocol::handle::RecallHandle;
use rocketpy_protocol::header::{SendMessageRequestHeader, SendMessageResponseHeader};
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_protocol::{Command, Header};
use rocketpy_remoting::{Connection, Reply, Response};

use super::new_topic;
use crate::BrokerConfig;
use crate::call::{Call, response as respond};
use crate::ground::Ground;
use crate::put::{
    Acks, Delay, Intake, NewMessage, NotPut, Origin, Stored, Template, acknowledge, put, put_and_make,
};
use crate::refusal::Refusal;

/// Maximum number of characters of one offset message id, with an IPv6 host.
const MESSAGE_ID_CHARS: usize = 56;

/// Stores the message or the batch, and answers as the flush policy says.
pub(super) fn send(Call { desk, connection, request }: Call<'_>, reply: Reply) {
    let header = match SendMessageRequestHeader::of(request) {
        Ok(header) => header,
        Err(error) => {
            desk.ground.metrics().put_failed();
            return reply.send(Refusal::from(error).response());
        }
    };
    if desk.rooms.sends_to_new_topics.has(header.topic) {
        return new_topic::wait(desk, header.topic, request, reply);
    }
    match put(&desk.intake, Origin::Client, &message(&header, connection, request)) {
        Ok(stored) => acknowledge_stored(&desk.ground, &desk.acks, header.topic, stored, reply),
        Err(NotPut::Refused(refusal)) => reply.send(refusal.response()),
        Err(NotPut::Missing(_)) => new_topic::wait(desk, header.topic, request, reply),
    }
}

/// Stores the message or the batch after what is missing for it was made, and answers.
pub(super) async fn put_and_answer(intake: &Intake, acks: &Arc<Acks>, request: &Command, reply: Reply) {
    let header = match SendMessageRequestHeader::of(request) {
        Ok(header) => header,
        Err(error) => return reply.send(Refusal::from(error).response()),
    };
    let connection = reply.connection().clone();
    match put_and_make(intake, Origin::Client, &message(&header, &connection, request)).await {
        Ok(stored) => acknowledge_stored(intake.ground(), acks, header.topic, stored, reply),
        Err(refusal) => reply.send(refusal.response()),
    }
}

fn acknowledge_stored(ground: &Ground, acks: &Arc<Acks>, topic: &str, stored: Stored<'_>, reply: Reply) {
    let response = answer(ground, topic, &stored);
    acknowledge(acks, stored.ack, reply, response);
}

pub(super) fn message<'a>(
    header: &SendMessageRequestHeader<'a>,
    connection: &Connection,
    request: &'a Command,
) -> NewMessage<'a> {
    NewMessage {
        topic: header.topic,
        template: Some(Template { topic: header.default_topic, queues: header.default_topic_queue_nums }),
        queue_id: header.queue_id,
        flag: header.flag,
        sys_flag: header.sys_flag,
        born_at_ms: header.born_timestamp,
        born_host: connection.peer(),
        reconsume_times: header.reconsume_times.unwrap_or(0),
        max_reconsume_times: header.max_reconsume_times,
        prepared_transaction_offset: None,
        delay: Delay::Asked,
        is_batch: header.is_batch(),
        body: &request.body,
        properties: header.properties.unwrap_or_default().as_bytes(),
    }
}

pub(super) fn answer(ground: &Ground, topic: &str, stored: &Stored<'_>) -> Response {
    let places = stored.places.as_slice();
    let mut message_ids = String::with_capacity(MESSAGE_ID_CHARS.max(places.len() * 33));
    for place in places {
        if !message_ids.is_empty() {
            message_ids.push(',');
        }
        OffsetMessageId { host: ground.store_host(), physical_offset: *place }.write(&mut message_ids);
    }
    let unique_key = stored.unique_key.as_deref();
    let config = ground.config();
    let recall_handle = recall_handle(&config, topic, stored).map(|handle| handle.to_string());
    let header = SendMessageResponseHeader {
        msg_id: &message_ids,
        queue_id: stored.queue_id as i32,
        queue_offset: stored.queue_offset.to_wire(),
        transaction_id: unique_key,
        batch_uniq_id: None, // of inner-batch queues: with it, Java reports one id for a whole batch
        recall_handle: recall_handle.as_deref(),
        region: Some(&config.region_id),
        trace_on: Some(if config.trace_on { "true" } else { "false" }),
    };
    let mut command = respond(response::SUCCESS);
    header.write(&mut command.ext);
    command.into()
}

/// Recall handle of a waiting message.
fn recall_handle(config: &BrokerConfig, topic: &str, stored: &Stored<'_>) -> Option<RecallHandle> {
    let deliver_at_ms = stored.due_at_ms?;
    let unique_key = stored.unique_key.as_deref()?;
    // The names stand in it with spaces between.
    if !config.recalls || unique_key.contains(' ') {
        return None;
    }
    Some(RecallHandle {
        topic: topic.to_owned(),
        broker_name: config.broker_name.clone(),
        deliver_at_ms,
        unique_key: unique_key.to_owned(),
    })
}

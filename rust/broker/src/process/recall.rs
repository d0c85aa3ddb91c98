//! RECALL_MESSAGE: a producer takes back a message that waits for its time.
//!
//! # Source
//! docs/reference/protocol.md 2.3.13, docs/reference/store-format.md 8.5.

use std::net::SocketAddr;
use std::sync::Arc;

use rocketpy_env::Disk;
use rocketpy_model::{Properties, property, system};
use rocketpy_protocol::code::response;
use rocketpy_protocol::handle::RecallHandle;
use rocketpy_protocol::header::{RecallMessageRequestHeader, RecallMessageResponseHeader, key};
use rocketpy_protocol::{Header, properties_text};
use rocketpy_remoting::Reply;

use crate::call::{Call, response as respond, without_body};
use crate::put::{AckCondition, Delay, NewMessage, Origin, acknowledge, put_and_make};
use crate::refusal::Refusal;
use crate::shared::Shared;

/// The body of a recall: no message is without one.
const BODY: &[u8] = b"0";

/// Stores the recall, and answers when it is durable: who got the answer counts on it.
pub(super) fn recall(Call { shared, request, .. }: Call<'_>, reply: Reply) {
    let (owner, request) = (shared.clone(), without_body(request.clone()));
    shared.tasks.run(async move {
        let header = RecallMessageRequestHeader::read(&request.ext).map_err(Refusal::from);
        let recalled = match header {
            Ok(header) => store(&owner, &header, reply.connection().peer()).await,
            Err(refusal) => Err(refusal),
        };
        match recalled {
            Ok((ack, unique_key)) => {
                let mut answer = respond(response::SUCCESS);
                RecallMessageResponseHeader { msg_id: &unique_key }.write(&mut answer.ext);
                answer.ext.push(key::MSG_REGION, &owner.config().region_id); // without it Apache's client traces no recall
                acknowledge(&owner, ack, reply, answer.into());
            }
            Err(refusal) => reply.send(refusal.response()),
        }
    });
}

pub(crate) async fn store(
    shared: &Arc<Shared<impl Disk>>,
    header: &RecallMessageRequestHeader<'_>,
    born_host: SocketAddr,
) -> Result<(AckCondition, String), Refusal> {
    let handle = checked(shared, header)?;
    let mut properties = Vec::new();
    if Properties::new().set(property::UNIQUE_KEY, &handle.unique_key).is_err() {
        return Err(bad(header.recall_handle, "its message id cannot be stored"));
    }
    properties_text::push(&mut properties, property::TIMER_DEL_UNIQUE_KEY, &handle.unique_key);
    properties_text::push(&mut properties, property::UNIQUE_KEY, &handle.unique_key);
    properties_text::push(&mut properties, property::TIMER_DELIVER_MS, &handle.deliver_at_ms.to_string());
    let message = NewMessage {
        topic: &handle.topic,
        template: None,
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_at_ms: shared.store.now_ms(),
        born_host,
        reconsume_times: 0,
        max_reconsume_times: None,
        prepared_transaction_offset: None,
        delay: Delay::Asked,
        is_batch: false,
        body: BODY,
        properties: &properties,
    };
    let stored = put_and_make(shared, Origin::Broker, &message).await?;
    let end = shared.store.max_physical_offset();
    let replicated = shared.slaves.are_waited_for().then_some(end);
    let condition = AckCondition { flushed: Some(end), replicated, announced: stored.ack.announced };
    Ok((condition, handle.unique_key))
}

/// The handle of a message that waits here.
fn checked(
    shared: &Shared<impl Disk>,
    header: &RecallMessageRequestHeader<'_>,
) -> Result<RecallHandle, Refusal> {
    let broker = &shared.config().broker_name;
    if !shared.config().recalls {
        return Err(Refusal::RecallsOff { broker: broker.clone() });
    }
    let text = header.recall_handle;
    let handle: RecallHandle = text.parse().map_err(|error| bad(text, &format!("{error}")))?;
    if handle.topic != header.topic {
        return Err(bad(text, &format!("it is of topic {}", handle.topic)));
    }
    if handle.broker_name != *broker {
        return Err(bad(text, &format!("it is of broker {}, this is {broker}", handle.broker_name)));
    }
    if system::is_send_denied(&handle.topic) || system::group_of_retry_topic(&handle.topic).is_some() {
        return Err(bad(text, "nobody can send to its topic"));
    }
    let wait_ms = handle.deliver_at_ms.saturating_sub(shared.store.now_ms());
    if wait_ms <= 0 {
        return Err(bad(text, "its time is over"));
    }
    if u128::from(wait_ms.unsigned_abs()) > shared.config().max_timer_delay.as_millis() {
        return Err(bad(text, "its time is further away than timerMaxDelaySec"));
    }
    Ok(handle)
}

fn bad(handle: &str, reason: &str) -> Refusal {
    Refusal::RecallHandle { handle: handle.chars().take(128).collect(), reason: reason.to_owned() }
}

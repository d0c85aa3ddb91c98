//! Recall: a producer takes back a message that waits for its time.
//!
//! # Source
//! docs/reference/protocol.md 2.3.13, docs/reference/store-format.md 8.5.

use std::net::SocketAddr;

use rocketpy_env::Disk;
use rocketpy_model::{Properties, property, system};
use rocketpy_protocol::handle::RecallHandle;
use rocketpy_protocol::properties_text;

use crate::put::{AckCondition, Delay, Intake, NewMessage, Origin, put_and_make};
use crate::refusal::Refusal;

/// The body of a recall: no message is without one.
const BODY: &[u8] = b"0";

/// A message to take back.
#[derive(Debug, Clone)]
pub(crate) struct Recall {
    pub(crate) topic: String,
    /// Recall handle that the producer received with the receipt.
    pub(crate) handle: String,
    /// The address of whoever recalls it.
    pub(crate) born_host: SocketAddr,
}

/// Stores a recall. Returns what the answer waits for, and the unique key of the message.
///
/// # Errors
/// The message is not stored.
pub(crate) async fn store(
    intake: &Intake<impl Disk>,
    asked: &Recall,
) -> Result<(AckCondition, String), Refusal> {
    let handle = checked(intake, asked)?;
    let mut properties = Vec::new();
    if Properties::new().set(property::UNIQUE_KEY, &handle.unique_key).is_err() {
        return Err(bad(&asked.handle, "its message id is not storable"));
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
        born_at_ms: intake.store().now_ms(),
        born_host: asked.born_host,
        reconsume_times: 0,
        max_reconsume_times: None,
        prepared_transaction_offset: None,
        delay: Delay::Asked,
        is_batch: false,
        body: BODY,
        properties: &properties,
    };
    let stored = put_and_make(intake, Origin::Broker, &message).await?;
    let end = intake.store().max_physical_offset();
    let replicated = intake.slaves().are_waited_for().then_some(end);
    let condition =
        AckCondition { flushed: Some(end), replicated, announced: stored.ack.announced, timed: None };
    Ok((condition, handle.unique_key))
}

/// The handle of a message that waits here.
fn checked(intake: &Intake<impl Disk>, asked: &Recall) -> Result<RecallHandle, Refusal> {
    let config = intake.config();
    let broker = &config.broker_name;
    if !config.recalls {
        return Err(Refusal::RecallsOff { broker: broker.clone() });
    }
    let text = &asked.handle;
    let handle: RecallHandle = text.parse().map_err(|error| bad(text, &format!("{error}")))?;
    if handle.topic != asked.topic {
        return Err(bad(text, &format!("it belongs to topic {}", handle.topic)));
    }
    if handle.broker_name != *broker {
        return Err(bad(text, &format!("it belongs to broker {}, this is {broker}", handle.broker_name)));
    }
    if system::is_send_denied(&handle.topic) || system::group_of_retry_topic(&handle.topic).is_some() {
        return Err(bad(text, "its topic does not accept messages"));
    }
    let wait_ms = handle.deliver_at_ms.saturating_sub(intake.store().now_ms());
    if wait_ms <= 0 {
        return Err(bad(text, "its delivery time has passed"));
    }
    if u128::from(wait_ms.unsigned_abs()) > config.max_timer_delay.as_millis() {
        return Err(bad(text, "its delivery time is later than timerMaxDelaySec allows"));
    }
    Ok(handle)
}

fn bad(handle: &str, reason: &str) -> Refusal {
    Refusal::RecallHandle { handle: handle.chars().take(128).collect(), reason: reason.to_owned() }
}

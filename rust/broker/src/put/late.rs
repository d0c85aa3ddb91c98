//! Delivery of a message that has waited: its record is stored again where the message belongs.

use rocketpy_env::Disk;
use rocketpy_model::{property, system};
use rocketpy_protocol::code::response;
use rocketpy_protocol::record::RecordView;
use rocketpy_store::StoreError;
use tokio::runtime::Handle;

use super::{Intake, StoredAgain};
use crate::refusal::Refusal;

/// Result for a due message.
#[derive(Debug)]
pub(crate) enum Late {
    Delivered,
    /// Reason why the message can never be delivered.
    Dropped(String),
    /// Its record cannot be read for now; others continue.
    Unreadable(StoreError),
}

/// Checks that a waiting message is for the topic that is there now.
///
/// # Errors
/// It was stored for an earlier topic of that name, and went with it.
pub(crate) fn check_creation(
    intake: &Intake<impl Disk>,
    topic: &str,
    record: &RecordView<'_>,
) -> Result<(), Refusal> {
    match intake.ground().creations().is_earlier(topic, record.physical_offset) {
        true => Err(Refusal::EarlierTopic { topic: topic.to_owned() }),
        false => Ok(()),
    }
}

/// Stores the message of a record in the topic that it names. Blocks; the put waits on the runtime.
///
/// # Errors
/// The message could not be stored for now.
pub(crate) fn deliver_late<'a>(
    intake: &Intake<impl Disk>,
    runtime: &Handle,
    record: &RecordView<'a>,
    change: impl FnOnce(StoredAgain<'a>) -> Result<StoredAgain<'a>, Refusal>,
) -> Result<Late, Refusal> {
    let dropped = |reason: &str| Ok(Late::Dropped(reason.to_owned()));
    let Some(topic) = record.property(property::REAL_TOPIC) else {
        return dropped("the record has no topic");
    };
    let queue_id = record.property(property::REAL_QUEUE_ID).and_then(|id| id.parse::<i32>().ok());
    if topic == system::HALF_TOPIC {
        return dropped("it is the half of a transaction");
    }
    let again = check_creation(intake, topic, record)
        .and_then(|()| change(StoredAgain::of(record).to(topic, queue_id.unwrap_or(-1))));
    match again.and_then(|again| runtime.block_on(again.put_or_beside(intake))) {
        Ok(_) => Ok(Late::Delivered),
        Err(refusal) if is_lasting(&refusal) => Ok(Late::Dropped(refusal.to_string())),
        Err(refusal) => Err(refusal),
    }
}

/// Whether the same put is refused for ever, and would keep back all that wait behind it.
pub(crate) fn is_lasting(refusal: &Refusal) -> bool {
    matches!(
        refusal.code(),
        response::INVALID_PARAMETER
            | response::MESSAGE_ILLEGAL
            | response::TOPIC_NOT_EXIST
            | response::NO_PERMISSION
    )
}

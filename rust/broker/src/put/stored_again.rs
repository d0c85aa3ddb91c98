//! A stored record that becomes a new message.
//!
//! Whoever stores a message again uses it: send-back (docs/reference/protocol.md 2.3.8), the delivery of a delayed message
//! (docs/reference/store-format.md 8.3) and the commit of a transaction (9.3).

use rocketpy_env::Disk;
use rocketpy_model::{PhysicalOffset, Properties, property, sys_flag};
use rocketpy_protocol::properties_text::{self, MAX_BYTES};
use rocketpy_protocol::record::{CRC_PROPERTY_BYTES, RecordView};

use super::{AckCondition, Delay, Intake, NewMessage, Origin, Stored, put_and_make};
use crate::refusal::Refusal;

/// A record on its way back into the store.
///
/// Body, flag, sysFlag, born time and born host stay, and whatever is not changed below. Store time, store host and both
/// offsets are those of the new record.
#[derive(Debug, Clone)]
pub(crate) struct StoredAgain<'a> {
    record: RecordView<'a>,
    topic: &'a str,
    queue_id: i32,
    sys_flag: i32,
    reconsume_times: i32,
    prepared_transaction_offset: Option<PhysicalOffset>,
    delay: Delay,
    properties: Vec<u8>,
}

impl<'a> StoredAgain<'a> {
    /// The record as it is. It has waited already: its delay properties no longer count.
    ///
    /// The store writes the checksum of the new record in the place of the old one's.
    pub(crate) fn of(record: &RecordView<'a>) -> Self {
        Self {
            record: *record,
            topic: record.topic,
            queue_id: i32::try_from(record.queue_id).unwrap_or(i32::MAX),
            sys_flag: record.sys_flag,
            reconsume_times: record.reconsume_times,
            prepared_transaction_offset: None,
            delay: Delay::Over,
            properties: record.properties.to_vec(),
        }
    }

    /// Goes to another queue; a negative one lets the broker choose.
    pub(crate) fn to(self, topic: &'a str, queue_id: i32) -> Self {
        Self { topic, queue_id, ..self }
    }

    /// Says how often it was delivered.
    pub(crate) fn with_reconsume_times(self, reconsume_times: i32) -> Self {
        Self { reconsume_times, ..self }
    }

    /// Sets a property, in the place of one that has the name already.
    ///
    /// # Errors
    /// The value is empty or holds a separator: no record can hold it.
    pub(crate) fn with_property(self, name: &'static str, value: &str) -> Result<Self, Refusal> {
        if Properties::new().set(name, value).is_err() {
            let wanted = "a text without control characters 1 and 2";
            return Err(Refusal::Value { field: name, wanted, value: value.to_owned() });
        }
        let mut changed = self.without_property(name);
        properties_text::push(&mut changed.properties, name, value);
        Ok(changed)
    }

    /// Sets a property that only informs, unless the record has no room for it.
    ///
    /// # Errors
    /// As [`Self::with_property`].
    pub(crate) fn with_fact(self, name: &'static str, value: &str) -> Result<Self, Refusal> {
        let size_bytes = self.properties.len() + name.len() + value.len() + 2 + CRC_PROPERTY_BYTES;
        if size_bytes > MAX_BYTES { Ok(self) } else { self.with_property(name, value) }
    }

    /// Takes a property out.
    pub(crate) fn without_property(self, name: &str) -> Self {
        if properties_text::get_bytes(&self.properties, name).is_none() {
            return self;
        }
        let mut properties = Vec::with_capacity(self.properties.len());
        properties_text::copy_without(&self.properties, name, &mut properties);
        Self { properties, ..self }
    }

    /// Waits for a delay level before it is delivered; 1 is the shortest.
    ///
    /// # Errors
    /// As [`Self::with_property`].
    pub(crate) fn delayed(self, level: u32) -> Result<Self, Refusal> {
        assert!(level > 0, "a copy that waits has a delay level");
        let delayed = self.with_property(property::DELAY, &level.to_string())?;
        Ok(Self { delay: Delay::Asked, ..delayed })
    }

    /// Is the message of a committed transaction, whose half message is this record. It may have to wait yet.
    pub(crate) fn committed(self) -> Self {
        Self {
            sys_flag: self.sys_flag & !sys_flag::TRANSACTION_MASK | sys_flag::TRANSACTION_COMMIT,
            prepared_transaction_offset: Some(self.record.physical_offset),
            delay: Delay::Asked,
            ..self
        }
    }

    /// Leaves out the properties that each broker adds for itself, to make room.
    pub(crate) fn without_broker_properties(self) -> Self {
        [property::MSG_REGION, property::TRACE_ON, property::CLUSTER]
            .into_iter()
            .fold(self, Self::without_property)
    }

    /// Puts it.
    ///
    /// # Errors
    /// As [`put_and_make`].
    pub(crate) async fn put(&self, intake: &Intake<impl Disk>) -> Result<Stored<'_>, Refusal> {
        put_and_make(intake, Origin::Broker, &self.message()).await
    }

    /// Puts it, into another queue of its topic where that has fewer by now. Returns what an answer to it waits for.
    ///
    /// # Errors
    /// As [`put_and_make`].
    pub(crate) async fn put_or_beside(self, intake: &Intake<impl Disk>) -> Result<AckCondition, Refusal> {
        match self.put_or_shorter(intake).await {
            Err(Refusal::QueueId { .. }) => Self { queue_id: -1, ..self }.put_or_shorter(intake).await,
            put => put,
        }
    }

    /// Another broker may have stored the record so long that its copy has no room for the checksum of ours.
    async fn put_or_shorter(&self, intake: &Intake<impl Disk>) -> Result<AckCondition, Refusal> {
        match self.put(intake).await {
            Err(refusal) if refusal.is_too_long() => {
                Ok(self.clone().without_broker_properties().put(intake).await?.ack)
            }
            put => Ok(put?.ack),
        }
    }

    fn message(&self) -> NewMessage<'_> {
        NewMessage {
            topic: self.topic,
            template: None,
            queue_id: self.queue_id,
            flag: self.record.flag,
            sys_flag: self.sys_flag,
            born_at_ms: self.record.born_at_ms,
            born_host: self.record.born_host,
            reconsume_times: self.reconsume_times,
            max_reconsume_times: None,
            prepared_transaction_offset: self.prepared_transaction_offset,
            delay: self.delay,
            is_batch: false,
            body: self.record.body,
            properties: &self.properties,
        }
    }
}

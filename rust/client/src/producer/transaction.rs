//! Transactions: a message that is delivered once its producer says so.
//!
//! # Source
//! docs/reference/client.md 5.13. Other than Apache's clients this one waits for the answer to the end of a transaction.

use std::time::{Duration, Instant};

use rocketpy_model::{Later, Message, property, sys_flag};
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_protocol::properties_text;

use super::Producer;
use super::receipts::receipt_of;
use crate::checks::{HalfPlace, TransactionCheck, TransactionChecks, TransactionEnd};
use crate::config::SendOptions;
use crate::error::ClientError;
use crate::receipt::{Receipt, SendStatus};
use crate::send_error::SendError;
use crate::{outcome, wire};

const OPERATION: &str = "end of a transaction";

/// A message that waits for the end of its transaction.
#[derive(Debug, Clone)]
pub struct HalfMessage {
    /// The acknowledgement of the half message: its queue is the one that the message is meant for, its offsets are those of the half.
    pub receipt: Receipt,
    place: HalfPlace,
    /// For traces; empty where there are none.
    properties: String,
}

impl Producer {
    /// Sends a message that is delivered once [`Self::end_transaction`] commits it. A producer that never says so is asked, and with it
    /// every member of its group: see [`Self::transaction_checks`].
    ///
    /// # Errors
    /// Those of a send. Where the error may have been applied, a half message may wait, and the broker asks for it; it is not sent again,
    /// which would make a second transaction. [`ClientError::HalfInDoubt`]: a power cut may lose the half message. Its rollback was sent;
    /// if that is lost, the broker asks.
    pub async fn prepare(&self, message: &Message, options: SendOptions) -> Result<HalfMessage, SendError> {
        let started = Instant::now();
        let message: &Message = &self.namespace().wrap_message(message);
        let options = self.namespace().wrap_options(options);
        let mut outgoing = self.pack(message, &options)?;
        let of = |error: SendError, id: &str| error.of(id);
        let mut more = Vec::new();
        properties_text::push(&mut more, property::TRANSACTION_PREPARED, "true");
        properties_text::push(&mut more, property::PRODUCER_GROUP, self.group());
        outgoing.properties.push_str(&String::from_utf8_lossy(&more));
        outgoing.sys_flag |= sys_flag::TRANSACTION_PREPARED;
        let id = outgoing.keys.get(0).to_owned();
        let timeout = options.timeout.unwrap_or(self.shared.sender.config.send_timeout);
        let left = || timeout.saturating_sub(started.elapsed());
        // A broker asks only those that it knows.
        let mut ready = self.introduce(&message.topic, left()).await;
        if let (Ok(()), Some(later)) = (&ready, message.later()) {
            ready = self.check_brokers_keep(&message.topic, later, left()).await.map_err(SendError::from);
        }
        ready
            .inspect_err(|_| self.shared.sender.recorder.unsent([message]))
            .map_err(|error| of(error, &id))?;
        let target = self.target(message, &options).await.map_err(|error| of(error.into(), &id))?;
        let stored = self.shared.sender.deliver(&outgoing, target, left()).await;
        let stored = stored.map_err(|error| of(error, &id))?;
        let receipt = receipt_of(&stored, &outgoing.keys, 0);
        let place = place_of(&outgoing.topic, &receipt).map_err(|error| of(error.into(), &id))?;
        let properties =
            if self.shared.sender.tracer.is_some() { outgoing.properties } else { String::new() };
        let half = HalfMessage { receipt, place, properties };
        if half.receipt.status != SendStatus::SendOk {
            let error = ClientError::HalfInDoubt { status: half.receipt.status.as_str(), msg_id: id.clone() };
            drop(self.end_transaction(&half, TransactionEnd::Rollback).await); // else the broker asks
            return Err(of(error.into(), &id));
        }
        Ok(half)
    }

    /// Whether all brokers of a topic end a transaction once, however often it is said how. Apache's do not: a half message that they
    /// asked for is there twice.
    ///
    /// # Errors
    /// Those of reaching the brokers.
    pub async fn ends_once(&self, topic: &str, timeout: Duration) -> Result<bool, ClientError> {
        let topic = self.namespace().wrap(topic);
        match self.check_brokers_keep(&topic, Later::AfterMs(0), timeout).await {
            Ok(()) => Ok(true),
            Err(ClientError::NoDelayedTransactions { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Apache's brokers let a half message wait itself, and it is lost. Another broker may have taken the place of one that answered.
    async fn check_brokers_keep(
        &self,
        topic: &str,
        later: Later,
        timeout: Duration,
    ) -> Result<(), ClientError> {
        let sender = &self.shared.sender;
        let route = sender.route_within(topic, timeout).await?;
        let property = match later {
            Later::Level(_) => property::DELAY,
            Later::AtMs(_) => property::TIMER_DELIVER_MS,
            Later::AfterMs(_) => property::TIMER_DELAY_MS,
        };
        let all_keep = |left| {
            let masters = route.masters();
            async move {
                drop(tokio::time::timeout(left / 2, self.client().heartbeat()).await); // who has answered is known
                for address in masters {
                    self.check_keeps(address, property, left / 2)?;
                }
                Ok(())
            }
        };
        sender.while_away(topic, timeout, all_keep).await
    }

    /// Whether a broker keeps delayed transactions, by its answer to the latest heartbeat.
    fn check_keeps(
        &self,
        address: &str,
        property: &'static str,
        patience: Duration,
    ) -> Result<(), ClientError> {
        let address = address.to_owned();
        match self.client().keeps_delays(&address) {
            Some(true) => Ok(()),
            Some(false) => Err(ClientError::NoDelayedTransactions { address, property }),
            None => Err(ClientError::Timeout {
                operation: "heartbeat",
                address,
                timeout_ms: patience.as_millis() as u64,
                may_have_been_applied: false,
            }),
        }
    }

    /// The half message that another producer of the group sent, by its receipt.
    ///
    /// # Errors
    /// The receipt's offset message id is none.
    pub fn half_of(&self, receipt: Receipt) -> Result<HalfMessage, ClientError> {
        let place = place_of(&self.namespace().wrap_queue(&receipt.queue).topic, &receipt)?;
        Ok(HalfMessage { receipt, place, properties: String::new() })
    }

    /// Says what becomes of a transaction, and waits until the broker has taken it. It may be said again.
    ///
    /// # Errors
    /// [`ClientError::TransactionOver`]: it ended otherwise, or is gone. [`ClientError::Refused`]: it stays open. Those of reaching the
    /// broker: it may be ended, or stay open. For what stays open the broker asks.
    ///
    /// # Durability
    /// As that of a send: on return a committed message is stored as the broker's flush policy asks.
    pub async fn end_transaction(&self, half: &HalfMessage, end: TransactionEnd) -> Result<(), ClientError> {
        self.check()?;
        let queue = self.namespace().wrap_queue(&half.receipt.queue).into_owned();
        let call = |left| {
            let (api, queue) = (self.client().api().with_timeout(left), &queue);
            async move {
                let address = api.master_of(queue).await?;
                let command = wire::end_transaction(self.group(), &half.place, end.flag(), false);
                let answered = api.call_ok(&address, OPERATION, command).await;
                answered.map_err(outcome::bad_answer_to_change)?;
                Ok(address)
            }
        };
        let sender = &self.shared.sender;
        let address = sender.while_away(&queue.topic, sender.config.send_timeout, call).await?;
        if let Some(tracer) = &self.shared.sender.tracer {
            tracer.transaction_ended(&half.place, &half.properties, &address, end, false);
        }
        Ok(())
    }

    /// The questions that brokers put to this producer's group from now on. All brokers hear of it soon, those included to which it sends
    /// nothing: an earlier producer of the group may have left transactions open there.
    pub fn transaction_checks(&self) -> TransactionChecks {
        let checks = self.client().checks().of(self.group());
        self.client().start_heartbeat();
        checks
    }

    /// Answers a question. One that nobody answers comes again, once it is [done](TransactionCheck::done) or dropped: a half
    /// message has one question at a time.
    ///
    /// # Errors
    /// As [`Self::end_transaction`].
    pub async fn answer_check(
        &self,
        check: &TransactionCheck,
        end: TransactionEnd,
    ) -> Result<(), ClientError> {
        self.check()?;
        let api = self.client().api().with_timeout(self.shared.sender.config.send_timeout);
        let command = wire::end_transaction(self.group(), &check.place, end.flag(), true);
        let address = check.peer.to_string();
        let answered = api.call_ok(&address, OPERATION, command).await;
        answered.map_err(outcome::bad_answer_to_change)?;
        check.ended();
        if let Some(tracer) = &self.shared.sender.tracer {
            let properties = String::from_utf8_lossy(check.record().properties);
            tracer.transaction_ended(&check.place, &properties, &address, end, true);
        }
        Ok(())
    }
}

/// Where the half message of a receipt lies.
fn place_of(topic: &str, receipt: &Receipt) -> Result<HalfPlace, ClientError> {
    let id = &receipt.offset_msg_id;
    let place: OffsetMessageId = id.parse().map_err(|_| ClientError::InvalidMessageId { id: id.clone() })?;
    Ok(HalfPlace {
        topic: topic.to_owned(),
        broker_name: receipt.queue.broker_name.to_string(),
        queue_offset: receipt.queue_offset.to_wire(),
        physical_offset: place.physical_offset.to_wire(),
        msg_id: receipt.msg_id.clone(),
        transaction_id: receipt.transaction_id.clone(),
    })
}

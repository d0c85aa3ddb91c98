//! Traces of a producer.

use std::time::Instant;

use rocketpy_env::now_ms;
use rocketpy_model::property;
use rocketpy_protocol::handle::RecallHandle;
use rocketpy_protocol::header::SendMessageResponseHeader;
use rocketpy_protocol::{batch, properties_text};

use super::record::{DEFAULT_REGION, TraceRecord, TracedKind, TracedRecall, TracedSend, TracedTransaction};
use super::tracer::Tracer;
use crate::checks::{HalfPlace, TransactionEnd};
use crate::producer::{Outgoing, Stored, nth_id};
use crate::receipt::SendStatus;

/// Properties of a message that waits for its time. Apache's knows the first and the last.
const OF_DELAY: [&str; 5] = [
    property::DELAY,
    property::TIMER_DELAY_SEC,
    property::TIMER_DELAY_MS,
    property::TIMER_DELIVER_MS,
    "__STARTDELIVERTIME",
];

/// An attempt to send that was acknowledged.
pub(crate) struct Acknowledged<'a> {
    pub(crate) outgoing: &'a Outgoing,
    pub(crate) stored: &'a Stored,
    pub(crate) answer: &'a SendMessageResponseHeader<'a>,
    pub(crate) address: &'a str,
    pub(crate) began: Instant,
}

impl Tracer {
    /// Traces the messages of one request, each with a record of its own. Apache's client makes one of a batch, which no message's id
    /// finds.
    ///
    /// # Source
    /// docs/reference/client.md 6.3.
    pub(crate) fn sent(&self, request: &Acknowledged<'_>) {
        let Acknowledged { outgoing, stored, answer, address, began } = *request;
        if answer.trace_on == Some("false") || !self.traces(&outgoing.topic) {
            return;
        }
        let cost = began.elapsed().as_millis() as i64;
        let at_ms = now_ms() - cost;
        let topic = self.client.namespace().strip(&outgoing.topic);
        let record = |index: usize, body: &[u8], properties| {
            let keys = properties_text::get(properties, property::KEYS);
            let record = TracedSend {
                at_ms,
                region: answer.region.unwrap_or(DEFAULT_REGION),
                group: &self.group,
                topic: &topic,
                msg_id: outgoing.keys.get(index),
                tag: properties_text::get(properties, property::TAGS),
                keys,
                store_host: address,
                body_bytes: body.len() as i64,
                cost_ms: cost,
                kind: Some(kind(outgoing, properties)),
                offset_msg_id: Some(nth_id(&stored.offset_msg_ids, index)),
                success: stored.status == SendStatus::SendOk,
                client_host: Some(self.client.client_id()),
            };
            (TraceRecord::Sent(record), keys)
        };
        if outgoing.batch {
            let items = batch::items(&outgoing.body).map_while(Result::ok).enumerate();
            self.offer(items.map(|(index, item)| record(index, item.body, item.properties)));
        } else {
            self.offer([record(0, &outgoing.body, outgoing.properties.as_bytes())]);
        }
    }

    /// Traces the end of a transaction, which the broker at `address` has taken.
    pub(crate) fn transaction_ended(
        &self,
        half: &HalfPlace,
        properties: &str,
        address: &str,
        end: TransactionEnd,
        from_check: bool,
    ) {
        let property = |name| properties_text::get(properties.as_bytes(), name);
        let topic = self.client.namespace().strip(&half.topic);
        let record = TracedTransaction {
            at_ms: now_ms(),
            region: property(property::MSG_REGION).unwrap_or(DEFAULT_REGION),
            group: &self.group,
            topic: &topic,
            msg_id: &half.msg_id,
            tag: property(property::TAGS),
            keys: property(property::KEYS),
            store_host: address,
            transaction_id: half.transaction_id.as_deref(),
            state: match end {
                TransactionEnd::Commit => "COMMIT_MESSAGE",
                TransactionEnd::Rollback => "ROLLBACK_MESSAGE",
            },
            from_check,
        };
        self.offer([(TraceRecord::TransactionEnded(record), record.keys)]);
    }

    /// Traces the answer to a recall.
    pub(crate) fn recalled(&self, handle: &RecallHandle, region: Option<&str>, success: bool) {
        let topic = self.client.namespace().strip(&handle.topic);
        let record = TracedRecall {
            at_ms: now_ms(),
            region: region.unwrap_or(DEFAULT_REGION),
            group: &self.group,
            topic: &topic,
            msg_id: &handle.unique_key,
            success,
        };
        self.offer([(TraceRecord::Recalled(record), None)]);
    }
}

fn kind(outgoing: &Outgoing, properties: &[u8]) -> TracedKind {
    if outgoing.is_half() {
        TracedKind::Half
    } else if OF_DELAY.iter().any(|name| properties_text::get(properties, name).is_some()) {
        TracedKind::Delay
    } else {
        TracedKind::Normal
    }
}

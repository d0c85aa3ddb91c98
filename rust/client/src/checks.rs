//! Questions of brokers for the end of transactions.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rocketpy_model::{MessageQueue, property};
use rocketpy_protocol::header::CheckTransactionStateRequestHeader;
use rocketpy_protocol::record::RecordView;
use rocketpy_protocol::{Command, Header};
use tokio::sync::mpsc;

/// Most questions of a group that wait to be answered. A broker asks again for those beyond it.
const MAX_CHECKS: usize = 2000;

/// Where a half message lies, and what names its transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HalfPlace {
    pub(crate) topic: String,
    pub(crate) broker_name: String,
    pub(crate) queue_offset: i64,
    pub(crate) physical_offset: i64,
    pub(crate) msg_id: String,
    pub(crate) transaction_id: Option<String>,
}

/// A broker asks what became of a transaction whose producer did not say it.
#[derive(Debug, Clone)]
pub struct TransactionCheck {
    record: Bytes,
    pub(crate) place: HalfPlace,
    /// The end of the connection on which it came: the answer goes there.
    pub(crate) peer: SocketAddr,
}

impl TransactionCheck {
    /// The half message, in the form of the topic that it is meant for; its body may be compressed.
    ///
    /// # Panics
    /// Never: it was parsed when it came.
    pub fn record(&self) -> RecordView<'_> {
        RecordView::parse(&self.record).expect("it was parsed when it came")
    }

    /// The record's bytes, and the queue that the message is meant for.
    pub fn parts(&self) -> (Bytes, Arc<MessageQueue>) {
        let record = self.record();
        let queue = MessageQueue::new(record.topic, &*self.place.broker_name, record.queue_id);
        (self.record.clone(), Arc::new(queue))
    }

    /// Reads CHECK_TRANSACTION_STATE; the producer group that it asks, and the question.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn read(question: &Command, peer: SocketAddr) -> Result<(String, Self), String> {
        let header =
            CheckTransactionStateRequestHeader::read(&question.ext).map_err(|error| error.to_string())?;
        let record = RecordView::parse(&question.body).map_err(|error| error.to_string())?;
        let Some(group) = record.property(property::PRODUCER_GROUP) else {
            return Err(format!("the half message has no property {}", property::PRODUCER_GROUP));
        };
        let msg_id = header.msg_id.or(record.unique_key()).or(header.offset_msg_id).unwrap_or_default();
        let place = HalfPlace {
            topic: header.topic.unwrap_or(record.topic).to_owned(),
            broker_name: header.broker_name.map_or_else(|| peer.to_string(), str::to_owned),
            queue_offset: header.tran_state_table_offset,
            physical_offset: header.commit_log_offset,
            msg_id: msg_id.to_owned(),
            transaction_id: header.transaction_id.map(str::to_owned),
        };
        Ok((group.to_owned(), Self { record: question.body.clone(), place, peer }))
    }
}

/// The producer groups of an instance that answer such questions.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    groups: Mutex<HashMap<String, mpsc::Sender<TransactionCheck>>>,
}

/// The questions that come for a group. They end when the producer is closed.
#[derive(Debug)]
pub struct TransactionChecks(mpsc::Receiver<TransactionCheck>);

impl TransactionChecks {
    /// The next question; `None` once the producer is closed.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<TransactionCheck> {
        self.0.recv().await
    }
}

impl Checks {
    /// Takes the questions of a group from now on, in place of whoever took them before.
    pub(crate) fn of(&self, group: &str) -> TransactionChecks {
        let (sender, receiver) = mpsc::channel(MAX_CHECKS);
        self.groups.lock().insert(group.to_owned(), sender);
        TransactionChecks(receiver)
    }

    /// Hands on a question. False when nobody answers for its group, or too many wait.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(crate) fn arrived(&self, question: &Command, peer: SocketAddr) -> Result<bool, String> {
        let (group, check) = TransactionCheck::read(question, peer)?;
        Ok(self.groups.lock().get(&group).is_some_and(|sender| sender.try_send(check).is_ok()))
    }

    /// Ends the questions of a group.
    pub(crate) fn end(&self, group: &str) {
        self.groups.lock().remove(group);
    }
}

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
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Most questions of a group that wait to be answered. A broker asks again for those beyond it.
const MAX_CHECKS: usize = 2000;
/// Most bytes of the messages of those questions; of one message any number.
const MAX_CHECK_BYTES: usize = 16 << 20;

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
    /// Room among the questions that wait, or are being answered.
    room: Option<Arc<OwnedSemaphorePermit>>,
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
        Ok((group.to_owned(), Self { record: question.body.clone(), place, peer, room: None }))
    }
}

/// The producer groups of an instance that answer such questions.
#[derive(Debug)]
pub(crate) struct Checks {
    groups: Mutex<HashMap<String, mpsc::Sender<TransactionCheck>>>,
    room: Arc<Semaphore>,
}

impl Default for Checks {
    fn default() -> Self {
        Self { groups: Mutex::default(), room: Arc::new(Semaphore::new(MAX_CHECK_BYTES)) }
    }
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
    /// Whether there is a group whose questions are taken.
    pub(crate) fn are_answered(&self) -> bool {
        self.groups.lock().values().any(|taker| !taker.is_closed())
    }

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
        let (group, mut check) = TransactionCheck::read(question, peer)?;
        let bytes = question.body.len().clamp(1, MAX_CHECK_BYTES) as u32;
        let Ok(room) = self.room.clone().try_acquire_many_owned(bytes) else { return Ok(false) };
        check.room = Some(Arc::new(room));
        Ok(self.groups.lock().get(&group).is_some_and(|sender| sender.try_send(check).is_ok()))
    }

    /// Ends the questions of a group.
    pub(crate) fn end(&self, group: &str) {
        self.groups.lock().remove(group);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rocketpy_model::{PhysicalOffset, QueueOffset};
    use rocketpy_protocol::code::request;
    use rocketpy_protocol::properties_text;
    use rocketpy_protocol::record::RecordFields;

    use super::*;

    const HOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

    fn question(group: &str) -> Command {
        let mut properties = Vec::new();
        properties_text::push(&mut properties, property::PRODUCER_GROUP, group);
        let fields = RecordFields {
            topic: "t",
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_at_ms: 0,
            born_host: HOST,
            store_host: HOST,
            reconsume_times: 0,
            prepared_transaction_offset: PhysicalOffset::ZERO,
            body: b"paid",
            properties: &properties,
            more_properties: &[],
        };
        let mut record = Vec::new();
        let plan = fields.encode(false, &mut record).unwrap();
        plan.finish(&mut record, QueueOffset(0), PhysicalOffset::ZERO, 0);
        let header = CheckTransactionStateRequestHeader {
            topic: Some("t"),
            tran_state_table_offset: 0,
            commit_log_offset: 0,
            msg_id: None,
            transaction_id: None,
            offset_msg_id: None,
            broker_name: None,
        };
        Command::request(request::CHECK_TRANSACTION_STATE, &header).with_body(record)
    }

    #[tokio::test]
    async fn questions_beyond_the_bound_are_left_to_the_broker_to_ask_again() {
        let (checks, question) = (Checks::default(), question("payers"));
        assert_eq!(checks.arrived(&question, HOST), Ok(false), "nobody answers yet");
        let mut taken = checks.of("payers");
        for _ in 0..MAX_CHECKS {
            assert_eq!(checks.arrived(&question, HOST), Ok(true));
        }
        assert_eq!(checks.arrived(&question, HOST), Ok(false));
        assert_eq!(taken.next().await.unwrap().record().body, b"paid");
        assert_eq!(checks.arrived(&question, HOST), Ok(true), "there is room again");
        checks.end("payers");
        assert_eq!(checks.arrived(&question, HOST), Ok(false));
    }

    #[test]
    fn a_question_that_cannot_be_read_says_why() {
        let without_body = question("payers").with_body(Vec::new());
        assert!(Checks::default().arrived(&without_body, HOST).is_err());
    }
}

//! Questions of brokers for the end of transactions.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use rocketpy_model::{MessageQueue, property, sys_flag};
use rocketpy_protocol::header::CheckTransactionStateRequestHeader;
use rocketpy_protocol::record::RecordView;
use rocketpy_protocol::{Command, Header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Most questions of a group that wait to be answered. A broker asks again for those beyond it.
const MAX_CHECKS: usize = 2000;
/// Most bytes of the messages of those questions; of one message any number.
const MAX_CHECK_BYTES: usize = 16 << 20;

/// How long a question for a half message whose end was taken is dropped: the broker may have asked it before it took the end.
const ENDED_IS_KNOWN: Duration = Duration::from_secs(10);
/// Most half messages whose end is known.
const MAX_ENDED: usize = 10_000;

/// What becomes of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionEnd {
    /// The message is delivered.
    Commit,
    /// It never is.
    Rollback,
}

impl TransactionEnd {
    pub(crate) fn flag(self) -> i32 {
        match self {
            Self::Commit => sys_flag::TRANSACTION_COMMIT,
            Self::Rollback => sys_flag::TRANSACTION_ROLLBACK,
        }
    }
}

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
    /// Held while it waits or is being answered.
    turn: Option<Arc<Turn>>,
}

/// What a question holds while it waits or is being answered: a place among the bytes of all questions, and its half message, for
/// which no second question is taken.
#[derive(Debug)]
struct Turn {
    _room: OwnedSemaphorePermit,
    half: Half,
    halves: Arc<Mutex<Halves>>,
    is_over: AtomicBool,
}

impl Turn {
    fn end(&self) {
        if !self.is_over.swap(true, Ordering::AcqRel) {
            self.halves.lock().asked.remove(&self.half);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.end();
    }
}

/// Names a half message: the broker, and the id of the message. Apache's broker writes the message again for each question, so its
/// offsets change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Half {
    broker_name: String,
    id: String,
}

impl Half {
    fn of(place: &HalfPlace) -> Self {
        let id = match place.msg_id.as_str() {
            "" => place.physical_offset.to_string(),
            id => id.to_owned(),
        };
        Self { broker_name: place.broker_name.clone(), id }
    }
}

/// The half messages for which no question is taken now.
#[derive(Debug, Default)]
struct Halves {
    asked: HashSet<Half>,
    /// Those whose end a broker has taken, and when.
    ended: HashMap<Half, Instant>,
}

impl Halves {
    /// Takes a question. False for a half message whose question waits or is being answered, or whose end was taken just now.
    fn ask(&mut self, half: &Half, now: Instant) -> bool {
        let ended_at = self.ended.get(half);
        ended_at.is_none_or(|at| !is_recent(*at, now)) && self.asked.insert(half.clone())
    }

    /// The broker has taken the end of a half message. Beyond the bound all are forgotten, and asked for once more at most.
    fn end(&mut self, half: Half, now: Instant) {
        if self.ended.len() >= MAX_ENDED {
            self.ended.retain(|_, at| is_recent(*at, now));
            if self.ended.len() >= MAX_ENDED {
                self.ended.clear();
            }
        }
        self.ended.insert(half, now);
        assert!(self.ended.len() <= MAX_ENDED, "the number of half messages whose end is known has a bound");
    }
}

fn is_recent(ended_at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(ended_at) < ENDED_IS_KNOWN
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

    /// Its half message may be asked for again, even before the question is dropped.
    pub fn done(&self) {
        if let Some(turn) = &self.turn {
            turn.end();
        }
    }

    /// The broker has taken its answer.
    pub(crate) fn ended(&self) {
        if let Some(turn) = &self.turn {
            turn.halves.lock().end(turn.half.clone(), Instant::now());
        }
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
        Ok((group.to_owned(), Self { record: question.body.clone(), place, peer, turn: None }))
    }
}

/// The producer groups of an instance that answer such questions.
#[derive(Debug)]
pub(crate) struct Checks {
    groups: Mutex<HashMap<String, mpsc::Sender<TransactionCheck>>>,
    room: Arc<Semaphore>,
    halves: Arc<Mutex<Halves>>,
}

impl Default for Checks {
    fn default() -> Self {
        let room = Arc::new(Semaphore::new(MAX_CHECK_BYTES));
        Self { groups: Mutex::default(), room, halves: Arc::default() }
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

    /// Hands on a question, unless one for its half message waits or is being answered, or its end was taken just now. False when
    /// nobody answers for its group, or too many wait.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(crate) fn arrived(&self, question: &Command, peer: SocketAddr) -> Result<bool, String> {
        let (group, mut check) = TransactionCheck::read(question, peer)?;
        let bytes = question.body.len().clamp(1, MAX_CHECK_BYTES) as u32;
        let Ok(room) = self.room.clone().try_acquire_many_owned(bytes) else { return Ok(false) };
        let half = Half::of(&check.place);
        if !self.halves.lock().ask(&half, Instant::now()) {
            return Ok(true);
        }
        check.turn = Some(Arc::new(Turn {
            _room: room,
            half,
            halves: self.halves.clone(),
            is_over: AtomicBool::new(false),
        }));
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

    fn question(group: &str, id: &str) -> Command {
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
            may_have_crc: true,
        };
        let mut record = Vec::new();
        let plan = fields.encode(false, &mut record).unwrap();
        plan.finish(&mut record, QueueOffset(0), PhysicalOffset::ZERO, 0);
        let header = CheckTransactionStateRequestHeader {
            topic: Some("t"),
            tran_state_table_offset: 0,
            commit_log_offset: 0,
            msg_id: Some(id),
            transaction_id: None,
            offset_msg_id: None,
            broker_name: None,
        };
        Command::request(request::CHECK_TRANSACTION_STATE, &header).with_body(record)
    }

    /// The questions that are there.
    fn questions(taken: &mut TransactionChecks) -> Vec<TransactionCheck> {
        std::iter::from_fn(|| taken.0.try_recv().ok()).collect()
    }

    #[tokio::test]
    async fn questions_beyond_the_bound_are_left_to_the_broker_to_ask_again() {
        let (checks, first) = (Checks::default(), question("payers", "0"));
        assert_eq!(checks.arrived(&first, HOST), Ok(false), "nobody answers yet");
        let mut taken = checks.of("payers");
        for id in 0..MAX_CHECKS {
            assert_eq!(checks.arrived(&question("payers", &id.to_string()), HOST), Ok(true));
        }
        let more = question("payers", "more");
        assert_eq!(checks.arrived(&more, HOST), Ok(false));
        assert_eq!(taken.next().await.unwrap().record().body, b"paid");
        assert_eq!(checks.arrived(&more, HOST), Ok(true), "there is room again");
        checks.end("payers");
        assert_eq!(checks.arrived(&first, HOST), Ok(false));
    }

    #[test]
    fn a_half_message_has_one_question_at_a_time() {
        let checks = Checks::default();
        let mut taken = checks.of("payers");
        for id in ["a", "a", "b", "a"] {
            assert_eq!(checks.arrived(&question("payers", id), HOST), Ok(true));
        }
        let answered = questions(&mut taken);
        assert_eq!(answered.iter().map(|check| &*check.place.msg_id).collect::<Vec<_>>(), ["a", "b"]);
        checks.arrived(&question("payers", "a"), HOST).unwrap();
        assert!(questions(&mut taken).is_empty(), "it is being answered");
        for check in &answered {
            check.done(); // nobody knows
        }
        checks.arrived(&question("payers", "a"), HOST).unwrap();
        let again = questions(&mut taken);
        assert_eq!(again.len(), 1);
        drop(answered);
        checks.arrived(&question("payers", "a"), HOST).unwrap();
        assert!(questions(&mut taken).is_empty(), "the second question is being answered");
        drop(again);
        checks.arrived(&question("payers", "a"), HOST).unwrap();
        assert_eq!(questions(&mut taken).len(), 1);
    }

    #[test]
    fn a_question_that_crosses_the_end_of_its_half_message_is_dropped() {
        let checks = Checks::default();
        let mut taken = checks.of("payers");
        checks.arrived(&question("payers", "a"), HOST).unwrap();
        questions(&mut taken).remove(0).ended();
        checks.arrived(&question("payers", "a"), HOST).unwrap();
        assert!(questions(&mut taken).is_empty());
        let half = Half { broker_name: HOST.to_string(), id: "a".to_owned() };
        let mut halves = checks.halves.lock();
        assert!(halves.ask(&half, Instant::now() + ENDED_IS_KNOWN), "the broker has lost the end");
    }

    #[test]
    fn the_ends_that_are_known_are_bounded() {
        let (mut halves, now) = (Halves::default(), Instant::now());
        for number in 0..=MAX_ENDED {
            halves.end(Half { broker_name: "b".to_owned(), id: number.to_string() }, now);
        }
        assert_eq!(halves.ended.len(), 1);
    }

    #[test]
    fn a_question_that_cannot_be_read_says_why() {
        let without_body = question("payers", "a").with_body(Vec::new());
        assert!(Checks::default().arrived(&without_body, HOST).is_err());
    }
}

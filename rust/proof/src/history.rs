//! What happened in a run, one event per line. Every harness writes it; one checker reads it.
//!
//! A call is invoked and then ends as `ok`, `fail` (certainly not applied) or `unknown` (may be applied); the order of the
//! lines is the order in which the recorder saw things. Messages have numbers that the harness gives and that travel in their
//! bodies, so that each delivery names its message.
//!
//! A field has the same meaning in every event:
//!
//! | field | meaning |
//! |---|---|
//! | `op` | number of a call, from `invoke` to its end |
//! | `message` | number of a message |
//! | `topic`, `queue`, `offset` | a place in a queue; in a commit, the next message to read |
//! | `group`, `member` | a consumer group by name, a member of it by number |
//! | `at`, `before`, `end` | physical offsets in the commit log |
//! | `log` | where a record lies, when the harness knows |
//! | `at_ms` | the harness's clock, in milliseconds |
//! | `reason` | why, in words for a reader |

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

/// A queue of a topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QueueName {
    pub topic: String,
    /// Its number.
    pub queue_id: u32,
}

impl std::fmt::Display for QueueName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.topic, self.queue_id)
    }
}

/// When a send is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Acknowledged {
    /// After the flush: nothing that was acknowledged, or delivered, may be lost.
    AfterFlush,
    /// Before the flush: after a power cut a prefix survives, with everything that was flushed.
    BeforeFlush,
}

/// A consumer group that receives its topics from their start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Name of the group.
    pub name: String,
    /// Its topics; all when empty.
    #[serde(default)]
    pub topics: Vec<String>,
    /// Messages with these tags; all when empty.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Every member gets every message.
    #[serde(default)]
    pub broadcasting: bool,
    /// Its members. They count in broadcasting alone, where each gets everything.
    #[serde(default)]
    pub members: Vec<u32>,
    /// Its member outlives the process: it may hand out what it got before a power cut, until it hands out what was sent after.
    #[serde(default)]
    pub outlives: bool,
    /// Its members have handlers, and say how each message ended: then each must be handled to the end, or be a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handlers: Option<Handlers>,
}

/// What the handlers of a group do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handlers {
    /// Each queue's messages one after the other; one that fails is tried again in its place.
    pub ordered: bool,
    /// How many times a message comes again before it is a dead letter.
    pub max_retries: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandlerEnd {
    /// The message is consumed.
    Done,
    /// The message is to come again.
    Failed,
    /// The message is to be a dead letter.
    Rejected,
}

/// What the run promises.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contract {
    /// When sends are acknowledged. Consumers see only what survives where this is after the flush.
    pub acknowledged: Acknowledged,
    /// Topics with a `flush.type` of their own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub topics: BTreeMap<String, Acknowledged>,
    /// The groups that receive.
    #[serde(default)]
    pub groups: Vec<Group>,
}

/// One line of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[expect(missing_docs, reason = "fields: the table at the head of this file")]
pub enum Event {
    /// The first line.
    Begin { harness: String, seed: u64, contract: Contract },
    /// A call begins.
    Invoke { op: u64, call: Call },
    /// A call ended, and was applied.
    Ok { op: u64, reply: Reply },
    /// The call had no effect, and never will have.
    Fail { op: u64, reason: String },
    /// The call may have had its effect, or may still have it.
    Unknown { op: u64, reason: String },
    /// The log is durable before this physical offset.
    Flushed { end: u64 },
    /// A flush failed: until the next crash nothing may be acknowledged.
    FlushFailed,
    /// The process ended.
    Crash { kind: CrashKind },
    /// Recovery reported that everything from this physical offset on is lost.
    Cut { at: u64 },
    /// Retention may have removed the records before this physical offset, of all topics, of one or of a queue: no group must get
    /// them.
    Expired {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        topic: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queue_id: Option<u32>,
        before: u64,
    },
    /// All consume queues were rebuilt from the log: what was deleted with its topic may be back.
    Rebuilt,
    /// A member of a group has the start offsets of its queues: every message sent from now on must reach the group.
    Joined { group: String, member: u32 },
    /// The queues of a group were assigned to its members anew.
    Rebalance { group: String },
    /// An orderly member begins the work on a message. It outlives the process that serves it.
    Handling { group: String, member: u32, queue: QueueName, message: u64 },
    /// The member is done with it.
    Handled { group: String, member: u32, queue: QueueName, message: u64 },
    /// The handler of a member is done with a delivery. Noted before the client learns it.
    Returned { group: String, member: u32, queue: QueueName, offset: u64, message: u64, end: HandlerEnd },
    /// The process of a member is gone, with its handlers.
    MemberGone { group: String, member: u32 },
    /// A message is among the dead letters of a group.
    DeadLetter { group: String, message: u64 },
    /// Where a group continues in a queue, as the broker says; in broadcasting a member, as its file says.
    Positioned {
        group: String,
        queue: QueueName,
        offset: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        member: Option<u32>,
    },
    /// No fault follows.
    Healed,
    /// The last line; everything had time to arrive.
    End,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CrashKind {
    /// An orderly stop.
    Stop,
    /// The process is killed; what the system holds in memory is still there.
    Kill,
    /// The power is cut; only what was flushed is still there.
    Power,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
#[expect(missing_docs, reason = "fields: the table at the head of this file")]
pub enum Call {
    /// Sends one message.
    Send(Send),
    /// A member of a group asks for messages.
    Receive { group: String, member: u32 },
    /// A group commits where it continues.
    Commit { group: String, queue: QueueName, offset: u64 },
    /// Everything that is there, read from the start of every queue.
    Audit,
    /// Looks messages up.
    Find { by: Look },
    /// Deletes a topic with its messages and the groups' offsets in it. Messages that are sent later belong to a new topic.
    Delete { topic: String },
    /// Decides a transaction. Without a decision the message stays a half message.
    Decide { message: u64, committed: bool },
    /// Takes a message back that waits for its time.
    Recall { message: u64 },
    /// Everything that came of messages that had to wait, read from the start of every queue of their topics.
    ReadLater,
}

/// One attempt to send a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Send {
    /// The message's number.
    pub message: u64,
    /// Who sends it.
    pub producer: u32,
    /// The first message of the batch that it is sent with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// Where it goes.
    pub topic: String,
    /// A checksum of what must be delivered.
    pub digest: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// Not to be delivered before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before_ms: Option<i64>,
    /// A half message: delivered only once its transaction is committed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub transaction: bool,
    /// Its producer ends the transaction when the broker asks, and not before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked_for: bool,
    /// The broker stores it again on the way to its time: then each crash may double what there is of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rolls: bool,
    /// Earlier deliveries that it must show when it comes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub times: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// How a message is looked up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "fields: the table at the head of this file")]
pub enum Look {
    Key {
        topic: String,
        key: String,
    },
    /// By its unique key or its offset id: exactly one.
    Id {
        message: u64,
    },
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
#[expect(missing_docs, reason = "fields: the table at the head of this file")]
pub enum Reply {
    /// It is stored, and under `SYNC_FLUSH` durable.
    Sent {
        queue: QueueName,
        offset: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        log: Option<LogRange>,
    },
    /// The messages that a receive returned.
    Received { at_ms: i64, deliveries: Vec<Delivery> },
    /// The offset is stored.
    Committed,
    /// All messages that are there.
    Audited {
        deliveries: Vec<Delivery>,
        /// Where queues end, also behind their last delivery: the numbers of removed messages stay used.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ends: Vec<(QueueName, u64)>,
    },
    /// The messages that were found.
    Found { messages: Vec<u64> },
    /// The topic is gone.
    Deleted,
    /// The transaction is over.
    Decided,
    /// The transaction had the other outcome before.
    DecidedOtherwise,
    /// The recall is durable; `in_time` when the broker has noted it before the message was due: then it must not come.
    Recalled { in_time: bool },
    /// What came, each with the time when it was stored, in milliseconds.
    Came { arrivals: Vec<(i64, Delivery)> },
}

/// Where a record lies in the commit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// A message as a consumer got it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// The message's number.
    pub message: u64,
    /// The queue that it came from.
    pub queue: QueueName,
    /// Its offset there.
    pub offset: u64,
    /// A checksum of what came.
    pub digest: u64,
    /// Where its record lies, when the harness knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogRange>,
    /// Earlier deliveries of it to the group, as the broker counts.
    #[serde(default)]
    pub times: u32,
}

/// A line that is not an event.
#[derive(Debug, thiserror::Error)]
#[error("cannot decode line {line} of the history: {source}")]
pub struct BadLine {
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub source: serde_json::Error,
}

/// Writes events as JSON lines.
pub fn write(events: &[Event], mut out: impl io::Write) -> io::Result<()> {
    for event in events {
        serde_json::to_writer(&mut out, event)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Reads JSON lines.
pub fn read(text: &str) -> Result<Vec<Event>, BadLine> {
    let parse =
        |(index, text)| serde_json::from_str(text).map_err(|source| BadLine { line: index + 1, source });
    text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()).map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_survives_the_file() {
        let queue = QueueName { topic: "t".into(), queue_id: 3 };
        let log = Some(LogRange { start: 0, end: 100 });
        let send =
            Send { message: 7, topic: "t".into(), digest: 9, keys: vec!["k".into()], ..Send::default() };
        let events = [
            Event::Begin {
                harness: "test".into(),
                seed: 1,
                contract: Contract {
                    acknowledged: Acknowledged::AfterFlush,
                    topics: [("u".to_owned(), Acknowledged::BeforeFlush)].into(),
                    groups: Vec::new(),
                },
            },
            Event::Invoke { op: 1, call: Call::Send(send) },
            Event::Ok { op: 1, reply: Reply::Sent { queue, offset: 5, log } },
            Event::FlushFailed,
            Event::Crash { kind: CrashKind::Power },
            Event::Invoke { op: 2, call: Call::Find { by: Look::Id { message: 7 } } },
            Event::End,
        ];
        let mut bytes = Vec::new();
        write(&events, &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.starts_with(r#"{"event":"begin","harness":"test","seed":1,"#), "{text}");
        assert_eq!(read(&text).unwrap(), events);
        assert_eq!(read("{}\n").unwrap_err().line, 1);
    }
}

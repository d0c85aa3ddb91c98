//! Greeting of two RocketPy brokers before the first report, and the comparison of their logs.

use rocketpy_model::PhysicalOffset;
use serde::{Deserialize, Serialize};

use crate::epochs::Epochs;

/// Stands before a slave's greeting, where Apache's slaves report how far their log reaches.
pub const GREETING: i64 = -2;
/// Maximum length of a greeting.
pub const MAX_GREETING_BYTES: usize = 64 << 10;
/// Length of what says how long a greeting is.
pub const GREETING_HEAD_BYTES: usize = 4;
/// How much of the log is compared, behind which both have the same: at most so many bytes.
pub const TAIL_BYTES: u64 = 64 << 10;

/// Identity of a broker and of its log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Greeting {
    /// `brokerName`, which both have.
    pub broker_name: String,
    /// `brokerId`.
    pub broker_id: u64,
    /// Where it answers requests, `host:port`.
    pub address: String,
    /// The first byte of the log.
    pub start: PhysicalOffset,
    /// Offset after its last byte; under SYNC_FLUSH of a slave, after the last flushed byte.
    pub end: PhysicalOffset,
    /// Of the log up to `end`; a slave's may be empty.
    pub epochs: Epochs,
    /// Maximum length of the body of a frame that it accepts, in bytes.
    pub max_body_bytes: u32,
    /// Length of the files of its log, in bytes; both logs have the same. 0: it does not say.
    #[serde(default)]
    pub file_bytes: u64,
    /// Drawn by chance: what the other one proves is of this connection.
    #[serde(default)]
    pub nonce: String,
    /// That a master knows the token of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
    /// Of the last bytes of a slave's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<Tail>,
    /// Why a master feeds this slave nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// Whether that is because the slave's log is not known to be a beginning of the master's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_other_log: bool,
}

/// A checksum of the bytes before the end of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    /// Where they begin.
    pub from: PhysicalOffset,
    pub crc: u32,
}

/// How the log of a slave relates to its master's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// The log is a beginning of the master's, or empty.
    Beginning,
    /// The slave or its master has epochs that the other does not know: the epochs do not decide.
    Unknown,
    /// The slave has bytes of its own.
    Diverged(Diverged),
}

/// Two logs diverge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the logs diverge at {at}: the slave's log continues to {end} with bytes that this master never had, or lost. `rocketpy store diff` \
     shows them; make that broker the master if these bytes are needed, else cut them off (`rocketpy store cut FOLDER --at {at} --apply`, \
     which keeps a backup)"
)]
pub struct Diverged {
    /// Offset at which they diverge.
    pub at: PhysicalOffset,
    /// End of the slave's log.
    pub end: PhysicalOffset,
}

impl Greeting {
    /// The greeting as it is sent, with its length before it; a slave's is to stand behind [`GREETING`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let json = self.to_json();
        let mut bytes = (json.len() as u32).to_be_bytes().to_vec();
        bytes.extend(json.into_bytes());
        bytes
    }

    /// The greeting alone.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() // numbers and text have a form in JSON
    }

    /// How many bytes follow a head; `None` when they are too many.
    #[must_use]
    pub fn length(head: [u8; GREETING_HEAD_BYTES]) -> Option<usize> {
        let length = u32::from_be_bytes(head) as usize;
        (length <= MAX_GREETING_BYTES).then_some(length)
    }

    /// Decodes the bytes after a head; `None` if they are not a greeting.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// How the log of a slave with this greeting relates to that of a master, which may have a newer epoch without a byte.
    #[must_use]
    pub fn relation(&self, master_epochs: &Epochs, master_end: PhysicalOffset) -> Relation {
        let end = self.end;
        if self.start == end {
            return Relation::Beginning;
        }
        let own = self.epochs.within(end);
        if own.list().is_empty() {
            return Relation::Unknown;
        }
        match own.common_end(end, master_epochs, master_end) {
            Some(at) if at == end => Relation::Beginning,
            Some(at) => {
                assert!(at < end, "logs diverge before the end of the slave's: {at} of {end}");
                Relation::Diverged(Diverged { at, end })
            }
            None => Relation::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epochs::Epoch;

    fn greeting(start: u64, end: u64, epochs: &[(u64, u64)]) -> Greeting {
        let mut list = Epochs::default();
        epochs
            .iter()
            .for_each(|&(id, at)| list.begin(Epoch { id, start: PhysicalOffset(at), after_loss: false }));
        Greeting {
            broker_name: "broker-a".to_owned(),
            broker_id: 1,
            address: "127.0.0.1:10911".to_owned(),
            start: PhysicalOffset(start),
            end: PhysicalOffset(end),
            epochs: list,
            max_body_bytes: 1 << 20,
            file_bytes: 1 << 30,
            nonce: "1".to_owned(),
            proof: None,
            tail: Some(Tail { from: PhysicalOffset(start), crc: 7 }),
            refusal: None,
            is_other_log: false,
        }
    }

    #[test]
    fn a_greeting_is_read_as_it_was_written() {
        let given = greeting(0, 100, &[(u64::MAX, 0), (8, 50)]);
        let bytes = given.encode();
        let (head, body) = bytes.split_first_chunk().unwrap();
        assert_eq!(Greeting::length(*head), Some(body.len()));
        assert_eq!(Greeting::decode(body), Some(given));
        assert_eq!(Greeting::decode(b"{}"), None);
        assert_eq!(Greeting::length([0, 1, 0, 1]), None, "more than 64 KiB");
    }

    #[test]
    fn what_the_epochs_say_of_a_slave() {
        let master = greeting(0, 300, &[(7, 0), (8, 200)]);
        let relation = |slave: Greeting| slave.relation(&master.epochs, master.end);
        assert_eq!(relation(greeting(300, 300, &[])), Relation::Beginning, "empty");
        assert_eq!(relation(greeting(0, 200, &[(7, 0)])), Relation::Beginning);
        assert_eq!(
            relation(greeting(0, 150, &[(7, 0), (8, 200)])),
            Relation::Beginning,
            "the list came before the bytes"
        );
        assert_eq!(relation(greeting(0, 150, &[])), Relation::Unknown, "of an earlier version");
        assert_eq!(relation(greeting(0, 150, &[(9, 0)])), Relation::Unknown);
        let diverged = Diverged { at: PhysicalOffset(200), end: PhysicalOffset(201) };
        assert_eq!(relation(greeting(0, 201, &[(7, 0)])), Relation::Diverged(diverged));
        let longer = Diverged { at: PhysicalOffset(300), end: PhysicalOffset(301) };
        assert_eq!(relation(greeting(0, 301, &[(7, 0), (8, 200)])), Relation::Diverged(longer));
    }
}

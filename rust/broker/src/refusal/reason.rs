//! Why requests are refused, in one of few words.

use rocketpy_protocol::code::response;
use rocketpy_store::AppendError;

use super::Refusal;
use crate::quota::{Direction, OverQuota, Scope};

impl Refusal {
    /// The reason as the metrics count it: what an operator can do something about has a word of its own, all else the name of its code.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Append(error) => of_append(error),
            Self::OfBatch { refusal, .. } => refusal.reason(),
            Self::Memory(_) => "PEER_MEMORY",
            Self::TooManyHeld { .. } | Self::HeldBytes { .. } => "HELD_PULLS",
            Self::DiskReads { .. } => "DISK_READS",
            Self::ReadsCold { .. } => "COLD_READS",
            Self::BrokerNotWritable { .. } | Self::BrokerNotReadable { .. } => "BROKER_PERMISSION",
            Self::Slave { .. } => "SLAVE",
            Self::OverQuota(over) => of_quota(over),
            _ => response::name_of(self.code()).unwrap_or("UNKNOWN"),
        }
    }
}

fn of_quota(over: &OverQuota) -> &'static str {
    match (over.direction, over.scope) {
        (Direction::Send, Scope::Topic) => "SEND_QUOTA_OF_TOPIC",
        (Direction::Send, Scope::Group) => "SEND_QUOTA_OF_GROUP",
        (Direction::Send, Scope::Address) => "SEND_QUOTA_OF_ADDRESS",
        (Direction::Send, Scope::User) => "SEND_QUOTA_OF_USER",
        (Direction::Pull, Scope::Topic) => "PULL_QUOTA_OF_TOPIC",
        (Direction::Pull, Scope::Group) => "PULL_QUOTA_OF_GROUP",
        (Direction::Pull, Scope::Address) => "PULL_QUOTA_OF_ADDRESS",
        (Direction::Pull, Scope::User) => "PULL_QUOTA_OF_USER",
    }
}

fn of_append(error: &AppendError) -> &'static str {
    match error {
        AppendError::DiskFull { .. } | AppendError::DiskNearlyFull { .. } => "DISK_FULL",
        AppendError::Poisoned { .. } => "STORE_POISONED",
        AppendError::QueueNotWriteable { .. } => "CONSUME_QUEUES",
        AppendError::ShutDown => "SHUTDOWN",
        AppendError::Busy { .. } | AppendError::NoFile { .. } => "NEXT_LOG_FILE",
        AppendError::Behind { .. } => "FLUSH_BEHIND",
        AppendError::DispatchBehind { .. } => "DISPATCH_BEHIND",
        AppendError::TooManyWait => "WAITING_SENDS",
        AppendError::BadTopic(_)
        | AppendError::TopicLength { .. }
        | AppendError::PropertiesTooLong { .. }
        | AppendError::BodyTooLong { .. }
        | AppendError::LongerThanFile { .. }
        | AppendError::BadBatch { .. } => "MESSAGE_ILLEGAL",
    }
}

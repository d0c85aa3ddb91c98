//! Counts of requests, messages and bytes.

use std::ops::AddAssign;

/// How much went one way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of requests.
    pub requests: u64,
    /// Number of messages in them.
    pub messages: u64,
    /// Bytes of the messages.
    pub bytes: u64,
}

impl Traffic {
    /// One request with its messages.
    pub(crate) fn request(messages: usize, bytes: usize) -> Self {
        Self { requests: 1, messages: messages as u64, bytes: bytes as u64 }
    }

    /// Messages that got into no request.
    pub(crate) fn unsent(messages: usize, bytes: usize) -> Self {
        Self { requests: 0, ..Self::request(messages, bytes) }
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.messages += other.messages;
        self.bytes += other.bytes;
    }
}

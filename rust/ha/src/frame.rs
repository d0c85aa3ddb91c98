//! Wire format of the connection: reports one way, frames the other.

use rocketpy_model::PhysicalOffset;

/// Length of a slave's report: how far its log reaches.
pub const REPORT_BYTES: usize = 8;
/// The first report of an empty slave that wants the whole log. Not Apache's: a master of Apache's sends such a slave nothing.
pub const FROM_THE_FIRST_FILE: i64 = -1;
/// Length of the head of a frame.
pub const HEAD_BYTES: usize = 12;
/// Maximum number of bytes of the log in a frame for a slave of Apache's (`haTransferBatchSize`).
pub const MAX_APACHE_BODY_BYTES: usize = 32 << 10;

/// A report that a log reaches to `end`.
#[must_use]
pub fn encode_report(end: PhysicalOffset) -> [u8; REPORT_BYTES] {
    assert!(i64::try_from(end.get()).is_ok(), "a report is an offset that the wire can hold: {end}");
    end.get().to_be_bytes()
}

/// The head of a frame of the master.
///
/// # Source
/// docs/reference/store-format.md 12.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHead {
    /// Place in the log of the first byte that follows.
    pub at: PhysicalOffset,
    /// Number of log bytes that follow; 0 in a heartbeat.
    pub body_bytes: u32,
}

impl FrameHead {
    /// The head as it is sent.
    #[must_use]
    pub fn encode(self) -> [u8; HEAD_BYTES] {
        assert!(
            i32::try_from(self.body_bytes).is_ok(),
            "a frame has a length that the wire can hold: {}",
            self.body_bytes
        );
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&self.at.get().to_be_bytes());
        bytes[8..].copy_from_slice(&self.body_bytes.to_be_bytes());
        bytes
    }

    /// Reads a head; `None` when its place or its length is negative.
    #[must_use]
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Option<Self> {
        let (at, body_bytes) = bytes.split_first_chunk::<8>()?;
        let at = PhysicalOffset::from_wire(i64::from_be_bytes(*at))?;
        let body_bytes = i32::from_be_bytes(*body_bytes.first_chunk::<4>()?);
        Some(Self { at, body_bytes: u32::try_from(body_bytes).ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/reference/store-format.md 15.6.
    #[test]
    fn a_head_is_written_and_read_as_in_the_reference() {
        let head = FrameHead { at: PhysicalOffset(123_456_789), body_bytes: 231 };
        let bytes = [0, 0, 0, 0, 0x07, 0x5b, 0xcd, 0x15, 0, 0, 0, 0xe7];
        assert_eq!((head.encode(), FrameHead::decode(&bytes)), (bytes, Some(head)));
        assert_eq!(encode_report(head.at), bytes[..8]);
        for at in [0, 8] {
            let mut negative = bytes;
            negative[at] = 0x80;
            assert_eq!(FrameHead::decode(&negative), None);
        }
    }
}

//! Reading: the buffer of a connection, and the frames cut from it.
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use rocketpy_protocol::frame::{Frame, FrameError, decode_frame};
use tokio::io::AsyncReadExt;

use crate::stream::Stream;

/// Smallest and first room for one read.
const MIN_READ_BYTES: usize = 4 * 1024;
/// Largest room for one read of small frames.
const MAX_READ_BYTES: usize = 64 * 1024;
/// A frame's length field reserves at most this much; a longer frame gets more room as its bytes arrive.
const MAX_RESERVED_BYTES: usize = 4 * 1024 * 1024;
/// The length field of a frame.
const LENGTH_BYTES: usize = 4;

/// The bytes read from one peer and not yet handed on.
///
/// Frames are cut off as shared slices of the buffer. Reads grow with the peer's traffic; an idle connection holds no buffer.
#[derive(Debug)]
pub(crate) struct FrameReader {
    buffer: BytesMut,
    read_bytes: usize,
    max_frame_bytes: usize,
    /// A whole frame may be left in the buffer.
    more: bool,
}

impl FrameReader {
    pub(crate) fn new(max_frame_bytes: usize) -> Self {
        Self { buffer: BytesMut::new(), read_bytes: MIN_READ_BYTES, max_frame_bytes, more: false }
    }

    /// The next whole frame that has been read.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        if !self.more {
            return Ok(None);
        }
        let frame = decode_frame(&mut self.buffer, self.max_frame_bytes)?;
        self.more = frame.is_some() && !self.buffer.is_empty();
        Ok(frame)
    }

    /// Whether [`next_frame`](Self::next_frame) may have one.
    pub(crate) fn may_have_frame(&self) -> bool {
        self.more
    }

    /// Whether the peer stopped in the middle of a frame.
    pub(crate) fn is_mid_frame(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Reads once: the number of bytes, 0 at the end of the stream.
    pub(crate) fn poll_read(
        &mut self,
        stream: &mut impl Stream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if stream.poll_read_ready(cx)?.is_pending() {
            self.release_when_empty();
            return Poll::Pending;
        }
        self.make_room();
        let room = self.buffer.capacity() - self.buffer.len();
        let read = pin!(stream.read_buf(&mut self.buffer)).poll(cx)?;
        let Poll::Ready(count) = read else {
            self.release_when_empty();
            return Poll::Pending;
        };
        self.more |= count > 0;
        if count == room {
            self.read_bytes = (self.read_bytes * 2).min(MAX_READ_BYTES);
        } else if count < self.read_bytes / 4 {
            self.read_bytes = (self.read_bytes / 2).max(MIN_READ_BYTES);
        }
        Poll::Ready(Ok(count))
    }

    /// Drops all that was read.
    pub(crate) fn discard(&mut self) {
        self.buffer = BytesMut::new();
        self.more = false;
    }

    fn release_when_empty(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }

    /// Reserves room for the rest of the current frame, up to the limit, and for at least one read.
    fn make_room(&mut self) {
        let have = self.buffer.len();
        let rest = match self.buffer.first_chunk::<LENGTH_BYTES>() {
            Some(length) => (u32::from_be_bytes(*length) as usize + LENGTH_BYTES).saturating_sub(have),
            None => 0,
        };
        let enough = rest.min(MAX_READ_BYTES).max(self.read_bytes / 2);
        if self.buffer.capacity() - have < enough {
            let wanted = rest.min(MAX_RESERVED_BYTES.max(have)).max(self.read_bytes);
            self.buffer.reserve(wanted);
        }
    }
}

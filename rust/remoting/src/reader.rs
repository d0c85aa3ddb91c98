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
/// A block of more than [`MAX_READ_BYTES`] is given up when less than this share of it (1/4) is in use.
const SHRINK_BELOW_SHARE: usize = 4;
/// The length field of a frame.
const LENGTH_BYTES: usize = 4;

/// The bytes read from one peer and not yet handed on.
///
/// Frames are cut off as shared slices of the buffer. Reads grow with the peer's traffic; an idle connection holds no buffer.
#[derive(Debug)]
pub(crate) struct FrameReader {
    buffer: BytesMut,
    /// Size of the block of memory that `buffer` is a part of.
    block_bytes: usize,
    read_bytes: usize,
    max_frame_bytes: usize,
    /// A whole frame may be left in the buffer.
    more: bool,
    /// A frame was completed since this was last asked for.
    progress: bool,
}

impl FrameReader {
    pub(crate) fn new(max_frame_bytes: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            block_bytes: 0,
            read_bytes: MIN_READ_BYTES,
            max_frame_bytes,
            more: false,
            progress: false,
        }
    }

    /// The next whole frame that has been read.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        if !self.more {
            return Ok(None);
        }
        let frame = decode_frame(&mut self.buffer, self.max_frame_bytes)?;
        self.more = frame.is_some() && !self.buffer.is_empty();
        self.progress |= frame.is_some();
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

    /// Whether a frame was completed since the last call.
    pub(crate) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.progress)
    }

    /// Bytes of memory that the buffer keeps. The first block of a connection is too small to count.
    pub(crate) fn held_bytes(&self) -> usize {
        if self.block_bytes > MIN_READ_BYTES { self.block_bytes } else { 0 }
    }

    /// Reads once: the number of bytes, 0 at the end of the stream.
    pub(crate) fn poll_read(
        &mut self,
        stream: &mut impl Stream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if stream.poll_read_ready(cx)?.is_pending() {
            self.release_block();
            return Poll::Pending;
        }
        self.make_room();
        let room = self.buffer.capacity() - self.buffer.len();
        let read = pin!(stream.read_buf(&mut self.buffer)).poll(cx)?;
        let Poll::Ready(count) = read else {
            self.release_block();
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

    /// Takes bytes that were read from the peer elsewhere.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        self.block_bytes = self.block_bytes.max(self.buffer.capacity());
        self.more = true;
    }

    /// Drops all that was read.
    pub(crate) fn discard(&mut self) {
        self.buffer = BytesMut::new();
        self.block_bytes = 0;
        self.more = false;
    }

    /// Gives up the block before a wait when it is empty. A short rest moves from a large block to a small one: a peer cannot keep
    /// the large one by beginning another frame.
    fn release_block(&mut self) {
        let left = self.buffer.len();
        if left == 0 {
            self.buffer = BytesMut::new();
            self.block_bytes = 0;
        } else if self.block_bytes > MAX_READ_BYTES && left < self.block_bytes / SHRINK_BELOW_SHARE {
            let mut smaller = BytesMut::with_capacity(left.max(MIN_READ_BYTES));
            smaller.extend_from_slice(&self.buffer);
            self.block_bytes = smaller.capacity();
            self.buffer = smaller;
        }
    }

    /// Reserves room for at least one read, and for the rest of the current frame, but for no more than has arrived: a length
    /// alone makes nobody reserve memory.
    fn make_room(&mut self) {
        let have = self.buffer.len();
        let rest = match self.buffer.first_chunk::<LENGTH_BYTES>() {
            Some(length) => (u32::from_be_bytes(*length) as usize + LENGTH_BYTES).saturating_sub(have),
            None => 0,
        };
        let enough = rest.min(self.read_bytes).max(self.read_bytes / 2);
        if self.buffer.capacity() - have < enough {
            let wanted = rest.min(have).max(self.read_bytes);
            self.buffer.reserve(wanted);
            self.block_bytes = self.buffer.capacity();
        }
    }
}

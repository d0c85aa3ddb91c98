//! Protocol state of a slave: it follows the frames of its master.

use std::time::Duration;

use rocketpy_model::PhysicalOffset;

use crate::frame::{FrameHead, HEAD_BYTES};

/// The times of a slave, and what it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FollowConfig {
    /// Maximum time between two reports (`haSendHeartbeatInterval`).
    pub report_every: Duration,
    /// Maximum silence of the master; then the connection ends (`haHousekeepingInterval`).
    pub silence_limit: Duration,
    /// Maximum length of the body of a frame.
    pub max_body_bytes: u32,
}

/// Next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowStep {
    /// Tell the master that the log is empty and everything is wanted.
    AskForAll,
    /// Tell the master how far the log reaches.
    Report {
        /// The end of the own log.
        end: PhysicalOffset,
    },
    /// Nothing, until bytes come or it is this late.
    Wait {
        /// The time to look again.
        until: Duration,
    },
}

/// Cause of the end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FollowEnd {
    /// The bytes of the master would not follow the own ones.
    #[error(
        "master sends the log from {at} on, but this slave expects {wanted}: the logs differ, or the master removed the files between"
    )]
    OutOfStep {
        /// Where the frame begins.
        at: PhysicalOffset,
        /// Where it had to begin.
        wanted: PhysicalOffset,
    },
    #[error("frame of {body_bytes} bytes from the master exceeds the limit of {limit}")]
    FrameTooLong {
        body_bytes: u32,
        /// Maximum length.
        limit: u32,
    },
    /// Negative offset or length.
    #[error("the received bytes are not frames of a master: another program may listen at that address")]
    NoFrame,
    /// The master was silent for too long.
    #[error("master sent no data for {0:?}")]
    Silent(Duration),
}

/// Protocol state of a slave: it follows the frames of its master.
///
/// Bytes of the log are kept until their record is whole: the caller takes whole records from [`Self::pending`], appends them and
/// says so by [`Self::appended`].
///
/// # Source
/// docs/reference/store-format.md 12.2 and 12.4.
#[derive(Debug)]
#[doc(alias = "HAClient")]
pub struct Follow {
    config: FollowConfig,
    /// Head of a frame that is not whole yet.
    head: Vec<u8>,
    /// Bytes of the current frame that have not come.
    missing: u32,
    /// Bytes of the log that follow `end`.
    pending: Vec<u8>,
    /// The own log reaches to here.
    end: PhysicalOffset,
    reported: Option<PhysicalOffset>,
    reported_at: Duration,
    heard_at: Duration,
    asks_for_all: bool,
}

impl Follow {
    /// Connected at `now`, with a log that reaches to `end`.
    #[must_use]
    pub fn new(config: FollowConfig, end: PhysicalOffset, now: Duration) -> Self {
        Self {
            config,
            head: Vec::with_capacity(HEAD_BYTES),
            missing: 0,
            pending: Vec::new(),
            end,
            reported: None,
            reported_at: now,
            heard_at: now,
            asks_for_all: false,
        }
    }

    /// The same for an empty log that is to begin with the first file of a RocketPy master.
    #[must_use]
    pub fn asking_for_all(mut self) -> Self {
        self.asks_for_all = true;
        self
    }

    /// Received bytes after the end of the own log.
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        &self.pending
    }

    /// Where [`Self::pending`] begins.
    #[must_use]
    pub fn end(&self) -> PhysicalOffset {
        self.end
    }

    /// Processes bytes of the master.
    ///
    /// # Errors
    /// The connection has to be closed. What came before is whole and may be appended.
    pub fn heard(&mut self, mut bytes: &[u8], now: Duration) -> Result<(), FollowEnd> {
        self.heard_at = now;
        while !bytes.is_empty() {
            if self.missing > 0 {
                let (body, rest) = bytes.split_at(bytes.len().min(self.missing as usize));
                self.pending.extend_from_slice(body);
                self.missing -= body.len() as u32;
                bytes = rest;
                continue;
            }
            let (head, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES - self.head.len()));
            self.head.extend_from_slice(head);
            bytes = rest;
            if let Ok(head) = <&[u8; HEAD_BYTES]>::try_from(&*self.head) {
                let head = FrameHead::decode(head).ok_or(FollowEnd::NoFrame)?;
                self.head.clear();
                self.begin(head)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, FrameHead { at, body_bytes }: FrameHead) -> Result<(), FollowEnd> {
        let (limit, wanted) = (self.config.max_body_bytes, self.end + self.pending.len() as u64);
        if at != wanted {
            return Err(FollowEnd::OutOfStep { at, wanted });
        }
        if body_bytes > limit {
            return Err(FollowEnd::FrameTooLong { body_bytes, limit });
        }
        self.missing = body_bytes;
        Ok(())
    }

    /// Notes that the first `bytes` pending bytes are in the log now.
    ///
    /// # Panics
    /// When that many bytes are not pending.
    pub fn appended(&mut self, bytes: usize) {
        assert!(
            bytes <= self.pending.len(),
            "no more is appended than was received: {bytes} of {}",
            self.pending.len()
        );
        self.pending.drain(..bytes);
        self.end += bytes as u64;
    }

    /// The caller was busy until now, and did not listen.
    pub fn was_busy(&mut self, now: Duration) {
        self.heard_at = now;
    }

    /// What to do now, given the end that may be reported: under SYNC_FLUSH the flushed offset, else the end of the log.
    ///
    /// # Errors
    /// The connection has to be closed.
    pub fn step(&self, reportable_end: PhysicalOffset, now: Duration) -> Result<FollowStep, FollowEnd> {
        assert!(
            reportable_end <= self.end,
            "a slave never reports past the end of its log: {reportable_end} of {}",
            self.end
        );
        let silence_ends = self.heard_at + self.config.silence_limit;
        if now > silence_ends {
            return Err(FollowEnd::Silent(self.config.silence_limit));
        }
        if self.asks_for_all && self.reported.is_none() {
            return Ok(FollowStep::AskForAll);
        }
        let report_at = self.reported_at + self.config.report_every;
        if self.reported.is_none_or(|reported| reported < reportable_end) || now >= report_at {
            return Ok(FollowStep::Report { end: reportable_end });
        }
        Ok(FollowStep::Wait { until: report_at.min(silence_ends) })
    }

    /// The report is on its way.
    pub fn reported(&mut self, end: PhysicalOffset, now: Duration) {
        (self.reported, self.reported_at) = (Some(end), now);
    }
}

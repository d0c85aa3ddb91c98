//! Protocol state of a master for one slave: it feeds the log.

use std::time::Duration;

use rocketpy_env::planted::{self, Bug};
use rocketpy_model::PhysicalOffset;

use crate::frame::{FROM_THE_FIRST_FILE, REPORT_BYTES};

/// A frame is not bounded to less than this.
const LEAST_FRAME_BYTES: usize = 4096;

/// The times of a master, and how long its frames are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedConfig {
    /// Maximum silence towards the slave; then it gets a heartbeat (`haSendHeartbeatInterval`).
    pub heartbeat_every: Duration,
    /// Maximum silence of the slave; then the connection ends (`haHousekeepingInterval`).
    pub silence_limit: Duration,
    /// Maximum number of bytes of the log in a frame (`haTransferBatchSize`).
    pub max_body_bytes: usize,
    /// Maximum number of bytes of the log that the slave gets in a second, averaged from frame to frame; `None`: no bound (`maxHaTransferByteInSecond`).
    pub max_bytes_per_second: Option<u64>,
}

/// The log of the master as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRange {
    /// Where its first file starts.
    pub start: PhysicalOffset,
    /// Behind the last byte that is written, flushed or not.
    pub end: PhysicalOffset,
    /// Length of its files.
    pub file_bytes: u64,
}

/// Next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedStep {
    /// Send a frame of the log that does not cross the end of a file.
    Send {
        /// Where they begin.
        at: PhysicalOffset,
        /// Maximum number of bytes.
        max_bytes: usize,
    },
    /// Send a frame without bytes.
    Heartbeat {
        /// The place of the next byte.
        at: PhysicalOffset,
    },
    /// Nothing, until it is this late: the slave has had as much as it may get.
    Pause {
        /// The time to look again.
        until: Duration,
    },
    /// Nothing, until the log grows, a report comes, or it is this late.
    Wait {
        /// The time to look again.
        until: Duration,
    },
}

/// Cause of the end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FeedEnd {
    /// Bytes of another program, or a misaligned report.
    #[error("slave reported {found}, which is not an offset of a log")]
    NoReport {
        /// Value of the eight bytes.
        found: i64,
    },
    /// The slave has bytes that the master never had, or no longer has: two histories.
    #[error(
        "slave's log ends at {reported}, past the end of this master's log at {end}: the slave has another log, the peer is not a slave, or \
         this master lost the end of its log"
    )]
    Ahead {
        /// End of the slave's log.
        reported: PhysicalOffset,
        /// End of the master's log.
        end: PhysicalOffset,
    },
    /// Retention removed the files that the slave needs next.
    #[error(
        "the slave needs the log from {next} on, but older files were removed and it now starts at {start}: restart the slave with an empty folder"
    )]
    Removed {
        /// Next offset that the slave needs.
        next: PhysicalOffset,
        /// Where the master's log begins.
        start: PhysicalOffset,
    },
    /// The slave reported bytes that it was not sent.
    #[error("slave reported {reported}, but was sent the log only up to {sent}")]
    NotSent {
        /// End of its log, as reported.
        reported: PhysicalOffset,
        sent: PhysicalOffset,
    },
    /// The slave was silent for too long.
    #[error("slave sent no data for {0:?}")]
    Silent(Duration),
}

/// Protocol state of a master for one slave: it feeds the log.
///
/// The first report says where to begin; before it nothing is sent. An empty log reports 0 and gets the last file from its start on, or
/// [`FROM_THE_FIRST_FILE`] and gets everything.
///
/// # Source
/// docs/reference/store-format.md 12.2 and 12.3.
#[derive(Debug)]
#[doc(alias = "HAConnection")]
pub struct Feed {
    config: FeedConfig,
    /// The beginning of a report whose end has not come.
    partial: Vec<u8>,
    /// Where the next frame begins; `None` before the first report.
    next: Option<PhysicalOffset>,
    /// The log of the slave reaches to here.
    acknowledged: Option<PhysicalOffset>,
    heard_at: Duration,
    sent_at: Duration,
    /// When the next frame may go.
    free_at: Duration,
    asked_for_all: bool,
}

impl Feed {
    /// For a slave that connected at `now`.
    #[must_use]
    pub fn new(config: FeedConfig, now: Duration) -> Self {
        Self {
            config,
            partial: Vec::with_capacity(REPORT_BYTES),
            next: None,
            acknowledged: None,
            heard_at: now,
            sent_at: now,
            free_at: now,
            asked_for_all: false,
        }
    }

    /// The slave takes longer frames than Apache's.
    pub fn takes(&mut self, max_body_bytes: usize) {
        self.config.max_body_bytes = self.config.max_body_bytes.max(max_body_bytes);
    }

    /// Whether the slave is empty and gets everything.
    #[must_use]
    pub fn asked_for_all(&self) -> bool {
        self.asked_for_all
    }

    /// End of the slave's log, as last reported.
    #[must_use]
    pub fn acknowledged(&self) -> Option<PhysicalOffset> {
        self.acknowledged
    }

    /// Where the next frame begins.
    #[must_use]
    pub fn next(&self) -> Option<PhysicalOffset> {
        self.next
    }

    /// Processes bytes of the slave. Of several reports the last one counts.
    ///
    /// # Errors
    /// The connection has to be closed.
    pub fn heard(&mut self, bytes: &[u8], log: LogRange, now: Duration) -> Result<(), FeedEnd> {
        self.heard_at = now;
        self.partial.extend_from_slice(bytes);
        let whole = self.partial.len() - self.partial.len() % REPORT_BYTES;
        let Some(last) = self.partial[..whole].last_chunk::<REPORT_BYTES>() else { return Ok(()) };
        let found = i64::from_be_bytes(*last);
        self.partial.drain(..whole);
        if found == FROM_THE_FIRST_FILE && self.next.is_none() {
            self.next = Some(log.start);
            self.acknowledged = Some(log.start);
            self.asked_for_all = true;
            return Ok(());
        }
        let reported = PhysicalOffset::from_wire(found).ok_or(FeedEnd::NoReport { found })?;
        match self.next {
            None => self.begin(reported, log)?,
            Some(sent) if reported > sent && !planted::has(Bug::ReportAheadTaken) => {
                return Err(FeedEnd::NotSent { reported, sent });
            }
            Some(_) => {}
        }
        self.acknowledged = self.acknowledged.max(Some(reported));
        assert!(self.acknowledged <= self.next, "the confirm offset never passes what was sent: {reported}");
        Ok(())
    }

    fn begin(&mut self, reported: PhysicalOffset, log: LogRange) -> Result<(), FeedEnd> {
        if reported > log.end {
            return Err(FeedEnd::Ahead { reported, end: log.end });
        }
        let is_empty = reported == PhysicalOffset::ZERO;
        self.next =
            Some(if is_empty { log.end.block_start(log.file_bytes).max(log.start) } else { reported });
        Ok(())
    }

    /// Next action.
    ///
    /// # Errors
    /// The connection has to be closed.
    pub fn step(&self, log: LogRange, now: Duration) -> Result<FeedStep, FeedEnd> {
        let silence_ends = self.heard_at + self.config.silence_limit;
        if now > silence_ends {
            return Err(FeedEnd::Silent(self.config.silence_limit));
        }
        let Some(next) = self.next else { return Ok(FeedStep::Wait { until: silence_ends }) };
        assert!(next <= log.end, "a slave is never fed past the end of the log: {next} of {}", log.end);
        if next < log.start {
            return Err(FeedEnd::Removed { next, start: log.start });
        }
        if next < log.end && now >= self.free_at {
            return Ok(FeedStep::Send { at: next, max_bytes: self.frame_bytes() });
        }
        let heartbeat_at = self.sent_at + self.config.heartbeat_every;
        if now >= heartbeat_at {
            return Ok(FeedStep::Heartbeat { at: next });
        }
        let until = heartbeat_at.min(silence_ends);
        if next < log.end {
            return Ok(FeedStep::Pause { until: until.min(self.free_at) });
        }
        Ok(FeedStep::Wait { until })
    }

    /// Maximum number of bytes of the log in a frame: where the rate is bounded, no more than a tenth of a second's.
    fn frame_bytes(&self) -> usize {
        let max = self.config.max_body_bytes;
        self.config
            .max_bytes_per_second
            .map_or(max, |rate| max.min(((rate / 10) as usize).max(LEAST_FRAME_BYTES)))
    }

    /// Notes that a frame with `body_bytes` bytes of the log is being sent.
    ///
    /// # Panics
    /// Before the first report.
    pub fn sent(&mut self, body_bytes: usize, now: Duration) {
        let next = self.next.expect("nothing is sent before the first report");
        assert!(
            body_bytes <= self.config.max_body_bytes,
            "a frame is no longer than the slave takes: {body_bytes}"
        );
        self.next = Some(next + body_bytes as u64);
        self.sent_at = now;
        if let Some(rate) = self.config.max_bytes_per_second {
            let takes = Duration::from_secs_f64(body_bytes as f64 / rate.max(1) as f64);
            self.free_at = self.free_at.max(now) + takes;
        }
    }
}

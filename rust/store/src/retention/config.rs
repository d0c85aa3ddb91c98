//! Retention times of messages, and the effect of a full disk on them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::error::StoreError;

/// When log files are removed, and when appends are refused because space is short. The defaults are Apache's.
///
/// # Source
/// docs/reference/store-format.md 7.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionConfig {
    /// Age at which a file may be removed, 72 h, counted from the last write into it.
    #[doc(alias = "fileReservedTime")]
    pub reserved_time: Duration,
    /// Hours of the local day in which files that are old enough are removed, 04.
    #[doc(alias = "deleteWhen")]
    pub delete_hours: DeleteHours,
    /// With more of the disk in use than this, in percent, files that are old enough are removed at any hour, 75; 10 to
    /// 95.
    #[doc(alias = "diskMaxUsedSpaceRatio")]
    pub max_used_percent: u64,
    /// Above this use in percent the oldest files are removed at any age, 85; 30 to 85. A folder above it gets no new
    /// file while another one has space.
    #[doc(alias = "diskSpaceCleanForciblyRatio")]
    pub force_used_percent: u64,
    /// Above this use in percent appends are refused, 90; 35 to 90. They are accepted again once the use is below
    /// `force_used_percent`.
    #[doc(alias = "diskSpaceWarningLevelRatio")]
    pub refuse_used_percent: u64,
    /// Whether files that are not old enough may be removed when the disk fills up; default true.
    #[doc(alias = "cleanFileForciblyEnable")]
    pub clean_forcibly: bool,
    /// Maximum size of the log in bytes: above it the oldest files are removed at any hour. `None`, the default, is no
    /// bound. Not Apache's.
    pub max_bytes: Option<u64>,
    /// Maximum number of log files that one round removes, 10.
    #[doc(alias = "deleteFileBatchMax")]
    pub files_a_round: usize,
    /// Pause between two files of the log, 100 ms.
    #[doc(alias = "deleteCommitLogFilesInterval")]
    pub log_file_pause: Duration,
    /// Pause between two files of consume queues, 100 ms.
    #[doc(alias = "deleteConsumeQueueFilesInterval")]
    pub queue_file_pause: Duration,
    /// Interval of the rounds, and of the checks of the disk's space, 10 s.
    #[doc(alias = "cleanResourceInterval")]
    pub interval: Duration,
    /// From the start to the first round, 60 s. The start itself checks the space of the disk.
    pub first_after: Duration,
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            reserved_time: Duration::from_secs(72 * 3600),
            delete_hours: DeleteHours::of(&[4]),
            max_used_percent: 75,
            force_used_percent: 85,
            refuse_used_percent: 90,
            clean_forcibly: true,
            max_bytes: None,
            files_a_round: 10,
            log_file_pause: Duration::from_millis(100),
            queue_file_pause: Duration::from_millis(100),
            interval: Duration::from_secs(10),
            first_after: Duration::from_secs(60),
        }
    }
}

impl RetentionConfig {
    /// Brings the percentages into the bounds that the field docs name, as Apache does, and checks the rest.
    ///
    /// # Errors
    /// [`StoreError::BadConfig`].
    pub(crate) fn checked(mut self) -> Result<Self, StoreError> {
        self.max_used_percent = self.max_used_percent.clamp(10, 95);
        self.force_used_percent = self.force_used_percent.clamp(30, 85);
        self.refuse_used_percent = self.refuse_used_percent.clamp(35, 90);
        if self.interval.is_zero() {
            return Err(StoreError::BadConfig {
                field: "retention.interval",
                value: 0,
                allowed: "more than zero",
            });
        }
        self.files_a_round = self.files_a_round.max(1);
        Ok(self)
    }

    /// The age at which a file may be removed, in milliseconds.
    pub(crate) fn reserved_ms(&self) -> i64 {
        i64::try_from(self.reserved_time.as_millis()).unwrap_or(i64::MAX)
    }
}

/// A set of hours of the day.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct DeleteHours(u32);

impl DeleteHours {
    /// The hours given.
    ///
    /// # Panics
    /// When one is not between 0 and 23.
    pub fn of(hours: &[u32]) -> Self {
        assert!(hours.iter().all(|hour| *hour < 24), "a day has 24 hours: {hours:?}");
        Self(hours.iter().fold(0, |bits, hour| bits | 1 << hour))
    }

    /// Whether an hour is one of them.
    pub fn contains(self, hour: u32) -> bool {
        hour < 24 && self.0 & 1 << hour != 0
    }
}

impl fmt::Display for DeleteHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, hour) in (0..24).filter(|hour| self.contains(*hour)).enumerate() {
            write!(f, "{}{hour:02}", if index == 0 { "" } else { ";" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for DeleteHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeleteHours({self})")
    }
}

/// A text that names no hours of the day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("hours of the day from 00 to 23, separated by semicolons")]
pub struct BadHours;

impl FromStr for DeleteHours {
    type Err = BadHours;

    /// Reads Apache's form: `04`, or `04;16`.
    fn from_str(text: &str) -> Result<Self, BadHours> {
        let hours = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        let hours: Vec<u32> = hours
            .map(|part| part.parse().ok().filter(|hour| *hour < 24).ok_or(BadHours))
            .collect::<Result<_, _>>()?;
        if hours.is_empty() { Err(BadHours) } else { Ok(Self::of(&hours)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_read_as_apache_writes_them() {
        let hours: DeleteHours = "04; 16;".parse().unwrap();
        assert_eq!(hours.to_string(), "04;16");
        assert_eq!((0..30).filter(|hour| hours.contains(*hour)).collect::<Vec<_>>(), [4, 16]);
        assert_eq!("4".parse(), Ok(DeleteHours::of(&[4])));
        for bad in ["", ";", "24", "-1", "four", "4,16"] {
            assert_eq!(bad.parse::<DeleteHours>(), Err(BadHours), "{bad}");
        }
    }

    #[test]
    fn percentages_stay_in_the_bounds_that_apache_gives_them() {
        let of = |percent| {
            let config = RetentionConfig {
                max_used_percent: percent,
                force_used_percent: percent,
                refuse_used_percent: percent,
                ..RetentionConfig::default()
            };
            let config = config.checked().unwrap();
            (config.max_used_percent, config.force_used_percent, config.refuse_used_percent)
        };
        assert_eq!((of(0), of(100), of(50)), ((10, 30, 35), (95, 85, 90), (50, 50, 50)));
        let endless = RetentionConfig { interval: Duration::ZERO, ..RetentionConfig::default() };
        assert!(endless.checked().is_err());
    }
}

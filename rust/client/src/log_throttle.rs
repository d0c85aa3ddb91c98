//! A failure that lasts: it is reported when it begins, then once in a while, and when it is over.

use std::time::{Duration, Instant};

/// Time between two reports of a failure that lasts.
const REMIND_INTERVAL: Duration = Duration::from_secs(60);

/// What was reported of one kind of failure.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle {
    reported: Option<Instant>,
}

impl LogThrottle {
    /// Notes a failure. True when it is to be reported.
    pub(crate) fn failed(&mut self, now: Instant) -> bool {
        let is_due = self.reported.is_none_or(|at| now.saturating_duration_since(at) >= REMIND_INTERVAL);
        if is_due {
            self.reported = Some(now);
        }
        is_due
    }

    /// Notes a success. True when a failure was reported before.
    pub(crate) fn worked(&mut self) -> bool {
        self.reported.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_reported_at_its_start_each_minute_and_at_its_end() {
        let (mut lasting, start) = (LogThrottle::default(), Instant::now());
        assert!(!lasting.worked());
        let reports = (0..200).filter(|second| lasting.failed(start + Duration::from_secs(*second)));
        assert_eq!(reports.collect::<Vec<_>>(), [0, 60, 120, 180]);
        assert!(lasting.worked());
        assert!(!lasting.worked());
        assert!(lasting.failed(start + Duration::from_secs(201)), "the next failure is another one");
    }
}

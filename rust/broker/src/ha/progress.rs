//! Keeps how far slaves have the log.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_env::RealDisk;
use tracing::warn;

use super::Past;
use crate::blocking::aside;
use crate::service::{Pace, Service, Work};

const WRITE_EVERY: Duration = Duration::from_secs(1);

/// Writes what slaves have reported, aside from their reports: a send must not wait for this file.
pub(crate) struct SlaveProgress {
    past: Arc<Past<RealDisk>>,
    pace: Pace,
    /// Why the last round wrote nothing.
    unwritten: Mutex<Option<String>>,
}

impl SlaveProgress {
    pub(crate) fn new(past: Arc<Past<RealDisk>>) -> Self {
        Self { past, pace: Pace::new(WRITE_EVERY, WRITE_EVERY), unwritten: Mutex::default() }
    }
}

impl Service for SlaveProgress {
    fn name(&self) -> &str {
        "progress of slaves"
    }

    fn due(&self) -> Work<'_> {
        Box::pin(self.pace.due())
    }

    fn round(&self) -> Work<'_> {
        Box::pin(async {
            let past = self.past.clone();
            let failed = aside(move || past.settle()).await.err().map(|error| error.to_string());
            let mut told = self.unwritten.lock();
            if let Some(cause) = &failed
                && *told != failed
            {
                warn!(cause, "slave progress not saved, retrying");
            }
            *told = failed;
        })
    }
}

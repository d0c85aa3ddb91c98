//! Failed sends that no caller has noticed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::warn;

use super::outcomes::Outcome;

/// Minimum time between two warnings of one producer.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Counts the failed sends of a producer whose outcomes were dropped unread, and logs them: the first at once, the others together.
#[derive(Debug)]
pub struct UnreadFailures {
    group: Box<str>,
    /// The standard library's lock: a child may be forked while another thread drops outcomes.
    state: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    total: u64,
    logged: u64,
    logged_at: Option<Instant>,
    last_error: String,
}

/// The failed send of one message. Dropping it unread counts and logs it.
#[derive(Debug)]
pub struct Failure {
    outcome: Outcome,
    /// `None` once the failure was read.
    unread: Option<Arc<UnreadFailures>>,
}

impl UnreadFailures {
    /// None yet.
    pub fn new(group: &str) -> Arc<Self> {
        Arc::new(Self { group: group.into(), state: Mutex::default() })
    }

    /// The failure of an outcome; `None` if its message was acknowledged.
    pub fn failure(self: &Arc<Self>, outcome: &Outcome) -> Option<Failure> {
        let is_failed = outcome.status().is_none();
        is_failed.then(|| Failure { outcome: outcome.clone(), unread: Some(self.clone()) })
    }

    /// Logs the failures that were not logged yet.
    pub fn log(&self) {
        self.log_unlogged(&mut self.counts());
    }

    fn add(&self, outcome: &Outcome) {
        let mut counts = self.counts();
        counts.total += 1;
        let is_due = counts.logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL);
        if let Err(error) = outcome.receipt()
            && (is_due || counts.last_error.is_empty())
        {
            counts.last_error = error.to_string();
        }
        if is_due {
            self.log_unlogged(&mut counts);
        }
    }

    fn log_unlogged(&self, counts: &mut Counts) {
        let messages = counts.total - counts.logged;
        if messages == 0 {
            return;
        }
        (counts.logged, counts.logged_at) = (counts.total, Some(Instant::now()));
        warn!(
            group = %self.group,
            messages,
            total = counts.total,
            last_error = counts.last_error,
            "failed sends unnoticed: their futures were dropped without result() or exception()"
        );
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UnreadFailures {
    fn drop(&mut self) {
        self.log();
    }
}

impl Failure {
    /// Notes that a caller has read the failure.
    pub fn read(&mut self) {
        self.unread = None;
    }
}

impl Drop for Failure {
    fn drop(&mut self) {
        if let Some(unread) = &self.unread {
            unread.add(&self.outcome);
        }
    }
}

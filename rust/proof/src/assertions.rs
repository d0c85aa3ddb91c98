//! Runs that fire one assertion each, once its bug is planted: what a store does in its own threads, and what two brokers compare.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketpy_ha::{Epoch, Epochs, Feed, FeedConfig, LogRange, MasterRestarts, encode_report};
use rocketpy_model::PhysicalOffset;
use rocketpy_store::planted::Bug;
use rocketpy_store::{NewRecord, RetentionConfig, Store, StoreConfig, StoreError};

/// Longest wait for the threads of a store to meet the assertion.
const PATIENCE: Duration = Duration::from_secs(60);

/// Does what meets the assertion of a bug, and returns the text of the assertion that failed; `None` when none did. The bug is planted in
/// the whole process.
///
/// # Errors
/// The run itself failed.
pub fn provoke(bug: Bug) -> Result<Option<String>, String> {
    match bug {
        Bug::EpochsNotCutBack => Ok(caught(begin_epochs)),
        Bug::RestartKeepsAcknowledged => Ok(caught(restart_shorter)),
        Bug::ReportAheadTaken => Ok(caught(report_ahead)),
        _ => in_store(),
    }
}

/// The text of the panic of a call.
fn caught(call: fn()) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(call)).err()?;
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
}

fn begin_epochs() {
    let mut epochs = Epochs::default();
    for (id, start) in [(1, 0), (2, 200), (3, 100)] {
        epochs.begin(Epoch { id, start: PhysicalOffset(start), after_loss: false });
    }
}

fn restart_shorter() {
    let mut restarts = MasterRestarts::default();
    restarts.acknowledged("10.0.0.2", PhysicalOffset(1000));
    restarts.begin(PhysicalOffset(900), true);
}

fn report_ahead() {
    let config = FeedConfig {
        heartbeat_every: PATIENCE,
        silence_limit: PATIENCE,
        max_body_bytes: 1 << 20,
        max_bytes_per_second: None,
    };
    let log = LogRange { start: PhysicalOffset(0), end: PhysicalOffset(1000), file_bytes: 1 << 20 };
    let mut feed = Feed::new(config, Duration::ZERO);
    for end in [500, 900] {
        let _ = feed.heard(&encode_report(PhysicalOffset(end)), log, Duration::ZERO);
    }
}

/// Appends, flushes, dispatches, writes the mark and removes old files in a store with its threads, until an assertion has poisoned it.
fn in_store() -> Result<Option<String>, String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let retention = RetentionConfig { max_bytes: Some(1), files_a_round: 100, ..RetentionConfig::default() };
    let config = StoreConfig {
        commit_log_file_size: 16 << 10,
        consume_queue_file_size: 2000,
        index: false, // the assertions of its own come before those of the mark
        flush_interval: PATIENCE,
        flush_thorough_interval: PATIENCE,
        checkpoint_interval: Duration::from_millis(50),
        retention,
        ..StoreConfig::new(dir.path())
    };
    let store = Store::open(config).map_err(|error| error.to_string())?;
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        for _ in 0..20 {
            let _ = store.append(&record(&[7; 1000]));
        }
        let failed = failed_assertion(&store);
        if failed.is_some() {
            return after_failure(&store, failed);
        }
        let is_due = started.elapsed() > Duration::from_millis(300); // the checkpoint thread comes first
        if is_due {
            let _ = store.wait_flushed(store.max_physical_offset(), PATIENCE);
            let _ = store.clean();
        }
        std::thread::yield_now();
    }
    Ok(None)
}

fn failed_assertion(store: &Store) -> Option<String> {
    match store.poisoned() {
        Some(StoreError::AssertionFailed { text }) => Some(text.to_string()),
        _ => None,
    }
}

/// Says what failed, once the store refuses appends and an orderly close.
fn after_failure(store: &Arc<Store>, failed: Option<String>) -> Result<Option<String>, String> {
    if store.append(&record(b"refused")).is_ok() {
        return Err("a store takes messages after an assertion failed".to_owned());
    }
    match store.shutdown() {
        Err(StoreError::AssertionFailed { .. }) => Ok(failed),
        closed => Err(format!("the close of a store with a failed assertion: {closed:?}")),
    }
}

fn record(body: &[u8]) -> NewRecord<'_> {
    NewRecord {
        topic: "t",
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_at_ms: 1_700_000_000_000,
        born_host: ([127, 0, 0, 1], 50_000).into(),
        reconsume_times: 0,
        prepared_transaction_offset: PhysicalOffset::ZERO,
        body,
        properties: b"TAGS\x01TagA\x02",
        may_have_crc: true,
    }
}

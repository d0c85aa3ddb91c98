//! Which records Python's loggers want.

use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::prelude::*;
use tracing::{Level, Metadata, callsite};

/// The loggers, by index: one for all, and one for each part whose records a user may want alone.
pub(super) const LOGGERS: [&str; 6] = [
    "rocketpy.client",
    "rocketpy.client.consumer",
    "rocketpy.client.producer",
    "rocketpy.client.admin",
    "rocketpy.client.connection",
    "rocketpy.store",
];

/// Levels of records, with Python's. Python has none below DEBUG, only its number.
const LEVELS: [(Level, u8); 5] =
    [(Level::ERROR, 40), (Level::WARN, 30), (Level::INFO, 20), (Level::DEBUG, 10), (Level::TRACE, 5)];

/// How many of [`LEVELS`] each logger wants, from the first on.
static WANTED: [AtomicUsize; LOGGERS.len()] = [const { AtomicUsize::new(0) }; LOGGERS.len()];

/// The logger of a record of a client or a store tool; `None` for others, such as servers, which print their own lines.
pub(super) fn logger_of(metadata: &Metadata<'_>) -> Option<usize> {
    let target = metadata.target();
    if target == "rocketpy_remoting::client" {
        return Some(4);
    }
    let mut modules = target.split("::");
    match modules.next() {
        Some("rocketpy_client") => {}
        Some("rocketpy_tools") => return Some(5),
        _ => return None,
    }
    match modules.next() {
        Some("consumer") => Some(1),
        Some("producer") => Some(2),
        Some("admin") => Some(3),
        _ => Some(0),
    }
}

/// Whether a logger wants a record.
pub(super) fn is_wanted(logger: usize, level: Level) -> bool {
    LEVELS[..WANTED[logger].load(Ordering::Relaxed)].iter().any(|(wanted, _)| *wanted == level)
}

/// The finest level that some logger wants.
pub(super) fn finest() -> Option<Level> {
    let most = WANTED.iter().map(|wanted| wanted.load(Ordering::Relaxed)).max().unwrap_or(0);
    LEVELS[..most].last().map(|(level, _)| *level)
}

/// Python's number of a level.
pub(super) fn python_level(level: Level) -> u8 {
    LEVELS.iter().find(|(one, _)| *one == level).map_or(0, |(_, number)| *number)
}

/// Asks Python's loggers what they want now. Holds the interpreter lock throughout, so that no fork happens meanwhile.
pub(super) fn read(py: Python<'_>) -> PyResult<()> {
    let logging = py.import("logging")?;
    let before = finest();
    for (name, wanted) in LOGGERS.iter().zip(&WANTED) {
        let logger = logging.call_method1("getLogger", (name,))?;
        let mut count = 0;
        for (_, number) in LEVELS {
            if !logger.call_method1("isEnabledFor", (number,))?.is_truthy()? {
                break;
            }
            count += 1;
        }
        wanted.store(count, Ordering::Relaxed);
    }
    if finest() != before {
        callsite::rebuild_interest_cache();
    }
    Ok(())
}

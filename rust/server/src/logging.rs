//! Log lines of the process.

use tracing::warn;
use tracing_subscriber::EnvFilter;

/// Writes log lines to standard error; `ROCKETPY_LOG` selects them (`debug`, `rocketpy_store=trace,info`). A second call
/// does nothing.
pub fn init_logging() {
    let given = std::env::var("ROCKETPY_LOG").unwrap_or_default();
    let parsed = if given.is_empty() { Ok(EnvFilter::new("info")) } else { EnvFilter::try_new(&given) };
    let (filter, wrong) =
        parsed.map_or_else(|error| (EnvFilter::new("info"), Some(error)), |filter| (filter, None));
    // A line that cannot be written, on a full disk or to a reader that is gone, is lost. The subscriber would say so on the same standard
    // error, and panic.
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .log_internal_errors(false);
    // A subscriber that is there already stays.
    drop(lines.try_init());
    if let Some(error) = wrong {
        warn!(ROCKETPY_LOG = given, %error, "cannot parse the log filter, using info");
    }
}

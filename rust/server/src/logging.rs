use tracing::warn;
use tracing_subscriber::EnvFilter;

/// Writes log lines to standard error; `ROCKETPY_LOG` says which (`debug`, `rocketpy_store=trace,info`). A second call
/// does nothing.
pub fn init_logging() {
    let given = std::env::var("ROCKETPY_LOG").unwrap_or_default();
    let parsed = if given.is_empty() { Ok(EnvFilter::new("info")) } else { EnvFilter::try_new(&given) };
    let (filter, wrong) =
        parsed.map_or_else(|error| (EnvFilter::new("info"), Some(error)), |filter| (filter, None));
    let lines =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    // Somebody else's subscriber stays.
    drop(lines.try_init());
    if let Some(error) = wrong {
        warn!(ROCKETPY_LOG = given, %error, "the filter of the log cannot be read, info is taken");
    }
}

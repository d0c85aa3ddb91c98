use tracing_subscriber::EnvFilter;

/// Writes log lines to standard error; `ROCKETPY_LOG` says which (`debug`, `rocketpy_store=trace,info`). A second call
/// does nothing.
pub fn init_logging() {
    let filter = EnvFilter::try_from_env("ROCKETPY_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let lines =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    // Somebody else's subscriber stays.
    drop(lines.try_init());
}

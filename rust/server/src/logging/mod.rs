//! Log lines of the process.

mod file;

use std::fmt::{self, Debug, Write};
use std::io;
use std::sync::OnceLock;

use file::LogFile;
pub use file::LogFileConfig;
use rocketpy_model::printable::Printable;
use tracing::field::Field;
use tracing::warn;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{self, FormatFields};
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::ServerError;

/// Form of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Time, level, module, message and `key=value` fields.
    #[default]
    Text,
    /// One JSON object per line: `timestamp`, `level`, `fields` with `message` among them, and `target`.
    Json,
}

/// The log file of the process, if it has one.
static FILE: OnceLock<LogFile> = OnceLock::new();

/// Writes log lines to a file, or to standard error; `ROCKETPY_LOG` selects them (`debug`, `rocketpy_store=trace,info`). A second
/// call does nothing.
///
/// # Errors
/// The file cannot be opened.
pub fn init_logging(file: Option<LogFileConfig>, format: LogFormat) -> Result<(), ServerError> {
    let given = std::env::var("ROCKETPY_LOG").unwrap_or_default();
    let parsed = if given.is_empty() { Ok(EnvFilter::new("info")) } else { EnvFilter::try_new(&given) };
    let (filter, wrong) =
        parsed.map_or_else(|error| (EnvFilter::new("info"), Some(error)), |filter| (filter, None));
    let writer = match file.map(LogFile::open).transpose().map_err(ServerError::LogFile)? {
        Some(file) => {
            let file = FILE.get_or_init(|| file);
            BoxMakeWriter::new(move || file.clone())
        }
        None => BoxMakeWriter::new(io::stderr),
    };
    // A line that cannot be written, on a full disk or to a reader that is gone, is lost. The subscriber would say so on standard error,
    // and panic.
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(false)
        .log_internal_errors(false);
    // A subscriber that is there already stays.
    drop(match format {
        LogFormat::Text => lines.fmt_fields(fields()).try_init(),
        LogFormat::Json => lines.json().with_current_span(false).with_span_list(false).try_init(),
    });
    if let Some(error) = wrong {
        warn!(ROCKETPY_LOG = given, %error, "cannot parse the log filter, using info");
    }
    Ok(())
}

/// Opens the log file again, after another program has moved it away. Without a log file it does nothing.
pub fn reopen_log() {
    if let Some(Err(error)) = FILE.get().map(LogFile::reopen) {
        warn!(%error, "log file not opened again, continuing with the open one");
    }
}

/// Message and fields as the subscriber writes them, but with control characters as escapes: what peers wrote into a text must not look
/// like another line.
fn fields() -> impl for<'a> FormatFields<'a> + Send + Sync + 'static {
    let write = |out: &mut format::Writer<'_>, field: &Field, value: &dyn Debug| -> fmt::Result {
        let mut out = Printable(out);
        match field.name() {
            "message" => write!(out, "{value:?}"),
            name => write!(out, "{name}={value:?}"),
        }
    };
    format::debug_fn(write).delimited(" ")
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing::subscriber::with_default;

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_text_of_a_peer_is_one_line_of_the_log() {
        let log = Log::default();
        let to = log.clone();
        let lines = tracing_subscriber::fmt()
            .with_writer(move || to.clone())
            .with_ansi(false)
            .without_time()
            .fmt_fields(fields())
            .finish();
        with_default(lines, || {
            let remark = "gone\n2026-11-28 ERROR forged\u{1b}[2J\0\u{9b}";
            warn!(client_id = "a\nb", %remark, count = 7, "client\nremoved");
        });
        let text = String::from_utf8(log.0.lock().clone()).unwrap();
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        let wanted = r#"client\nremoved client_id="a\nb" remark=gone\n2026-11-28 ERROR forged\u{1b}[2J\u{0}\u{9b} count=7"#;
        assert!(text.trim_end().ends_with(wanted), "{text}");
    }
}

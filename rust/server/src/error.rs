//! Why a server could not start, run or stop in order.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rocketpy_broker::{BrokerError, StoreError, TlsError};
use rocketpy_env::EnvError;
use rocketpy_namesrv::NameServerError;

use crate::ConfigError;
use crate::auth::AuthError;
use crate::secure::SecureError;

/// Why a server could not start, run or stop in order.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The broker's reason.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The name server's reason.
    #[error(transparent)]
    NameServer(#[from] NameServerError),
    /// The host to listen on has no address.
    #[error("host to listen on has no address ({reason}): {host}")]
    Host {
        /// The host as configured.
        host: String,
        /// What the resolver said.
        reason: String,
    },
    /// A broker without a name server cannot be found by anybody.
    #[error("no name server is configured for the broker (namesrvAddr)")]
    NoNameServer,
    /// The ready file cannot be written.
    #[error("cannot write the ready file: {0}")]
    ReadyFile(#[source] EnvError),
    /// The log file cannot be opened.
    #[error("cannot open the log file: {0}")]
    LogFile(#[source] EnvError),
    /// The path of the ready file has another file, which a start would overwrite and a stop would remove.
    #[error("cannot write the ready file: {} exists and was not written by a server", path.display())]
    NotAReadyFile {
        /// The configured path.
        path: PathBuf,
    },
    /// The address of the HTTP server cannot be listened on.
    #[error("cannot serve metrics at {addr}: {source}")]
    Metrics {
        /// The configured address.
        addr: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// Certificates or keys cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Users and policies cannot be used.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// A secure server cannot be made.
    #[error(transparent)]
    Secure(#[from] SecureError),
    /// Metrics are to be sent to a collector that is not named.
    #[error("metricsExporterType is OTLP_GRPC and metricsGrpcExporterTarget is not set")]
    NoCollector,
    /// The start failed with live values in force, which may be the cause.
    #[error("{source} (live values in force: {keys})")]
    WithLiveValues {
        /// Why the start failed.
        source: Box<Self>,
        /// Keys with live values.
        keys: String,
        /// Command that removes one of them.
        command: String,
    },
    /// The system refused threads.
    #[error("cannot start the threads of the server: {0}")]
    Threads(#[source] std::io::Error),
    /// The disk failed, and the server stopped by itself.
    #[error("server stopped after a failure: {0}")]
    Failed(#[source] StoreError),
    /// A stop ran out of time.
    #[error("server stop timed out before everything was closed, after {} s", within.as_secs_f64())]
    CutOff {
        /// The time that it had.
        within: Duration,
    },
}

impl ServerError {
    /// Exit code of a server process that an assertion of its store has ended.
    pub const ASSERTION_EXIT_CODE: u8 = 10;

    /// Whether an assertion of the store failed: a defect of the server, and not of the disk or the configuration.
    #[must_use]
    pub fn is_failed_assertion(&self) -> bool {
        matches!(self, Self::Failed(StoreError::AssertionFailed { .. }))
    }

    /// The way out, for a person; `None` when the message says it all.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Config(error) => error.hint(),
            Self::Broker(error) => error.hint(),
            Self::NameServer(error) => error.hint(),
            Self::Host { .. } => {
                Some("name an address of this machine, such as 127.0.0.1 or 0.0.0.0".to_owned())
            }
            Self::NoNameServer => {
                Some("name one with --name-server HOST:PORT; `rocketpy namesrv` starts one".to_owned())
            }
            Self::ReadyFile(error) | Self::LogFile(error) => error.hint().map(str::to_owned),
            Self::NotAReadyFile { .. } => {
                Some("name another path with --ready-file, or remove this file".to_owned())
            }
            Self::Tls(error) => error.hint().map(str::to_owned),
            Self::Auth(error) => error.hint().map(str::to_owned),
            Self::Secure(error) => error.hint().map(str::to_owned),
            Self::NoCollector => {
                Some("set metricsGrpcExporterTarget to http://HOST:PORT of the collector".to_owned())
            }
            Self::Metrics { .. } => Some(
                "set metricsPromExporterPort to a free port; each broker of a machine needs its own"
                    .to_owned(),
            ),
            Self::WithLiveValues { source, command, .. } => {
                let remove = format!("if a live value is the cause, remove it: `{command}`");
                Some(source.hint().map_or_else(|| remove.clone(), |hint| format!("{hint}; {remove}")))
            }
            Self::Threads(_) => Some("raise the limit of processes and threads (ulimit -u)".to_owned()),
            Self::Failed(error) => error.hint(),
            Self::CutOff { .. } => Some(
                "the next start recovers flushed messages, as after a kill; check whether the disk is slow"
                    .to_owned(),
            ),
        }
    }

    /// Whether the same start may succeed later without a change.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Broker(error) => error.retryable(),
            Self::NameServer(error) => error.retryable(),
            Self::Threads(_) | Self::Metrics { .. } => true,
            Self::WithLiveValues { source, .. } => source.retryable(),
            Self::ReadyFile(error) | Self::LogFile(error) => error.retryable(),
            Self::Failed(error) => error.retryable(),
            Self::Config(_)
            | Self::Host { .. }
            | Self::NoNameServer
            | Self::NoCollector
            | Self::Tls(_)
            | Self::Auth(_)
            | Self::Secure(_)
            | Self::NotAReadyFile { .. }
            | Self::CutOff { .. } => false,
        }
    }
}

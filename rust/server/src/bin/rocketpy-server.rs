//! The server without Python, for measurements and soak tests: `rocketpy-server server|namesrv|broker`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use rocketpy_server::config::check_on_command_line;
use rocketpy_server::{
    ConfigError, LogFormat, Process, Role, ServerConfig, ServerError, Sources, init_logging,
};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long an orderly stop may take: it flushes, and a busy disk may take seconds for each flush.
const STOP_WITHIN: Duration = Duration::from_secs(60);
/// How often the process asks whether the disk failed.
const FAILURE_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Message broker, compatible with Apache RocketMQ.
#[derive(Parser)]
#[command(name = "rocketpy-server", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Name server and broker in one process.
    Server {
        /// Folder of the store; created if missing.
        dir: PathBuf,
        /// Port of the broker; 0 selects a free one.
        #[arg(long)]
        port: Option<u16>,
        /// Port of the name server; 0 selects a free one.
        #[arg(long)]
        name_server_port: Option<u16>,
        #[command(flatten)]
        common: Common,
    },
    /// Name server without a broker.
    Namesrv {
        /// Port of the name server; 0 selects a free one.
        #[arg(long)]
        port: Option<u16>,
        #[command(flatten)]
        common: Common,
    },
    /// Broker without a name server.
    Broker {
        /// Folder of the store; created if missing.
        dir: PathBuf,
        /// Name servers, separated by commas: HOST:PORT[,HOST:PORT].
        #[arg(long)]
        name_server: Option<String>,
        /// Port of the broker; 0 selects a free one.
        #[arg(long)]
        port: Option<u16>,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Args)]
struct Common {
    /// Host or address to listen on.
    #[arg(long)]
    host: Option<String>,
    /// Configuration file: TOML, or Apache's properties.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Any key of Apache's or RocketPy's configuration; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = pair)]
    settings: Vec<(String, String)>,
    /// File that receives {"pid", "name_server", "broker"} once all ports accept connections.
    #[arg(long)]
    ready_file: Option<PathBuf>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl Common {
    /// All layers; a flag sets its key and wins over `--set`.
    fn config(self, flags: &[(&str, Option<String>)]) -> Result<ServerConfig, ConfigError> {
        self.settings.iter().try_for_each(|(key, _)| check_on_command_line(key))?;
        let mut config = ServerConfig::load(&Sources {
            file: self.config,
            environment: Sources::environment_of_process(),
            settings: self.settings,
        })?;
        let own = [("bindAddress", self.host)];
        for (key, value) in own.iter().chain(flags) {
            if let Some(value) = value {
                config.set(key, value)?;
            }
        }
        if self.ready_file.is_some() {
            config.ready_file = self.ready_file;
        }
        Ok(config)
    }
}

/// SIGTERM and SIGINT, caught before the start: one that comes during the start stops the server right after it.
struct StopSignals {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn catch() -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (terminate, interrupt) = {
            let _entered = runtime.enter();
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
        };
        Ok(Self { runtime, terminate, interrupt })
    }

    /// Waits for a signal, or until the server has stopped by itself.
    fn wait(&mut self, has_failed: impl Fn() -> bool) {
        let Self { runtime, terminate, interrupt } = self;
        runtime.block_on(async {
            while !has_failed() {
                tokio::select! {
                    _ = terminate.recv() => return,
                    _ = interrupt.recv() => return,
                    () = tokio::time::sleep(FAILURE_CHECK_INTERVAL) => {}
                }
            }
        });
    }
}

/// Runs until a signal comes or the disk fails.
fn serve(signals: &mut StopSignals, role: Role, config: ServerConfig) -> Result<(), ServerError> {
    let process = Process::start(role, config)?;
    if let Some(warning) = process.warning() {
        eprintln!("warning: {warning}");
    }
    signals.wait(|| process.has_failed());
    let stopped = process.stop(STOP_WITHIN);
    process.take_failure().map_or(stopped, Err)
}

fn run(command: Command) -> Result<(), ServerError> {
    let mut signals = StopSignals::catch().map_err(ServerError::Threads)?;
    let number = |port: Option<u16>| port.map(|port| port.to_string());
    match command {
        Command::Server { dir, port, name_server_port, common } => {
            let flags = [("listenPort", number(port)), ("nameServerPort", number(name_server_port))];
            let mut config = common.config(&flags)?;
            config.broker.store.root = dir;
            serve(&mut signals, Role::Standalone, config)
        }
        Command::Namesrv { port, common } => {
            let config = common.config(&[("nameServerPort", number(port))])?;
            serve(&mut signals, Role::NameServer, config)
        }
        Command::Broker { dir, name_server, port, common } => {
            let mut config = common.config(&[("listenPort", number(port)), ("namesrvAddr", name_server)])?;
            config.broker.store.root = dir;
            serve(&mut signals, Role::Broker, config)
        }
    }
}

fn main() -> ExitCode {
    let started = init_logging(None, LogFormat::Text);
    let Err(error) = started.and_then(|()| run(Cli::parse().command)) else { return ExitCode::SUCCESS };
    eprintln!("error: {error}");
    if let Some(hint) = error.hint() {
        eprintln!("hint: {hint}");
    }
    if error.is_failed_assertion() { ServerError::ASSERTION_EXIT_CODE.into() } else { ExitCode::FAILURE }
}

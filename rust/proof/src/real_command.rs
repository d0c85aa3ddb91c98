//! `rocketpy-proof kill` and `rocketpy-proof power`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use rocketpy_env::failpoint::Point;
use rocketpy_proof::real::{Flush, Harness, Mounted, Options, PRODUCERS, Totals, run};

/// Tests repeated lives of a real server.
#[derive(Debug, Default, Args)]
pub(crate) struct Real {
    /// Number of lives of the server.
    #[arg(long, default_value_t = 100)]
    cycles: u64,
    /// Seed of the run; random by default.
    #[arg(long)]
    seed: Option<u64>,
    /// Uses only SYNC_FLUSH; without --sync and --async each store draws one of the two.
    #[arg(long, conflicts_with = "async")]
    sync: bool,
    /// Uses only ASYNC_FLUSH.
    #[arg(long)]
    r#async: bool,
    /// Whether topics have a flush.type of their own; by default each store draws it.
    #[arg(long)]
    own_flush: Option<bool>,
    /// Whether retention is requested to remove log files; by default each store draws it.
    #[arg(long)]
    retention: Option<bool>,
    /// Fills the default maxUnflushedBytes with messages of 1 MiB while the disk hangs, then cuts the power; one store per cut.
    #[arg(long, conflicts_with_all = ["sync", "own_flush", "retention"])]
    bound: bool,
    /// Gives the server a slave, whose process is ended too.
    #[arg(long, conflicts_with = "bound")]
    pair: bool,
    /// With --pair: whether the slave receives the log slower than it is appended; by default each store draws it.
    #[arg(long)]
    slow_slave: Option<bool>,
    /// Number of lives on one store before a new one is created.
    #[arg(long, default_value_t = CYCLES_A_STORE)]
    cycles_a_store: u64,
    /// Time that a life is under load unless it ends earlier, in seconds; by default each life draws less than one second or three.
    #[arg(long)]
    load_seconds: Option<u64>,
    /// Number of concurrent producers; default: 4.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    producers: Option<u32>,
    /// Server binary; default: rocketpy-proof-server in the folder of this binary.
    #[arg(long)]
    server: Option<PathBuf>,
    /// Writes the history of the last store as JSON lines.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Plants the bug with this title in the server.
    #[arg(long)]
    bug: Option<String>,
}

/// `rocketpy-proof-server` in the folder of this binary.
pub(crate) fn server_beside() -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name("rocketpy-proof-server")
}

/// Lives on one store before a new one is made: checking a store takes longer as it grows.
const CYCLES_A_STORE: u64 = 40;

impl Real {
    /// Lives with a random seed.
    pub(crate) fn of(cycles: u64) -> Self {
        Self { cycles, cycles_a_store: CYCLES_A_STORE, ..Self::default() }
    }

    /// Lives of a master with a slave, with a random seed.
    pub(crate) fn of_pair(cycles: u64) -> Self {
        Self { pair: true, ..Self::of(cycles) }
    }

    /// Power cuts with `maxUnflushedBytes` filled, with a random seed.
    pub(crate) fn of_bound(cycles: u64) -> Self {
        Self { bound: true, ..Self::of(cycles) }
    }

    fn options(&self, harness: Harness) -> Options {
        let flush = match (self.sync, self.r#async) {
            (true, _) => Some(Flush::Sync),
            (_, true) => Some(Flush::Async),
            _ => None,
        };
        Options {
            harness,
            seed: self.seed.unwrap_or_else(|| rocketpy_env::random_u64() >> 32),
            cycles: self.cycles,
            cycles_a_store: if self.bound { 1 } else { self.cycles_a_store.max(1) },
            flush,
            own_flush: self.own_flush,
            retention: self.retention,
            bound: self.bound,
            pair: self.pair,
            slow_slave: self.slow_slave,
            load: self.load_seconds.map(Duration::from_secs),
            producers: self.producers.unwrap_or(PRODUCERS),
            server: self.server.clone().unwrap_or_else(server_beside),
            history: self.history.clone(),
            planted: self.bug.clone(),
        }
    }

    /// Runs, and returns whether all rules held.
    pub(crate) fn run(&self, harness: Harness) -> bool {
        let options = self.options(harness);
        say!("seed {}", options.seed);
        let started = Instant::now();
        let mut printed_at = Instant::now();
        let outcome = run(&options, |totals| {
            if printed_at.elapsed().as_secs() >= 10 {
                printed_at = Instant::now();
                say!("{}", line(totals, started));
            }
        });
        let is_sound = match &outcome {
            Ok(outcome) => {
                say!("{}", line(&outcome.totals, started));
                say!("{}", ends(&outcome.totals));
                outcome.violations.iter().take(10).for_each(|violation| say!("{violation}"));
                if let Some((seed, cycle)) = outcome.broken_at {
                    say!("FAILS in cycle {cycle} of the store with --seed {seed}");
                }
                outcome.violations.is_empty()
            }
            Err(reason) => {
                say!("cannot run: {reason}");
                false
            }
        };
        say!("seed {}", options.seed);
        is_sound
    }
}

fn line(totals: &Totals, started: Instant) -> String {
    let Totals { stores, cycles, failed, messages, acknowledged, lost_as_allowed, .. } = totals;
    let Totals { removed_files, stored_again, worked_on, .. } = totals;
    let rate = *cycles as f64 / started.elapsed().as_secs_f64();
    format!(
        "{cycles} cycles ({rate:.2}/s) on {stores} stores, {failed} failed, {messages} messages, \
         {acknowledged} acknowledged, {lost_as_allowed} of them lost as ASYNC_FLUSH allows, {removed_files} log files removed, \
         {stored_again} came after a wait, {worked_on} were worked on in order"
    )
}

/// How the lives ended.
fn ends(totals: &Totals) -> String {
    let mut text = format!(
        "ended at a random time {}, in the start {}, in order {}, by a power cut {}",
        totals.killed_by_time, totals.killed_in_start, totals.stopped, totals.power_cuts
    );
    if totals.slaves_killed + totals.ended_both > 0 {
        text += &format!(
            "; slaves killed under load {}, ended together with their master {}",
            totals.slaves_killed, totals.ended_both
        );
    }
    if totals.most_lost_bytes > 0 {
        let (bytes, age) = (totals.most_lost_bytes, totals.oldest_lost.as_millis());
        text += &format!(
            "; the largest loss was {bytes} bytes, the oldest lost message was acknowledged {age} ms before its cut"
        );
    }
    for point in Point::ALL {
        text += &format!(", at {} {}", point.name(), totals.at(point));
    }
    text
}

/// Plants each bug that real servers must show, and checks that their ordinary run finds it: in `cycles` kills or power cuts. Where
/// power cannot be cut, it says so.
pub(crate) fn planted(cycles: u64) -> bool {
    use rocketpy_proof::planted::{Layer, PROOFS, ordinary_real};
    let mut all_caught = true;
    let can_cut = Mounted::can_be_cut();
    for proof in PROOFS {
        let Layer::Real(harness) = proof.layer else { continue };
        let title = proof.bug.title();
        if let (Harness::Power, Err(reason)) = (harness, &can_cut) {
            say!("{title:<28} | skipped: root, loop devices and mkfs.ext4 are needed: {reason}");
            continue;
        }
        let plain = Real { own_flush: Some(false), retention: Some(false), ..Real::of(cycles) };
        let plain = Real { cycles_a_store: cycles.min(20), ..plain };
        let options = Real { sync: true, seed: Some(1), ..plain }.options(harness);
        match ordinary_real(proof.bug, &options) {
            Ok(Some((violation, cycles))) => {
                all_caught &= proof.is_shown_by(&violation);
                let (rule, text) = (violation.rule.to_string(), violation.text);
                say!("{title:<28} | {harness:<10?} | {rule:<5} | after {cycles} cycles | {text}");
            }
            Ok(None) => {
                all_caught = false;
                say!("{title:<28} | NOT CAUGHT by {harness:?}");
            }
            Err(reason) => {
                all_caught = false;
                say!("{title:<28} | cannot run: {reason}");
            }
        }
    }
    all_caught
}

//! `rocketpy-proof`: runs the harnesses, many seeds or one.

/// Prints a line; standard output may be closed.
macro_rules! say {
    ($($text:tt)*) => { drop(std::io::Write::write_fmt(&mut std::io::stdout(), format_args!("{}\n", format_args!($($text)*)))) };
}

mod members_command;
mod real_command;

use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::{Args, Parser, Subcommand};
use rocketpy_env::{Disk, RealDisk};
use rocketpy_proof::history;
use rocketpy_proof::real::{self, Mounted, is_interrupted, listen_for_interrupt};
use rocketpy_proof::sim::{
    Outcome, PairTotals, Plan, Totals, enumerate_all, run, run_pairs, run_seeds, run_waiting,
};

/// Proves the promises of RocketPy's acknowledgements.
#[derive(Debug, Parser)]
#[command(name = "rocketpy-proof")]
struct Cli {
    #[command(subcommand)]
    harness: Harness,
}

#[derive(Debug, Subcommand)]
enum Harness {
    /// Tests the store on a simulated disk.
    Sim(Sim),
    /// Tests the server in its own process, killed repeatedly on one store.
    Kill(real_command::Real),
    /// Tests the server on a file system whose power is cut repeatedly. Needs root and loop devices.
    Power(real_command::Real),
    /// Tests push consumers in processes of their own, killed repeatedly: concurrent, ordered and broadcast.
    Members(members_command::Members),
    /// Runs one member process of this harness.
    #[command(hide = true)]
    Member {
        /// Description of the member, as JSON.
        member: String,
    },
    /// Runs all harnesses in turn, with random seeds, until one fails.
    Soak {
        /// Number of turns; endless by default.
        turns: Option<u64>,
    },
    /// Plants one bug after the other and checks that the normal run finds it.
    Planted {
        /// Number of random seeds to try for each bug, before the enumerated script.
        #[arg(long, default_value_t = 3000)]
        seeds: u64,
        /// Number of server lives to try for each bug, ended by kills and power cuts.
        #[arg(long, default_value_t = 120)]
        cycles: u64,
    },
}

#[derive(Debug, Default, Args)]
struct Sim {
    /// Runs only this seed and prints its plan.
    #[arg(long, conflicts_with_all = ["seeds", "soak", "enumerate"])]
    seed: Option<u64>,
    /// Runs the seeds A..B.
    #[arg(long, value_name = "A..B", value_parser = seed_range)]
    seeds: Option<Range<u64>>,
    /// Runs consecutive seeds from a random one: N of them, or endlessly.
    #[arg(long, value_name = "N", num_args = 0..=1)]
    soak: Option<Option<u64>>,
    /// Runs the plan of messages that wait, for every seed.
    #[arg(long, conflicts_with_all = ["pair", "enumerate"])]
    waiting: bool,
    /// Tests a master and its slave, each on a disk of its own.
    #[arg(long, conflicts_with_all = ["enumerate", "history"])]
    pair: bool,
    /// Runs a short script repeatedly, ended after each of its operations in turn.
    #[arg(long)]
    enumerate: bool,
    /// Number of threads.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Writes the history of the seed, or of the first run that fails, as JSON lines.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
}

fn seed_range(text: &str) -> Result<Range<u64>, String> {
    let parts = text.split_once("..").ok_or("expected two numbers with .. between them")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{error}: {text}"));
    Ok(number(parts.0)?..number(parts.1)?)
}

/// `count` seeds from a random one on; all, without a count.
fn some_seeds(count: Option<u64>) -> Range<u64> {
    let start = rocketpy_env::random_u64() >> 16;
    start..start.saturating_add(count.unwrap_or(u64::MAX))
}

fn main() -> ExitCode {
    // A simulated run catches its panics and reports them with its seed.
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !SIMULATES.load(Ordering::Relaxed) {
            default_hook(panic);
        }
    }));
    let is_sound = match Cli::parse().harness {
        Harness::Sim(sim) => sim.run(),
        Harness::Kill(real) => real.run(real::Harness::Kill),
        Harness::Power(real) => real.run(real::Harness::Power),
        Harness::Members(members) => members.run(),
        Harness::Member { member } => members_command::work(&member),
        Harness::Soak { turns } => soak(turns.unwrap_or(u64::MAX)),
        Harness::Planted { seeds, cycles } => {
            planted(seeds) & real_command::planted(cycles) & members_command::planted()
        }
    };
    if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Set while simulated runs are under way, which catch their own panics.
static SIMULATES: AtomicBool = AtomicBool::new(false);

/// What one turn runs.
struct SoakTurn {
    seeds: u64,
    kills: u64,
    power_cuts: u64,
    /// Of each of the two, with a slave.
    pairs: u64,
    /// With `maxUnflushedBytes` filled.
    full_power_cuts: u64,
    /// Stores with groups of push consumers.
    members: u64,
}

const SOAK_TURN: SoakTurn =
    SoakTurn { seeds: 20_000, kills: 80, power_cuts: 40, pairs: 40, full_power_cuts: 1, members: 8 };

/// Runs all harnesses in turn until one fails or a signal interrupts them.
fn soak(turns: u64) -> bool {
    listen_for_interrupt();
    let SoakTurn { seeds, kills, power_cuts, pairs, full_power_cuts, members } = SOAK_TURN;
    let can_cut = Mounted::can_be_cut();
    if let Err(reason) = &can_cut {
        say!("no power cuts: root, loop devices and mkfs.ext4 are needed: {reason}");
    }
    for turn in (1..=turns).take_while(|_| !is_interrupted()) {
        say!("turn {turn}");
        let sim = Sim { soak: Some(Some(seeds)), jobs: 2, ..Sim::default() };
        let pairs_of_disks = Sim { pair: true, soak: Some(Some(seeds)), jobs: 2, ..Sim::default() };
        let is_sound = sim.run()
            && pairs_of_disks.run()
            && real_command::Real::of(kills).run(real::Harness::Kill)
            && real_command::Real::of_pair(pairs).run(real::Harness::Kill)
            && members_command::Members::of(members).run()
            && (can_cut.is_err()
                || real_command::Real::of(power_cuts).run(real::Harness::Power)
                    && real_command::Real::of_pair(pairs).run(real::Harness::Power)
                    && real_command::Real::of_bound(full_power_cuts).run(real::Harness::Power));
        if !is_sound {
            return false;
        }
    }
    true
}

impl Sim {
    fn run(&self) -> bool {
        SIMULATES.store(true, Ordering::Relaxed);
        let is_sound = self.run_all();
        SIMULATES.store(false, Ordering::Relaxed);
        is_sound
    }

    fn run_all(&self) -> bool {
        if self.pair {
            return self.pairs();
        }
        let is_sound = match (self.seed, &self.seeds, self.soak) {
            (Some(seed), _, _) if self.waiting => self.one(Plan::waiting_of(seed)),
            (Some(seed), _, _) => Plan::all_of(seed).all(|plan| self.one(plan)),
            (_, Some(seeds), _) => self.many(seeds.clone()),
            (_, _, Some(count)) => self.many(some_seeds(count)),
            _ if self.enumerate => true,
            _ => self.many(0..10_000),
        };
        is_sound & (!self.enumerate || self.enumerate())
    }

    fn pairs(&self) -> bool {
        let seeds = match (self.seed, &self.seeds, self.soak) {
            (Some(seed), ..) => seed..seed + 1,
            (_, Some(seeds), _) => seeds.clone(),
            (_, _, Some(count)) => some_seeds(count),
            _ => 0..10_000,
        };
        say!("seeds {}..{}", seeds.start, seeds.end);
        let (mut totals, started, mut printed_at) = (PairTotals::default(), Instant::now(), Instant::now());
        run_pairs(seeds, self.jobs, |outcome| {
            totals.add(&outcome);
            if !outcome.violations.is_empty() {
                say!("seed {} FAILS: {:#?}", outcome.seed, outcome.violations);
            }
            if printed_at.elapsed().as_secs() >= 10 {
                printed_at = Instant::now();
                say!("{totals:?}");
            }
            totals.failed < MAX_FAILURES && !is_interrupted()
        });
        say!("{totals:?}, {:.0} a second", totals.runs as f64 / started.elapsed().as_secs_f64());
        totals.failed == 0
    }

    fn one(&self, plan: Plan) -> bool {
        let seed = plan.seed;
        say!("seed {seed}");
        let outcome = run(plan);
        say!("{:#?}", outcome.plan);
        outcome.starts.iter().for_each(|start| say!("start: {start}"));
        say!("{:?}, {} operations", outcome.counts, outcome.operations);
        let is_sound = outcome.violations.is_empty();
        self.keep_history(&outcome);
        outcome.violations.iter().for_each(|violation| say!("{violation}"));
        say!("seed {seed} {}", if is_sound { "holds" } else { "FAILS" });
        is_sound
    }

    fn many(&self, seeds: Range<u64>) -> bool {
        say!("seeds {}..{}", seeds.start, seeds.end);
        let mut progress = Progress::new(self);
        let note = |outcome: Outcome| progress.note(&outcome);
        match self.waiting {
            true => run_waiting(seeds.clone(), self.jobs, note),
            false => run_seeds(seeds.clone(), self.jobs, note),
        }
        progress.print();
        say!("seeds {}..{}", seeds.start, seeds.end);
        progress.totals.failed == 0
    }

    fn enumerate(&self) -> bool {
        say!("the enumerated script");
        let mut progress = Progress::new(self);
        enumerate_all(|outcome| progress.note(&outcome));
        progress.print();
        progress.totals.failed == 0
    }

    fn keep_history(&self, outcome: &Outcome) {
        let Some(path) = &self.history else { return };
        let mut bytes = Vec::new();
        let written = history::write(&outcome.events, &mut bytes).map_err(|error| error.to_string());
        if let Err(error) =
            written.and_then(|()| RealDisk.replace(path, &bytes).map_err(|error| error.to_string()))
        {
            say!("the history was not written: {error}");
        }
    }
}

/// Counts the runs and prints them now and then.
struct Progress<'a> {
    sim: &'a Sim,
    totals: Totals,
    started: Instant,
    printed_at: Instant,
}

/// Stop after this many failures.
const MAX_FAILURES: u64 = 20;

impl<'a> Progress<'a> {
    fn new(sim: &'a Sim) -> Self {
        Self { sim, totals: Totals::default(), started: Instant::now(), printed_at: Instant::now() }
    }

    fn note(&mut self, outcome: &Outcome) -> bool {
        self.totals.add(outcome);
        if let Some(violation) = outcome.violations.first() {
            if self.totals.failed == 1 {
                self.sim.keep_history(outcome);
            }
            say!("seed {} FAILS: {violation}\n  boots {:?}", outcome.plan.seed, outcome.plan.boots);
        }
        if self.printed_at.elapsed().as_secs() >= 10 {
            self.printed_at = Instant::now();
            self.print();
        }
        self.totals.failed < MAX_FAILURES && !is_interrupted()
    }

    fn print(&self) {
        let Totals {
            runs,
            failed,
            messages,
            acknowledged,
            lost_as_allowed,
            crashes,
            removed_files,
            deleted_topics,
            operations,
        } = self.totals;
        let rate = runs as f64 / self.started.elapsed().as_secs_f64();
        say!(
            "{runs} runs ({rate:.0}/s), {failed} failed, {crashes} crashes, {messages} messages, {acknowledged} acknowledged, \
             {lost_as_allowed} of them lost as ASYNC_FLUSH allows, {removed_files} log files removed, {deleted_topics} topics \
             deleted, {operations} disk operations"
        );
    }
}

fn planted(seeds: u64) -> bool {
    use rocketpy_proof::planted::{Layer, all, proof_by};
    SIMULATES.store(true, Ordering::Relaxed);
    let table = all(seeds);
    say!("{:<28} | {:<10} | {:<5} | {:>6} | {:>6} | how", "bug", "part", "rule", "seed", "runs");
    let mut all_caught = true;
    for (bug, caught) in &table {
        let Some(catch) = caught else {
            all_caught = false;
            say!("{:<28} | NOT CAUGHT", bug.title());
            continue;
        };
        let violation = &catch.violation;
        let is_expected =
            proof_by(*bug, Layer::SimulatedDisk).is_some_and(|proof| proof.is_shown_by(violation));
        all_caught &= is_expected;
        say!(
            "{:<28} | {:<10} | {:<5} | {:>6} | {:>6} | {}{}",
            bug.title(),
            catch.part,
            violation.rule.to_string(),
            catch.plan.seed,
            catch.runs,
            if is_expected { "" } else { "NOT AS EXPECTED: " },
            violation.text
        );
    }
    SIMULATES.store(false, Ordering::Relaxed);
    all_caught
}

//! `rocketpy-proof members`, and the processes of its members.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use rocketpy_proof::real::{Member, MembersOptions, MembersTotals, run_members};

use crate::real_command::server_beside;

/// Tests groups of push consumers on stores of their own.
#[derive(Debug, Default, Args)]
pub(crate) struct Members {
    /// Number of stores, each with the three groups.
    #[arg(long, default_value_t = 10)]
    stores: u64,
    /// Seed of the run; random by default.
    #[arg(long)]
    seed: Option<u64>,
    /// Number of processes that end on a store before all messages are handled.
    #[arg(long, default_value_t = ENDS_A_STORE)]
    ends_a_store: u64,
    /// Restarts ordered members under the same name, so that they need not wait a minute for their own queue locks.
    #[arg(long)]
    keep_names: bool,
    /// Whether topics are created again, grow, and stores are lost; drawn for each store by default.
    #[arg(long)]
    renewals: Option<bool>,
    /// Server binary; default: rocketpy-proof-server in the folder of this binary.
    #[arg(long)]
    server: Option<PathBuf>,
    /// Writes the history of the last store as JSON lines.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Plants the bug with this title in the members and in the server.
    #[arg(long)]
    bug: Option<String>,
}

const ENDS_A_STORE: u64 = 60;

impl Members {
    /// Stores with a random seed.
    pub(crate) fn of(stores: u64) -> Self {
        Self { stores, ends_a_store: ENDS_A_STORE, ..Self::default() }
    }

    fn options(&self) -> Option<MembersOptions> {
        Some(MembersOptions {
            seed: self.seed.unwrap_or_else(|| rocketpy_env::random_u64() >> 32),
            stores: self.stores,
            ends_a_store: self.ends_a_store,
            waits_for_locks: !self.keep_names,
            renewals: self.renewals,
            server: self.server.clone().unwrap_or_else(server_beside),
            member: std::env::current_exe().ok()?,
            history: self.history.clone(),
            planted: self.bug.clone(),
        })
    }

    /// Runs, and returns whether all rules held.
    pub(crate) fn run(&self) -> bool {
        let Some(options) = self.options() else { return false };
        say!("seed {}", options.seed);
        let started = Instant::now();
        let is_sound = match run_members(&options, |totals| say!("{}", line(totals, started))) {
            Ok(outcome) => {
                outcome.violations.iter().take(10).for_each(|violation| say!("{violation}"));
                if let Some(seed) = outcome.broken_at {
                    say!("FAILS on the store with --seed {seed}");
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

fn line(totals: &MembersTotals, started: Instant) -> String {
    let MembersTotals { stores, killed: [side_by_side, in_turn, everybody, _], .. } = totals;
    let MembersTotals { renewed: [created_again, grown, lost], .. } = totals;
    let MembersTotals { stopped, servers_killed, messages, handled, dead, .. } = totals;
    let seconds = started.elapsed().as_secs();
    format!(
        "{stores} stores in {seconds} s; killed: {side_by_side} members of a group with handlers side by side, {in_turn} in order, \
         {everybody} with everything, {servers_killed} servers; {stopped} members stopped in order; {created_again} topics created again, {grown} with more queues, \
         {lost} stores lost; {messages} messages, \
         {handled} handlers ended, {dead} dead letters"
    )
}

/// Is one of the processes. Returns whether it stopped in order.
pub(crate) fn work(member: &str) -> bool {
    let member = serde_json::from_str::<Member>(member).map_err(|error| error.to_string());
    let worked = member.and_then(Member::work);
    if let Err(reason) = &worked {
        drop(writeln!(io::stderr(), "a member ends: {reason}"));
    }
    worked.is_ok()
}

/// Plants each bug that the members must show, and checks that their ordinary run finds it.
pub(crate) fn planted() -> bool {
    use rocketpy_proof::planted::{Layer, PROOFS, ordinary_members};
    let mut all_caught = true;
    for proof in PROOFS.iter().filter(|proof| proof.layer == Layer::Members) {
        let Some(options) = Members { seed: Some(1), keep_names: true, ..Members::of(10) }.options() else {
            return false;
        };
        let title = proof.bug.title();
        match ordinary_members(proof.bug, &options) {
            Ok(Some(violation)) => {
                all_caught &= proof.is_shown_by(&violation);
                say!("{title:<28} | members | {:<5} | {}", violation.rule.to_string(), violation.text);
            }
            Ok(None) => {
                all_caught = false;
                say!("{title:<28} | NOT CAUGHT by members");
            }
            Err(reason) => {
                all_caught = false;
                say!("{title:<28} | cannot run: {reason}");
            }
        }
    }
    all_caught
}

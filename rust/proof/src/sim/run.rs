//! One run: the lives of a store on a simulated disk, one after the other, and a history of them.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fastrand::Rng;
use parking_lot::Mutex;
use rocketpy_broker::OffsetTable;
use rocketpy_env::Disk as _;
use rocketpy_env::sim::{SimDisk, SimOptions, Stopped};
use rocketpy_store::{FlushMode, Store, StoreError};

use super::journal::{FlushListener, Journal};
use super::plan::{Boot, Plan};
use super::reader::Reader;
use super::removals::Removals;
use super::table::Tables;
use super::verify;
use super::waiting::Clients;
use crate::checker::{Counts, Rule, Violation};
use crate::history::{Acknowledged, Contract, CrashKind, Event};
use crate::later;

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The plan that ran.
    pub plan: Plan,
    /// Empty when all is well.
    pub violations: Vec<Violation>,
    /// What happened.
    pub events: Vec<Event>,
    /// What the checker counted.
    pub counts: Counts,
    /// Files of the log that retention removed.
    pub removed_files: u64,
    /// Topics that were deleted.
    pub deleted_topics: u64,
    /// Operations of the simulated disk.
    pub operations: u64,
    /// How often a process was stopped at the operation that its boot names.
    pub stops: u32,
    /// What each start found, or why there was none.
    pub starts: Vec<String>,
}

/// A call into the store, during which the process may end.
pub(super) enum Guarded<T> {
    Done(T),
    Stopped,
    Panicked(String),
}

pub(super) struct Run {
    pub plan: Plan,
    pub rng: Rng,
    pub disk: SimDisk,
    pub journal: Arc<Mutex<Journal>>,
    pub readers: Vec<Reader>,
    /// The broker's table of consumer offsets, in this life.
    pub offsets: Option<OffsetTable<SimDisk>>,
    pub tables: Tables,
    /// Those that send and give back what waits.
    pub clients: Clients,
    pub removals: Removals,
    pub last_message: u64,
    /// Calls that have not returned from the store.
    pub in_flight: Vec<u64>,
    /// The operation at which this process ends.
    pub stop: Option<u64>,
    /// Another process with faults follows.
    pub has_more_lives: bool,
    pub known: Known,
    seen: Seen,
}

/// What is known of the disk beside the history.
#[derive(Default)]
pub(super) struct Known {
    /// The durable mark is at least here.
    pub marked_to: u64,
    /// Nothing behind this was flushed.
    pub flushed_to: u64,
    /// The next start has a reason to rebuild queues and index: their files, or the mark that vouches for them, were removed.
    pub may_rebuild: bool,
    /// A store was open on this disk, and its checkpoint is intact since.
    pub has_mark: bool,
    /// Records before this existed when the checkpoint was destroyed: a later recovery may not check all of them again, and does
    /// not require their checksums.
    pub trusted_from: u64,
}

/// What happened so far.
#[derive(Default)]
struct Seen {
    stops: u32,
    /// Pages of the log may be gone although nothing but processes ended.
    has_evicted: bool,
    violations: Vec<Violation>,
    starts: Vec<String>,
}

/// Runs a plan to its end, or to the first violation.
pub fn run(plan: Plan) -> Outcome {
    let mut run = Run::new(plan);
    for boot in run.plan.boots.clone() {
        if run.is_broken() {
            break;
        }
        run.boot(&boot, false);
    }
    run.has_more_lives = false;
    if !run.is_broken() {
        let options = run.disk.options().without_faults();
        run.disk.set_options(options);
        run.disk.forget_errors();
        run.boot(&Boot::last(), true);
    }
    run.finish()
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Makes a call during which the process may end.
pub(super) fn guarded<T>(act: impl FnOnce() -> T) -> Guarded<T> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(done) => Guarded::Done(done),
        Err(panic) if Stopped::is(&*panic) => Guarded::Stopped,
        Err(panic) => Guarded::Panicked(text_of(&*panic)),
    }
}

impl Run {
    pub(super) fn new(plan: Plan) -> Self {
        let disk = SimDisk::new(plan.disk);
        let mut journal = Journal::new(disk.clone());
        let acknowledged = match plan.flush {
            FlushMode::Sync => Acknowledged::AfterFlush,
            FlushMode::Async => Acknowledged::BeforeFlush,
        };
        // Without the record check a torn record may lose its tag and keys: then only bodies are promised.
        let tags: &[Option<&'static str>] = if plan.record_check { &[None, Some("red")] } else { &[None] };
        let tags = if plan.waits { &[] } else { tags };
        let readers: Vec<_> = tags.iter().map(|&tag| Reader::new(tag)).collect();
        let groups = readers.iter().map(Reader::group).collect();
        let topics = if plan.waits { later::topics_of_their_own().collect() } else { BTreeMap::new() };
        let contract = Contract { acknowledged, topics, groups };
        journal.push(Event::Begin { harness: "simulated disk".to_owned(), seed: plan.seed, contract });
        Self {
            rng: Rng::with_seed(plan.seed ^ 0x5eed),
            disk,
            journal: Arc::new(Mutex::new(journal)),
            readers,
            offsets: None,
            tables: Tables::default(),
            clients: Clients::default(),
            removals: Removals::default(),
            last_message: 0,
            in_flight: Vec::new(),
            stop: None,
            has_more_lives: true,
            known: Known::default(),
            seen: Seen::default(),
            plan,
        }
    }

    fn finish(self) -> Outcome {
        let mut journal = self.journal.lock();
        let mut violations = self.seen.violations;
        violations.extend_from_slice(journal.checker.violations());
        Outcome {
            violations,
            counts: journal.checker.counts(),
            removed_files: self.removals.removed_files,
            deleted_topics: self.removals.deleted_topics,
            events: std::mem::take(&mut journal.kept.events),
            operations: self.disk.operations(),
            stops: self.seen.stops,
            starts: self.seen.starts,
            plan: self.plan,
        }
    }

    pub(super) fn is_broken(&self) -> bool {
        !self.seen.violations.is_empty() || !self.journal.lock().checker.violations().is_empty()
    }

    #[cfg(test)]
    pub(super) fn violations(&self) -> &[Violation] {
        &self.seen.violations
    }

    pub(super) fn wrong(&mut self, rule: Rule, text: impl Into<String>) {
        self.seen.violations.push(Violation { rule, text: text.into() });
    }

    /// Whether faults of the disk may explain an error.
    pub(super) fn has_faults(&self) -> bool {
        let SimOptions {
            flush_fails_per_mille,
            write_back_fails_per_mille,
            no_space_per_mille,
            no_handle_per_mille,
            read_fails_per_mille,
            ..
        } = self.disk.options();
        let writes = flush_fails_per_mille + write_back_fails_per_mille + no_space_per_mille;
        writes + no_handle_per_mille + read_fails_per_mille > 0
    }

    /// Does something on the disk without faults and outside the count of operations.
    pub(super) fn quiet<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let (options, before) = (self.disk.options(), self.disk.operations());
        self.disk.set_options(SimOptions::default());
        self.disk.stop_at(None);
        let done = act(self);
        self.disk.set_options(options);
        let after = self.disk.operations();
        self.stop = self.stop.map(|stop| stop + after - before);
        self.disk.stop_at(self.stop);
        done
    }

    /// One life of the process.
    fn boot(&mut self, boot: &Boot, is_last: bool) {
        self.stop = boot.stop.map(|stop| self.disk.operations() + stop);
        self.disk.stop_at(self.stop);
        self.prepare_disk(is_last);
        let Some(store) = self.open() else {
            if !self.is_broken() {
                self.crash(boot, None);
            }
            return;
        };
        if is_last {
            self.journal.lock().push(Event::Healed);
        }
        let lived = guarded(|| {
            if self.plan.waits {
                return self.wait(&store, boot.steps, boot.end);
            }
            if !self.prepare_to_serve(&store) {
                return false;
            }
            self.check_recovered(&store);
            self.script(&store, boot.steps);
            if is_last && !self.is_broken() {
                self.drain(&store);
            }
            boot.end == CrashKind::Stop && !self.is_broken() && self.close(&store)
        });
        self.known.flushed_to = store.flushed_offset().get();
        match lived {
            Guarded::Done(true) => self.closed(&store, boot, is_last),
            Guarded::Done(false) if self.is_broken() => self.abandon(store),
            Guarded::Done(false) => self.crash(boot, Some(store)),
            Guarded::Stopped => {
                self.seen.stops += 1;
                self.crash(boot, Some(store));
            }
            Guarded::Panicked(text) => {
                self.wrong(Rule::Alive, format!("a panic: {text}"));
                self.abandon(store);
            }
        }
    }

    /// Drops a store in which something is wrong. It tries to close itself, and what happens then proves nothing.
    pub(super) fn abandon(&mut self, store: Arc<Store<SimDisk>>) {
        self.disk = self.disk.kill();
        drop(guarded(move || drop(store)));
    }

    /// Opens the store; `None` when the process ended, or when a fault of the disk refused the start.
    pub(super) fn open(&mut self) -> Option<Arc<Store<SimDisk>>> {
        self.journal.lock().boot(self.disk.clone());
        self.seen.has_evicted |= self.disk.has_evicted();
        match guarded(|| Store::open_stepped(self.disk.clone(), self.plan.config())) {
            Guarded::Done(Ok(store)) => {
                store.add_listener(Arc::new(FlushListener(Arc::clone(&self.journal))));
                self.seen.starts.push(format!("{:?}", store.recovery()));
                if self.known.has_mark && !store.recovery().had_mark {
                    self.wrong(Rule::R4, "the durable mark was lost");
                }
                self.known.has_mark = true;
                if !store.recovery().had_mark || self.known.trusted_from == u64::MAX {
                    self.known.trusted_from = store.recovery().end.get();
                }
                self.known.marked_to = store.flushed_offset().get();
                self.known.flushed_to = self.known.marked_to;
                self.removals.noted = vec![(self.disk.monotonic(), store.recovery().end.get())];
                self.note_start(&store);
                Some(store)
            }
            Guarded::Done(Err(error @ (StoreError::Env(_) | StoreError::Poisoned { .. })))
                if self.has_faults() =>
            {
                self.seen.starts.push(error.to_string());
                None
            }
            Guarded::Done(Err(error @ StoreError::DamageAmongRecords { .. })) if self.seen.has_evicted => {
                self.seen.starts.push(error.to_string());
                self.seen.has_evicted = false;
                self.disk = self.disk.cut_power(); // records are gone without one: the journal knows
                self.disk.stop_at(self.stop);
                self.open()
            }
            Guarded::Done(Err(error)) => {
                self.wrong(Rule::Alive, format!("the store does not open: {error}"));
                None
            }
            Guarded::Stopped => {
                self.seen.stops += 1;
                self.seen.starts.push("stopped".to_owned());
                if self.known.may_rebuild || self.removals.is_deleting {
                    self.journal.lock().push(Event::Rebuilt); // it may have rebuilt them: then the next start does not
                }
                None
            }
            Guarded::Panicked(text) => {
                self.wrong(Rule::Alive, format!("a panic while the store opens: {text}"));
                None
            }
        }
    }

    /// Notes what a start reports as gone. Checks that it rebuilt nothing without a reason.
    fn note_start(&mut self, store: &Store<SimDisk>) {
        let report = store.recovery();
        let start = store.min_physical_offset().get();
        self.check_start(start);
        self.clip_removals(report.end.get());
        let may_rebuild = self.known.may_rebuild || self.removals.is_deleting || !report.had_mark;
        if report.rebuilt_queues && !may_rebuild {
            self.wrong(Rule::R6, format!("consume queues that were durable are rebuilt: {report:?}"));
        }
        if report.rebuilt_index && !may_rebuild {
            self.wrong(Rule::R6, format!("index files that were durable are rebuilt: {report:?}"));
        }
        if report.rebuilt_queues {
            self.journal.lock().push(Event::Rebuilt);
        }
        self.journal.lock().push(Event::Expired { topic: None, queue_id: None, before: start });
        self.removals.is_deleting = false;
        self.known.may_rebuild = false;
    }

    /// Checks what must hold right after a recovery.
    pub(super) fn check_recovered(&mut self, store: &Store<SimDisk>) {
        self.quiet(|run| {
            let end = store.max_physical_offset().get();
            run.journal.lock().push(Event::Flushed { end: store.flushed_offset().get() });
            run.check_files(end);
            run.audit(store);
            run.look_up(store);
            run.position_readers();
            run.repeat_commits(store);
        });
    }

    fn check_files(&mut self, end: u64) {
        if self.plan.waits {
            return; // the entries of what waits are not those that this check knows
        }
        if let Err(violation) = verify::check_files(&self.disk, &self.plan, &self.removals, end) {
            self.seen.violations.push(violation);
        }
    }

    /// Closes the store in order. Returns whether that worked.
    pub(super) fn close(&mut self, store: &Store<SimDisk>) -> bool {
        self.persist_offsets();
        match store.shutdown() {
            Ok(()) => true,
            Err(error) => {
                if !self.has_faults() {
                    self.wrong(Rule::Alive, format!("the store does not close: {error}"));
                }
                false
            }
        }
    }

    /// The process closed its store: now everything is durable.
    fn closed(&mut self, store: &Store<SimDisk>, boot: &Boot, is_last: bool) {
        let end = store.max_physical_offset().get();
        self.check_files(end);
        (self.known.marked_to, self.known.flushed_to) = (end, end);
        self.stop = None;
        {
            let mut journal = self.journal.lock();
            if journal.waiting() > 0 {
                let text = format!("the store is closed, and {} sends were not answered", journal.waiting());
                self.seen.violations.push(Violation { rule: Rule::C15, text });
            }
            journal.push(Event::Flushed { end });
            journal.crash(CrashKind::Stop, Vec::new());
            if is_last {
                journal.push(Event::End);
                return;
            }
        }
        let power = self.rng.bool();
        self.disk = if power { self.disk.cut_power() } else { self.disk.kill() };
        if power || self.disk.has_evicted() {
            self.journal.lock().push(Event::Crash { kind: CrashKind::Power });
        }
        self.damage(boot, CrashKind::Stop, false);
    }

    /// Kills the process, if it still runs.
    pub(super) fn crash(&mut self, boot: &Boot, store: Option<Arc<Store<SimDisk>>>) {
        // The process ended during its work or its recovery: a torn end of a former life may still be there.
        let was_stopped = store.is_none() || self.stop.is_some_and(|stop| self.disk.operations() >= stop);
        let kind = match boot.end {
            CrashKind::Stop if self.rng.bool() => CrashKind::Kill,
            CrashKind::Stop => CrashKind::Power,
            kind => kind,
        };
        if let Some(outcome) = boot.outcome {
            self.disk.reseed(outcome);
        }
        self.disk = if kind == CrashKind::Power { self.disk.cut_power() } else { self.disk.kill() };
        // What was not flushed and is evicted is lost as with the power.
        let kind = if self.disk.has_evicted() { CrashKind::Power } else { kind };
        if store.is_none() {
            self.known.flushed_to = u64::MAX; // recovery may have flushed any part of the log
        }
        drop(store); // its handles are those of a former process
        self.stop = None;
        self.end_round();
        (self.offsets, self.tables.open) = (None, None);
        let in_flight = std::mem::take(&mut self.in_flight);
        self.journal.lock().crash(kind, in_flight);
        for reader in &mut self.readers {
            reader.outlived = std::mem::take(&mut reader.positions);
        }
        self.damage(boot, kind, was_stopped);
    }
}

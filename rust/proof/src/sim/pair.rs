//! A master and its slave on a simulated disk each, with a connection that breaks at any byte.
//!
//! Whatever ends either of them, a slave that is fed has a beginning of its master's log, byte for byte, and one that has it is fed. What was
//! acknowledged is there as the contract of a SYNC_MASTER says, after a start, a sync-back and a promotion.

use std::sync::Arc;

use fastrand::Rng;
use rocketpy_broker::{Refused, SteppedLink, SteppedReplica, make_config_folder};
use rocketpy_env::sim::{SimDisk, SimOptions};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::record::{CheckMode, RecordCheck, check_record};
use rocketpy_store::reader::StoreReader;
use rocketpy_store::{FlushMode, NewRecord, Store, StoreConfig};
use rocketpy_tools::{cut, verify};

use super::plan::ROOT;
use super::run::{Guarded, guarded};
use super::script::born_host;
use crate::checker::{Rule, Violation};
use crate::history::CrashKind;

/// Frames that heal: more than any run leaves behind.
const HEALING_STEPS: usize = 2000;

#[derive(Debug, Default)]
pub struct PairOutcome {
    /// Draws everything.
    pub seed: u64,
    /// Empty when all is well.
    pub violations: Vec<Violation>,
    pub totals: PairTotals,
}

/// Sums of runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PairTotals {
    pub runs: u64,
    /// Of them, those that broke a rule.
    pub failed: u64,
    pub acknowledged: u64,
    /// Of them, those that both lost with the power, or the master while its slave was away.
    pub lost_as_allowed: u64,
    /// How often a process ended.
    pub ends: u64,
    /// How often the master and its slave changed their roles.
    pub promotions: u64,
    /// How often a slave was refused because it had other bytes.
    pub diverged: u64,
    /// Of them, those that cut them off by themselves, because nobody was promised anything of them.
    pub unpromised: u64,
    /// How often a master took something back.
    pub taken_back: u64,
}

impl PairTotals {
    /// Adds a run.
    pub fn add(&mut self, outcome: &PairOutcome) {
        let of = outcome.totals;
        self.runs += 1;
        self.failed += u64::from(!outcome.violations.is_empty());
        self.acknowledged += of.acknowledged;
        self.lost_as_allowed += of.lost_as_allowed;
        self.ends += of.ends;
        self.promotions += of.promotions;
        self.diverged += of.diverged;
        self.unpromised += of.unpromised;
        self.taken_back += of.taken_back;
    }
}

/// A broker of the pair.
struct Node {
    id: u64,
    disk: SimDisk,
    flush: FlushMode,
    /// `None` while it is down.
    replica: Option<SteppedReplica<SimDisk>>,
}

/// A message of the current master.
#[derive(Debug, Clone)]
struct Message {
    start: PhysicalOffset,
    end: PhysicalOffset,
    bytes: Vec<u8>,
    /// Whether it has to be there after the next start of the master alone, and of its slave.
    at_master: bool,
    at_slave: bool,
}

struct Pair {
    rng: Rng,
    nodes: [Node; 2],
    master: usize,
    link: Option<SteppedLink>,
    /// Sends without an answer.
    waiting: Vec<Message>,
    acknowledged: Vec<Message>,
    /// All that ever were, also those that may be lost.
    promised: Vec<Message>,
    /// The node whose process ends at an operation.
    stops: Option<usize>,
    outcome: PairOutcome,
}

/// Runs a seed to its end, or to the first violation.
pub fn run_pair(seed: u64) -> PairOutcome {
    let mut rng = Rng::with_seed(seed);
    let node = |id: u64, rng: &mut Rng| {
        let write_back_per_mille = *rng.choice(&[0, 20, 200]).unwrap_or(&0);
        let disk =
            SimDisk::new(SimOptions { seed: rng.u64(..), write_back_per_mille, ..SimOptions::default() });
        Node { id, disk, flush: if rng.bool() { FlushMode::Sync } else { FlushMode::Async }, replica: None }
    };
    let nodes = [node(0, &mut rng), node(1, &mut rng)];
    let outcome = PairOutcome { seed, ..PairOutcome::default() };
    let (waiting, acknowledged, promised) = (Vec::new(), Vec::new(), Vec::new());
    let mut pair =
        Pair { rng, nodes, master: 0, link: None, waiting, acknowledged, promised, stops: None, outcome };
    pair.start_master(false);
    pair.start_slave();
    for _ in 0..pair.rng.u32(50..400) {
        if !pair.outcome.violations.is_empty() {
            break;
        }
        pair.step();
    }
    if pair.outcome.violations.is_empty() {
        pair.heal();
    }
    pair.outcome
}

impl Node {
    fn config(&self) -> StoreConfig {
        StoreConfig {
            commit_log_file_size: 16 << 10,
            consume_queue_file_size: 400,
            index: false,
            flush: self.flush,
            ..StoreConfig::new(ROOT)
        }
    }

    fn open(&self) -> SteppedReplica<SimDisk> {
        let store = Store::open_stepped(self.disk.clone(), self.config()).expect("the store opens");
        make_config_folder(&self.disk, ROOT.as_ref()).expect("a sound disk");
        SteppedReplica::open(self.disk.clone(), store, self.id).expect("the file is sound")
    }

    fn store(&self) -> Option<&Arc<Store<SimDisk>>> {
        self.replica.as_ref().map(SteppedReplica::store)
    }

    fn log(&self) -> Vec<u8> {
        self.store()
            .map(|store| bytes_of(store, store.min_physical_offset(), store.max_physical_offset()))
            .unwrap_or_default()
    }
}

/// A part of the log; less where it ends before.
fn bytes_of(store: &Store<SimDisk>, mut from: PhysicalOffset, end: PhysicalOffset) -> Vec<u8> {
    let mut bytes = Vec::new();
    while from < end {
        match store.log_slice(from, (end - from) as usize).expect("a sound disk") {
            Some(part) if !part.is_empty() => {
                from += part.len() as u64;
                bytes.extend(part);
            }
            _ => break,
        }
    }
    bytes
}

impl Pair {
    fn wrong(&mut self, rule: Rule, text: impl Into<String>) {
        self.outcome.violations.push(Violation { rule, text: text.into() });
    }

    fn slave(&self) -> usize {
        1 - self.master
    }

    /// Does something that may end the process which is to end.
    fn act<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> Option<T> {
        match guarded(|| act(self)) {
            Guarded::Done(done) => Some(done),
            Guarded::Stopped => {
                let ended = self.stops.take().expect("one was to end");
                let kind = self.some_end();
                self.end_now(ended, kind);
                None
            }
            Guarded::Panicked(text) => {
                self.wrong(Rule::Alive, text);
                None
            }
        }
    }

    fn some_end(&mut self) -> CrashKind {
        if self.rng.bool() { CrashKind::Kill } else { CrashKind::Power }
    }

    fn step(&mut self) {
        let node = self.rng.usize(0..2);
        match self.rng.u8(0..100) {
            0..=26 => self.send(),
            27..=61 => (0..self.rng.u32(1..12)).for_each(|_| self.carry()),
            62..=75 => self.act(|pair| pair.work(node)).unwrap_or_default(),
            76..=77 => self.link = None,
            78..=81 => self.connect(),
            82..=83 => {
                let kind = self.some_end();
                self.end(node, kind);
            }
            84 => {
                let kind = self.some_end();
                self.end(0, kind);
                self.end(1, kind);
            }
            85..=88 => self.start(node),
            89..=91 if self.stops.is_none() => {
                let disk = &self.nodes[node].disk;
                disk.stop_at(Some(disk.operations() + self.rng.u64(1..60)));
                self.stops = Some(node);
            }
            92 => self.promote(),
            _ => {
                self.start(0);
                self.start(1);
                self.connect();
            }
        }
        self.answer();
    }

    fn start(&mut self, node: usize) {
        if self.nodes[node].replica.is_some() {
        } else if node == self.master {
            self.start_master(true);
        } else {
            self.start_slave();
        }
    }

    /// A thread of a store takes a turn.
    fn work(&mut self, node: usize) {
        let dice = self.rng.u8(0..8);
        let Some(store) = self.nodes[node].store() else { return };
        match dice {
            0..=2 => store.step_flush().expect("a sound disk"),
            3 | 4 => drop(store.step_dispatch().expect("a sound disk")),
            5 => store.step_write().expect("a sound disk"),
            6 => store.step_checkpoint().expect("a sound disk"),
            _ => store.step_allocate(),
        }
    }

    fn send(&mut self) {
        let body = vec![self.rng.u8(..); self.rng.usize(0..900)];
        let topic = if self.rng.bool() { "a" } else { "b" };
        let sent = self.act(|pair| {
            let store = pair.nodes[pair.master].store()?;
            let record = NewRecord {
                topic,
                queue_id: 0,
                flag: 0,
                sys_flag: 0,
                born_at_ms: 1,
                born_host: born_host(),
                reconsume_times: 0,
                prepared_transaction_offset: PhysicalOffset::ZERO,
                body: &body,
                properties: b"",
                may_have_crc: true,
            };
            let placed = store.append(&record).expect("a sound disk");
            Some((placed.physical_offset, placed.end, bytes_of(store, placed.physical_offset, placed.end)))
        });
        if let Some(Some((start, end, bytes))) = sent {
            self.waiting.push(Message { start, end, bytes, at_master: true, at_slave: false });
        }
    }

    /// Bytes go from one to the other, each part of the way by chance.
    fn carry(&mut self) {
        let (dice, count) = (self.rng.u8(0..4), self.rng.usize(1..6000));
        let carried = self.act(|pair| {
            let [master, slave] = [pair.master, pair.slave()].map(|node| pair.nodes[node].replica.as_ref());
            let (Some(link), Some(master), Some(slave)) = (&mut pair.link, master, slave) else {
                return Ok(());
            };
            match dice {
                0 => link.send(master),
                1 => link.arrive(slave, count),
                2 => link.report(slave),
                _ => link.hear(master, count % 20 + 1),
            }
        });
        if let Some(Err(cause)) = carried {
            self.wrong(Rule::R8, format!("the connection ended: {cause}"));
        }
    }

    /// Answers the sends that master and slave have.
    fn answer(&mut self) {
        let Some(store) = self.nodes[self.master].store() else { return };
        let at_master = match self.nodes[self.master].flush {
            FlushMode::Sync => store.flushed_offset(),
            FlushMode::Async => store.max_physical_offset(),
        };
        let at_slave = self.link.as_ref().and_then(SteppedLink::acknowledged).unwrap_or_default();
        for known in &mut self.acknowledged {
            known.at_slave |= known.end <= at_slave;
        }
        let done = at_master.min(at_slave);
        let waiting = std::mem::take(&mut self.waiting);
        let (answered, waiting): (Vec<_>, _) = waiting.into_iter().partition(|message| message.end <= done);
        self.waiting = waiting;
        self.outcome.totals.acknowledged += answered.len() as u64;
        self.promised.extend(answered.iter().cloned());
        self.acknowledged.extend(answered.into_iter().map(|message| Message { at_slave: true, ..message }));
    }

    /// A process ends, if it runs.
    fn end(&mut self, node: usize, kind: CrashKind) {
        if self.nodes[node].replica.is_some() {
            self.end_now(node, kind);
        }
    }

    /// The same for one that may have come to its end in its start.
    fn end_now(&mut self, node: usize, kind: CrashKind) {
        self.link = None;
        self.outcome.totals.ends += 1;
        let (replica, is_master) = (self.nodes[node].replica.take(), node == self.master);
        let Node { disk, flush, .. } = &self.nodes[node];
        let flushed = match (&replica, flush) {
            (Some(replica), _) => replica.store().flushed_offset(),
            (None, FlushMode::Sync) => PhysicalOffset::MAX, // what was acknowledged was flushed before
            (None, FlushMode::Async) => PhysicalOffset::ZERO,
        };
        if let (Some(replica), CrashKind::Stop) = (&replica, kind) {
            disk.stop_at(None);
            replica.store().shutdown().expect("a sound disk");
        }
        let next = if kind == CrashKind::Power { disk.cut_power() } else { disk.kill() };
        let _ = guarded(|| drop(replica)); // behind the end of its process
        self.nodes[node].disk = next;
        if self.stops == Some(node) {
            self.stops = None;
        }
        if is_master {
            self.waiting.clear(); // nobody knows
        }
        if kind == CrashKind::Power {
            for known in self.acknowledged.iter_mut().filter(|known| known.end > flushed) {
                *(if is_master { &mut known.at_master } else { &mut known.at_slave }) = false;
            }
        }
    }

    fn start_master(&mut self, may_be_alone: bool) {
        let asks = !may_be_alone || self.rng.u8(0..4) != 0;
        let started = self.act(|pair| {
            let replica = pair.nodes[pair.master].open();
            let slave = pair.nodes[pair.slave()].replica.as_ref();
            let was = replica.store().max_physical_offset();
            let is_asked = asks && !replica.store().recovery().clean_exit;
            let took = slave.filter(|_| is_asked).is_some_and(|slave| replica.take_back(slave).is_ok());
            let taken = replica.store().max_physical_offset() - was;
            while replica.store().step_dispatch().expect("a sound disk") {}
            replica.begin_as_master().expect("a sound disk");
            pair.nodes[pair.master].replica = Some(replica);
            (took, taken)
        });
        let Some((took, taken)) = started else { return };
        self.outcome.totals.taken_back += u64::from(taken > 0);
        self.look_for_acknowledged(took);
    }

    /// Checks that a master that has just started has what it must have.
    fn look_for_acknowledged(&mut self, took: bool) {
        let looked = self.act(|pair| {
            let store = pair.nodes[pair.master].store().expect("it has started");
            let is_there = |known: &Message| bytes_of(store, known.start, known.end) == known.bytes;
            pair.acknowledged.iter().map(is_there).collect::<Vec<bool>>()
        });
        let Some(are_there) = looked else { return };
        for (mut known, is_there) in std::mem::take(&mut self.acknowledged).into_iter().zip(are_there) {
            if is_there {
                known.at_master = true; // also what a power cut might take again: the next end says
                self.acknowledged.push(known);
            } else if known.at_master || (took && known.at_slave) {
                let Message { start, end, .. } = known;
                self.wrong(Rule::C1, format!("bytes {start} to {end} were acknowledged and are lost"));
            } else {
                self.outcome.totals.lost_as_allowed += 1;
            }
        }
    }

    fn start_slave(&mut self) {
        self.act(|pair| {
            let node = pair.slave();
            let replica = pair.nodes[node].open();
            replica.begin_as_slave().expect("a sound disk");
            pair.nodes[node].replica = Some(replica);
        });
    }

    fn connect(&mut self) {
        if self.link.is_some() {
            return;
        }
        let connected = self.act(|pair| {
            let [master, slave] = [pair.master, pair.slave()].map(|node| pair.nodes[node].replica.as_ref());
            let (master, slave) = (master?, slave?);
            if pair.nodes[pair.slave()].flush == FlushMode::Sync {
                slave.store().step_flush().expect("a sound disk"); // its first report is of what is durable
            }
            let is_beginning = pair.nodes[pair.master].log().starts_with(&pair.nodes[pair.slave()].log());
            Some((master.connect(slave), is_beginning))
        });
        match connected.flatten() {
            None => {}
            Some((Ok(link), true)) => self.link = Some(link),
            Some((Err(cause), is_beginning)) if !is_beginning || self.has_a_blank_of_its_own(&cause) => {
                self.outcome.totals.diverged += 1;
                let unpromised = self.is_unpromised_behind(&cause);
                self.outcome.totals.unpromised += u64::from(unpromised);
                self.mend_slave(&cause, unpromised);
            }
            Some((Ok(_), false)) => {
                self.wrong(Rule::R8, "a slave is fed whose log is no beginning of its master's")
            }
            Some((Err(cause), _)) => {
                self.wrong(Rule::R8, format!("a slave with a beginning of the log is refused: {cause}"))
            }
        }
    }

    /// Whether a slave has only the blank rest of a file after the offset where the logs diverge: two masters write the same bytes there.
    fn has_a_blank_of_its_own(&self, cause: &Refused) -> bool {
        let log = self.nodes[self.slave()].log();
        let own = cause.diverged_at.and_then(|at| log.get(at.get() as usize..)).unwrap_or_default();
        matches!(check_record(own, CheckMode::Layout), Ok(RecordCheck::Blank { .. }))
    }

    /// Whether the slave itself cuts off what its master does not have. It must not have anything there that was acknowledged.
    fn is_unpromised_behind(&mut self, cause: &Refused) -> bool {
        let [master, slave] = [self.master, self.slave()].map(|node| self.nodes[node].replica.as_ref());
        let (Some(at), Some(master), Some(slave)) = (cause.diverged_at, master, slave) else { return false };
        let is_unpromised = master.is_unpromised_behind(at, slave);
        let has = |known: &&Message| {
            known.end > at && bytes_of(slave.store(), known.start, known.end) == known.bytes
        };
        if let Some(Message { start, end, .. }) = self.promised.iter().find(has).filter(|_| is_unpromised) {
            let text = format!("the slave would cut off bytes {start} to {end}, which were acknowledged");
            self.wrong(Rule::R8, text);
        }
        is_unpromised
    }

    /// What the slave does with bytes that its master does not have, or a person: cuts them off where its master says, or begins anew.
    fn mend_slave(&mut self, cause: &Refused, is_unpromised: bool) {
        let node = self.slave();
        let at = cause.diverged_at.filter(|_| is_unpromised || self.rng.bool());
        self.end(node, CrashKind::Stop);
        match at {
            Some(at) => {
                let disk = self.nodes[node].disk.clone();
                let done = StoreReader::open_on(disk, ROOT.as_ref(), None).map_err(|error| error.to_string());
                let done = done
                    .and_then(|reader| cut(&reader, at, &mut |_| true).map_err(|error| error.to_string()));
                if let Err(error) = done {
                    self.wrong(Rule::R8, format!("the slave's log cannot be cut at {at}: {error}"));
                }
                self.nodes[node].disk = self.nodes[node].disk.kill();
            }
            None => self.nodes[node].disk = SimDisk::new(self.nodes[node].disk.options()),
        }
        self.acknowledged.iter_mut().for_each(|known| known.at_slave &= at.is_some_and(|at| known.end <= at));
        self.start_slave();
    }

    /// The slave becomes the master: in order, or because that is gone.
    fn promote(&mut self) {
        let (old, new) = (self.master, self.slave());
        if self.nodes[new].replica.is_none() {
            return;
        }
        if self.nodes[old].replica.is_some() && self.link.is_some() && self.rng.bool() {
            self.catch_up();
            self.end(old, CrashKind::Stop);
        } else {
            let kind = self.some_end();
            self.end(old, kind);
        }
        if self.nodes[new].replica.is_none() {
            return; // it ended meanwhile
        }
        self.end(new, CrashKind::Stop);
        self.master = new;
        for known in &mut self.acknowledged {
            (known.at_master, known.at_slave) = (known.at_slave, known.at_master);
        }
        self.outcome.totals.promotions += 1;
        self.start_master(false);
    }

    /// Everything that is written gets to the slave and back.
    fn catch_up(&mut self) {
        for _ in 0..HEALING_STEPS {
            let ends = [0, 1].map(|node| self.nodes[node].store().map(|store| store.max_physical_offset()));
            if ends[0] == ends[1] || self.link.is_none() || !self.outcome.violations.is_empty() {
                break;
            }
            self.carry();
        }
        self.answer();
    }

    /// Nothing fails any more: both are there, with the same log and sound files.
    fn heal(&mut self) {
        for node in &mut self.nodes {
            node.disk.stop_at(None);
        }
        self.stops = None;
        for _ in 0..3 {
            self.start(self.master);
            self.start(self.slave());
            self.connect();
        }
        self.catch_up();
        if !self.outcome.violations.is_empty() {
            return;
        }
        if self.nodes[0].log() != self.nodes[1].log() {
            self.wrong(Rule::R8, "after healing the logs are not the same");
        }
        for node in 0..2 {
            if let Some(store) = self.nodes[node].store().cloned() {
                while store.step_dispatch().expect("a sound disk") {}
            }
            self.end(node, CrashKind::Stop);
            let reader = StoreReader::open_on(self.nodes[node].disk.clone(), ROOT.as_ref(), None);
            let report = reader
                .map_err(|error| error.to_string())
                .and_then(|reader| verify(&reader, &mut |_| true).map_err(|error| error.to_string()));
            match report {
                Ok(report) if report.is_sound() => {}
                Ok(report) => self.wrong(Rule::R6, format!("node {node}: {:?}", report.problems.first())),
                Err(error) => self.wrong(Rule::R6, format!("node {node} cannot be read: {error}")),
            }
        }
    }
}
